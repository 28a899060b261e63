"""Server-sent events, sans-IO: reads complete events from bytes in any chunks."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from continuation.types import Json
from continuation.wire.json_values import as_json, loads, parsed

# A blank line ends an event; lines end in LF, CRLF or CR (WHATWG, "Server-sent events", parsing).
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
# The usual form of an event with a name. For short events, one match is faster than searches.
_NAMED = re.compile(rb"event: ([^\r\n]++)\ndata: ([^\r\n]++)\n\n")
_SHORT = 1024
_BOM = b"\xef\xbb\xbf"
_LINES = re.compile(rb"\r\n|\n|\r")


class Frame(NamedTuple):
    """One event: its name (`""`: none), its data, and the offset after its end."""

    name: str
    data: bytes
    end: int

    @property
    def empty(self) -> bool:
        """Whether it has only comments, which keep the connection alive."""
        return not self.data and not self.name


def parse(block: bytes | bytearray) -> tuple[str, bytes]:
    """Return an event's name and data. Comments and other fields are ignored.

    A byte order mark, which may stand before the first event, is dropped.
    """
    name, data = b"", list[bytes]()
    for line in _LINES.split(bytes(block).removeprefix(codecs.BOM_UTF8)):
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return name.decode("utf-8", "replace"), b"\n".join(data)


def frames(raw: bytes | bytearray, start: int = 0, *, final: bool = False) -> list[Frame]:
    """Return the complete events of `raw` from offset `start` on: those that a blank line ends.

    A CR as the last byte does not count, because its LF may follow. `final` means that no more
    bytes come: then it counts. If the last event then lacks only its blank line, that is added to
    `raw`, because no reader accepts the event without it.
    """
    if final and isinstance(raw, bytearray):
        last = max(raw.rfind(b"\n\n"), raw.rfind(b"\r\n\r\n"), raw.rfind(b"\r\r"), 0)
        data = parse(raw[last:])[1]
        if data == b"[DONE]" or isinstance(parsed(data.decode("utf-8", "replace")), dict):
            raw += b"\n\n"
    found: list[Frame] = []
    if start == 0 and raw.startswith(_BOM):  # a stream may begin with one (same page of WHATWG)
        start = len(_BOM)
    limit = len(raw) - 1 if raw.endswith(b"\r") and not final else len(raw)
    while start < limit:
        frame = _plain(raw, start)
        if frame is None:
            match = _BLANK.search(raw, start, limit)
            if match is None:
                break
            frame = Frame(*parse(raw[start : match.start()]), match.end())
        start = frame.end
        found.append(frame)
    return found


def _plain(raw: bytes | bytearray, start: int) -> Frame | None:
    """Read an event in its usual form: a name or none, one line of data, a blank line; or `None`.

    It searches for line breaks. That is faster than a match, because an event can be as long as an
    answer.
    """
    name, line = "", start
    if raw.startswith(b"event: ", start):
        if match := _NAMED.match(raw, start, start + _SHORT):
            return Frame(match[1].decode("utf-8", "replace"), match[2], match.end())
        line = raw.find(b"\n", start) + 1
        name = raw[start + 7 : line - 1].decode("utf-8", "replace").removesuffix("\r")
        if not line or "\r" in name:
            return None
    end = raw.find(b"\n", line)
    if end < 0 or not raw.startswith(b"data: ", line):
        return None
    blank = end + 2
    if raw[end + 1 : blank] != b"\n":
        if raw[end - 1 : end + 3] != b"\r\n\r\n":
            return None
        end, blank = end - 1, end + 3
    data = bytes(raw[line + 6 : end])
    return Frame(name, data, blank) if data and b"\r" not in data else None


def decoded(frame: Frame) -> Json:
    """Return an event's JSON object; `{}`: it has none. A torn object becomes an error event.

    Proxies and servers tear events (GLM-5#66, pycodeloop#62). No SDK can read the rest of such a
    stream, so it counts as dropped.
    """
    try:
        return as_json(loads(frame.data)) if frame.data else {}
    except ValueError:
        torn = frame.data.lstrip().startswith(b"{")
        return {"type": "error", "error": {"type": "torn event"}} if torn else {}


def typed(frame: Frame) -> Json:
    """Return an event's JSON object, with the event's name as its `type` if it has none."""
    event = decoded(frame)
    event.setdefault("type", frame.name)
    return event


def may_end(raw: bytes | bytearray, start: int, added: int) -> bool:
    """Whether the last `added` bytes may have ended the event that begins at `start`.

    An event can be as long as the answer, so do not search all of it again for each chunk.
    """
    tail = raw[max(start, len(raw) - added - 3) :]
    return b"\n\n" in tail or b"\r" in tail


def encode(name: str, data: bytes) -> bytes:
    """Write one event. `data` must have no line break (compact JSON never does)."""
    head = b"event: %s\n" % name.encode(errors="replace") if name else b""
    return head + b"data: " + data + b"\n\n"


class NamedPath:
    """The fast path of formats that put a name before the data of an event.

    `flowing`: the event name of text deltas. `held`: the names of deltas that are buffered. Without
    any, all deltas have the same name, and the start of their block distinguishes them.
    """

    blank = b"\n\n"

    def __init__(self, flowing: str, *held: str) -> None:
        self._flowing = b"event: %s\n" % flowing.encode()
        self._held: tuple[bytes, ...] = (self._flowing,)
        if held:
            self._held = tuple(b"event: %s\n" % name.encode() for name in held)
        self._inside = slice(len(self._flowing), -len(self.blank))

    def flows(self, chunk: bytes) -> bool:
        # JSON has no raw line break. So without one between head and end, it is a single event.
        return (
            chunk.startswith(self._flowing)
            and chunk.endswith(b"}\n\n")
            and 10 not in chunk[self._inside]
            and 13 not in chunk
        )

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Whether there are as many of these names as events; `False` if there is any CR."""
        names = (self._flowing,) if flowing else self._held
        if not raw.startswith(names, start):  # the last events are long, so do not count in them
            return False
        known = sum(raw.count(name, start, end) for name in names)
        ends = raw.count(b"\n\n", start, end), raw.count(b"}\n\n", start, end)
        return ends == (known, known) and raw.find(b"\r", start, end) < 0


COMMENT = b": \n"
"""An empty comment. Without a blank line after it, it is part of the next event."""


def first_json(raw: bytes) -> Json:
    """Return the JSON object in the first event that has data; `{}`: there is none."""
    data = next((frame.data for frame in frames(raw) if frame.data), b"")
    return as_json(parsed(data.decode("utf-8", "replace")))
