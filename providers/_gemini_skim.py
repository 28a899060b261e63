"""Looks at chunks of a Gemini stream without parsing them.

A server writes each chunk of an answer alike but for its text and its counts. What stands around
the text is learned from chunks that were parsed, without its digits; a chunk that differs in any
other byte from all that was learned gets a full look.
"""

from __future__ import annotations

import re

from continuation.providers._blocks import TEXT
from continuation.providers._gemini_parts import kind_of, plain
from continuation.providers._json import as_json, as_list, loads

_HEAD = re.compile(rb'data: \{[^\\]*?"text"\s*:\s*"')
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_DIGITS = b"0123456789"
_BACKSLASH = ord("\\")
_LESSONS = 16
_LONG = 4096
"""Bytes above which a chunk is looked at event by event."""


class ChunkSkim:
    """Knows chunks of plain text by what is around the text."""

    blank = b"\r\n\r\n"

    def __init__(self) -> None:
        self._head = b"\x00"  # no chunk begins so
        self._size = 1
        self._texts: set[bytes] = set()
        """What follows a visible text, its closing quote first and the blank line last..."""
        self._bare: set[bytes] = set()
        """...the same without that line..."""
        self._thoughts: set[bytes] = set()
        """...and what follows a thought."""
        self._lessons = _LESSONS

    def flows(self, chunk: bytes) -> bool:
        # Runs once for each chunk of every answer; a text without quotes costs no more than this.
        if chunk.startswith(self._head) and len(chunk) < _LONG:
            end = chunk.find(b'"', self._size)
            if chunk[end - 1] != _BACKSLASH and (
                chunk[end:].translate(None, _DIGITS) in self._texts
            ):
                return True
        return len(chunk) < _LONG and self._is(chunk, self._texts)

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        events = bytes(raw[start:end]).split(self.blank)
        if events.pop():
            return False
        if not flowing:
            return all(self._is(event + self.blank, self._thoughts) for event in events)
        head, size, bare = self._head, self._size, self._bare
        for event in events:
            at = event.find(b'"', size)
            if (
                event.startswith(head)
                and event[at - 1] != _BACKSLASH
                and event[at:].translate(None, _DIGITS) in bare
            ):
                continue
            if not self._is(event + self.blank, self._texts):
                return False
        return True

    def _is(self, event: bytes, known: set[bytes]) -> bool:
        return _end(event, self._head, self._size) in known or (
            self._learn(event) and _end(event, self._head, self._size) in known
        )

    def _learn(self, event: bytes) -> bool:
        """Parse a chunk of a form not met before; whether it is one to be known by."""
        if self._lessons == 0 or event.find(b"\n\r\n") != len(event) - 3:
            return False
        self._lessons -= 1
        head, kind = _HEAD.match(event), _kind(event)
        if head is None or not kind:
            return False
        if head[0] != self._head:
            self._head, self._size = head[0], len(head[0])
            for known in (self._texts, self._bare, self._thoughts):
                known.clear()
        found = _end(event, self._head, self._size)
        if found and kind == TEXT:
            self._texts.add(found)
            self._bare.add(found[: -len(self.blank)])
        elif found:
            self._thoughts.add(found)
        return bool(found)


def _end(event: bytes, head: bytes, size: int) -> bytes:
    """Return what follows the text of a chunk, without digits; `b""` when it begins otherwise."""
    text = _STRING.match(event, size) if event.startswith(head) else None
    return b"" if text is None else event[text.end() - 1 :].translate(None, _DIGITS)


def _kind(event: bytes) -> str:
    """Return the kind of text that a chunk brings; `""` when it is or may be anything more."""
    try:
        chunk = as_json(loads(event[len("data: ") :]))
    except ValueError:
        return ""
    candidates = as_list(chunk.get("candidates"))
    candidate = as_json(candidates[0]) if len(candidates) == 1 else {}
    parts = as_list(as_json(candidate.get("content")).get("parts"))
    part = as_json(parts[0]) if len(parts) == 1 else {}
    strange = chunk.keys() & {"error", "promptFeedback"} or candidate.keys() - {"content", "index"}
    if strange or candidate.get("index") or not plain(part) or next(iter(part)) != "text":
        return ""
    return kind_of(part)
