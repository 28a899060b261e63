"""Analysis of one text: what is open at its end, how new a part of it is, whether it repeats.

`Cut` says what is open: a code fence, a JSON string, a table, a list, a word. `novelty` measures
how new a part is, as the number of bits that are needed to write it after the text before it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import log2
from typing import Final

# What is open at the end ------------------------------------------------------------------------

_FENCE: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})([^\n`]*)")
_CODE_LINE: Final = re.compile(
    r"[;{}\[\]()=,]\s*$|^\s*(?:[#@}\])]|//|/\*|\*|<)|\w\(|\)\s*:|:\s*$|\s[-+*/=!<>]?=\s|^\s{4,}\S|->|=>"
)
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*("|$)')
_YAML_LINE: Final = re.compile(r"\s*(?:- )?[\w.\-\"']+:(?:\s|$)|\s*- |\s*#")


class Form(StrEnum):
    """The kind of a text."""

    PROSE = "prose"
    CODE = "code"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"
    TABLE = "table"
    LIST = "list"


#: Info string of a fence -> form; others mean code, and those in `_PLAIN` any form.
_FORMS: Final = {
    **dict.fromkeys(("json", "jsonc"), Form.JSON),
    **dict.fromkeys(("csv", "tsv"), Form.CSV),
    **dict.fromkeys(("html", "xml"), Form.HTML),
    **dict.fromkeys(("yaml", "yml"), Form.YAML),
}
_PLAIN: Final = frozenset({"", "text", "txt", "plain", "plaintext", "markdown", "md"})


@dataclass(frozen=True, slots=True)
class Fence:
    """An open code fence: its marker (three or more backticks or tildes) and info string."""

    marker: str
    info: str
    nested: bool = False
    """Whether other fences are opened in it."""


def fence_line(line: str) -> Fence | None:
    """Return the fence that `line` opens or closes; `None`: it is not a fence line."""
    found = _FENCE.fullmatch(line.rstrip())
    return Fence(found[1], found[2].strip()) if found else None


def cells(line: str, separator: str = ",") -> int:
    """Return the number of fields in a line of separated values or of a Markdown table."""
    if separator == "|":
        return line.replace("\\|", "").strip().strip("|").count("|") + 1
    unquoted = _QUOTED.sub("", line) if '"' in line else line
    return unquoted.count(separator) + 1


def shape(line: str) -> str:
    """Return `line` with one letter for each word or number, and without its indentation."""
    return re.sub(r"\w+", "w", line.strip())


def is_indentation(text: str, space: str) -> bool:
    """Whether a line of `text` is indented by exactly `space`."""
    return re.search(rf"\n{space}\S", text) is not None


class Cut:
    """The end of a text. Properties that need more than a few lines are computed on first use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.near = near = text[-4096:]
        self.line = near[near.rfind("\n") + 1 :]
        """The unfinished last line; empty right after a newline."""
        self.last_line = near.rstrip("\n").rpartition("\n")[2]
        """The last line that is not empty, finished or not."""
        self.inside_line = bool(self.line.strip())
        """Whether the unfinished last line has more than white space."""
        self.inside_word = text[-1:].isalnum()
        """Whether the last character is a letter or digit."""

    @cached_property
    def shapes(self) -> list[str]:
        """The shapes of the finished lines."""
        return [shape(line) for line in self.near.split("\n")[1:-1]]

    @cached_property
    def fence(self) -> Fence | None:
        """The open code fence (CommonMark 4.5); `None`: no fence is open."""
        text = self.text
        starts: set[int] = set()  # of the lines with a marker
        for marker in ("```", "~~~"):
            # A search for one character is much faster than for three, and most texts have none.
            at = text.find(marker[0])
            at = text.find(marker, at) if at >= 0 else -1
            while at >= 0:
                starts.add(text.rfind("\n", 0, at) + 1)
                end = text.find("\n", at)
                at = text.find(marker, end) if end >= 0 else -1
        current: Fence | None = None
        for at in sorted(starts):
            end = text.find("\n", at)
            line = fence_line(text[at : end if end >= 0 else None])
            if line is None:
                continue
            if current is None:
                # A bare row of tildes underlines the line above it in reStructuredText.
                above = text[text.rfind("\n", 0, max(0, at - 1)) + 1 : at]
                if line.info or line.marker[0] != "~" or not above.strip():
                    current = line
            elif not line.info and line.marker.startswith(current.marker):
                current = None
            elif line.info:
                current = replace(current, nested=True)
        return current

    @cached_property
    def form(self) -> Form:
        """The kind of text at the end, by the fence, the document's top, or the last lines."""
        info = self.fence.info.lower() if self.fence is not None else ""
        if info not in _PLAIN:
            return _FORMS.get(info.split()[0], Form.CODE)
        if self.fence is None:
            top = self.text[:200].lstrip()
            if re.match(r"[\[{]\s*[\"{\[\]}\d-]", top):
                return Form.JSON
            if re.match(r"<(?:!doctype|\?xml|[a-z]+[ >])", top, re.IGNORECASE):
                return Form.HTML
        last = self.last_line.strip()
        above = self.near.rstrip("\n").rpartition("\n")[0].rpartition("\n")[2].lstrip()
        if last.startswith("|") and (last.count("|") > 1 or above.startswith("|")):
            return Form.TABLE
        lines = [*filter(str.strip, self.near.split("\n")[-24:])]
        records, mark = (lines[:-1] if self.inside_line else lines)[-3:], self.separator
        alike = len(records) == 3 and self.columns > 0
        for record in records if alike else ():
            spaced = mark + " " in _QUOTED.sub("", record)
            alike = alike and cells(record, mark) == self.columns and not spaced
        if alike:
            return Form.CSV
        if len(lines) > 3 and len([*filter(_YAML_LINE.match, lines)]) * 5 > len(lines) * 4:
            return Form.YAML
        coded = sum(bool(_CODE_LINE.search(line[:200])) for line in lines)
        if coded * 2 > len(lines) and len(lines) > 3:
            return Form.CODE
        return Form.LIST if re.match(r"(?:[-*+]|\d+[.)])\s", last) else Form.PROSE

    @cached_property
    def separator(self) -> str:
        """The separator of fields: a comma, unless `;` or a tab separates three or more of them."""
        records = self.near.rsplit("\n", 3)[-3:-1]
        for mark in (";", "\t"):
            found = {cells(record, mark) for record in records}
            if len(found) == 1 and min(found) > 2:
                return mark
        return ","

    @cached_property
    def columns(self) -> int:
        """The number of fields of the last finished line; 0 if it has only one."""
        lines = self.near.rsplit("\n", 3)
        found = cells(lines[-2], self.separator) if len(lines) > 1 and lines[-2] else 0
        return found if found > 1 else 0

    @property
    def at_end(self) -> bool:
        """Whether a text may end here: not in a word, sentence, fence, table row or JSON."""
        text = self.text.rstrip()
        if not text or self.is_open:
            return False
        in_row = self.form in {Form.JSON, Form.TABLE, Form.CSV}
        return in_row or not text[-1].isalnum() or not self.inside_line

    @property
    def is_open(self) -> bool:
        """Whether no text ends here: in a code block, a row of a table or JSON, after a comma."""
        text = self.text.rstrip()
        if not text or self.fence is not None:
            return bool(text)
        if self.form is Form.JSON:
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                return True
            return False
        if self.form in {Form.TABLE, Form.CSV} and self.inside_line:
            return not text.endswith("|")
        return text[-1] in ",;:" or unicodedata.category(text[-1]) in {"Pd", "Ps"}

    @property
    def in_prose(self) -> bool:
        """Whether the text stopped among sentences."""
        return self.form in (Form.PROSE, Form.LIST)

    @cached_property
    def inside_string(self) -> bool:
        """Whether a JSON string is open. Such a string cannot contain a bare newline."""
        line = re.sub(r"\\.", "", self.line)
        return self.form is Form.JSON and line.count('"') % 2 == 1


def seen_gap(cut: Cut, space: str, rest: str) -> int:
    """Return how often the text has characters like those at the seam, with this space between.

    The white space is that at the text's end, then `space`, then that before `rest`. With an empty
    `rest`, any character may follow.
    """
    end, begun = cut.near.rstrip(), rest.lstrip()
    if not end:
        return 0
    between = cut.near[len(end) :] + space + rest[: len(rest) - len(begun)]
    following = _like(begun[0]) if begun else r"\S"
    return len(re.findall(f"{_like(end[-1])}{re.escape(between)}(?={following})", cut.near))


def _like(char: str) -> str:
    return r"[^\W\d_]" if char.isalpha() else r"\d" if char.isdigit() else re.escape(char)


# How new a part of it is ------------------------------------------------------------------------

#: Most characters of earlier text that are read. This limits the time for long answers.
WINDOW: Final = 8192
#: After this many characters of context that occurred before, the next ones are predictable.
_CONTEXT: Final = 5
#: Cost in bits of a continuation that a known context predicts, and of a copy from anywhere.
_PREDICTED: Final = 4.0
_COPIED: Final = 13.0
#: Longest single copy that is searched; a longer one counts as several.
_PHRASE: Final = 64


def novelty(before: str, repeated: str, *, enough: float = 96.0) -> float:
    """Return the bits that are needed to write `repeated` after the text before it.

    `before` ends with `repeated`. The bits are counted as a small compressor would. Counting stops
    at `enough` bits.
    """
    known = before[max(0, len(before) - len(repeated) - WINDOW) : len(before) - len(repeated)]
    led_by = before[-_CONTEXT:] + repeated
    literal = max(0.5, 0.75 * log2(len(set(before[-512:] or repeated[:512])) or 1))
    bits, at = 0.0, 0
    while at < len(repeated) and bits < enough:
        text = known + repeated[:at]
        length = _copied(text, led_by[at : at + _CONTEXT], repeated, at)
        if length:
            bits += _PREDICTED
        else:
            length = max(1, _copied(text, "", repeated, at))
            bits += min(length * literal, _COPIED)
        at += length
    return bits


def _copied(known: str, context: str, text: str, at: int) -> int:
    """Return how many characters of `text` from `at` on occur in `known` right after `context`."""
    most = min(_PHRASE, len(text) - at)
    return _longest(most, lambda n: context + text[at : at + n] in known)


def seen_with(known: str, right: str) -> int:
    """Return how much of the end of `known`, up to 12 characters, precedes `right` elsewhere in it.

    Return -1 if `right` does not occur.
    """
    if not right or right not in known:
        return -1
    return _longest(min(12, len(known)), lambda n: known[len(known) - n :] + right in known)


def is_run(text: str) -> bool:
    """Whether `text` repeats one unit, so that more of the same may follow."""
    third = len(text) // 3
    unit = text.find(text[:third], 1)
    while 0 < unit <= len(text) * 2 // 3:
        same = common_prefix(text[unit:], text)
        if same == len(text) - unit:
            return True
        # A multiple of this unit would fail at the same place, so skip multiples.
        unit = text.find(text[:third], max(unit, unit + same - third) + 1)
    return False


def common_suffix(left: str, right: str, most: int = 1024) -> int:
    """Return the length of the longest common ending, at most `most`."""
    most = min(len(left), len(right), most)
    return _longest(most, lambda n: left.endswith(right[len(right) - n :]))


def common_prefix(left: str, right: str) -> int:
    """Return the length of the longest common beginning."""
    return _longest(min(len(left), len(right)), lambda n: left.startswith(right[:n]))


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest length up to `most` that fits, by doubling and then halving."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


# The same in other typography -------------------------------------------------------------------

#: Typographic characters -> their plain equivalents.
_PLAINLY: Final = {
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("‘’‚‛′´`", "'"),  # noqa: RUF001 - the signs that are meant
    **dict.fromkeys("‐‑‒–—―−", "-"),  # noqa: RUF001 - the signs that are meant
    "…": "...",
}


def fold(text: str) -> tuple[str, list[int]]:
    """Return `text` in plain typography, decomposed, with single spaces; and a list of ends.

    For each character of the result, the list has the index in `text` where its source ends.
    """
    folded: list[str] = []
    ends: list[int] = []
    for at, char in enumerate(text, 1):
        plain = " " if char.isspace() else _PLAINLY.get(char)
        if plain is None:
            plain = char if char.isascii() else unicodedata.normalize("NFD", char)
        if plain == " " == (folded[-1] if folded else ""):
            ends[-1] = at
            continue
        folded += plain
        ends += [at] * len(plain)
    return "".join(folded), ends


# The anchor -------------------------------------------------------------------------------------


#: The last word before the start of a line or sentence.
_LED: Final = re.compile(r"\S{1,24}(?:\s*\n\s*|(?<=[.!?:;,…])\s+|(?<=[。！？：；，]))\Z")  # noqa: RUF001

_WORD_BEFORE: Final = re.compile(r"\S+\s*\Z")


def choose_anchor(before: str) -> str | None:
    """Return the shortest end of `before` that is long, rare and new enough for an anchor.

    It starts at a word or a line. `None`: the text is too short; or it repeats itself up to its
    end, so that no anchor could distinguish a repetition from a continuation.
    """
    text = before.rstrip("\ufffd")
    near = text[-262144:]  # the anchor must be unique in this part
    bordered = None
    for size in (24, 40, 64, 100, 160, 250, 400):
        if size > len(text):
            break
        at = start = len(text) - size
        while start > max(0, at - 16) and not text[start - 1].isspace():
            start -= 1
        # A longer word is split.
        tail = text[start if start == 0 or text[start - 1].isspace() else at :]
        # A complete line or sentence may come again, but hardly with the same word before it.
        led = _LED.search(text[max(0, len(text) - len(tail) - 40) : len(text) - len(tail)])
        longer = text[len(text) - len(tail) - len(led[0]) :] if led else tail
        words = _WORD_BEFORE.search(text[: len(text) - len(longer)][-40:])
        if words and _has_border(longer):
            longer = text[len(text) - len(longer) - len(words[0]) :]
        for end in dict.fromkeys((longer, tail)):
            if near.count(end) != 1 or is_run(end) or novelty(text, end) < 56.0:  # bits
                continue
            # If the text before the anchor has a similar end, more of the same may follow.
            if common_suffix(text, text[: len(text) - len(end)]) * 4 > len(end):
                continue
            if not _has_border(end):
                return end
            bordered = bordered or end
    # In similar rows, each end of the text has a border. Such an anchor is better than none.
    return bordered


def _has_border(text: str) -> bool:
    """Whether `text` begins as it ends. In a run, an echo of its end would look like all of it."""
    return any(
        text.startswith(text[-size:]) and any(map(str.isalpha, text[-size:]))
        for size in range(1, len(text) // 2)
    )


# Whether it adds something new ------------------------------------------------------------------

#: The least characters of repetition that count as nothing new.
_SAME: Final = 128


def says_the_same(text: str, at: int) -> bool:
    """Whether `text[at:]` is one unit, four times or more, new or continued from `text[:at]`.

    Answers that are meant to repeat themselves (padding, a column of zeros) look the same. So this
    must never cause text to be dropped or an answer to be stopped.
    """
    new = len(text) - at
    before = text.rfind(text[-64:], 0, len(text) - 1)
    if new < _SAME or before < 0:
        return False
    unit = len(text) - 64 - before
    again = common_suffix(text, text[: len(text) - unit], most=new)
    return 4 * unit <= new <= unit + again
