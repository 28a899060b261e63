"""The simulator's HTTP server: sockets, recording and delivery; it knows no provider."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

from continuation.limits import ModelLimits
from continuation.simulator.format import Format
from continuation.simulator.formats import formats, in_order
from continuation.simulator.model import Ask, Reciter
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.sending import (
    ClosedError,
    DropError,
    Line,
    send_body,
    send_events,
    wait_before_status,
)
from continuation.simulator.wire import Answer, Json, Recorded, Refusal

SETTINGS_HEADER = "x-simulate"
_NOTHING_TO_SAY = "the script is over and the simulator was given no answer to recite"


class Simulator:
    """A strict stand-in for the providers on 127.0.0.1, serving from a thread of its own.

    `answer` is what the model recites: a text, or the path of a UTF-8 file. `models` says what a
    model can do where the shipped table is not to be asked. Use it as a context manager, or call
    `start` and `close`. Raises OSError if the port is taken or the file cannot be read, ValueError
    if it is not UTF-8.
    """

    def __init__(
        self,
        answer: str | Path | None = None,
        scenario: Scenario | None = None,
        *,
        models: Mapping[str, ModelLimits] | None = None,
        port: int = 0,
    ) -> None:
        self.scenario = scenario or Scenario()
        self.requests: list[Recorded] = []
        self._formats: Sequence[Format[Any]] = formats(models or {})
        self._reciter = None if answer is None else _reciter(answer)
        self._script: deque[Reply] = deque()
        self._attempts = AttemptCounter()
        self._lock = threading.Lock()
        self._server = _Server(self, port)

    @property
    def url(self) -> str:
        """The base URL for a client, as in `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def posts(self) -> list[Recorded]:
        """The requests that asked the model, refused ones too, in the order of their arrival."""
        return [request for request in self.requests if request.asks_model]

    def script(self, replies: Iterable[Reply]) -> None:
        """Let `replies` answer the next model calls, in order; then the model recites on."""
        with self._lock:
            self._script.extend(replies)

    def reset(self) -> None:
        """Forget requests, script, attempts and what the model remembers; the scenario stays."""
        with self._lock:
            self._script.clear()
            self.requests.clear()
        self._attempts.forget()
        for wire in self._formats:
            wire.forget()
        if self._reciter is not None:
            self._reciter.forget()

    def start(self) -> Simulator:
        """Begin to serve; does nothing if it already does."""
        self._server.start()
        return self

    def close(self) -> None:
        """Stop listening, hang up on every client and wait for the threads."""
        self._server.stop()

    def __enter__(self) -> Simulator:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        """Answer a request: the answer, and the reply whose delivery it asks for."""
        for wire in in_order(self._formats, request):
            route = wire.route(request.method, request.path)
            if route is not None:
                request.asks_model = route == "model"
                self._record(request)
                return self._guarded(wire, request)
        self._record(request)
        return self._formats[0].refused(Refusal("Not Found", 404), request), Reply()

    def _record(self, request: Recorded) -> None:
        with self._lock:
            self.requests.append(request)

    def _guarded(self, wire: Format[Any], request: Recorded) -> tuple[Answer, Reply]:
        try:
            request.scenario = self.scenario.but(request.headers.get(SETTINGS_HEADER, ""))
        except ValueError as error:
            return wire.refused(Refusal(f"{SETTINGS_HEADER}: {error}"), request), Reply()
        try:
            return self._answer(wire, request)
        except Exception as error:  # a client is to see our bug, not a dead connection
            why = f"the simulator failed: {type(error).__name__}: {error}"
            return wire.refused(Refusal(why, 500), request), Reply()

    def _answer(self, wire: Format[Any], request: Recorded) -> tuple[Answer, Reply]:
        if not request.asks_model:
            return wire.look_up(request), Reply()
        refused = wire.refuse(request)
        if refused is not None:
            return refused, Reply()
        reply = self._reply(wire.ask(request), request.scenario)
        return wire.answer(request, reply), reply

    def _reply(self, ask: Ask, scenario: Scenario) -> Reply:
        """Let the script, the scenario's faults or the model answer; a limit of 0 asks nobody."""
        if ask.limit == 0:
            return Reply(stop="max_tokens")
        attempt = self._attempts.next(ask.key)
        with self._lock:
            if self._script:
                return self._script.popleft()
        refused = scenario.refusal(attempt)
        if refused is not None:
            return refused
        if self._reciter is None:
            return Reply(status=500, error=("api_error", _NOTHING_TO_SAY))
        return scenario.struck(self._reciter.reply(ask, scenario), attempt)


def _reciter(answer: str | Path) -> Reciter:
    if isinstance(answer, str):
        return Reciter(answer)
    try:
        return Reciter(answer.read_bytes().decode(), answer.name)
    except UnicodeDecodeError as error:
        msg = f"answer: {answer} is not UTF-8 text ({error.reason} at byte {error.start})"
        raise ValueError(msg) from None


class AttemptCounter:
    """Counts the model calls of each conversation, from 1."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, key: str) -> int:
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            return self._counts[key]

    def forget(self) -> None:
        with self._lock:
            self._counts.clear()


class _Server(ThreadingHTTPServer):
    """Accepts connections, one thread each, and can hang up on all of them."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, simulator: Simulator, port: int) -> None:
        self.simulator = simulator
        self.stopped = threading.Event()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        """Bind without the name look-up of the base class, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.01,), name="simulator", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
            self._thread = None
        self.server_close()
        self._hang_up()

    def _hang_up(self) -> None:
        with self._guard:
            connections = list(self._open.items())
        for connection, _ in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in connections:
            thread.join(5)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        with self._guard:
            self._open[request] = thread
        thread.start()

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is an everyday event here."""


class _Handler(BaseHTTPRequestHandler):
    """Reads requests of one connection and sends their answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Keep standard error clean; everything is in `Simulator.requests`."""

    def _exchange(self) -> None:
        recorded = self._read()
        server = cast("_Server", self.server)
        line = Line(self.connection, server.stopped)
        try:
            self._send(line, recorded, *server.simulator.respond(recorded))
        except DropError:
            self.close_connection = True
        except (OSError, ClosedError):
            recorded.hung_up = not server.stopped.is_set()
            self.close_connection = True
        finally:
            recorded.done.set()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _exchange  # noqa: N815 (stdlib)

    def _send(self, line: Line, recorded: Recorded, answer: Answer, reply: Reply) -> None:
        wait_before_status(line, reply, answer)
        recorded.status = answer.status
        body = _compressed(answer.body) if reply.gzip else answer.body
        self._send_head(answer, reply, len(body))
        if answer.events is None:
            send_body(line, reply, body)
        else:
            send_events(line, reply, answer.events, recorded)

    def _send_head(self, answer: Answer, reply: Reply, length: int) -> None:
        self.send_response_only(answer.status)
        framing = (
            {"content-length": str(length)}
            if answer.events is None
            else {"transfer-encoding": "chunked"}
        )
        coding = {"content-encoding": "gzip"} if reply.gzip else {}
        for name, value in {**answer.headers, **coding, **framing}.items():
            self.send_header(name, value)
        self.end_headers()

    def _read(self) -> Recorded:
        raw = self._read_body()
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Recorded(self.command, url.path, url.query, headers, raw, _object(raw))

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._read_chunks())
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _read_chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass


def _compressed(body: bytes) -> bytes:
    import gzip

    return gzip.compress(body, mtime=0)


def _object(raw: bytes) -> Json | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None
