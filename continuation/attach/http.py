"""The shells: HTTP clients whose `send` drives a turn. They do I/O and know nothing of providers.

A healing client stands for another client: it has that client's settings (its `__dict__`, live)
and sends every attempt through that client's own `send`, so that proxies, auth, hooks, limits and
transports hold for each of them. The response the caller gets is the first attempt's own object
with our stream in it.

Synchronous and asynchronous code differ where bytes move, and nowhere else: what they share is in
`session.py` and `_StandIn`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import anyio
import httpx2

from continuation.attach.session import CLOSED, Session, head_of
from continuation.config import HEADER, parse
from continuation.config import take as take_override
from continuation.engine.commands import Command, Emit, Read, Reply, Send, StreamBody, Wait
from continuation.engine.turn import Engine, Turn
from continuation.types import Request

logger = logging.getLogger("continuation")

_REOPENED = "Cannot reopen a client instance, once it has been closed."

_SyncSend: TypeAlias = "Callable[[httpx2.Request], httpx2.Response]"
_AsyncSend: TypeAlias = "Callable[[httpx2.Request], Awaitable[httpx2.Response]]"


def _direct(response: httpx2.Response) -> bool:
    """Whether bytes can be taken from the stream itself: not encoded, nor read by a hook."""
    plain = response.headers.get("content-encoding", "identity") == "identity"
    return plain and not response.is_closed


def _hang_up(response: httpx2.Response) -> None:
    """Wake a thread that waits for bytes of this response: closing its socket does not."""
    with contextlib.suppress(Exception):
        if response.http_version.startswith("HTTP/1"):
            line = response.extensions["network_stream"].get_extra_info("socket")
            line.shutdown(socket.SHUT_RDWR)


async def _shut(response: httpx2.Response) -> None:
    """Close a response for good, whatever happens to this task meanwhile.

    A task that is cancelled while httpcore closes a connection leaves it in the pool for ever:
    httpcore shields its closing from cancel scopes, not from `Task.cancel`.
    """
    if response.is_closed:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # not asyncio, so there are only scopes
        await response.aclose()
        return
    closing, cancelled = loop.create_task(response.aclose()), None
    with anyio.CancelScope(shield=True):
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    closing.result()


def _inner(response: httpx2.Response) -> Any:
    """Return what to read a response's bytes from.

    httpx2 puts a stream of its own around a transport's, which notes the time when it is closed and
    otherwise costs each chunk a hop. Ours stands in its place, so the hop is saved.
    """
    stream = response.stream
    timed = type(stream).__module__ == "httpx2._client"
    return getattr(stream, "_stream", stream) if timed else stream


def _chunks(response: httpx2.Response) -> AsyncIterator[bytes]:
    stream = cast("httpx2.AsyncByteStream", _inner(response))
    return stream.__aiter__() if _direct(response) else response.aiter_bytes()


async def _leave(chunks: AsyncIterator[bytes], response: httpx2.Response) -> None:
    try:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
    finally:
        await _shut(response)


class HealedStream(Session, httpx2.SyncByteStream):
    """The body of a healed turn. `close` closes the live upstream response, from any thread."""

    def __init__(
        self, turn: Turn, request: httpx2.Request, jar: httpx2.Cookies, send: _SyncSend
    ) -> None:
        super().__init__(turn, request, jar)
        self._send = send
        self._chunks: Iterator[bytes] | None = None
        self._wake = threading.Event()

    def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if it is ours."""
        while isinstance(command := self._next(), (Send, Read, Wait)):
            self._reply = self._perform(command)
        if (response := self._opened(command, self)) is not None:
            return response
        self._drop()
        return self._send(self._as_it_is())

    def _perform(self, command: Command) -> Reply:
        try:
            if isinstance(command, Send):
                self._live = self._refused(command) or self._send(self._prepare(command))
                return head_of(self._live)
            if isinstance(command, Read) and self._live is not None:
                return self._live.read()
            if isinstance(command, Wait):
                self._wake.wait(command.seconds)
        except Exception as error:
            self._error = error
        return self._error

    def __iter__(self) -> Iterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                # Here as in the twin: a generator of its own would cost each chunk a hop.
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, chunks = self._taker(command), self._begin(live)
                try:
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
                self._reply = self._perform(command)
        self._drop()
        self._complete()

    def _begin(self, live: httpx2.Response) -> Iterator[bytes]:
        stream = cast("httpx2.SyncByteStream", _inner(live))
        self._chunks = iter(stream) if _direct(live) else live.iter_bytes()
        return self._chunks

    def _drop(self) -> None:
        if self._live is not None:
            self._live.close()

    def close(self) -> None:
        """End the turn here: no further attempt, and nothing left open."""
        self._finish()
        self._wake.set()
        if self._live is not None and getattr(self._chunks, "gi_running", False):
            _hang_up(self._live)
        self._drop()


class AsyncHealedStream(Session, httpx2.AsyncByteStream):
    """The body of a healed turn. `aclose` closes the live upstream response, from any task."""

    def __init__(
        self, turn: Turn, request: httpx2.Request, jar: httpx2.Cookies, send: _AsyncSend
    ) -> None:
        super().__init__(turn, request, jar)
        self._send = send
        self._scope: anyio.CancelScope | None = None

    async def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if it is ours."""
        while isinstance(command := self._next(), (Send, Read, Wait)):
            self._reply = await self._perform(command)
        if (response := self._opened(command, self)) is not None:
            return response
        await self._drop()
        return await self._send(self._as_it_is())

    async def _perform(self, command: Command) -> Reply:
        with anyio.CancelScope() as self._scope:
            try:
                if isinstance(command, Send):
                    own = self._refused(command)
                    self._live = own or await self._send(self._prepare(command))
                    return head_of(self._live)
                if isinstance(command, Read) and self._live is not None:
                    return await self._live.aread()
                if isinstance(command, Wait):
                    await anyio.sleep(command.seconds)
            except Exception as error:
                self._error = error
        return self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (command := self._next()) is not None:
            if isinstance(command, StreamBody):
                live, replay = cast("httpx2.Response", self._live), self._turn.replay
                take, chunks = self._taker(command), _chunks(live)
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
                self._reply = await self._perform(command)
        await self._drop()
        self._complete()

    async def _drop(self) -> None:
        if self._live is not None:
            await _shut(self._live)

    async def aclose(self) -> None:
        """End the turn here: no further attempt, and nothing left open."""
        self._finish()
        if self._scope is not None:
            self._scope.cancel()
        await self._drop()


class _StandIn:
    """What the healing clients share: they stand for `origin`, and close only what is theirs."""

    __slots__ = ("_closed", "_open", "_origin", "_owned", "engine")

    def __init__(self, origin: Any, engine: Engine, *, owned: bool = False) -> None:
        # Not super().__init__: it would open a second pool of connections.
        self.__dict__ = origin.__dict__  # type: ignore[misc]  # of the class beside this one
        self._origin = origin
        self._owned = owned
        self._closed = False
        self._open: set[weakref.ref[Any]] = set()
        self.engine = engine

    @property
    def origin(self) -> Any:
        """The client this one stands for."""
        return self._origin

    @property
    def is_closed(self) -> bool:
        return self._closed or self._origin.is_closed

    def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
        """Let the origin build it: its class may have its own way."""
        request: httpx2.Request = self._origin.build_request(*arguments, **options)
        if HEADER in request.headers:
            # The SDKs turn what `send` raises into connection errors and try again; what is raised
            # here, before that, reaches the caller as it is.
            parse(request.headers[HEADER])
        return request

    def __getattr__(self, name: str) -> Any:
        # Reached for what neither httpx2 nor the shared settings have: the origin's class does.
        return getattr(object.__getattribute__(self, "_origin"), name)

    def _begin(self, request: httpx2.Request) -> Turn | None:
        """Begin a turn for a request that a dialect knows; `None`: let it pass."""
        if self._closed:
            raise RuntimeError(CLOSED)
        asked = take_override(request)
        try:
            return _turn(self.engine, request, asked)
        except Exception:
            logger.exception("the request could not be read; it is sent as it is")
            return None

    def _opens(self, stream: Session) -> None:
        self._open.add(weakref.ref(stream, self._open.discard))

    def _enter(self) -> None:
        if self._closed:
            raise RuntimeError(_REOPENED)

    def _take_open(self) -> list[Any]:
        """Close for good; return the streams that are still open."""
        self._closed = True
        streams = [stream for reference in list(self._open) if (stream := reference()) is not None]
        for stream in streams:
            stream.abandon()
        return streams


def _turn(engine: Engine, request: httpx2.Request, asked: Mapping[str, Any]) -> Turn | None:
    dialect = engine.claims(request.method, request.url.path)
    if dialect is None:
        return None
    headers = {key.lower(): value for key, value in request.headers.items()}
    if "content-encoding" in headers or not isinstance(request.stream, httpx2.ByteStream):
        return None
    timeout = request.extensions.get("timeout", {}).get("read")
    url = request.url
    asking = Request(url.netloc.decode("ascii"), url.path, headers, request.content)
    return engine.begin(dialect, asking, timeout, asked)


class HealingClient(_StandIn, httpx2.Client):
    """Stands for another client: its settings, its `send`, whole answers.

    Closing it closes the streams it opened and nothing of the other client, which belongs to
    whoever made it; with `owned=True` it closes that too.
    """

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send a request; an answer that a dialect knows comes back whole.

        Raises what the other client's `send` raises.
        """
        turn = self._begin(request)
        if turn is None:
            return cast("httpx2.Response", self._origin.send(request, stream=stream, **options))
        session = HealedStream(
            turn, request, self.cookies, lambda own: self._origin.send(own, stream=True, **options)
        )
        self._opens(session)
        response = session.open()
        if not stream:
            try:
                response.read()
            except BaseException:
                response.close()
                raise
        return response

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # all of them, whatever one of them raises
            if self._owned:
                closing.callback(self._origin.close)
            for stream in self._take_open():
                closing.callback(stream.close)

    def __enter__(self) -> HealingClient:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncHealingClient(_StandIn, httpx2.AsyncClient):
    """The asynchronous twin of `HealingClient`."""

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send a request; an answer that a dialect knows comes back whole.

        Raises what the other client's `send` raises.
        """
        turn = self._begin(request)
        if turn is None:
            answer = await self._origin.send(request, stream=stream, **options)
            return cast("httpx2.Response", answer)
        session = AsyncHealedStream(
            turn, request, self.cookies, lambda own: self._origin.send(own, stream=True, **options)
        )
        self._opens(session)
        response = await session.open()
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as closing:
            if self._owned:
                closing.push_async_callback(self._origin.aclose)
            for stream in self._take_open():
                closing.push_async_callback(stream.aclose)

    async def __aenter__(self) -> AsyncHealingClient:
        self._enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
