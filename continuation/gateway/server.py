"""How uvicorn is to serve the gateway."""

from __future__ import annotations

import sys

import uvicorn

from continuation.gateway.asgi import Gateway

_DRAIN_SECONDS = 600
"""What streams are given to end in, once the server is told to stop."""


def settings(gateway: Gateway) -> uvicorn.Config:
    """Return what `uvicorn.Server` takes.

    What the provider said of itself and of the time is passed on: uvicorn adds nothing.
    """
    return uvicorn.Config(
        gateway,
        http="httptools",
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
