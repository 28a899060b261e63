"""How uvicorn is to serve the gateway."""

from __future__ import annotations

import sys

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from continuation.gateway.asgi import Gateway
from continuation.gateway.errors import GatewayError, body

_DRAIN_SECONDS = 600
"""What streams are given to end in, once the server is told to stop."""


class _Protocol(HttpToolsProtocol):
    """HTTP as uvicorn reads it; trailers are no headers, and errors have the caller's shape."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.headers = []  # what comes now stands behind a body

    def send_400_response(self, msg: str) -> None:
        assert isinstance(self.config.app, Gateway)
        known = self.config.app.table.upstreams
        named = [known[part].dialect for part in self.url.decode().split("/") if part in known]
        message = (
            "this is no HTTP that all servers read alike, or its path is too long: check the "
            "request line, content-length, transfer-encoding and line ends"
        )
        told = body(named[0] if named else "", GatewayError(400, message))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(told)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + told)
        self.transport.close()


def settings(gateway: Gateway) -> uvicorn.Config:
    """Return what `uvicorn.Server` takes.

    What the provider said of itself and of the time is passed on: uvicorn adds nothing.
    """
    return uvicorn.Config(
        gateway,
        http=_Protocol,
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        ws="none",
        lifespan="on",
        proxy_headers=False,  # who may come in is asked of the connection, not of a header
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
