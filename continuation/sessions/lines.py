"""Reading a log of JSON lines after a crash: what is whole is kept, the rest is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from continuation.wire.json_values import as_map, is_map

__all__ = ["Problem", "Record", "read_lines"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file, apart from the history in it."""

    code: str
    """"torn_tail", "nul_run", "bad_line", "half_utf8", "fused_lines", "step_unfinished", …"""
    line: int
    """Number of the line, from 1; 0 for the file as a whole."""
    message: str
    """What is wrong, in plain words."""


@dataclass(slots=True, eq=False)
class Record:
    """One JSON object of a log, with the bytes it was read from."""

    line: int
    raw: bytes
    """Without the line's end."""
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])


_WORDS: Final = {
    "torn_tail": "the last line is cut off; a program died while it wrote it. It is left out.",
    "bad_line": "this line is not JSON. It is left out; the lines around it are kept.",
    "not_object": "this line is JSON, but no object. It is left out.",
    "nul_run": "there are NUL bytes in this line; a file system lost what stood there.",
    "half_utf8": "a character is cut in half in this line; it shows as a replacement mark.",
    "fused_lines": "two records stand in one line; a line break was lost. Both are kept.",
    "torn_and_fused": "a cut-off record and a whole one stand in one line; the whole one is kept.",
}


def problem(code: str, line: int) -> Problem:
    """The problem of this code, in its words."""
    return Problem(code, line, _WORDS[code])


def read_lines(data: bytes) -> tuple[list[Record], list[Problem]]:
    """Read all records that are whole; nothing valid is lost, and nothing stops the reading."""
    reader = _Reader()
    lines = data.split(b"\n")
    while lines and not lines[-1].strip(b"\0 \t\r"):
        if b"\0" in lines.pop():
            reader.problems.append(problem("nul_run", len(lines) + 1))
    for number, line in enumerate(lines, 1):
        reader.line(number, line.strip(b" \t\r"), last=number == len(lines))
    reader.rescue()
    reader.records.sort(key=lambda record: record.line)
    return reader.records, sorted(reader.problems, key=lambda each: each.line)


@dataclass(slots=True)
class _Reader:
    records: list[Record] = field(default_factory=list[Record])
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: list[tuple[int, str, bool]] = field(default_factory=list[tuple[int, str, bool]])
    """Lines that are no JSON: number, text, whether it is the last."""

    def line(self, number: int, raw: bytes, *, last: bool) -> None:
        if b"\0" in raw:
            self.problems.append(problem("nul_run", number))
            raw = raw.replace(b"\0", b"")
        if not raw:
            return
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "replace")
            raw = text.encode()
        else:
            text = text.removeprefix("\ufeff")
        self._parse(number, raw, text, last=last)

    def _parse(self, number: int, raw: bytes, text: str, *, last: bool) -> None:
        try:
            value = json.loads(text)
        except ValueError:
            self.broken.append((number, text, last))
            return
        if not is_map(value):
            self.problems.append(problem("not_object", number))
            return
        if "\ufffd" in text and b"\\ufffd" not in raw:
            self.problems.append(problem("half_utf8", number))
        self.records.append(Record(number, raw, as_map(value)))

    def rescue(self) -> None:
        """Look into the lines that are no JSON, now that it is known what records look like."""
        shapes = {frozenset(record.value) for record in self.records if len(record.value) > 1}
        for number, text, last in self.broken:
            found = list(_objects(text, shapes))
            for value, start, stop in found:
                self.records.append(Record(number, text[start:stop].encode(), value))
            self.problems.append(problem(_verdict(found, text, last=last), number))


_Found = tuple[Mapping[str, Any], int, int]


def _verdict(found: list[_Found], text: str, *, last: bool) -> str:
    if not found:
        return "torn_tail" if last else "bad_line"
    whole = found[0][1] == 0 and found[-1][2] == len(text)
    return "fused_lines" if whole else "torn_and_fused"


def _objects(text: str, shapes: set[frozenset[str]]) -> Iterator[_Found]:
    """The whole records in a line that holds more, or less, than one.

    Inner objects of a torn record are objects too, so a record must have the fields of another one
    in the same file, unless the line begins with it.
    """
    decoder, at = json.JSONDecoder(), text.find('{"')
    while at >= 0:
        try:
            value, stop = decoder.raw_decode(text, at)
        except ValueError:
            at = text.find('{"', at + 1)
            continue
        given = as_map(value)
        if at == 0 or any(shape <= given.keys() for shape in shapes):
            yield given, at, stop
            at = text.find('{"', stop)
        else:
            at = text.find('{"', at + 1)
