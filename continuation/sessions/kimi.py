"""kimi-code's wire.jsonl: an event log from which messages are folded.

The fold is the agent's own: what is appended while calls wait for their results comes after them,
and a step that begins closes what the step before it left open. Records of other kinds stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from continuation.history.tree import text_of
from continuation.history.types import Dialect
from continuation.sessions.lines import Problem, Record
from continuation.sessions.logs import Contents, Entry, Log, steady_uuid
from continuation.wire.json_values import as_list, as_map

__all__ = ["KimiCode"]

_EVENT = "context.append_loop_event"
_MESSAGE = "context.append_message"
_RESETS = ("context.clear", "context.apply_compaction")


class KimiCode(Log):
    """kimi-code's event log."""

    name: ClassVar[str] = "kimi-code"

    def fits(self, records: list[Record]) -> bool:
        return any(record.value.get("type") in (_EVENT, _MESSAGE) for record in records)

    def dialect(self, messages: list[Any]) -> Dialect:
        del messages
        return Dialect.OPENAI_CHAT

    def read(self, records: list[Record]) -> Contents:
        fold = _Fold()
        for record in records:
            fold.take(record)
        return fold.done()

    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        stamp = {"time": like["time"]} if "time" in like else {}
        if message.get("role") == "tool":
            return [{"type": _EVENT, "event": _result_event(message), **stamp}]
        if message.get("role") == "assistant":
            events = _step_events(message, like, number)
            return [{"type": _EVENT, "event": event, **stamp} for event in events]
        content = [{"type": "text", "text": text_of(message.get("content"))}]
        made = {"role": message["role"], "content": content, "toolCalls": []}
        return [{"type": _MESSAGE, "message": made, **stamp}]


@dataclass(slots=True)
class _Fold:
    contents: Contents = field(default_factory=Contents)
    steps: dict[str, Entry] = field(default_factory=dict[str, Entry])
    """Open steps by their id."""
    waiting: set[str] = field(default_factory=set[str])
    """Calls without result."""
    deferred: list[Entry] = field(default_factory=list[Entry])

    def take(self, record: Record) -> None:
        kind = record.value.get("type")
        if kind in _RESETS:
            self.contents.entries.clear()
            self._close()
        elif kind == "context.undo":
            self._undo(record.value.get("count"))
        elif kind == _MESSAGE:
            entry = Entry(_to_chat(as_map(record.value.get("message"))), [record])
            (self.deferred if self.waiting else self.contents.entries).append(entry)
        elif kind == _EVENT:
            self._event(as_map(record.value.get("event")), record)

    def _event(self, event: Mapping[str, Any], record: Record) -> None:
        if event.get("type") == "step.begin":
            self._close()
            entry = Entry({"role": "assistant", "content": None}, [record])
            self.contents.entries.append(entry)
            self.steps[str(event.get("uuid"))] = entry
        elif event.get("type") == "tool.result":
            self._result(event, record)
        else:
            self._part(event, record)

    def _part(self, event: Mapping[str, Any], record: Record) -> None:
        ends = event.get("type") == "step.end"
        name = str(event.get("uuid" if ends else "stepUuid"))
        entry = self.steps.pop(name, None) if ends else self.steps.get(name)
        if entry is None:
            words = "this record belongs to a step whose beginning is lost; it is kept as it is."
            self.contents.problems.append(Problem("step_unknown", record.line, words))
            return
        entry.records.append(record)
        if event.get("type") == "content.part":
            _add_content(entry.message, as_map(event.get("part")))
        elif event.get("type") == "tool.call":
            self.waiting.add(str(event.get("toolCallId")))
            entry.message.setdefault("tool_calls", []).append(_to_chat_call(event))

    def _result(self, event: Mapping[str, Any], record: Record) -> None:
        call = str(event.get("toolCallId"))
        output = as_map(event.get("result")).get("output")
        text = output if isinstance(output, str) else text_of(output)
        message = {"role": "tool", "tool_call_id": call, "content": text}
        self.contents.entries.append(Entry(message, [record]))
        self.waiting.discard(call)
        if not self.waiting:
            self._close()

    def _close(self) -> None:
        self.waiting.clear()
        self.contents.entries += self.deferred
        self.deferred = []

    def _undo(self, count: object) -> None:
        entries = self.contents.entries
        for _ in range(count if isinstance(count, int) else 0):
            while entries and entries.pop().message.get("role") != "user":
                pass

    def done(self) -> Contents:
        self._close()
        for entry in self.steps.values():
            words = "a step begins here and never ends; the program died in it."
            problem = Problem("step_unfinished", entry.records[0].line, words)
            self.contents.problems.append(problem)
            entry.closing = _step_end(entry.records[0].value)
        return self.contents


def _step_end(begin: Mapping[str, Any]) -> dict[str, Any]:
    return {**begin, "event": {**as_map(begin.get("event")), "type": "step.end"}}


# -- to and from Chat ----------------------------------------------------------------------------


def _to_chat(message: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.get("role"), "content": None}
    content = message.get("content")
    if isinstance(content, str):
        made["content"] = content
    for part in as_list(content):
        _add_content(made, as_map(part))
    if made["content"] is None and made["role"] != "assistant":
        made["content"] = ""
    if calls := [_to_chat_call(as_map(call)) for call in as_list(message.get("toolCalls"))]:
        made["tool_calls"] = calls
    if message.get("role") == "tool":
        made["tool_call_id"] = message.get("toolCallId", "")
    return made


def _add_content(message: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a part: texts become one string, thinking goes where Chat has it, others stay blocks."""
    if part.get("type") == "think":
        message["reasoning_content"] = message.get("reasoning_content", "") + part.get("think", "")
    elif part.get("type") == "text" and not isinstance(message["content"], list):
        message["content"] = (message["content"] or "") + part.get("text", "")
    else:
        message["content"] = [*_blocks(message["content"]), dict(part)]


def _blocks(said: Any) -> list[Any]:
    return [{"type": "text", "text": said}] if isinstance(said, str) else as_list(said)


def _to_chat_call(event: Mapping[str, Any]) -> dict[str, Any]:
    arguments = event.get("args", event.get("arguments"))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments if arguments is not None else {}, ensure_ascii=False)
    function = {"name": event.get("name", ""), "arguments": arguments}
    call = event.get("toolCallId", event.get("id", ""))
    return {"id": call, "type": "function", "function": function}


def _result_event(message: Mapping[str, Any]) -> dict[str, Any]:
    call = message.get("tool_call_id", "")
    result = {"output": message.get("content", ""), "isError": True}
    return {"type": "tool.result", "parentUuid": call, "toolCallId": call, "result": result}


def _step_events(
    message: Mapping[str, Any], like: Mapping[str, Any], number: int
) -> list[dict[str, Any]]:
    """A whole step; a bare assistant message would not be known to have made its calls."""
    event = as_map(like.get("event"))
    turn = {"turnId": event.get("turnId", ""), "step": event.get("step", 0)}
    step = steady_uuid("step", event.get("uuid") or event.get("stepUuid"), number)
    inner = {**turn, "stepUuid": step}
    events: list[dict[str, Any]] = [{"type": "step.begin", "uuid": step, **turn}]
    for n, part in enumerate(_from_chat_content(message)):
        name = steady_uuid(step, "part", n)
        events.append({"type": "content.part", "uuid": name, **inner, "part": part})
    for call in as_list(message.get("tool_calls")):
        made = {"toolCallId": call["id"], "name": call["function"]["name"]}
        args = json.loads(call["function"]["arguments"])
        name = steady_uuid(step, call["id"])
        events.append({"type": "tool.call", "uuid": name, **inner, **made, "args": args})
    return [*events, {"type": "step.end", "uuid": step, **turn}]


def _from_chat_content(message: Mapping[str, Any]) -> list[Any]:
    thought, said = message.get("reasoning_content"), message.get("content")
    parts: list[Any] = [{"type": "think", "think": thought}] if thought else []
    if isinstance(said, str):
        return [*parts, {"type": "text", "text": said}] if said else parts
    return parts + as_list(said)
