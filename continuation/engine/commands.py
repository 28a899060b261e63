"""The commands that a turn yields to its shell, and the replies that the shell sends back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from continuation.engine.silence import Silence
from continuation.providers.contract import Feed
from continuation.types import AttemptResult, Head, Outgoing, ReplayBuffer


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request (`None`: the caller's own). Reply: its answer's `Head`, or the exception."""

    outgoing: Outgoing | None
    seconds: float | None = None
    """Seconds that it may take: no timeout of it is longer; `None`: the caller's own timeouts."""
    bounded: bool = False
    """After `seconds` the request or its body is broken off, and the reply to the command under way
    is an exception. Never for the caller's own attempt."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the whole body of the live response. Reply: bytes, or the exception."""


@dataclass(frozen=True, slots=True)
class StreamBody:
    """Pass the live response's bytes through `feed`, and show what it returns.

    Reply: `None` at the end of the bytes or after an `Enough` without a result; the exception that
    ended the bytes; or the result in an `Enough`. In that last case the body is still open: it is
    read on if the next command is `PassRest`, and closed before any other.
    """

    feed: Feed
    replay: ReplayBuffer | None = None
    """The buffer to which the shell adds the bytes first; only for the caller's own attempt."""
    silence: Silence | None = None
    """How long the bytes may stay away, where the shell can end the wait; `None`: no bound.

    The shell notes silences in it that are longer than `SHORTEST`.
    """
    gathers: bool = False
    """The caller gets the answer as a body, and the bytes are its events. The shell keeps them. If
    our code fails, it reads on, and `Turn.rebuilt` makes the body."""


@dataclass(frozen=True, slots=True)
class PassRest:
    """Send on what is held of the first answer, then the rest of its body unread: it is whole.

    The body is received to its end, so that the connection can be used again. Reply: `None`, or the
    exception that ended the bytes.
    """


@dataclass(frozen=True, slots=True)
class Emit:
    """Give these bytes to the caller."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait so many seconds, or until the caller closes. The reply is ignored."""

    seconds: float


@dataclass(slots=True)
class Work:
    """Run a job without I/O that may take long, so that it blocks no event loop. Reply: ignored."""

    job: Callable[[], Any]
    size: int
    """Bytes of the data that the job works on."""
    result: Any = None
    error: Exception | None = None

    def do(self) -> None:
        """Run the job, and note its result or its error."""
        try:
            self.result = self.job()
        except Exception as error:
            self.error = error


@dataclass(slots=True)
class Consult(Work):
    """Ask a store, which may hang. Reply: `None`, or an exception if it took too long.

    After that nothing waits for the job any more, and its result is ignored.
    """

    seconds: float | None = None
    """Seconds that the job may take; `None`: the store is in memory and does no I/O."""


@dataclass(frozen=True, slots=True)
class Attach:
    """Give the live response to the caller, with our stream as its body."""

    gathered: bool = False
    """The response is a stream, and its caller is given one JSON body."""


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Give the live response to the caller as it is; the turn is not healed."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this error to the caller."""

    error: BaseException


Command: TypeAlias = (
    Send | Read | StreamBody | PassRest | Emit | Wait | Work | Attach | PassThrough | Raise
)
Reply: TypeAlias = "Head | bytes | AttemptResult | BaseException | None"
Script: TypeAlias = Generator[Command, Reply, None]
