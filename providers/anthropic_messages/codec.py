"""The Messages format: its answers are block events already; what is left is framing and words.

Wire facts: API reference "Messages", docs "Streaming", "Handling stop reasons".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from continuation.answer.blocks import (
    ENDED,
    SERVER_CALLS,
    TEXT,
    THINKING,
    TOOL_CALL,
    Block,
    Segment,
    answered,
)
from continuation.answer.wire_codec import FastPath, PlainReader, Reader, WireCodec, Writer
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire import sse
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, partial
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
_ENDS = ("stop_reason", "stop_sequence", "stop_details", "container")
"""What a message says of its end, and a stream in its last delta."""
_DELTA = frozenset({"type", "delta", "usage"})
_BESIDE = "beside"
"""Our name in that delta for what stands beside it (`context_management`)."""
_TOOLS, _STEPS = "server_tool_use", "iterations"
_REASON = re.compile(rb'"stop_reason"\s*:\s*(?:"([^"\\]*)"|null)')


class MessagesCodec(WireCodec):
    """One Messages answer."""

    ended = "end_turn"
    called = "tool_use"
    truncated = "max_tokens"
    stops = _STOPS
    kinds = (
        frozenset({TEXT, TOOL_CALL, "container_upload", "compaction", "fallback"})
        | SERVER_CALLS
        | THINKING
    )
    lasting = ("container", _BESIDE)
    delta = b'{"type":"content_block_delta"'

    def reader(self) -> Reader:
        return _Reader()

    def fast_path(self) -> FastPath:
        return sse.NamedPath("content_block_delta")

    def writer(self) -> Writer:
        return _Writer()

    def to_events(self, body: Json) -> Sequence[Json]:
        return [*_events_of(body), ENDED]

    def read_usage(self, usage: Json) -> Usage | None:
        if not usage:
            return None
        details = as_json(usage.get("output_tokens_details"))
        counts = {name: as_int(usage.get(key)) for name, key in _COUNTS.items()}
        tools = dict[str, int]()
        for name, value in as_json(usage.get(_TOOLS)).items():
            if (count := as_int(value)) is not None:
                tools[name] = count
        return Usage(**counts, thinking=as_int(details.get("thinking_tokens")), tools=tools or None)

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
        if usage.tools is not None:
            merged[_TOOLS] = {**as_json(native.get(_TOOLS)), **usage.tools}
        return merged

    def add_usage(self, native: Json, later: Json) -> Json:
        """What the provider did one after the other is listed so."""
        listed = [*as_list(native.get(_STEPS)), *as_list(later.get(_STEPS))]
        return {**super().add_usage(native, later), **({_STEPS: listed} if listed else {})}

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


def _events_of(message: Json) -> list[Json]:
    """Tell a message as its opening, its content block by block, and the reason that it ended."""
    opened: Json = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[Json] = [{"type": "message_start", "message": opened}]
    for index, whole in enumerate(as_list(message.get("content"))):
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
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend({"type": "content_block_delta", "index": index, "delta": d} for d in deltas)
        events.append({"type": "content_block_stop", "index": index})
    delta = {key: message[key] for key in _ENDS if key in message}
    if edited := message.get("context_management"):
        delta[_BESIDE] = {"context_management": edited}
    usage = as_json(message.get("usage"))
    return [*events, {"type": "message_delta", "delta": delta, "usage": usage}]


_LASTING = frozenset(
    f"{kind}_error"
    for kind in ("invalid_request", "authentication", "permission", "not_found", "billing")
)
"""Errors that would be told again, however often one asks."""


class _Reader(PlainReader):
    """Events are what they are; the name in front may say the type that the data leaves out."""

    def __init__(self) -> None:
        self._plain = PlainEvents(_string, {})

    def events(self, frame: sse.Frame) -> Sequence[Json]:
        if (plain := self._plain.match(frame)) is not None:
            return (plain,)
        event = sse.typed(frame)
        if event["type"] == "content_block_delta":  # it says its index: no other event changes it
            self._plain.learn(frame, (event,))
        elif event["type"] == "content_block_start":
            if as_json(event.get("content_block")).get("input"):
                event["args_verified"] = False  # parsed by the server, as in a body
        elif event["type"] == "error":
            error = as_json(event.get("error"))
            event["error"] = {**error, "lasting": error.get("type") in _LASTING}
        elif event["type"] == "message_start":
            message = as_json(event.get("message"))
            if message.get("content") or message.get("stop_reason"):
                return _events_of(message)
        elif event["type"] == "message_delta" and (more := event.keys() - _DELTA):
            beside = {key: event[key] for key in more}
            event["delta"] = {**as_json(event.get("delta")), _BESIDE: beside}
        return (event,)


def _string(event: Json) -> object:
    """Return the text of an event that says nothing beside it."""
    delta = as_json(event["delta"]) if event["type"] == "content_block_delta" else {}
    return delta[KEYS[as_text(delta["type"])]]


class _Writer(Writer):
    """Writes block events as they are; each says its own index."""

    def __init__(self) -> None:
        self._plain = PlainWriter()
        self._due = b""
        """The opening, where it was held with what it holds."""

    def open(self, message: Json) -> bytes:
        return _event({"type": "message_start", "message": message})

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        self._due = b"" if shown or not message else self.open(message)

    def start(self, index: int, block: Block) -> bytes:
        due, self._due = self._due, b""
        begun: Json = {"type": "content_block_start", "index": index, "content_block": block.start}
        return due + _event(begun)

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = as_text(delta.get("type"))
        if "by" in delta:  # what is cited are places in documents, not in the answer
            delta = {name: value for name, value in delta.items() if name != "by"}
        key = KEYS.get(kind, "")
        text = delta.get(key) if len(delta) == 2 else None

        def write(text: str | None, _: int = 0) -> bytes:
            fields = delta if text is None else {**delta, key: text}
            return _event({"type": "content_block_delta", "index": index, "delta": fields})

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
        return self._due + stop + self._ending(delta, {"output_tokens": 0})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        return self._due + self._ending(delta, usage)

    def _ending(self, delta: Json, usage: Json) -> bytes:
        ending = {"stop_sequence": None, **delta}
        beside = as_json(ending.pop(_BESIDE, None))
        last = _event({"type": "message_delta", "delta": ending, "usage": usage, **beside})
        return last + _event(ENDED)

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        codec = MessagesCodec()
        content = [codec.wire(block) for block in blocks]
        ending = {"stop_sequence": None, **delta}
        ending |= as_json(ending.pop(_BESIDE, None))
        return {**message, "content": content, **ending, "usage": usage}


def _event(event: Json) -> bytes:
    return sse.encode(as_text(event.get("type")), dumps(event))
