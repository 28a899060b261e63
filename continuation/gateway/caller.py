"""One ASGI request: its headers, its body, its answer, and whether the caller has left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping
from time import perf_counter
from typing import Any, TypeAlias

from continuation.gateway.errors import GatewayError
from continuation.gateway.room import GRACE, Lease, Room

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

LARGEST = 64 << 20
"""The most bytes of a body that is read completely. A body that is passed on has no limit."""
_PACE = 1 << 16
"""For this many bytes of a body, its caller gets another second."""
_LINGER = 5.0
"""Seconds for which a refused body is read further and dropped, so that the answer arrives."""

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers about a single connection (RFC 9110, 7.6.1), which are not passed on."""


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers to pass on, with lowercase names, in order and with repetitions."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP
    for name, value in lowered:
        if name == b"connection":
            dropped = dropped | {token.strip().lower() for token in value.split(b",")}
    return [item for item in lowered if item[0] not in dropped]


class GoneError(Exception):
    """The caller left before its complete request had arrived."""


class Caller:
    """The sender of one request: what it sends, and what is sent to it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, room: Room) -> None:
        # White space around a value is not part of it (RFC 9110, 5.5).
        self.headers: Headers = [(bytes(k), bytes(v).strip(b" \t")) for k, v in scope["headers"]]
        self.named = dict(self.headers)
        """The headers by name. For a repeated one, the last."""
        self.started = False
        """Whether status and headers have been sent."""
        self.phase = "request"
        """`request`: the request is not complete yet. `waiting`: no part of the answer's body was
        sent yet. `answer`: a part of it was sent."""
        self.seconds = 0.0
        """Seconds that the caller took to receive the sent part of the answer."""
        self.gone = False
        """Whether the caller left before the answer's end."""
        self._receive = receive
        self._send = send
        self._room = room
        self.address = str((scope.get("client") or [""])[0])
        """Where the request came from; `""`: a socket without addresses."""
        self._over = False
        self._has_body = b"transfer-encoding" in self.named or (
            self.named.get(b"content-length", b"0") != b"0"
        )
        self._all_read = asyncio.Event()
        self.when_read: Callable[[], object] | None = None
        """Called when the complete body has arrived."""
        if not self._has_body:
            self._read()

    # --- the request ---------------------------------------------------------------------------

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises `GoneError`, and a `GatewayError` for a slow one.

        Only the time that is spent waiting here counts.
        """
        has_more, left, grace, counted = self._has_body, self._room.table.body_seconds, GRACE, False
        loop = asyncio.get_running_loop()
        try:
            while has_more:
                begun = loop.time()
                receiving = asyncio.ensure_future(self._receive())
                try:
                    if not counted:
                        await asyncio.wait({receiving}, timeout=min(grace, left))
                        if not receiving.done():
                            counted = self._wait()
                        grace = max(0.0, grace - (loop.time() - begun))
                    if not receiving.done():
                        await asyncio.wait({receiving}, timeout=left - (loop.time() - begun))
                    if not receiving.done():
                        raise GatewayError(
                            408, "the body took too long to arrive; send it without pauses"
                        )
                    message = receiving.result()
                finally:
                    receiving.cancel()
                if message["type"] == "http.disconnect":
                    self.gone = True
                    raise GoneError
                has_more = message.get("more_body", False)
                chunk = message.get("body", b"")
                left += len(chunk) / _PACE - (loop.time() - begun)
                if not has_more:
                    self._read()
                if chunk:
                    yield chunk
        finally:
            if counted:
                self._room.wait_no_more(self.address)

    def _wait(self) -> bool:
        """Count as waiting. Raises a `GatewayError` if too many of this address are waiting.

        `False`: it does not count, because its socket has no addresses.
        """
        if not self.address:
            return False
        if not self._room.wait(self.address):
            message = (
                f"{self._room.table.max_waiting:,.0f} connections of {self.address} have sent no "
                "complete request, the maximum (max_waiting); send bodies without pauses"
            )
            raise GatewayError(503, message, (b"retry-after", b"1"))
        return True

    def _read(self) -> None:
        self._all_read.set()
        if self.when_read is not None:
            self.when_read()
        if self.phase == "request":
            self.phase = "waiting"

    async def body(self, lease: Lease) -> bytes:
        """Return the complete body; `lease` counts its bytes.

        Raises `GoneError`, and a `GatewayError` for a body that is slow or larger than `LARGEST`.
        """
        chunks, size = list[bytes](), 0
        async for chunk in self.pieces():
            size += len(chunk)
            lease.take(len(chunk))
            if size > LARGEST:
                message = f"the body is larger than {LARGEST:,} bytes; send less at once"
                raise GatewayError(413, message)
            chunks.append(chunk)
        return b"".join(chunks)

    async def attend(self, work: Coroutine[Any, Any, None]) -> None:
        """Await the work; cancel it when the caller leaves.

        Nothing else would notice that, because a server reports it only through `receive`.
        """
        task = asyncio.current_task()
        assert task is not None
        watcher = asyncio.create_task(self._watch(task))
        try:
            await work
        except asyncio.CancelledError:
            if not self.gone:
                raise
            task.uncancel()
        finally:
            self._over = True
            watcher.cancel()

    async def _watch(self, task: asyncio.Task[Any]) -> None:
        await self._all_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._over:
            self.gone = True
            task.cancel()

    # --- the answer ----------------------------------------------------------------------------

    @property
    def unread(self) -> bool:
        """Whether more of the request may arrive."""
        return not self._all_read.is_set()

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers. Close the connection after an answer to half a request."""
        self.started = True
        if self.unread:
            headers = [*headers, (b"connection", b"close")]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes, *, beat: bool = False) -> None:
        """Send bytes of the body, and wait for a caller that reads slowly.

        `beat`: it is a keep-alive, which counts neither for `phase` nor for `seconds`.
        """
        begun = perf_counter()
        if not beat:
            self.phase = "answer"
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        if not beat:
            self.seconds += perf_counter() - begun

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes."""
        self._over = True
        await self._send({"type": "http.response.body", "body": data})

    async def answer(
        self,
        status: int,
        data: bytes,
        *more: tuple[bytes, bytes],
        kind: bytes = b"application/json",
    ) -> None:
        """Send status, headers and a complete body. `kind`: its content type."""
        length = str(len(data)).encode()
        await self.start(status, [(b"content-type", kind), (b"content-length", length), *more])
        # A caller that is still sending would meet a closed connection before it reads the answer.
        if self.unread and status != 408 and b"expect" not in self.named:
            await self.write(data)
            with contextlib.suppress(GoneError, GatewayError, TimeoutError):
                async with asyncio.timeout(_LINGER):
                    async for _ in self.pieces():
                        pass
            data = b""
        await self.end(data)
