"""Relays requests that no dialect claims, unchanged, in both directions, as they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx2

from continuation.attach.shell import TooLargeError
from continuation.gateway.caller import Caller, Headers, end_to_end
from continuation.gateway.errors import GatewayError


def failed(error: Exception) -> GatewayError:
    """Return the error for an upstream that cannot be reached or broke off before its answer."""
    if isinstance(error, TooLargeError):
        return GatewayError(502, f"{error}: see max_event_bytes and max_body_bytes of [gateway]")
    if isinstance(error, httpx2.TimeoutException):
        message = "the upstream sent nothing in time; try again, or raise idle_seconds"
        return GatewayError(504, message)
    message = f"the upstream could not be reached ({type(error).__name__}); check its base_url"
    return GatewayError(502, message)


class _Upload(httpx2.AsyncByteStream):
    """The caller's body, passed on as it arrives."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.error: GatewayError | None = None
        """Why the rest of the body is not read. A transport would hide this error."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._caller.pieces():
                yield chunk
        except GatewayError as error:
            self.error = error
            raise


async def relay(
    caller: Caller,
    transport: httpx2.AsyncBaseTransport,
    method: str,
    url: httpx2.URL,
    headers: Headers,
    extensions: Mapping[str, Any],
) -> None:
    """Pass the caller's request on, and the response back. Raises `GatewayError`."""
    host, upload = (b"host", url.netloc), _Upload(caller)
    request = httpx2.Request(
        method, url, headers=[host, *headers], stream=upload, extensions=dict(extensions)
    )

    async def pass_on() -> None:
        try:
            response = await transport.handle_async_request(request)
        except httpx2.TransportError as error:
            raise upload.error or failed(error) from error
        await hand_over(caller, response, [])

    await caller.attend(pass_on())


async def hand_over(caller: Caller, response: httpx2.Response, extra: Headers) -> None:
    """Send a response back as it arrives. If it breaks off, it breaks off for the caller too."""
    try:
        headers = end_to_end(response.headers.raw)
        if response.status_code == 304:  # with a length, the server would wait for a body
            headers = [item for item in headers if item[0] != b"content-length"]
        if response.is_closed:  # it was read, so its content is decoded
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
