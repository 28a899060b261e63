"""Writes block events and complete answers as Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from continuation.providers.contract import Writer
from continuation.types import Json
from continuation.wire import sse as _sse
from continuation.wire.blocks import TEXT, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps
from continuation.wire.text_template import KEYS, PlainWriter

DONE = b"data: [DONE]\n\n"
_CHUNK, _WHOLE = "chat.completion.chunk", "chat.completion"
_NONE: Json = {}
_SPEAKER: Json = {"role": "assistant", "content": ""}


class ChatWriter(Writer):
    """Writes chunks with the first attempt's id and fields, or a complete body."""

    def __init__(self, *, usage_asked: bool) -> None:
        self._usage_asked = usage_asked
        self._head: Json = {}
        self._speaker = _SPEAKER
        self._logprobs = False
        self._role_due = False
        self._calls: dict[int, int] = {}
        """The index of a call's block -> the number of the call."""
        self._plain = PlainWriter()

    def open(self, message: Json) -> bytes:
        self._name(message)
        self._role_due = False
        return self._encode(self._speaker)

    def start(self, index: int, block: Block) -> bytes:
        if block.kind != TOOL_CALL:
            return b""
        if block.start.get("legacy"):
            legacy = {"name": block.start.get("name"), "arguments": ""}
            return self._chunk({"function_call": legacy})
        number = self._calls[index] = len(self._calls)
        return self._chunk({"tool_calls": [{"index": number, **call_of(block, "")}]})

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = as_text(delta.get("type"))
        key = KEYS.get(kind, "")
        text = delta.get(key) if len(delta) == 2 else None
        if isinstance(text, str) and not self._role_due:
            return self._plain.write(
                (kind, index),
                text,
                lambda text, _: self._chunk(self._delta(index, block, {"type": kind, key: text})),
            )
        fields = self._delta(index, block, delta)
        return self._chunk(fields, as_json(delta.get("choice")), as_json(delta.get("chunk")))

    def _delta(self, index: int, block: Block, delta: Json) -> Json:
        kind = delta.get("type")
        if kind == "text_delta":
            return {"content": delta.get("text")}
        if kind == "input_json_delta":
            piece = {"input" if block.free else "arguments": delta.get("partial_json")}
            if block.start.get("legacy"):
                return {"function_call": piece}
            own = "custom" if block.free else "function"
            return {"tool_calls": [{"index": self._calls.get(index, 0), own: piece}]}
        native = as_json(delta.get("native"))
        if kind == "call_delta":  # the SDK cannot add a piece without `function`
            blank: Json = {"custom" if block.free else "function": {}}
            return {"tool_calls": [{"index": self._calls.get(index, 0), **blank, **native}]}
        if kind == "thinking_delta" and not native:
            return {"reasoning_content": delta.get("thinking")}
        return _shifted(native, delta)

    def other(self, event: Json) -> bytes:
        """Return a later attempt's preface (Azure's) if nothing was delivered yet, or `b""`."""
        return _sse.encode("", dumps(as_json(event.get("chunk")))) if self._role_due else b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        self._name(message)
        self._role_due = shown == 0
        calls = [i for i, block in enumerate(blocks) if block.kind == TOOL_CALL]
        self._calls = {index: number for number, index in enumerate(calls)}

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        reason = as_text(delta.get("stop_reason")) or "length"
        role = self._encode(self._speaker) if self._role_due else b""
        return role + self._encode({}, reason=reason) + DONE

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        around, beside = as_json(delta.get("choice")), dict(as_json(delta.get("chunk")))
        inline = bool(usage) and bool(delta.get("inline"))
        if inline:
            beside["usage"] = usage
        ending = self._chunk({}, around, beside, _finish(blocks, delta))
        if usage and (self._usage_asked or delta.get("counted")) and not inline:
            counted = dumps({**self._head, "choices": [], "usage": usage})
            ending += _sse.encode("", counted)
        return ending + DONE

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        choice, first = as_json(message.get("choice")), as_json(message.get("said"))
        text = "".join(block.text for block in blocks if block.kind == TEXT)
        whole: Json = {"role": "assistant", "content": None, **first, **folded(blocks)}
        if text:
            whole["content"] = text
        head = {k: v for k, v in message.items() if k not in {"choice", "said", "logprobs"}}
        if head.get("object") == _CHUNK:
            head["object"] = _WHOLE
        counted = {"usage": usage} if usage else {}
        beside, around = dict[str, object](), dict(choice)
        for each in (*(each for block in blocks for each in block.deltas), delta):
            beside |= as_json(each.get("chunk"))
            around |= as_json(each.get("choice"))
        own = {"index": 0, **around, "message": whole, "finish_reason": _finish(blocks, delta)}
        return {**head, **beside, "choices": [own], **counted}

    # --- chunks --------------------------------------------------------------------------------

    def _name(self, message: Json) -> None:
        """Store the first attempt's id and the other fields that each of its chunks has."""
        self._logprobs = bool(message.get("logprobs"))
        self._speaker = {**_SPEAKER, **as_json(message.get("said"))}
        head = {k: v for k, v in message.items() if k not in {"logprobs", "choice", "said"}}
        kind = head.get("object")
        self._head = {**head, "object": _CHUNK if not kind or kind == _WHOLE else kind}
        self._plain = PlainWriter()

    def _chunk(
        self, delta: Json, choice: Json = _NONE, chunk: Json = _NONE, reason: str | None = None
    ) -> bytes:
        """Return a chunk. If the role was not delivered yet, a chunk with the role precedes it."""
        role, self._role_due = self._encode(self._speaker) if self._role_due else b"", False
        return role + self._encode(delta, choice, chunk, reason)

    def _encode(
        self, delta: Json, choice: Json = _NONE, chunk: Json = _NONE, reason: str | None = None
    ) -> bytes:
        own: Json = {"index": 0, "delta": delta}
        if self._logprobs:
            own["logprobs"] = None
        own |= {"finish_reason": reason, **choice}
        return _sse.encode("", dumps({**self._head, **chunk, "choices": [own]}))


def _finish(blocks: Sequence[Block], delta: Json) -> str:
    """Return the stop reason. If the server sent none, it is "tool_calls" or "stop"."""
    called = any(block.kind == TOOL_CALL for block in blocks)
    return as_text(delta.get("stop_reason")) or ("tool_calls" if called else "stop")


def call_of(block: Block, arguments: str) -> Json:
    """Return a call in the form that it has in a message, with the vendor's own fields."""
    native = as_json(block.start.get("native"))
    own, field = ("custom", "input") if block.free else ("function", "arguments")
    inner = {**as_json(native.get(own)), "name": block.start.get("name"), field: arguments}
    kept = {k: v for k, v in native.items() if k not in {"index", "id", own} and v is not None}
    call: Json = {"id": block.start.get("id"), "type": own, **kept, own: inner}
    for delta in block.deltas:
        if delta.get("type") == "call_delta":
            more = dict(as_json(delta.get("native")))
            inner["name"] = as_text(inner["name"]) + as_text(
                as_json(more.pop(own, None)).get("name")
            )
            call |= more
    return call


def folded(blocks: Sequence[Block]) -> Json:
    """Return blocks as one assistant message, with the vendor's own fields."""
    message: Json = {}
    calls = list[Json]()
    for block in blocks:
        if block.kind == TOOL_CALL and block.start.get("legacy"):
            function = {"name": block.start.get("name"), "arguments": block.arguments}
            message["function_call"] = function
        elif block.kind == TOOL_CALL:
            calls.append(call_of(block, block.arguments))
        if block.kind == TEXT and (text := block.text):
            message["content"] = as_text(message.get("content")) + text
        for delta in block.deltas:
            if "native" in delta and delta.get("type") != "call_delta":
                _fold(message, _shifted(as_json(delta["native"]), delta))
    if calls:
        message["tool_calls"] = calls
    return message


def _fold(message: Json, native: Json) -> None:
    """Add fields to a message: join texts and lists, merge objects, replace other values."""
    for key, value in native.items():
        held: Any = message.get(key)
        if isinstance(held, str) and isinstance(value, str):
            message[key] = held + value
        elif isinstance(held, list):
            message[key] = [*held, *as_list(value)]
        elif as_json(held) and (value == {} or as_json(value)):
            message[key] = {**as_json(held), **as_json(value)}
        else:
            message[key] = value


def _shifted(native: Json, delta: Json) -> Json:
    """Return a delta with annotations that have positions in the turn's text.

    The server's positions count in the attempt's text.
    """
    notes, shift = as_list(native.get("annotations")), as_int(delta.get("by"))
    if not (notes and shift):
        return native
    return {**native, "annotations": [_moved(as_json(note), shift) for note in notes]}


def _moved(note: Json, shift: int) -> Json:
    moved = dict(note)
    for key, value in note.items():
        if inner := as_json(value):
            moved[key] = _moved(inner, shift)
        elif key in {"start_index", "end_index"} and isinstance(value, int):
            moved[key] = value + shift
    return moved
