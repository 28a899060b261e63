"""What all requests together may hold: bytes in memory, and connections that send no request."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

from continuation.config.gateway import GatewayTable
from continuation.gateway.errors import GatewayError

GRACE = 1.0
"""Seconds for which nobody counts as waiting: most requests arrive at once."""
_VALUE = 64
"""Bytes that a decoded JSON value takes, roughly."""
_COPIES = 3
"""How often a body's text is in memory beside the body itself, roughly."""
_LATER = b"retry-after", b"1"


class Lease:
    """The bytes that one request holds."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.held = 0

    def take(self, size: int) -> None:
        """Hold more bytes; raises a `GatewayError` if there are too many in all."""
        self._room.held += size
        self.held += size
        if self._room.held > self._room.table.max_held_bytes:
            message = (
                "the bodies of all requests reach max_held_bytes; try again "
                "later, or raise it under [gateway]"
            )
            raise GatewayError(503, message, _LATER)

    def take_parsed(self, size: int, values: int) -> None:
        """Hold what a parsed body takes, and the bodies of later attempts; raises as `take` does.

        `size`: its bytes; `values`: how many JSON values it has.
        """
        self.take(_COPIES * size + _VALUE * values)


class Room:
    """What is held and who waits, in one gateway."""

    def __init__(self, table: GatewayTable) -> None:
        self.table = table
        """The settings in force."""
        self.held = 0
        """Bytes of the bodies of all requests."""
        self.waiting = Counter[str]()
        """By address, the connections that have been without a complete request for `GRACE`."""
        self.streams = 0
        """Requests to upstreams that are under way: those whose bodies have arrived."""

    @contextlib.contextmanager
    def lease(self) -> Generator[Lease]:
        """Hold bytes until the block ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.held -= lease.held

    @contextlib.contextmanager
    def stream(self, *, full: bool = False) -> Generator[None]:
        """Count a request as under way; raises a `GatewayError` if too many are.

        `full`: also if too many are.
        """
        if not full:
            self.check_streams()
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def check_streams(self) -> None:
        """Raise a `GatewayError` if as many requests are under way as may be."""
        if self.streams >= self.table.max_streams:
            message = (
                f"{self.streams:,} requests are running, the maximum (max_streams); try again later"
            )
            raise GatewayError(503, message, _LATER)

    def wait(self, address: str) -> bool:
        """Count a connection of an address as waiting; `False`: too many are, so it may not."""
        if self.waiting[address] >= self.table.max_waiting:
            return False
        self.waiting[address] += 1
        return True

    def wait_no_more(self, address: str) -> None:
        """Count a connection as waiting no more."""
        self.waiting[address] -= 1
        if self.waiting[address] <= 0:
            del self.waiting[address]
