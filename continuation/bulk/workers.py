"""Runs a batch. Its workers are threads or tasks, each with one request at a time.

There are two similar drivers: threads that call a synchronous client, and tasks that await an
asynchronous one. A worker takes its next request after the caller has taken its last result. So
results do not accumulate for a slow caller, and none is kept after delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from continuation.attach.common import name_of
from continuation.attach.elsewhere import finished, healing, is_async, method, shape_for
from continuation.attach.journaled import LANE
from continuation.bulk import BatchResult
from continuation.bulk.lane import Lane, Pace, StoppedError
from continuation.bulk.lines import RequestIds, request_in
from continuation.config import override
from continuation.reports.report import Report, watch

if TYPE_CHECKING:
    from continuation.journal import Journal

_Ready: TypeAlias = "BatchResult | Exception | None"
"""What a worker puts: a result, an exception of the iterable of requests, or `None` at its end."""
_ReadyOrStop: TypeAlias = "BatchResult | Exception | type[StoppedError] | None"
"""The same; or the class `StoppedError`, which `stop` puts."""
_T = TypeVar("_T")
SESSION = "batch"
"""The session name if the caller's journal is a path or URL."""
_PATIENCE = 5.0
"""Seconds that a batch waits for its threads after the caller has left."""


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a batch."""

    index: int
    id: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None
    """A truncated answer from elsewhere, to be continued; `None` if there is none."""
    policies: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Policies for only this request."""
    wrong: Exception | None = None
    """Why it cannot be sent; `None` if it can."""


class Batch:
    """A batch of requests. `results` sends them and yields their results."""

    def __init__(
        self,
        client: object,
        requests: Iterable[Mapping[str, Any]] | Iterable[Item],
        concurrency: int,
        journal: str | os.PathLike[str] | Journal | None,
    ) -> None:
        """Check the arguments and open the journal. An `Item` in `requests` keeps its index."""
        if type(concurrency) is not int or concurrency < 1:
            message = f"concurrency = {concurrency!r}: must be a whole number from 1"
            raise ValueError(message)
        if isinstance(requests, (str, bytes, os.PathLike, Mapping)):
            kind = name_of(cast("object", requests))
            message = f"requests = {kind}: must be an iterable of requests, each of them a mapping"
            raise TypeError(message)
        self._client: Any = healing(client)
        self._items, self._taking = self._numbered(iter(requests)), threading.Lock()
        self._workers = concurrency
        self._journal, self._opened = self._open_journal(journal)
        self._pace, self._stopped = Pace(), threading.Event()
        self._lanes = set[Lane]()
        self._ready, self._room = queue.SimpleQueue[_ReadyOrStop](), threading.Semaphore(0)

    def _open_journal(self, journal: Any) -> tuple[Journal | None, bool]:
        """Return the journal, and whether the batch must close it."""
        if journal is None:
            return None, False
        from continuation.journal import Journal

        if not isinstance(journal, Journal):
            return Journal(journal, SESSION), True
        if journal.content == "none":
            message = "journal: with content = 'none', no answer can be resumed"
            raise ValueError(message)
        journal.check()
        return journal, False

    def results(self) -> Iterator[BatchResult] | AsyncIterator[BatchResult]:
        """Return an iterator of the results; for an asynchronous client, an asynchronous one."""
        return self._awaited() if is_async(self._client) else self._called()

    def stop(self) -> None:
        """Stop sending, stop the open requests, yield the answers so far, and end.

        Only for a synchronous batch. Any thread or signal handler may call it.
        """
        self._ready.put(StoppedError)

    @property
    def waiting(self) -> int:
        """How many results of a synchronous batch the caller has not taken yet."""
        return self._ready.qsize()

    # --- the requests -----------------------------------------------------------------------------

    def _numbered(self, requests: Iterator[Any]) -> Iterator[Item]:
        ids, seen = RequestIds(), set[int]()
        for index, entry in enumerate(requests):
            if isinstance(entry, Item):
                yield entry
                continue
            if not isinstance(entry, Mapping):
                message = f"requests[{index}] = {name_of(entry)}: must be a mapping"
                yield Item(index, "", {}, wrong=TypeError(message))
                continue
            request_id, request = request_in(cast("Mapping[str, Any]", entry))
            wrong: Exception | None = None
            if request_id and self._journal is not None:
                if (digest := hash(request_id)) in seen:
                    message = (
                        f"requests[{index}], id = {request_id!r}: an earlier request has this id"
                    )
                    wrong = ValueError(f"{message} and so its session; choose another")
                seen.add(digest)
            yield Item(index, request_id or ids.of(request), request, wrong=wrong)

    def _next(self) -> Item | None:
        with self._taking:
            return None if self._stopped.is_set() else next(self._items, None)

    @contextlib.contextmanager
    def _under_way(self, item: Item) -> Generator[tuple[Lane, list[Report]]]:
        """Apply the item's policies and a new lane to calls inside. Yield the lane and reports."""
        streams = item.answer is None and item.request.get("stream") is not False
        lane = Lane(self._pace, self._stopped, streams=streams)
        self._lanes.add(lane)
        token = LANE.set(lane)
        try:
            # Nobody reads the stream, so an answer that broke off is a result, with its text.
            policies: Mapping[str, Any] = {"on_dead": "stop", **item.policies}
            with override(**policies), watch() as turns:
                yield lane, turns
        finally:
            LANE.reset(token)
            self._lanes.discard(lane)

    def _call(self, item: Item) -> Any:
        """Make the call; return the answer, or an awaitable of it for an asynchronous client."""
        if item.answer is not None:
            return finished(self._client, item.request, item.answer)
        return method(self._client, shape_for(self._client, item.request), item.request)()

    def _open_session(self, item: Item) -> Journal | None:
        """Open the request's own session; `None`: there is no journal.

        It blocks, so do not call it in an event loop. If it raises, the request is not sent.
        """
        if item.wrong is not None:
            raise item.wrong
        return None if self._journal is None else self._journal.child(item.id)

    def _close(self) -> None:
        if self._opened and self._journal is not None:
            self._journal.close()

    # --- threads ----------------------------------------------------------------------------------

    def _called(self) -> Iterator[BatchResult]:
        threads, until = list[threading.Thread](), None
        try:
            threads += self._begin()
            left = len(threads)
            while left:
                try:
                    result = self._ready.get(timeout=None if until is None else _left(until))
                except queue.Empty:
                    return
                if result is StoppedError:
                    until = until or self._leave()
                elif isinstance(result, Exception):
                    raise result
                elif isinstance(result, BatchResult):
                    self._room.release()
                    if until is None or result.error is None:
                        yield result
                else:  # a worker has ended
                    left -= 1
        except KeyboardInterrupt:  # if the batch was stopped already, do not wait
            until = until and time.monotonic()
            raise
        finally:
            until = until or self._leave()
            for thread in threads:
                thread.join(_left(until))
            self._close()

    def _begin(self) -> Iterator[threading.Thread]:
        """Start the workers, or as many as the system has threads for."""
        for number in range(self._workers):
            here = contextvars.copy_context()
            thread = threading.Thread(target=here.run, args=(self._work,), daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not number:
                    raise
                return
            yield thread

    def _leave(self) -> float:
        """Stop the open requests; return the time until which to wait for their threads."""
        self._stopped.set()
        for lane in [*self._lanes]:
            if lane.shell is not None:
                lane.shell.close()
        self._room.release(self._workers)
        return time.monotonic() + _PATIENCE

    def _work(self) -> None:
        put = self._ready.put
        try:
            while (item := self._next()) is not None:
                put(self._ask(item))
                self._room.acquire()
        except Exception as error:  # raised by the iterable of requests
            put(error)
        finally:
            put(None)

    def _ask(self, item: Item) -> BatchResult:
        answer, failed = None, None
        with self._under_way(item) as (lane, turns):
            try:
                with self._open_session(item) or contextlib.nullcontext() as lane.journal:
                    answer = self._call(item)
            except Exception as error:
                failed = error
        return BatchResult(item.index, item.id, answer, turns[-1] if turns else None, failed)

    # --- tasks ------------------------------------------------------------------------------------

    async def _awaited(self) -> AsyncIterator[BatchResult]:
        ready, room = asyncio.Queue[_Ready](), asyncio.Semaphore(0)
        tasks = list[asyncio.Task[None]]()
        try:
            for _ in range(self._workers):
                tasks.append(asyncio.create_task(self._awork(ready.put_nowait, room)))
            left = self._workers
            while left:
                result = await ready.get()
                if isinstance(result, Exception):
                    raise result
                if result is None:
                    left -= 1
                    continue
                room.release()
                yield result
        finally:
            self._stopped.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self._close)

    async def _awork(self, put: Callable[[_Ready], None], room: asyncio.Semaphore) -> None:
        try:
            while (item := self._next()) is not None:
                put(await self._aask(item))
                await room.acquire()
        except Exception as error:
            put(error)
        finally:
            put(None)

    async def _aask(self, item: Item) -> BatchResult:
        answer, failed = None, None
        with self._under_way(item) as (lane, turns):
            try:
                # Do not cancel this: a session that the thread opens later would stay open.
                opening = asyncio.ensure_future(asyncio.to_thread(self._open_session, item))
                try:
                    lane.journal = await _to_its_end(opening)
                    answer = await self._call(item)
                finally:
                    if opening.exception() is None and (journal := opening.result()) is not None:
                        closing = asyncio.to_thread(journal.close)
                        await _to_its_end(asyncio.ensure_future(closing))
            except Exception as error:
                failed = error
        return BatchResult(item.index, item.id, answer, turns[-1] if turns else None, failed)


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


async def _to_its_end(task: asyncio.Future[_T]) -> _T:
    """Return a task's result. If the waiting task is cancelled, raise that after the result."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()
