"""A gateway on a real socket, and an upstream that keeps every byte it is sent."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
import uvicorn

from continuation.gateway import Gateway, app
from continuation.gateway.server import settings
from continuation.simulator import ToolUse
from support.shells import PATIENCE

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def toml(url: str, more: str = "", *, vendor: str = "openai") -> str:
    """Return a file in which all three upstreams are `url`."""
    tables = [
        f'[upstreams.{name}]\nbase_url = "{url}"\n' for name in ("anthropic", "openai", "gemini")
    ]
    tables[1] += f'vendor = "{vendor}"\n' if vendor else ""
    return "".join([*tables, more])


@dataclass
class Served:
    """A gateway that is being served."""

    url: str
    gateway: Gateway

    def of(self, dialect: str) -> str:
        """Return the base URL for the SDK of a wire format."""
        return f"{self.url}/{_UPSTREAMS[dialect]}"


_UPSTREAMS = {
    "anthropic-messages": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gemini",
}


@contextlib.contextmanager
def serving(
    folder: Path,
    upstream: str,
    more: str = "",
    *,
    vendor: str = "openai",
    show_content: bool = False,
) -> Iterator[Served]:
    """Serve in a thread of this process, in front of one upstream for all."""
    path = folder / "gateway.toml"
    path.write_text(toml(upstream, more, vendor=vendor))
    gateway = app(path, show_content=show_content)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(settings(gateway))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", gateway)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@contextlib.contextmanager
def process(
    folder: Path, text: str, *options: str, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `continuation serve` on a free port; yields the URL and the process."""
    path = folder / "gateway.toml"
    path.write_text(text)
    command = [sys.executable, "-m", "continuation", "serve", "--port", "0", "--config", str(path)]
    with (folder / "turns.log").open("w") as log:
        running = subprocess.Popen(
            [*command, *options],
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
    assert running.stderr is not None
    try:
        told = running.stderr.readline()
        found = re.search(r"http://\S+?(?=;)", told)
        assert found, told + running.stderr.read()
        yield found[0], running
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(30)
        running.stderr.close()


class Raw:
    """An upstream on a socket: gives answers of bytes in turn, and keeps what it was sent."""

    def __init__(
        self,
        *answers: bytes | Callable[[socket.socket], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._answers = [*answers] or [OK]
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.seen: list[bytes] = []
        """All bytes of each request."""

    @property
    def url(self) -> str:
        return f"http{'s' * bool(self._tls)}://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Raw:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with contextlib.ExitStack() as open_lines, contextlib.suppress(OSError):
            open_lines.enter_context(line)
            if self._tls is not None:
                line = open_lines.enter_context(self._tls.wrap_socket(line, server_side=True))
            while data := whole(line):
                self.seen.append(data)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if callable(answer):
                    answer(line)
                    return
                line.sendall(answer)


def whole(line: socket.socket) -> bytes:
    """Return one message from a socket, or what arrived if it ends earlier."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = line.recv(1 << 16)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    parts = [data]
    left = int(length[1]) - len(body) if length else 0
    while left > 0 and (piece := line.recv(1 << 20)):
        parts.append(piece)
        left -= len(piece)
    if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
        while not parts[-1].endswith(b"0\r\n\r\n") and (piece := line.recv(1 << 20)):
            parts[-1] += piece
    return b"".join(parts)


def ask(url: str, request: bytes | Sequence[bytes]) -> bytes:
    """Send bytes to a server, and return the bytes of its answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        for piece in [request] if isinstance(request, bytes) else request:
            line.sendall(piece)
        return whole(line)


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    """Return a request as it goes over the wire."""
    return "\r\n".join([line, "host: 127.0.0.1", *headers, "", ""]).encode() + body


# --- what is asked of a gateway, and what it tells ------------------------------------------

URLS = {
    "anthropic-messages": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-3.8-flash:generateContent",
}
KEYS = {"x-api-key": "k", "authorization": "Bearer k", "x-goog-api-key": "k"}
CALL = ToolUse("Write", {"path": "a.txt", "content": "line\n" * 30})
MESSAGES: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 300,
    "messages": [{"role": "user", "content": "go"}],
}


def request_body(dialect: str) -> dict[str, Any]:
    if dialect == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "go"}]}]}
    if dialect == "openai-responses":
        return {"model": "gpt-5.4", "input": "go"}
    if dialect == "openai-chat":
        return {"model": "gpt-5.4", "messages": MESSAGES["messages"]}
    return MESSAGES


def told(served: Served, headers: httpx2.Headers) -> dict[str, Any]:
    """Return the report of the turn whose id is in an answer."""
    url = f"{served.url}/continuation/turns/{headers['x-continuation-turn']}"
    found: dict[str, Any] = httpx2.get(url).raise_for_status().json()
    return found


def until(true: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    end = monotonic() + PATIENCE
    while not true():
        assert monotonic() < end
        sleep(0.005)


def begin(
    served: Served, body: dict[str, Any], *, whole: bool = True, token: str = "-"
) -> socket.socket:
    """Send a request, or most of it, and return the socket; closing it is the caller leaving."""
    raw = json.dumps(body).encode()
    host, _, port = served.url.removeprefix("http://").partition(":")
    line = socket.create_connection((host, int(port)))
    head = ["content-type: application/json", "x-api-key: k", f"x-continuation-token: {token}"]
    head.append(f"content-length: {len(raw)}")
    line.sendall(
        request("POST /anthropic/v1/messages HTTP/1.1", *head, body=raw if whole else raw[:-1])
    )
    return line
