"""Looks at chunks of a Gemini stream without parsing them.

A server writes each chunk of an answer alike but for its text and its counts. What stands around
the text is learned from chunks that were parsed, without its digits; a chunk that differs in any
other byte from all that was learned gets a full look.
"""

from __future__ import annotations

import re

from continuation.answer.blocks import TEXT, TOOL_CALL
from continuation.providers.gemini.parts import kind_of, plain
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, loads

_HEAD = re.compile(rb'data: \{[^\\]*?"(?:text|stringValue)"\s*:\s*"')
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_COUNTS = re.compile(rb'"usageMetadata"\s*:\s*\{[^{}]*\Z')
_DIGITS = b"0123456789"
_BRACE = ord("}")
_NEVER = b"\0"
_LESSONS = 16
_SAMPLES = 8
"""How often the counts are looked for; some servers write them anew each time."""
_LONG = 4096
"""Bytes above which a chunk is looked at event by event."""


class ChunkSkim:
    """Knows chunks of plain text by what is around the text."""

    __slots__ = (
        "_after",
        "_before",
        "_behind",
        "_head",
        "_last",
        "_left",
        "_length",
        "_lessons",
        "_pieces",
        "_samples",
        "_size",
        "_tail",
        "_texts",
        "_thoughts",
    )
    blank = b"\r\n\r\n"

    def __init__(self) -> None:
        self._texts, self._thoughts, self._pieces = _Known(), _Known(), _Known()
        self._lessons, self._samples = _LESSONS, _SAMPLES
        self._tail = b""
        # Texts once more, for the eye in haste: what stands before one, what follows it up to the
        # counts, and what comes behind those. Where no brace is between, counts is all there is.
        self._head, self._size, self._before = _NEVER, 1, slice(1)
        self._after, self._length = _NEVER, 1
        self._last, self._left, self._behind = _NEVER, -1, slice(-1, None)

    def flows(self, chunk: bytes) -> bool:
        # Runs once for each chunk of every answer. Slices and `in` are cheaper than methods.
        if chunk[self._before] == self._head and chunk[self._behind] == self._last:
            end = chunk.find(b'"', self._size)
            if chunk.startswith(self._after, end) and (
                _BRACE not in chunk[end + self._length : self._left]
            ):
                return True
            text = _STRING.match(chunk, self._size)  # with a quote in it
            end = text.end() if text is not None else 0
            if chunk.startswith(self._after, end) and (
                _BRACE not in chunk[end + self._length : self._left]
            ):
                return True
        if len(chunk) < _LONG and self._is(chunk, self._texts):
            self._fit(self._texts, chunk)
            return True
        return False

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        events = bytes(raw[start:end]).split(self.blank)
        if events.pop():
            return False
        if flowing:
            return all(self.flows(event + self.blank) for event in events)
        return all(self._waits(event + self.blank) for event in events)

    def _waits(self, event: bytes) -> bool:
        return event in self._pieces or self._is(event, self._thoughts)

    def _is(self, event: bytes, known: _Known) -> bool:
        return event in known or (self._learn(event) and event in known)

    def _learn(self, event: bytes) -> bool:
        """Parse a chunk of a form not met before; whether it is one to be known by."""
        if self._lessons == 0 or event.find(b"\n\r\n") != len(event) - 3:
            return False
        self._lessons -= 1
        head, kind = _HEAD.match(event), _kind(event)
        if head is None or not kind:
            return False
        if kind == TOOL_CALL:  # the first is looked at all the same: what goes on must have begun
            self._pieces.add(event, head[0])
            return False
        return (self._texts if kind == TEXT else self._thoughts).add(event, head[0])

    def _fit(self, known: _Known, event: bytes) -> None:
        """See what two chunks in a row have in common, so that the next are found faster."""
        before, self._tail = self._tail, known.tail(event)
        if not before or not self._samples:
            return
        self._samples -= 1
        after, last = _common(before, self._tail)
        if after:
            self._head, self._size, self._before = known.head, known.size, slice(known.size)
            self._after, self._length = after, len(after)
            self._last = last or self.blank
            self._left, self._behind = -len(self._last), slice(-len(self._last), None)


class _Known:
    """Chunks of one kind, by what stands around their text, digits behind it left out."""

    __slots__ = ("_tails", "head", "size")

    def __init__(self) -> None:
        self.head, self.size = _NEVER, 1
        self._tails: set[bytes] = set()

    def __contains__(self, event: bytes) -> bool:
        if not event.startswith(self.head):
            return False
        return self.tail(event).translate(None, _DIGITS) in self._tails

    def tail(self, event: bytes) -> bytes:
        """Return what follows the text, its closing quote first."""
        text = _STRING.match(event, self.size)
        return event[text.end() :] if text is not None else b""

    def add(self, event: bytes, head: bytes) -> bool:
        if head != self.head:
            self.head, self.size = head, len(head)
            self._tails.clear()
        tail = self.tail(event)
        self._tails.add(tail.translate(None, _DIGITS))
        return tail.startswith(b'"')


def _common(one: bytes, other: bytes) -> tuple[bytes, bytes]:
    """Return how two tails begin and how they end, if they differ in counts alone.

    Both ends are within the same object. The second is empty if they do not differ at all.
    """
    if one == other:
        return one, b""
    after = _shared(one, other).rstrip(_DIGITS)
    last = _shared(one[::-1], other[::-1])[::-1].lstrip(_DIGITS)
    between = [tail[len(after) : len(tail) - len(last)] for tail in (one, other)]
    counts = _COUNTS.search(after) is not None and not any(b"}" in part for part in between)
    return (after, last) if counts and last else (b"", b"")


def _shared(one: bytes, other: bytes) -> bytes:
    """Return the longest beginning of both."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _kind(event: bytes) -> str:
    """Return the kind of block that a chunk goes on in; `""`: it is or may be anything more."""
    try:
        chunk = as_json(loads(event[len("data: ") :]))
    except ValueError:
        return ""
    candidates = as_list(chunk.get("candidates"))
    candidate = as_json(candidates[0]) if len(candidates) == 1 else {}
    parts = as_list(as_json(candidate.get("content")).get("parts"))
    part = as_json(parts[0]) if len(parts) == 1 else {}
    strange = chunk.keys() & {"error", "promptFeedback"} or candidate.keys() - {"content", "index"}
    if strange or candidate.get("index"):
        return ""
    if plain(part):
        return kind_of(part) if next(iter(part)) == "text" else ""
    return TOOL_CALL if _goes_on(part) else ""


def _goes_on(part: Json) -> bool:
    """Whether a part is one more piece of one argument of a call, and not the last."""
    call = as_json(part.get("functionCall"))
    pieces = as_list(call.get("partialArgs"))
    return (
        part.keys() == {"functionCall"}
        and call.keys() == {"partialArgs", "willContinue"}
        and call["willContinue"] is True
        and len(pieces) == 1
        and isinstance(as_json(pieces[0]).get("stringValue"), str)
    )
