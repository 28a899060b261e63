"""How uvicorn serves the gateway, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from continuation.config import Config
from continuation.gateway.asgi import Gateway
from continuation.gateway.errors import GatewayError, error_body
from continuation.gateway.room import GRACE, Room

logger = logging.getLogger("continuation")

LISTEN_SECONDS = 5.0
"""Seconds that a draining gateway still listens, so that load balancers see it is not ready."""
_CANCEL_SECONDS = 5.0
"""Seconds in which a cancelled request must close its connections."""
_HEAD_SECONDS = 10.0
"""Seconds in which a request's head must arrive."""
_MOST_HEAD = 1 << 17
"""The most bytes of a head. The application itself refuses smaller ones that are too large."""
_SLOW = "408 Request Timeout", "the headers took too long to arrive; send them without pauses"
_LARGE = "431 Request Header Fields Too Large", "the headers are too large; send fewer"
_CROWDED = (
    "503 Service Unavailable",
    "too many connections of this address have sent no request (max_waiting); send it sooner",
)
_BAD = (
    "400 Bad Request",
    "this request is ambiguous HTTP, or its path is too long; check the request line, "
    "content-length, transfer-encoding and line ends",
)


class _ClosedAtItsEnd(RequestResponseCycle):
    """An answer to HTTP/1.0, without chunks. If it has no length, the connection's end ends it."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", [])}
            if b"content-length" not in names:
                self.chunked_encoding = False
                self._unmeasured = True
        elif self._unmeasured:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    _unmeasured = False


class _Protocol(HttpToolsProtocol):
    """HTTP as uvicorn reads it. Trailers are ignored, and errors have the caller's format."""

    _timer: asyncio.TimerHandle | None = None
    _head = 0
    """Bytes of the head that is being read."""
    _grace: asyncio.TimerHandle | None = None
    """The timer after which a connection without a request counts as waiting."""
    _waits = False
    _in_head = False
    _raw = b""
    """The last bytes that arrived: at least the head that is being read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_wait()
        super().connection_lost(exc)

    @property
    def _room(self) -> Room:
        assert isinstance(self.config.app, Gateway)
        return self.config.app.room

    def _await_request(self) -> None:
        if self.client is not None and self._grace is None:
            self._grace = self.loop.call_later(GRACE, self._wait)

    def _wait(self) -> None:
        assert self.client is not None
        self._waits = self._room.wait(self.client[0])
        if not self._waits:
            self._refuse(*_CROWDED)

    def _end_wait(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if self._waits and self.client is not None:
            self._room.wait_no_more(self.client[0])
            self._waits = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_request()

    def _await_head(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._timer is None and (cycle is None or cycle.response_complete):
            self._timer = self.loop.call_later(_HEAD_SECONDS, self._refuse, *_SLOW)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._head = 0

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            self._head += len(data)
        self._raw = self._raw + data if self._in_head else data
        super().data_received(data)
        if self._timer is not None and self._head > _MOST_HEAD and not self.transport.is_closing():
            self._refuse(*_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._await_head()
        self._head = self._head or 1

    def on_headers_complete(self) -> None:
        self._check_request_line()
        self._in_head = False
        self._end_head()
        self._end_wait()  # from here on the application counts it
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            # uvicorn has made this cycle, and it would send chunks. It has not run yet.
            self.cycle.__class__ = _ClosedAtItsEnd
        self.headers = []  # later headers are trailers

    def _check_request_line(self) -> None:
        """Raise `ValueError` for an invalid request line. The parser accepts additional spaces."""
        assert self.parser is not None
        method, version = self.parser.get_method(), self.parser.get_http_version()
        line = b"%b %b HTTP/%b" % (method, self.url, version.encode())
        if line not in self._raw:
            message = "the request line is not one method, path and version, with a space between"
            raise ValueError(message)

    def send_400_response(self, msg: str) -> None:
        self._refuse(*_BAD)

    def _refuse(self, status: str, message: str) -> None:
        """Answer an invalid request, and close. A client that sent no byte gets no answer."""
        assert isinstance(self.config.app, Gateway)
        silent = not self._head and (self._timer is not None or self._grace is not None)
        self._end_head()
        self._end_wait()
        if silent:
            self.transport.close()
            return
        upstreams = self.config.app.table.upstreams
        path = getattr(self, "url", b"").decode("latin-1")
        dialects = [upstreams[part].dialect for part in path.split("/") if part in upstreams]
        data = error_body(dialects[0] if dialects else "", GatewayError(int(status[:3]), message))
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + data)
        self.transport.close()


def _not_cancelled(record: logging.LogRecord) -> bool:
    """Whether a log record is about anything but a request that was cancelled on purpose."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class Server(uvicorn.Server):
    """Serves a gateway until a signal stops it.

    SIGTERM: it is no longer ready, listens for another `LISTEN_SECONDS`, and lets running requests
    end. A second SIGTERM stops it at once. SIGINT: the same without `LISTEN_SECONDS`. SIGHUP: the
    configuration that `reread` returns applies from then on. If `reread` raises, the old one stays.
    """

    def __init__(self, gateway: Gateway, reread: Callable[[], Config] | None = None) -> None:
        super().__init__(settings(gateway))
        logging.getLogger("uvicorn.error").addFilter(_not_cancelled)
        self._gateway = gateway
        self._reread = reread
        self._leaving = math.inf
        self._hung_up = False
        if reread is not None and hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._hang_up)

    def _hang_up(self, *_: object) -> None:
        self._hung_up = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal; `on_tick` acts on it."""
        if sig == signal.SIGINT:
            super().handle_exit(sig, frame)
        elif self._leaving < math.inf:
            self.should_exit = self.force_exit = True
        else:
            self._leaving = monotonic() + LISTEN_SECONDS
            self._gateway.drain(LISTEN_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        if self._hung_up and self._reread is not None:
            self._hung_up = False
            try:
                self._gateway.reload(self._reread())
                logger.warning("configuration reloaded")
            except Exception as error:
                logger.error("configuration unchanged: %s", error)
        self.should_exit = self.should_exit or monotonic() >= self._leaving
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests end. Cancel those that last too long, and wait for them."""
        if self._leaving == math.inf:
            self._gateway.drain(0)
        seconds = math.ceil(self._gateway.table.drain_seconds)
        if (streams := self._gateway.streams) and not self.force_exit:
            message = "shutting down: requests=%d seconds=%d (a second signal stops at once)"
            logger.warning(message, streams, seconds)
        self.config.timeout_graceful_shutdown = seconds
        await super().shutdown(sockets)
        if left := {*self.server_state.tasks}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        if self.force_exit:
            await self.lifespan.shutdown()


def settings(gateway: Gateway) -> uvicorn.Config:
    """Return the settings for `uvicorn.Server`.

    The provider's `server` and `date` headers are passed on, so uvicorn adds none.
    """
    return uvicorn.Config(
        gateway,
        http=_Protocol,
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        ws="none",
        lifespan="on",
        proxy_headers=False,  # access depends on the connection, not on a header
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(gateway.table.drain_seconds),
    )
