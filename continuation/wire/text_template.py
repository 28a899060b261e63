"""Chunks that say nothing but more text, known by what stands around the text.

Nearly all of a stream is such chunks, alike byte for byte but for the text. A reader tells the
first of them the long way, and has it learnt here. As long as the same bytes stand around another
string, the JSON is the same with another value in one place: the same event with another text, and
only the string has to be decoded. Whatever differs goes the long way, as does a string that is not
valid.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, loads
from continuation.wire.sse import Frame

PADDING = rb'"[ !#-\[\]-~]*+"'
"""A string that is valid as it stands."""
NUMBER = rb"(?:0|[1-9][0-9]{0,17})(?![0-9.eE])"


def _object(value: bytes) -> bytes:
    pair = rb"%s: ?%s" % (PADDING, value)
    return rb"\{%s(?:, ?%s)*+\}" % (pair, pair)


_SIMPLE = rb"(?:%s|%s)" % (PADDING, NUMBER)
_LISTED = _object(_SIMPLE)
COUNTS = _object(rb"(?:%s|\[%s(?:, ?%s)*+\])" % (_SIMPLE, _LISTED, _LISTED))
"""An object of numbers and of lists of such objects."""

_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_VALUE = re.compile(rb":\s*+(%s)" % _STRING)
_TEXT = "text"
_KEYS = {"text_delta": "text", "input_json_delta": "partial_json"}
_MARK = secrets.token_hex()
"""What no server can have said."""
_CREDIT, _COST = 200, 20
"""Learning takes as long as telling about so many chunks, and is given up where it does not pay:
some servers say something new beside each text."""


class _Hole(NamedTuple):
    """A value that may differ: where it is in the chunk learnt, its name, and its form."""

    start: int
    end: int
    name: str
    form: bytes


class _Shape(NamedTuple):
    """A chunk but for its holes, and the event it is."""

    name: str
    before: bytes
    holes: re.Pattern[bytes]
    """From the first to the last."""
    after: bytes
    block: object
    kind: str
    key: str


class TextTemplate:
    """Knows the last chunk that was nothing but text."""

    def __init__(self, string: Callable[[Json], object], free: Mapping[str, bytes]) -> None:
        """Begin to know nothing.

        `string` returns the text of a decoded chunk from where the reader takes it; it may fail on
        chunks of another form, and must return `None` for one that changes what the reader keeps
        each time it is told. `free`: keys of the chunk itself whose values do not change its event,
        with a pattern that only valid JSON matches.
        """
        self._string = string
        self._free = free
        self._credit = _CREDIT
        self._shape: _Shape | None = None
        self._match: re.Match[bytes] | None = None

    def told(self, frame: Frame) -> Json | None:
        """Tell a chunk that is like the one learnt; `None`: it is to be told the long way."""
        if self._shape is None:
            return None
        name, before, holes, after, block, kind, key = self._shape
        data = frame.data
        if not data.startswith(before) or frame.name != name:
            return None
        match = holes.match(data, len(before))
        if match is None or data[match.end() :] != after:
            return None
        quoted = match[_TEXT]
        try:
            text = loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
        except ValueError:
            return None
        if not text:
            return None
        self._credit += 1
        self._match = match
        # As `_blocks.delta` has it, in half the time.
        return {"type": "content_block_delta", "index": block, "delta": {"type": kind, key: text}}

    def beside(self, name: str) -> bytes:
        """Return a free value of the chunk told last; `b""` where it is that of the one learnt."""
        known = self._match is not None and name in self._match.re.groupindex
        return self._match[name] if self._match is not None and known else b""

    def learn(self, frame: Frame, told: Sequence[Json]) -> None:
        """Look at a chunk that was told the long way; what was known before no longer holds."""
        self._shape = self._match = None
        delta = as_json(told[0].get("delta")) if len(told) == 1 else {}
        kind = as_text(delta.get("type"))
        key = _KEYS.get(kind, "")
        text = delta.get(key)
        if not text or len(delta) != 2 or self._credit < _COST:
            return
        self._credit -= _COST
        free = self._found(frame.data)
        for match in _VALUE.finditer(frame.data):
            holes = sorted([_Hole(*match.span(1), _TEXT, _STRING), *free])
            if _decoded(match[1]) == text and self._proven(frame.data, holes):
                around = _around(frame.data, holes)
                self._shape = _Shape(frame.name, *around, told[0].get("index"), kind, key)
                return

    def _found(self, data: bytes) -> list[_Hole]:
        seen = (
            (name, form, re.search(rb'"%s"\s*+:\s*+(%s)' % (name.encode(), form), data))
            for name, form in self._free.items()
        )
        return [_Hole(*match.span(1), name, form) for name, form, match in seen if match]

    def _proven(self, data: bytes, holes: Sequence[_Hole]) -> bool:
        """Whether the holes are the values they seem: what is put there is found there."""
        marked, at = b"", 0
        for hole in holes:
            if hole.start < at:
                return False
            marked += b'%s"%s%s"' % (data[at : hole.start], hole.name.encode(), _MARK.encode())
            at = hole.end
        try:
            chunk = as_json(loads(marked + data[at:]))
            named = {hole.name: chunk.get(hole.name) for hole in holes}
            named[_TEXT] = self._string(chunk)
        except (ValueError, LookupError, TypeError, AttributeError):
            return False
        return all(value == name + _MARK for name, value in named.items())


def _around(data: bytes, holes: Sequence[_Hole]) -> tuple[bytes, re.Pattern[bytes], bytes]:
    """Return the bytes before the holes, a pattern from the first to the last, and those after."""
    start = at = holes[0].start
    pattern = b""
    for hole in holes:
        own = b"(?P<%s>%s)" % (hole.name.encode(), hole.form)
        pattern += re.escape(data[at : hole.start]) + own
        at = hole.end
    return data[:start], re.compile(pattern), data[at:]


def _decoded(quoted: bytes) -> object:
    try:
        return loads(quoted)
    except ValueError:
        return None
