"""Writes a repaired log. Lines of unchanged messages keep their bytes and their place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from continuation.sessions.lines import Record, encoded
from continuation.sessions.logs import Log, LogEntry
from continuation.wire.json_values import as_map, as_text


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, its lines, and the messages in them."""

    log: Log
    records: list[Record]
    entries: list[LogEntry]

    def rewritten(self, messages: list[Any], origins: tuple[int, ...]) -> bytes:
        """Return the log with `messages`. `origins`: their index in `entries`, -1 for a new one.

        Lines without a message stay. The lines of a moved message move with it.
        """
        writer = _LogWriter(self.log, self.entries, _unmoved(self.entries, origins))
        for number, (message, origin) in enumerate(zip(messages, origins, strict=True)):
            writer.put(number, message, origin)
        message_records = {record for entry in self.entries for record in entry.records}
        lines = list(writer.behind.get(None, []))
        for record in self.records:
            unchanged = [_Line(record.value, record.raw)]
            lines += writer.stay.get(record, []) if record in message_records else unchanged
            lines += writer.behind.get(record, [])
        if self.log.threaded:
            self._bridge(lines)
        return b"".join(line.encoded() + b"\n" for line in lines)

    def _bridge(self, lines: list[_Line]) -> None:
        """Correct each `parentUuid` that names a deleted line, where the agent would stop reading.

        It becomes the parent of the deleted line, or else the last message above it in the file.
        """
        names = {as_text(line.value.get("uuid")) for line in lines}
        parents = {
            as_text(record.value.get("uuid")): as_text(record.value.get("parentUuid")) or None
            for record in self.records
        }
        above: str | None = None
        for at, line in enumerate(lines):
            parent = as_text(line.value.get("parentUuid")) or None
            passed = {parent}
            while parent is not None and parent not in names:
                parent = parents.get(parent, above)
                parent = above if parent in passed else parent
                passed.add(parent)
            if parent != line.value.get("parentUuid"):
                lines[at] = _Line({**line.value, "parentUuid": parent}, None)
            if "message" in line.value and not line.value.get("isSidechain"):
                above = as_text(line.value.get("uuid")) or above


def _unmoved(entries: list[LogEntry], origins: tuple[int, ...]) -> set[int]:
    """Return the largest set of origins with lines that are already in this order in the file."""
    tails: list[int] = []  # for each length of a run, its smallest last line
    chain: list[int] = []  # position of the message that ends this run
    previous: list[int] = []  # position of the message before each one in its run
    seen = set[int]()
    for position, origin in enumerate(origins):
        previous.append(-1)
        if origin < 0 or origin in seen:
            continue
        seen.add(origin)
        line = entries[origin].records[0].line if entries[origin].records else 0
        length = bisect_left(tails, line)
        previous[position] = chain[length - 1] if length else -1
        tails[length : length + 1] = [line]
        chain[length : length + 1] = [position]
    unmoved, position = set[int](), chain[-1] if chain else -1
    while position >= 0:
        unmoved.add(origins[position])
        position = previous[position]
    return unmoved


@dataclass(slots=True)
class _Line:
    value: Mapping[str, Any]
    raw: bytes | None
    """The original bytes of the line; None if it must be encoded."""

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return encoded(self.value)


_NONE = -2
"""`previous` after a new message. With -1, entry 0 would seem to follow it as in the file."""


@dataclass(slots=True)
class _LogWriter:
    log: Log
    entries: list[LogEntry]
    unmoved: set[int]
    behind: dict[Record | None, list[_Line]] = field(
        default_factory=dict[Record | None, list[_Line]]
    )
    """Lines to insert after a record; after None: at the beginning."""
    stay: dict[Record, list[_Line]] = field(default_factory=dict[Record, list[_Line]])
    """Lines that replace a record."""
    anchor: Record | None = None
    """The record after which moved and new messages are inserted."""
    previous: int = -1
    """Origin of the message that was placed last."""
    uuid: Any = None
    """The uuid of the line that was placed last."""

    def put(self, number: int, message: Any, origin: int) -> None:
        """Place the lines of the next message of the repaired history."""
        entry = self.entries[origin] if origin >= 0 else None
        lines = self._lines_of(number, message, entry)
        if self.log.threaded:
            self._thread(lines, origin)
        if entry is None or origin not in self.unmoved:
            self.behind.setdefault(self.anchor, []).extend(lines)
            return
        self.unmoved.discard(origin)
        first, self.anchor = entry.records[0], entry.records[-1]
        if self._is_crossed(origin):
            self.anchor = first
        if lines[0].raw is None or self.anchor is first:
            self.stay[first] = lines
            return
        for record, line in zip(entry.records, lines, strict=False):
            self.stay[record] = [line]
        self.behind.setdefault(self.anchor, []).extend(lines[len(entry.records) :])

    def _is_crossed(self, origin: int) -> bool:
        """Whether another message begins among its lines, so that they must be brought together.

        Results may be among them, and after the results messages from while the calls ran.
        """
        last = self.entries[origin].records[-1].line
        roles = list[str]()
        for at in range(origin + 1, len(self.entries)):
            if self.entries[at].records[0].line > last:
                break
            roles.append(as_text(as_map(self.entries[at].message).get("role")))
        return "assistant" in roles or "user" in roles[:1]

    def _lines_of(self, number: int, message: Any, entry: LogEntry | None) -> list[_Line]:
        if entry is not None and message is entry.message:
            edges = ([_Line(one, None)] if one else [] for one in (entry.opening, entry.closing))
            opening, closing = edges
            return opening + [_Line(each.value, each.raw) for each in entry.records] + closing
        like: Mapping[str, Any] = {}
        if entry is not None:
            like = entry.records[0].value
        elif self.entries:  # a new message: it gets the other fields of a neighbour
            like = self.entries[max(self.previous, 0)].records[-1].value
        new_number = 0 if entry is not None else number + 1
        return [_Line(value, None) for value in self.log.write(message, like, new_number)]

    def _thread(self, lines: list[_Line], origin: int) -> None:
        """Set `parentUuid` of the first line if another line is before it now."""
        first, last = lines[0].value, lines[-1].value
        as_it_was = origin >= 0 and origin == self.previous + 1 and lines[0].raw is not None
        above = self.uuid
        if above is None and origin < 0 and self.entries:  # a new message, and the first
            above = self.entries[0].records[0].value.get("parentUuid")
            lines[0] = _Line({**first, "parentUuid": above}, None)
        if not as_it_was and first.get("parentUuid") != above and above is not None:
            lines[0] = _Line({**first, "parentUuid": above}, None)
        self.uuid = last.get("uuid")
        self.previous = origin if origin >= 0 else _NONE
