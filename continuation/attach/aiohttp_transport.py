"""An httpx2 transport over aiohttp, for many simultaneous streams.

httpx2's own transport needs two to three times as much CPU for an event that arrives alone. Its
pool also looks at every open connection for each request. See
design/decisions/0020-gateway-transport.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import yarl
from multidict import CIMultiDict

_AUTO = ("accept", "accept-encoding", "content-type", "user-agent")
"""Headers that aiohttp would add to a request that does not have them."""
_LARGE = 1 << 20
"""A request body larger than this, in bytes, is written in pieces of this size."""
_LONGEST = 1 << 16
"""The longest header line of a response, in bytes."""
_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError]], ...] = (
    (aiohttp.ConnectionTimeoutError, httpx2.ConnectTimeout),
    (TimeoutError, httpx2.ReadTimeout),
    (aiohttp.ClientProxyConnectionError, httpx2.ProxyError),
    (aiohttp.ClientHttpProxyError, httpx2.ProxyError),
    (aiohttp.ClientConnectorError, httpx2.ConnectError),
    (aiohttp.ClientResponseError, httpx2.RemoteProtocolError),
    (aiohttp.ClientError, httpx2.ReadError),
    (OSError, httpx2.ReadError),
)


@contextlib.contextmanager
def _as_httpx2() -> Generator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        kind = next(ours for theirs, ours in _ERRORS if isinstance(error, theirs))
        raise kind(str(error) or type(error).__name__) from error


def environment_proxy(url: httpx2.URL) -> str | None:
    """Return the proxy URL that the environment names for a URL (`HTTPS_PROXY`...), or `None`."""
    if proxy_bypass(url.netloc.decode("ascii")):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends requests unchanged: it adds no header, decodes nothing and follows no redirect.

    It checks certificates as httpx2 does, with `SSL_CERT_FILE`. If a request has the extension
    `target`, its bytes are sent as the path and query. The transport's connections belong to the
    event loop in which the first request was sent.
    """

    def __init__(self, proxy: str | None = None) -> None:
        """Make a transport; `proxy` is the URL of an HTTP proxy for all requests."""
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None
        self._other: httpx2.AsyncHTTPTransport | None = None
        """Sends the requests that aiohttp would change: those with headers that are not UTF-8."""

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=httpx2.create_ssl_context()),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_AUTO,
                max_line_size=_LONGEST,
                max_field_size=_LONGEST,
            )
        return self._session

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, body = request.url, request.stream
        target: bytes = request.extensions.get("target", url.raw_path)
        where = f"{url.scheme}://{url.netloc.decode('ascii')}{target.decode('ascii')}"
        headers = CIMultiDict[str]()
        try:
            for name, value in request.headers.raw:
                headers.add(name.decode("ascii"), value.decode())
        except UnicodeDecodeError:  # aiohttp writes UTF-8 only
            self._other = self._other or httpx2.AsyncHTTPTransport(proxy=self._proxy)
            return await self._other.handle_async_request(request)
        data: Any = None
        if isinstance(body, httpx2.ByteStream):
            data = request.content if len(request.content) <= _LARGE else _pieces(request.content)
        elif "content-length" in headers or "transfer-encoding" in headers:
            data = body
            headers.popall("transfer-encoding", None)  # aiohttp adds it itself
        limits = request.extensions.get("timeout", {})
        with _as_httpx2():
            response = await self._opened().request(
                request.method,
                yarl.URL(where, encoded=True),
                headers=headers,
                data=data or None,
                allow_redirects=False,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=limits.get("connect"), sock_read=limits.get("read")
                ),
            )
        return httpx2.Response(
            response.status,
            headers=[*response.raw_headers],
            stream=_Body(response),
            request=request,
            extensions={
                "http_version": b"HTTP/1.1",
                "reason_phrase": _phrase(response),
                "network_stream": _Connection(response),
            },
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._other is not None:
            await self._other.aclose()


class _Connection:
    """A response's connection, with the methods of httpcore's stream that the shells use."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._loop = asyncio.get_running_loop()

    def get_extra_info(self, info: str) -> _Connection | None:
        return self if info == "socket" else None

    def shutdown(self, how: int) -> None:
        """Close the connection, from any thread.

        The shells call `shutdown` of a connection's socket. uvloop's sockets do not have it.
        """
        self._loop.call_soon_threadsafe(self._response.close)


def _phrase(response: aiohttp.ClientResponse) -> bytes:
    return (response.reason or "").encode("ascii", "ignore")


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(data), _LARGE):
        yield bytes(view[at : at + _LARGE])


class _Body(httpx2.AsyncByteStream):
    """A response's bytes as they arrive. Each chunk is everything received since the last one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx2():
            read = self._response.content.readany
            while chunk := await read():
                yield chunk

    async def aclose(self) -> None:
        # If the body was read to its end, the connection stays in the pool.
        self._response.close()
