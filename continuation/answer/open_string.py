"""Where a call's arguments break off: inside which string, behind which members.

Arguments are JSON text, and most of a long call is one string of it: the content of a file. If they
break off inside that string, its text can be gone on with as any text can, and what was open around
it is known: the text of the call up to there is valid, and so is its rest once the string is whole.
If they break off elsewhere, the members that are whole can be kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

Path: TypeAlias = tuple[str | int, ...]
"""Names of members and places in arrays, from the outermost on."""

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
_LEAD = re.compile(r"\s*(?:([^\n]{1,200}[:.!])\s*\n\s*?)?(?:(`{3,}|~{3,})[^`\n]*\n)?")
"""What may stand before a text that was asked for: a line of words, a fence's first line."""


@dataclass(frozen=True, slots=True)
class OpenString:
    """A string value that a JSON text breaks off in."""

    keys: Path
    """Where it stands."""
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
        return dotted(self.keys)

    def with_text(self, text: str, more: Mapping[Path, Any]) -> str:
        """Return the JSON text with another text in the string and all closed that is open.

        `more`: by where it stands, what an open object or array has behind the string.
        """
        kept = text.startswith(self.text)
        written = self.head if kept else self.head[: self.start]
        written += escaped(text.removeprefix(self.text), self.half if kept else "") + '"'
        for depth in reversed(range(len(self.keys))):
            if behind := more.get(self.keys[:depth]):
                written += "," + dumps(behind).decode()[1:-1]
            written += "]" if isinstance(self.keys[depth], int) else "}"
        return written


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
    end, value = _read(_WHOLE_STRING, body, 0)
    if body[end:].strip(' \t\r\n"}`') and not (cut and _half(body[end:])):
        return None  # something follows that is none of it
    return value[len(anchor) :]


def bared(text: str, anchor: str) -> tuple[str, str, str]:
    """Return a text from the anchor on, if nothing but a line of words and a fence is before it.

    Also those words, and whether the fence is "open", or "closed" and its end left out.
    """
    for form in (anchor, f'"{escaped(anchor)}', escaped(anchor)):
        at = text.find(form)
        lead = _LEAD.fullmatch(text, 0, at) if at >= 0 else None
        if lead is None or (lead[1] and text.count(form) > 1):
            continue
        body, words, marker = text[at:], lead[1] or "", lead[2]
        closed = re.search(rf"\n?{marker}\s*\Z", body) if marker else None
        if closed is not None:
            return body[: closed.start()], words, "closed"
        return body, words, "open" if marker else ""
    return text, "", ""


def escaped(text: str, half: str = "") -> str:
    """Write a text as it stands in a JSON string; `half`: what is there of its first escape."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    if not written.startswith(half):
        written = json.dumps(text[:1])[1:-1] + json.dumps(text[1:], ensure_ascii=False)[1:-1]
    return written


def dotted(path: Path) -> str:
    """Name a place in arguments."""
    return ".".join(map(str, path))


def within(schema: Json, path: Path) -> Json:
    """Return what a JSON schema says of the value at a path; `{}`: nothing, or not one thing."""
    here, steps = schema, list(path)
    for _ in range(len(path) + 32):  # a schema may go round
        refers = as_text(here.get("$ref"))
        choices = [one for word in ("anyOf", "oneOf", "allOf") for one in as_list(here.get(word))]
        whole = [one for one in map(as_json, choices) if one.get("type") != "null"]
        if refers:
            here = schema if refers.startswith("#") else {}
            for name in refers.split("/")[1:]:
                here = as_json(here.get(name.replace("~1", "/").replace("~0", "~")))
        elif len(whole) == 1 and not ({"properties", "items"} & here.keys()):
            here = whole[0]
        elif not steps:
            break
        elif isinstance(step := steps.pop(0), int):
            here = as_json(here.get("items"))
        else:
            others = here.get("additionalProperties")
            here = as_json(as_json(here.get("properties")).get(step, others))
    return here


def open_string(raw: str) -> OpenString | None:
    """Return the string value that `raw` breaks off in; `None`: it breaks off elsewhere.

    That is in a key, a number, or between two values.
    """
    keys, at = _open_members(raw)
    opened = _OPEN.match(raw, at)
    if opened is None or not keys or "" in keys:
        return None
    start = opened.end()
    end, value = _read(_WHOLE, raw, start)
    half = raw[end:]
    if not _half(half):
        return None  # no escape that JSON knows
    return OpenString(tuple(keys), raw[:end], value, half, start)


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


def _open_members(raw: str) -> tuple[list[str | int], int]:
    """Return what is open at the end of a JSON text, and where its last whole token ends.

    Of an object it is the member that was begun last, `""` where a key is awaited; of an array, the
    place of its element.
    """
    open_ones, at = list[str | int](), 0
    while match := _TOKEN.match(raw, at):
        sign, text, at = match[1], match[2], match.end()
        if sign in ("{", "["):
            open_ones.append("" if sign == "{" else 0)
        elif not open_ones:
            continue
        elif sign in ("}", "]"):
            open_ones.pop()
        elif sign == ",":
            last = open_ones[-1]
            open_ones[-1] = last + 1 if isinstance(last, int) else ""
        elif open_ones[-1] == "" and text is not None:
            open_ones[-1] = str(json.loads(text, strict=False))
    return open_ones, at
