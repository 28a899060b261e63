"""The `MessageBuilder` for Gemini, with continuation tokens, answers as arrays, and positions.

Without `alt=sse` a stream is one JSON array of responses. Each element is read like an event when
its last brace has arrived. Brackets and commas between elements are delivered together with the
element after them.
"""

from __future__ import annotations

import re

from continuation.answer.first_stream import FirstStream
from continuation.answer.gate import Gate
from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.contract import Feed, Shape, WireCodec
from continuation.providers.gemini.codec import GeminiCodec
from continuation.providers.gemini.parts import Shift, joined, part_of
from continuation.providers.gemini.reader import GeminiReader
from continuation.types import (
    AttemptResult,
    Enough,
    Head,
    JoinPlan,
    Json,
    Mode,
    ReplayBuffer,
    StopWord,
    Usage,
)
from continuation.wire.blocks import THINKING, TOOL_CALL
from continuation.wire.json_values import as_json, as_list, dumps, loads
from continuation.wire.sse import Frame


class GeminiMessageBuilder(MessageBuilder):
    """One turn of generateContent."""

    def __init__(self, codec: GeminiCodec, policy: Policy) -> None:
        super().__init__(codec, policy)
        self._gemini = codec
        self._mixed = False
        """Whether the turn has text of a recovery. Then no token covers all text of the turn."""
        self._hopped = 0
        """The number of characters of the segment's text that are from earlier hops."""
        self._beside: list[Json] = []

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        feed = super().first(head, replay)
        if head.streamed:
            return feed

        def look(chunk: bytes) -> bytes:
            if self._first is None and _OPENING.match(replay.raw) is not None:
                # The body is an array, so its elements pass through like events.
                self._gemini.array = True
                self._first = FirstArray(self._codec, replay, Gate(self._policy))
            return feed(chunk) if self._first is None else self._first.feed(chunk)

        return look

    def begin(self, plan: JoinPlan, head: Head) -> Feed:
        hops = plan.mode is Mode.NATIVE_CONTINUATION
        self._mixed = self._mixed or plan.mode in {Mode.RECOVERY, Mode.APPEND_TAIL}
        self._hopped = len(self._segment.text) if hops else 0
        return super().begin(plan, head)

    def broken(self, error: Json, shape: Shape) -> bytes:
        """Return an error as the last element if the answer is an array of responses."""
        if not self._gemini.array:
            return super().broken(error, shape)
        begun = self._replay.sent > 0 or bool(self._client.blocks)
        return (b",\r\n" if begun else b"[") + dumps(error) + b"\r\n]"

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        delta = self._segment.delta
        if self._mixed or delta.get("token") == self._token:
            delta.pop("token", None)
        if self._beside:
            delta["beside"] = self._beside
        return super().finish(stop, usage)

    def _read_body(self, raw: bytes | bytearray) -> None:
        if chunks := as_list(loads(raw)):
            # This attempt's body is an array. The caller's answer may have another form.
            reader = GeminiReader(self._gemini.limit, self._gemini.tools)
            self._attempt.see(reader.body(chunks, whole=False))
        else:
            super()._read_body(raw)

    def _remember(self) -> None:
        super()._remember()
        items = [as_json(item) for item in as_list(self._segment.delta.get("beside"))]
        if self._plan.mode in {Mode.FIRST, Mode.REPLACE}:
            self._beside = items
            return
        before = [as_json(item.get("candidate")) for item in self._beside]
        if self._hopped:
            own: list[Json] = [{"text": self._segment.text[self._hopped :]}]
        else:
            silent = THINKING | {TOOL_CALL}
            own = joined(part_of(b) for b in self._segment.blocks if b.kind not in silent)
        by = Shift(own, joined(map(part_of, self._client.blocks)), before)
        self._beside = self._beside + [
            {"candidate": by.moved(as_json(item.get("candidate")))} for item in items
        ]


# --- a stream as one array ------------------------------------------------------------------------

_OPENING = re.compile(rb"\s*\[")
_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_INSIDE = re.compile(_STRING, re.DOTALL)
_PLAIN = rb'[^"{}\[\]]*+'
_OUTSIDE = re.compile(_PLAIN + rb'(?:"' + _STRING + rb'"' + _PLAIN + rb")*+", re.DOTALL)
"""Matches the bytes before a brace or a bracket, complete strings included."""
_DEEPER, _QUOTE = frozenset(b"{["), b'"'[0]


class Elements:
    """Finds the objects in an array while its bytes arrive. It reads each byte once."""

    def __init__(self, raw: bytearray) -> None:
        self.closed = False
        """Whether the array's closing bracket has arrived."""
        self._raw = raw
        self._at = self._start = self._depth = 0
        self._quoted = False

    def more(self) -> list[Frame]:
        """Return the objects completed since the last call, as events without a name."""
        found: list[Frame] = []
        while not self.closed:
            passed = (_INSIDE if self._quoted else _OUTSIDE).match(self._raw, self._at)
            at = self._at = passed.end() if passed is not None else self._at
            if at == len(self._raw) or (self._quoted and self._raw[at] != _QUOTE):
                break  # the match stopped at an escape sequence that is still incomplete
            self._at += 1
            if self._raw[at] == _QUOTE:
                self._quoted = not self._quoted
            elif self._raw[at] in _DEEPER:
                self._depth += 1
                self._start = at if self._depth == 2 else self._start
            else:
                self._depth -= 1
                self.closed = self._depth < 1
                if self._depth == 1:  # the closing brace of an element
                    found.append(Frame("", bytes(self._raw[self._start : self._at]), self._at))
        return found


class FirstArray(FirstStream):
    """The first attempt, if its body is an array."""

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        super().__init__(codec, replay, gate)
        self._elements = Elements(replay.raw)

    def _feed(self, chunk: bytes) -> bytes:
        try:
            shown = self._read(self._elements.more())
        except Enough as enough:
            if self._gate.runs_away:
                raise
            shown = enough.show  # read on, because an answer that passes needs its last bracket
        if self._elements.closed:
            self._seen = len(self._replay.raw)
        return shown

    def result_by_labels(self) -> AttemptResult | None:
        """Return `None` before the last bracket: the array is not valid JSON without an end."""
        return super().result_by_labels() if self._elements.closed else None

    @staticmethod
    def frames(raw: bytearray, start: int = 0, *, final: bool = False) -> list[Frame]:
        """Return all elements that have arrived, as events without a name."""
        return Elements(raw).more()
