"""What the registry keeps: under which key, what it says of a response, and as which bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Key:
    """Whose response it is. A store keeps a keyed digest of all three, never the words."""

    upstream: str
    """Host or base URL; the caller's choice, as long as it stays the same."""
    credential: str = field(repr=False)
    """Whatever tells tenants apart and outlives the process: the credential, or a digest of it."""
    id: str
    """Of the response."""

    def digest(self, salt: bytes) -> bytes:
        """16 bytes that stand for this key; `salt` is the store's own, up to 64 bytes."""
        # The lengths keep ("ab", "c") and ("a", "bc") apart.
        parts = f"{len(self.upstream)}.{len(self.credential)}.{self.upstream}{self.credential}"
        text = (parts + self.id).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=16, key=salt).digest()


@dataclass(frozen=True, slots=True)
class Alias:
    """The answer that the caller knows by this id is kept by the server under another one."""

    to: str
    """The server's id for it."""


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """What the turn added to the conversation."""

    base: str | None
    """The response that the turn went on from, as the server knows it."""
    items: list[Any] = field(repr=False)
    """The input of the turn, then its output, in a form that can be sent."""
    joined: bool = True
    """No single response holds it: the server knows only attempts, and a recovery prompt."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A joined turn whose content is not kept, so that a request that goes on from it fails."""

    why: str
    """Ends the sentence that refuses such a request."""


Entry: TypeAlias = Alias | KeptTurn | Lost
Find: TypeAlias = Callable[[str], Entry | None]
"""Looks up a response id, for an upstream and a credential that are known."""


def encode(entry: Entry) -> bytes:
    """Return the entry as JSON in UTF-8, which both stores keep."""
    match entry:
        case Alias(to):
            document: Mapping[str, Any] = {"to": to}
        case Lost(why):
            document = {"lost": why}
        case KeptTurn(base, items, joined):
            document = {"base": base, "items": items, "joined": joined}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decode(kept: bytes) -> Entry:
    """Return the entry that these bytes say; one that cannot be read counts as lost."""
    try:
        document: Any = json.loads(kept.decode("utf-8", "surrogatepass"))
        if "to" in document:
            return Alias(document["to"])
        if "lost" in document:
            return Lost(document["lost"])
        return KeptTurn(document["base"], document["items"], document["joined"])
    except (ValueError, LookupError, TypeError):
        # Passing the request on would show the model half a turn.
        return Lost("its record cannot be read")
