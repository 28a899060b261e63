"""Decisions by syntax: repeated fences, headers and lines, and white space at the seam.

Models open a fence again that is still open, or repeat the head of the open table or the last line.
Where the syntax allows only one reading, no odds are needed. White space is kept, unless the state
of the text allows only one reading there too.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from continuation.seams.text import (
    Cut,
    Fence,
    Form,
    cells,
    fence_line,
    is_run,
    novelty,
    seen_gap,
    shape,
)

_OPENER: Final = re.compile(r"\s*((?:`{3,}|~{3,})[^\n`]*)\n")
_TICKS: Final = ("`", "~")
_BLOCK: Final = re.compile(r"[^\S\n]*(?:\|.*\||#{1,6} .*|>.*|[-*+] .*|(?:`{3}|~{3}).*)$")
_RULER: Final = re.compile(r"[\s|:\-]*-[\s|:\-]*")
_ALIASES: Final = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "sh": "bash",
    "shell": "bash",
    "yml": "yaml",
    "c++": "cpp",
    "md": "markdown",
    "htm": "html",
    "rs": "rust",
    "rb": "ruby",
}
#: A line of JSON that cannot follow itself: a member or a last value.
_JSON_LINE: Final = re.compile(
    r'"[^"]+": (?:.*,|\[)|(?:"[^"]+": )?(?:"(?:[^"\\]|\\.)*"|-?\d[\w.+-]*|true|false|null)'
)
_NUMBERED: Final = re.compile(r"\s*(?:[-*]\s+)?(\d{1,4})([.)])\s+\S")
# Fences -----------------------------------------------------------------------------------------


def reopens(cut: Cut, head: str) -> tuple[int, bool | None] | None:
    """Return the size of the fence line at the start of `head` (if any), and what it opens again.

    `True`: a text that had no fence, so the line that closes this fence later is superfluous too.
    `False`: the fence that is open. `None`: nothing.
    """
    opened = _OPENER.match(head)
    fence = fence_line(opened[1]) if opened else None
    if opened is None or fence is None or cut.line.strip()[:1] in _TICKS:
        return None
    size = opened.end()
    if cut.fence is None:
        return size, True if _wraps_document(cut, fence) else None
    if cut.fence.nested or fence.marker[0] != cut.fence.marker[0]:
        return size, None
    if fence.info:
        ours, theirs = _language(cut.fence), _language(fence)
        if not ours:  # after a blank line in a plain fence, it is a new block
            same = cut.inside_line or not (head[0] == "\n" or cut.near.endswith("\n\n"))
        else:
            same = ours == theirs or (
                ours not in ("markdown", "mdx", "rst")  # in these, other fences are content
                and (ours.startswith(theirs) or theirs.startswith(ours))
            )
        return size, False if same else None
    if head.lstrip("\r\n")[:1].isspace():
        return size, None  # indented like the text around it, so it closes the fence
    return size, False if _goes_on_as_code(cut, head[size:]) else None


def _language(fence: Fence) -> str:
    word = re.split(r"[\s{:,]", fence.info.lower().strip(), maxsplit=1)[0]
    return _ALIASES.get(word, word)


def _wraps_document(cut: Cut, fence: Fence) -> bool:
    """Whether the fence wraps a document that the text began without a fence."""
    if cut.inside_line and cut.form in (Form.JSON, Form.CSV, Form.HTML):
        return True
    if cut.form is Form.CODE and cut.line:  # no fence belongs inside a line of code
        return fence.marker[:3] not in cut.near
    languages = {
        Form.JSON: ("json", "jsonc", ""),
        Form.CSV: ("csv", "tsv", "text", ""),
        Form.HTML: ("html", "xml", "svg", ""),
    }
    return _language(fence) in languages.get(cut.form, ())


def _goes_on_as_code(cut: Cut, rest: str) -> bool:
    """Whether `rest` is fenced text, so that the bare fence line before it did not close."""
    if not rest.strip() or fence_line(rest.lstrip("\n").partition("\n")[0]) is not None:
        return False  # an empty block: the fence was not opened again
    if rest.startswith("\n"):
        return _looks_fenced(cut, rest.lstrip("\n")) and _next_fence_closes(rest)
    begun = fence_line(cut.last_line) is not None and not cut.near.endswith("\n\n")
    if cut.inside_line or begun:
        return True  # inside a line, or before the block's first line
    return _looks_fenced(cut, rest) or (_next_fence_closes(rest) and not _is_sentence(rest))


def _is_sentence(rest: str) -> bool:
    line = rest.lstrip("\n").partition("\n")[0]
    return bool(re.match(r"[A-Z#*\-\d>À-ɏ一-鿿]", line)) and len(line.split()) > 2


def _next_fence_closes(rest: str) -> bool:
    """Whether the next fence line in `rest` is a bare one."""
    fence = next(filter(None, map(fence_line, rest.split("\n"))), None)
    return fence is not None and not fence.info


def _looks_fenced(cut: Cut, rest: str) -> bool:
    """Whether the first line of `rest` is indented, or has the signs of the fenced text."""
    line = rest.partition("\n")[0]
    if line[:1] in (" ", "\t"):
        return True
    signs = sum(char in "{}()[]=;<>_\"'|\\/:@$&" for char in line)
    if signs >= 2 and not _is_sentence(rest):
        return True
    first = re.match(r"\w+", line)
    return first is not None and ("\n" + first[0]) in cut.near[cut.near.rfind("```") :]


# Repeated lines ---------------------------------------------------------------------------------


def line_again(cut: Cut, head: str) -> int | None:
    """Return how many characters of `head` repeat the last line, if the syntax proves it; else 0.

    It does if otherwise a table row or record had a cell too many, a mapping the same key twice, or
    a list an end after its comma. `None`: the complete first line of `head` is needed to decide.
    """
    line = cut.line or cut.last_line + "\n"
    if not line.strip() or not cut.text.endswith(line) or not head.startswith(line):
        return 0
    if not cut.line:
        return len(line) if _cannot_follow_itself(cut, line.strip()) else 0
    above = cut.near.rpartition("\n")[0].rpartition("\n")[2]
    if line.strip() == "|":
        return _row_again(above, head, len(line))
    proven = fits_only_without(cut, head, len(line))
    return None if proven is None else len(line) * proven


def fits_only_without(cut: Cut, head: str, size: int) -> bool | None:
    """Whether `head` can continue such a text only without its first `size` characters.

    With them, a row or record has too many cells, a line differs from all others of the text, or
    JSON has an impossible indentation. `None`: more of `head` is needed to decide.
    """
    if cut.form is Form.JSON and not _is_indented_json(cut, head[:size]):
        return _is_indented_json(cut, "") and _is_indented_json(cut, head[size:])
    if is_run(head[:size]) and cut.form not in (Form.TABLE, Form.CSV):
        return False
    if "\n" not in head[size:]:
        return None
    without, doubled = (cut.line + part.partition("\n")[0] for part in (head[size:], head))
    if cut.inside_line and cut.form in (Form.TABLE, Form.CSV):
        if "\n" in head[:size]:
            return False  # an additional row is not a row with a cell too many
        above = cut.near.rpartition("\n")[0].rpartition("\n")[2]
        rows = (
            row.count("|") if cut.form is Form.TABLE else cells(row, cut.separator)
            for row in (above, without, doubled)
        )
        before, fewer, more = rows
        return before == fewer != more
    new = "\n" in head[:size] or (size >= 24 and novelty(cut.text, head[:size], enough=24) >= 24)
    return new and cut.shapes.count(shape(without)) >= 3 and shape(doubled) not in cut.shapes


def _is_indented_json(cut: Cut, more: str) -> bool:
    """Whether the last lines with `more` are indented like JSON, with no key twice in a row."""
    lines = [line for line in (cut.near[-1024:] + more).split("\n")[1:] if line.strip()]
    return len(lines) > 4 and all(_may_follow(*pair) for pair in pairwise(lines))


def _may_follow(above: str, below: str) -> bool:
    deeper = len(below) - len(below.lstrip()) - len(above) + len(above.lstrip())
    last = above.rstrip()[-1]
    if last in "[{":
        return deeper > 0
    if last != ",":
        return deeper < 0 and below.lstrip()[0] in "]}"
    key = re.match(r'\s*"[^"]*":', above)
    return deeper == 0 and not (key and below.startswith(key[0]))


def _row_again(above: str, head: str, size: int) -> int | None:
    """Return `size` if `head` repeats the bar that begins its row, else 0; `None`: unknown yet."""
    inside = above.lstrip().startswith("|")
    rows = head.split("\n", 2)
    if len(rows) < 3:
        return None
    if inside == (_RULER.fullmatch(rows[1]) is not None):
        return 0  # a table's header row, not a repeated bar
    return size if rows[0].count("|") == (above if inside else rows[1]).count("|") else 0


def _cannot_follow_itself(cut: Cut, line: str) -> bool:
    if cut.form is Form.JSON:
        return line in ("},", "],", "{") or _JSON_LINE.fullmatch(line) is not None
    return cut.form is Form.YAML and re.fullmatch(r"[\w.-]+:(?: .*)?", line) is not None


def repeated_header(cut: Cut, head: str) -> int:
    """Return how many characters of `head` repeat a header of the text; 0: none.

    The header is the header row of the open table with its ruler, that of the CSV file, or a block
    of Markdown a few lines above. Only complete lines count.
    """
    body = head.lstrip("\n")
    if "\n" not in body:
        return 0
    size = _csv_header(cut, body) or _table_header(cut, body) or _block_above(cut, body)
    return len(head) - len(body) + size if size else 0


def _csv_header(cut: Cut, body: str) -> int:
    first = body.partition("\n")[0].rstrip("\r")
    top = cut.text[:2000].partition("\n")[0].rstrip("\r")
    if first != top or cut.form is not Form.CSV or cells(first, cut.separator) != cut.columns:
        return 0
    if f"\n{top}" in cut.text or sum(map(str.isalpha, top)) * 2 < len(top):
        return 0
    return body.find("\n") + 1


def _table_header(cut: Cut, body: str) -> int:
    """Return the size of header row and ruler if they are those of the open table, else 0."""
    header = body.split("\n", 2)[:-1]
    in_table = cut.last_line.lstrip().startswith("|")
    if not in_table or len(header) < 2 or not _RULER.fullmatch(header[1]):
        return 0
    lines = cut.text[-60000:].rstrip("\n").split("\n")
    start = len(lines)
    while start and lines[start - 1].lstrip().startswith("|"):
        start -= 1
    written = [line.strip() for line in lines[start : start + 2]]
    if len(lines) - start < 3 or [line.strip() for line in header] != written:
        return 0
    return sum(len(line) + 1 for line in header)


def _block_above(cut: Cut, body: str) -> int:
    """Return the size of two or more repeated Markdown lines from above an unfinished one; or 0."""
    if not cut.inside_line or cut.last_line.lstrip().startswith("|"):
        return 0
    lines, above = body.split("\n"), [x.strip() for x in cut.text[-400:].split("\n")[1:-1]]
    count = 0
    while count < len(lines) - 1 and _BLOCK.match(lines[count]):
        count += 1
    for size in range(count, 1, -1):
        block = [line.strip() for line in lines[:size]]
        if block == above[-size:] and novelty("", "\n".join(block)) >= 24:
            return sum(len(line) + 1 for line in lines[:size])
    return 0


# White space ------------------------------------------------------------------------------------


def superfluous(cut: Cut, head: str) -> int:
    """Return how many white space characters at the start of `head` the text's state forbids."""
    space = head[: len(head) - len(head.lstrip())]
    if not space or len(space) == len(head) or not cut.text:
        return 0
    if "\n" in space and cut.inside_string:
        return len(space) - len(space.lstrip("\r\n"))
    if cut.inside_word and joins_to_known_word(cut, head[len(space) :]):
        return len(space)
    return 1 if space == " " and _never_doubles_spaces(cut) else 0


def joins_to_known_word(cut: Cut, rest: str) -> bool:
    """Whether the letters on both sides of the seam form a word that the text has used before."""
    left, right = re.search(r"[^\W\d_]+$", cut.near), re.match(r"[^\W\d_]+", rest)
    if left is None or right is None or not rest[0].islower():
        return False
    word = left[0] + right[0]
    near = cut.near[: left.start()]
    whole, *parts = (
        re.search(rf"(?<!\w){re.escape(x)}(?!\w)", near) for x in (word, left[0], right[0])
    )
    return len(word) >= 5 and whole is not None and not any(parts)


def _never_doubles_spaces(cut: Cut) -> bool:
    """Whether another space would make the first double space in a long text."""
    near = cut.near
    if near[-1:] != " " or near[-2:-1].isspace() or not cut.inside_line:
        return False
    return cut.form in (Form.PROSE, Form.LIST) and near.count(" ") >= 40 and "  " not in near


def lacks(cut: Cut, space: str, rest: str) -> bool:
    """Whether `space` must be inserted before `rest`, as the text has it elsewhere.

    Without it, the characters at the seam would follow each other as they never do in the text.
    With an empty `rest`: whether `space` may be needed.
    """
    return not (rest.strip() and seen_gap(cut, "", rest)) and seen_gap(cut, space, rest) >= 3


def wanted(cut: Cut, head: str) -> str:
    """Return the newline that must be inserted before `head`, or `""`."""
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
    """Whether a table row follows a complete one: `| a | b || c | d |` is not a row."""
    row, line = cut.line.strip(), head.partition("\n")[0].rstrip()
    if not (row.startswith("|") and row.endswith("|") and line.startswith("|")):
        return False
    above = cut.near[: len(cut.near) - len(cut.line)].rstrip("\n").rpartition("\n")[2]
    if row.count("|") <= 2 or cells(row, "|") != cells(above, "|"):
        return False
    return len(line) > 1 and (not line.endswith("|") or cells(line, "|") == cells(row, "|"))


def _starts_next_item(cut: Cut, head: str) -> bool:
    """Whether item n + 1 follows item n, in the same style."""
    this, following = _NUMBERED.match(cut.line), re.match(r"(\d{1,4})([.)])\s+\S", head)
    if this is None or following is None or cut.text[-1].isspace() or cut.text[-1].isdigit():
        return False
    return int(following[1]) == int(this[1]) + 1 and this[2] == following[2]


def _closes_fence(cut: Cut, head: str) -> bool:
    """Whether a bare fence line, which closes the open fence, directly follows a line of code."""
    line, newline, rest = head.partition("\n")
    closing = fence_line(line) if head.startswith(("```", "~~~")) else None
    if closing is None or closing.info or cut.fence is None:
        return False
    return closing.marker.startswith(cut.fence.marker) and (not newline or rest[:1] in ("", "\n"))


def _starts_next_record(cut: Cut, head: str) -> bool:
    """Whether a complete CSV record follows a complete one."""
    if cut.form is not Form.CSV or cut.columns < 3 or cells(cut.line, cut.separator) != cut.columns:
        return False
    line, newline, _ = head.partition("\n")
    return (
        bool(newline) and cells(line, cut.separator) == cut.columns and cut.line.count('"') % 2 == 0
    )


def skips_ahead(cut: Cut, head: str) -> bool:
    """Whether text seems to be missing: the rest of a word, or a number in a list."""
    if cut.inside_word and re.match(r"#{1,6} |\n\s*#{1,6} ", head) and cut.fence is None:
        return True
    this = _NUMBERED.match(cut.line or cut.last_line)
    following = re.match(r"\s*(\d{1,4})([.)])\s+\S", head)
    if this is None or following is None or this[2] != following[2]:
        return False
    return int(following[1]) > int(this[1]) + 1 and "\n" in (
        cut.text[-1:] + head[: following.start(1)]
    )
