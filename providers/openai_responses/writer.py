"""Writes block events as Responses events, and complete answers as bodies.

A stream has the first attempt's id, which was delivered before other attempts were joined to it. A
body has the id under which the server has stored all of it, or else an id that no server has
(design/decisions/0038-ids-of-healed-responses.md).

Event numbers continue those that were delivered. An item that a later attempt continues keeps its
id and index. An item that a later attempt began gets the next index. It also gets a new id if the
server would require, for its own id, reasoning that the caller never gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from continuation.providers.openai_responses.items import (
    PARTS,
    TYPED,
    at_start,
    final_part,
    held_as,
    joined_id,
    placed,
    renamed,
    same_item,
    written,
)
from continuation.types import Json
from continuation.wire import sse as _sse
from continuation.wire.blocks import REFUSAL, TEXT, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps
from continuation.wire.text_template import KEYS, PlainWriter

Finished: TypeAlias = Callable[[Json, Json, str], None]
"""Called before a response is delivered: with the response, the last attempt's response, and the id
of the first attempt's response."""

_ARGUMENTS = {
    "function_call": "response.function_call_arguments",
    "custom_tool_call": "response.custom_tool_call_input",
}
_BLANK: Json = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
"""The start of a message for which the server sent no item."""
_STATUSES = frozenset({"completed", "failed", "cancelled"})
"""The stop reasons that are statuses. With any other one the answer is incomplete."""
_TRUNCATED = "max_output_tokens"
_SETTLED = ("service_tier", "content_filters", "input_transformations")
"""The fields of which only the end of an answer has the final value."""


class ResponsesWriter:
    """Writes one answer."""

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self._response: Json = {}
        self._number = 0
        self._place = self._part = -1
        self._message: list[Block] = []
        """The parts so far of the message that is written now."""
        self._ids = _Ids()
        self._plain = PlainWriter()

    def open(self, message: Json) -> bytes:
        self._response = as_json(message.get("response"))
        fields: Json = {"response": self._response}
        return self._event("response.created", fields) + self._event("response.in_progress", fields)

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        """Continue the numbers and indices of the first attempt's events."""
        self._response = as_json(message.get("response"))
        self._number = (as_int(message.get("number")) or 0) + shown
        for block in blocks:
            self._ids.final_item(block)
            self._stand_in(block)
            place = as_int(block.start.get("output_index"))
            self._place = self._place if place is None else place

    # --- items and their parts -----------------------------------------------------------------

    def start(self, index: int, block: Block) -> bytes:
        begun, item = b"", self._ids.final_item(block)
        if not self._is_next_part(block):
            ended = self._end_message(cut=False)
            self._place += 1
            announced: Json = {"output_index": self._place, "item": at_start(item)}
            begun = ended + self._event("response.output_item.added", announced)
        self._stand_in(block)
        if block.kind not in PARTS:
            return begun
        ours: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        part = as_json(block.start.get("part")) or ours
        return begun + self._event("response.content_part.added", {**self._at(block), "part": part})

    def _is_next_part(self, block: Block) -> bool:
        here = bool(self._message) and block.kind in PARTS
        return here and same_item(self._message[-1], block)

    def _stand_in(self, block: Block) -> None:
        """Make a block the one that is written now."""
        if self._is_next_part(block):
            self._message.append(block)
        else:
            self._message = [block] if block.kind in PARTS else []
        self._part = len(self._message) - 1

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = as_text(delta.get("type"))
        if kind == "text_delta" and "logprobs" in delta:
            fields = {"delta": delta.get("text"), "logprobs": delta["logprobs"]}
            return self._event("response.output_text.delta", {**self._at(block), **fields})
        if kind in {"text_delta", "input_json_delta"}:
            item = as_json(block.start.get("item"))

            def write(text: str, number: int) -> bytes:
                at, count = self._at(block), {"sequence_number": number}
                name, data = "response.output_text", {**count, **at, "delta": text, "logprobs": []}
                if kind == "input_json_delta":
                    name = _ARGUMENTS.get(as_text(item.get("type")), "")
                    data = {**at, "delta": text, **count}
                return _sse.encode(f"{name}.delta", dumps({"type": f"{name}.delta", **data}))

            key = as_text(item.get("id")), self._place, self._part
            made = self._plain.write(key, as_text(delta.get(KEYS[kind])), write, self._number)
            self._number += 1
            return made
        if kind == "annotation":
            count = sum(d.get("type") == "annotation" for d in block.deltas)
            fields = {"annotation_index": count - 1, "annotation": placed(delta)}
            name = "response.output_text.annotation.added"
            return self._event(name, {**self._at(block), **fields})
        event = as_json(delta.get("event"))
        return self._event(as_text(event.get("type")), event | self._at(block)) if event else b""

    def stop(self, index: int, block: Block) -> bytes:
        at, done = self._at(block), b""
        if block.kind in PARTS:
            part = final_part(block)
            if block.kind == TEXT:
                fields: Json = {"text": block.text, "logprobs": part.get("logprobs", [])}
                done = self._event("response.output_text.done", {**at, **fields})
            elif block.kind == REFUSAL:
                done = self._event("response.refusal.done", {**at, REFUSAL: part.get(REFUSAL, "")})
            return done + self._event("response.content_part.done", {**at, "part": part})
        item = written([block], ended=True)[0]
        kind = as_text(item.get("type"))
        if block.kind == TOOL_CALL and kind in TYPED:
            named = {"name": item.get("name")} if kind == "function_call" else {}
            fields = {TYPED[kind]: block.arguments, **named}
            done = self._event(f"{_ARGUMENTS[kind]}.done", {**at, **fields})
        ended: Json = {"output_index": self._place, "item": item}
        return done + self._event("response.output_item.done", ended)

    def _end_message(self, *, cut: bool) -> bytes:
        """Return the end of the message that is written now; `b""`: there is none."""
        if not self._message:
            return b""
        item = written(self._message, ended=not cut)[0]
        self._message = []
        return self._event("response.output_item.done", {"output_index": self._place, "item": item})

    def _at(self, block: Block) -> Json:
        """Return the item id and the indices that the events of a block have."""
        name = as_text(as_json(block.start.get("item")).get("id"))
        at: Json = {"item_id": name, "output_index": self._place}
        return {**at, "content_index": self._part} if block.kind in PARTS else at

    # --- the answer ----------------------------------------------------------------------------

    def other(self, event: Json) -> bytes:
        """Return an event about no item and no response; `b""` for another event."""
        if "response" in event or "output_index" in event:
            return b""
        return self._event(as_text(event.get("type")), event)

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        """Return only the last event of an incomplete response. Open items get no end events."""
        response = self._whole(blocks, {**delta, "stop_reason": _TRUNCATED}, {})
        event = {"type": "response.incomplete", "sequence_number": self._number}
        return _sse.encode("response.incomplete", dumps({**event, "response": response}))

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        response = self._whole(blocks, delta, usage)
        self._finished(response, as_json(delta.get("response")), as_text(response.get("id")))
        ended = self._end_message(cut=response["status"] != "completed")
        return ended + self._event(f"response.{response['status']}", {"response": response})

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        self._response = as_json(message.get("response"))
        for block in blocks:
            self._ids.final_item(block)
        response, last = self._whole(blocks, delta, usage), as_json(delta.get("response"))
        if first := as_text(response.get("id")):
            if held := held_as(last, as_list(response["output"])):
                same = {key: last[key] for key in ("created_at",) if key in last}
                response.update(id=held, **same)
            else:
                response["id"] = joined_id()
        self._finished(response, last, first)
        return response

    def _whole(self, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        """Return the complete response: the fields of its opening, its output, and its end."""
        last, reason = as_json(delta.get("response")), as_text(delta.get("stop_reason"))
        status = reason if reason in _STATUSES else "incomplete"
        settled = {key: last[key] for key in _SETTLED if key in last}
        whole: Json = {**last, **self._response, **settled, "status": status}
        whole["output"] = written(blocks, ended=status == "completed")
        whole["usage"] = usage or None
        whole["error"] = last.get("error") if status == "failed" else None
        why = {"reason": reason or _TRUNCATED}
        whole["incomplete_details"] = why if status == "incomplete" else None
        if "completed_at" in last:
            whole["completed_at"] = last["completed_at"] if status == "completed" else None
        if "output_text" in whole:  # some servers repeat the text outside the output
            whole["output_text"] = "".join(b.text for b in blocks if b.kind == TEXT)
        return whole

    def _event(self, kind: str, fields: Json) -> bytes:
        event = {"type": kind, **fields, "sequence_number": self._number}
        self._number += 1
        return _sse.encode(kind, dumps(event))


class _Ids:
    """Gives each item of an answer a unique id.

    The server must not require, for any of these ids, reasoning that the caller lacks.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._before = ""
        self._final: list[tuple[Json, Json]] = []
        """Pairs of an item as its attempt sent it and the item in the answer."""

    def final_item(self, block: Block) -> Json:
        """Return a block's item as it is in the answer. Later calls return the same item."""
        item = as_json(block.start.get("item"))
        known = next((ours for own, ours in self._final if item is own or item is ours), None)
        if known is None:
            name, after = as_text(item.get("id")), as_text(block.start.get("after"))
            taken = not name or name in self._used or after not in {"", self._before}
            known = renamed(item or _BLANK, used=name in self._used) if taken else item
            self._final.append((item, known))
            self._before = as_text(known.get("id"))
            self._used.add(self._before)
        block.start["item"] = known
        return known
