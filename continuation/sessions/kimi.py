"""kimi-code's wire.jsonl: an event log from which messages are built.

They are built as the agent does it. Messages that were appended while calls wait for results come
after the results. A new step ends the waiting of the step before. Records of other kinds are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from continuation.history.tree import text_of
from continuation.history.types import HistoryFormat
from continuation.sessions.lines import Problem, Record
from continuation.sessions.logs import Log, LogEntry, stable_uuid
from continuation.wire.json_values import as_list, as_map, as_text, dumps

_EVENT = "context.append_loop_event"
_MESSAGE = "context.append_message"


class KimiCode(Log):
    """kimi-code's event log."""

    name: ClassVar[str] = "kimi-code"
    history_format: ClassVar[HistoryFormat] = HistoryFormat.OPENAI_CHAT

    def fits(self, value: Mapping[str, Any]) -> bool:
        return value.get("type") in (_EVENT, _MESSAGE)

    def read(self, records: list[Record]) -> tuple[list[LogEntry], list[Problem]]:
        fold = _Fold()
        for record in records:
            fold.take(record)
        fold.release()
        for entry in (entry for name, entry in fold.steps.items() if name in fold.open):
            begin = entry.opening or entry.records[0].value
            message = "a step begins here and has no end; the program ended during it."
            fold.problems.append(Problem("step_unfinished", entry.records[0].line, message))
            event = {**as_map(begin.get("event")), "type": "step.end"}
            entry.closing = {**begin, "event": event}
        return fold.entries, fold.problems

    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        stamp = {"time": like["time"]} if "time" in like else {}
        if message.get("role") == "tool":
            call = message.get("tool_call_id", "")
            event = as_map(like.get("event"))
            if number == 0 and event.get("type") == "tool.result":  # only its text has changed
                output = {**as_map(event.get("result")), "output": message.get("content", "")}
                return [{**like, "event": {**event, "toolCallId": call, "result": output}}]
            result = {"output": message.get("content", ""), "isError": True}
            ids = {"type": "tool.result", "parentUuid": call, "toolCallId": call}
            return [{"type": _EVENT, "event": {**ids, "result": result}, **stamp}]
        if message.get("role") == "assistant":
            events = _step_events(message, like, number)
            return [{"type": _EVENT, "event": event, **stamp} for event in events]
        content = [{"type": "text", "text": text_of(message.get("content"))}]
        record = {"role": message["role"], "content": content, "toolCalls": []}
        return [{"type": _MESSAGE, "message": record, **stamp}]


# -- reading -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Fold:
    entries: list[LogEntry] = field(default_factory=list[LogEntry])
    problems: list[Problem] = field(default_factory=list[Problem])
    steps: dict[str, LogEntry] = field(default_factory=dict[str, LogEntry])
    """Steps by their id."""
    open: set[str] = field(default_factory=set[str])
    """Ids of steps that have not ended."""
    seen_ids: set[Any] = field(default_factory=set[Any])
    """Ids of the parts and calls that were read."""
    waiting: set[str] = field(default_factory=set[str])
    """Ids of calls without a result."""
    deferred: list[LogEntry] = field(default_factory=list[LogEntry])
    """Messages that were appended while calls wait for results."""

    def take(self, record: Record) -> None:
        """Process the next record of the log."""
        kind, entries = record.value.get("type"), self.entries
        if kind in ("context.clear", "context.apply_compaction"):
            entries.clear()
            self.release()
        elif kind == "context.undo":
            count = record.value.get("count")
            for _ in range(count if isinstance(count, int) else 0):
                while entries and entries.pop().message.get("role") != "user":
                    pass
        elif kind == _MESSAGE:
            entry = LogEntry(_to_chat(as_map(record.value.get("message"))), [record])
            (self.deferred if self.waiting else entries).append(entry)
        elif kind == _EVENT:
            self._event(as_map(record.value.get("event")), record)

    def _event(self, event: Mapping[str, Any], record: Record) -> None:
        if event.get("type") == "step.begin":
            name = str(event.get("uuid"))
            if name in self.steps:  # the line was written twice
                self.steps[name].records.append(record)
            else:
                self._begin(name, [record])
        elif event.get("type") == "tool.result":
            call = str(event.get("toolCallId"))
            text = text_of(as_map(event.get("result")).get("output"))
            message = {"role": "tool", "tool_call_id": call, "content": text}
            self.entries.append(LogEntry(message, [record]))
            self.waiting.discard(call)
            if not self.waiting:
                self.release()
        else:
            self._step_event(event, record)

    def _begin(
        self, name: str, records: list[Record], opening: dict[str, Any] | None = None
    ) -> LogEntry:
        self.release()
        self.open.add(name)
        self.steps[name] = entry = LogEntry(
            {"role": "assistant", "content": None}, records, opening
        )
        self.entries.append(entry)
        return entry

    def _step_event(self, event: Mapping[str, Any], record: Record) -> None:
        if event.get("type") == "step.end":
            name = str(event.get("uuid"))
            self.open.discard(name)
            if name in self.steps:
                self.steps[name].records.append(record)
            return
        name, own = str(event.get("stepUuid")), event.get("uuid")
        if (entry := self.steps.get(name)) is None:
            text = "the beginning of this record's step is missing; the step begins here."
            self.problems.append(Problem("step_unknown", record.line, text))
            turn = {key: event[key] for key in ("turnId", "step") if key in event}
            begin = {"type": "step.begin", "uuid": name, **turn}
            entry = self._begin(name, [], {**record.value, "event": begin})
        entry.records.append(record)
        if own in self.seen_ids:  # the line was written twice
            return
        self.seen_ids |= {own} - {None}
        if event.get("type") == "content.part":
            _add_content(entry.message, as_map(event.get("part")))
        elif event.get("type") == "tool.call":
            self.waiting.add(str(event.get("toolCallId")))
            entry.message.setdefault("tool_calls", []).append(_to_chat_call(event))

    def release(self) -> None:
        """Stop waiting for results, and append the deferred messages."""
        self.waiting.clear()
        self.entries += self.deferred
        self.deferred = []


def _to_chat(message: Mapping[str, Any]) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.get("role"), "content": None}
    content = message.get("content")
    if isinstance(content, str):
        chat["content"] = content
    for part in as_list(content):
        _add_content(chat, as_map(part))
    if chat["content"] is None and chat["role"] != "assistant":
        chat["content"] = ""
    if calls := [_to_chat_call(as_map(call)) for call in as_list(message.get("toolCalls"))]:
        chat["tool_calls"] = calls
    if message.get("role") == "tool":
        chat["tool_call_id"] = message.get("toolCallId", "")
    return chat


def _add_content(message: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a part. Texts are joined, thinking goes to `reasoning_content`, others stay blocks."""
    content = message["content"]
    if part.get("type") == "think":
        thought = as_text(part.get("think"))
        message["reasoning_content"] = message.get("reasoning_content", "") + thought
    elif part.get("type") == "text" and not isinstance(content, list):
        message["content"] = (content or "") + as_text(part.get("text"))
    else:
        blocks = as_list(message["content"])
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        message["content"] = [*blocks, dict(part)]


def _to_chat_call(event: Mapping[str, Any]) -> dict[str, Any]:
    arguments = event.get("args", event.get("arguments"))
    if not isinstance(arguments, str):
        arguments = dumps(arguments if arguments is not None else {}).decode()
    function = {"name": event.get("name", ""), "arguments": arguments}
    call = event.get("toolCallId", event.get("id", ""))
    return {"id": call, "type": "function", "function": function}


# -- writing -------------------------------------------------------------------------------------


def _step_events(
    message: Mapping[str, Any], like: Mapping[str, Any], number: int
) -> list[dict[str, Any]]:
    """Return the events of a complete step. In a bare message the agent would ignore the calls."""
    event = as_map(like.get("event"))
    turn = {"turnId": event.get("turnId", ""), "step": event.get("step", 0)}
    step = stable_uuid("step", event.get("uuid") or event.get("stepUuid"), number)
    common = {**turn, "stepUuid": step}
    thought, content = message.get("reasoning_content"), message.get("content")
    parts: list[Any] = [{"type": "think", "think": thought}] if thought else []
    if isinstance(content, str) and content:
        parts.append({"type": "text", "text": content})
    events: list[dict[str, Any]] = [{"type": "step.begin", "uuid": step, **turn}]
    for n, part in enumerate(parts + as_list(content)):
        name = stable_uuid(step, "part", n)
        events.append({"type": "content.part", "uuid": name, **common, "part": part})
    for call in as_list(message.get("tool_calls")):
        call_fields = {"toolCallId": call["id"], "name": call["function"]["name"]}
        args = json.loads(call["function"]["arguments"])
        name = stable_uuid(step, call["id"])
        events.append({"type": "tool.call", "uuid": name, **common, **call_fields, "args": args})
    return [*events, {"type": "step.end", "uuid": step, **turn}]
