"""A batch at work: so many workers, each with one request at a time, threads or tasks.

The two drivers are twins, as everywhere: threads that call a synchronous client, tasks that await
an asynchronous one. A worker takes the next request when the one before has been handed over, so
nothing piles up in front of a caller who is slow, and nothing is held that was delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from continuation.attach.elsewhere import door_of, finished, healing, is_async, method
from continuation.attach.journaled import LANE
from continuation.bulk import BatchResult
from continuation.bulk.lane import Lane, Pace
from continuation.bulk.lines import Names, asked_in
from continuation.reports.report import Report, watch

if TYPE_CHECKING:
    from continuation.journal import Journal

_Ready: TypeAlias = "BatchResult | Exception | None"
"""What a worker tells: a result, what the requests failed with, or that it has ended."""
SESSION = "batch"
"""Of the journal, where the caller names none."""
_PATIENCE = 5.0
"""Seconds that a batch which is left waits for each of its threads."""


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a batch."""

    index: int
    id: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None
    """What came of it elsewhere, to be gone on with."""


class Batch:
    """Requests on their way; `results` is how they come back."""

    def __init__(
        self,
        client: object,
        requests: Iterable[Mapping[str, Any]] | Iterable[Item],
        concurrency: int,
        journal: str | os.PathLike[str] | Journal | None,
    ) -> None:
        """Begin. Of an `Item` in `requests` the index is left as it is."""
        if concurrency < 1:
            message = f"concurrency = {concurrency!r}: must be a whole number from 1"
            raise ValueError(message)
        self._client: Any = healing(client)
        self._items, self._taking = self._numbered(iter(requests)), threading.Lock()
        self._workers = concurrency
        self._journal, self._opened = self._open(journal)
        self._pace, self._stopped = Pace(), threading.Event()
        self._lanes = set[Lane]()

    def _open(self, journal: Any) -> tuple[Journal | None, bool]:
        """Return the journal, and whether it is ours to close."""
        if journal is None:
            return None, False
        from continuation.journal import Journal

        if not isinstance(journal, Journal):
            return Journal(journal, SESSION), True
        if journal.content == "none":
            message = "journal: with content = 'none' there is nothing to go on from"
            raise ValueError(message)
        return journal, False

    def results(self) -> Iterator[BatchResult] | AsyncIterator[BatchResult]:
        """Return what yields the results, asynchronously if the client is so."""
        return self._awaited() if is_async(self._client) else self._called()

    # --- the requests -----------------------------------------------------------------------------

    def _numbered(self, requests: Iterator[Any]) -> Iterator[Item]:
        names = Names()
        for index, given in enumerate(requests):
            if isinstance(given, Item):
                yield given
                continue
            called, request = asked_in(given)
            yield Item(index, called or names.of(request), request)

    def _next(self) -> Item | None:
        with self._taking:
            return None if self._stopped.is_set() else next(self._items, None)

    @contextlib.contextmanager
    def _under_way(self, item: Item) -> Generator[tuple[Lane, list[Report]]]:
        """Let what is called inside the block be this request's, on a lane of its own."""
        streams = item.answer is None and item.request.get("stream") is not False
        lane = Lane(self._pace, self._stopped, streams=streams)
        self._lanes.add(lane)
        token = LANE.set(lane)
        try:
            with watch() as turns:
                yield lane, turns
        finally:
            LANE.reset(token)
            self._lanes.discard(lane)

    def _call(self, item: Item) -> Any:
        """Make the call; return the answer, or what is to be awaited for it."""
        if item.answer is not None:
            return finished(self._client, item.request, item.answer)
        return method(self._client, door_of(self._client, item.request), item.request)()

    def _keep(self, item: Item) -> Journal | None:
        """Open a request's own session; not in an event loop's thread."""
        return None if self._journal is None else self._journal.child(item.id)

    def _close(self) -> None:
        if self._opened and self._journal is not None:
            self._journal.close()

    # --- threads ----------------------------------------------------------------------------------

    def _called(self) -> Iterator[BatchResult]:
        ready, room = queue.SimpleQueue[_Ready](), threading.Semaphore(0)
        threads = list[threading.Thread]()
        try:
            for _ in range(self._workers):
                here, work = contextvars.copy_context(), (self._work, ready.put, room)
                threads.append(threading.Thread(target=here.run, args=work, daemon=True))
                threads[-1].start()
            left = self._workers
            while left:
                result = ready.get()
                if isinstance(result, Exception):
                    raise result
                if result is None:
                    left -= 1
                    continue
                room.release()
                yield result
        finally:
            self._stopped.set()
            for lane in [*self._lanes]:
                if lane.session is not None:
                    lane.session.close()
            room.release(self._workers)
            for thread in threads:
                thread.join(_PATIENCE)
            self._close()

    def _work(self, tell: Callable[[_Ready], None], room: threading.Semaphore) -> None:
        try:
            while (item := self._next()) is not None:
                tell(self._ask(item))
                room.acquire()
        except Exception as error:  # of what the requests come from
            tell(error)
        finally:
            tell(None)

    def _ask(self, item: Item) -> BatchResult:
        answer, failed = None, None
        with self._under_way(item) as (lane, turns):
            try:
                with self._keep(item) or contextlib.nullcontext() as lane.journal:
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

    async def _awork(self, tell: Callable[[_Ready], None], room: asyncio.Semaphore) -> None:
        try:
            while (item := self._next()) is not None:
                tell(await self._aask(item))
                await room.acquire()
        except Exception as error:
            tell(error)
        finally:
            tell(None)

    async def _aask(self, item: Item) -> BatchResult:
        answer, failed = None, None
        with self._under_way(item) as (lane, turns):
            try:
                lane.journal = self._journal and await asyncio.to_thread(self._keep, item)
                try:
                    answer = await self._call(item)
                finally:
                    if lane.journal is not None:
                        await asyncio.shield(asyncio.to_thread(lane.journal.close))
            except Exception as error:
                failed = error
        return BatchResult(item.index, item.id, answer, turns[-1] if turns else None, failed)
