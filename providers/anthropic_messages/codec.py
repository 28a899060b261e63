"""The Messages format: its answers are block events already; what is left is framing and words.

Wire facts: API reference "Messages", docs "Streaming", "Handling stop reasons".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from continuation.answer.blocks import (
    SERVER_CALLS,
    TEXT,
    THINKING,
    TOOL_CALL,
    Block,
    Segment,
    answered,
)
from continuation.answer.wire_codec import FastPath, Reader, WireCodec, Writer
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire import sse
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads, partial
from continuation.wire.text_template import KEYS, PlainEvents, PlainWriter

_STOPS = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.WINDOW,
    "refusal": Stop.REFUSED,
}
_COUNTS = {
    "input": "input_tokens",
    "cached": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
    "output": "output_tokens",
}
"""Our names of counts, and the provider's."""
_REASON = re.compile(rb'"stop_reason"\s*:\s*(?:"([^"\\]*)"|null)')


class MessagesCodec(WireCodec):
    """One Messages answer."""

    ended = "end_turn"
    called = "tool_use"
    truncated = "max_tokens"
    stops = _STOPS
    kinds = frozenset({TEXT, TOOL_CALL, "container_upload"}) | SERVER_CALLS | THINKING
    lasting = ("container",)

    def reader(self) -> Reader:
        return _Reader()

    def fast_path(self) -> FastPath:
        return sse.NamedPath("content_block_delta")

    def writer(self) -> Writer:
        return _Writer()

    def to_events(self, body: Json) -> Iterator[Json]:
        """Tell a whole message as the events it would have been streamed as."""
        ends = ("stop_reason", "stop_sequence", "stop_details", "container")
        head: Json = {**body, "content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": head}
        for index, whole in enumerate(as_list(body.get("content"))):
            block = as_json(whole)
            kind, start, deltas = block.get("type"), dict(block), list[Json]()
            if kind == TEXT:
                deltas.append({"type": "text_delta", "text": block.get("text")})
                start["text"] = ""
                for citation in as_list(start.pop("citations", None)):
                    deltas.append({"type": "citations_delta", "citation": citation})
            elif kind == TOOL_CALL:
                raw = dumps(block.get("input")).decode()
                deltas.append({"type": "input_json_delta", "partial_json": raw})
                start["input"] = {}
            elif kind == "thinking":
                deltas.append({"type": "thinking_delta", "thinking": block.get("thinking")})
                deltas.append({"type": "signature_delta", "signature": block.get("signature")})
                start.update(thinking="", signature="")
            yield {"type": "content_block_start", "index": index, "content_block": start}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        delta = {key: body[key] for key in ends if key in body}
        yield {"type": "message_delta", "delta": delta, "usage": as_json(body.get("usage"))}
        yield {"type": "message_stop"}

    def read_usage(self, usage: Json) -> Usage | None:
        if not usage:
            return None
        details = as_json(usage.get("output_tokens_details"))
        counts = {name: as_int(usage.get(key)) for name, key in _COUNTS.items()}
        return Usage(**counts, thinking=as_int(details.get("thinking_tokens")))

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        if usage is None:
            return native
        merged = dict(native)
        for name, key in _COUNTS.items():
            if (count := getattr(usage, name)) is not None:
                merged[key] = count
        if usage.thinking is not None:
            details = as_json(native.get("output_tokens_details"))
            merged["output_tokens_details"] = {**details, "thinking_tokens": usage.thinking}
        return merged

    def wire(self, block: Block) -> Json:
        """Return the block as a non-streamed answer would hold it."""
        folded = dict(block.start)
        if block.kind == TEXT:
            folded["text"] = block.text
        for delta in block.deltas:
            kind = delta.get("type")
            if kind == "thinking_delta":
                thought = as_text(folded.get("thinking")) + as_text(delta.get("thinking"))
                folded["thinking"] = thought
            elif kind == "signature_delta":
                folded["signature"] = delta.get("signature")
            elif kind == "citations_delta":
                folded["citations"] = [*as_list(folded.get("citations")), delta.get("citation")]
            elif kind == "compaction_delta":
                folded |= {key: value for key, value in delta.items() if key != "type"}
            # Text and arguments are joined whole; other deltas have no place in a folded block.
        if raw := block.pieces("input_json_delta", "partial_json"):
            folded["input"] = partial(raw)
        return folded

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Server tools need their result ("tool use ... without a corresponding ... block")."""
        return answered(block, blocks)

    def knows(self, kind: str) -> bool:
        return kind in self.kinds or kind.endswith("_tool_result")

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1:
            return None
        reason = (reasons.pop() or b"").decode() or None
        if self.stops.get(reason or "") is Stop.WINDOW:
            return None  # what filled the window may have cut a call as well
        return self.quick_result(body, reason)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Look at the last delta only: arguments that do not end in a brace are not whole."""
        if not sketch.calls:
            return ToolCallState.NONE
        at = raw.rfind(b'"partial_json"')
        tail = bytes(raw[at : raw.find(b"\n", at)]) if at >= 0 else b""
        found = re.search(rb'"partial_json"\s*:\s*"((?:[^"\\]|\\.)*)"', tail)
        if found is None or found[1].rstrip().endswith(b"}") or not found[1]:
            return ToolCallState.WHOLE
        return ToolCallState.CUT


class _Reader(Reader):
    """Events are what they are; the name in front may say the type that the data leaves out."""

    def __init__(self) -> None:
        self._plain = PlainEvents(_string, {})

    def events(self, frame: sse.Frame) -> Sequence[Json]:
        if (plain := self._plain.match(frame)) is not None:
            return (plain,)
        try:
            event = as_json(loads(frame.data)) if frame.data else {}
        except ValueError:
            event = {}
        event.setdefault("type", frame.name)
        if event["type"] == "content_block_delta":  # it says its index: no other event changes it
            self._plain.learn(frame, (event,))
        return (event,)

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        return self._plain.deltas(raw, index, text=text)


def _string(event: Json) -> object:
    """Return the text of an event that says nothing beside it."""
    delta = as_json(event["delta"]) if event["type"] == "content_block_delta" else {}
    return delta[KEYS[as_text(delta["type"])]]


class _Writer(Writer):
    """Writes block events as they are; each says its own index."""

    def __init__(self) -> None:
        self._plain = PlainWriter()

    def open(self, message: Json) -> bytes:
        return _event({"type": "message_start", "message": message})

    def start(self, index: int, block: Block) -> bytes:
        return _event({"type": "content_block_start", "index": index, "content_block": block.start})

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = as_text(delta.get("type"))
        key = KEYS.get(kind, "")
        text = delta.get(key) if len(delta) == 2 else None

        def write(text: str | None, _: int = 0) -> bytes:
            said = delta if text is None else {**delta, key: text}
            return _event({"type": "content_block_delta", "index": index, "delta": said})

        if not isinstance(text, str):
            return write(None)
        return self._plain.write((index, kind), text, write)

    def stop(self, index: int, block: Block) -> bytes:
        return _event({"type": "content_block_stop", "index": index})

    def other(self, event: Json) -> bytes:
        return _event(event)

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        is_open = blocks and not blocks[-1].done
        stop = self.stop(len(blocks) - 1, blocks[-1]) if is_open else b""
        return stop + self.end(blocks, delta, {"output_tokens": 0})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        ending = {"stop_sequence": None, **delta}
        last = _event({"type": "message_delta", "delta": ending, "usage": usage})
        return last + _event({"type": "message_stop"})

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        codec = MessagesCodec()
        content = [codec.wire(block) for block in blocks]
        ending = {"stop_sequence": None, **delta}
        return dumps({**message, "content": content, **ending, "usage": usage})


def _event(event: Json) -> bytes:
    return sse.encode(as_text(event.get("type")), dumps(event))
