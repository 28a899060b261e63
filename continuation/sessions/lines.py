"""Reads a log of JSON lines after a crash. Keeps complete records, and reports the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jiter

from continuation.history.tree import unbroken
from continuation.wire.json_values import as_map, is_map, loads


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a file itself, not of the history in it."""

    code: str
    """"torn_tail", "nul_run", "bad_line", "half_utf8", "fused_lines", "step_unfinished", …"""
    line: int
    """Number of the line, from 1; 0 for the complete file."""
    message: str
    """The fault, in plain words."""


@dataclass(slots=True, eq=False)  # compared by identity, so that records can be keys
class Record:
    """One JSON object of a log, with its original bytes."""

    line: int
    """Number of its line, from 1."""
    raw: bytes
    """Its bytes, without the line break."""
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])


_MESSAGES: Final = {
    "torn_tail": "the last line is incomplete; a program ended while writing it. It is removed.",
    "bad_line": "this line is not JSON. It is removed; the lines around it are kept.",
    "not_object": "this line is JSON, but not an object. It is removed.",
    "nul_run": "this line has NUL bytes; a file system lost its content.",
    "half_utf8": "a character in this line is incomplete; it becomes a replacement mark.",
    "fused_lines": "this line has two records; a line break was lost. Both are kept.",
    "torn_and_fused": "this line has an incomplete and a complete record; the latter is kept.",
}


_LINE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DOCUMENT: Final = json.JSONEncoder(ensure_ascii=False, indent=2)


def read_lines(data: bytes) -> tuple[list[Record], list[Problem]]:
    """Return all complete records, and a problem for each damaged line, in the order of lines."""
    records: list[Record] = []
    problems: list[tuple[int, str]] = []
    broken: dict[int, str] = {}
    lines = data.split(b"\n")
    while lines and not lines[-1].strip(b"\0 \t\r"):
        if b"\0" in lines.pop():
            problems.append((len(lines) + 1, "nul_run"))
    for number, line in enumerate(lines, 1):
        raw = line.strip(b" \t\r")
        if b"\0" in raw:
            problems.append((number, "nul_run"))
            raw = raw.replace(b"\0", b"")
        if not raw:
            continue
        text, sound = _decoded(raw)
        try:
            value = loads(sound)
        except ValueError:
            broken[number] = text
            continue
        if not is_map(value):
            problems.append((number, "not_object"))
            continue
        clean = without_halves(value, sound)
        if sound is not raw or clean is not value:
            problems.append((number, "half_utf8"))
        records.append(Record(number, sound if clean is value else encoded(clean), clean))
    # Only now the fields of complete records are known. They help to find records in broken lines.
    shapes = {frozenset(record.value) for record in records if len(record.value) > 1}
    for number, text in broken.items():
        objects = list(_objects(text, shapes))
        records += [Record(number, text[at:end].encode(), value) for value, at, end in objects]
        complete = bool(objects) and objects[0][1] == 0 and objects[-1][2] == len(text)
        lost = "torn_tail" if number == len(lines) else "bad_line"
        fused = "fused_lines" if complete else "torn_and_fused"
        problems.append((number, fused if objects else lost))
    records.sort(key=lambda record: record.line)
    problems.sort(key=lambda problem: problem[0])
    return records, [Problem(code, number, _MESSAGES[code]) for number, code in problems]


def _decoded(raw: bytes) -> tuple[str, bytes]:
    try:
        return raw.decode().removeprefix("\ufeff"), raw
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        return text, text.encode()


def without_halves(value: Any, data: bytes) -> Any:
    """Return `value`, read from `data`, with each escaped half of a surrogate pair replaced.

    Providers refuse JSON with such halves. Usually there are none, and the result is `value`.
    """
    return unbroken(value) if b"\\ud" in data.lower() else value


def encoded(value: Any, *, indented: bool = False) -> bytes:
    """Return a value as JSON. Half a surrogate pair becomes a replacement character."""
    text = (_DOCUMENT if indented else _LINE).encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def parse_cut(data: bytes) -> Any:
    """Return a truncated JSON document up to its last complete value; None: nothing is readable."""
    text = data.replace(b"\0", b"").decode("utf-8", "ignore").encode()
    try:
        return jiter.from_json(text, partial_mode=True)
    except ValueError:
        return None


def _objects(
    text: str, shapes: set[frozenset[str]]
) -> Iterator[tuple[Mapping[str, Any], int, int]]:
    """Yield the complete records in a line that is not exactly one record: value, start, end.

    Inner objects of a torn record are complete too. So a record must have the fields of another
    record of the same file, unless it is at the start of the line.
    """
    decoder, at, budget = json.JSONDecoder(), text.find('{"'), 20 * len(text)
    while at >= 0 and budget >= 0:
        next_start = at + 1
        try:
            value, stop = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:  # read up to here once per level of nesting
            budget -= error.pos - at
        except RecursionError:
            budget -= 10_000
        else:
            fields = as_map(value)
            if at == 0 or any(shape <= fields.keys() for shape in shapes):
                yield fields, at, stop
                next_start = stop
        at = text.find('{"', next_start)
