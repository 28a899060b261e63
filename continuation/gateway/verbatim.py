"""Changes JSON in one place, and keeps all other bytes: key order, spacing, escapes.

Some providers refuse a body that was serialized anew, and prompt caches compare bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from continuation.wire.json_values import count_values, loads

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


_MOST_VALUES = 200_000
"""For a body with more JSON values, the comparison would take seconds."""


def keep_bytes(raw: bytes, new: bytes) -> bytes:
    """Return the JSON `new` with the bytes of `raw` wherever the two have equal values.

    A body with very many values is returned unchanged. No agent sends one.
    """
    if count_values(raw, _MOST_VALUES) > _MOST_VALUES:
        return new
    try:
        text = raw.decode()
        before, after = loads(raw), loads(new)
        data = "".join(_write(text, _skip_blanks(text, 0), before, after)).encode()
        return data if loads(data) == after else new
    except (ValueError, RecursionError):  # not UTF-8, a lone surrogate, or nested too deeply
        return new


def _write(text: str, at: int, before: Any, after: Any) -> Iterator[str]:
    """Yield `after` with the bytes of the value `before`, which begins at `at` in `text`."""
    kinds: set[Any] = {type(before), type(after)}
    if kinds == {dict}:
        yield from _object(text, at, before, after)
    elif kinds == {list}:
        yield from _list(text, at, before, after)
    else:
        yield _ENCODER.encode(after)


def _items(text: str, at: int) -> Iterator[tuple[int, int, int, int, Any]]:
    """Yield each item of an object or a list: its start, key's end, value's start and end, value.

    The start is after the comma before it. The key of a list's item is empty.
    """
    keyed = text[at] == "{"
    at += 1
    while True:
        start = at
        at = _skip_blanks(text, at)
        if text[at] in "]}":
            return
        key_end = at
        if keyed:
            _, key_end = _DECODER.raw_decode(text, at)
            at = _skip_blanks(text, _skip_blanks(text, key_end) + 1)
        value, end = _DECODER.raw_decode(text, at)
        yield start, key_end, at, end, value
        at = _skip_blanks(text, end)
        if text[at] != ",":
            return
        at += 1


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _object(text: str, at: int, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    yield "{"
    end, comma = at + 1, ""
    for start, key_end, value_at, value_end, value in _items(text, at):
        gap, end = text[end:start], value_end
        key = json.loads(text[start:key_end])
        if key not in after:
            continue
        yield comma and gap
        yield text[start:value_at]
        if after[key] == value:
            yield text[value_at:value_end]
        else:
            yield from _write(text, value_at, value, after[key])
        comma = ","
    for key, value in after.items():
        if key not in before:
            yield f"{comma}{_ENCODER.encode(key)}:{_ENCODER.encode(value)}"
            comma = ","
    yield text[end : text.index("}", end) + 1]


def _list(text: str, at: int, before: list[Any], after: list[Any]) -> Iterator[str]:
    """Keep the items with which both begin, and those with which both end, each in one slice."""
    items = [*_items(text, at)]
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    most -= head
    tail = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)
    written = [text[at + 1 : items[head - 1][3]]] if head else []
    for number in range(head, len(after) - tail):
        if number < len(before) - tail:  # the same item, changed
            start, _, value_at, _, was = items[number]
            written.append(
                text[start:value_at] + "".join(_write(text, value_at, was, after[number]))
            )
        else:
            written.append(_ENCODER.encode(after[number]))
    if tail:
        written.append(text[items[-tail][0] : items[-1][3]])
    end = items[-1][3] if items else at + 1
    yield f"[{','.join(written)}{text[end : text.index(']', end) + 1]}"
