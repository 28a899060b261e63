"""One request of ASGI: its headers and body, whether the caller is still there, the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping
from time import perf_counter
from typing import Any, TypeAlias

from continuation.gateway.errors import GatewayError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

BODY_SECONDS = 60.0
"""A caller that sends nothing more of its body for so long has broken off."""
LARGEST = 64 << 20
"""Bytes of a body that is read as a whole; one that is only passed on may be of any size."""

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers that speak of one connection (RFC 9110, 7.6.1), and not of what passes through it."""


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are passed on: names in small letters, order and repetitions kept."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP
    for name, value in lowered:
        if name == b"connection":
            dropped = dropped | {token.strip().lower() for token in value.split(b",")}
    return [item for item in lowered if item[0] not in dropped]


class GoneError(Exception):
    """The caller has left before all of its request was here."""


class Caller:
    """The other end of one exchange."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: Headers = [(bytes(k), bytes(v)) for k, v in scope["headers"]]
        self.named = dict(self.headers)
        """The headers by name; of a repeated one the last."""
        self.started = False
        """Status and headers have been sent."""
        self.phase = "request"
        """How far it is: all of the `request` is not here yet, it is `waiting` for the first of the
        answer, or has had that (`answer`)."""
        self.seconds = 0.0
        """How long it took to take what it was sent of the answer."""
        self.gone = False
        """The caller has left before the answer's end."""
        self._receive = receive
        self._send = send
        self._over = False
        self._has_body = b"transfer-encoding" in self.named or (
            self.named.get(b"content-length", b"0") != b"0"
        )
        self._all_read = asyncio.Event()
        if not self._has_body:
            self._read()

    # --- what came -----------------------------------------------------------------------------

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises `GoneError`, and a `GatewayError` for a slow one."""
        has_more = self._has_body
        while has_more:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    message = await self._receive()
            except TimeoutError as error:
                why = f"no more of the body came for {BODY_SECONDS:.0f} s: send it at once"
                raise GatewayError(408, why) from error
            if message["type"] == "http.disconnect":
                self.gone = True
                raise GoneError
            has_more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk
        self._read()

    def _read(self) -> None:
        self._all_read.set()
        if self.phase == "request":
            self.phase = "waiting"

    async def body(self) -> bytes:
        """Read all of it. Raises `GoneError`, and a `GatewayError` for more than `LARGEST`."""
        chunks, size = list[bytes](), 0
        async for chunk in self.pieces():
            size += len(chunk)
            if size > LARGEST:
                message = f"the body is larger than {LARGEST:,} bytes: send less at once"
                raise GatewayError(413, message)
            chunks.append(chunk)
        return b"".join(chunks)

    async def attend(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; it is cancelled where it stands as soon as the caller has left.

        Nothing else notices that: a server tells it only to who asks.
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

    # --- what goes back ------------------------------------------------------------------------

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes, *, beat: bool = False) -> None:
        """Send bytes of the body; waits for who reads slowly.

        `beat`: they say nothing, and are sent while the upstream is waited for: no time of its own.
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
        """Send a body of ours."""
        length = str(len(data)).encode()
        await self.start(status, [(b"content-type", kind), (b"content-length", length), *more])
        await self.end(data)
