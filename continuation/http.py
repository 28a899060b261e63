"""The shells: HTTP clients whose `send` drives a turn. They do I/O and know nothing of providers.

A healing client shares the settings of the client it stands for (its `__dict__`, live) and sends
every attempt through that client's own `send`, so proxies, auth, hooks, limits and retries of the
transport hold for each of them. The response the caller gets is the first attempt's own object
with our stream in it.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeAlias

import anyio
import httpx2

from continuation.commands import (
    Attach,
    Command,
    Hand,
    Raise,
    Read,
    Relay,
    Reply,
    Send,
    Show,
    Wait,
)
from continuation.decide import Outcome
from continuation.engine import Engine
from continuation.turn import Turn
from continuation.types import Enough, Head, Outgoing

logger = logging.getLogger("continuation")

# Of the caller's headers, what must not go along with another body: its length and framing are
# new, and a key that marks two requests as the same one would be a lie.
_OWN = ("content-length", "transfer-encoding", "idempotency-key")
_CLOSED = "Cannot send a request, as the client has been closed."

Options: TypeAlias = dict[str, Any]


def _begin(engine: Engine, request: httpx2.Request) -> Turn | None:
    """Begin a turn for a request that a dialect knows; `None`: let it pass."""
    try:
        dialect = engine.claims(request.method, request.url.path)
        if dialect is None:
            return None
        headers = {key.lower(): value for key, value in request.headers.items()}
        if "content-encoding" in headers:
            return None
        timeout = request.extensions.get("timeout", {}).get("read")
        url = request.url
        return engine.begin(dialect, url.host, url.path, headers, request.content, timeout)
    except Exception:
        logger.exception("the request could not be read; it is sent as it is")
        return None


class _Session:
    """What the two shells share: everything but the I/O."""

    def __init__(self, turn: Turn, request: httpx2.Request) -> None:
        self.turn = turn
        self.closed = False
        self.elapsed: datetime.timedelta | None = None
        self._request = request
        self._started = time.perf_counter()
        self._script = turn.run()
        self._broken = False

    def _step(self, reply: Reply) -> Command | None:
        """Take the next command; if our own code fails, what is safe to send instead."""
        try:
            return self._script.send(reply)
        except StopIteration:
            return None
        except Exception as bug:
            return Show(self._rescue(bug))

    def _rescue(self, bug: Exception) -> bytes:
        """Our own code failed with an answer in hand: end it with the provider's own bytes."""
        logger.error("internal error, the answer ends as it stands", exc_info=bug)
        self._broken = True
        tape = self.turn.tape
        try:
            reason = f"internal error: {type(bug).__name__}"
            self.turn.recorder.finish(Outcome.PARTIAL, reason)
        except Exception:
            logger.exception("the report could not be written")
        return bytes(tape.raw[tape.sent :]) if tape.closing is None else tape.closing

    def _prepare(self, outgoing: Outgoing | None, seconds: float | None) -> httpx2.Request:
        """Build the request for an attempt: the caller's own, or one like it."""
        original = self._request
        if outgoing is None:
            return original
        headers = httpx2.Headers(original.headers)
        for name in _OWN:
            headers.pop(name, None)
        if outgoing.method == "GET":
            headers.pop("content-type", None)
        headers.update(outgoing.headers)
        path = outgoing.path(original.url.path) if outgoing.path else original.url.path
        return httpx2.Request(
            outgoing.method,
            original.url.copy_with(path=path) if outgoing.path else original.url,
            headers=headers,
            content=outgoing.body or None,
            extensions=_within(original.extensions, seconds),
        )

    def _adopt(self, response: httpx2.Response, stream: object) -> httpx2.Response:
        """Put our stream into the first response; return one to read the provider's bytes from."""
        live = httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
            extensions=response.extensions,
        )
        if response.is_closed:  # a response hook has read it: its content is what there is
            live.headers.pop("content-encoding", None)
            live.stream = httpx2.ByteStream(response.content)
            for name in ("_content", "_text", "_decoder"):
                response.__dict__.pop(name, None)
            response.is_closed = response.is_stream_consumed = False
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
        response.stream = stream  # type: ignore[assignment]
        return live

    def _finish(self) -> None:
        self.closed = True
        self.elapsed = datetime.timedelta(seconds=time.perf_counter() - self._started)


def _within(extensions: Any, seconds: float | None) -> dict[str, Any]:
    """Copy the caller's extensions; its timeouts shrink to the time that is left."""
    copy = dict(extensions)
    if seconds is not None:
        given = copy.get("timeout", {})
        known = {name: given.get(name) for name in ("connect", "read", "write", "pool")}
        copy["timeout"] = {n: seconds if t is None else min(t, seconds) for n, t in known.items()}
    return copy


def _head(response: httpx2.Response) -> Head:
    return Head(response.status_code, {k.lower(): v for k, v in response.headers.items()})


def _plain(response: httpx2.Response) -> bool:
    """Whether the body needs no decoding, so that its bytes can be taken from the stream."""
    return response.headers.get("content-encoding", "identity") == "identity"


class HealedStream(_Session, httpx2.SyncByteStream):
    """The body of a healed turn. `close` closes the live upstream response, from any thread."""

    def __init__(
        self,
        turn: Turn,
        request: httpx2.Request,
        send: Callable[[httpx2.Request], httpx2.Response],
    ) -> None:
        super().__init__(turn, request)
        self._send = send
        self._live: httpx2.Response | None = None
        self._wake = threading.Event()

    def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if it is ours."""
        reply: Reply = None
        while not self._broken:
            command = self._step(reply)
            if isinstance(command, Attach) and self._live is not None:
                response = self._live
                self._live = self._adopt(response, self)
                return response
            if isinstance(command, Hand) and self._live is not None:
                return self._live
            if isinstance(command, Raise):
                raise command.error
            reply = self._perform(command)
        return self._live or self._send(self._request)

    def _perform(self, command: Command | None) -> Reply:
        try:
            if isinstance(command, Send):
                self._live = None
                self._live = self._send(self._prepare(command.outgoing, command.seconds))
                return _head(self._live)
            if isinstance(command, Read) and self._live is not None:
                return self._live.read()
            if isinstance(command, Wait):
                self._wake.wait(command.seconds)
        except Exception as error:
            return error
        return None

    def __iter__(self) -> Iterator[bytes]:
        reply: Reply = None
        while not self.closed and (command := self._step(reply)) is not None:
            reply = None
            if isinstance(command, Relay):
                reply = yield from self._relay(command)
            elif isinstance(command, Show):
                if command.data:
                    yield command.data
            elif isinstance(command, Raise):
                raise command.error
            else:
                reply = self._perform(command)
        if self.closed and self._live is not None:
            self._live.close()

    def _relay(self, relay: Relay) -> Generator[bytes, None, Reply]:
        feed, tape, live = relay.feed, relay.tape, self._live
        if live is None:
            return None
        chunks = iter(live.stream) if _plain(live) else live.iter_bytes()  # type: ignore[arg-type]
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:
                if self.closed:
                    raise
                return error
            if chunk is None:
                break
            if tape is not None:
                tape.raw += chunk
            try:
                shown = feed(chunk)
            except Enough as enough:
                if enough.show:
                    yield enough.show
                break
            except Exception as bug:
                yield self._rescue(bug)
                self._script.close()
                if tape is not None:
                    yield from chunks
                break
            if shown:
                yield shown
        live.close()
        return None

    def close(self) -> None:
        self._finish()
        self._wake.set()
        if self._live is not None:
            self._live.close()


class AsyncHealedStream(_Session, httpx2.AsyncByteStream):
    """The body of a healed turn. `aclose` closes the live upstream response, from any task."""

    def __init__(
        self,
        turn: Turn,
        request: httpx2.Request,
        send: Callable[[httpx2.Request], Any],
    ) -> None:
        super().__init__(turn, request)
        self._send = send
        self._live: httpx2.Response | None = None
        self._wake: anyio.Event | None = None

    async def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if it is ours."""
        reply: Reply = None
        while not self._broken:
            command = self._step(reply)
            if isinstance(command, Attach) and self._live is not None:
                response = self._live
                self._live = self._adopt(response, self)
                return response
            if isinstance(command, Hand) and self._live is not None:
                return self._live
            if isinstance(command, Raise):
                raise command.error
            reply = await self._perform(command)
        return self._live or await self._send(self._request)

    async def _perform(self, command: Command | None) -> Reply:
        try:
            if isinstance(command, Send):
                self._live = None
                self._live = await self._send(self._prepare(command.outgoing, command.seconds))
                return _head(self._live)
            if isinstance(command, Read) and self._live is not None:
                return await self._live.aread()
            if isinstance(command, Wait):
                self._wake = anyio.Event()
                with anyio.move_on_after(command.seconds):
                    await self._wake.wait()
        except Exception as error:
            return error
        return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reply: Reply = None
        while not self.closed and (command := self._step(reply)) is not None:
            reply = None
            if isinstance(command, Relay):
                self._ended: Reply = None
                async for shown in self._relay(command):
                    yield shown
                reply = self._ended
            elif isinstance(command, Show):
                if command.data:
                    yield command.data
            elif isinstance(command, Raise):
                raise command.error
            else:
                reply = await self._perform(command)
        if self.closed and self._live is not None:
            await self._live.aclose()

    async def _relay(self, relay: Relay) -> AsyncIterator[bytes]:
        feed, tape, live = relay.feed, relay.tape, self._live
        if live is None:
            return
        source = live.stream if _plain(live) else live.aiter_bytes()
        chunks = source.__aiter__()  # type: ignore[union-attr]
        while True:
            try:
                chunk = await anext(chunks, None)
            except Exception as error:
                if self.closed:
                    raise
                self._ended = error
                return
            if chunk is None:
                break
            if tape is not None:
                tape.raw += chunk
            try:
                shown = feed(chunk)
            except Enough as enough:
                if enough.show:
                    yield enough.show
                break
            except Exception as bug:
                yield self._rescue(bug)
                self._script.close()
                if tape is not None:
                    async for rest in chunks:
                        yield rest
                break
            if shown:
                yield shown
        await live.aclose()

    async def aclose(self) -> None:
        self._finish()
        if self._wake is not None:
            self._wake.set()
        if self._live is not None:
            await self._live.aclose()


class HealingClient(httpx2.Client):
    """Stands for another client: its settings, its `send`, whole answers.

    Closing it closes nothing of the other client, which belongs to whoever made it; with
    `owned=True` it does.
    """

    __slots__ = ("_closed", "_origin", "_owned", "engine")

    def __init__(self, origin: httpx2.Client, engine: Engine, *, owned: bool = False) -> None:
        # Not super().__init__: it would open a second pool of connections.
        self.__dict__ = origin.__dict__
        self._origin = origin
        self._owned = owned
        self._closed = False
        self.engine = engine

    @property
    def origin(self) -> httpx2.Client:
        """The client this one stands for."""
        return self._origin

    @property
    def is_closed(self) -> bool:
        return self._closed or self._origin.is_closed

    def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,
    ) -> httpx2.Response:
        """Send a request; an answer that a dialect knows comes back whole."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        turn = _begin(self.engine, request)
        if turn is None:
            return self._origin.send(request, stream=stream, **options)
        session = HealedStream(
            turn, request, lambda attempt: self._origin.send(attempt, stream=True, **options)
        )
        response = session.open()
        if not stream:
            try:
                response.read()
            except BaseException:
                response.close()
                raise
        return response

    def close(self) -> None:
        self._closed = True
        if self._owned:
            self._origin.close()

    def __enter__(self) -> HealingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncHealingClient(httpx2.AsyncClient):
    """Stands for another client: its settings, its `send`, whole answers."""

    __slots__ = ("_closed", "_origin", "_owned", "engine")

    def __init__(self, origin: httpx2.AsyncClient, engine: Engine, *, owned: bool = False) -> None:
        # Not super().__init__: it would open a second pool of connections.
        self.__dict__ = origin.__dict__
        self._origin = origin
        self._owned = owned
        self._closed = False
        self.engine = engine

    @property
    def origin(self) -> httpx2.AsyncClient:
        """The client this one stands for."""
        return self._origin

    @property
    def is_closed(self) -> bool:
        return self._closed or self._origin.is_closed

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,
    ) -> httpx2.Response:
        """Send a request; an answer that a dialect knows comes back whole."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        turn = _begin(self.engine, request)
        if turn is None:
            return await self._origin.send(request, stream=stream, **options)
        session = AsyncHealedStream(
            turn, request, lambda attempt: self._origin.send(attempt, stream=True, **options)
        )
        response = await session.open()
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response

    async def aclose(self) -> None:
        self._closed = True
        if self._owned:
            await self._origin.aclose()

    async def __aenter__(self) -> AsyncHealingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
