"""The chain of a Responses request: what `previous_response_id` means after a turn was healed.

The caller knows a healed turn by its first attempt's id, under which the server holds half of it.
`continuation.chains` keeps what the turn said and rewrites the requests that go on from it; this
module says which tenant of which store a request is, and when.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from continuation.policy import Policy, file_of, is_url
from continuation.types import Json, Request
from continuation.wire.json_values import as_json, as_list, as_text, dumps, loads

if TYPE_CHECKING:
    from continuation.chains.rules import Rewritten, Tenant
    from continuation.chains.stores import Entry, Store

_ANCHOR = "previous_response_id"
_NOT_FOUND = "previous_response_not_found"
_ITEM_LOST = re.compile(r"Item with id '[^']*' not found")

_stores: dict[str, Store] = {}
"""The stores of this process, by what `chain_store` says."""
_lock = threading.Lock()


def store(where: str, patience: float) -> Store:
    """Return the store that the policy `chain_store` names; one for each in a process.

    `memory`, `off`: with this process; a PostgreSQL URL; else the path of an SQLite file.
    `patience`: seconds that the store may take, as far as it can say so itself.
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
    """One request's place in its chain. It says what a store is to be asked; the shells ask."""

    def __init__(self, request: Request, body: Json) -> None:
        self._upstream = request.host
        own = request.credential or ""
        unseen = f"{own}\nunseen"
        # Where the credential that leaves is not known, what is kept is nobody's, and the server
        # says who may go on from it.
        self._seen = not request.client
        self._credentials = (own, unseen) if self._seen else (unseen, own)
        self._where, self._patience = "memory", 0.0
        self.sent: Mapping[str, object] = body
        """The first attempt's body, as it was sent."""
        self._asked: Mapping[str, object] = body
        self._known: Mapping[str, Entry] | None = {}
        """What the store holds of the chain, from the response that is named; `None`: it did not
        tell."""
        self._cleared = True
        """Who asks may go on from it, and it is known what it stands for."""
        self._made: Rewritten | None = None
        """What became of it, if it did not go as it was."""
        self._promised = ""
        """The id of the answer that the store knows to be in the making."""
        self._finished: tuple[Json, Json] | None = None

    def _tenant(self) -> Tenant:
        from continuation.chains.rules import Tenant

        kept, content = store(self._where, self._patience), self._where != "off"
        return Tenant(kept, self._upstream, *self._credentials, content=content)

    @property
    def patience(self) -> float | None:
        """Seconds that the store may take; `None`: it has nothing to wait for."""
        return None if self._where in {"memory", "off"} else self._patience

    def _follow(self, policy: Policy) -> None:
        self._where, self._patience = policy.chain_store, policy.store_seconds

    # --- what a request goes on from -----------------------------------------------------------

    def recall(self, policy: Policy) -> Callable[[], object] | None:
        """Return what looks up the response that the request names; `None`: it names none."""
        self._follow(policy)
        name = self._asked.get(_ANCHOR)
        return (lambda: self._tenant().recall(name)) if isinstance(name, str) and name else None

    def recalled(self, found: Any) -> None:
        """Take what was found; `None`: the store did not tell."""
        self._known, owned = found if found is not None else (None, False)
        self._cleared = self._known == {} or (owned and self._seen)

    @property
    def doubtful(self) -> str:
        """The id of a response of which its server is to be asked first; `""`: there is none.

        It is known, if perhaps not to who asks; or the store does not tell what it stands for.
        """
        return "" if self._cleared else as_text(self._asked.get(_ANCHOR))

    def clear(self, answer: bytes | None) -> bool:
        """Take what the server shows of the doubtful response; whether the request is to go on.

        What the store cannot be asked about was not mended if the server has it whole.
        """
        if self._known is None:
            self._cleared = True
            if answer is not None and _is_whole(answer):
                self._known = {}
            return True
        self._cleared = answer is not None
        return self._cleared

    def rewritten(self) -> Json | bytes | None:
        """Return the body to send so that the model sees the merged turn.

        `None`: it can go as it is. Bytes: it must not be sent; this is the error that says why.
        """
        if not isinstance(self.sent.get(_ANCHOR), str):
            return None
        self._asked = self.sent
        return self._tried(lambda rules: rules.rewrite(self._asked, self._find))

    def recovered(self, answer: bytes) -> Json | bytes | None:
        """Return the whole input for a server that has lost the chain, as `rewritten` does.

        `None` too where nothing is known of the chain: then the server's own error is the answer.
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
            raise ChainLost("the chain store did not tell what that response stands for")
        return self._known.get(name)

    def _tried(self, ask: Callable[[Any], Rewritten | None]) -> Json | bytes | None:
        from continuation.chains import rules
        from continuation.chains.replay import ChainLost

        try:
            made = ask(rules)
        except ChainLost as lost:
            return dumps(rules.refusal(lost))
        except ValueError:  # an `input` that is none: the server says so better
            return None
        self._made = made or self._made
        return dict(made.body) if made is not None else None

    # --- what is kept of the turn --------------------------------------------------------------

    def promise(self, policy: Policy, given: str) -> Callable[[], bool] | None:
        """Return what tells the store that an answer is about to be mended; `None`: no need.

        From then on nobody goes on from what the server holds of it, whatever becomes of us.
        """
        self._follow(policy)
        if self._promised or not given or self.sent.get("store") is False:
            return None
        self._promised = given
        return lambda: self._tenant().promise(given)

    def finished(self, response: Json, last: Json) -> None:
        """Note the turn that the caller is about to get, and the last attempt's own response."""
        self._finished = response, last

    def record(self) -> Callable[[], bool] | None:
        """Return what keeps the turn, if the server holds another one; `None`: nothing to keep."""
        if self.sent.get("store") is False:
            return None
        if self._finished is None:  # it goes out as the server has it
            given = self._promised
            return (lambda: self._tenant().forget(given)) if given else None
        response, last = self._finished
        given, output = as_text(response.get("id")), as_list(response["output"])
        if not given:
            return None
        # Asked for again and answered whole: the server holds that very answer, under its own id.
        same = last.get("id") and as_list(last.get("output")) == output
        held = as_text(last.get("id")) if same and last.get("status") == "completed" else None
        return lambda: self._tenant().keep(self.sent, output, given=given, held=held)


def _is_whole(answer: bytes) -> bool:
    """Whether a server shows a response that nobody had a reason to mend."""
    try:
        shown = as_json(loads(answer))
    except ValueError:
        return False
    limit, used = shown.get("max_output_tokens"), as_json(shown.get("usage")).get("output_tokens")
    full = isinstance(limit, int) and isinstance(used, int) and used >= limit
    return shown.get("status") == "completed" and not full
