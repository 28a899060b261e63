"""The codec of the Responses format: stop reasons, usage, and how answers are read quickly.

Wire facts: API reference "Responses", "Streaming events", and the types and the stream state of
openai 3.5x.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from continuation.providers.contract import WORD, FastPath, Reader, WireCodec, Writer
from continuation.providers.openai_common.usage import RESPONSES
from continuation.providers.openai_responses.items import (
    LIVE,
    PARTS,
    RESENT,
    SERVER_ITEMS,
    final,
    replayed,
)
from continuation.providers.openai_responses.reader import ResponsesReader
from continuation.providers.openai_responses.writer import Finished, ResponsesWriter
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire.blocks import THINKING, TOOL_CALL, Block, Segment
from continuation.wire.json_values import as_json, as_text
from continuation.wire.sse import NamedPath

_STOPS = {
    "completed": Stop.END,
    "max_output_tokens": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,  # some gateways pass on the stop reason of another format
    "length": Stop.LENGTH,
    "content_filter": Stop.REFUSED,
    "failed": Stop.REFUSED,  # temporary failures become error events instead (`reader.on_ended`)
}
_DETAILS = re.compile(rb'"incomplete_details"\s*:\s*(?:null|\{\s*"reason"\s*:\s*"([^"\\]*)"\s*\})')
_SPEECH = re.compile(rb'"type"\s*:\s*"output_text"\s*,[^{}]*?"text"\s*:\s*%b' % WORD)
_CALLED = re.compile(rb'"type"\s*:\s*"function_call"')
_OTHER = frozenset({"incomplete", "failed", "cancelled"})
_OTHER_STATUS = re.compile(rb'"status"\s*:\s*"(?:failed|cancelled)"')


class ResponsesCodec(WireCodec):
    """The codec of Responses, for one request."""

    ended = "completed"
    called = "completed"
    truncated = "max_output_tokens"
    stops = _STOPS
    speech = _SPEECH
    kinds = PARTS | THINKING | SERVER_ITEMS | {TOOL_CALL}
    served = SERVER_ITEMS
    live = LIVE

    def __init__(self, finished: Finished) -> None:
        self._finished = finished

    def reader(self) -> Reader:
        return ResponsesReader()

    def identity(self, message: Json) -> str:
        return as_text(as_json(message.get("response")).get("id"))

    def fast_path(self) -> FastPath:
        return NamedPath(
            "response.output_text.delta",
            "response.reasoning_summary_text.delta",
            "response.reasoning_text.delta",
            "response.function_call_arguments.delta",
            "response.custom_tool_call_input.delta",
        )

    def writer(self) -> Writer:
        return ResponsesWriter(self._finished)

    def to_events(self, body: Json) -> Iterator[Json]:
        """Yield the block events of a body."""
        reader = ResponsesReader()
        begun: Json = {**body, "output": [], "usage": None}
        yield from reader.tell({"type": "response.created", "response": begun})
        # This event would have ended a stream. Any other status means `completed`.
        status = as_text(body.get("status"))
        kind = status if status in _OTHER else "completed"
        yield from reader.tell({"type": f"response.{kind}", "response": body})

    def read_usage(self, usage: Json) -> Usage | None:
        return RESPONSES.read(usage)

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        return RESPONSES.write(native, usage)

    def wire(self, block: Block) -> Json:
        """Return the block as an input item of a later request. It has no id."""
        return replayed(block)

    def rest_of(self, call: Block, arrived: str, arguments: str) -> list[Json]:
        """Add the item itself if the server called it incomplete.

        The free text of a custom call does not show whether it is complete.
        """
        deltas, item = super().rest_of(call, arrived, arguments), final(call)
        if call.free and "status" in item:
            deltas.append({"type": "item", "item": {**item, "status": "completed"}})
        return deltas

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Whether a block can be sent without an id. Other items of the provider cannot."""
        return block.kind in RESENT

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        """Return `None` also for calls: some servers label a truncated one as completed."""
        if _CALLED.search(body) is not None:
            return None
        reasons = {match[1] for match in _DETAILS.finditer(body)}
        if len(reasons) != 1 or _OTHER_STATUS.search(body) is not None:
            return None
        return self.quick_result(body, (reasons.pop() or b"completed").decode())

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Return `CUT` if the reader found a call that looks truncated."""
        if not sketch.calls:
            return ToolCallState.NONE
        return ToolCallState.CUT if sketch.delta.get("half") else ToolCallState.WHOLE
