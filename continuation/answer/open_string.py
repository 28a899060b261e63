"""Where a call's arguments break off: inside which string, after which members.

Arguments are JSON text. Most of a long call is one string in it, such as the content of a file. If
the arguments break off inside that string, its text can be continued like any text. What is open
around it is known, so the arguments can be closed once the string is complete. If they break off
elsewhere, the complete members can be kept.
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
"""Names of members and indices of array elements, from the outside in."""

_TOKEN = re.compile(
    r'\s*+(?:([{}\[\],:])|("[^"\\]*+(?:\\.[^"\\]*+)*+")|[^\s"{}\[\],:]++)', re.DOTALL
)
"""A JSON token: structure (group 1), a complete string (group 2), or a number or word."""
_OPEN = re.compile(r'\s*+"')
_BEGUN = re.compile(r'(\s*+(?:,\s*+)?)(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")|"(.*))?', re.DOTALL)
"""What separates a member from the previous one, then its name or the beginning of its name."""
_WHOLE = re.compile(r'(?:[^\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+', re.DOTALL)
_STRICT = re.compile(r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
"""The same as strict JSON: no unescaped quote, no line break."""
_HALF = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
"""An escape that broke off, or nothing."""
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""The high surrogate of an escaped character, and the arrived part of the low one."""
_CHOICES = ("anyOf", "oneOf", "allOf")
_OWN = {"properties", "required", "items", "prefixItems", "additionalProperties"}
"""What a schema may say about members and elements besides its choices."""
_MOST_SHAPES = 200
"""Most parts of a schema that are examined for one value, because it may refer to itself."""


@dataclass(frozen=True, slots=True)
class OpenString:
    """A string value in which a JSON text breaks off."""

    keys: Path
    """The path of the string."""
    head: str
    """The JSON text up to the string's last complete character."""
    text: str
    """The string's text so far."""
    half: str = ""
    """The arrived part of an escape that broke off after it."""
    start: int = 0
    """The index in `head` of the string's first character."""

    @property
    def name(self) -> str:
        """The path of the string, joined by dots."""
        return dotted(self.keys)

    def with_text(self, text: str, more: Mapping[Path, Any]) -> str:
        """Return the JSON text with `text` as the string, and everything open closed.

        `more`: path of an open object or array -> its members or elements after the string.
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
    """The complete members of an object in which a JSON text breaks off."""

    head: str
    """The JSON text up to the end of its last complete member."""
    values: Json
    """The complete members."""
    joint: str = ""
    """The text that arrived after that member: white space, a comma."""
    name: str | None = None
    """The name of the member that broke off; `None`: no complete name arrived."""
    half: str | None = None
    """The arrived part of a name that broke off; `""`: a name must follow; `None`: neither."""

    def begun(self, known: Iterable[str]) -> set[str] | None:
        """Return the possible names of the member that broke off; `None`: no member broke off."""
        if self.name is not None:
            return {self.name}
        if self.half is None:
            return None
        return {name for name in known if name.startswith(self.half)} - self.values.keys()

    def with_more(self, more: str) -> str:
        """Return the JSON text, closed, with the members of the JSON object `more` added."""
        inside = more[1:-1]
        comma = "," if inside and self.values and "," not in self.joint else ""
        return self.head + (comma or self.joint if inside else "") + inside + "}"


def escaped(text: str, half: str = "") -> str:
    """Return a text as written in a JSON string. `half`: the arrived part of its first escape."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    if not written.startswith(half):
        written = json.dumps(text[:1])[1:-1] + json.dumps(text[1:], ensure_ascii=False)[1:-1]
    return written


def dotted(path: Path) -> str:
    """Return a path as text, joined by dots."""
    return ".".join(map(str, path))


def shapes(schema: Json, path: Path) -> list[Json]:
    """Return the parts of a JSON schema that may describe the value at a path.

    References are followed. Each choice is one part, except `null`.
    """
    here = [schema]
    for step in (*path, None):
        here, plain = here[:_MOST_SHAPES], list[Json]()
        for one in here:  # which grows by the parts to which these refer
            refers = as_text(one.get("$ref"))
            if refers.startswith("#"):
                found = schema
                for name in refers.split("/")[1:]:
                    found = as_json(found.get(name.replace("~1", "/").replace("~0", "~")))
                more: list[object] = [found]
            else:
                more = [each for word in _CHOICES for each in as_list(one.get(word))]
            more += [one[word] for word in ("then", "else") if word in one]
            here += map(as_json, more[: max(0, _MOST_SHAPES - len(here))])
            if one.get("type") != "null" and (not more or one.keys() & _OWN):
                plain.append(one)
        if step is None:
            return plain
        here = [as_json(_inner(one, step)) for one in plain]
    return []


def declared(schema: Json, path: Path) -> tuple[Json, list[str]]:
    """Return the members that a schema lists for the object at a path, and those it requires."""
    here = shapes(schema, path)
    needed = [[str(name) for name in as_list(one.get("required"))] for one in here]
    named = {
        name: member for one in here for name, member in as_json(one.get("properties")).items()
    }
    members: Json = {**{name: {} for names in needed for name in names}, **named}
    return members, [name for name in members if all(name in names for names in needed)]


def _inner(shape: Json, step: str | int) -> object:
    """Return the schema of a member or an element; `None`: there is none."""
    if isinstance(step, str):
        others = shape.get("additionalProperties")
        return as_json(shape.get("properties")).get(step, others)
    first = as_list(shape.get("prefixItems"))
    return first[step] if step < len(first) else shape.get("items")


def open_string(raw: str) -> OpenString | None:
    """Return the string value in which `raw` breaks off.

    `None`: it breaks off elsewhere, such as in a key, in a number, or between two values.
    """
    keys, at = _open_members(raw)
    opened = _OPEN.match(raw, at)
    if opened is None or not keys or "" in keys:
        return None
    start = opened.end()
    end, value = _read(_WHOLE, raw, start)
    half = raw[end:]
    if not _half(half):
        return None  # not a valid JSON escape
    return OpenString(tuple(keys), raw[:end], value, half, start)


def whole_members(raw: str) -> Members | None:
    """Return the complete members of the object in which `raw` breaks off; `None`: it does not.

    A number at the end is not a complete value, because more digits may follow.
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
    more = not values or joint.strip()  # another member must follow
    return Members(raw[:end], values, joint, None, half or ("" if more else None))


def read_string(raw: str, at: int) -> tuple[int, str]:
    """Return where the inside of a JSON string that begins at `at` ends, and its text so far."""
    return _read(_STRICT, raw, at)


def _half(raw: str) -> bool:
    """Whether `raw` is empty, half an escape, or half of a pair of escapes for one character."""
    return (_HALF.fullmatch(raw) or _HIGH.match(raw)) is not None


def _read(form: re.Pattern[str], raw: str, at: int) -> tuple[int, str]:
    """Return the end of the last complete character of a JSON string from `at` on, and its text."""
    whole = form.match(raw, at)
    end = whole.end() if whole is not None else at
    if high := _HIGH.search(raw, at, end):
        escapes = high.start() - len(raw[at : high.start()].rstrip("\\")) - at
        end = end if escapes % 2 else high.start()  # its backslash may itself be escaped
    return end, str(json.loads(f'"{raw[at:end]}"', strict=False))


def _open_members(raw: str) -> tuple[list[str | int], int]:
    """Return the path that is open at a JSON text's end, and the end of its last complete token.

    The path has, for an object, the name of its last member, or `""` if a name must follow. For an
    array, it has the index of its last element.
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
