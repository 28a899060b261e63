"""The two shells. Each is the body of a response, and drives a turn while the caller reads it.

They do I/O and know nothing about providers. The caller gets the first attempt's response object,
with our stream in it. Only the code that moves bytes differs between the synchronous and the
asynchronous shell. `shell.py` has what they share.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from functools import partial
from time import monotonic
from typing import Any, cast

import anyio
import httpx2
from anyio import from_thread, to_thread
from anyio.lowlevel import checkpoint, current_token

from continuation.attach.shell import AT_ONCE, Shell, begin, wake
from continuation.attach.steps import at_once, awaited, called
from continuation.attach.total_timeout import until
from continuation.engine.commands import Consult, Emit, StreamBody


def _bare_stream(response: httpx2.Response) -> Any:
    """Return the transport's stream of a response. `None`: it is encoded, or a hook has read it.

    httpx2 wraps it in a stream that notes the elapsed time when it is closed. That costs a call for
    each chunk. `HealedStream` notes the time itself, so the wrapper is not needed.
    """
    if response.is_closed or response.headers.get("content-encoding", "identity") != "identity":
        return None
    stream = response.stream
    timed = type(stream).__module__ == "httpx2._client"
    return getattr(stream, "_stream", stream) if timed else stream


async def _shut(response: httpx2.Response) -> None:
    """Close a response completely, even if this task is cancelled meanwhile.

    httpcore shields the closing of a connection from cancel scopes, but not from `Task.cancel`. A
    task that is cancelled at that moment would leave the connection in the pool for ever.
    """
    if response.is_closed:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # not asyncio: only cancel scopes can cancel a task
        await response.aclose()
        return
    # If several iterators are garbage-collected together, asyncio closes each in a task of its own.
    # An eager task closes the response at once, so the others find it closed and need not wait.
    if sys.version_info >= (3, 12):
        closing = asyncio.Task(response.aclose(), loop=loop, eager_start=True)
    else:
        closing = loop.create_task(response.aclose())
    cancelled = None
    with anyio.CancelScope(shield=True):
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    closing.result()


async def _decoded(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the decoded bytes of a response, and let other tasks run after a large chunk.

    A few compressed bytes may become many, which take long to process.
    """
    async for chunk in response.aiter_bytes():
        yield chunk
        if len(chunk) >= AT_ONCE:
            await checkpoint()


async def _leave(chunks: AsyncIterator[bytes], response: httpx2.Response) -> None:
    try:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
    finally:
        await _shut(response)


class HealedStream(Shell, httpx2.SyncByteStream):
    """The body of a turn's response. `close` closes the live upstream response, from any thread."""

    _chunks: Iterator[bytes] | None = None
    """The live response's chunks, while they are being read."""
    _aside = staticmethod(at_once)
    _interruptible = staticmethod(contextlib.nullcontext[None])

    def __iter__(self) -> Iterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                # Inlined, as in the twin: a separate generator would cost a call for each chunk.
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, stream = self._taker(command), _bare_stream(live)
                self._chunks = chunks = live.iter_bytes() if stream is None else iter(stream)
                if self._until is not None and not live.http_version.startswith("HTTP/1"):
                    self._chunks = chunks = self._hurried(chunks, live.request)
                try:
                    with self._in_time(live), self._listening(command):
                        for chunk in chunks:
                            if shown := take(chunk):
                                yield shown
                            elif replay.due:
                                yield from replay.pieces()
                            if self._over:
                                break
                            self._since = monotonic()
                except Exception as error:
                    self._fail(error)
                finally:
                    self._chunks = None
                    live.close()
            elif isinstance(command, Emit):
                yield command.data
            else:
                self._reply = called(self._performing(command))
        self._drop()

    def _read_whole(self, live: httpx2.Response) -> bytes:
        if not live.is_closed:
            body = bytearray()
            for chunk in live.iter_bytes():
                self._add(chunk, body)
            live.__dict__["_content"] = bytes(body)
        return live.read()

    def _sleep(self, seconds: float) -> None:
        self._wake.wait(seconds)

    def _ask(self, command: Consult, seconds: float) -> TimeoutError | None:
        done = threading.Event()
        begin(command, done.set)
        return None if done.wait(seconds) else TimeoutError()

    def _hurried(self, chunks: Iterator[bytes], sent: httpx2.Request) -> Generator[bytes]:
        """Yield the chunks; before each, lower the read timeout to the time left.

        This is for HTTP/2, where httpcore looks the timeout up for each read. The socket is shared
        with other requests, so it cannot be shut down to wake the reader.
        """
        timeouts = sent.extensions["timeout"]
        while True:
            timeouts["read"] = min(timeouts["read"], self._left or 0.0)
            try:
                yield next(chunks)
            except StopIteration:
                return

    @contextlib.contextmanager
    def _in_time(self, live: httpx2.Response | None) -> Generator[None]:
        """Abort a response when its attempt's time is up, even if bytes keep arriving slowly.

        `live` is `None` while there is no response; then the request's timeouts bound the attempt.
        """
        if self._left is None or live is None:
            yield
            return

        late, response = weakref.WeakMethod(self._hang_up), weakref.ref(live)

        def hang_up() -> None:  # weak references, so that a running timer keeps nothing alive
            if (act := late()) is not None and (slow := response()) is not None:
                act(slow)

        timer = threading.Timer(self._left, hang_up)
        timer.daemon = True  # a stream that is not read to its end must not block the exit
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _hang_up(self, live: httpx2.Response) -> None:
        if self._live is live:
            self._over, self._reply = True, TimeoutError()
            wake(live)

    def _drop(self) -> None:
        if self._live is not None:
            self._live.close()

    def close(self) -> None:
        """End the turn: send no further attempt, and close the live response."""
        self._finish()
        self._wake.set()
        if self._live is not None and getattr(self._chunks, "gi_running", False):
            wake(self._live)
        self._drop()


class AsyncHealedStream(Shell, httpx2.AsyncByteStream):
    """The body of a turn's response. `aclose` closes the live upstream response, from any task."""

    _scope: anyio.CancelScope | None = None
    """The cancel scope of the command under way; `aclose` cancels it."""
    _reading: weakref.ref[AsyncIterator[bytes]] | None = None
    """The iterator under way."""
    _aside = staticmethod(partial(to_thread.run_sync, abandon_on_cancel=True))
    _sleep = staticmethod(anyio.sleep)

    def __aiter__(self) -> AsyncIterator[bytes]:
        # All callers get the same iterator. After `[DONE]` the SDK of OpenAI makes another one and
        # reads the body to its end, because only then can the connection be used again.
        reading = None if self._reading is None else self._reading()
        if reading is None:
            reading = self._read_all()
            self._reading = weakref.ref(reading)  # weak: the iterator has a reference to us
        return reading

    async def _read_all(self) -> AsyncIterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, chunks = self._taker(command), self._bytes_of(live)
                try:
                    with self._listening(command):
                        async for chunk in chunks:
                            if shown := take(chunk):
                                yield shown
                            elif replay.due:
                                for piece in replay.pieces():
                                    yield piece
                            if self._over:
                                break
                            self._since = monotonic()
                except Exception as error:
                    self._fail(error)
                finally:
                    await _leave(chunks, live)
            elif isinstance(command, Emit):
                yield command.data
            else:
                self._reply = await awaited(self._performing(command))
        await self._drop()

    async def _read_whole(self, live: httpx2.Response) -> bytes:
        if not live.is_closed:
            body = bytearray()
            async for chunk in _decoded(live):
                self._add(chunk, body)
            live.__dict__["_content"] = bytes(body)
        return await live.aread()

    async def _ask(self, command: Consult, seconds: float) -> TimeoutError | None:
        done, loop = anyio.Event(), current_token()
        begin(command, lambda: from_thread.run_sync(done.set, token=loop))
        with anyio.move_on_after(seconds):
            await done.wait()
        return None if done.is_set() else TimeoutError()

    @contextlib.contextmanager
    def _interruptible(self) -> Generator[None]:
        with anyio.CancelScope() as self._scope:
            try:
                yield
            finally:
                self._scope = None

    def _in_time(self, live: httpx2.Response | None) -> contextlib.AbstractContextManager[object]:
        left = self._left
        return contextlib.nullcontext() if left is None else anyio.fail_after(left)

    def _bytes_of(self, live: httpx2.Response) -> AsyncIterator[bytes]:
        stream = _bare_stream(live)
        chunks = _decoded(live) if stream is None else stream.__aiter__()
        return chunks if self._until is None else until(self._until, chunks)

    async def _drop(self) -> None:
        if self._live is not None:
            await _shut(self._live)

    async def aclose(self) -> None:
        """End the turn: send no further attempt, and close the live response."""
        self._finish()
        if self._scope is not None:
            self._scope.cancel()
        await self._drop()
