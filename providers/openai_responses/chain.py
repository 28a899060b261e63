"""The chain of a Responses request: what `previous_response_id` means after a turn was healed.

The caller knows a healed turn by its first attempt's id, under which the server holds half of it.
`continuation.chains` keeps what the turn said and rewrites the requests that go on from it; this
module says which registry a request belongs to, and when.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from continuation.policy import file_of
from continuation.types import Json, Request
from continuation.wire.json_values import as_json, as_list, as_text, dumps, loads

if TYPE_CHECKING:
    from continuation.chains.rules import Chains, Rewritten, Tenant

_ANCHOR = "previous_response_id"
_NOT_FOUND = "previous_response_not_found"
_ITEM_LOST = re.compile(r"Item with id '[^']*' not found")

_registries: dict[str, Chains] = {}
"""The registries of this process, by what `chain_store` says."""
_lock = threading.Lock()


def registry(where: str) -> Chains:
    """Return the registry that the policy `chain_store` names; one for each in a process.

    `memory`: with this process; `off`: no content is kept; else the path of an SQLite file.
    """
    from continuation.chains.rules import Chains  # few requests need them
    from continuation.chains.sqlite import SqliteStore
    from continuation.chains.stores import MemoryStore

    with _lock:
        if where not in _registries:
            kept = where in {"memory", "off"}
            store = MemoryStore() if kept else SqliteStore(file_of(where))
            _registries[where] = Chains(store, content="off" if where == "off" else "joined")
        return _registries[where]


class Chain:
    """One request's place in its chain."""

    def __init__(self, request: Request, body: Json) -> None:
        self._upstream = request.host
        own = request.credential or ""
        unseen = f"{own}\nunseen"
        # Where the credential that leaves is not known, what is kept is nobody's, and the server
        # says who may go on from it.
        self._seen = not request.client
        self._credentials = (own, unseen) if self._seen else (unseen, own)
        self.proven = False
        """The server has shown the response that the request goes on from to who asks."""
        self.where = "memory"
        """What the policy `chain_store` says."""
        self.sent: Mapping[str, object] = body
        """The first attempt's body, as it was sent."""
        self._asked: Mapping[str, object] = body
        self._made: Rewritten | None = None
        """What became of it, if it did not go as it was."""

    def _tenant(self) -> Tenant:
        return registry(self.where).of(self._upstream, *self._credentials)

    @property
    def doubtful(self) -> str:
        """The id of a response that is known, if perhaps not to who asks; `""`: there is none."""
        name = self._asked.get(_ANCHOR)
        if not isinstance(name, str) or (self._seen and self._tenant().owns(name)):
            return ""
        return name if self._tenant().find(name) is not None else ""

    def rewritten(self) -> Json | bytes | None:
        """Return the body to send so that the model sees the merged turn.

        `None`: it can go as it is. Bytes: it must not be sent; this is the error that says why.
        """
        if not isinstance(self.sent.get(_ANCHOR), str):
            return None
        self._asked = self.sent
        return self._tried(lambda: self._tenant().rewrite(self._asked))

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
        if not lost or self._tenant().find(as_text(self._asked.get(_ANCHOR))) is None:
            return None
        sent = self._made
        return self._tried(lambda: self._tenant().after_not_found(self._asked, sent=sent))

    def _tried(self, ask: Callable[[], Rewritten | None]) -> Json | bytes | None:
        from continuation.chains.replay import ChainLost
        from continuation.chains.rules import refusal

        try:
            made = ask()
        except ChainLost as lost:
            return dumps(refusal(lost))
        except ValueError:  # an `input` that is none: the server says so better
            return None
        self._made = made or self._made
        return dict(made.body) if made is not None else None

    def finished(self, response: Json, last: Json) -> None:
        """Keep the turn that the caller is about to get, if the server holds another one."""
        given = as_text(response.get("id"))
        if not given or self.sent.get("store") is False:
            return
        # Asked for again and answered whole: the server holds that very answer, under its own id.
        same = last.get("id") and as_list(last.get("output")) == response["output"]
        held = as_text(last.get("id")) if same and last.get("status") == "completed" else None
        self._tenant().keep(self.sent, as_list(response["output"]), given=given, held=held)
