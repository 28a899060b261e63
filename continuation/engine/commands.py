"""What a turn asks of its shell, and what the shell answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from continuation.dialect import Feed
from continuation.types import AttemptResult, Head, Outgoing, ReplayBuffer


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request (`None`: the caller's own). Reply: its `Head`, or the exception."""

    outgoing: Outgoing | None
    seconds: float | None = None
    """Time left for it; `None`: the caller's own timeouts."""
    bounded: bool = False
    """When they have passed it is broken off, its body too: only for what is none of the caller's.
    The reply, of whatever command is under way then, is an exception."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the whole body of the live response. Reply: bytes, or the exception."""


@dataclass(frozen=True, slots=True)
class StreamBody:
    """Pass the live response's bytes through `feed`, show what it returns.

    Reply: `None` at the end of the bytes or at `Enough`, else the exception they ended with; or, of
    an `Enough` that says how the answer ended, that result. Then the body is still open: it is read
    on if `PassRest` is the next command, and closed before any other.
    """

    feed: Feed
    replay: ReplayBuffer | None = None
    """Where the shell notes the bytes first; only for the caller's own attempt."""


@dataclass(frozen=True, slots=True)
class PassRest:
    """The first answer is whole: what is held of it goes out, and the rest of its body, unseen.

    It is read to its end, so that its connection can be used again. Reply: `None`, or the exception
    that the bytes ended with.
    """


@dataclass(frozen=True, slots=True)
class Emit:
    """Give these bytes to the caller."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, and let a close cut the wait short."""

    seconds: float


@dataclass(slots=True)
class Work:
    """Do what is no I/O but may take long, where it holds up nobody else. Reply: of no matter."""

    job: Callable[[], Any]
    size: int
    """Bytes of what it is about."""
    result: Any = None
    error: Exception | None = None

    def do(self) -> None:
        """Run the job, in whatever thread; what comes of it is noted here."""
        try:
            self.result = self.job()
        except Exception as error:
            self.error = error


@dataclass(slots=True)
class Consult(Work):
    """Ask a store, which may hang. Reply: `None`, or the exception where it took too long.

    Then what it says later is of no matter, and nobody waits for it.
    """

    seconds: float | None = None
    """How long it may take; `None`: it is in memory, and does no I/O."""


@dataclass(frozen=True, slots=True)
class Attach:
    """The live response is the caller's: hand it over with our stream in it."""


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Hand the live response over as it is; the turn is none of ours."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this to the caller."""

    error: BaseException


Command: TypeAlias = (
    Send | Read | StreamBody | PassRest | Emit | Wait | Work | Attach | PassThrough | Raise
)
Reply: TypeAlias = "Head | bytes | AttemptResult | BaseException | None"
Script: TypeAlias = Generator[Command, Reply, None]
