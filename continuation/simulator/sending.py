"""How an answer's bytes travel: framed, in blocks, and late, cut or not at all where asked for."""

from __future__ import annotations

import itertools
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence

from continuation.simulator.scenario import Reply
from continuation.simulator.wire import Answer, Event, Recorded

BLOCK = 1 << 16
"""Bytes per write; a write per event would measure the server, not the client."""


_WATCH = 0.01
"""Seconds between looks at a client that is kept waiting."""


class DropError(Exception):
    """The connection is to be closed hard, here and now."""


class ClosedError(Exception):
    """The simulator was closed while an answer waited."""


def frame(event: Event, newline: str, *, comments: bool) -> bytes:
    """Write one server-sent event."""
    if event.framed is not None:
        return event.framed
    name = "" if event.name is None else f"event: {event.name}{newline}"
    data = "".join(f"data: {line}{newline}" for line in event.data.split("\n"))
    comment = f": keep-alive{newline}{newline}" if comments else ""
    return f"{comment}{name}{data}{newline}".encode()


class Line:
    """One connection for one exchange: bytes out, and an eye on whether the client is there."""

    def __init__(self, connection: socket.socket, stopped: threading.Event) -> None:
        self._connection = connection
        self._stopped = stopped

    def write(self, data: bytes) -> None:
        self._connection.sendall(data)

    def wait_for(self, gate: threading.Event) -> None:
        while not gate.is_set():
            self.check(_WATCH)

    def pause(self, seconds: float) -> None:
        """Sleep, but wake up for a client that left or a simulator that closes."""
        end = time.monotonic() + seconds
        while seconds and (left := end - time.monotonic()) > 0:
            self.check(min(left, _WATCH))

    def stay_silent(self) -> None:
        while True:
            self.check(_WATCH)

    def check(self, seconds: float) -> None:
        """Wait, then raise ClosedError or ConnectionResetError if nobody waits any more."""
        if self._stopped.wait(seconds):
            raise ClosedError
        if self._has_hung_up():
            raise ConnectionResetError

    def _has_hung_up(self) -> bool:
        self._connection.setblocking(False)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self._connection.setblocking(True)


class Body:
    """Writes an HTTP body in chunks, compressed or not, in writes of the asked size."""

    def __init__(self, line: Line, reply: Reply) -> None:
        self._line = line
        self._size = reply.chunk
        self._gzip = zlib.compressobj(wbits=31) if reply.gzip else None

    def write(self, data: bytes) -> None:
        if self._gzip is not None:
            data = self._gzip.compress(data) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        for piece in _pieces(data, self._size):
            self._line.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def end(self) -> None:
        rest = b"" if self._gzip is None else self._gzip.flush()
        framed = b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
        self._line.write(framed + b"0\r\n\r\n")


def _pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    size = size or BLOCK
    return (data[start : start + size] for start in range(0, len(data), size))


def send_events(line: Line, reply: Reply, events: Sequence[Event], recorded: Recorded) -> None:
    """Send events as one chunked body; stops, waits and drops where the reply says so."""
    body = Body(line, reply)
    frames = [frame(event, reply.newline, comments=reply.comments) for event in events]
    for start, stop in _stretches(reply, len(frames)):
        _before(line, reply, start)
        block = b"".join(frames[start:stop])
        if block:
            recorded.sent = stop
            body.write(block)
    _before(line, reply, len(frames))
    body.end()


def _stretches(reply: Reply, count: int) -> Iterator[tuple[int, int]]:
    """Cut the events into stretches that may go out in one write."""
    if reply.slow:
        return ((n, n + 1) for n in range(count))
    marks = {
        mark
        for mark in (reply.drop, reply.stall, reply.gate_at)
        if mark is not None and 0 < mark < count
    }
    bounds = [0, *sorted(marks), count]
    return itertools.pairwise(bounds)


def _before(line: Line, reply: Reply, number: int) -> None:
    """Do what is to happen before event `number`."""
    if reply.gate is not None and reply.gate_at <= number:
        line.wait_for(reply.gate)
    if reply.drop is not None and reply.drop <= number:
        raise DropError
    if reply.stall is not None and reply.stall <= number:
        line.stay_silent()
    line.pause(reply.slow)


def send_body(line: Line, reply: Reply, body: bytes) -> None:
    """Send one body of known length; a drop breaks it off in its middle."""
    if reply.drop is not None:
        line.write(body[: len(body) // 2])
        raise DropError
    for piece in _pieces(body, reply.chunk):
        line.write(piece)


def wait_before_status(line: Line, reply: Reply, answer: Answer) -> None:
    """Wait as long as nothing at all may be sent."""
    line.pause(reply.delay)
    if reply.drop is not None and reply.drop < 0:
        raise DropError
    if answer.events is not None:
        return
    if reply.gate is not None:
        line.wait_for(reply.gate)
    if reply.stall is not None:
        line.stay_silent()
