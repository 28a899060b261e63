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
from continuation.wire import sse as _sse
from continuation.wire.fast_path import NamedPath
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads, partial
from continuation.wire.text_template import PlainWriter

_KNOWN = frozenset({TEXT, TOOL_CALL, "container_upload"}) | SERVER_CALLS | THINKING
_STOPS = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.WINDOW,
    "refusal": Stop.REFUSED,
}


class MessagesCodec(WireCodec):
    """One Messages answer."""

    ended = "end_turn"
    called = "tool_use"
    truncated = "max_tokens"
    stops = _STOPS
    lasting: tuple[str, ...] = ("container",)

    def reader(self) -> Reader:
        return _Reader()

    def fast_path(self) -> FastPath:
        return NamedPath("content_block_delta")

    def writer(self) -> Writer:
        return _Writer()

    def to_events(self, body: Json) -> Iterator[Json]:
        """Tell a whole message as the events it would have been streamed as."""
        ends = ("stop_reason", "stop_sequence", "stop_details", "container")
        head: Json = {**body, "content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": head}
        for index, block in enumerate(as_list(body.get("content"))):
            yield from _explode_block(index, as_json(block))
        delta = {key: body[key] for key in ends if key in body}
        yield {"type": "message_delta", "delta": delta, "usage": as_json(body.get("usage"))}
        yield {"type": "message_stop"}

    def read_usage(self, usage: Json) -> Usage | None:
        if not usage:
            return None
        details = as_json(usage.get("output_tokens_details"))
        return Usage(
            input=as_int(usage.get("input_tokens")),
            cached=as_int(usage.get("cache_read_input_tokens")),
            cache_write=as_int(usage.get("cache_creation_input_tokens")),
            output=as_int(usage.get("output_tokens")),
            thinking=as_int(details.get("thinking_tokens")),
        )

    def write_usage(self, native: Json, usage: Usage | None) -> Json:
        if usage is None:
            return native
        counts = {
            "input_tokens": usage.input,
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": usage.cache_write,
            "output_tokens": usage.output,
        }
        merged = {**native, **{key: count for key, count in counts.items() if count is not None}}
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
            _FOLD.get(as_text(delta.get("type")), _ignore)(folded, delta)
        if raw := block.pieces("input_json_delta", "partial_json"):
            folded["input"] = partial(raw)
        return folded

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Server tools need their result ("tool use ... without a corresponding ... block")."""
        return answered(block, blocks)

    def knows(self, kind: str) -> bool:
        return kind in _KNOWN or kind.endswith("_tool_result")

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1:
            return None
        reason = (reasons.pop() or b"").decode() or None
        # What filled the window may have cut a call as well.
        window = self.stop_of(reason, closed=True) is Stop.WINDOW
        return None if window else self.quick_result(body, reason)

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


class _Reader:
    """Events are what they are; the name in front may say the type that the data leaves out."""

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        try:
            event = as_json(loads(frame.data)) if frame.data else {}
        except ValueError:
            event = {}
        event.setdefault("type", frame.name)
        return (event,)

    def eof(self) -> Sequence[Json]:
        return ()


_STRINGS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


class _Writer:
    """Writes block events as they are; each says its own index."""

    def __init__(self) -> None:
        self._plain = PlainWriter()

    def open(self, message: Json) -> bytes:
        return _event({"type": "message_start", "message": message})

    def start(self, index: int, block: Block) -> bytes:
        event: Json = {"type": "content_block_start", "index": index}
        return _event({**event, "content_block": block.start})

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = as_text(delta.get("type"))
        key = _STRINGS.get(kind, "")
        text = delta.get(key) if len(delta) == 2 else None

        def write(told: Json) -> bytes:
            return _event({"type": "content_block_delta", "index": index, "delta": told})

        if not isinstance(text, str):
            return write(delta)
        return self._plain.write((index, kind), text, lambda text, _: write({**delta, key: text}))

    def stop(self, index: int, block: Block) -> bytes:
        return _event({"type": "content_block_stop", "index": index})

    def other(self, event: Json) -> bytes:
        return _event(event)

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        """Nothing to do: no event counts the ones before it."""

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        is_open = blocks and not blocks[-1].done
        stop = self.stop(len(blocks) - 1, blocks[-1]) if is_open else b""
        return stop + self.end(blocks, delta, {"output_tokens": 0})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        ending = {"stop_sequence": None, **delta}
        return _event({"type": "message_delta", "delta": ending, "usage": usage}) + _event(
            {"type": "message_stop"}
        )

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        content = [_CODEC.wire(block) for block in blocks]
        ending = {"stop_sequence": None, **delta}
        return dumps({**message, "content": content, **ending, "usage": usage})


_CODEC = MessagesCodec()


def _event(event: Json) -> bytes:
    return _sse.encode(as_text(event.get("type")), dumps(event))


# --- a block's deltas, folded -------------------------------------------------------------------


def _ignore(block: Json, delta: Json) -> None:
    """Text and arguments are joined whole; unknown deltas have no place in a folded block."""


def _thinking(block: Json, delta: Json) -> None:
    block["thinking"] = as_text(block.get("thinking")) + as_text(delta.get("thinking"))


def _signature(block: Json, delta: Json) -> None:
    block["signature"] = delta.get("signature")


def _citation(block: Json, delta: Json) -> None:
    block["citations"] = [*as_list(block.get("citations")), delta.get("citation")]


def _compaction(block: Json, delta: Json) -> None:
    block.update({key: value for key, value in delta.items() if key != "type"})


_FOLD = {
    "thinking_delta": _thinking,
    "signature_delta": _signature,
    "citations_delta": _citation,
    "compaction_delta": _compaction,
}


def _explode_block(index: int, block: Json) -> Iterator[Json]:
    start, deltas = dict(block), list[Json]()
    if block.get("type") == TEXT:
        deltas.append({"type": "text_delta", "text": block.get("text")})
        start["text"] = ""
        for citation in as_list(start.pop("citations", None)):
            deltas.append({"type": "citations_delta", "citation": citation})
    elif block.get("type") == TOOL_CALL:
        raw = dumps(block.get("input")).decode()
        deltas.append({"type": "input_json_delta", "partial_json": raw})
        start["input"] = {}
    elif block.get("type") == "thinking":
        deltas.append({"type": "thinking_delta", "thinking": block.get("thinking")})
        deltas.append({"type": "signature_delta", "signature": block.get("signature")})
        start.update(thinking="", signature="")
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


# --- a body, unparsed ---------------------------------------------------------------------------

_REASON = re.compile(rb'"stop_reason"\s*:\s*(?:"([^"\\]*)"|null)')
