"""The generic `MessageBuilder`, and what only Gemini has: tokens, arrays, and places to shift."""

from __future__ import annotations

from continuation.answer.blocks import THINKING, TOOL_CALL
from continuation.answer.first_stream import Gate
from continuation.answer.message_builder import MessageBuilder
from continuation.dialect import Feed
from continuation.policy import Policy
from continuation.providers.gemini.array import FirstArray, is_array
from continuation.providers.gemini.codec import GeminiCodec
from continuation.providers.gemini.metadata import moved, shift
from continuation.providers.gemini.parts import joined, part_of
from continuation.types import Head, Json, Mode, ReplayBuffer, Resume, StopWord, Usage
from continuation.wire.json_values import as_json, as_list, loads


class GeminiMessageBuilder(MessageBuilder):
    """One turn of generateContent."""

    def __init__(self, form: GeminiCodec, policy: Policy) -> None:
        super().__init__(form, policy)
        self._gemini = form
        self._mixed = False
        """Text of a recovery is in the turn: no token stands for all of it."""
        self._hopped = 0
        """Characters of the segment that earlier hops said."""
        self._beside: list[Json] = []

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        feed = super().first(head, replay)
        if head.streamed:
            return feed

        def look(chunk: bytes) -> bytes:
            if self._first is None and is_array(replay.raw):
                self._begin_array(replay)
            return feed(chunk) if self._first is None else self._first.feed(chunk)

        return look

    def _begin_array(self, replay: ReplayBuffer) -> None:
        """What comes is no body to wait for: its elements flow like events."""
        self._gemini.array = True
        self._open(streamed=True)
        self._first = FirstArray(self._form, replay, Gate(self._policy))

    def begin(self, resume: Resume, head: Head) -> Feed:
        hops = resume.mode is Mode.NATIVE_CONTINUATION
        self._mixed = self._mixed or resume.mode in {Mode.RECOVERY, Mode.APPEND_TAIL}
        self._hopped = len(self._segment.text) if hops else 0
        return super().begin(resume, head)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        delta = self._segment.delta
        if self._mixed or delta.get("token") == self._token:
            delta.pop("token", None)
        if self._beside:
            delta["beside"] = self._beside
        return super().finish(stop, usage)

    def _replay_body(self, raw: bytes | bytearray) -> None:
        chunks = as_list(loads(raw))
        if not chunks:
            super()._replay_body(raw)
        for event in self._gemini.explode_array(chunks) if chunks else ():
            self._see([event])

    def _remember(self) -> None:
        super()._remember()
        items = [as_json(item) for item in as_list(self._segment.delta.get("beside"))]
        if self._resume.mode in {Mode.FIRST, Mode.REPLACE}:
            self._beside = items
            return
        before = [as_json(item.get("candidate")) for item in self._beside]
        by = shift(self._own(), joined(map(part_of, self._sink.blocks)), before)
        self._beside = self._beside + [
            {"candidate": moved(as_json(item.get("candidate")), by)} for item in items
        ]

    def _own(self) -> list[Json]:
        """Return the visible parts of the attempt read last."""
        if self._hopped:
            return [{"text": self._segment.text[self._hopped :]}]
        blocks = self._segment.blocks
        return joined(part_of(b) for b in blocks if b.kind not in THINKING | {TOOL_CALL})
