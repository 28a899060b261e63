"""Small servers on 127.0.0.1 for what the simulator is not.

`Canned` gives the answers that a test has written down, `Relay` is a forward proxy, and `vertex`
turns its requests into what another server understands. `Watcher` stands in for the dialects.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast
from urllib.parse import urlsplit

import pytest

from continuation.attach import common as _attach_common


class Local:
    """A server that runs inside a `with` block; a subclass chooses its handler."""

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

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: Local

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: clients that disconnect are expected."""


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


# --- canned answers -----------------------------------------------------------------------------


@dataclass
class Asked:
    """A request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    """An answer: JSON, or JSON values as server-sent events with `gap` seconds between them."""

    body: Any = None
    events: list[Any] = field(default_factory=list[Any])
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    gap: float = 0.0


Rule = Callable[[Asked], Answer]


class Canned(Local):
    """Answers each request by a rule, and keeps the requests in `asked`."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(_CannedHandler)
        self.rule = rule
        self.asked: list[Asked] = []


def in_turn(*answers: Answer) -> Canned:
    """Return a server that gives these answers in turn, and the last one from then on."""
    left = list(answers)
    return Canned(lambda _: left.pop(0) if len(left) > 1 else left[0])


class _CannedHandler(Handler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        canned = cast("Canned", self.owner)
        raw = self.sent()
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, json.loads(raw) if raw else None)
        canned.asked.append(asked)
        answer = canned.rule(asked)
        if answer.events:
            self._begin(answer, "text/event-stream", {"transfer-encoding": "chunked"})
            self._stream(answer)
        else:
            whole = json.dumps(answer.body).encode()
            self._begin(answer, "application/json", {"content-length": str(len(whole))})
            self.wfile.write(whole)

    do_GET = do_POST = _answer  # noqa: N815 - the base's names

    def _begin(self, answer: Answer, kind: str, headers: dict[str, str]) -> None:
        self.send_response_only(answer.status)
        for name, value in {"content-type": kind, **headers, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, answer: Answer) -> None:
        for event in answer.events:
            text = event if isinstance(event, str) else json.dumps(event)
            piece = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(answer.gap)
        self.wfile.write(b"0\r\n\r\n")


class Watcher:
    """Stands in the place of the dialects: claims nothing, and notes what it could have claimed.

    Only `send` of an HTTP client of ours asks it, so that what it saw went through one.
    """

    name = "watcher"

    def __init__(self) -> None:
        self.seen: list[str] = []

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch) -> Watcher:
        """Return a watcher that replaces the dialects of all clients wrapped from now on."""
        watcher = cls()
        monkeypatch.setattr(_attach_common, "dialects", lambda: (watcher,))
        return watcher

    def claims(self, method: str, path: str) -> bool:
        self.seen.append(f"{method} {path}")
        return False


# --- a forward proxy ----------------------------------------------------------------------------

_HOP = {"connection", "transfer-encoding", "content-length", "proxy-connection", "host"}


@dataclass
class Passed:
    """A request that is passed on; `path` is an absolute URL if the client uses us as a proxy."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Rewrite = Callable[[Passed], Passed]


class Relay(Local):
    """Passes requests on to the host in their URL, or to `base`, and remembers them as they came.

    What is under `/old` has moved: it is answered with a 307 to the same path without it.
    """

    def __init__(self, base: str = "", rewrite: Rewrite | None = None) -> None:
        super().__init__(_RelayHandler)
        self.seen: list[Passed] = []
        self.base = base
        self.rewrite = rewrite


class _RelayHandler(Handler):
    def _pass(self) -> None:
        relay = cast("Relay", self.owner)
        body = self.sent()
        headers = {k.lower(): v for k, v in self.headers.items() if k.lower() not in _HOP}
        passed = Passed(self.command, self.path, headers, body)
        relay.seen.append(passed)
        if passed.path.startswith("/old"):
            self._moved(passed.path.removeprefix("/old"))
            return
        if relay.rewrite is not None:
            passed = relay.rewrite(passed)
        url = urlsplit(passed.path if passed.path.startswith("http") else relay.base + passed.path)
        upstream = http.client.HTTPConnection(url.netloc)
        try:
            target = url.path + (f"?{url.query}" if url.query else "")
            upstream.request(passed.method, target, passed.body, passed.headers)
            self._copy(upstream.getresponse())
        finally:
            upstream.close()

    def _moved(self, path: str) -> None:
        self.send_response_only(307)
        self.send_header("location", path)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = _pass  # noqa: N815 - the base's names

    def _copy(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.end_headers()
        while piece := response.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()


_VERTEX = re.compile(
    r"/v1/projects/([^/]+)/locations/([^/]+)/publishers/anthropic/models/([^/:]+):(\w+)$"
)


def vertex(passed: Passed) -> Passed:
    """Turn a Vertex call into the Messages call it stands for; refuse what Vertex refuses."""
    found = _VERTEX.match(passed.path)
    body = json.loads(passed.body) if passed.body else {}
    assert found is not None, passed.path
    assert "model" not in body, "Vertex has the model in its path"
    assert body.pop("anthropic_version")
    streamed = found[4] == "streamRawPredict"
    assert bool(body.get("stream")) == streamed, "the path and the body must agree"
    assert passed.headers["authorization"] == "Bearer token"
    headers = {**passed.headers, "anthropic-version": "2026-10-21"}
    headers = {k: v for k, v in headers.items() if k != "accept-encoding"}
    whole = json.dumps({**body, "model": found[3].replace("@", "-")}).encode()
    return Passed(passed.method, "/v1/messages", headers, whole)
