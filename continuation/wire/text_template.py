"""Recognizes events that carry only a text delta by the bytes around the text.

Nearly all events of a stream are such events. They are equal byte for byte, except for the text and
sometimes a count. A `TextTemplate` is one of them with holes in it:

    data: {"id":"c1","choices":[{"delta":{"content":  HOLE  }}],"obfuscation":  HOLE  }

It is made from an event that was parsed (`learnt`) or from one that we wrote (`written`). It has
three uses. The first attempt's fast path asks whether a chunk is such an event (`covers`). The
reader of a later attempt takes the text out without parsing the rest (`match`). The writer puts
another text into it (`render`).

Why matching is safe: if the same bytes are around another string, the JSON is the same except for
one value. So it is the same event with another text. Any other event is parsed, and so is one with
an invalid string. A test proves which string of an event is its text: with a random mark in place
of the string, the mark must be read as the text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import NamedTuple

from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, loads, parsed
from continuation.wire.sse import Frame, encode

PADDING = rb'"[ !#-\[\]-~]*+"'
"""Matches a JSON string of printable ASCII without escapes."""
NUMBER = rb"(?:0|[1-9][0-9]{0,17})(?![0-9.eE])"


def _object(value: bytes) -> bytes:
    pair = rb"%s: ?%s" % (PADDING, value)
    return rb"\{%s(?:, ?%s)*+\}" % (pair, pair)


_SIMPLE = rb"(?:%s|%s)" % (PADDING, NUMBER)
_LISTED = _object(_SIMPLE)
COUNTS = _object(rb"(?:%s|\[%s(?:, ?%s)*+\])" % (_SIMPLE, _LISTED, _LISTED))
"""Matches an object with numbers, simple strings or lists of objects of these as values."""

STRING = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_STRING = re.compile(STRING)
_HALF = re.compile(rb"\\(?:u[0-9A-Fa-f]{0,3})?\n")
"""Matches a line that may end inside an escape."""
_DIGITS = b"0123456789"
_VALUE = re.compile(rb":\s*+(%s)" % STRING)
_TEXT, _NUMBER = "text", "number"
_MARK = secrets.token_hex()
"""A random text that no server's event contains."""
_COUNT = secrets.randbits(62) | 1 << 61
"""A random number that marks the event number when we write an event for a template."""


class Hole(NamedTuple):
    """A value that may differ: its offsets in the event, its name, and its pattern."""

    start: int
    end: int
    name: str
    form: bytes


class TextTemplate:
    """One event with holes for its text, and for other values that do not change its meaning."""

    __slots__ = ("_bare", "_head", "_lead", "_rear", "_tail", "after", "before", "between", "holes")

    def __init__(self, event: bytes, holes: Sequence[Hole]) -> None:
        """Make the template of an event. `holes` are in the order of their offsets."""
        at = holes[0].start
        self.before, self.after = event[:at], event[holes[-1].end :]
        pattern, text, between = b"", holes[0], 0
        for hole in holes:
            pattern += re.escape(event[at : hole.start])
            between += hole.start - at
            pattern += b"(?P<%s>%s)" % (hole.name.encode(), hole.form)
            at = hole.end
            text = hole if hole.name == _TEXT else text
        self.holes = re.compile(pattern)
        """Matches from the beginning of the first hole to the end of the last."""
        self.between = between
        """How many bytes between those two are in no hole."""
        self._head, self._tail = event[: text.start], event[text.end :]
        self._bare = self._tail.translate(None, _DIGITS)
        self._lead = self._rear = b""
        """The bytes before a number that precedes the text; the bytes after one that follows it."""
        if holes[0].name == _NUMBER:
            self._lead, self._head = self.before, event[holes[0].end : text.start]
        elif holes[-1].name == _NUMBER:
            self._tail, self._rear = event[text.end : holes[-1].start], self.after

    @classmethod
    def learnt(
        cls,
        event: bytes,
        text: str,
        read: Callable[[Json], object],
        free: Mapping[str, bytes],
        *,
        at: int = 0,
    ) -> TextTemplate | None:
        """Make the template of an event with the text `text`; `None`: its place is ambiguous.

        `read` returns the text of a decoded event; it may raise for events of another form, and
        must return `None` for an event that changes its reader's state. `free`: top-level keys of
        the event whose values do not change its meaning, with a pattern that only valid JSON
        matches. `at`: the offset of the event's JSON in its bytes.
        """
        found = [
            Hole(*match.span(1), name, form)
            for name, form in free.items()
            if (match := re.search(rb'"%s"\s*+:\s*+(%s)' % (name.encode(), form), event))
        ]
        for match in _VALUE.finditer(event):
            holes = sorted([Hole(*match.span(1), _TEXT, STRING), *found])
            same = parsed(match[1].decode("utf-8", "replace")) == text
            if same and _proven(event, holes, read, at):
                return cls(event, holes)
        return None

    @classmethod
    def written(cls, write: Callable[[str, int], bytes]) -> TextTemplate:
        """Make the template of the event that `write` writes for a text and an event number."""
        event, holes = write(_MARK, _COUNT), list[Hole]()
        marks = (_TEXT, quoted(_MARK).encode(), STRING), (_NUMBER, b"%d" % _COUNT, NUMBER)
        for name, mark, form in marks:
            if (at := event.find(mark)) >= 0:
                holes.append(Hole(at, at + len(mark), name, form))
        return cls(event, sorted(holes))

    def match(self, event: bytes) -> re.Match[bytes] | None:
        """Match an event with the template. The groups are the values in the holes."""
        if not event.startswith(self.before):
            return None
        found = self.holes.match(event, len(self.before))
        return found if found is not None and event[found.end() :] == self.after else None

    def covers(self, chunk: bytes) -> bool:
        """Whether a chunk is exactly one such event. Digits after its text may differ."""
        # This runs for each event of a complete answer. A pattern would take three times as long.
        start = len(self._head)
        if not chunk.startswith(self._head):
            return False
        end = chunk.find(b'"', start + 1) + 1
        if chunk[end:].translate(None, _DIGITS) == self._bare:
            return True
        text = _STRING.match(chunk, start)  # the text has an escaped quote
        return text is not None and chunk[text.end() :].translate(None, _DIGITS) == self._bare

    def render(self, text: str, number: int = 0) -> bytes:
        """Return the event with another text. Raises `UnicodeEncodeError` for a lone surrogate.

        `number`: the event number, used if the template has one.
        """
        event = self._head + quoted(text).encode() + self._tail
        if self._rear:
            return b"%b%d%b" % (event, number, self._rear)
        return b"%b%d%b" % (self._lead, number, event) if self._lead else event


def _proven(
    event: bytes, holes: Sequence[Hole], read: Callable[[Json], object], start: int
) -> bool:
    """Whether marks in the holes are at the right places of the decoded event."""
    marked, at = b"", start
    for hole in holes:
        if hole.start < at:
            return False
        marked += b'%s"%s%s"' % (event[at : hole.start], hole.name.encode(), _MARK.encode())
        at = hole.end
    try:
        decoded = as_json(loads(marked + event[at:]))
        for hole in holes:
            value = read(decoded) if hole.name == _TEXT else decoded.get(hole.name)
            if value != hole.name + _MARK:
                return False
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return True


# --- reading --------------------------------------------------------------------------------------

KEYS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
"""Types of deltas that carry only a text, and the key of that text."""
_CREDIT, _COST = 200, 20
"""In events: how much learning is allowed in advance, and the cost of learning one template.
Learning stops if it does not save time, because some servers send a new value beside each text."""


class PlainEvents:
    """Reads events that carry only a text, with a template of the event that was parsed last."""

    def __init__(self, read: Callable[[Json], object], free: Mapping[str, bytes]) -> None:
        """Begin without a template; `read` and `free` as for `TextTemplate.learnt`."""
        self._read = read
        self._free = free
        self.seen = 0
        """How many events were read with a template."""
        self._spent = 0
        """What learning has cost so far, in events."""
        self._template: TextTemplate | None = None
        self._name = self._kind = self._key = ""
        self._block: object = None
        self._match: re.Match[bytes] | None = None
        self._opening = b""
        """The bytes of an event before its first hole, including its name."""
        self._endings = (b"", b"")
        """The bytes of an event after its last hole, with either form of the blank line."""

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        """Yield the deltas of the matching events that begin `raw`; see `Reader.deltas`."""
        template, opening, kind, start = self._template, self._opening, self._kind, 0
        if template is None or self._block != index or (text and kind != "text_delta"):
            return
        while raw.startswith(opening, start):
            match = template.holes.match(raw, start + len(opening))
            whole = match is not None and raw.startswith(self._endings, match.end())
            if match is None or not whole or not (value := self._text_of(match)):
                return
            end = match.end() + len(template.after)
            start = end + (2 if raw.startswith(b"\n", end) else 4)
            yield {"type": kind, self._key: value}, start

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        """Return the matching events at the beginning of `raw` as one delta; see `Reader.joined`.

        No Python code runs per event, so an event costs a tenth of its cost in `deltas`.
        """
        template, (text, end) = self._template, ("", len(raw))
        if template is None or self._block != index:
            return None
        ending = self._endings[raw.endswith(b"\r\n")]
        if template.holes.groups == 1:
            text = self._of_chunks(raw, chunks, ending)
        if not text and (end := raw.rfind(self._opening)) > 0:
            # Leave the last event to be read on its own, because `beside` may need its values.
            text = self._of_events(raw[:end], template, ending)
        return ({"type": self._kind, self._key: text}, end) if text else None

    def _of_chunks(self, raw: bytes, chunks: Sequence[bytes], ending: bytes) -> str:
        """Return the joined texts of chunks that are one event each; `""`: some chunk is not."""
        head, tail = self._opening + b'"', b'"' + ending
        start, stop = len(head), -len(tail)
        texts = [chunk[start:stop] for chunk in chunks]
        lines = b"\n".join([*texts, b""])  # a JSON string has no raw line break
        if head + (tail + head).join(texts) + tail != raw or _HALF.search(lines):
            return ""
        return "" if b"" in texts else self._decoded(b'"%b"' % b"".join(texts), len(texts))

    def _of_events(self, raw: bytes, template: TextTemplate, ending: bytes) -> str:
        """Return the joined texts of events with several holes; `""`: an event does not match."""
        form = re.escape(self._opening) + template.holes.pattern + re.escape(ending)
        one = re.compile(form)
        found = one.findall(raw)
        # `raw` has only such events if the values in the holes and the bytes around them add up
        # to its length.
        columns = list(zip(*found, strict=True)) if one.groups > 1 else [found]
        filled = sum(len(value) for column in columns for value in column)
        around = len(self._opening) + template.between + len(ending)
        if not found or filled + around * len(found) != len(raw):
            return ""
        texts = columns[one.groupindex[_TEXT] - 1]
        return "" if b'""' in texts else self._decoded(b"[%b]" % b",".join(texts), len(texts))

    def _decoded(self, json: bytes, count: int) -> str:
        """Decode a JSON string, or join a list of `count` strings; `""`: it is not valid."""
        try:
            value = loads(json)
        except ValueError:
            return ""
        self.seen += count
        return value if isinstance(value, str) else "".join(value)

    def _text_of(self, match: re.Match[bytes]) -> str:
        """Return the text of an event that matched; `""`: it is empty, or not valid."""
        raw = match[_TEXT]
        try:
            text = as_text(loads(raw)) if b"\\" in raw else raw[1:-1].decode()
        except ValueError:
            return ""
        if text:
            self.seen += 1
            self._match = match
        return text

    def match(self, frame: Frame) -> Json | None:
        """Return the block event of a frame that matches the template; `None`: parse it."""
        if self._template is None or frame.name != self._name:
            return None
        match = self._template.match(frame.data)
        if match is None or not (text := self._text_of(match)):
            return None
        # The same as `blocks.delta` builds, in half the time.
        delta = {"type": self._kind, self._key: text}
        return {"type": "content_block_delta", "index": self._block, "delta": delta}

    def beside(self, name: str) -> bytes:
        """Return a `free` value of the last matching event; `b""`: none matched since `learn`."""
        known = self._match is not None and name in self._match.re.groupindex
        return self._match[name] if self._match is not None and known else b""

    def learn(self, frame: Frame, events: Sequence[Json]) -> None:
        """Drop the template; make a new one from an event that was parsed, if possible."""
        self._template = self._match = None
        delta = as_json(events[0].get("delta")) if len(events) == 1 else {}
        self._kind = as_text(delta.get("type"))
        self._key = KEYS.get(self._kind, "")
        text = as_text(delta.get(self._key))
        if not text or len(delta) != 2 or _CREDIT + self.seen - self._spent < _COST:
            return
        self._spent += _COST
        self._name, self._block = frame.name, events[0].get("index")
        self._template = TextTemplate.learnt(frame.data, text, self._read, self._free)
        if self._template is not None:
            self._opening = encode(frame.name, self._template.before).removesuffix(b"\n\n")
            self._endings = self._template.after + b"\n\n", self._template.after + b"\r\n\r\n"


# --- writing --------------------------------------------------------------------------------------


class PlainWriter:
    """Writes deltas that carry only a text. The first one under a key makes a template.

    The key must identify everything in the event except its text and its number.
    """

    def __init__(self) -> None:
        self._templates: dict[Hashable, TextTemplate] = {}

    def write(
        self, key: Hashable, text: str, write: Callable[[str, int], bytes], number: int = 0
    ) -> bytes:
        """Return the same as `write(text, number)`, in a fraction of the time."""
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = TextTemplate.written(write)
        try:
            return template.render(text, number)
        except UnicodeEncodeError:  # a lone surrogate: `dumps`, which `write` uses, escapes it
            return write(text, number)
