"""The ASGI application: checks access, and decides where a request goes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic, time
from typing import TypeVar
from urllib.parse import quote, unquote

import httpx2

from continuation.attach.aiohttp_transport import AiohttpTransport, environment_proxy
from continuation.config import HEADER, Config, ConfigError, Layer, Source, load
from continuation.config.gateway import GatewayTable, Upstream, is_name
from continuation.config.learned import open_learned
from continuation.engine.turn import Engine
from continuation.gateway import page
from continuation.gateway.access import CREDENTIALS, TOKEN_HEADER, Access
from continuation.gateway.caller import Caller, GoneError, Headers, Receive, Scope, Send, end_to_end
from continuation.gateway.errors import GatewayError, error_body
from continuation.gateway.metrics import Metrics
from continuation.gateway.relay import relay
from continuation.gateway.resumed import Resumed
from continuation.gateway.room import Room
from continuation.gateway.turn import GatewayTurn
from continuation.gateway.turns import Turns
from continuation.registry import dialects, upstreams

logger = logging.getLogger("continuation")
ResultT = TypeVar("ResultT")

_LARGE = 1 << 20
"""Work on a body with more bytes than this takes milliseconds."""
_MOST_HEADERS = 1 << 16
"""The most bytes of all headers of a request."""
_CONNECT_SECONDS = 30.0
_LAST_ATTEMPT = 30.0
"""Seconds at the end of a drain in which no further attempt begins."""
_CLOSING = frozenset({401, 403, 408, 413, 426, 431, 503})
"""Statuses after which the connection is closed: access was refused, or a request is unread."""
_FOR_GATEWAY = frozenset({b"host", b"expect", TOKEN_HEADER, HEADER.encode()})
"""Headers that are for the gateway, not for an upstream."""
_REFUSED = frozenset({"TRACE", "CONNECT"})
"""Refused methods: answers to one show credentials, and the other opens a tunnel."""
_ALLOWED = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_OWN_PATHS = frozenset({"continuation", "metrics"})
"""First segments of the gateway's own paths. The root, its page, is one of them."""
_VERSIONS = frozenset({"v1", "v1beta", "chat", "messages", "models", "responses"})
"""First segments of paths if the base URL names no upstream."""
_SINGLE_HEADERS = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"content-length", b"transfer-encoding", TOKEN_HEADER}
)
"""Headers that decide about access and the end of a request. They are ambiguous if repeated."""
_SAFE = "/!$&'()*+,;=:@"
"""Characters of a path that are not quoted."""
_DOT_SEGMENTS = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\]|$)")


def app(config: Source = None, *, insecure: bool = False, show_content: bool = False) -> Gateway:
    """Return the gateway as a raw ASGI application, for a server or for a mount in another one.

    `config`: as for `wrap`. The tables `[gateway]` and `[upstreams.NAME]` of the file are read too.
    `insecure`: callers on other machines need no access token. `show_content`: the page at `/`
    shows the end of each running text.

    Raises what `wrap` raises for a bad `config`.
    """
    return Gateway(load(config), insecure=insecure, show_content=show_content)


class Gateway:
    """Relays requests for `/NAME/...` to that upstream. Completes answers that a dialect claims."""

    def __init__(
        self, config: Config, *, insecure: bool = False, show_content: bool = False
    ) -> None:
        self._insecure = insecure
        self.show_content = show_content
        self.room = Room(config.gateway)
        self._read(config)
        learned = open_learned(self.config)
        self.engine = Engine(dialects(), self.config, None, monotonic, time, learned)
        self.metrics = Metrics(lambda: self.streams)
        self.turns = Turns(self.metrics)
        self.ready = True
        """Whether `/readyz` answers 200; `False` once it drains."""
        self.resumed = Resumed()
        self._large = ThreadPoolExecutor(1, "gateway-large")
        """The thread for large bodies. There is only one, because it holds the interpreter lock
        while it works. With more threads, the event loop would wait for several in a row."""
        self._transports: dict[str, httpx2.AsyncBaseTransport] = {}

    def _read(self, config: Config) -> None:
        """Apply a configuration. If that raises, nothing has changed."""
        for layer in config.layers:
            if layer.values.get("on_failure") == "raise":
                raise ConfigError(
                    f'{layer.source} on_failure = "raise": no program behind a gateway can catch '
                    'an exception; choose "stop" or "truncated"'
                )
        access, table = Access(config.gateway, insecure=self._insecure), config.gateway
        with_key = [upstream for upstream in table.upstreams.values() if upstream.key_env]
        keys = {upstream.name: _key(table, upstream, access) for upstream in with_key}
        default = Layer("the gateway's default", {"clamp": True})
        self.config = Config((default, *config.layers), config.vendors, table)
        self.table, self._access, self._keys = table, access, keys
        self.room.table = table
        self.timeouts = {"connect": _CONNECT_SECONDS, "read": table.idle_seconds}
        """Timeouts for upstreams in seconds, in httpx2's form."""

    @property
    def streams(self) -> int:
        """The number of running requests to upstreams."""
        return self.room.streams

    async def aside(self, size: int, work: Callable[[], ResultT]) -> ResultT:
        """Do work on a body of `size` bytes; if large, in a thread, while others are served."""
        if size < _LARGE:
            return work()
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._large, partial(context.run, work))

    @property
    def has_token(self) -> bool:
        """Whether callers must send an access token."""
        return bool(self._access.token)

    def reload(self, config: Config) -> None:
        """Apply another configuration from the next request on.

        Raises as for the first configuration, and then the previous one stays in force. What was
        learned about models is kept, and so is the file for it.
        """
        self._read(config)
        self.engine.config = self.config
        self._prepare()

    def _prepare(self) -> None:
        """Make formats open their stores and log problems. They do so in threads; do not wait."""
        for dialect in dialects():
            if (work := dialect.prepare(self.config.policy_for(""))) is not None:
                threading.Thread(target=_attempt, args=(work,), daemon=True).start()

    def drain(self, delay: float) -> None:
        """Stop being ready. Begin no attempt that cannot end in `delay` plus `drain_seconds`."""
        self.ready = False
        self.engine.last_call = monotonic() + delay + self.table.drain_seconds - _LAST_ATTEMPT

    # --- ASGI ----------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":  # refuse it before it is accepted
            await receive()
            if "websocket.http.response" in scope.get("extensions", {}):
                await send({"type": "websocket.http.response.start", "status": 426, "headers": []})
                await send({"type": "websocket.http.response.body", "body": b""})
            else:
                await send({"type": "websocket.close", "code": 1002})
        elif scope["type"] == "http":
            caller = Caller(scope, receive, send, self.room)
            await self._exchange(scope, caller)
            if caller.gone:
                self.metrics.gone.labels(caller.phase).inc()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._prepare()
            if message["type"] == "lifespan.shutdown":
                self.ready = False
                await self.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def aclose(self) -> None:
        """Close all connections to upstreams."""
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()

    async def _exchange(self, scope: Scope, caller: Caller) -> None:
        """Answer one request, even if errors happen."""
        dialect = ""
        try:
            token, name, rest = _route(scope)
            upstream = self.table.upstreams.get(name)
            dialect = upstream.dialect if upstream else ""
            _check_framing(caller)
            if scope["method"] in _REFUSED:
                message = f"{scope['method']} is not relayed; use another method"
                raise GatewayError(405, message, (b"allow", _ALLOWED))
            if name in {"livez", "readyz"} and rest == "/":
                self._access.check_page(caller.named)
                ok = name == "livez" or self.ready
                await caller.answer(200 if ok else 503, b'{"ok":%s}' % str(ok).lower().encode())
                return
            client = scope.get("client")
            own = name in _OWN_PATHS or (name, rest) == ("", "/")
            self._access.check(client[0] if client else None, caller.named, token, own=own)
            if own:
                await self._answer_own(caller, scope["method"], f"/{name}{rest}")
            elif upstream is None:
                raise GatewayError(404, self._unknown(name, rest))
            else:
                self.room.check_streams()
                await self._pass(caller, scope, upstream, rest)
        except GoneError:
            return
        except Exception as error:
            sent = error
            if not isinstance(sent, GatewayError):
                logger.exception("internal error: the gateway answered 500")
                sent = GatewayError(500, "internal error of the gateway; see its log")
            if not caller.started:
                closes = sent.status in _CLOSING and not caller.unread  # else `start` does so
                close = [(b"connection", b"close")] if closes else []
                await caller.answer(sent.status, error_body(dialect, sent), *close, *sent.headers)

    def _unknown(self, name: str, rest: str) -> str:
        """Return the message for a path with a first segment that is no upstream."""
        first, *others = self.table.upstreams
        paths = ", ".join(f"/{each}" for each in (first, *others))
        if name in _VERSIONS:
            where = f"the base URL ends with one of {paths}, as in /{first}/{name}{rest}"
            return f"the path names no upstream: {where}"
        hint = f", or add [upstreams.{name}]" if is_name(name) else ""
        return f"/{name} is no upstream: use one of {paths}{hint}"

    async def _answer_own(self, caller: Caller, method: str, path: str) -> None:
        """Answer a request for one of the gateway's own paths."""
        if method not in {"GET", "HEAD"}:
            message = f"{method} is not supported on the gateway's own paths; use GET"
            raise GatewayError(405, message, (b"allow", b"GET, HEAD"))
        if path == "//":
            await page.show_page(caller)
            return
        if path == "/continuation/live":
            await page.show_state(caller, self.turns)
            return
        if path == "/metrics/":
            await caller.answer(200, self.metrics.text(), kind=Metrics.content_type)
            return
        folder, _, name = path.rpartition("/")
        record = self.turns.find(name) if folder == "/continuation/turns" else None
        if record is None:
            message = "unknown turn; GET /continuation/turns/ID works for the last 10,000 turns"
            raise GatewayError(404, message)
        await caller.answer(200, json.dumps(record).encode())

    # --- to an upstream ------------------------------------------------------------------------

    async def _pass(self, caller: Caller, scope: Scope, upstream: Upstream, rest: str) -> None:
        """Relay a request, or complete its answer."""
        if caller.named.get(b"upgrade", b"").lower() == b"websocket":
            raise GatewayError(426, "WebSockets are not supported; use HTTP")
        if sum(len(name) + len(value) for name, value in caller.headers) > _MOST_HEADERS:
            message = f"the headers are larger than {_MOST_HEADERS:,} bytes; send fewer"
            raise GatewayError(431, message)
        method = str(scope["method"])
        query: bytes = scope.get("query_string", b"")
        if upstream.key_env and b"key=" in query:
            query = b"&".join(p for p in query.split(b"&") if not p.startswith(b"key="))
        url = httpx2.URL(upstream.base_url)
        base = url.raw_path.decode("ascii").rstrip("/")
        target = f"{base}{rest}" + (f"?{query.decode('ascii')}" if query else "")
        headers = self._headers(caller, upstream)
        transport = self._transport(upstream)
        extensions = {"target": target.encode("ascii"), "timeout": self.timeouts}
        path = unquote(base + rest)
        dialect = self.engine.claims(method, path)
        if dialect is None or b"content-encoding" in caller.named:
            if b"transfer-encoding" in caller.named:
                headers.append((b"transfer-encoding", b"chunked"))
            with contextlib.ExitStack() as under_way:
                # A request counts only after its body has arrived.
                caller.when_read = lambda: under_way.enter_context(self.room.stream(full=True))
                under_way.callback(setattr, caller, "when_read", None)
                if not caller.unread:
                    caller.when_read()
                await relay(caller, transport, method, url, headers, extensions)
            return
        settings = self.config.vendor_settings(upstream.vendor) if upstream.vendor else None
        url = httpx2.URL(f"{url.scheme}://{url.netloc.decode('ascii')}{target}")
        turn = GatewayTurn(self, caller, dialect, transport)
        await turn.run(upstream.name, method, url, path, headers, settings or {})

    def _headers(self, caller: Caller, upstream: Upstream) -> Headers:
        headers = [item for item in end_to_end(caller.headers) if item[0] not in _FOR_GATEWAY]
        added = {name.encode(): value.encode("latin-1") for name, value in upstream.headers.items()}
        dropped = set(added)
        if key := self._keys.get(upstream.name):
            dropped |= CREDENTIALS
            added[upstreams()[upstream.dialect].key_header] = key
        if added:
            headers = [item for item in headers if item[0] not in dropped]
        return [*headers, *added.items()]

    def _transport(self, upstream: Upstream) -> httpx2.AsyncBaseTransport:
        transport = self._transports.get(upstream.base_url)
        if transport is None:
            proxy = environment_proxy(httpx2.URL(upstream.base_url))
            if proxy is None or proxy.startswith("http"):
                transport = AiohttpTransport(proxy)
            else:  # SOCKS
                transport = httpx2.AsyncHTTPTransport(proxy=proxy)
            self._transports[upstream.base_url] = transport
        return transport


def _attempt(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):  # it has already logged its failure
        work()


def _key(table: GatewayTable, upstream: Upstream, access: Access) -> bytes:
    """Return the key to send to an upstream instead of the caller's."""
    setting = f"[upstreams.{upstream.name}] key_env = {upstream.key_env!r}"
    if not access.token:
        raise ConfigError(f"{setting}: this needs an access token; set {table.token_env}")
    key = os.environ.get(upstream.key_env, "").encode()
    if not key:
        raise ConfigError(f"{setting}: this environment variable is not set or is empty")
    return upstreams()[upstream.dialect].key_prefix + key


def _check_framing(caller: Caller) -> None:
    """Raise a `GatewayError` for headers that another server might read differently."""
    once = [name for name, _ in caller.headers if name in _SINGLE_HEADERS]
    coding = caller.named.get(b"transfer-encoding", b"chunked")
    if len(once) > len(set(once)) or coding.lower() != b"chunked":
        names = b", ".join(sorted(_SINGLE_HEADERS)).decode()
        message = f"send each of {names} at most once, and no transfer-encoding but chunked"
        raise GatewayError(400, message)


def _route(scope: Scope) -> tuple[bytes, str, str]:
    """Return the path's token (b"": none), the first segment after it, and the unchanged rest.

    Raises `GatewayError` for a path that another server might read differently.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.decode("latin-1")
    root, outer = (quote(scope.get(key, ""), _SAFE) for key in ("root_path", "app_root_path"))
    # A proxy may have removed the outer prefix. Then only the mount's own is in the path.
    path = path.removeprefix(root if path.startswith(root) else root.removeprefix(outer))
    if not re.fullmatch(r"/[!-~]*", path) or "#" in path or _DOT_SEGMENTS.search(unquote(path)):
        message = "the path has dot segments or invalid characters; send a plain path"
        raise GatewayError(400, message)
    token = b""
    if path.startswith("/t/"):
        segment, _, path = path[3:].partition("/")
        token, path = unquote(segment).encode(), f"/{path}"
    name, _, rest = path[1:].partition("/")
    return token, name, f"/{rest}"
