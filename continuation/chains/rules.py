"""What to keep of a completed turn, and how to rewrite a later request that continues from it.

The caller knows a completed turn by the id of its first attempt. Under that id the server has half
an answer. Under the last attempt's id it also has our recovery prompt. So if a request names the
first id, we send it with the id from before the turn, and with the turn itself as input. This
module has pure functions, which change nothing in place, and `Tenant`, which dialects use:

    tenant = Tenant(SqliteStore("chains.db"), "api.openai.com", credential)
    known, owned = tenant.recall("resp_1")  # the chain that `body` continues
    sent = rewrite(body, known.get)  # None: send the body as it is
    tenant.keep(first, output, given="resp_1", held=None)  # before the terminal bytes are sent

Design: design/chains.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from continuation.chains.replay import (
    ChainLost,
    as_items,
    carried,
    fits,
    references,
    replay,
)
from continuation.chains.stores import Alias, Entry, Find, KeptTurn, Key, Lost, MemoryStore, Store
from continuation.history.types import Body
from continuation.wire.responses_items import ANCHOR

_MOST_HOPS: Final = 4096


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A request in the form in which it must be sent."""

    body: dict[str, Any] = field(repr=False)
    why: Literal["alias", "joined", "replayed"]
    """What was changed: only the id, a joined turn added, or the complete chain sent as input."""


# -- what to keep --------------------------------------------------------------------------------


def entries_for(
    first: Body,
    output: list[Any],
    *,
    given: str,
    held: str | None,
    shown: str | None = None,
    content: bool = True,
) -> dict[str, Entry]:
    """Return what must be kept of a turn, by response id; usually nothing.

    `first`: the body of the first attempt as it was sent, after `rewrite`. `output`: the items that
    the caller receives. `given`: the id that the caller receives. `held`: the id under which the
    server has exactly this answer, None if recoveries were joined to it. `shown`: the id of the
    first attempt's response. `content`: whether a turn's content may be kept if it is needed.

    A joined turn of a conversation is `Lost`, because the conversation's content at that time is
    unknown.
    """
    if first.get("store") is False:
        return {}
    if held is not None:
        return {given: Alias(held)} if held != given else {}
    if not content:
        reason = 'such turns are not recorded (chain_store = "off")'
    elif first.get("conversation"):
        reason = "it belongs to a conversation that the server stores"
    else:
        items = as_items(first.get("input")) + carried(output, stored=True)
        if fits(items):
            return {given: KeptTurn(first.get(ANCHOR), items, shown)}
        reason = f"its {len(items)} items are too large to be recorded"
    return {given: Lost(reason)}


# -- what to send --------------------------------------------------------------------------------


def rewrite(body: Body, find: Find) -> Rewritten | None:
    """Return the request that continues from the joined turn; None: it can be sent unchanged.

    Raises ChainLost if the complete turn cannot be sent, and ValueError if `input` is invalid.
    """
    anchor = body.get(ANCHOR)
    if not isinstance(anchor, str) or body.get("conversation"):
        return None
    base, history = _walk(anchor, find)
    if base == anchor:
        return None
    if history is None:
        return Rewritten({**body, ANCHOR: base}, "alias")
    if body.get("store") is False:  # the server then looks up nothing, not even what it stored
        history = carried(history, stored=False)
    return Rewritten(replay(body, history, base=base), "joined")


def after_not_found(body: Body, find: Find, *, sent: Rewritten | None = None) -> Rewritten:
    """Return the full input, without an anchor, for a server that has lost the chain of `body`.

    The server reports "Previous response with id ... not found", or for a joined turn without an
    anchor, "Item with id ... not found". `body` is the caller's. `sent` is the result of `rewrite`
    for it, None if it was sent unchanged. Call this before any of the answer is delivered.

    Raises ChainLost unless everything before is known and every output has its call. Also raises it
    if the full input was sent already, because it is sent once per turn.
    """
    anchor = body.get(ANCHOR)
    if not isinstance(anchor, str) or (sent is not None and sent.why == "replayed"):
        raise ChainLost("the server does not find a chain that was sent in full")
    base, history = _walk(anchor, find)
    # If the server has lost a response that we do not have either, all before it is lost too.
    history_items = carried(history or [], stored=False) if base is None else None
    replayed = replay(body, history_items)
    unknown_items = references(replayed["input"])
    if unknown_items:
        raise ChainLost(f"only the lost response has the items {', '.join(unknown_items)}")
    return Rewritten(replayed, "replayed")


def _walk(anchor: str, find: Find) -> tuple[str | None, list[Any] | None]:
    """Follow the entries back to a response that the server has as the caller knows it.

    Return its id (None: the chain's beginning), and the items of the turns after it (None: there
    are none).
    """
    at: str | None = anchor
    turns: list[list[Any]] = []  # newest first
    for _ in range(_MOST_HOPS):
        match find(at) if at is not None else None:
            case Alias(to):
                at = to
            case KeptTurn(base, items):
                turns.append(items)
                at = base
            case Lost(why):
                raise ChainLost(f"the turn {at} was completed from several responses, and {why}")
            case _:
                return at, [item for turn in reversed(turns) for item in turn] if turns else None
    raise ChainLost(f"the chain has more than {_MOST_HOPS} turns")


def refusal(lost: ChainLost) -> dict[str, Any]:
    """Return the body of a 400 for a lost chain, in the provider's form.

    Clients react to its code by sending the complete conversation, which is the remedy.
    """
    error = {
        "message": str(lost),
        "type": "invalid_request_error",
        "param": ANCHOR,
        "code": "previous_response_not_found",
    }
    return {"error": error}


# -- what dialects use ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tenant:
    """The chains of one credential at one upstream. It also reads those of `beside`."""

    store: Store
    """Where the entries of all tenants are kept."""
    upstream: str
    """The server that knows these chains."""
    credential: str = field(repr=False)
    """The credential of the chains."""
    beside: str | None = field(default=None, repr=False)
    """Another credential with chains that are read too. The caller must be trusted with them."""
    content: bool = True
    """Whether a turn's content may be kept if it is needed."""

    def keep(
        self,
        first: Body,
        output: list[Any],
        *,
        given: str,
        held: str | None,
        shown: str | None = None,
    ) -> bool:
        """Keep what `entries_for` returns. Call it before the terminal bytes are sent.

        Return False if something could not be kept.
        """
        entries = entries_for(
            first, output, given=given, held=held, shown=shown, content=self.content
        )
        # None removes what `promise` kept, because the answer is the server's own.
        return self.store.put({self._key(given): entries.get(given)})

    def promise(self, given: str) -> bool:
        """Note that this answer will differ from the server's. `keep` or `forget` must follow.

        Until then, a request that continues from it is refused. Return whether it was noted.
        """
        return self.store.put({self._key(given): Lost("its content was not recorded")})

    def forget(self, given: str) -> bool:
        """Cancel `promise`, because the answer is the server's own."""
        return self.store.put({self._key(given): None})

    def recall(self, name: str) -> tuple[dict[str, Entry], bool]:
        """Return a response's entry and those before it, by id; and whether this credential has it.

        `rewrite` and `after_not_found` need no other entries for a request that names it.
        Raises StoreDown.
        """
        entries: dict[str, Entry] = {}
        own = self.store.get(self._key(name))
        response_id: str | None = name
        while response_id is not None and response_id not in entries and len(entries) <= _MOST_HOPS:
            entry = own if response_id == name and own is not None else self.find(response_id)
            if entry is None:
                break
            entries[response_id] = entry
            match entry:
                case Alias(to):
                    response_id = to
                case KeptTurn(base):
                    response_id = base
                case Lost():
                    response_id = None
        return entries, own is not None

    def find(self, name: str) -> Entry | None:
        """Return the entry of a response, None if there is none. Raises StoreDown."""
        entry = self.store.get(self._key(name))
        if entry is None and self.beside is not None:
            entry = self.store.get(Key(self.upstream, self.beside, name))
        return entry

    def note(self, name: str) -> None:
        """Note that the caller received this response as the server has it.

        A store that outlives the process needs no note, because it has all completed turns.
        """
        if isinstance(self.store, MemoryStore):
            self.store.note(self._key(name))

    def knows(self, name: str) -> bool:
        """Whether the store knows that a response without an entry was delivered unchanged."""
        return not isinstance(self.store, MemoryStore) or self.store.noted(self._key(name))

    def _key(self, name: str) -> Key:
        return Key(self.upstream, self.credential, name)
