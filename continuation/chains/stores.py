"""Where entries are kept: what a store promises, and one in memory."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from continuation.chains.entries import Entry, KeptTurn, Key, Lost, decode, encode

MONTH: Final = 30 * 24 * 3600.0
"""Seconds; a response that is older is no longer kept by OpenAI either."""
_OVERHEAD: Final = 200
"""Bytes that an entry takes beside its content, roughly."""


class Store(Protocol):
    """Keeps entries, the newest as long as there is room. Every method is safe in any thread.

    A failing store never raises into a turn: it finds nothing, or says that it kept nothing.
    """

    def get(self, key: Key) -> Entry | None:
        """Return the entry, None if it was never there, has gone or is too old."""
        ...

    def put(self, entries: Mapping[Key, Entry]) -> bool:
        """Keep all of them or none, in place of what their keys had; return whether it did."""
        ...

    def close(self) -> None:
        """Let go of what the store holds open; it finds and keeps nothing from then on."""
        ...


class MemoryStore:
    """Entries of this process. The oldest go first once there are too many, or too many bytes."""

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
        self._size = 0
        self._open = True

    def get(self, key: Key) -> Entry | None:
        with self._lock:
            found = self._entries.get(key.digest(self._salt))
        return decode(found[1]) if found and found[0] >= self._now() - self._age else None

    def put(self, entries: Mapping[Key, Entry]) -> bool:
        made = rows(entries, self._salt, self._room)
        now = self._now()
        with self._lock:
            if not self._open:
                return False
            for digest, kept in made:
                self._drop(digest)
                self._entries[digest] = (now, kept)
                self._size += len(kept) + _OVERHEAD
            self._make_room(now - self._age)
        return True

    def close(self) -> None:
        with self._lock:
            self._open = False
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
        found = self._entries.pop(digest, None)
        if found is not None:
            self._size -= len(found[1]) + _OVERHEAD


def check_bounds(**bounds: float) -> None:
    """Raise ValueError for a bound that leaves no room at all."""
    for name, value in bounds.items():
        if not value >= 1:
            message = f"{name}: {value!r} is too small; give 1 or more"
            raise ValueError(message)


def fitted(entry: Entry, room: int) -> bytes | None:
    """Return the entry's bytes, None if it takes too much room and can be done without.

    A joined turn cannot: its id would mean half a turn. It is kept as lost.
    """
    kept = encode(entry)
    if len(kept) <= max(room // 8, _OVERHEAD):
        return kept
    if isinstance(entry, KeptTurn) and not entry.joined:
        return None
    return encode(Lost(f"its {len(kept)} bytes are too many for the store"))


def rows(entries: Mapping[Key, Entry], salt: bytes, room: int) -> list[tuple[bytes, bytes]]:
    """Return digest and bytes of each entry that fits in a store of `room` bytes."""
    made = ((key.digest(salt), fitted(entry, room)) for key, entry in entries.items())
    return [(digest, kept) for digest, kept in made if kept is not None]
