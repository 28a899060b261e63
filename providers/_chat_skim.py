"""Looks at chunks that save a parse: which are mere text, and whether a call is whole.

Inside JSON text a quote is escaped, so bytes that hold a bare one are what they look like.
"""

from __future__ import annotations

import re

from continuation.providers._json import parsed

_SPELLINGS = (
    (b'"finish_reason":null', b'"content":"'),
    (b'"finish_reason": null', b'"content": "'),
)
_LINE, _RETURN, _QUOTE = b'\n\r"'
_NEVER = b"\0"
_STRING = re.compile(rb'(?:[^"\\]|\\.)*')
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"((?:[^"\\]|\\.)*)"')
_CALL = b"_call"
"""What `tool_calls` and `function_call` have in common."""
_SAMPLES = 8
"""How often an answer's chunks are taken for a pattern; some servers never repeat themselves."""


class ChatSkim:
    """Finds chunks that are mere text: a null reason, a text, and nothing of a call.

    A server writes each chunk like the one before. So what stands before the text and behind it is
    taken from the first chunk that was looked at closely, and the others are compared with that.
    """

    __slots__ = ("_begin", "_head", "_null", "_samples", "_tail", "_text")
    blank = b"\n\n"

    def __init__(self) -> None:
        self._null, self._text = _SPELLINGS[0]
        self._head = self._tail = _NEVER
        """The bytes before a chunk's text from its line's beginning, and those behind it."""
        self._begin = 0
        self._samples = _SAMPLES

    def flows(self, chunk: bytes) -> bool:
        # Hot: once for every event of an uncut answer.
        begin = self._begin
        if (
            chunk.startswith(self._head)
            and chunk.find(b"\n\n", begin) == len(chunk) - 2  # one event, and a whole one
            and _RETURN not in chunk
        ):
            if chunk.startswith(self._tail, chunk.find(_QUOTE, begin)):
                return True
            return chunk.find(self._tail, begin) > 0 and chunk.find(_CALL, begin) < 0
        return chunk.endswith(b"\n\n") and self._texts(chunk, 0, len(chunk))

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        if flowing:
            return self._texts(raw, start, end)
        if raw.find(_RETURN, start, end) >= 0:
            return False
        return 2 * self._nulls(raw, start, end) == raw.count(_LINE, start, end)

    def _texts(self, raw: bytes | bytearray, start: int, end: int) -> bool:
        """Whether whole events are text, all of them."""
        if raw.find(_RETURN, start, end) >= 0:
            return False
        head, lines = self._head, raw.count(b"\n", start, end)
        # Two line feeds to an event, none of which can stand inside JSON.
        if head and 2 * raw.count(head, start, end) == lines == 2 * raw.count(
            self._tail, start, end
        ):
            return raw.find(_CALL, start, end) < 0
        return self._count(raw, start, end)

    def _count(self, raw: bytes | bytearray, start: int, end: int) -> bool:
        """Find the same where no pattern helps."""
        count = raw.count(b"\n\n", start, end)
        if self._nulls(raw, start, end) != count or raw.find(_CALL, start, end) >= 0:
            return False
        if raw.count(self._text, start, end) != count:
            return False
        if self._samples:
            self._samples -= 1
            self._learn(bytes(raw[start : raw.find(b"\n\n", start)]))
        return True

    def _nulls(self, raw: bytes | bytearray, start: int, end: int) -> int:
        """Count null reasons, as this server writes JSON: it does not change its ways."""
        count = raw.count(self._null, start, end)
        if count:
            return count
        for null, text in _SPELLINGS:
            if count := raw.count(null, start, end):
                self._null, self._text = null, text
                break
        return count

    def _learn(self, line: bytes) -> None:
        begin = line.find(self._text) + len(self._text)
        text = _STRING.match(line, begin)
        if not line.startswith(b"data:") or b"\n" in line or text is None:
            return
        null = line.find(self._null, text.end())
        # Where the reason comes first it is part of the head.
        end = null + len(self._null) if null >= 0 else text.end() + 2
        self._head, self._tail, self._begin = line[:begin], line[text.end() : end], begin


def lone_call_whole(raw: bytearray, start: int) -> bool:
    """Whether a stream's only call is proven whole by its argument text alone; `False`: unsure."""
    pieces = b"".join(_ARGUMENTS.findall(raw, start)).decode("utf-8", "replace")
    return isinstance(parsed(str(parsed(f'"{pieces}"'))), dict)
