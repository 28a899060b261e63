"""A stream that comes as one JSON array of responses, as it does without `alt=sse`.

Each element is told as an event is, as soon as its last brace has come; brackets and commas between
the elements go out with the element behind them.
"""

from __future__ import annotations

import re

from continuation.answer.first_stream import FirstStream, Gate
from continuation.answer.wire_codec import WireCodec
from continuation.types import AttemptResult, Enough, ReplayBuffer
from continuation.wire.sse import Frame

_OPENING = re.compile(rb"\s*\[")
_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_INSIDE = re.compile(_STRING, re.DOTALL)
_PLAIN = rb'[^"{}\[\]]*+'
_OUTSIDE = re.compile(_PLAIN + rb'(?:"' + _STRING + rb'"' + _PLAIN + rb")*+", re.DOTALL)
"""What leads up to a brace or a bracket, whole strings among it."""
_DEEPER, _QUOTE = frozenset(b"{["), b'"'[0]


def is_array(raw: bytearray) -> bool:
    """Whether what has come so far is the beginning of an array."""
    return _OPENING.match(raw) is not None


class Elements:
    """Finds the objects in an array whose bytes are still coming, each byte looked at once."""

    def __init__(self, raw: bytearray) -> None:
        self.closed = False
        """The array's own bracket has come."""
        self._raw = raw
        self._at = self._start = self._depth = 0
        self._quoted = False

    def more(self) -> list[Frame]:
        """Return the objects that became whole since the last call, as nameless events."""
        found: list[Frame] = []
        while not self.closed:
            passed = (_INSIDE if self._quoted else _OUTSIDE).match(self._raw, self._at)
            at = self._at = passed.end() if passed is not None else self._at
            if at == len(self._raw) or (self._quoted and self._raw[at] != _QUOTE):
                break  # the other one that stops a string is half an escape
            self._at += 1
            if self._raw[at] == _QUOTE:
                self._quoted = not self._quoted
            elif self._ends(self._raw[at], at):
                found.append(Frame("", bytes(self._raw[self._start : self._at]), self._at))
        return found

    def _ends(self, kind: int, at: int) -> bool:
        """Take a brace or a bracket; whether it is the last one of an element."""
        if kind in _DEEPER:
            self._depth += 1
            if self._depth == 2:
                self._start = at
            return False
        self._depth -= 1
        self.closed = self._depth < 1
        return self._depth == 1


class FirstArray(FirstStream):
    """The caller's own attempt as an array."""

    def __init__(self, form: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        super().__init__(form, replay, gate)
        self._elements = Elements(replay.raw)

    def _feed(self, chunk: bytes) -> bytes:
        try:
            shown = self._read(self._elements.more())
        except Enough as enough:
            shown = enough.show  # what is handed over as it came needs its last bracket
        if self._elements.closed:
            self._seen = len(self._replay.raw)
        return shown

    def glance(self) -> AttemptResult | None:
        """Without its last bracket the array is no JSON: such an end has to be written."""
        return super().glance() if self._elements.closed else None

    def frames(self) -> list[Frame]:
        """Return all elements that have come."""
        return Elements(self._replay.raw).more()
