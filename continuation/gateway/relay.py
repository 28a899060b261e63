"""Requests of no dialect: passed on as they are, in both directions, while they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx2

from continuation.gateway.caller import Caller, Headers, end_to_end
from continuation.gateway.errors import GatewayError


def failed(error: Exception) -> GatewayError:
    """Say that an upstream could not be reached, or broke off before it said anything."""
    if isinstance(error, httpx2.TimeoutException):
        message = "the upstream said nothing in time: try again, or raise idle_seconds"
        return GatewayError(504, message)
    message = f"the upstream could not be reached ({type(error).__name__}): check its base_url"
    return GatewayError(502, message)


class _Upload(httpx2.AsyncByteStream):
    """The caller's body on its way."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._caller.pieces()


async def relay(
    caller: Caller,
    transport: httpx2.AsyncBaseTransport,
    method: str,
    url: httpx2.URL,
    headers: Headers,
    extensions: Mapping[str, Any],
) -> None:
    """Send the caller's request; send back what is answered. Raises `GatewayError`."""
    host = (b"host", url.netloc)
    request = httpx2.Request(
        method, url, headers=[host, *headers], stream=_Upload(caller), extensions=dict(extensions)
    )

    async def pass_on() -> None:
        try:
            response = await transport.handle_async_request(request)
        except httpx2.TransportError as error:
            raise failed(error) from error
        await hand_over(caller, response, [])

    await caller.attend(pass_on())


async def hand_over(caller: Caller, response: httpx2.Response, extra: Headers) -> None:
    """Send a response back as it comes. One that breaks off breaks off for the caller."""
    try:
        headers = end_to_end(response.headers.raw)
        if response.status_code == 304:  # it may have a length, and the server would wait for it
            headers = [item for item in headers if item[0] != b"content-length"]
        if response.is_closed:  # it was read: what it says is there, decoded
            body_headers = (b"content-encoding", b"content-length")
            headers = [item for item in headers if item[0] not in body_headers]
            headers.append((b"content-length", str(len(response.content)).encode()))
            await caller.start(response.status_code, [*headers, *extra])
            await caller.end(response.content)
            return
        await caller.start(response.status_code, [*headers, *extra])
        try:
            async for chunk in cast("httpx2.AsyncByteStream", response.stream):
                await caller.write(chunk)
        except httpx2.TransportError:
            return
        await caller.end()
    finally:
        await response.aclose()
