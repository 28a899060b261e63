"""White space at a seam: kept as it is, unless the state of the text decides otherwise."""

from __future__ import annotations

import re
from typing import Final

from continuation.seams.state import Cut, Form, cells, fence_line, is_indentation

__all__ = ["skips_ahead", "superfluous", "wanted"]

_NUMBERED: Final = re.compile(r"\s*(?:[-*]\s+)?(\d{1,4})([.)])\s+\S")
_WORD: Final = re.compile(r"[^\W\d_]+")
#: What may be followed by a deeper line.
_OPENING: Final = tuple(":({[,\\=|&+-*>")
#: Times a habit must have shown before its absence tells something.
_OFTEN: Final = 40


def superfluous(cut: Cut, head: str) -> int:
    """White space at the start of `head` that the state of the text forbids."""
    space = head[: len(head) - len(head.lstrip())]
    if not space or len(space) == len(head) or not cut.text:
        return 0
    if "\n" in space and cut.inside_string:
        return len(space) - len(space.lstrip("\r\n"))
    if cut.inside_word and _joins_to_known_word(cut, head[len(space) :]):
        return len(space)
    if _indents_twice(cut, space):
        return len(cut.line)
    if space == " " and _never_doubles_spaces(cut):
        return 1
    return 0


def _indents_twice(cut: Cut, space: str) -> bool:
    """Whether white space that is an indentation of its own follows on one.

    Together they would indent deeper than the line above, which opens nothing, or by an odd
    width, and by one the text has not used; the second alone is one that it has.
    """
    line = cut.line
    if not line or line.strip() or "\n" in space or not space.startswith(line) or len(space) < 2:
        return False
    above = cut.near[: len(cut.near) - len(line)].rstrip().rpartition("\n")[2]
    opens = sum(map(above.count, "([{")) > sum(map(above.count, ")]}")) or above[-1:] in _OPENING
    width = len(line + space)
    deeper = width > len(above) - len(above.lstrip()) or width % 2
    known = is_indentation(cut.near, space) and not is_indentation(cut.near, line + space)
    return bool(deeper) and known and not opens


def _joins_to_known_word(cut: Cut, rest: str) -> bool:
    """Whether the parts on both sides are pieces of one word the text has used before."""
    left = re.search(r"[^\W\d_]+$", cut.near)
    right = _WORD.match(rest)
    if left is None or right is None or not rest[0].islower():
        return False
    word = left[0] + right[0]
    near = cut.near[: left.start()]
    if len(word) < 5 or not _has_word(near, word):
        return False
    return not _has_word(near, left[0]) and not _has_word(near, right[0])


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _never_doubles_spaces(cut: Cut) -> bool:
    """Whether a second space would be the first double one in a long text."""
    near = cut.near
    if near[-1:] != " " or near[-2:-1].isspace() or not cut.inside_line:
        return False
    return cut.form in (Form.PROSE, Form.LIST) and near.count(" ") >= _OFTEN and "  " not in near


def wanted(cut: Cut, head: str) -> str:
    """The newline that must stand before `head`, or nothing."""
    if not cut.inside_line or not head or head[0].isspace():
        return ""
    new_line = (
        _starts_new_row(cut, head)
        or _starts_next_item(cut, head)
        or _closes_fence(cut, head)
        or _starts_next_record(cut, head)
    )
    return "\n" if new_line else ""


def _starts_new_row(cut: Cut, head: str) -> bool:
    """A whole table row right after a whole one: `| a | b || c | d |` is no row."""
    row, line = cut.line.strip(), head.partition("\n")[0].rstrip()
    if not (row.startswith("|") and row.endswith("|") and line.startswith("|")):
        return False
    whole = row.count("|") > 2 and cells(row, "|") == cells(_row_above(cut), "|")
    return (
        whole and len(line) > 1 and (not line.endswith("|") or cells(line, "|") == cells(row, "|"))
    )


def _row_above(cut: Cut) -> str:
    return cut.near[: len(cut.near) - len(cut.line)].rstrip("\n").rpartition("\n")[2]


def _starts_next_item(cut: Cut, head: str) -> bool:
    """Item n + 1 right after item n, in the same style."""
    this, following = _NUMBERED.match(cut.line), re.match(r"(\d{1,4})([.)])\s+\S", head)
    if this is None or following is None or cut.text[-1].isspace() or cut.text[-1].isdigit():
        return False
    return int(following[1]) == int(this[1]) + 1 and this[2] == following[2]


def _closes_fence(cut: Cut, head: str) -> bool:
    """The bare fence line that closes the open fence, glued to a line of code."""
    line, newline, rest = head.partition("\n")
    closing = fence_line(line) if head.startswith(("```", "~~~")) else None
    if closing is None or closing.info or cut.fence is None:
        return False
    return closing.marker.startswith(cut.fence.marker) and (not newline or rest[:1] in ("", "\n"))


def _starts_next_record(cut: Cut, head: str) -> bool:
    """A whole CSV record right after a whole one."""
    if cut.form is not Form.CSV or cut.columns < 3 or cells(cut.line) != cut.columns:
        return False
    line, newline, _ = head.partition("\n")
    return bool(newline) and cells(line) == cut.columns and cut.line.count('"') % 2 == 0


def skips_ahead(cut: Cut, head: str) -> bool:
    """Whether something seems to be missing: a broken word, or a number left out of a list."""
    if cut.inside_word and re.match(r"#{1,6} |\n\s*#{1,6} ", head) and cut.fence is None:
        return True
    this = _NUMBERED.match(cut.line or cut.last_line)
    following = re.match(r"\s*(\d{1,4})([.)])\s+\S", head)
    if this is None or following is None or this[2] != following[2]:
        return False
    return int(following[1]) > int(this[1]) + 1 and "\n" in (
        cut.text[-1:] + head[: following.start(1)]
    )
