"""The simulator's HTTP server: sockets, recording and sending. It knows no wire format."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import socket
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

from continuation.limits import ModelLimits
from continuation.simulator import sigv4
from continuation.simulator.anthropic.format import AnthropicFormat
from continuation.simulator.format import Format
from continuation.simulator.gemini.format import GeminiFormat
from continuation.simulator.model import Ask, Reciter
from continuation.simulator.openai_chat.format import ChatFormat
from continuation.simulator.openai_responses.format import ResponsesFormat
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.victim import Victim, kill
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal

SETTINGS_HEADER = "x-simulate"
_FORMATS = (AnthropicFormat, GeminiFormat, ChatFormat, ResponsesFormat)
"""All formats. A request belongs to the first format that claims it in `route`."""
_BLOCK = 1 << 16
"""Bytes per write. With a write for each event, a benchmark would measure the server."""
_WATCH = 0.01
"""Seconds between two checks whether a waiting client is still connected."""
_NOTHING_TO_SAY = "the script is over and the simulator was given no answer to recite"


class Simulator:
    """A strict substitute for the providers on 127.0.0.1, which serves from its own thread.

    `answer`: what the model recites: a text, the path of a UTF-8 file, or a `Reciter`.
    `models`: limits of models, which override those in the table of this package.
    `port`: 0 means any free port.
    `keys`: AWS secrets by key id. If there are any, signed requests must be signed with one.

    Use it as a context manager, or call `start` and `close`. Raises OSError if the port is in use
    or the file cannot be read, and ValueError if the file is not UTF-8.
    """

    def __init__(
        self,
        answer: str | Path | Reciter | None = None,
        scenario: Scenario | None = None,
        *,
        models: Mapping[str, ModelLimits] | None = None,
        port: int = 0,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self.keys = dict(keys or {})
        self.scenario = scenario or Scenario()
        self.victim: Victim = None
        """The process that `kill` kills: a `subprocess.Popen`, a pid, or a function that is called
        instead. `None`: an error is logged, and nothing is killed."""
        self.requests: list[Recorded] = []
        self._formats: Sequence[Format[Any]] = [kind(models or {}) for kind in _FORMATS]
        self._reciter = answer if isinstance(answer, Reciter) else None
        if isinstance(answer, str):
            self._reciter = Reciter(answer)
        if isinstance(answer, Path):
            try:
                self._reciter = Reciter(answer.read_bytes().decode(), answer.name)
            except UnicodeDecodeError as error:
                msg = f"answer: {answer} is not UTF-8 text ({error.reason} at byte {error.start})"
                raise ValueError(msg) from None
        self._script: deque[Reply] = deque()
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = _Server(self, port)

    @property
    def url(self) -> str:
        """The base URL for a client, as in `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def posts(self) -> list[Recorded]:
        """The requests to the model, including refused ones, in the order of their arrival."""
        return [request for request in self.requests if request.asks_model]

    def script(self, replies: Iterable[Reply]) -> None:
        """Use `replies` for the next requests to the model, in order. Then it recites again."""
        with self._lock:
            self._script.extend(replies)

    def reset(self) -> None:
        """Forget requests, script, attempts and the model's positions. The scenario stays."""
        with self._lock:
            self._script.clear()
            self.requests.clear()
            self._attempts.clear()
        for wire in self._formats:
            wire.forget()
        if self._reciter is not None:
            self._reciter.forget()

    def start(self) -> Self:
        """Start to serve. This does nothing if it serves already."""
        self._server.start()
        return self

    def close(self) -> None:
        """Stop listening, disconnect every client and wait for the threads."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        """Return the answer to a request, and the reply that determines how it is sent."""
        anthropic, *others = self._formats
        # Several formats have `/v1/models`. It is Anthropic's only with Anthropic's header.
        first = "anthropic-version" in request.headers
        ordered = [anthropic, *others] if first else [*others, anthropic]
        routes = ((wire, wire.route(request.method, request.path)) for wire in ordered)
        wire, route = next((pair for pair in routes if pair[1] is not None), (anthropic, None))
        request.asks_model = route == "model"
        with self._lock:
            self.requests.append(request)
        if route is None:
            return wire.refused(Refusal("Not Found", 404), request), Reply()
        if self.keys and (unsigned := sigv4.refusal(request, self.keys)) is not None:
            return wire.refused(unsigned, request), Reply()
        try:
            request.scenario = self.scenario.but(request.headers.get(SETTINGS_HEADER, ""))
        except ValueError as error:
            return wire.refused(Refusal(f"{SETTINGS_HEADER}: {error}"), request), Reply()
        try:
            if (unknown := wire.unknown_caller(request)) is not None:
                return wire.refused(unknown, request), Reply()
            if route == "other":
                return wire.other(request), Reply()
            context = wire.context(request)
            if (refused := wire.refuse(context)) is not None:
                return refused, Reply()
            reply = self._next_reply(wire.ask(context), request.scenario)
            return wire.answer(context, reply), reply
        except Exception as error:  # the client gets an error in our code as an error response
            why = f"the simulator failed: {type(error).__name__}: {error}"
            return wire.refused(Refusal(why, 500), request), Reply()

    def _next_reply(self, ask: Ask, scenario: Scenario) -> Reply:
        """Return the next reply, and count the conversation's attempt unless its limit is 0."""
        if ask.limit == 0:
            return Reply(stop="max_tokens")
        with self._lock:
            self._attempts[ask.key] += 1
            attempt = self._attempts[ask.key]
        return self._reply(ask, scenario, attempt)

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        """Return a reply from the script, or the scenario's faults, or the model."""
        with self._lock:
            if self._script:
                return self._script.popleft()
        if (status := scenario.status.get(attempt)) is not None:
            waits = {"retry-after": scenario.retry_after, "retry-after-ms": scenario.retry_after_ms}
            headers = {name: f"{value:g}" for name, value in waits.items() if value is not None}
            return Reply(status=status, headers=headers)
        if self._reciter is None:
            return Reply(status=500, error=("api_error", _NOTHING_TO_SAY))
        return replace(
            self._reciter.reply(ask, scenario),
            drop=scenario.drop.get(attempt),
            kill=scenario.kill.get(attempt),
            torn=scenario.torn.get(attempt),
            torn_body=scenario.torn_body.get(attempt),
            stall=scenario.stall.get(attempt),
            error_after=scenario.error_event.get(attempt),
        )


class _Server(ThreadingHTTPServer):
    """Accepts connections, each with one thread, and can close all of them."""

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
        """Bind without the base class's look-up of a name, which can take seconds."""
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
        """Print nothing, because clients of a simulator often disconnect."""


class _Handler(BaseHTTPRequestHandler):
    """Reads the requests of one connection and sends their answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Print nothing. Requests are recorded in `Simulator.requests`."""

    def _exchange(self) -> None:
        recorded = self._read()
        server = cast("_Server", self.server)
        line = Line(self.connection, server.stopped, server.simulator)
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

    def _read(self) -> Recorded:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        url, body = urlsplit(self.path), None
        with contextlib.suppress(ValueError):
            body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        read = cast("Json", body) if isinstance(body, dict) else None
        return Recorded(self.command, url.path, url.query, headers, raw, read)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _send(self, line: Line, recorded: Recorded, answer: Answer, reply: Reply) -> None:
        wait_before_status(line, reply, answer)
        recorded.status = answer.status
        body = answer.body
        if reply.torn_body is not None:
            body = body[: min(reply.torn_body, len(body) // 2)]
        body = gzip.compress(body, mtime=0) if reply.gzip else body
        headers = dict(answer.headers)
        if reply.gzip:
            headers["content-encoding"] = "gzip"
        if answer.events is None:
            headers["content-length"] = str(len(body))
        else:
            headers["transfer-encoding"] = "chunked"
        self.send_response_only(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.events is None:
            send_body(line, reply, body)
        else:
            send_events(line, reply, answer.events, recorded)


# -- sending an answer's bytes in blocks; the reply may want them late, truncated, or not at all


class DropError(Exception):
    """Raised to close the connection at once, without the end of the body."""


class ClosedError(Exception):
    """Raised if the simulator is closed while an answer waits."""


class Line:
    """One connection during one exchange. It sends bytes, and notices if the client disconnects."""

    def __init__(
        self, connection: socket.socket, stopped: threading.Event, simulator: Simulator
    ) -> None:
        self._connection, self._stopped, self._simulator = connection, stopped, simulator
        self.write = connection.sendall

    def kill(self) -> None:
        kill(self._simulator.victim)

    def wait_for(self, gate: threading.Event) -> None:
        while not gate.is_set():
            self.check(_WATCH)

    def pause(self, seconds: float) -> None:
        """Sleep. Raises what `check` raises if the client disconnects or the simulator closes."""
        end = time.monotonic() + seconds
        while seconds and (left := end - time.monotonic()) > 0:
            self.check(min(left, _WATCH))

    def stay_silent(self) -> None:
        self.wait_for(threading.Event())

    def check(self, seconds: float) -> None:
        """Wait, then raise ClosedError or ConnectionResetError if either side has closed."""
        if self._stopped.wait(seconds):
            raise ClosedError
        self._connection.setblocking(False)
        try:
            if not self._connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
        except BlockingIOError:
            pass  # still connected
        finally:
            self._connection.setblocking(True)


def wait_before_status(line: Line, reply: Reply, answer: Answer) -> None:
    """Execute the waits and the drop before the status line."""
    line.pause(reply.delay)
    if reply.drop is not None and reply.drop < 0:
        raise DropError
    if answer.events is not None:
        return
    if reply.gate is not None:
        line.wait_for(reply.gate)
    if reply.stall is not None:
        line.stay_silent()


def send_body(line: Line, reply: Reply, body: bytes) -> None:
    """Send one body of known length. A drop sends only its first half."""
    if reply.kill is not None:
        line.kill()
    if reply.drop is not None:
        line.write(body[: len(body) // 2])
        raise DropError
    for piece in _pieces(body, reply.chunk):
        line.write(piece)


def send_events(line: Line, reply: Reply, events: Sequence[Event], recorded: Recorded) -> None:
    """Send events as one chunked body, with the waits and faults of the reply between them."""
    packer = zlib.compressobj(wbits=31) if reply.gzip else None
    frames = [_framed(event) for event in events]
    if reply.torn is not None and reply.torn < len(events):
        frames[reply.torn] = _torn(events[reply.torn])
    if reply.slow:
        bounds = [*range(len(frames) + 1)]
    else:  # one write sends all events between two waits or faults
        positions = (reply.drop, reply.kill, reply.stall, reply.gate_at)
        marks = {mark for mark in positions if mark is not None}
        bounds = [0, *sorted(mark for mark in marks if 0 < mark < len(frames)), len(frames)]
    for start, stop in itertools.pairwise(bounds):
        _before(line, reply, start)
        if block := b"".join(frames[start:stop]):
            recorded.sent = stop
            if packer is not None:
                block = packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)
            for piece in _pieces(block, reply.chunk):
                line.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    _before(line, reply, len(frames))
    rest = b"" if packer is None else packer.flush()
    framed = b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
    line.write(framed + b"0\r\n\r\n")


def _framed(event: Event) -> bytes:
    if event.framed is not None:
        return event.framed
    name = "" if event.name is None else f"event: {event.name}\n"
    return f"{name}data: {event.data}\n\n".encode()


def _torn(event: Event) -> bytes:
    """Return an event whose data ends in its middle."""
    if event.framed is None:
        return _framed(replace(event, data=event.data[: len(event.data) // 2]))
    half = event.framed[: len(event.framed) // 2]
    return half + b"\r\n\r\n" if event.framed.endswith(b"\r\n\r\n") else half


def _before(line: Line, reply: Reply, number: int) -> None:
    if reply.gate is not None and reply.gate_at <= number:
        line.wait_for(reply.gate)
    if reply.drop is not None and reply.drop <= number:
        raise DropError
    if reply.kill == number:
        line.kill()
    if reply.stall is not None and reply.stall <= number:
        line.stay_silent()
    line.pause(reply.slow)


def _pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    size = size or _BLOCK
    return (data[start : start + size] for start in range(0, len(data), size))
