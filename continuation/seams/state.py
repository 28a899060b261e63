"""What is open where a text was cut: a code fence, a JSON string, a table, a list, a word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from continuation.seams.evidence import common_suffix

__all__ = ["Cut", "Fence", "Form", "cells", "fence_line", "is_indentation", "open_fence"]

_NEAR: Final = 4096
#: Characters in which the two copies of a repeated unit must lie.
_RUN: Final = 1200
_FENCE: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})([^\n`]*)")
_CODE_LINE: Final = re.compile(
    r"[;{}\[\]()=,]\s*$|^\s*(?:[#@}\])]|//|/\*|\*|<)|\w\(|\)\s*:|:\s*$|\s[-+*/=!<>]?=\s|^\s{4,}\S|->|=>"
)
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*("|$)')
_YAML_LINE: Final = re.compile(r"\s*(?:- )?[\w.\-\"']+:(?:\s|$)|\s*- |\s*#")
_FORMS: Final = {"json": "json", "jsonc": "json", "csv": "csv", "tsv": "csv", "html": "html"} | {
    "xml": "html",
    "yaml": "yaml",
    "yml": "yaml",
}
_PLAIN: Final = frozenset({"", "text", "txt", "plain", "plaintext", "markdown", "md"})


class Form(StrEnum):
    """The kind of text that was being written."""

    PROSE = "prose"
    CODE = "code"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"
    TABLE = "table"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Fence:
    """An open code fence: its marker (three or more backticks or tildes) and info string."""

    marker: str
    info: str


def fence_line(line: str) -> Fence | None:
    """The fence that `line` opens or closes, if it is such a line."""
    found = _FENCE.fullmatch(line.rstrip())
    return Fence(found[1], found[2].strip()) if found else None


def open_fence(text: str) -> Fence | None:
    """The code fence that is open at the end of `text` (CommonMark 4.5)."""
    current: Fence | None = None
    for at in _marker_lines(text):
        end = text.find("\n", at)
        line = fence_line(text[at : end if end >= 0 else len(text)])
        if line is None or (current is None and _is_underline(text, at, line)):
            continue
        if current is None:
            current = line
        elif not line.info and line.marker.startswith(current.marker):
            current = None
    return current


def _is_underline(text: str, at: int, line: Fence) -> bool:
    """Whether a bare row of tildes underlines the line above it, as reStructuredText does."""
    if line.info or not line.marker.startswith("~"):
        return False
    return bool(text[text.rfind("\n", 0, max(0, at - 1)) + 1 : at].strip())


def _marker_lines(text: str) -> list[int]:
    """Where the lines start that hold a run of three backticks or tildes."""
    starts: set[int] = set()
    for marker in ("```", "~~~"):
        # One character is looked for much faster than three, and most texts have none.
        at = text.find(marker, max(0, text.find(marker[0]))) if marker[0] in text else -1
        while at >= 0:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find(marker, end) if end >= 0 else -1
    return sorted(starts)


def cells(line: str, separator: str = ",") -> int:
    """The number of fields in a line of comma-separated values or of a Markdown table."""
    if separator == "|":
        return line.replace("\\|", "").strip().strip("|").count("|") + 1
    unquoted = _QUOTED.sub("", line) if '"' in line else line
    return unquoted.count(separator) + 1


def is_indentation(text: str, space: str) -> bool:
    """Whether a line of `text` is indented by exactly `space`."""
    return re.search(rf"\n{space}\S", text) is not None


class Cut:
    """The end of a text, looked at lazily: nothing here reads more of it than it must."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.near = text[-_NEAR:]

    @cached_property
    def line(self) -> str:
        """The unfinished last line; empty right after a newline."""
        return self.near[self.near.rfind("\n") + 1 :]

    @cached_property
    def last_line(self) -> str:
        """The last line that says something, finished or not."""
        return self.near.rstrip("\n").rpartition("\n")[2]

    @property
    def inside_line(self) -> bool:
        """Whether the last line has something on it that is not white space."""
        return bool(self.line.strip())

    @cached_property
    def period(self) -> int:
        """The length of the unit that the text ends in two or more of; 0 when it does not."""
        tail = self.near[-_RUN:]
        probe = tail[-16:]
        before = tail.rfind(probe, 0, len(tail) - 1)
        unit = len(tail) - len(probe) - before
        if before < 0 or not tail[-unit:].strip():
            return 0
        same = common_suffix(tail, tail[: len(tail) - unit])
        return unit if same >= unit and same + unit >= 8 else 0

    @property
    def inside_word(self) -> bool:
        """Whether the last character is a letter or digit."""
        return self.text[-1:].isalnum()

    @cached_property
    def fence(self) -> Fence | None:
        """The code fence that is open."""
        return open_fence(self.text)

    @cached_property
    def form(self) -> Form:
        """What was being written."""
        if self.fence is not None and self.fence.info.lower() not in _PLAIN:
            return Form(_FORMS.get(self.fence.info.lower().split()[0], Form.CODE))
        return self._form_of_document() or self._form_of_lines()

    def _form_of_document(self) -> Form | None:
        first = self.text[:200].lstrip()
        if self.fence is None and re.match(r"[\[{]\s*[\"{\[\]}\d-]", first):
            return Form.JSON
        if self.fence is None and re.match(r"<(?:!doctype|\?xml|[a-z]+[ >])", first, re.IGNORECASE):
            return Form.HTML
        return None

    def _form_of_lines(self) -> Form:
        last = self.last_line.strip()
        if last.startswith("|") and last.count("|") > 1:
            return Form.TABLE
        lines = [line for line in self.near.split("\n")[-24:] if line.strip()]
        whole = lines[:-1] if self.inside_line else lines
        if self.columns and len(whole) > 2 and all(self._is_record(x) for x in whole[-3:]):
            return Form.CSV
        if len(lines) > 3 and sum(bool(_YAML_LINE.match(x)) for x in lines) * 5 > len(lines) * 4:
            return Form.YAML
        coded = sum(bool(_CODE_LINE.search(line[:200])) for line in lines)
        if coded * 2 > len(lines) and len(lines) > 3:
            return Form.CODE
        return Form.LIST if re.match(r"(?:[-*+]|\d+[.)])\s", last) else Form.PROSE

    def _is_record(self, line: str) -> bool:
        return cells(line) == self.columns and ", " not in _QUOTED.sub("", line)

    @cached_property
    def columns(self) -> int:
        """The number of fields of the last finished line, or 0 when it has only one."""
        lines = self.near.rsplit("\n", 3)
        found = cells(lines[-2]) if len(lines) > 1 and lines[-2] else 0
        return found if found > 1 else 0

    @cached_property
    def inside_string(self) -> bool:
        """Whether a JSON string is open; such a string holds no bare newline."""
        line = re.sub(r"\\.", "", self.line)
        return self.form is Form.JSON and line.count('"') % 2 == 1
