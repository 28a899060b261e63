"""The shells: HTTP clients whose `send` drives a turn. They do I/O and know nothing of providers.

A healing client stands for another client: it has that client's settings (its `__dict__`, live)
and sends every attempt through that client's own `send`, so that proxies, auth, hooks, limits and
transports hold for each of them. The response the caller gets is the first attempt's own object
with our stream in it.

Synchronous and asynchronous code differ only where bytes move: what they share is in `session.py`
and `_StandIn`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any, cast
from uuid import uuid4

import anyio
import httpx2
from anyio import from_thread
from anyio.lowlevel import checkpoint, current_token

from continuation.attach.journaled import (
    GATHERED,
    LANE,
    AsyncJournaledStream,
    JournaledStream,
    Keeper,
    TurnLog,
    begin_turn,
    begin_turn_async,
    first_attempt,
    is_recorded,
    wait,
)
from continuation.attach.preparing import KEY, Preparation
from continuation.attach.session import CLOSED, Session, as_stream, begin
from continuation.attach.total_timeout import TotalTimeout, until
from continuation.config import HEADER, check_names, parse
from continuation.config import take as take_override
from continuation.engine.commands import (
    Command,
    Consult,
    Emit,
    Read,
    Reply,
    Send,
    StreamBody,
    Wait,
    Work,
)
from continuation.engine.turn import Engine, Turn
from continuation.reports.report import TruncatedAnswerError
from continuation.types import Head, Request

logger = logging.getLogger("continuation")

_PLAIN = frozenset({httpx2.HTTPTransport, httpx2.AsyncHTTPTransport, type(None)})
"""Transports that send a request unchanged; a mount of `None` means the default one."""
_WAY = ("send", "_send_handling_auth", "_send_handling_redirects", "_send_single_request")
"""The methods that a request goes through in its client."""
_ADD_NOTHING = frozenset({"google.genai._api_client", TotalTimeout.__module__})
"""Modules whose clients have methods of their own, but send a request as it is."""
_AT_ONCE = 32_768
"""Below this size in bytes `Work` takes milliseconds and is done without a thread."""
_LARGE = 1_000_000
"""Above this size in bytes reading a request takes tens of milliseconds: a thread does it."""
_NO_AUTH = "the client's auth added no credential; the request counts as anonymous"
_REOPENED = "Cannot reopen a client instance, once it has been closed."


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


def _within(seconds: float | None) -> contextlib.AbstractContextManager[object]:
    """Return a context that raises `TimeoutError` after `seconds`; `None`: it never does."""
    return contextlib.nullcontext() if seconds is None else anyio.fail_after(seconds)


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
        if len(chunk) >= _AT_ONCE:
            await checkpoint()


async def _leave(chunks: AsyncIterator[bytes], response: httpx2.Response) -> None:
    try:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
    finally:
        await _shut(response)


def _gathers(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether a streamed response is to become a body: its caller did not ask for a stream."""
    kind = response.headers.get("content-type", "")
    return GATHERED in request.extensions and response.is_success and "stream" in kind


def _gathered(request: httpx2.Request, response: httpx2.Response, kept: TurnLog | None) -> None:
    """Make the journal's whole answer the body of a response; raises if the answer has no end."""
    if (body := None if kept is None else kept.answer()) is None:
        message = "the answer has no end"
        raise httpx2.RemoteProtocolError(message, request=request)
    response.headers["content-type"] = "application/json"
    response.__dict__["_content"] = body  # as the reading of a response does


class _Refused(httpx2.Response):
    """A response that raises when it is used (`on_failure = "raise"`).

    The SDKs take an exception out of `send` for a broken connection and send the request again. So
    it is raised when they first look at the response: they do not retry that.
    """

    refusal: Exception

    @classmethod
    def make(cls, response: httpx2.Response, refusal: Exception) -> None:
        """Turn a response into one that raises `refusal` from now on."""
        response.__class__ = cls
        response.__dict__["refusal"] = refusal

    @property
    def is_success(self) -> bool:
        raise self.refusal

    @property
    def text(self) -> str:
        raise self.refusal

    def raise_for_status(self) -> httpx2.Response:
        raise self.refusal

    def json(self, **_: Any) -> Any:
        raise self.refusal


class HealedStream(Session, httpx2.SyncByteStream):
    """The body of a healed turn. `close` closes the live upstream response, from any thread."""

    _chunks: Iterator[bytes] | None = None
    """The live response's chunks, while they are being read."""

    def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if we heal it."""
        while isinstance(command := self._next(), (Send, Read, Wait, Work)):
            self._reply = self._perform(command)
        if (response := self._opened(command)) is not None:
            return response
        self._drop()
        if self._closed:
            raise RuntimeError(CLOSED)
        return cast("httpx2.Response", self._send(self._request))

    def _perform(self, command: Command) -> Reply:
        try:
            if isinstance(command, Send):
                made = self._prepare(command)
                if isinstance(made, httpx2.Request) and self._prepared and not self._own:
                    self._prepared.again(made)
                live = made if isinstance(made, httpx2.Response) else self._send(made)
                self._live = live
                return Head(live.status_code, dict(live.headers.items()))
            if isinstance(command, Read) and self._live is not None:
                with self._bound(self._live):
                    return self._read_whole(self._live)
            if isinstance(command, Wait):
                self._wake.wait(command.seconds)
            if isinstance(command, Consult) and command.seconds is not None:
                done = threading.Event()
                begin(command, done.set)
                return None if done.wait(command.seconds) else TimeoutError()
            if isinstance(command, Work):
                command.do()
        except Exception as error:
            self._error = error
        return self._error

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
                    with self._bound(live):
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

    def _read_whole(self, live: httpx2.Response) -> bytes:
        """Read the whole body of a response, as its `read` does, if it is not too large."""
        if not live.is_closed:
            add, body = self._adder()
            for chunk in live.iter_bytes():
                add(chunk)
            live.__dict__["_content"] = bytes(body)
        return live.read()

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
    def _bound(self, live: httpx2.Response) -> Generator[None]:
        """Abort a response when its attempt's time is up, even if bytes keep arriving slowly."""
        if self._left is None:
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


class AsyncHealedStream(Session, httpx2.AsyncByteStream):
    """The body of a healed turn. `aclose` closes the live upstream response, from any task."""

    _scope: anyio.CancelScope | None = None
    """Around the command being performed; `aclose` cancels it."""
    _reading: weakref.ref[AsyncIterator[bytes]] | None = None
    """The iterator that is under way."""

    async def open(self) -> httpx2.Response:
        """Send the caller's request; return its response, with this stream in it if we heal it."""
        while isinstance(command := self._next(), (Send, Read, Wait, Work)):
            self._reply = await self._perform(command)
        if (response := self._opened(command)) is not None:
            return response
        await self._drop()
        if self._closed:
            raise RuntimeError(CLOSED)
        return cast("httpx2.Response", await self._send(self._request))

    async def _perform(self, command: Command) -> Reply:
        with anyio.CancelScope() as self._scope:
            try:
                if isinstance(command, Send):
                    made = self._prepare(command)
                    with _within(self._left):
                        if isinstance(made, httpx2.Request) and self._prepared and not self._own:
                            await self._prepared.again(made)
                        live = made if isinstance(made, httpx2.Response) else await self._send(made)
                    self._live = live
                    return Head(live.status_code, dict(live.headers.items()))
                if isinstance(command, Read) and self._live is not None:
                    with _within(self._left):
                        return await self._read_whole(self._live)
                if isinstance(command, Wait):
                    await anyio.sleep(command.seconds)
                if isinstance(command, Consult) and command.seconds is not None:
                    done, loop = anyio.Event(), current_token()
                    begin(command, lambda: from_thread.run_sync(done.set, token=loop))
                    with anyio.move_on_after(command.seconds):
                        await done.wait()
                    return None if done.is_set() else TimeoutError()
                if isinstance(command, Work):
                    if command.size < _AT_ONCE:
                        command.do()
                    else:
                        await anyio.to_thread.run_sync(command.do, abandon_on_cancel=True)
            except Exception as error:
                self._error = error
            finally:
                self._scope = None
        return self._error

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
                self._reply = await self._perform(command)
        await self._drop()

    async def _read_whole(self, live: httpx2.Response) -> bytes:
        if not live.is_closed:
            add, body = self._adder()
            async for chunk in _decoded(live):
                add(chunk)
            live.__dict__["_content"] = bytes(body)
        return await live.aread()

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


def _passes_on(client: Any, known: Any, name: str) -> bool:
    """Whether a client's method is httpx2's own, or one that adds nothing to a request."""
    function = getattr(getattr(client, name), "__func__", None)
    return function is known or getattr(function, "__module__", "") in _ADD_NOTHING


class _StandIn:
    """What both healing clients share: they stand for `origin`, and close only what they own."""

    __slots__ = (
        *("_closed", "_name", "_owned", "_patched", "_plain"),
        *("engine", "origin", "prepare", "streams"),
    )
    _send: Callable[..., Any]

    def __init__(self, origin: Any, engine: Engine, *, owned: bool = False) -> None:
        # Not super().__init__: it would open a second pool of connections.
        self.__dict__ = origin.__dict__  # of the class beside this one
        self.origin = origin
        """The client this one stands for."""
        self._owned = owned
        self._closed = False
        self._patched: Any = None
        self.streams: set[weakref.ref[Any]] = set()
        """The streams that were opened and may still be read."""
        self._name = uuid4().hex
        kind = httpx2.Client if isinstance(origin, httpx2.Client) else httpx2.AsyncClient
        passed = [origin, *([origin.origin] if isinstance(origin, TotalTimeout) else ())]
        self._plain = all(
            _passes_on(each, getattr(kind, name), name) for each in passed for name in _WAY
        )
        """Whether only `auth`, hooks and transports can change a request before it is sent."""
        self.engine = engine
        self.prepare: Callable[[httpx2.Request], Any] | None = None
        """Prepares a later attempt, if all requests of this client are prepared alike."""

    # A property goes before what was patched onto `origin`, whose settings are ours as well.
    @property
    def send(self) -> Any:
        """Send a request; return its response, made whole if a dialect claims the request.

        Raises what the other client's `send` raises.
        """
        return self._patched or self._send

    @send.setter
    def send(self, patched: Any) -> None:
        self._patched = patched

    @send.deleter
    def send(self) -> None:
        self._patched = None

    @property
    def is_closed(self) -> bool:
        return self._closed or self.origin.is_closed

    def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
        """Build a request with the origin's method, which its class may have overridden."""
        request: httpx2.Request = self.origin.build_request(*arguments, **options)
        # The SDKs turn what `send` raises into connection errors and try again; what is raised
        # here, before that, reaches the caller as it is.
        check_names(name for name, _ in request.headers.raw)
        if HEADER in request.headers:
            parse(request.headers[HEADER])
        keeper = self._keeper
        if keeper is not None and self.engine.claims(request.method, request.url.path):
            keeper.check()
        if (lane := LANE.get()) is not None and lane.streams:
            request = as_stream(request, self.engine)
        if self.prepare is not None:
            Preparation.note(request, self.prepare)
        return request

    @property
    def _keeper(self) -> Keeper | None:
        return LANE.get() or cast("Keeper | None", self.engine.journal)

    def __getattr__(self, name: str) -> Any:
        # Called for names of the origin's own class, which httpx2's classes do not have.
        return getattr(object.__getattribute__(self, "origin"), name)

    def _probe(self, request: httpx2.Request, auth: httpx2.Auth) -> httpx2.Request | None:
        """Return a copy of a claimed request, for `auth` to add its headers to; `None`: no need.

        Limits and chains are kept by credential, and the key in the request may be a placeholder.
        The caller's hooks and transports are not run on it: they may count, log or wait.
        """
        if type(auth) is httpx2.Auth or not isinstance(request.stream, httpx2.ByteStream):
            return None  # the base class of `Auth` adds nothing
        if self.engine.claims(request.method, request.url.path) is None:
            return None
        headers, content = request.headers, request.content
        return httpx2.Request(request.method, request.url, headers=headers, content=content)

    def _begin(self, request: httpx2.Request, leaving: httpx2.Request | None) -> Turn | None:
        """Begin a turn for a request that a dialect claims; `None`: send the request as it is."""
        if self._closed:
            raise RuntimeError(CLOSED)
        asked = take_override(request)
        try:
            dialect = self.engine.claims(request.method, request.url.path)
            if dialect is None or not isinstance(request.stream, httpx2.ByteStream):
                return None
            # As a dict: each look-up in httpx2's headers is a linear search.
            headers = dict(request.headers.items())
            if "content-encoding" in headers:
                return None
            host, path = request.url.netloc.decode("ascii"), request.url.path
            sent = headers
            if leaving is not None and leaving is not request:
                sent = dict(leaving.headers.items())
            if (prepared := request.extensions.get(KEY)) is not None:
                headers = dict(prepared.headers.items())
            identity = {} if sent is headers else dict(sorted(sent.items() - headers.items()))
            kinds = map(type, (self._transport, *self._mounts.values()))
            seen = leaving is not None and self._plain and not self._event_hooks["request"]
            client = "" if seen and _PLAIN.issuperset(kinds) else self._name
            content = request.content
            asking = Request(host, path, headers, content, identity=identity, client=client)
            timeout = request.extensions.get("timeout", {}).get("read")
            return self.engine.begin(dialect, asking, timeout, asked)
        except Exception:
            logger.exception("internal error: the request could not be read; it is sent unchanged")
            return None

    def _take_open(self) -> list[Any]:
        """Mark the client as closed; return the streams that are still open."""
        self._closed = True
        streams = [stream for held in list(self.streams) if (stream := held()) is not None]
        for stream in streams:
            stream.abandoned = True
        return streams


class _PastSend(httpx2.BaseTransport):
    """Heals requests that bypass `send` and use one of our client's transports directly.

    openai's X.509 identity does so: it sends through a client of its own, bound to one origin.
    """

    def __init__(self, ours: HealingClient, transport: httpx2.BaseTransport) -> None:
        self._client = HealingClient(httpx2.Client(transport=transport), ours.engine)
        self._client.streams = ours.streams  # closed with it

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return cast("httpx2.Response", self._client.send(request, stream=True, auth=None))


class _PastSendAsync(httpx2.AsyncBaseTransport):
    """The asynchronous twin of `_PastSend`."""

    def __init__(self, ours: AsyncHealingClient, transport: httpx2.AsyncBaseTransport) -> None:
        self._client = AsyncHealingClient(httpx2.AsyncClient(transport=transport), ours.engine)
        self._client.streams = ours.streams  # closed with it

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._client.send(request, stream=True, auth=None)
        return cast("httpx2.Response", answer)


class HealingClient(_StandIn, httpx2.Client):
    """Stands for another client: has its settings, sends through it, returns whole answers.

    Closing it closes the streams it opened, and the other client only with `owned=True`.
    """

    def _send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        turn = self._begin(request, self._leaving(request, options))
        if turn is None:
            return cast("httpx2.Response", self.origin.send(request, stream=stream, **options))
        send: Callable[..., Any] = partial(self.origin.send, stream=True, **options)
        if (lane := LANE.get()) is not None and turn.asked is not None:
            send = partial(lane.send, turn.asked[1].refused, send)
        session = HealedStream(turn, request, self.cookies, send)
        self.streams.add(weakref.ref(session, self.streams.discard))
        if lane is not None:
            lane.session = session
        if (keeper := self._keeper) is None:
            kept, response = None, session.open()
        else:
            kept = begin_turn(keeper, turn, request.url.path)
            response = self._journaled(session, turn, kept)
        if not stream:
            try:
                if _gathers(request, response):
                    for _ in response.iter_raw():
                        pass
                    _gathered(request, response, kept)
                response.read()
            except TruncatedAnswerError as error:
                response.close()
                _Refused.make(response, error)
            except BaseException:
                response.close()
                raise
        return response

    def _journaled(
        self, session: HealedStream, turn: Turn, kept: TurnLog | None
    ) -> httpx2.Response:
        """Open a turn; its answer is recorded in a journal if `kept` is not `None`."""
        session.played = first_attempt(kept) or session.played
        try:
            response = session.open()
            if kept is not None and response.stream is session:
                response.stream = JournaledStream(session, turn, kept)
            elif kept is not None and is_recorded(kept, response):
                wait(kept.keep(response.read()))
        except BaseException:
            if kept is not None:
                kept.leave()
            raise
        return response

    def _leaving(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Request | None:
        try:
            auth = self._build_request_auth(request, options.get("auth", httpx2.USE_CLIENT_DEFAULT))
            if (probe := self._probe(request, auth)) is None:
                return request
            with contextlib.closing(auth.sync_auth_flow(probe)) as flow:
                leaving = next(flow)
                while leaving is not probe and leaving.url != probe.url:  # a request for a token
                    leaving = flow.send(self.origin.send(leaving, auth=None))
        except Exception:  # it fails again when the request is sent, and is raised there
            logger.info(_NO_AUTH, exc_info=True)
            return None
        return leaving

    def _transport_for_url(self, url: httpx2.URL) -> httpx2.BaseTransport:
        return _PastSend(self, super()._transport_for_url(url))

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # closes all of them even if one raises
            if self._owned:
                closing.callback(self.origin.close)
            for stream in self._take_open():
                closing.callback(stream.close)

    def __enter__(self) -> HealingClient:
        if self._closed:
            raise RuntimeError(_REOPENED)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncHealingClient(_StandIn, httpx2.AsyncClient):
    """The asynchronous twin of `HealingClient`."""

    async def _send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        begin = partial(self._begin, request, await self._leaving(request, options))
        given = request.stream
        large = isinstance(given, httpx2.ByteStream) and len(request.content) > _LARGE
        turn = await anyio.to_thread.run_sync(begin) if large else begin()
        if turn is None:
            answer = await self.origin.send(request, stream=stream, **options)
            return cast("httpx2.Response", answer)
        send: Callable[..., Any] = partial(self.origin.send, stream=True, **options)
        if (lane := LANE.get()) is not None and turn.asked is not None:
            send = partial(lane.asend, turn.asked[1].refused, send)
        session = AsyncHealedStream(turn, request, self.cookies, send)
        self.streams.add(weakref.ref(session, self.streams.discard))
        if (keeper := self._keeper) is None:
            kept, response = None, await session.open()
        else:
            path = request.url.path
            kept = await begin_turn_async(keeper, turn, path)
            response = await self._journaled(session, turn, kept)
        if not stream:
            try:
                if _gathers(request, response):
                    async for _ in response.aiter_raw():
                        pass
                    _gathered(request, response, kept)
                await response.aread()
            except TruncatedAnswerError as error:
                await response.aclose()
                _Refused.make(response, error)
            except BaseException:
                await response.aclose()
                raise
        return response

    async def _journaled(
        self, session: AsyncHealedStream, turn: Turn, kept: TurnLog | None
    ) -> httpx2.Response:
        session.played = first_attempt(kept) or session.played
        try:
            response = await session.open()
            if kept is not None and response.stream is session:
                response.stream = AsyncJournaledStream(session, turn, kept)
            elif kept is not None and is_recorded(kept, response):
                done = kept.keep(await response.aread())
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(wait, done)
        except BaseException:
            if kept is not None:
                kept.leave()
            raise
        return response

    async def _leaving(
        self, request: httpx2.Request, options: dict[str, Any]
    ) -> httpx2.Request | None:
        try:
            auth = self._build_request_auth(request, options.get("auth", httpx2.USE_CLIENT_DEFAULT))
            if (probe := self._probe(request, auth)) is None:
                return request
            async with contextlib.aclosing(auth.async_auth_flow(probe)) as flow:
                leaving = await anext(flow)
                while leaving is not probe and leaving.url != probe.url:
                    leaving = await flow.asend(await self.origin.send(leaving, auth=None))
        except Exception:
            logger.info(_NO_AUTH, exc_info=True)
            return None
        return leaving

    def _transport_for_url(self, url: httpx2.URL) -> httpx2.AsyncBaseTransport:
        return _PastSendAsync(self, super()._transport_for_url(url))

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as closing:
            if self._owned:
                closing.push_async_callback(self.origin.aclose)
            for stream in self._take_open():
                closing.push_async_callback(stream.aclose)

    async def __aenter__(self) -> AsyncHealingClient:
        if self._closed:
            raise RuntimeError(_REOPENED)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
