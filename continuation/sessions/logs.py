"""The logs of agents, line by line: which lines are messages, and how to write a repaired one.

The formats are from the agents' sources or public descriptions. Each format is a small class. What
all share (which lines stay, move or are deleted) is in `rewrite`.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from continuation.history.detect import detect
from continuation.history.types import HistoryFormat
from continuation.sessions.lines import Problem, Record
from continuation.wire.json_values import as_list, as_map, as_text
from continuation.wire.responses_items import OUTPUTS, PAIRED_CALLS


@dataclass(slots=True, eq=False)
class LogEntry:
    """A message and its records."""

    message: Any
    records: list[Record]
    opening: dict[str, Any] | None = None
    """The message's first record, made here because it was lost; None otherwise."""
    closing: dict[str, Any] | None = None
    """The message's last record, made here because it was never written; None otherwise."""


class Log(ABC):
    """One kind of log."""

    name: ClassVar[str]
    history_format: ClassVar[HistoryFormat]
    """The format of its messages."""
    threaded: ClassVar[bool] = False
    """Whether each record names the record before it, in `parentUuid`."""

    @abstractmethod
    def fits(self, value: Mapping[str, Any]) -> bool:
        """Whether a record belongs to this kind of log."""

    @abstractmethod
    def read(self, records: list[Record]) -> tuple[list[LogEntry], list[Problem]]:
        """Return the messages in the order in which they are sent, and the problems of the log."""

    def dialect(self, messages: list[Any]) -> HistoryFormat:
        """Return the format of these messages."""
        return self.history_format

    @abstractmethod
    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        """Return the records of a changed message (`number` 0) or a new one, similar to `like`."""


def stable_uuid(*parts: object) -> str:
    """Return a UUID that depends only on the parts, so that each repair gives the same bytes."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(str(part) for part in parts)))


# -- one message per line ------------------------------------------------------------------------


_CONTENT_FIELDS: Final = ("content", "parts", "tool_calls")
"""A message has one of these."""


class Plain(Log):
    """One message per line, as it is sent; roles that begin with "_" are not sent (kimi-cli)."""

    name: ClassVar[str] = "jsonl"

    def fits(self, value: Mapping[str, Any]) -> bool:
        role, kind = value.get("role"), as_text(value.get("type"))
        if isinstance(role, str) and not value.keys().isdisjoint(_CONTENT_FIELDS):
            return not role.startswith("_")
        if kind == "reasoning":
            return "summary" in value or "encrypted_content" in value
        return kind in PAIRED_CALLS or kind in OUTPUTS

    def read(self, records: list[Record]) -> tuple[list[LogEntry], list[Problem]]:
        return [LogEntry(r.value, [r]) for r in records if self.fits(r.value)], []

    def dialect(self, messages: list[Any]) -> HistoryFormat:
        if any("parts" in message for message in messages):
            return HistoryFormat.GEMINI
        if any("role" not in message or message.get("type") == "message" for message in messages):
            return HistoryFormat.OPENAI_RESPONSES
        return detect({"messages": messages})

    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        return [dict(message)]


class Codex(Log):
    """codex's rollout-*.jsonl: Responses items. Those after the last compaction are sent."""

    name: ClassVar[str] = "codex"
    history_format: ClassVar[HistoryFormat] = HistoryFormat.OPENAI_RESPONSES

    def fits(self, value: Mapping[str, Any]) -> bool:
        return value.get("type") in ("response_item", "session_meta") and "payload" in value

    def read(self, records: list[Record]) -> tuple[list[LogEntry], list[Problem]]:
        entries: list[LogEntry] = []
        for record in records:
            if record.value.get("type") == "compacted":
                entries.clear()
            elif record.value.get("type") == "response_item":
                entries.append(LogEntry(record.value.get("payload"), [record]))
        return entries, []

    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        envelope = {key: value for key, value in like.items() if key == "timestamp"}
        return [{**envelope, "type": "response_item", "payload": message}]


# -- threads of records --------------------------------------------------------------------------

_ENVELOPE: Final = frozenset(
    {
        *("parentUuid", "sessionId", "timestamp", "cwd"),
        *("version", "gitBranch", "isSidechain", "userType"),
    }
)


class ThreadedLog(Log):
    """Logs with lines of the form `{type, uuid, parentUuid, message, …}`."""

    threaded: ClassVar[bool] = True
    content: ClassVar[str]
    """The field of a message that contains its parts."""

    def read(self, records: list[Record]) -> tuple[list[LogEntry], list[Problem]]:
        entries, problems = list[LogEntry](), _drop_copies(records)
        messages = [record for record in records if self.fits(record.value)]
        main = [record for record in messages if not record.value.get("isSidechain")]
        messages = main or messages  # a log with only side chains is a subagent's
        if any("uuid" in record.value for record in messages):
            names, lost = _thread(records, messages)
            problems += lost
            messages = self.belonging(messages, names)
        for record in messages:
            message = record.value["message"]
            last = entries[-1] if entries else None
            if last is None or not self.continues(last, record):
                entries.append(LogEntry(message, [record]))
                continue
            if len(last.records) == 1:  # copied, because the record keeps its own list
                parts = list(as_list(last.message.get(self.content)))
                last.message = {**last.message, self.content: parts}
            last.records.append(record)
            last.message[self.content] += as_list(message.get(self.content))
        return entries, problems

    def belonging(self, spoken: list[Record], names: set[str]) -> list[Record]:
        """Return the records that belong to the conversation. `names`: the ids of the thread."""
        return [record for record in spoken if as_text(record.value.get("uuid")) in names]

    @abstractmethod
    def continues(self, entry: LogEntry, record: Record) -> bool:
        """Whether a record continues the message before it."""

    @abstractmethod
    def kind(self, message: Mapping[str, Any]) -> str:
        """Return the record type of a message."""

    def write(self, message: Any, like: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        kind = self.kind(message)
        same = like.get("type") == kind
        envelope = {k: v for k, v in like.items() if same or k in _ENVELOPE}
        name = like.get("uuid") if number == 0 else stable_uuid(like.get("uuid"), number)
        return [{**envelope, "type": kind, "uuid": name, "message": message}]


def _drop_copies(records: list[Record]) -> list[Problem]:
    """Drop and report lines that were written twice. Keep the copy below its parent record."""
    seen = dict[str, Record]()
    for record in records:
        name, parent = (as_text(record.value.get(key)) for key in ("uuid", "parentUuid"))
        one = seen.setdefault(name, record)
        if parent and parent in seen and one.line < seen[parent].line and one.value == record.value:
            seen[name] = record
    copies = [
        record
        for record in records
        if (one := seen[as_text(record.value.get("uuid"))]) is not record
        and "uuid" in record.value
        and one.value == record.value
    ]
    dropped = set(copies)
    records[:] = [record for record in records if record not in dropped]
    message = "the line is in the file twice; one of the two is removed."
    return [Problem("line_twice", record.line, message) for record in copies]


def _thread(records: list[Record], spoken: list[Record]) -> tuple[set[str], list[Problem]]:
    """Return the ids from the last record up to the root. Report and bridge a lost parent."""
    by_id = {str(r.value["uuid"]): r for r in records if isinstance(r.value.get("uuid"), str)}
    order = {record: index for index, record in enumerate(records)}
    positions = [order[record] for record in spoken]
    current: Record | None = spoken[-1]
    names, problems = set[str](), list[Problem]()
    while current is not None and (name := str(current.value.get("uuid"))) not in names:
        names.add(name)
        parent = current.value.get("parentUuid")
        if not isinstance(parent, str):
            break
        below, current = current, by_id.get(parent)
        if current is None:
            text = "the record before this one is missing; the one above it in the file is used."
            problems.append(Problem("lost_parent", below.line, text))
            above = bisect_left(positions, order[below])
            while above and as_text(spoken[above - 1].value.get("uuid")) in names:
                above -= 1
            current = spoken[above - 1] if above else None
    return names, problems


class ClaudeCode(ThreadedLog):
    """Claude Code's projects/<folder>/<session>.jsonl.

    A response has several lines, one for each block, all with the response's id. Results of
    parallel calls are side branches of the thread, each after the line of its call.
    """

    name: ClassVar[str] = "claude-code"
    history_format: ClassVar[HistoryFormat] = HistoryFormat.ANTHROPIC
    content: ClassVar[str] = "content"

    def fits(self, value: Mapping[str, Any]) -> bool:
        is_message = value.get("type") in ("user", "assistant")
        return is_message and "content" in as_map(value.get("message"))

    def belonging(self, spoken: list[Record], names: set[str]) -> list[Record]:
        replies = {_reply(record) for record in super().belonging(spoken, names)} - {""}
        calls, belonging = set[str](), list[Record]()
        for record in spoken:
            if _reply(record) in replies:
                calls |= {as_text(block.get("id")) for block in _blocks(record)}
        for record in spoken:
            message = record.value["message"]
            # Error notices are logged as assistant messages, but never sent.
            if record.value.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
                continue
            if (
                as_text(record.value.get("uuid")) in names
                or _reply(record) in replies
                or any(as_text(block.get("tool_use_id")) in calls for block in _results(record))
            ):
                belonging.append(record)
        return belonging

    def continues(self, entry: LogEntry, record: Record) -> bool:
        message = record.value["message"]
        if message.get("role") == "assistant":
            return message.get("id") is not None and entry.message.get("id") == message["id"]
        results = _results(record)
        only_results = bool(results) and len(results) == len(_blocks(record))
        return only_results and bool(_results(entry.records[-1]))

    def kind(self, message: Mapping[str, Any]) -> str:
        return "assistant" if message.get("role") == "assistant" else "user"


def _reply(record: Record) -> str:
    return as_text(record.value["message"].get("id"))


def _blocks(record: Record) -> list[Mapping[str, Any]]:
    return [as_map(block) for block in as_list(record.value["message"].get("content"))]


def _results(record: Record) -> list[Mapping[str, Any]]:
    return [block for block in _blocks(record) if block.get("type") == "tool_result"]


class QwenCode(ThreadedLog):
    """qwen-code's chats/<session>.jsonl: a thread of Gemini contents."""

    name: ClassVar[str] = "qwen-code"
    history_format: ClassVar[HistoryFormat] = HistoryFormat.GEMINI
    content: ClassVar[str] = "parts"

    def fits(self, value: Mapping[str, Any]) -> bool:
        return "parts" in as_map(value.get("message"))

    def continues(self, entry: LogEntry, record: Record) -> bool:
        """Whether it has the same role. The agent joins such neighbours when it sends them."""
        return bool(entry.message.get("role") == record.value["message"].get("role"))

    def kind(self, message: Mapping[str, Any]) -> str:
        if message.get("role") == "model":
            return "assistant"
        results = any("functionResponse" in as_map(part) for part in as_list(message.get("parts")))
        return "tool_result" if results else "user"
