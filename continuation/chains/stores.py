"""What the registry keeps of a response, under which key, and where: the stores.

An entry is kept as JSON in UTF-8. A store has only a keyed digest of its `Key`.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from continuation.wire.json_values import loads

MONTH: Final = 30 * 24 * 3600.0
"""A month in seconds. OpenAI does not keep older responses either."""
OVERHEAD: Final = 200
"""Approximate bytes of an entry without its content."""
MOST_NOTED: Final = 50_000
"""The most responses that a process notes as delivered unchanged: some 5 MB."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a tenant's response. A store keeps only a keyed digest of all three fields."""

    upstream: str
    """Host or base URL: any name that stays the same."""
    credential: str = field(repr=False)
    """What distinguishes tenants and outlives the process: the credential, or a digest of it."""
    id: str
    """The response's id."""

    def digest(self, salt: bytes) -> bytes:
        """Return 16 bytes that identify this key. `salt`: up to 64 bytes, the store's own."""
        # The lengths distinguish ("ab", "c") from ("a", "bc").
        parts = f"{len(self.upstream)}.{len(self.credential)}.{self.upstream}{self.credential}"
        text = (parts + self.id).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=16, key=salt).digest()


@dataclass(frozen=True, slots=True)
class Alias:
    """The server has the answer under another id than the caller."""

    to: str
    """The server's id for it."""


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """What the turn added to the conversation."""

    base: str | None
    """Id of the response that the turn continued, as the server has it; None: there was none."""
    items: list[Any] = field(repr=False)
    """The input of the turn, then its output, in a form that can be sent.

    The server has no response with exactly this: it has the attempts, and a recovery prompt.
    """
    first: str | None = None
    """Id of the first attempt's response. The server shows it to those who may continue it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A joined turn without kept content. A request that continues from it is refused."""

    why: str
    """The reason, as the end of the sentence with which such a request is refused."""


Entry: TypeAlias = Alias | KeptTurn | Lost
Find: TypeAlias = Callable[[str], Entry | None]
"""Returns the entry of a response id, None if there is none. The tenant is fixed."""


def encode(entry: Entry) -> bytes:
    """Return an entry as bytes."""
    match entry:
        case Alias(to):
            document: Mapping[str, Any] = {"to": to}
        case Lost(why):
            document = {"lost": why}
        case KeptTurn(base, items, first):
            document = {"base": base, "items": items, "first": first}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Entry:
    """Return the entry in these bytes; `Lost` if they cannot be read."""
    try:
        document = loads(data)
        if "to" in document:
            return Alias(document["to"])
        if "lost" in document:
            return Lost(document["lost"])
        return KeptTurn(document["base"], document["items"], document.get("first"))
    except (ValueError, LookupError, TypeError):
        # If the request were passed on, the model would see half a turn.
        return Lost("its record cannot be read")


# -- stores --------------------------------------------------------------------------------------


class StoreDown(Exception):  # noqa: N818 - says what happened, like StopIteration
    """A store cannot be read at the moment, so its content is unknown."""


class Store(Protocol):
    """Keeps entries; if room is short, the newest. Every method is safe in any thread."""

    def get(self, key: Key) -> Entry | None:
        """Return the entry; None: there is none, or it is too old. Raises StoreDown.

        A store has no entries if it is closed, or if its file belongs to another program.
        """
        ...

    def put(self, entries: Mapping[Key, Entry | None]) -> bool:
        """Keep all entries or none, and replace those of their keys; return whether it succeeded.

        None removes the entry of a key. This method never raises.
        """
        ...

    def close(self) -> None:
        """Close files and connections. After that, the store finds and keeps nothing."""
        ...


class MemoryStore:
    """Entries of this process. If there are too many, or too many bytes, the oldest are removed."""

    def __init__(
        self,
        *,
        max_entries: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = MONTH,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`max_age` in seconds; `now` is a clock in seconds. Raises ValueError below 1."""
        check_bounds(max_entries=max_entries, max_bytes=max_bytes, max_age=max_age)
        self._most, self._room, self._age, self._now = max_entries, max_bytes, max_age, now
        self._salt = os.urandom(16)
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._unchanged: OrderedDict[bytes, None] = OrderedDict()
        self._size = 0
        self._open = True

    def get(self, key: Key) -> Entry | None:
        with self._lock:
            row = self._entries.get(key.digest(self._salt))
        return decode(row[1]) if row and row[0] >= self._now() - self._age else None

    def put(self, entries: Mapping[Key, Entry | None]) -> bool:
        entry_rows = rows(entries, self._salt, self._room)
        now = self._now()
        with self._lock:
            if not self._open:
                return False
            for digest, data in entry_rows:
                self._drop(digest)
                if data is not None:
                    self._entries[digest] = (now, data)
                    self._size += len(data) + OVERHEAD
            self._make_room(now - self._age)
        return True

    def note(self, key: Key) -> None:
        """Note a response that the caller received as the server has it."""
        digest = key.digest(self._salt)
        with self._lock:
            self._unchanged[digest] = None
            self._unchanged.move_to_end(digest)
            if len(self._unchanged) > MOST_NOTED:
                self._unchanged.popitem(last=False)

    def noted(self, key: Key) -> bool:
        """Whether a response is among the last `MOST_NOTED` for which `note` was called."""
        return key.digest(self._salt) in self._unchanged

    def close(self) -> None:
        with self._lock:
            self._open = False
            self._unchanged.clear()
            self._entries.clear()
            self._size = 0

    def _make_room(self, oldest: float) -> None:
        while self._entries:
            digest, (created, _) = next(iter(self._entries.items()))
            full = len(self._entries) > self._most or self._size > self._room
            if not full and created >= oldest:
                return
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        row = self._entries.pop(digest, None)
        if row is not None:
            self._size -= len(row[1]) + OVERHEAD


def check_bounds(**bounds: float) -> None:
    """Raise ValueError for a limit that leaves no room."""
    for name, value in bounds.items():
        if not value >= 1:
            raise ValueError(f"{name}: {value!r} is too small; use 1 or more")


def rows(
    entries: Mapping[Key, Entry | None], salt: bytes, room: int
) -> list[tuple[bytes, bytes | None]]:
    """Return digest and bytes (None: remove it) of each entry, for a store of `room` bytes.

    A turn that takes too much room is kept as `Lost`. Without that, its id would mean half a turn.
    """
    encoded: list[tuple[bytes, bytes | None]] = []
    for key, entry in entries.items():
        data = None if entry is None else encode(entry)
        if data is not None and len(data) > max(room // 8, OVERHEAD):
            data = encode(Lost(f"its {len(data)} bytes are too many for the store"))
        encoded.append((key.digest(salt), data))
    return encoded
