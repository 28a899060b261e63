"""What a wire format must be able to do for the engine: translate, never decide.

One module in `providers/` per wire format implements `Dialect`. Everything is sans-IO: bytes in,
bytes out. Built-in dialects are named in `registry.py`.

A format reads the caller's request into a `ProviderRequest`, one of its own that derives from
`continuation.wire.request.BaseRequest`; what builds the caller's answer is
`continuation.answer.message_builder.MessageBuilder`, with a codec of the format's. The engine
calls both, and knows them by these names alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from continuation.types import Request

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.wire.request import BaseRequest as ProviderRequest
else:  # they stand in annotations, which nobody reads while a program runs
    MessageBuilder = ProviderRequest = object

__all__ = ["Dialect", "Feed", "MessageBuilder", "ProviderRequest"]

Feed = Callable[[bytes], bytes]
"""Takes the next bytes of an attempt's body, returns what may be shown now; raises `Enough`."""


class Dialect(Protocol):
    """One wire format."""

    name: str
    history: str | None
    """Name of its history's rules in `continuation.history`; `None`: there are none."""
    default_ceiling: int
    default_timeout: float | None
    """The SDK's own default read timeout, seconds: what a caller did not choose."""

    def claims(self, method: str, path: str) -> bool:
        """Whether a request belongs to this format; cheap, called for every request."""
        ...

    def call(self, request: Request) -> ProviderRequest:
        """Read a request. Raises `Untouched` when it is not one we can read."""
        ...

    # A format may have `stops: Mapping[str, Stop]` as well, its codec's: by these words an answer
    # that was not healed is known to be truncated (`continuation.bulk`).
    # A format that keeps something beside its server may have
    # `prepare(policy: Policy) -> Callable[[], object] | None` as well: what a gateway does, in a
    # thread of its own, before the first request comes.

    def keep_alive(self, opening: bytes) -> bytes:
        """Return an event that says nothing, for a stream in which nothing happens.

        `opening`: the first event that the caller has had; empty: it has had none. Every client
        has to take it at every place between two events (design/decisions/0022-keep-alive.md).
        """
        ...
