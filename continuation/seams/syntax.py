"""What the syntax at the cut decides: blocks that are written again, white space at the seam.

Models open a fence again that is open, repeat the head of the open table or the last line. Where
the syntax leaves one reading no odds are needed. White space is kept as it is, unless the state
of the text leaves one reading there too.
"""

from __future__ import annotations

import re
from typing import Final

from continuation.seams.evidence import novelty
from continuation.seams.state import Cut, Fence, Form, cells, fence_line, is_indentation

__all__ = [
    "fence_opening",
    "line_again",
    "reopens",
    "repeated_header",
    "skips_ahead",
    "superfluous",
    "wanted",
]

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
_NUMBERED: Final = re.compile(r"\s*(?:[-*]\s+)?(\d{1,4})([.)])\s+\S")
_WORD: Final = re.compile(r"[^\W\d_]+")
#: What may be followed by a deeper line.
_OPENING: Final = tuple(":({[,\\=|&+-*>")
#: Times a habit must have shown before its absence tells something.
_OFTEN: Final = 40


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
    line = line.strip()
    if cut.form is Form.JSON:
        return line in ("},", "],", "{") or _JSON_LINE.fullmatch(line) is not None
    return cut.form is Form.YAML and re.fullmatch(r"[\w.-]+:(?: .*)?", line) is not None


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


# White space ------------------------------------------------------------------------------------


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
