"""The chain of a Responses request: what `previous_response_id` means after a turn was healed.

The caller knows a healed stream by its first attempt's id, under which the server has half of it,
and a healed body by an id that no server has. `continuation.chains` stores the whole turn and
rewrites the requests that continue it; this module chooses the store and the tenant for a request,
and when to ask.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from continuation.policy import Policy, file_of, is_url
from continuation.providers.openai_responses.items import JOINED, held_as
from continuation.types import Json, Request
from continuation.wire.json_values import as_json, as_list, as_text, dumps, loads
from continuation.wire.responses_items import ANCHOR

if TYPE_CHECKING:
    from continuation.chains.rules import Rewritten, Tenant
    from continuation.chains.stores import Entry, Store

_NOT_FOUND = "previous_response_not_found"
_STORE_DOWN = "the chain store did not tell what that response stands for"
_NOT_KEPT = (
    "Previous response with id '{name}' not found: `continuation` joined it from several answers,"
    " so no server has it, and it is not kept here (policy chain_store)"
)
_ONLY_HALF = (
    "Previous response with id '{name}' not found in full: the server has only a truncated response"
    " under this id, and whether `continuation` completed it elsewhere is not known here (policy"
    " chain_store)"
)
_OTHER_REASONS = frozenset({"content_filter"})
"""Why a response is incomplete that is never healed."""
_ITEM_LOST = re.compile(r"Item with id '[^']*' not found")

_stores: dict[str, Store] = {}
"""The stores of this process, by the value of `chain_store`."""
_lock = threading.Lock()


def store(where: str, patience: float) -> Store:
    """Return the store that the policy `chain_store` names; one per name in a process.

    `where`: "memory" or "off" (lost with this process), a PostgreSQL URL, or the path of an SQLite
    file. `patience`: seconds that the store may take, as far as it can bound them itself.
    """
    with _lock:
        if where not in _stores:
            if where in {"memory", "off"}:
                from continuation.chains.stores import MemoryStore  # few requests need one

                _stores[where] = MemoryStore()
            elif is_url(where):
                from continuation.chains.postgres import PostgresStore

                _stores[where] = PostgresStore(where, patience=patience)
            else:
                from continuation.chains.sqlite import SqliteStore

                _stores[where] = SqliteStore(file_of(where), patience=patience)
        return _stores[where]


class Chain:
    """A request's place in its chain. It returns functions that ask the store; shells run them."""

    def __init__(self, request: Request, body: Json) -> None:
        self._upstream = request.host
        own = request.credential or ""
        unseen = f"{own}\nunseen"
        # If the credential that is sent is not known, a turn is stored without an owner, and the
        # server decides who may continue it.
        self._seen = not request.client
        self._credentials = (own, unseen) if self._seen else (unseen, own)
        self._where, self._patience = "memory", 0.0
        self.sent: Mapping[str, object] = body
        """The first attempt's body, as it was sent."""
        self._asked: Mapping[str, object] = body
        self._known: Mapping[str, Entry] | None = {}
        """The store's entries of the chain that ends in the named response; `None`: the store
        failed."""
        self._cleared = True
        """Whether the caller may continue that response, and its content is known."""
        self._why = _STORE_DOWN
        """Why it is not known what that response stands for, where it is not."""
        self._smallest: int | None = None
        """Tokens: answers with a smaller limit are not healed; `None`: none is, by policy."""
        self._made: Rewritten | None = None
        """The rewritten request; `None`: it was sent unchanged."""
        self._promised = ""
        """The id of an answer that the store knows is being healed; `""`: none."""
        self._finished: tuple[Json, Json, str] | None = None

    def _tenant(self) -> Tenant:
        from continuation.chains.rules import Tenant

        kept, content = store(self._where, self._patience), self._where != "off"
        return Tenant(kept, self._upstream, *self._credentials, content=content)

    @property
    def patience(self) -> float | None:
        """Seconds that the store may take; `None`: it is in memory and never makes us wait."""
        return None if self._where in {"memory", "off"} else self._patience

    def _follow(self, policy: Policy) -> None:
        self._where, self._patience = policy.chain_store, policy.store_seconds

    # --- the response that a request continues -------------------------------------------------

    def recall(self, policy: Policy) -> Callable[[], object] | None:
        """Return a function that looks up the response the request names; `None`: it names none."""
        self._follow(policy)
        self._smallest = policy.leave_limits_below if policy.enabled else None
        name = self._asked.get(ANCHOR)
        if not isinstance(name, str) or not name:
            return None
        tenant = self._tenant()
        return lambda: (*tenant.recall(name), tenant.knows(name))

    def recalled(self, found: Any) -> None:
        """Take the result of that function; `None`: the store failed or took too long."""
        self._known, owned, knows = found if found is not None else (None, False, False)
        if self._known == {} and as_text(self._asked.get(ANCHOR)).startswith(JOINED):
            self._known, self._why = None, _NOT_KEPT
        elif self._known == {}:
            self._cleared = knows or self._smallest is None
        else:
            self._cleared = owned and self._seen

    @property
    def doubtful(self) -> str:
        """The id of the response that its server must be asked for first; `""`: of none.

        The store has the named one, but perhaps of another caller; or the store failed; or it is
        lost with its process, so that another process may have healed the named one.
        """
        if self._cleared:
            return ""
        name = as_text(self._asked.get(ANCHOR))
        return getattr((self._known or {}).get(name), "first", None) or name

    def clear(self, answer: bytes | None) -> bool:
        """Take the server's copy of the doubtful response (`None`: an error); whether to rewrite.

        A response of which the store tells nothing is taken for not healed if the server has it
        whole.
        """
        if self._known == {}:
            self._cleared = True
            if answer is not None and self._was_healed(answer):
                self._known, self._why = None, _ONLY_HALF
            elif answer is not None:
                self._tenant().note(as_text(self._asked.get(ANCHOR)))
            return True
        if self._known is None:
            self._cleared = True
            if answer is not None and _is_whole(answer):
                self._known = {}
            return True
        self._cleared = answer is not None
        return self._cleared

    def _was_healed(self, answer: bytes) -> bool:
        """Whether another process may have completed a response that the server shows like this."""
        try:
            shown = as_json(loads(answer))
        except ValueError:
            return False
        limit, why = shown.get("max_output_tokens"), as_json(shown.get("incomplete_details"))
        small = isinstance(limit, int) and limit < (self._smallest or 0)
        left_alone = small or shown.get("background") is True or why.get("reason") in _OTHER_REASONS
        known = shown.get("id") == self._asked.get(ANCHOR) and bool(shown.get("status"))
        return known and not left_alone and not _is_whole(answer)

    def rewritten(self) -> Json | bytes | None:
        """Return the body to send so that the model sees the merged turn.

        `None`: the body is right as it is. Bytes: the request must not be sent, this is its error.
        """
        if not isinstance(self.sent.get(ANCHOR), str):
            return None
        self._asked = self.sent
        return self._tried(lambda rules: rules.rewrite(self._asked, self._find))

    def recovered(self, answer: bytes) -> Json | bytes | None:
        """Return a body with the whole input if the server has lost the chain; see `rewritten`.

        `None`: it has not, or the store has nothing of the chain; the caller gets the error then.
        """
        try:
            error = as_json(as_json(loads(answer)).get("error"))
        except ValueError:
            return None
        lost = error.get("code") == _NOT_FOUND or (
            self._made is not None and _ITEM_LOST.search(as_text(error.get("message")))
        )
        if not lost or not self._known:
            return None
        sent = self._made
        return self._tried(lambda rules: rules.after_not_found(self._asked, self._find, sent=sent))

    def _find(self, name: str) -> Entry | None:
        from continuation.chains.replay import ChainLost

        if self._known is None:
            raise ChainLost(self._why.format(name=name))
        return self._known.get(name)

    def _tried(self, ask: Callable[[Any], Rewritten | None]) -> Json | bytes | None:
        from continuation.chains import rules
        from continuation.chains.replay import ChainLost

        try:
            made = ask(rules)
        except ChainLost as lost:
            return dumps(rules.refusal(lost))
        except ValueError:  # not a valid `input`: the server's own error explains it better
            return None
        self._made = made or self._made
        return dict(made.body) if made is not None else None

    # --- storing the turn ----------------------------------------------------------------------

    def promise(self, policy: Policy, given: str) -> Callable[[], bool] | None:
        """Return a function that records that an answer will be healed; `None`: no need.

        From then on no request continues the server's half of it, even if this process dies. Of a
        body the caller never gets the id of that half.
        """
        self._follow(policy)
        streamed, stored = self.sent.get("stream") is True, self.sent.get("store") is not False
        if self._promised or not (given and streamed and stored):
            return None
        self._promised = given
        return lambda: self._tenant().promise(given)

    def finished(self, response: Json, last: Json, first: str) -> None:
        """Note the response that the caller is about to get.

        `last`: the last attempt's own; `first`: the id of the first attempt's.
        """
        self._finished = response, last, first

    @property
    def given(self) -> str:
        """The id of the response that the caller gets; `""`: none was made."""
        return as_text(self._finished[0].get("id")) if self._finished is not None else ""

    def unchanged(self, policy: Policy, given: str) -> None:
        """Note that the caller gets this response as the server has it."""
        self._follow(policy)
        if given and self.patience is None and self.sent.get("store") is not False:
            self._tenant().note(given)

    def record(self) -> Callable[[], bool] | None:
        """Return a function that stores the turn if the server's differs; `None`: no need."""
        if self.sent.get("store") is False:
            return None
        if self._finished is None:  # the caller gets the answer as the server has it
            given = self._promised
            return (lambda: self._tenant().forget(given)) if given else None
        response, last, first = self._finished
        given, output = as_text(response.get("id")), as_list(response["output"])
        if not given:
            return None
        # If a repeated request was answered whole, the server has that answer, under another id.
        held, tenant = held_as(last, output) or None, self._tenant()
        if held == given:
            tenant.note(given)
            if not self._promised:
                return None
        return lambda: tenant.keep(self.sent, output, given=given, held=held, shown=first)


def _is_whole(answer: bytes) -> bool:
    """Whether a server's copy of a response is complete and below its limit: never healed."""
    try:
        shown = as_json(loads(answer))
    except ValueError:
        return False
    limit, used = shown.get("max_output_tokens"), as_json(shown.get("usage")).get("output_tokens")
    full = isinstance(limit, int) and isinstance(used, int) and used >= limit
    return shown.get("status") == "completed" and not full
