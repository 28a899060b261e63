"""HTTP clients whose `send` drives a turn.

A healing client stands for another client. It sends every attempt through that client's `send`, so
that client's proxies, auth, hooks, limits and transports apply to each attempt.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, cast
from uuid import uuid4

import anyio
import httpx2
from anyio import to_thread

from continuation.attach.http import AsyncHealedStream, HealedStream
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
from continuation.attach.shell import CLOSED, Shell, as_stream
from continuation.attach.stand_in import StandIn
from continuation.attach.steps import Steps, at_once, awaited, called
from continuation.attach.total_timeout import TotalTimeout
from continuation.config import HEADER, check_names, parse
from continuation.config import take as take_override
from continuation.engine.turn import Engine, Turn
from continuation.reports.report import TruncatedAnswerError
from continuation.types import Request

logger = logging.getLogger("continuation")

_PLAIN = frozenset({httpx2.HTTPTransport, httpx2.AsyncHTTPTransport, type(None)})
"""Transports that send a request unchanged. A mount of `None` means the default transport."""
_WAY = ("send", "_send_handling_auth", "_send_handling_redirects", "_send_single_request")
"""The methods of a client through which a request passes."""
_ADD_NOTHING = frozenset({"google.genai._api_client", TotalTimeout.__module__})
"""Modules whose clients override these methods, but send a request unchanged."""
_LARGE = 1_000_000
"""A request of more bytes is parsed in a thread, because that takes tens of milliseconds."""
_NO_AUTH = "the client's auth added no credential; the request counts as anonymous"
_REOPENED = "Cannot reopen a client instance, once it has been closed."


def _gathers(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether a streamed response must become a body, because the caller did not want a stream."""
    kind = response.headers.get("content-type", "")
    return GATHERED in request.extensions and response.is_success and "stream" in kind


def _gathered(request: httpx2.Request, response: httpx2.Response, kept: TurnLog | None) -> None:
    """Make the answer in the journal the body of a response.

    Raises `httpx2.RemoteProtocolError` if the journal's answer has no end.
    """
    if (body := None if kept is None else kept.answer()) is None:
        message = "the answer has no end"
        raise httpx2.RemoteProtocolError(message, request=request)
    response.headers["content-type"] = "application/json"
    response.__dict__["_content"] = body  # as `response.read` does


class _Refused(httpx2.Response):
    """A response that raises when it is used (`on_failure = "raise"`).

    The SDKs treat an exception from `send` as a broken connection and send the request again. They
    do not retry after an exception from the response, so this class raises it there.
    """

    refusal: Exception

    @classmethod
    def make(cls, response: httpx2.Response, refusal: Exception) -> None:
        """Change a response into one that raises `refusal`."""
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


def _passes_on(client: Any, known: Any, name: str) -> bool:
    """Whether a client's method is httpx2's, or another that adds nothing to a request."""
    function = getattr(getattr(client, name), "__func__", None)
    return function is known or getattr(function, "__module__", "") in _ADD_NOTHING


def _drained(response: httpx2.Response) -> None:
    for _ in response.iter_raw():
        pass


async def _adrained(response: httpx2.Response) -> None:
    async for _ in response.aiter_raw():
        pass


async def _written(done: Future[None] | None) -> None:
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(wait, done)


class _Healing(StandIn):
    """What both healing clients share. They stand for `origin`, and close only what they own."""

    __slots__ = ("_closed", "_name", "_owned", "_plain", "engine", "prepare", "streams")
    # The steps below yield calls of these functions. In asynchronous code they return awaitables.
    _a: ClassVar[str]
    """The prefix of the names of asynchronous methods: `aread`, `asend`, `async_auth_flow`."""
    _shell: ClassVar[Callable[..., Any]]
    _recorded: ClassVar[Callable[..., Any]]
    _begin_turn: ClassVar[Callable[..., Any]]
    _aside: ClassVar[Callable[..., Any]]
    """Calls a slow function: in a thread, if the event loop would wait."""
    _drain: ClassVar[Callable[..., Any]]
    _wait: ClassVar[Callable[..., Any]]
    _build_request_auth: Callable[..., httpx2.Auth]

    def __init__(self, origin: Any, engine: Engine, *, owned: bool = False) -> None:
        super().__init__(origin)
        self._owned = owned
        self._closed = False
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
        """Prepares a later attempt, if all requests of this client are prepared in one way."""

    @property
    def is_closed(self) -> bool:
        return self._closed or self.origin.is_closed

    def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
        """Build a request with the origin's method, which its class may have overridden.

        Raises an error if the request overrides the configuration with invalid keys or values, and
        what the journal's `check` raises.
        """
        request: httpx2.Request = self.origin.build_request(*arguments, **options)
        # The SDKs turn what `send` raises into connection errors and try again. They do not catch
        # what is raised here, so it reaches the caller unchanged.
        check_names(request.headers.raw)
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

    def _begin(self, request: httpx2.Request, leaving: httpx2.Request | None) -> Turn | None:
        """Begin a turn if a dialect claims the request. `None`: send the request unchanged."""
        if self._closed:
            raise RuntimeError(CLOSED)
        asked = take_override(request)
        try:
            dialect = self.engine.claims(request.method, request.url.path)
            if dialect is None or not isinstance(request.stream, httpx2.ByteStream):
                return None
            # A dict, because each look-up in httpx2's headers is a linear search.
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

    def _method(self, thing: object, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(thing, self._a + name)
        return method

    def _sending(self, request: httpx2.Request, options: dict[str, Any], *, stream: bool) -> Steps:
        """Send a request; return its response, completed if a dialect claims the request."""
        leaving = yield from self._leaving(request, options)
        given = request.stream
        large = isinstance(given, httpx2.ByteStream) and len(request.content) > _LARGE
        begin = partial(self._begin, request, leaving)
        turn: Turn | None = (yield partial(self._aside, begin)) if large else begin()
        if turn is None:
            return (yield partial(self.origin.send, request, stream=stream, **options))
        send: Callable[..., Any] = partial(self.origin.send, stream=True, **options)
        if (lane := LANE.get()) is not None and turn.asked is not None:
            send = partial(self._method(lane, "send"), turn.asked[1].refused, send)
        shell: Shell = self._shell(turn, request, self.cookies, send)
        self.streams.add(weakref.ref(shell, self.streams.discard))
        if lane is not None:
            lane.shell = shell
        kept: TurnLog | None = None
        if (keeper := self._keeper) is None:
            response = yield from shell.opening()
        else:
            kept = yield partial(self._begin_turn, keeper, turn, request.url.path)
            response = yield from self._journaled(shell, turn, kept)
        if not stream:
            try:
                if _gathers(request, response):
                    yield partial(self._drain, response)
                    _gathered(request, response, kept)
                yield self._method(response, "read")
            except TruncatedAnswerError as error:
                yield self._method(response, "close")
                _Refused.make(response, error)
            except BaseException:
                yield self._method(response, "close")
                raise
        return response

    def _journaled(self, shell: Shell, turn: Turn, kept: TurnLog | None) -> Steps:
        """Open a turn; record its answer in a journal if `kept` is not `None`."""
        shell.played = first_attempt(kept) or shell.played
        try:
            response = yield from shell.opening()
            if kept is not None and response.stream is shell:
                response.stream = self._recorded(shell, turn, kept)
            elif kept is not None and is_recorded(kept, response):
                body = yield self._method(response, "read")
                yield partial(self._wait, kept.keep(body))
        except BaseException:
            if kept is not None:
                kept.leave()
            raise
        return response

    def _leaving(self, request: httpx2.Request, options: dict[str, Any]) -> Steps:
        """Return the request with the credentials that it will be sent with. `None`: auth failed.

        Learned limits and chains are kept for each credential, but the key in the request may be a
        placeholder. So the client's auth adds its headers to a copy. The caller's hooks and
        transports do not see the copy, because they may count, log or wait.
        """
        url, body = request.url, request.stream
        try:
            auth = self._build_request_auth(request, options.get("auth", httpx2.USE_CLIENT_DEFAULT))
            if type(auth) is httpx2.Auth or not isinstance(body, httpx2.ByteStream):
                return request  # the base class of `Auth` adds nothing
            if self.engine.claims(request.method, url.path) is None:
                return request
            headers, content = request.headers, request.content
            probe = httpx2.Request(request.method, url, headers=headers, content=content)
            flow = self._method(auth, "sync_auth_flow")(probe)
            try:
                leaving = yield partial(self._method(flow, "send"), None)
                while leaving is not probe and leaving.url != probe.url:  # a request for a token
                    answer = yield partial(self.origin.send, leaving, auth=None)
                    leaving = yield partial(self._method(flow, "send"), answer)
            finally:
                yield self._method(flow, "close")
        except Exception:  # it fails again when the request is sent, and that error is raised
            logger.info(_NO_AUTH, exc_info=True)
            return None
        return leaving

    def _take_open(self) -> list[Any]:
        """Mark the client as closed; return the streams that are still open."""
        self._closed = True
        streams = [stream for held in list(self.streams) if (stream := held()) is not None]
        for stream in streams:
            stream.abandoned = True
        return streams


class _PastSend(httpx2.BaseTransport):
    """Completes answers to requests that bypass `send` and use a transport of our client directly.

    The X.509 identity of `openai` does so: it sends through another client, bound to one origin.
    """

    def __init__(self, ours: HealingClient, transport: httpx2.BaseTransport) -> None:
        self._client = HealingClient(httpx2.Client(transport=transport), ours.engine)
        self._client.streams = ours.streams  # `ours` closes them

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._client.send(request, stream=True, auth=None)


class _PastSendAsync(httpx2.AsyncBaseTransport):
    """The asynchronous twin of `_PastSend`."""

    def __init__(self, ours: AsyncHealingClient, transport: httpx2.AsyncBaseTransport) -> None:
        self._client = AsyncHealingClient(httpx2.AsyncClient(transport=transport), ours.engine)
        self._client.streams = ours.streams  # `ours` closes them

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._client.send(request, stream=True, auth=None)


class HealingClient(_Healing, httpx2.Client):
    """Stands for another client: has its settings, sends through it, completes its answers.

    Closing it closes the streams it opened. It closes the other client only with `owned=True`.
    """

    _a = ""
    _shell, _recorded = HealedStream, JournaledStream
    _begin_turn, _wait = staticmethod(begin_turn), staticmethod(wait)
    _aside, _drain = staticmethod(at_once), staticmethod(_drained)

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send a request; return its response, completed if a dialect claims the request.

        Raises what the other client's `send` raises.
        """
        return cast("httpx2.Response", called(self._sending(request, options, stream=stream)))

    def _transport_for_url(self, url: httpx2.URL) -> httpx2.BaseTransport:
        return _PastSend(self, super()._transport_for_url(url))

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # it closes all of them even if one raises
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


class AsyncHealingClient(_Healing, httpx2.AsyncClient):
    """The asynchronous twin of `HealingClient`."""

    _a = "a"
    _shell, _recorded = AsyncHealedStream, AsyncJournaledStream
    _begin_turn, _wait = staticmethod(begin_turn_async), staticmethod(_written)
    _aside, _drain = staticmethod(to_thread.run_sync), staticmethod(_adrained)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        steps = self._sending(request, options, stream=stream)
        return cast("httpx2.Response", await awaited(steps))

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
