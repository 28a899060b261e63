"""Where a call's arguments break off: inside which string, behind which members.

Arguments are JSON text, and most of a long call is one string of it: the content of a file. If they
break off inside that string, its text can be gone on with as any text can, and what was open around
it is known: the text of the call up to there is valid, and so is its rest once the string is whole.
If they break off elsewhere, the members that are whole can be kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from continuation.types import Json
from continuation.wire.json_values import as_json, parsed

_TOKEN = re.compile(
    r'\s*+(?:([{}\[\],:])|("[^"\\]*+(?:\\.[^"\\]*+)*+")|[^\s"{}\[\],:]++)', re.DOTALL
)
"""A sign of structure, a string, or a number or word."""
_OPEN = re.compile(r'\s*+"')
_BEGUN = re.compile(r'(\s*+(?:,\s*+)?)(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")|"(.*))?', re.DOTALL)
"""What parts a member from the one before, and its name, or half of that."""
_WHOLE = re.compile(r'(?:[^\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+', re.DOTALL)
_WHOLE_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+', re.DOTALL)
"""The same, and no quote but an escaped one."""
_HALF = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
"""An escape that broke off, or nothing."""
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""The first half of a character that takes two, and what arrived of the second."""
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^`\n]*\n")


@dataclass(frozen=True, slots=True)
class OpenString:
    """A string value that a JSON text breaks off in."""

    keys: tuple[str, ...]
    """The members it stands in, from the outermost on."""
    head: str
    """The JSON text up to the string's last whole character."""
    text: str
    """What the string says so far."""
    half: str = ""
    """What arrived of the escape of its next character."""
    start: int = 0
    """Where in `head` its first character stands."""

    @property
    def name(self) -> str:
        """The member that holds it, as a path."""
        return ".".join(self.keys)

    def with_text(self, text: str) -> str:
        """Return the JSON text with another text in the string and all closed that is open."""
        head, rest = self.head, text.removeprefix(self.text)
        if not text.startswith(self.text):
            head = head[: self.start]
        return head + escaped(rest) + '"' + "}" * len(self.keys)


@dataclass(frozen=True, slots=True)
class Members:
    """What is whole of an object that a JSON text breaks off in."""

    head: str
    """The JSON text up to the end of its last whole member."""
    values: Json
    """The members that are whole."""
    joint: str = ""
    """What arrived between that member and the next: white space, a comma."""
    name: str | None = None
    """The name of the member that broke off."""
    half: str | None = None
    """What arrived of that name, where it broke off as well; `None`: no member was begun."""

    def begun(self, known: Iterable[str]) -> set[str] | None:
        """Return the names that the member which broke off may have; `None`: none did."""
        if self.name is not None:
            return {self.name}
        if self.half is None:
            return None
        return {name for name in known if name.startswith(self.half)} - self.values.keys()

    def with_more(self, more: str) -> str:
        """Return the JSON text with more members, which are written as an object."""
        inside = more[1:-1]
        comma = "," if inside and self.values and "," not in self.joint else ""
        return self.head + (comma or self.joint if inside else "") + inside + "}"


def as_written(text: str, anchor: str, *, cut: bool = False) -> str | None:
    """Read a text that was written as it stands in JSON, escaped and perhaps in its quotes.

    Return what follows the anchor, which tells that it was; `None`: it was not, or does not tell.
    `cut`: it may break off, in half an escape as well.
    """
    written = escaped(anchor)
    body = text if text.startswith(written) else text.lstrip().removeprefix('"')
    if written == anchor or not body.startswith(written):
        return None
    end, said = _read(_WHOLE_STRING, body, 0)
    if body[end:].strip(' \t\r\n"}`') and not (cut and _half(body[end:])):
        return None  # something follows that is none of it
    return said[len(anchor) :]


def unfenced(text: str, anchor: str) -> str:
    """Return what stands in the one fence that a text is; the text itself, if it is none."""
    opened = _FENCE.match(text)
    body = text[opened.end() :] if opened is not None else text
    forms = (anchor, escaped(anchor), f'"{escaped(anchor)}')
    if opened is None or not body.startswith(forms):
        return text
    closed = re.search(rf"\n?{opened[1]}\s*\Z", body)
    return body[: closed.start()] if closed is not None else body


def escaped(text: str) -> str:
    """Write a text as it stands in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def open_string(raw: str) -> OpenString | None:
    """Return the string value that `raw` breaks off in; `None`: it breaks off elsewhere.

    That is in a key, a number, between two values, or inside an array: nobody could tell whether
    such an array was to have more elements.
    """
    keys, at = _open_members(raw)
    opened = _OPEN.match(raw, at)
    if opened is None or not keys or not all(keys):
        return None
    start = opened.end()
    end, said = _read(_WHOLE, raw, start)
    half = raw[end:]
    if not _half(half):
        return None  # no escape that JSON knows
    return OpenString(tuple(filter(None, keys)), raw[:end], said, half, start)


def whole_members(raw: str) -> Members | None:
    """Return what is whole of the object that `raw` breaks off in; `None`: it is no such text.

    A number at the end may go on, and so it is no whole value.
    """
    depth = end = at = 0
    valued = False
    while match := _TOKEN.match(raw, at):
        sign, text, at = match[1], match[2], match.end()
        depth += (sign in ("{", "[")) - (sign in ("}", "]")) if sign else 0
        if depth == 0:
            return None
        if depth > 1:
            continue
        last = match[0].strip()
        if sign == ",":
            end, valued = match.start(1), False
        elif sign == ":":
            valued = True
        elif sign or (valued and (text or last in ("true", "false", "null"))):
            end = at
    values, begun = as_json(parsed(raw[:end] + "}")), _BEGUN.match(raw, end)
    if begun is None or not (values or raw[:end].strip() == "{"):
        return None
    joint, name, half = begun.groups()
    if name is not None:
        return Members(raw[:end], values, joint, str(json.loads(name, strict=False)))
    more = not values or joint.strip()  # has to come
    return Members(raw[:end], values, joint, None, half or ("" if more else None))


def _half(raw: str) -> bool:
    """Whether an escape broke off here, or the first of two that are one character."""
    return (_HALF.fullmatch(raw) or _HIGH.match(raw)) is not None


def _read(form: re.Pattern[str], raw: str, at: int) -> tuple[int, str]:
    """Read the characters of a JSON string from `at` on; return where the last whole one ends."""
    whole = form.match(raw, at)
    end = whole.end() if whole is not None else at
    if high := _HIGH.search(raw, at, end):
        end = high.start()
    return end, str(json.loads(f'"{raw[at:end]}"', strict=False))


def _open_members(raw: str) -> tuple[list[str | None], int]:
    """Return what is open at the end of a JSON text, and where its last whole token ends.

    Of an object it is the member that was begun last, `""` where a key is awaited; an array is
    `None`.
    """
    open_ones, at = list[str | None](), 0
    while match := _TOKEN.match(raw, at):
        sign, text, at = match[1], match[2], match.end()
        if sign in ("{", "["):
            open_ones.append("" if sign == "{" else None)
        elif not open_ones:
            continue
        elif sign in ("}", "]"):
            open_ones.pop()
        elif open_ones[-1] is not None and sign == ",":
            open_ones[-1] = ""
        elif open_ones[-1] == "" and text is not None:
            open_ones[-1] = str(json.loads(text, strict=False))
    return open_ones, at
