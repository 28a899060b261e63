"""Records answers in a journal: each chunk that is delivered, and how the answer ended.

A journal is an argument of `wrap`. The shells know it only by the protocols here. An answer that
the journal has saved, or that `finish` was given (`FOREIGN_ANSWER`), replaces the first attempt.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

import anyio
import httpx2

from continuation.engine.turn import Turn
from continuation.ledger import Ledger
from continuation.providers.contract import ProviderRequest
from continuation.reports.report import NotDurable
from continuation.types import ClassifiedError, Head, Outcome

_ANSWERED = frozenset(set(Outcome) - {Outcome.UNTOUCHED, Outcome.FAILED})
"""Outcomes of turns that have an answer."""
Refused: TypeAlias = Callable[[Head, bytes], ClassifiedError]
"""A function that classifies an error response, from its head and body."""
_STREAMS = "invoke-with-response-stream"
"""The end of a request's path that AWS answers with an AWS event stream."""


class TurnLog(Protocol):
    """One turn of a journal's session."""

    replay: bytes | None
    is_complete: bool
    is_body: bool
    repeated: bool
    attempts: int
    ledger: Ledger | None

    @property
    def fault(self) -> tuple[str, str] | None: ...
    def give(self, chunk: bytes) -> None: ...
    def end(self, outcome: str) -> Future[None] | None: ...
    def keep(self, body: bytes) -> Future[None] | None: ...
    def drop(self, *, answered: bool = False) -> None: ...
    def leave(self) -> None: ...
    def answer(self) -> bytes | None:
        """Return the complete answer as a JSON body. `None`: its end was not recorded."""
        ...


class Keeper(Protocol):
    """A journal."""

    def check(self) -> None: ...
    def failed(self, error: BaseException) -> str:
        """Note that a write failed; return the reason, and what to do about it."""
        ...

    def begin(self, form: str, request: ProviderRequest, *, framed: bool) -> TurnLog | None: ...


class PacedCall(Keeper, Protocol):
    """One of many simultaneous calls. It records its turn, and decides when an attempt is sent.

    `streams`: whether a request for a body is sent as a request for a stream. The body is made of
    the stream's events.
    """

    streams: bool
    shell: Any
    """The turn under way."""

    def send(
        self, refused: Refused, send: Callable[..., Any], request: httpx2.Request
    ) -> httpx2.Response: ...
    async def asend(
        self, refused: Refused, send: Callable[..., Any], request: httpx2.Request
    ) -> httpx2.Response: ...


LANE: ContextVar[PacedCall | None] = ContextVar("continuation_lane", default=None)
GATHERED = "continuation.gathered"
"""Key in a request's extensions: the request is for a stream, but the caller wants a body."""


def begin_turn(journal: Keeper, turn: Turn, path: str) -> TurnLog | None:
    """Begin a turn in the journal and return it. `None`: it is not kept, or the journal failed."""
    if (request := turn.asked) is None:
        return None
    try:
        turn_log = journal.begin(*request, framed=path.endswith(_STREAMS))
    except Exception as error:
        reason = journal.failed(error)  # the request is sent anyway
        turn.recorder.tell(NotDurable(type(error).__name__, reason))
        return None
    if turn_log is not None and turn_log.attempts:
        turn.resume(turn_log.attempts, played=turn_log.replay is not None)
    return turn_log


async def begin_turn_async(journal: Keeper, turn: Turn, path: str) -> TurnLog | None:
    """Call `begin_turn` in a thread. If the task is cancelled meanwhile, leave the turn."""
    begun, abandoned, lock = list[TurnLog | None](), threading.Event(), threading.Lock()

    def leave() -> None:
        for turn_log in filter(None, begun):
            turn_log.leave()

    def begin() -> TurnLog | None:
        turn_log = begin_turn(journal, turn, path)
        with lock:
            begun.append(turn_log)
            if abandoned.is_set():
                leave()
        return turn_log

    try:
        return await anyio.to_thread.run_sync(begin)
    except BaseException:  # the thread runs to its end even if the task is cancelled
        with lock:
            abandoned.set()
            leave()
        raise


class Interrupted(httpx2.ReadError):
    """Raised at the end of a saved answer if its process was stopped before the answer ended."""


class ReplayedAnswer(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A saved answer as the body of a first attempt.

    `complete`: whether the answer has its end; otherwise iteration ends with `Interrupted`. `body`:
    whether it is a JSON body, not a stream.
    """

    def __init__(self, data: bytes, *, complete: bool, body: bool) -> None:
        self._data = data
        self._complete, self._body = complete, body

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        if not self._complete:
            message = "its process was stopped"
            raise Interrupted(message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def response(self, request: httpx2.Request) -> httpx2.Response:
        """Return a response of status 200 with this body."""
        framed = request.url.path.endswith(_STREAMS)
        kind = "application/vnd.amazon.eventstream" if framed else "text/event-stream"
        kind = "application/json" if self._body else kind
        return httpx2.Response(200, headers={"content-type": kind}, stream=self, request=request)


def first_attempt(turn_log: TurnLog | None) -> ReplayedAnswer | None:
    """Return the part of a turn's answer that a journal has saved, or `None`."""
    if turn_log is None or turn_log.replay is None:
        return None
    return ReplayedAnswer(turn_log.replay, complete=turn_log.is_complete, body=turn_log.is_body)


class ForeignAnswer:
    """The body of an answer given to `finish`. It replaces the first attempt of the next turn.

    The next turn is the next one that begins in the context of `as_first_attempt`.
    """

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    @contextlib.contextmanager
    def as_first_attempt(self) -> Generator[None]:
        """Use this answer for the turn that begins inside the block."""
        token = FOREIGN_ANSWER.set(self)
        try:
            yield
        finally:
            FOREIGN_ANSWER.reset(token)

    def take(self, turn: Turn) -> ReplayedAnswer | None:
        """Return what replaces a turn's first attempt. `None`: an earlier turn has taken it."""
        body, self._body = self._body, None
        if body is None:
            return None
        turn.resume(1, played=True)
        return ReplayedAnswer(body, complete=True, body=True)


FOREIGN_ANSWER: ContextVar[ForeignAnswer | None] = ContextVar("continuation_given", default=None)


def is_recorded(turn_log: TurnLog, response: httpx2.Response) -> bool:
    """Whether an answer that the engine does not handle is recorded after it has been read.

    Only a JSON body is recorded. For anything else the journal notes that the answer is missing.
    """
    if turn_log.repeated:
        return False
    content_type = response.headers.get("content-type", "")
    if not response.is_success or "json" not in content_type:
        turn_log.drop(answered=response.is_success)
        return False
    return True


class _Journaled:
    def __init__(self, turn: Turn, turn_log: TurnLog) -> None:
        self._turn, self.turn_log = turn, turn_log
        turn_log.ledger = turn.recorder.ledger
        self._over = False

    def _finish(self) -> Future[None] | None:
        """Record the answer's end, or that the caller left.

        Return a future of the journal's write, or `None` if there is nothing to wait for.
        """
        if self._over:
            return None
        self._over = True
        report = self._turn.recorder.finished
        if report is not None and report.outcome in _ANSWERED and not self._turn.recorder.left:
            return self.turn_log.end(report.outcome)
        self.turn_log.leave()
        return None

    def _ended(self) -> None:
        """Report `NotDurable` if the journal could not record the answer."""
        if (fault := self.turn_log.fault) is not None:
            self._turn.recorder.tell(NotDurable(*fault))


class JournaledStream(_Journaled, httpx2.SyncByteStream):
    """The body of a turn's response. The journal gets each chunk before the caller does."""

    def __init__(self, stream: httpx2.SyncByteStream, turn: Turn, turn_log: TurnLog) -> None:
        super().__init__(turn, turn_log)
        self._chunks = stream

    def __iter__(self) -> Iterator[bytes]:
        give = self.turn_log.give
        try:
            for chunk in self._chunks:
                give(chunk)
                yield chunk
        finally:
            self._end()

    def close(self) -> None:
        self._chunks.close()
        self._end()

    def _end(self) -> None:
        if (done := self._finish()) is not None:
            wait(done)
            self._ended()


class AsyncJournaledStream(_Journaled, httpx2.AsyncByteStream):
    """The asynchronous twin of `JournaledStream`."""

    def __init__(self, stream: httpx2.AsyncByteStream, turn: Turn, turn_log: TurnLog) -> None:
        super().__init__(turn, turn_log)
        self._chunks = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        give = self.turn_log.give
        try:
            async for chunk in self._chunks:
                give(chunk)
                yield chunk
        finally:
            await self._end()

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._end()

    async def _end(self) -> None:
        if (done := self._finish()) is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(wait, done)
            self._ended()


def wait(done: Future[None] | None) -> None:
    """Wait until the journal has written or failed; a failure is ignored here."""
    if done is None:
        return
    with contextlib.suppress(Exception):
        done.result()
