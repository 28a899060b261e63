"""Looks at bytes that save a parse: nearly every answer is whole, and need only be found so."""

from __future__ import annotations

import json
import re

from continuation.types import Json
from continuation.wire.json_values import as_json


class NamedPath:
    """Tells events apart by the name in front of their data.

    `flowing` is the name of text; `held` are those of what waits. Without any, text and the rest
    have one name, and the beginning of a block tells them apart.
    """

    blank = b"\n\n"

    def __init__(self, flowing: str, *held: str) -> None:
        self._flowing = b"event: %s\n" % flowing.encode()
        self._held = tuple(b"event: %s\n" % name.encode() for name in held) or (self._flowing,)
        self._inside = slice(len(self._flowing), -len(self.blank))

    def flows(self, chunk: bytes) -> bool:
        # A raw line break cannot stand inside JSON: none between the two means one event.
        return (
            chunk.startswith(self._flowing)
            and chunk.endswith(b"\n\n")
            and 10 not in chunk[self._inside]
            and 13 not in chunk
        )

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Count the names; exact for events framed by line feeds alone."""
        names = (self._flowing,) if flowing else self._held
        if not raw.startswith(names, start):  # the last events are long, and not to be counted in
            return False
        known = sum(raw.count(name, start, end) for name in names)
        return known == raw.count(b"\n\n", start, end) and raw.find(b"\r", start, end) < 0


def first_text(body: bytes | bytearray, key: str, start: int = 0) -> str:
    """Return the first text that stands under `key` in a JSON text, if it needs no decoding."""
    found = re.compile(rb'"%s"\s*:\s*"([^"\\]+)"' % key.encode()).search(body, start)
    return found[1].decode("utf-8", "replace") if found is not None else ""


_WINDOW = 4096
_JSON = json.JSONDecoder()


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
        value, _ = _JSON.raw_decode(text)
    except ValueError:
        return {}
    return as_json(value)
