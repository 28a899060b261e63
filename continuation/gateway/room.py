"""Limits for all requests together: bytes in memory, and connections without a request."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

from continuation.config.gateway import GatewayTable
from continuation.gateway.errors import GatewayError

GRACE = 1.0
"""Seconds before a connection counts as waiting. Most requests arrive at once."""
_VALUE = 64
"""Approximate bytes of a decoded JSON value."""
_COPIES = 3
"""Approximate number of copies of a body's text in memory besides the body itself."""
_LATER = b"retry-after", b"1"


class Lease:
    """The bytes of memory that one request uses."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.held = 0

    def take(self, size: int) -> None:
        """Count more bytes. Raises a `GatewayError` if all requests use too many."""
        self._room.held += size
        self.held += size
        if self._room.held > self._room.table.max_held_bytes:
            message = (
                "the bodies of all requests reach max_held_bytes; try again "
                "later, or raise it under [gateway]"
            )
            raise GatewayError(503, message, _LATER)

    def take_parsed(self, size: int, values: int) -> None:
        """Count the memory of a parsed body and of later attempts' bodies. Raises as `take` does.

        `size`: its bytes; `values`: how many JSON values it has.
        """
        self.take(_COPIES * size + _VALUE * values)


class Room:
    """The used bytes and the waiting connections of one gateway."""

    def __init__(self, table: GatewayTable) -> None:
        self.table = table
        """The settings in force."""
        self.held = 0
        """Bytes of the bodies of all requests."""
        self.waiting = Counter[str]()
        """By address, the number of connections without a complete request for `GRACE`."""
        self.streams = 0
        """The number of running requests to upstreams. Their bodies have arrived."""

    @contextlib.contextmanager
    def lease(self) -> Generator[Lease]:
        """Count bytes until the block ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.held -= lease.held

    @contextlib.contextmanager
    def stream(self, *, full: bool = False) -> Generator[None]:
        """Count a request as running. Raises a `GatewayError` if too many are running.

        `full`: count it even then.
        """
        if not full:
            self.check_streams()
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def check_streams(self) -> None:
        """Raise a `GatewayError` if no further request may run."""
        if self.streams >= self.table.max_streams:
            message = (
                f"{self.streams:,} requests are running, the maximum (max_streams); try again later"
            )
            raise GatewayError(503, message, _LATER)

    def wait(self, address: str) -> bool:
        """Count a connection of an address as waiting; `False`: too many are waiting already."""
        if self.waiting[address] >= self.table.max_waiting:
            return False
        self.waiting[address] += 1
        return True

    def wait_no_more(self, address: str) -> None:
        """Stop counting a connection as waiting."""
        self.waiting[address] -= 1
        if self.waiting[address] <= 0:
            del self.waiting[address]
