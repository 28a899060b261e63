"""A timeout with aiohttp's meaning: it bounds a call from beginning to end, not each read."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import anyio
import httpx2

from continuation.attach.stand_in import StandIn

_DEADLINE = "continuation.deadline"
"""Key in a request's extensions. Later attempts copy it, so that a turn has one deadline."""


class TotalTimeout(StandIn, httpx2.AsyncClient):
    """Stands for another client. A call's read timeout bounds all attempts of the call together.

    After that time it raises `TimeoutError`, as aiohttp does. It bounds only calls of a method,
    such as `models/NAME:generateContent`. Uploads and downloads keep their timeouts for each read.
    """

    origin: httpx2.AsyncClient

    def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
        return self.origin.build_request(*arguments, **options)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send a request. Raises what the other client's `send` raises, and `TimeoutError`."""
        seconds = request.extensions.get("timeout", {}).get("read")
        if seconds is None or ":" not in request.url.path.rpartition("/")[2]:
            return await self.origin.send(request, stream=stream, **options)
        until = time.monotonic() + seconds
        deadline = cast("float", request.extensions.setdefault(_DEADLINE, until))
        with anyio.fail_after(deadline - time.monotonic()):
            response = await self.origin.send(request, stream=True, **options)
        response.stream = _Until(cast("httpx2.AsyncByteStream", response.stream), deadline)
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response

    async def aclose(self) -> None:
        await self.origin.aclose()

    @property
    def is_closed(self) -> bool:
        return self.origin.is_closed


async def until(deadline: float, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the chunks; raises `TimeoutError` at the deadline, a time of `time.monotonic`."""
    try:
        while True:
            with anyio.fail_after(deadline - time.monotonic()):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


class _Until(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def __aiter__(self) -> AsyncIterator[bytes]:
        return until(self._deadline, self._stream.__aiter__())

    async def aclose(self) -> None:
        await self._stream.aclose()
