"""JSON for all of the project: decoding, encoding, values of unknown shape."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, cast

import jiter

from continuation.types import Json
from continuation.wire import collector

_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(separators=(",", ":"))
_MANY = 64
"""How many values of a list `dumps_in_pieces` encodes at a time."""
_LONG = 1 << 20
"""How many characters of a text `dumps_in_pieces` encodes at a time."""
_LARGE = 100_000
"""Size in bytes above which the garbage collector is off while JSON is decoded."""
_AS_USUAL = contextlib.nullcontext()
_RAW_CONTROLS = dict.fromkeys(range(32), " ")
_ESCAPE = re.compile(r"\\.?", re.DOTALL)


def loads(data: bytes | bytearray | str) -> Any:
    """Decode JSON with the fast parser, or with the lenient one if that fails (lone surrogates).

    Raises `ValueError` if it is not JSON in UTF-8 or has more than 200 levels.
    """
    raw = data.encode() if isinstance(data, str) else bytes(data)
    try:
        with collector.resting() if len(raw) > _LARGE else _AS_USUAL:
            return jiter.from_json(raw)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise ValueError("it is nested too deeply") from error
    try:
        return json.loads(raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass"))
    except RecursionError as error:  # such as a degenerate answer that consists of brackets
        raise ValueError("it is nested too deeply") from error


def dumps(value: object) -> bytes:
    """Encode compact JSON as UTF-8. If it has lone surrogates, escape all non-ASCII characters."""
    try:
        return _PLAIN.encode(value).encode()
    except UnicodeEncodeError:
        return _ESCAPED.encode(value).encode()


def dumps_in_pieces(value: object) -> bytes:
    """Encode as `dumps` does, but in pieces, because other threads wait while one is encoded."""
    try:
        return "".join(_pieces(value)).encode()
    except UnicodeEncodeError:
        return dumps(value)


def _pieces(value: object) -> Iterator[str]:
    if is_list(value) and value:
        for n in range(0, len(value), _MANY):
            some = value[n : n + _MANY]
            yield "," if n else "["
            fields = (field for each in some for field in as_json(each).values())
            if any(map(_is_long, fields)):
                for m, each in enumerate(some):
                    yield "," if m else ""
                    yield from _pieces(each)
            else:
                yield _PLAIN.encode(some)[1:-1]
        yield "]"
    elif given := as_json(value):
        for n, (key, each) in enumerate(given.items()):
            yield f"{',' if n else '{'}{_PLAIN.encode(key)}:"
            yield from _pieces(each)
        yield "}"
    elif isinstance(value, str) and len(value) > _LONG:
        yield '"'
        for n in range(0, len(value), _LONG):
            yield _PLAIN.encode(value[n : n + _LONG])[1:-1]
        yield '"'
    else:
        yield _PLAIN.encode(value)


def _is_long(field: object) -> bool:
    """Whether encoding a field of a message at once takes long."""
    if not is_list(field):
        return isinstance(field, str) and len(field) > _LONG
    return len(field) > _MANY or any(_is_long(one) for x in field for one in as_json(x).values())


def parsed(text: str) -> object:
    """Decode JSON; `None` if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def partial(text: str) -> object:
    """Decode the complete part of a JSON text that may be truncated; `{}` if there is none."""
    try:
        return jiter.from_json(text.encode(), partial_mode=True)
    except (ValueError, UnicodeEncodeError):
        return parsed(text) or {}


def breaks_off(text: str) -> bool:
    """Whether a text is only the beginning of a JSON value, like truncated arguments.

    Raw line breaks and invalid escapes in strings (Windows paths) do not change the result, because
    models write them and agents accept them. A text that cannot become JSON by additions (a
    trailing comma, prose, two values) is not truncated: the model meant it so.
    """
    with contextlib.suppress(ValueError):  # the usual case: it is complete
        jiter.from_json(text.encode())
        return False
    tame = text.translate(_RAW_CONTROLS)
    escaped = _ESCAPE.sub("x", tame)
    try:
        with contextlib.suppress(ValueError, RecursionError):
            json.JSONDecoder().raw_decode(escaped.lstrip())
            return False  # a complete value, with or without text after it
        jiter.from_json(escaped.encode(errors="replace"), partial_mode="trailing-strings")
    except ValueError as error:  # nested too deeply, or no beginning of JSON
        return "recursion limit" in str(error)
    # If backslashes are literal, as in "C:\dir\", the last quote ends the string.
    return bool(tame.strip()) and parsed(tame.replace("\\", "x")) is None


# --- how much there is, before it is decoded -----------------------------------------------------

_PART = 1 << 18
"""Bytes that are searched at a time, because other threads wait meanwhile."""
_STRUCTURE = (b",", b":", b"[", b"{")


def count_values(raw: bytes, most: float) -> int:
    """Return how many values and keys a JSON text has, or some number above `most`.

    Nothing is decoded. A result up to `most` may be too large, because it includes the commas,
    colons and brackets inside strings. They are excluded only if the number would exceed `most`.
    """
    count = 0
    for at in range(0, len(raw), _PART):
        count += sum(raw.count(sign, at, at + _PART) for sign in _STRUCTURE)
        if count > most:
            return _exact_count(raw, most)
    return count + 1


def _exact_count(raw: bytes, most: float) -> int:
    count, inside, rest = 0, False, b""
    for at in range(0, len(raw), _PART):
        # Remove escaped characters, so that each remaining quote begins or ends a string.
        part = (rest + raw[at : at + _PART]).replace(b"\\\\", b"")
        rest = b"\\" if part.endswith(b"\\") else b""
        pieces = part.removesuffix(rest).replace(b'\\"', b"").split(b'"')
        between = b"".join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0
        count += sum(between.count(sign) for sign in _STRUCTURE)
        if count > most:
            break
    return count + 1


# --- values of unknown shape ---------------------------------------------------------------------
#
# JSON from outside may have any value anywhere. Each of these functions returns the value if it has
# the expected type, and otherwise an empty value of that type.


def as_json(value: object) -> Json:
    """Return `value` if it is a JSON object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return `value` if it is a JSON array, else an empty one."""
    return value if is_list(value) else []


def as_text(value: object) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_int(value: object) -> int | None:
    """Return `value` if it is an integer, else `None`; a boolean is not an integer in JSON."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_key(value: object) -> str | int | None:
    """Return `value` if it can be an index or a type: a string or an integer; else `None`.

    A list or an object cannot be looked up in a dict or a set.
    """
    return value if isinstance(value, str | int) else None


def mapping(value: object) -> dict[str, Any]:
    """Return the same as `as_json`, typed for code that reads nested values without casts."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in a JSON array, without its other values."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a JSON object: a `dict`, or a caller's own kind of mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # the first is much faster


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def as_map(value: object) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object or any mapping, else an empty one."""
    return value if is_map(value) else {}


# --- texts in a value ----------------------------------------------------------------------------

_WORDY = 1_000
_ENCODED = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_=-]+")


def is_encoded(text: str) -> bool:
    """Whether a text is encoded data: it is long, and has neither spaces nor punctuation."""
    return len(text) > _WORDY and _ENCODED.fullmatch(text) is not None


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts in a value, keys included; images and other encoded data are left out."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            if not is_encoded(each):
                yield each
        else:
            members = as_map(each)
            rest += [*members, *members.values(), *as_list(each)]


# --- a value in a text that is not parsed --------------------------------------------------------

_WINDOW = 4096
_JSON = json.JSONDecoder()


def first_text(body: bytes | bytearray, key: str, start: int = 0) -> str:
    """Return the first non-empty string without escapes under `key` in a JSON text; `""`: none."""
    found = re.compile(rb'"%s"\s*:\s*"([^"\\]+)"' % key.encode()).search(body, start)
    return found[1].decode("utf-8", "replace") if found is not None else ""


def last_object(body: bytes | bytearray, key: str) -> Json:
    """Return the last object under `key` anywhere in a JSON text; `{}`: none, or over 4 kB."""
    quoted = b'"%s"' % key.encode()
    follows = re.compile(rb"\s*:\s*(?=\{)")
    at, found = len(body), None
    while found is None:
        at = body.rfind(quoted, 0, at)
        if at < 0:
            return {}
        found = follows.match(body, at + len(quoted))
    text = bytes(body[found.end() : found.end() + _WINDOW]).decode("utf-8", "replace")
    try:
        return as_json(_JSON.raw_decode(text)[0])
    except ValueError:
        return {}
