"""Reads and writes answers in the Messages format. Its events are block events already.

Wire facts: API reference "Messages", docs "Streaming", "Handling stop reasons".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from continuation.providers.contract import WORD, FastPath, PlainReader, Reader, WireCodec, Writer
from continuation.types import AttemptResult, Json, Stop, ToolCallState, Usage
from continuation.wire import sse
from continuation.wire.blocks import (
    ENDED,
    SERVER_CALLS,
    TEXT,
    THINKING,
    TOOL_CALL,
    Block,
    Segment,
    answered,
)
from continuation.wire.json_values import as_int, as_json, as_key, as_list, as_text, dumps, partial
from continuation.wire.text_template import KEYS, PlainEvents, PlainWriter

_STOPS = {
    **dict.fromkeys(("end_turn", "tool_use", "stop_sequence"), Stop.END),
    # Some gateways pass on the stop reasons of other formats.
    **dict.fromkeys(("stop", "tool_calls", "completed"), Stop.END),
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.WINDOW,
    "refusal": Stop.REFUSED,
    "pause_turn": Stop.PAUSED,
    # The caller requested the pause (`pause_after_compaction`), and continues from it.
    "compaction": Stop.END,
}
_SPEECH = re.compile(
    rb'"text"\s*:\s*%b|"type"\s*:\s*"(?!(?:text|thinking|redacted_thinking|message)")[a-z_]+"'
    % WORD
)
"""Matches a text that is not empty, and a block of another type than text and thinking."""
_COUNTS = {
    "input": "input_tokens",
    "cached": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
    "output": "output_tokens",
}
"""The fields of `Usage` -> the provider's names of the counts."""
_ENDS = ("stop_reason", "stop_sequence", "stop_details", "container")
"""The fields of a message that a stream has in the delta of its last `message_delta`."""
_DELTA = frozenset({"type", "delta", "usage"})
_BESIDE = "beside"
"""Our key in that delta for other fields of the `message_delta` event (`context_management`)."""
_TOOLS, _STEPS = "server_tool_use", "iterations"
_REASON = re.compile(rb'"stop_reason"\s*:\s*(?:"([^"\\]*)"|null)')


class MessagesCodec(WireCodec):
    """The codec of the Messages format."""

    ended = "end_turn"
    called = "tool_use"
    truncated = "max_tokens"
    stops = _STOPS
    speech = _SPEECH
    sends_back = True
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
        counts: dict[str, Any] = {name: as_int(usage.get(key)) for name, key in _COUNTS.items()}
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
        """Join the `iterations` of both attempts."""
        listed = [*as_list(native.get(_STEPS)), *as_list(later.get(_STEPS))]
        return {**super().add_usage(native, later), **({_STEPS: listed} if listed else {})}

    def wire(self, block: Block) -> Json:
        """Return the block in the form that it has in an answer that is not streamed."""
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
            # Text and arguments are joined outside this loop. Other deltas are not in a body.
        if raw := block.pieces("input_json_delta", "partial_json"):
            folded["input"] = partial(raw)
        return folded

    def carries(self, block: Block, blocks: Sequence[Block]) -> bool:
        """Return `False` for a server's call without a result.

        The API refuses it ("tool use ... without a corresponding block").
        """
        return answered(block, blocks)

    def knows(self, kind: str) -> bool:
        return kind in self.kinds or kind.endswith("_tool_result")

    def quick_body(self, body: bytes | bytearray) -> AttemptResult | None:
        reasons = {match[1] for match in _REASON.finditer(body)}
        if len(reasons) != 1:
            return None
        reason = (reasons.pop() or b"").decode() or None
        if self.stops.get(reason or "") is Stop.WINDOW:
            return None  # a call may also have been truncated at the full context window
        return self.quick_result(body, reason)

    def quick_calls(self, raw: bytearray, sketch: Segment) -> ToolCallState:
        """Examine only the last arguments delta. Return `CUT` if it does not end in a brace."""
        if not sketch.calls:
            return ToolCallState.NONE
        at = raw.rfind(b'"partial_json"')
        tail = bytes(raw[at : raw.find(b"\n", at)]) if at >= 0 else b""
        found = re.search(rb'"partial_json"\s*:\s*"((?:[^"\\]|\\.)*)"', tail)
        if found is None or found[1].rstrip().endswith(b"}") or not found[1]:
            return ToolCallState.WHOLE
        return ToolCallState.CUT


def _events_of(message: Json) -> list[Json]:
    """Return a message as block events: its opening, its blocks, and its stop reason."""
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
"""Errors that the server would send again if the request were resent."""


class _Reader(PlainReader):
    """Returns events unchanged. If the data has no type, the event's name is its type."""

    def __init__(self) -> None:
        self._plain = PlainEvents(_string, {})

    def events(self, frame: sse.Frame) -> Sequence[Json]:
        if (plain := self._plain.match(frame)) is not None:
            return (plain,)
        event = sse.typed(frame)
        if not isinstance(event["type"], str) or as_key(event.get("index")) != event.get("index"):
            return ()  # malformed: the caller gets it unchanged, and no later event refers to it
        if event["type"] == "content_block_delta":  # it has its index, so others do not change it
            self._plain.learn(frame, (event,))
        elif event["type"] == "content_block_start":
            if as_json(event.get("content_block")).get("input"):
                event |= {"args_verified": False, "parsed": True}  # as in a body
        elif event["type"] == "error":
            error = as_json(event.get("error"))
            event["error"] = {**error, "lasting": as_text(error.get("type")) in _LASTING}
        elif event["type"] == "message_start":
            message = as_json(event.get("message"))
            if message.get("content") or message.get("stop_reason"):
                return _events_of(message)
        elif event["type"] == "message_delta" and (more := event.keys() - _DELTA):
            beside = {key: event[key] for key in more}
            event["delta"] = {**as_json(event.get("delta")), _BESIDE: beside}
        return (event,)


def _string(event: Json) -> object:
    """Return the text of a decoded delta event. Raises `LookupError` for another event."""
    delta = as_json(event["delta"]) if event["type"] == "content_block_delta" else {}
    return delta[KEYS[as_text(delta["type"])]]


class _Writer(Writer):
    """Writes block events unchanged. Each event has its own index."""

    def __init__(self) -> None:
        self._plain = PlainWriter()
        self._due = b""
        """The opening, if nothing was delivered before `resume` and it must still be written."""

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
        if "by" in delta:  # citations have positions in documents, not in the answer
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
        return stop + self.end(blocks, delta, {"output_tokens": 0})

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        ending = {"stop_sequence": None, **delta}
        beside = as_json(ending.pop(_BESIDE, None))
        last = _event({"type": "message_delta", "delta": ending, "usage": usage, **beside})
        return self._due + last + _event(ENDED)

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        codec = MessagesCodec()
        content = [codec.wire(block) for block in blocks]
        ending = {"stop_sequence": None, **delta}
        ending |= as_json(ending.pop(_BESIDE, None))
        return {**message, "content": content, **ending, "usage": usage}


def _event(event: Json) -> bytes:
    return sse.encode(as_text(event.get("type")), dumps(event))
