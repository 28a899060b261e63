"""Reads answers of the generateContent format as block events, and writes them.

Wire facts: Google's pages on generateContent, thought signatures and long decode, and the behaviour
of google-genai 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from continuation.providers.contract import WORD, FastPath, Reader, WireCodec, Writer
from continuation.providers.gemini.parts import (
    KNOWN,
    SIGNATURE,
    kind_of,
    part_of,
    pieces,
    plain,
    put_together,
)
from continuation.providers.gemini.reader import LENGTH, GeminiReader, output_of
from continuation.providers.gemini.writer import GeminiWriter
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment, answered
from continuation.wire.json_values import (
    as_int,
    as_json,
    as_list,
    as_text,
    dumps,
    first_text,
    last_object,
    loads,
)
from continuation.wire.text_template import TextTemplate

_REFUSED = (
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
    "IMAGE_PROHIBITED_CONTENT IMAGE_OTHER IMAGE_RECITATION PUP_LIMITED_DISABLED "
    "MODEL_ARMOR JAILBREAK BLOCKED_REASON_UNSPECIFIED"
)
_FAILED = (
    "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL MALFORMED_RESPONSE TOO_MANY_TOOL_CALLS "
    "MISSING_THOUGHT_SIGNATURE OTHER ESCALATION NO_IMAGE"
)
_STOPS = {
    "STOP": Stop.END,
    LENGTH: Stop.LENGTH,
    "CONTINUATION": Stop.PAUSED,
    **dict.fromkeys(_REFUSED.split(), Stop.REFUSED),
    **dict.fromkeys(_FAILED.split(), Stop.ABORTED),
}
_SPEECH = re.compile(rb'"text"\s*:\s*%b|"(?:functionCall|inlineData)"\s*:' % WORD)
_REASON = re.compile(rb'"finishReason"\s*:\s*"([^"\\]*)"')


class GeminiCodec(WireCodec):
    """The codec of generateContent. Set `limit` and `tools` to those of the attempt it reads."""

    ended = called = "STOP"
    truncated = LENGTH
    stops = _STOPS
    speech = _SPEECH
    silent = THINKING | {SIGNATURE}
    kinds = KNOWN

    def __init__(self) -> None:
        self.limit: int | None = None
        self.tools: object = None
        self.array = False
        """Whether the caller's answer is an array of responses. Set when its first byte arrives."""

    def reader(self) -> Reader:
        return GeminiReader(self.limit, self.tools)

    def ending(self, segment: Segment) -> Stop:
        """Return `REFUSED` for a blocked prompt.

        One of its reasons, OTHER, is also a finish reason with another meaning.
        """
        blocked = bool(segment.delta.get("feedback"))
        return Stop.REFUSED if blocked else super().ending(segment)

    def note(self, delta: Json) -> str:
        return as_text(delta.get("finishMessage"))

    def speaks(self, body: bytes | bytearray) -> bool:
        """Whether a body has a text, and no part that may be thinking."""
        return super().speaks(body) and b'"thought"' not in body

    def identity(self, message: Json) -> str:
        return as_text(message.get("responseId"))

    def fast_path(self) -> FastPath:
        return ChunkPath()

    def writer(self) -> Writer:
        return GeminiWriter(lambda: self.array)

    def to_events(self, body: Json) -> Iterable[Json]:
        return GeminiReader(self.limit, self.tools).body([body], whole=True)

    def read_usage(self, usage: Json) -> Usage | None:
        if not usage:
            return None
        prompt, cached = (
            as_int(usage.get(key)) for key in ("promptTokenCount", "cachedContentTokenCount")
        )
        return Usage(
            input=None if prompt is None else max(0, prompt - (cached or 0)),
            cached=cached,
            output=output_of(usage),
            thinking=as_int(usage.get("thoughtsTokenCount")),
        )

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        if usage is None:
            return native
        counts: dict[str, int | None] = {
            "promptTokenCount": usage.prompt,
            "cachedContentTokenCount": usage.cached,
            "thoughtsTokenCount": usage.thinking,
        }
        if usage.output is not None:
            visible = usage.output - (usage.thinking or 0)
            tools = as_int(native.get("toolUsePromptTokenCount")) or 0
            counts["candidatesTokenCount"] = visible
            counts["totalTokenCount"] = (usage.prompt or 0) + tools + usage.output
            details = as_list(native.get("candidatesTokensDetails"))
            if len(details) == 1:  # the answer has one modality, usually text
                counted = [{**as_json(details[0]), "tokenCount": visible}]
                native = {**native, "candidatesTokensDetails": counted}
        return {**native, **{key: count for key, count in counts.items() if count is not None}}

    def wire(self, block: Block) -> Json:
        return part_of(block)

    def arguments(self, call: Block) -> str:
        """Join the pieces of a call's arguments. If a string is open, return invalid JSON."""
        joined = put_together(call)
        return "?" if joined is None or joined[1] else dumps(joined[0]).decode()

    def arrived(self, call: Block) -> str | None:
        """Return `""` for a call that arrived in one part, because what is missing is unknown."""
        came = as_json(part_of(call).get("functionCall"))
        if came and not (call.deltas or came.get("willContinue")):
            return ""
        joined = put_together(call)
        if joined is None:
            return ""
        text = dumps(joined[0]).decode().rstrip("}]")
        return text[:-1] if joined[1] else text

    def rest_of(self, call: Block, arrived: str, arguments: str) -> list[Json]:
        had = put_together(call) if arrived else None
        remaining = list(pieces(loads(arguments), had[0] if had is not None else {}))
        calls: list[Json] = [{"partialArgs": [piece], "willContinue": True} for piece in remaining]
        return [{"type": "part_delta", "part": {"functionCall": part}} for part in (*calls, {})]

    def goes_on(self, call: Block, text: str) -> list[Json]:
        return []

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Return `False` for thoughts without a signature and for server calls without a result."""
        if block.kind in THINKING or block.kind == SIGNATURE:
            part = part_of(block)
            return bool(part.get("thoughtSignature")) and "text" in part
        return answered(block, blocks)

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        reasons = set(_REASON.findall(body))
        if len(reasons) != 1 or b'"willContinue"' in body:
            return None
        reason = reasons.pop().decode("utf-8", "replace")
        if reason.startswith("MALFORMED"):
            return None
        stop = self.stop_of(reason, closed=True)
        usage = self.read_usage(last_object(body, "usageMetadata"))
        own = first_text(body, "responseId", max(body.rfind(b'"responseId"'), 0))
        return AttemptResult(stop=stop, raw=reason, id=own, usage=usage, text=True)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Return `CUT` if the last part of a call has `willContinue`.

        If there are several calls, all parts are searched, because the last part of an earlier call
        may be missing.
        """
        if not sketch.calls:
            return ToolCallState.NONE
        at = raw.rfind(b'"functionCall"') if len(sketch.calls) == 1 else 0
        cut = raw.find(b'"willContinue"', max(at, 0)) >= 0
        return ToolCallState.CUT if cut else ToolCallState.WHOLE


# --- a stream, unparsed -------------------------------------------------------------------------

_DATA = len(b"data: ")
_LESSONS = 16
"""The most chunks of an answer that are parsed for templates. Some servers vary every chunk."""


class ChunkPath:
    """Recognizes chunks of plain text by the bytes around the text, without parsing them.

    The chunks of an answer are equal except for text and counts. The first chunks are parsed and
    become templates. A chunk that matches no template is read fully.
    """

    blank = b"\r\n\r\n"

    def __init__(self) -> None:
        self._texts: list[TextTemplate] = []
        self._held: list[TextTemplate] = []
        """Templates of thoughts, and of pieces of a call's argument, which are buffered."""
        self._lessons = _LESSONS

    def flows(self, chunk: bytes) -> bool:
        for template in self._texts:  # this runs for each chunk of every answer
            if template.covers(chunk):
                return True
        return self._learnt(chunk) == TEXT

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        events = bytes(raw[start:end]).split(self.blank)
        if events.pop():
            return False
        fit = self.flows if flowing else self._waits
        return all(fit(event + self.blank) for event in events)

    def _waits(self, event: bytes) -> bool:
        if any(template.covers(event) for template in self._held):
            return True
        # A piece of a call that matches no template is read fully, because it may begin the call.
        return self._learnt(event) not in {"", TEXT, TOOL_CALL}

    def _learnt(self, event: bytes) -> str:
        """Parse a chunk and make a template of it; return its kind of block, or `""`."""
        if self._lessons == 0 or event.find(b"\n\r\n") != len(event) - 3:
            return ""
        self._lessons -= 1
        try:
            kind, text = _plain_of(as_json(loads(event[_DATA:])))
        except ValueError:
            return ""
        learn = TextTemplate.learnt
        template = learn(event, text, lambda c: _plain_of(c)[1], {}, at=_DATA) if kind else None
        if template is None:
            return ""
        (self._texts if kind == TEXT else self._held).insert(0, template)
        return kind


def _plain_of(chunk: Json) -> tuple[str, str]:
    """Return the kind of block that a chunk continues, and the text that it adds.

    Both are `""` if the chunk has, or may have, anything else.
    """
    candidates = as_list(chunk.get("candidates"))
    candidate = as_json(candidates[0]) if len(candidates) == 1 else {}
    parts = as_list(as_json(candidate.get("content")).get("parts"))
    part = as_json(parts[0]) if len(parts) == 1 else {}
    strange = chunk.keys() & {"error", "promptFeedback"} or candidate.keys() - {"content", "index"}
    if strange or candidate.get("index"):
        return "", ""
    if plain(part):
        return kind_of(part), as_text(part["text"])
    # The chunk may be another piece of one argument of a call, but not the last piece.
    call = as_json(part.get("functionCall"))
    pieces = as_list(call.get("partialArgs"))
    more = call.keys() == {"partialArgs", "willContinue"} and call["willContinue"] is True
    if part.keys() != {"functionCall"} or not more or len(pieces) != 1:
        return "", ""
    text = as_json(pieces[0]).get("stringValue")
    return (TOOL_CALL, text) if isinstance(text, str) else ("", "")
