"""Blocks that models write again at a seam: the fence that is open, the head of the open table."""

from __future__ import annotations

import re
from typing import Final

from continuation.seams.evidence import novelty
from continuation.seams.state import Cut, Fence, Form, cells, fence_line

__all__ = ["fence_opening", "line_again", "reopens", "repeated_header"]

_OPENER: Final = re.compile(r"\s*((?:`{3,}|~{3,})[^\n`]*)\n")
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
#: A line of JSON behind which it cannot stand again: a key, or the last value of its kind.
_JSON_LINE: Final = re.compile(
    r'"[^"]+": (?:.*,|\[)|(?:"[^"]+": )?(?:"(?:[^"\\]|\\.)*"|-?\d[\w.+-]*|true|false|null)'
)
#: How far back a block that is written again may stand.
_NEAR: Final = 400


def fence_opening(head: str) -> tuple[str, Fence] | None:
    """The fence line with which `head` begins, white space before it included."""
    found = _OPENER.match(head)
    fence = fence_line(found[1]) if found else None
    return (found[0], fence) if found and fence else None


def reopens(cut: Cut, opening: str, fence: Fence, rest: str) -> bool | None:
    """Whether the fence line `opening` before `rest` opens again what is being written.

    None when it does not. True when that was written without a fence, so that the line which
    closes the fence later on is superfluous as well; False when the fence was open already.
    """
    if cut.fence is None:
        return True if _wraps_document(cut, fence) else None
    if fence.info:
        return False if _same_language(cut.fence, fence) else None
    if opening.lstrip("\r\n")[:1].isspace():
        return None  # indented with the text around it: it closes
    return False if _goes_on_as_code(cut, rest) else None


def _same_language(current: Fence, again: Fence) -> bool:
    ours, theirs = (_language(fence.info) for fence in (current, again))
    if ours in ("markdown", "mdx", "rst"):
        return theirs == ours
    if not ours:
        return True
    return ours == theirs or ours.startswith(theirs) or theirs.startswith(ours)


def _language(info: str) -> str:
    word = re.split(r"[\s{:,]", info.lower().strip(), maxsplit=1)[0]
    return _ALIASES.get(word, word)


def _wraps_document(cut: Cut, fence: Fence) -> bool:
    """Whether the fence wraps a document that was being written without one."""
    if cut.inside_line and cut.form in (Form.JSON, Form.CSV, Form.HTML):
        return True
    if cut.form is Form.CODE and cut.line:  # a line of code is not broken off by a fence
        return fence.marker[:3] not in cut.near
    info = _language(fence.info)
    return {
        Form.JSON: info in ("json", "jsonc", ""),
        Form.CSV: info in ("csv", "tsv", "text", ""),
        Form.HTML: info in ("html", "xml", "svg", ""),
    }.get(cut.form, False)


def _goes_on_as_code(cut: Cut, rest: str) -> bool:
    """Whether a bare fence line before `rest` closed nothing, as `rest` is what was fenced."""
    if not rest.strip():
        return False
    if rest.startswith("\n"):
        return _looks_fenced(cut, rest.lstrip("\n")) and _next_fence_closes(rest)
    if cut.inside_line:
        return True
    return _looks_fenced(cut, rest) or (_next_fence_closes(rest) and not _is_sentence(rest))


def _is_sentence(rest: str) -> bool:
    line = rest.lstrip("\n").partition("\n")[0]
    return bool(re.match(r"[A-Z#*\-\d>À-ɏ一-鿿]", line)) and len(line.split()) > 2


def _next_fence_closes(rest: str) -> bool:
    """Whether the next fence line in `rest` is a bare one."""
    for line in rest.split("\n"):
        fence = fence_line(line)
        if fence is not None:
            return not fence.info
    return False


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


def line_again(cut: Cut, head: str) -> int | None:
    """Characters at the start of `head` that say the last line again, as the syntax proves.

    A table row or record would have a cell too many, a mapping the same key twice, a list an
    end after its comma. None when the first line of `head` is needed whole to tell; else 0.
    """
    line = cut.line or cut.last_line + "\n"
    if not line.strip() or not cut.text.endswith(line) or not head.startswith(line):
        return 0
    if not cut.line:
        return len(line) if _cannot_follow_itself(cut, line) else 0
    if line.strip() == "|":
        return _row_again(cut, head, len(line))
    separator = {Form.TABLE: "|", Form.CSV: ","}.get(cut.form)
    if separator is None:
        return 0
    if "\n" not in head:
        return None
    row, above = head.partition("\n")[0], cut.near.rpartition("\n")[0].rpartition("\n")[2]
    fields = [_separators(text, separator) for text in (above, row, line + row)]
    return len(line) if fields[0] == fields[1] != fields[2] else 0


def _row_again(cut: Cut, head: str, size: int) -> int | None:
    """The bar with which a row had just begun, said again: the row has all its bars without it."""
    above = cut.near.rpartition("\n")[0].rpartition("\n")[2]
    inside = above.lstrip().startswith("|")
    rows = head.split("\n", 2)
    if len(rows) < 3:
        return None
    if inside == (_RULER.fullmatch(rows[1]) is not None):
        return 0  # the head of a table: of this one, or of none
    beside = above if inside else rows[1]
    return size if _separators(rows[0], "|") == _separators(beside, "|") else 0


def _separators(row: str, separator: str) -> int:
    return row.rstrip().count("|") if separator == "|" else cells(row)


def _cannot_follow_itself(cut: Cut, line: str) -> bool:
    said = line.strip()
    if cut.form is Form.JSON:
        return said in ("},", "],", "{") or _JSON_LINE.fullmatch(said) is not None
    if cut.form is Form.YAML:
        return re.fullmatch(r"[\w.-]+:(?: .*)?", said) is not None
    return False


def repeated_header(cut: Cut, head: str) -> int:
    """Characters of whole lines at the start of `head` that head what is being written.

    That is the header row of the open table with its ruler, the header of the CSV file, or a
    block of Markdown that stands a few lines above.
    """
    lead = len(head) - len(head.lstrip("\n"))
    body = head[lead:]
    if body.count("\n") == 0:
        return 0
    size = _csv_header(cut, body) or _table_header(cut, body) or _block_above(cut, body)
    return lead + size if size else 0


def _csv_header(cut: Cut, body: str) -> int:
    first = body.partition("\n")[0].rstrip("\r")
    top = cut.text[:2000].partition("\n")[0].rstrip("\r")
    if first != top or cut.form is not Form.CSV or cells(first) != cut.columns:
        return 0
    if f"\n{top}" in cut.text or sum(map(str.isalpha, top)) * 2 < len(top):
        return 0
    return body.find("\n") + 1


def _table_header(cut: Cut, body: str) -> int:
    """The size of header row and ruler, when they are those of the table that is open."""
    if not cut.last_line.lstrip().startswith("|"):
        return 0
    lines = body.split("\n", 2)
    if len(lines) < 3 or not _RULER.fullmatch(lines[1]):
        return 0
    table = _open_table(cut)
    written = [line.strip() for line in table[:2]]
    if [lines[0].strip(), lines[1].strip()] != written or len(table) < 3:
        return 0
    return len(lines[0]) + len(lines[1]) + 2


def _open_table(cut: Cut) -> list[str]:
    lines = cut.text[-60000:].rstrip("\n").split("\n")
    start = len(lines)
    while start and lines[start - 1].lstrip().startswith("|"):
        start -= 1
    return lines[start:]


def _block_above(cut: Cut, body: str) -> int:
    """Two or more lines of Markdown blocks, written again from just above an unfinished line."""
    if not cut.inside_line or cut.last_line.lstrip().startswith("|"):
        return 0
    lines, above = body.split("\n"), [x.strip() for x in cut.text[-_NEAR:].split("\n")[1:-1]]
    count = 0
    while count < len(lines) - 1 and _BLOCK.match(lines[count]):
        count += 1
    while count >= 2:
        block = [line.strip() for line in lines[:count]]
        if block == above[-count:] and novelty("", "\n".join(block)) >= 24:
            return sum(len(line) + 1 for line in lines[:count])
        count -= 1
    return 0
