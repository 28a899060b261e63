"""What a wire format must do for the engine: translate, never decide.

One module in `providers/` per wire format implements `Dialect`. Nothing in it does I/O: bytes in,
bytes out. Built-in dialects are named in `registry.py`.

A format reads the caller's request into its own `ProviderRequest`, a class that derives from
`continuation.wire.request.BaseRequest`. The caller's answer is built by
`continuation.answer.message_builder.MessageBuilder` with the format's codec. The engine calls both
by the names in this module only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from continuation.types import Request

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.wire.request import BaseRequest as ProviderRequest
else:  # they are used in annotations only, which nothing evaluates at run time
    MessageBuilder = ProviderRequest = object

__all__ = ["Dialect", "Feed", "MessageBuilder", "ProviderRequest"]

Feed = Callable[[bytes], bytes]
"""Takes the next bytes of an attempt's body, returns what may be shown now; raises `Enough`."""


class Dialect(Protocol):
    """One wire format."""

    name: str
    history: str | None
    """Name of the format's history rules in `continuation.history`; `None`: it has none."""
    default_ceiling: int
    """The output limit, in tokens, assumed for a model that is not in the table."""
    default_timeout: float | None
    """The SDK's default read timeout in seconds; another one was chosen by the caller."""

    def claims(self, method: str, path: str) -> bool:
        """Whether a request belongs to this format. It is called for every request: be fast."""
        ...

    def call(self, request: Request) -> ProviderRequest:
        """Return the request, parsed. Raises `Untouched` when it cannot be read."""
        ...

    # A format may also have its codec's `stops: Mapping[str, Stop]`: by these stop reasons
    # `continuation.bulk` knows that an answer which was not healed is truncated.
    # A format that has a store of its own may also have
    # `prepare(policy: Policy) -> Callable[[], object] | None`: it returns a job that a gateway
    # runs in a thread before the first request comes.

    def keep_alive(self, opening: bytes) -> bytes:
        """Return an event without content, which keeps a silent stream alive.

        `opening`: the first event that the caller got; `b""`: none yet. Every client must accept
        the event at every place between two events (design/decisions/0022-keep-alive.md).
        """
        ...
