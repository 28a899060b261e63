"""The shells: each is the body of a response, and drives a turn while the caller reads it.

They do I/O and know nothing of providers. The response that the caller gets is the first attempt's
own object with our stream in it. Synchronous and asynchronous code differ only where bytes move:
what they share is in `shell.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from functools import partial
from typing import Any, cast

import anyio
import httpx2
from anyio import from_thread, to_thread
from anyio.lowlevel import checkpoint, current_token

from continuation.attach.shell import AT_ONCE, Shell, begin
from continuation.attach.steps import at_once, awaited, called
from continuation.attach.total_timeout import until
from continuation.engine.commands import Consult, Emit, StreamBody


def _bare_stream(response: httpx2.Response) -> Any:
    """Return the transport's stream of a response; `None`: it is encoded, or a hook read it.

    httpx2 wraps it in a stream that notes the elapsed time when it is closed, and costs a call for
    each chunk. `HealedStream` takes its place, so that call is saved.
    """
    if response.is_closed or response.headers.get("content-encoding", "identity") != "identity":
        return None
    stream = response.stream
    timed = type(stream).__module__ == "httpx2._client"
    return getattr(stream, "_stream", stream) if timed else stream


def _wake(response: httpx2.Response) -> None:
    """Shut a response's socket down, to wake the thread that reads it: closing would not."""
    with contextlib.suppress(Exception):
        if response.http_version.startswith("HTTP/1"):
            line = response.extensions["network_stream"].get_extra_info("socket")
            line.shutdown(socket.SHUT_RDWR)


async def _shut(response: httpx2.Response) -> None:
    """Close a response completely, even if this task is cancelled meanwhile.

    A task that is cancelled while httpcore closes a connection leaves it in the pool for ever:
    httpcore shields its closing from cancel scopes, not from `Task.cancel`.
    """
    if response.is_closed:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # not asyncio: only cancel scopes can cancel a task
        await response.aclose()
        return
    # It begins at once where it can: iterators that are collected together, and so are closed by a
    # task each, find the response closed as they do without us, and need not wait for each other.
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
    """Yield the decoded bytes of a response, and let other tasks run: little may become much."""
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
    """The body of a healed turn. `close` closes the live upstream response, from any thread."""

    _chunks: Iterator[bytes] | None = None
    """The live response's chunks, while they are being read."""
    _aside = staticmethod(at_once)
    _interruptible = staticmethod(contextlib.nullcontext[None])

    def __iter__(self) -> Iterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                # Inlined, as in the twin: a generator of its own would cost a call for each chunk.
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, stream = self._taker(command), _bare_stream(live)
                self._chunks = chunks = live.iter_bytes() if stream is None else iter(stream)
                if self._until is not None and not live.http_version.startswith("HTTP/1"):
                    self._chunks = chunks = self._hurried(chunks, live.request)
                try:
                    with self._in_time(live):
                        for chunk in chunks:
                            if shown := take(chunk):
                                yield shown
                            elif replay.due:
                                yield from replay.pieces()
                            if self._over:
                                break
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

        HTTP/2 looks the timeout up for each read. Its socket is shared with other requests, so it
        cannot be shut down to wake the reader.
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

        Before there is one (`None`) the timeouts of the request bound it.
        """
        if self._left is None or live is None:
            yield
            return

        late, response = weakref.WeakMethod(self._hang_up), weakref.ref(live)

        def hang_up() -> None:  # a timer that is still running keeps neither object alive
            if (act := late()) is not None and (slow := response()) is not None:
                act(slow)

        timer = threading.Timer(self._left, hang_up)
        timer.daemon = True  # a stream that is never read to its end must not block the exit
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _hang_up(self, live: httpx2.Response) -> None:
        if self._live is live:
            self._over, self._reply = True, TimeoutError()
            _wake(live)

    def _drop(self) -> None:
        if self._live is not None:
            self._live.close()

    def close(self) -> None:
        """End the turn here: no further attempt, and nothing left open."""
        self._finish()
        self._wake.set()
        if self._live is not None and getattr(self._chunks, "gi_running", False):
            _wake(self._live)
        self._drop()


class AsyncHealedStream(Shell, httpx2.AsyncByteStream):
    """The body of a healed turn. `aclose` closes the live upstream response, from any task."""

    _scope: anyio.CancelScope | None = None
    """Around the command being performed; `aclose` cancels it."""
    _reading: weakref.ref[AsyncIterator[bytes]] | None = None
    """The iterator that is under way."""
    _aside = staticmethod(partial(to_thread.run_sync, abandon_on_cancel=True))
    _sleep = staticmethod(anyio.sleep)

    def __aiter__(self) -> AsyncIterator[bytes]:
        # One for all who ask: behind `[DONE]` the SDK of OpenAI reads on by another way, to the end
        # of the body, without which the connection would serve no further request.
        reading = None if self._reading is None else self._reading()
        if reading is None:
            reading = self._read_all()
            self._reading = weakref.ref(reading)  # it refers to us, and is to go when dropped
        return reading

    async def _read_all(self) -> AsyncIterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, chunks = self._taker(command), self._bytes_of(live)
                try:
                    async for chunk in chunks:
                        if shown := take(chunk):
                            yield shown
                        elif replay.due:
                            for piece in replay.pieces():
                                yield piece
                        if self._over:
                            break
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
        """End the turn here: no further attempt, and nothing left open."""
        self._finish()
        if self._scope is not None:
            self._scope.cancel()
        await self._drop()
