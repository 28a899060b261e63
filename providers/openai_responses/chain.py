"""The chain of a Responses request: what `previous_response_id` means for a completed turn.

The caller has the id of the first attempt for a completed stream. Under that id, the server has
only the first part of the answer. For a completed body the caller may have an id that no server
has. `continuation.chains` stores the complete turn, and rewrites requests that continue it. This
module chooses the store and the tenant for a request, and the time of each look-up.
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
"""The reasons of incomplete responses that are never completed."""
_ITEM_LOST = re.compile(r"Item with id '[^']*' not found")

_stores: dict[str, Store] = {}
"""The value of `chain_store` -> the store, for this process."""
_lock = threading.Lock()


def store(where: str, patience: float) -> Store:
    """Return the store that the policy `chain_store` names. A process has one store for each name.

    `where`: "memory" or "off" (lost with this process), a PostgreSQL URL, or the path of an SQLite
    file. `patience`: the seconds that the store may take, if it can bound them itself.
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
    """A request's place in its chain.

    Some methods return a function that uses the store. A shell runs that function.
    """

    def __init__(self, request: Request, body: Json) -> None:
        self._upstream = request.host
        own = request.credential or ""
        unseen = f"{own}\nunseen"
        # If the credential that is sent is unknown here, a turn is stored without an owner, and the
        # server decides who may continue it.
        self._seen = not request.client
        self._credentials = (own, unseen) if self._seen else (unseen, own)
        self._where, self._patience = "memory", 0.0
        self.sent: Mapping[str, object] = body
        """The first attempt's body as it was sent."""
        self._asked: Mapping[str, object] = body
        self._known: Mapping[str, Entry] | None = {}
        """The store's entries of the chain that ends in the named response; `None`: the store
        failed."""
        self._cleared = True
        """Whether the caller may continue that response, and its content is known."""
        self._why = _STORE_DOWN
        """The reason why the content of that response is unknown, if it is."""
        self._smallest: int | None = None
        """Answers with a smaller limit in tokens are not completed; `None`: none is, by policy."""
        self._made: Rewritten | None = None
        """The rewritten request; `None`: it was sent unchanged."""
        self._promised = ""
        """The id of an answer that the store has as about to be completed; `""`: none."""
        self._finished: tuple[Json, Json, str] | None = None

    def _tenant(self) -> Tenant:
        from continuation.chains.rules import Tenant

        kept, content = store(self._where, self._patience), self._where != "off"
        return Tenant(kept, self._upstream, *self._credentials, content=content)

    @property
    def patience(self) -> float | None:
        """The seconds that the store may take; `None`: it is in memory, so there is no wait."""
        return None if self._where in {"memory", "off"} else self._patience

    def _follow(self, policy: Policy) -> None:
        self._where, self._patience = policy.chain_store, policy.store_seconds

    # --- the response that a request continues -------------------------------------------------

    def recall(self, policy: Policy) -> Callable[[], object] | None:
        """Return a function that looks up the response that the request names, or `None`."""
        self._follow(policy)
        self._smallest = policy.leave_limits_below if policy.enabled else None
        name = self._asked.get(ANCHOR)
        if not isinstance(name, str) or not name:
            return None
        tenant = self._tenant()
        return lambda: (*tenant.recall(name), tenant.knows(name))

    def recalled(self, found: Any) -> None:
        """Receive the result of that function; `None`: the store failed or took too long."""
        self._known, owned, knows = found if found is not None else (None, False, False)
        if self._known == {} and as_text(self._asked.get(ANCHOR)).startswith(JOINED):
            self._known, self._why = None, _NOT_KEPT
        elif self._known == {}:
            self._cleared = knows or self._smallest is None
        else:
            self._cleared = owned and self._seen

    @property
    def doubtful(self) -> str:
        """The id of a response that must be requested from its server first; `""`: none.

        There are three reasons: the entry in the store may be another caller's, the store failed,
        or the store is lost with its process, so that another process may have completed the named
        response.
        """
        if self._cleared:
            return ""
        name = as_text(self._asked.get(ANCHOR))
        return getattr((self._known or {}).get(name), "first", None) or name

    def clear(self, answer: bytes | None) -> bool:
        """Receive the server's copy of the doubtful response; return whether to rewrite.

        `answer`: `None` if the server answered with an error. If the store has nothing about a
        response and the server has it complete, it counts as not completed by us.
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
        """Whether another process may have completed a response with this copy on the server."""
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
        """Return a body with which the model sees the merged turn.

        `None`: the body is right already. Bytes: the request must not be sent, and these are the
        body of its error.
        """
        if not isinstance(self.sent.get(ANCHOR), str):
            return None
        self._asked = self.sent
        return self._tried(lambda rules: rules.rewrite(self._asked, self._find))

    def recovered(self, answer: bytes) -> Json | bytes | None:
        """Return a body with the complete input if the server has lost the chain; see `rewritten`.

        `None`: the server has not lost it, or the store has nothing about the chain. Then the
        caller gets the error.
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
        except ValueError:  # `input` is invalid, and the server's own error explains it better
            return None
        self._made = made or self._made
        return dict(made.body) if made is not None else None

    # --- storing the turn ----------------------------------------------------------------------

    def promise(self, policy: Policy, given: str) -> Callable[[], bool] | None:
        """Return a function that records that an answer will be completed, or `None`.

        After that no request continues the server's part of the answer, even if this process dies.
        It is not needed for a body, because the caller never gets the id of that part.
        """
        self._follow(policy)
        streamed, stored = self.sent.get("stream") is True, self.sent.get("store") is not False
        if self._promised or not (given and streamed and stored):
            return None
        self._promised = given
        return lambda: self._tenant().promise(given)

    def finished(self, response: Json, last: Json, first: str) -> None:
        """Note the response that will be delivered.

        `last`: the last attempt's response. `first`: the id of the first attempt's response.
        """
        self._finished = response, last, first

    @property
    def given(self) -> str:
        """The id of the delivered response; `""`: none was made."""
        return as_text(self._finished[0].get("id")) if self._finished is not None else ""

    def unchanged(self, policy: Policy, given: str) -> None:
        """Note that the caller gets this response unchanged."""
        self._follow(policy)
        if given and self.patience is None and self.sent.get("store") is not False:
            self._tenant().note(given)

    def record(self) -> Callable[[], bool] | None:
        """Return a function that stores the turn if the server has another one, or `None`."""
        if self.sent.get("store") is False:
            return None
        if self._finished is None:  # the caller gets the answer unchanged
            given = self._promised
            return (lambda: self._tenant().forget(given)) if given else None
        response, last, first = self._finished
        given, output = as_text(response.get("id")), as_list(response["output"])
        if not given:
            return None
        # If a resent request got a complete answer, the server has that answer under another id.
        held, tenant = held_as(last, output) or None, self._tenant()
        if held == given:
            tenant.note(given)
            if not self._promised:
                return None
        return lambda: tenant.keep(self.sent, output, given=given, held=held, shown=first)


def _is_whole(answer: bytes) -> bool:
    """Whether a server's copy of a response is complete and below its limit.

    Such a response was not completed by us.
    """
    try:
        shown = as_json(loads(answer))
    except ValueError:
        return False
    limit, used = shown.get("max_output_tokens"), as_json(shown.get("usage")).get("output_tokens")
    full = isinstance(limit, int) and isinstance(used, int) and used >= limit
    return shown.get("status") == "completed" and not full
