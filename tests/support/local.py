"""A small server on 127.0.0.1, in a thread of its own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast


class Local:
    """Serves from `with` to its end; what its handlers are for, a subclass says."""

    def __init__(self, handler: type[Handler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: Local

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is an everyday event here."""


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    @property
    def owner(self) -> Local:
        return cast("_Server", self.server).owner

    def sent(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Keep standard error clean."""
