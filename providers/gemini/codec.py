"""The generateContent format: what its answers say, in the engine's words.

Wire facts: Google's pages on generateContent, thought signatures and long decode, and the behaviour
of google-genai 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from continuation.answer.blocks import THINKING, Block, Segment
from continuation.answer.wire_codec import FastPath, Reader, WireCodec, Writer
from continuation.providers.gemini.fast_path import ChunkPath
from continuation.providers.gemini.parts import KNOWN, RESULTS, SIGNATURE, part_of
from continuation.providers.gemini.reader import LENGTH, GeminiReader, output_of
from continuation.providers.gemini.writer import GeminiWriter
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire.json_values import (
    as_int,
    as_json,
    as_list,
    as_text,
    first_text,
    last_object,
)

_REFUSED = (
    "SAFETY RECITATION LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
    "IMAGE_PROHIBITED_CONTENT IMAGE_OTHER IMAGE_RECITATION ESCALATION PUP_LIMITED_DISABLED "
    "MODEL_ARMOR JAILBREAK BLOCKED_REASON_UNSPECIFIED"
)
_FAILED = (
    "UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE NO_IMAGE"
)
"""No refusals, but as plain: no limit helps, and no cut is to be looked for behind one."""
_STOPS = {
    LENGTH: Stop.LENGTH,
    "CONTINUATION": Stop.PAUSED,
    **dict.fromkeys((_REFUSED + " " + _FAILED).split(), Stop.REFUSED),
}
_REASON = re.compile(rb'"finishReason"\s*:\s*"([^"\\]*)"')


class GeminiCodec(WireCodec):
    """One generateContent answer; `limit` is what the attempt to be read was asked with."""

    ended = called = "STOP"
    truncated = LENGTH
    stops = _STOPS
    kinds = KNOWN

    def __init__(self) -> None:
        self.limit: int | None = None
        self.array = False
        """The caller's answer is an array of responses; known once it begins."""

    def reader(self) -> Reader:
        return GeminiReader(self.limit)

    def identity(self, message: Json) -> str:
        return as_text(message.get("responseId"))

    def fast_path(self) -> FastPath:
        return ChunkPath()

    def writer(self) -> Writer:
        return GeminiWriter(lambda: self.array)

    def to_events(self, body: Json) -> Iterable[Json]:
        return GeminiReader(self.limit).body([body], whole=True)

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
            said = usage.output - (usage.thinking or 0)
            tools = as_int(native.get("toolUsePromptTokenCount")) or 0
            counts["candidatesTokenCount"] = said
            counts["totalTokenCount"] = (usage.prompt or 0) + tools + usage.output
            details = as_list(native.get("candidatesTokensDetails"))
            if len(details) == 1:  # the answer is of one modality, text as a rule
                told = [{**as_json(details[0]), "tokenCount": said}]
                native = {**native, "candidatesTokensDetails": told}
        return {**native, **{key: count for key, count in counts.items() if count is not None}}

    def wire(self, block: Block) -> Json:
        return part_of(block)

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Thoughts only under a signature; what the provider ran, only with what came of it."""
        if block.kind in THINKING or block.kind == SIGNATURE:
            part = part_of(block)
            return bool(part.get("thoughtSignature")) and "text" in part
        result = RESULTS.get(block.kind)
        after = blocks[blocks.index(block) + 1 :] if result else ()
        return result is None or any(later.kind == result for later in after)

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        reasons = set(_REASON.findall(body))
        if len(reasons) != 1 or b'"willContinue"' in body:
            return None
        reason = reasons.pop().decode("utf-8", "replace")
        if reason.startswith("MALFORMED"):
            return None
        stop = self.stop_of(reason, closed=True)
        usage = self.read_usage(last_object(body, "usageMetadata"))
        # A pause is the caller's: the SDK goes on by its token itself.
        stop = Stop.END if stop is Stop.PAUSED else stop
        own = first_text(body, "responseId", max(body.rfind(b'"responseId"'), 0))
        return AttemptResult(stop=stop, raw=reason, id=own, usage=usage, text=True)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Look at the last part of a call: one that says it goes on is not whole.

        Where there are several calls, one before may have been left open: look at them all.
        """
        if not sketch.calls:
            return ToolCallState.NONE
        at = raw.rfind(b'"functionCall"') if len(sketch.calls) == 1 else 0
        cut = raw.find(b'"willContinue"', max(at, 0)) >= 0
        return ToolCallState.CUT if cut else ToolCallState.WHOLE
