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
        self.wait_for(threading.Event())

    def check(self, seconds: float) -> None:
        """Wait, then raise ClosedError or ConnectionResetError if nobody waits any more."""
        if self._stopped.wait(seconds):
            raise ClosedError
        self._connection.setblocking(False)
        try:
            if not self._connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
        except BlockingIOError:
            pass  # connected, and silent
        finally:
            self._connection.setblocking(True)


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


def send_body(line: Line, reply: Reply, body: bytes) -> None:
    """Send one body of known length; a drop breaks it off in its middle."""
    if reply.drop is not None:
        line.write(body[: len(body) // 2])
        raise DropError
    for piece in _pieces(body, reply.chunk):
        line.write(piece)


def send_events(line: Line, reply: Reply, events: Sequence[Event], recorded: Recorded) -> None:
    """Send events as one chunked body; stops, waits and drops where the reply says so."""
    gzip = zlib.compressobj(wbits=31) if reply.gzip else None
    frames = [_framed(event, reply) for event in events]
    if reply.slow:
        bounds = [*range(len(frames) + 1)]
    else:  # all that lies between two places where something is to happen goes out in one write
        marks = {mark for mark in (reply.drop, reply.stall, reply.gate_at) if mark is not None}
        bounds = [0, *sorted(mark for mark in marks if 0 < mark < len(frames)), len(frames)]
    for start, stop in itertools.pairwise(bounds):
        _before(line, reply, start)
        if block := b"".join(frames[start:stop]):
            recorded.sent = stop
            if gzip is not None:
                block = gzip.compress(block) + gzip.flush(zlib.Z_SYNC_FLUSH)
            for piece in _pieces(block, reply.chunk):
                line.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    _before(line, reply, len(frames))
    rest = b"" if gzip is None else gzip.flush()
    framed = b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
    line.write(framed + b"0\r\n\r\n")


def _framed(event: Event, reply: Reply) -> bytes:
    if event.framed is not None:
        return event.framed
    newline = reply.newline
    name = "" if event.name is None else f"event: {event.name}{newline}"
    data = "".join(f"data: {line}{newline}" for line in event.data.split("\n"))
    comment = f": keep-alive{newline}{newline}" if reply.comments else ""
    return f"{comment}{name}{data}{newline}".encode()


def _before(line: Line, reply: Reply, number: int) -> None:
    if reply.gate is not None and reply.gate_at <= number:
        line.wait_for(reply.gate)
    if reply.drop is not None and reply.drop <= number:
        raise DropError
    if reply.stall is not None and reply.stall <= number:
        line.stay_silent()
    line.pause(reply.slow)


def _pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    size = size or BLOCK
    return (data[start : start + size] for start in range(0, len(data), size))
