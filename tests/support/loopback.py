"""Small servers on 127.0.0.1 for what the simulator is not: a forward proxy, and Vertex's paths."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from support.local import Handler, Local

_HOP = {"connection", "transfer-encoding", "content-length", "proxy-connection", "host"}


@dataclass
class Passed:
    """One request on its way: `path` is an absolute URL where the client takes us for a proxy."""

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
        super().__init__(_Handler)
        self.seen: list[Passed] = []
        self.base = base
        self.rewrite = rewrite


class _Handler(Handler):
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
