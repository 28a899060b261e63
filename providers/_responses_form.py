"""The Responses format: how its answers end, what they cost, and what is known of its items.

Wire facts: API reference "Responses", "Streaming events", and the types and the stream state of
openai 3.5x.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from continuation.providers._blocks import CALL, THINKING, Block, Segment
from continuation.providers._form import Reader, Skim, Writer
from continuation.providers._json import as_int, as_json
from continuation.providers._responses_items import (
    PARTS,
    SERVER_ITEMS,
    carries,
    replayed,
)
from continuation.providers._responses_reader import ResponsesReader
from continuation.providers._responses_writer import Finished, ResponsesWriter
from continuation.providers._skim import NamedSkim, last_object
from continuation.types import CallState, Ending, Json, Stop, Usage

_STOPS = {
    "max_output_tokens": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,  # gateways that pass on what Chat Completions call it
    "length": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
    "failed": Stop.REFUSED,
}
_KNOWN = PARTS | THINKING | SERVER_ITEMS | {CALL}
_HELD = (
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
)
_DETAILS = re.compile(rb'"incomplete_details"\s*:\s*(?:null|\{\s*"reason"\s*:\s*"([^"\\]*)"\s*\})')
_OTHER_STATUS = re.compile(rb'"status"\s*:\s*"(?:failed|cancelled)"')


class ResponsesForm:
    """The answers to one Responses request."""

    ended = "completed"
    called = "completed"
    truncated = "max_output_tokens"
    lasting: tuple[str, ...] = ()

    def __init__(self, finished: Finished) -> None:
        self._finished = finished

    def reader(self) -> Reader:
        return ResponsesReader()

    def skim(self) -> Skim:
        return NamedSkim("response.output_text.delta", *_HELD)

    def writer(self) -> Writer:
        return ResponsesWriter(self._finished)

    def explode(self, body: Json) -> Iterator[Json]:
        """Tell a whole response as the events it would have been streamed as."""
        reader = ResponsesReader()
        begun: Json = {**body, "output": [], "usage": None}
        yield from reader.tell({"type": "response.created", "response": begun})
        yield from reader.tell({"type": f"response.{_kind(body)}", "response": body})

    def stop_of(self, reason: str | None, *, closed: bool) -> Stop:
        """Read a status or why an answer is incomplete; an unknown word is an ordinary end."""
        if reason is None:
            return Stop.END if closed else Stop.DROPPED
        return _STOPS.get(reason, Stop.END)

    def read_usage(self, usage: Json) -> Usage | None:
        """`input_tokens` counts cached ones too; in the engine's words they stand apart."""
        if not usage:
            return None
        read = as_json(usage.get("input_tokens_details"))
        cached, put = as_int(read.get("cached_tokens")), as_int(read.get("cache_write_tokens"))
        prompt = as_int(usage.get("input_tokens"))
        details = as_json(usage.get("output_tokens_details"))
        return Usage(
            input=None if prompt is None else max(0, prompt - (cached or 0) - (put or 0)),
            cached=cached,
            cache_write=put,
            output=as_int(usage.get("output_tokens")),
            thinking=as_int(details.get("reasoning_tokens")),
        )

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        if usage is None:
            return native
        total = None if usage.prompt is None else usage.prompt + (usage.output or 0)
        counts = {
            "input_tokens": usage.prompt,
            "output_tokens": usage.output,
            "total_tokens": total,
        }
        read = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
        merged = _laid_over(native, counts)
        for key, details in (
            ("input_tokens_details", read),
            ("output_tokens_details", {"reasoning_tokens": usage.thinking}),
        ):
            if told := _laid_over(as_json(native.get(key)), details):
                merged[key] = told
        return merged

    def wire(self, block: Block) -> Json:
        """Return the block as input of a later request, under no id."""
        return replayed(block)

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        return carries(block)

    def knows(self, kind: str) -> bool:
        return kind in _KNOWN

    def quick_body(self, body: bytes | bytearray) -> Ending | None:
        reasons = {match[1] for match in _DETAILS.finditer(body)}
        if len(reasons) != 1 or _OTHER_STATUS.search(body) is not None:
            return None
        reason = (reasons.pop() or b"completed").decode()
        usage = self.read_usage(last_object(body, "usage"))
        return Ending(stop=self.stop_of(reason, closed=True), raw=reason, usage=usage, text=True)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> CallState:
        """The end of the answer says whether a call's arguments look cut."""
        if not sketch.calls:
            return CallState.NONE
        return CallState.CUT if sketch.delta.get("half") else CallState.WHOLE


def _kind(body: Json) -> str:
    """Return the event that would have ended this answer; unfinished ones end like any other."""
    status = body.get("status")
    return str(status) if status in {"incomplete", "failed", "cancelled"} else "completed"


def _laid_over(native: Json, counts: dict[str, int | None]) -> Json:
    return {**native, **{key: count for key, count in counts.items() if count is not None}}
