"""What the drivers share: the four ways to ask, and the two loops that ask.

A driver is a subclass of `Turn`. It makes its SDK's client, requests an answer as a whole or as a
stream, and reads what came; whether that is awaited is decided here, for all drivers.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import continuation
from continuation import Event, Policy, Report
from continuation.config import Config
from continuation.simulator import Recorded, Reply, Simulator, Text

How = Literal["sync", "sync-stream", "async", "async-stream"]
HOWS: tuple[How, ...] = ("sync", "sync-stream", "async", "async-stream")
STREAMS: tuple[How, ...] = ("sync-stream", "async-stream")
BOTH: tuple[How, ...] = ("sync", "async-stream")
"""A body and a stream, one in each shell: enough for the engine, which is the same in both shells.
All four ways through each row are in `tests/engine/test_matrix.py`."""

FAST = Policy(backoff_seconds=0.0)
"""The default policies, without waits."""


def streamed(how: How) -> bool:
    return how.endswith("stream")


T = TypeVar("T", bound="Turn")


@dataclass
class Turn(ABC):
    """One turn as its caller saw it."""

    answer: Any = None
    pieces: list[Any] = field(default_factory=list[Any])
    """The chunks or events of a stream."""
    events: list[Event] = field(default_factory=list[Event])
    report: Report | None = None
    error: Exception | None = None
    retries: int = 0
    """How often the SDK itself may repeat a request."""

    # --- what a driver says of its SDK -----------------------------------------------------------

    @abstractmethod
    def connect(self, url: str, *, asynchronous: bool) -> Any:
        """Make a bare client of the SDK."""

    @abstractmethod
    def create(self, client: Any, request: dict[str, Any]) -> Any:
        """Ask for the answer as a whole."""

    @abstractmethod
    def stream(self, client: Any, request: dict[str, Any]) -> Any:
        """Ask for the answer as a stream."""

    def ended(self, stream: Any) -> Any:
        """Return the answer that a stream amounts to, now that it is over."""
        return stream

    # --- what came -------------------------------------------------------------------------------

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report

    @property
    def said(self) -> Any:
        """The answer; there was no error."""
        assert self.error is None, self.error
        assert self.answer is not None
        return self.answer

    @property
    @abstractmethod
    def text(self) -> str:
        """All visible text."""

    @property
    @abstractmethod
    def says_cut(self) -> bool:
        """Whether the answer's stop reason states that it is truncated."""

    @property
    @abstractmethod
    def tool_calls(self) -> list[tuple[str, Any]]:
        """The name and the arguments of each call, as a program would read them."""

    @abstractmethod
    def following(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request that an agent sends next: this answer, and results or a question."""


def play(
    ran: T,
    how: How,
    sim: Simulator | str,
    request: dict[str, Any],
    config: Policy | Config | None = FAST,
) -> T:
    """Run one turn through a wrapped client; `ran` says of which SDK, and takes it in.

    `config=None`: through the bare client.
    """
    return play_all([ran], how, sim, [request], config)[0]


def play_all(
    runs: list[T],
    how: How,
    sim: Simulator | str,
    requests: Sequence[dict[str, Any]],
    config: Policy | Config | None = FAST,
) -> list[T]:
    """Run turns one after another through one client; each of `runs` takes one in."""
    url = sim if isinstance(sim, str) else sim.url
    bare = runs[0].connect(url, asynchronous=how.startswith("async"))
    client: Any = bare
    if config is not None:
        client = continuation.wrap(bare, config=config, on_event=runs[0].events.append)
    turns = list(zip(runs, requests, strict=True))
    with quietly():
        if how.startswith("async"):
            asyncio.run(_async(turns, bare, client, streamed=streamed(how)))
        else:
            with bare:
                for ran, request in turns:
                    _sync(ran, client, request, streamed=streamed(how))
    return runs


def _sync(ran: Turn, client: Any, request: dict[str, Any], *, streamed: bool) -> None:
    try:
        if not streamed:
            ran.answer = ran.create(client, request)
            return
        opened = ran.stream(client, request)
        with opened if hasattr(opened, "__enter__") else contextlib.nullcontext(opened) as each:
            for piece in each:
                ran.pieces.append(piece)
            ran.answer = ran.ended(each)
    except Exception as error:
        ran.error = error
    finally:
        ran.report = continuation.last_report()


async def _async(
    turns: Sequence[tuple[Turn, dict[str, Any]]], bare: Any, client: Any, *, streamed: bool
) -> None:
    async with getattr(bare, "aio", bare):
        for ran, request in turns:
            await _turn(ran, getattr(client, "aio", client), request, streamed=streamed)


async def _turn(ran: Turn, client: Any, request: dict[str, Any], *, streamed: bool) -> None:
    try:
        if not streamed:
            ran.answer = await ran.create(client, request)
            return
        opened = ran.stream(client, request)
        if hasattr(opened, "__await__"):
            opened = await opened
        managed = hasattr(opened, "__aenter__")
        async with opened if managed else contextlib.nullcontext(opened) as each:
            async for piece in each:
                ran.pieces.append(piece)
            ran.answer = ran.ended(each)
    except Exception as error:
        ran.error = error
    finally:
        ran.report = continuation.last_report()  # here: a task has a context of its own


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Ignore the SDK's warnings about old models, which are not under test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def body_of(post: Recorded) -> dict[str, Any]:
    assert post.body is not None
    return dict(post.body)


# --- what a provider is made to say ---------------------------------------------------------------


def cut(*said: Any, **more: Any) -> Reply:
    """Return a reply that used up its limit; a string becomes a text block."""
    return end(*said, stop="max_tokens", **more)


def end(*said: Any, stop: str = "end_turn", **more: Any) -> Reply:
    return Reply([Text(s) if isinstance(s, str) else s for s in said], stop=stop, **more)
