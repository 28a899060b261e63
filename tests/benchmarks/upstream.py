"""A provider in a process of its own: it reads a request and writes an answer made beforehand.

Which answer is named by the request's `x-answer` header: `stream/EVENTS` (each event its own write
and its own HTTP chunk, as a provider sends them), `blocks/EVENTS` (chunks of 16 kB),
`call/EVENTS` (one function call), `body/CHARACTERS` (not streamed, at once),
`late/CHARACTERS` (not streamed, after a wait).
"""

from __future__ import annotations

import contextlib
import functools
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Generator

from answers import text_of
from wires import WIRES

BLOCK = 16_384
LATE = 0.02
"""Seconds that a late answer takes. A model that wrote 2 kB in so little would be a wonder."""


def _chunk(data: bytes) -> bytes:
    """Frame as one HTTP/1.1 chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _head(kind: str, *framing: str) -> bytes:
    lines = ("HTTP/1.1 200 OK", f"content-type: {kind}", "request-id: req_bench", *framing)
    return "\r\n".join((*lines, "", "")).encode()


def raw(name: str, dialect: str) -> list[bytes]:
    """Return the named answer's bytes, event by event or as one body."""
    kind, _, size = name.partition("/")
    answers = WIRES[dialect].answers
    if kind in {"body", "late"}:
        return [answers.body(text_of(int(size)))]
    return answers.of_events(int(size), call=kind == "call")


@functools.cache
def writes(name: str, dialect: str) -> list[bytes]:
    """Return what is written to the socket, write by write."""
    parts = raw(name, dialect)
    if name.startswith(("body/", "late/")):
        return [_head("application/json", f"content-length: {len(parts[0])}") + parts[0]]
    if name.startswith("blocks/"):
        whole = b"".join(parts)
        parts = [whole[at : at + BLOCK] for at in range(0, len(whole), BLOCK)]
    head = _head(WIRES[dialect].kind, "transfer-encoding: chunked")
    return [head, *map(_chunk, parts), b"0\r\n\r\n"]


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self._answer():
                pass

    def _answer(self) -> bool:
        """Serve one request of the connection; `False` when there is none."""
        length, name, line = 0, "", self.rfile.readline()
        if not line:
            return False
        while line.strip():
            key, _, value = line.decode("latin-1").partition(":")
            length = int(value) if key.lower() == "content-length" else length
            name = value.strip() if key.lower() == "x-answer" else name
            line = self.rfile.readline()
        self.rfile.read(length)
        time.sleep(LATE if name.startswith("late/") else 0)
        for data in writes(name, sys.argv[1]):
            self.connection.sendall(data)
        return True


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextlib.contextmanager
def upstream(dialect: str) -> Generator[str]:
    """Start a provider that speaks `dialect` in a child process; give its base URL."""
    command = [sys.executable, __file__, dialect]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"


def _serve() -> None:
    """Serve until the parent closes our stdin, or is gone."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    _serve()
