"""JSON as everybody here reads and writes it: decoding, encoding, values of unknown shape."""

from __future__ import annotations

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
"""So many values of a list are written at a time."""
_LARGE = 100_000
"""So many bytes, and the garbage collector would look at what was read before all is read."""
_AS_USUAL = contextlib.nullcontext()
_RAW_CONTROLS = dict.fromkeys(range(32), " ")
_ESCAPE = re.compile(r"\\.?", re.DOTALL)


def loads(data: bytes | bytearray | str) -> Any:
    """Decode JSON; the fast parser first, the lenient one for what it refuses (lone surrogates).

    Raises `ValueError`, also for what is nested beyond all sense.
    """
    raw = data.encode() if isinstance(data, str) else bytes(data)
    try:
        with collector.resting() if len(raw) > _LARGE else _AS_USUAL:
            return jiter.from_json(raw)
    except ValueError:
        pass
    try:
        return json.loads(raw)
    except RecursionError as error:  # a model that runs wild writes brackets and nothing else
        raise ValueError("it is nested too deeply") from error


def dumps(value: object) -> bytes:
    """Encode compact JSON as UTF-8; what UTF-8 cannot carry (half an emoji) is escaped."""
    try:
        return _PLAIN.encode(value).encode()
    except UnicodeEncodeError:
        return _ESCAPED.encode(value).encode()


def dumps_in_pieces(value: object) -> bytes:
    """`dumps`, a piece at a time: until one is done, no other thread of the program can run."""
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
            if any(is_list(field) and len(field) > _MANY for field in fields):
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
    else:
        yield _PLAIN.encode(value)


def parsed(text: str) -> object:
    """Decode JSON; `None` for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def partial(text: str) -> object:
    """Decode what is whole of a JSON text that may break off; `{}` when nothing is."""
    try:
        return jiter.from_json(text.encode(), partial_mode=True)
    except (ValueError, UnicodeEncodeError):
        return parsed(text) or {}


def breaks_off(text: str) -> bool:
    """Whether a text is the beginning of a JSON value, and no more: what a limit leaves of a call.

    Models write raw line breaks and escapes of their own into strings (paths of Windows), and
    agents read them so; neither hides a cut, nor looks like one. What is no JSON at all (a trailing
    comma, prose, two values) is what the model meant to say.
    """
    with contextlib.suppress(ValueError):  # nearly all are whole
        jiter.from_json(text.encode())
        return False
    tame = text.translate(_RAW_CONTROLS)
    escaped = _ESCAPE.sub("x", tame)
    try:
        with contextlib.suppress(ValueError, RecursionError):
            json.JSONDecoder().raw_decode(escaped.lstrip())
            return False  # a whole value, whatever follows it
        jiter.from_json(escaped.encode(errors="replace"), partial_mode="trailing-strings")
    except ValueError as error:  # a model that runs wild writes brackets and nothing else
        return "recursion limit" in str(error)
    # Where a backslash means itself, as in "C:\dir\", the last quote is one.
    return bool(tame.strip()) and parsed(tame.replace("\\", "x")) is None


# --- values of unknown shape ---------------------------------------------------------------------
#
# JSON that somebody else wrote may hold anything anywhere. Each of these returns the value where it
# has the shape that is asked for, and an empty one of that shape otherwise.


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
    """Return `value` if it is a whole number, else `None`; `True` is no number in JSON."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: object) -> dict[str, Any]:
    """Return what `as_json` does, for code that reads deep into it without naming types."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a JSON array, without what else stands in it."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a JSON object, as decoded or as a caller's own kind of mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # the first is much faster


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def as_map(value: object) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object or any mapping, else an empty one."""
    return value if is_map(value) else {}


# --- a value in a text that is not parsed --------------------------------------------------------

_WINDOW = 4096
_JSON = json.JSONDecoder()


def first_text(body: bytes | bytearray, key: str, start: int = 0) -> str:
    """Return the first text that stands under `key` in a JSON text, if it needs no decoding."""
    found = re.compile(rb'"%s"\s*:\s*"([^"\\]+)"' % key.encode()).search(body, start)
    return found[1].decode("utf-8", "replace") if found is not None else ""


def last_object(body: bytes | bytearray, key: str) -> Json:
    """Return the last object that stands under `key` anywhere in a JSON text; `{}`: none."""
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
