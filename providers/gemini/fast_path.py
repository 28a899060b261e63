"""Looks at chunks of a Gemini stream without parsing them.

A server writes each chunk of an answer alike but for its text and its counts. Of the first chunks
that were parsed templates are made; a chunk that is like none of them gets a full look.
"""

from __future__ import annotations

from continuation.answer.blocks import TEXT, TOOL_CALL
from continuation.providers.gemini.parts import kind_of, plain
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text, loads
from continuation.wire.text_template import TextTemplate

_DATA = len(b"data: ")
_LESSONS = 16
"""How many chunks of an answer are parsed to learn from; some servers never repeat themselves."""


class ChunkPath:
    """Knows chunks of plain text by what is around the text."""

    blank = b"\r\n\r\n"

    def __init__(self) -> None:
        self._texts: list[TextTemplate] = []
        self._held: list[TextTemplate] = []
        """Of thoughts, and of pieces of a call's argument."""
        self._lessons = _LESSONS

    def flows(self, chunk: bytes) -> bool:
        """Whether a chunk is one event of visible text."""
        for template in self._texts:  # hot: once for each chunk of every answer
            if template.covers(chunk):
                return True
        return self._learnt(chunk) == TEXT

    def skips(self, raw: bytearray, start: int, end: int, *, flowing: bool) -> bool:
        """Whether the whole events in `raw[start:end]` need no look."""
        events = bytes(raw[start:end]).split(self.blank)
        if events.pop():
            return False
        fit = self.flows if flowing else self._waits
        return all(fit(event + self.blank) for event in events)

    def _waits(self, event: bytes) -> bool:
        if any(template.covers(event) for template in self._held):
            return True
        # The first piece of a call is looked at all the same: what goes on must have begun.
        return self._learnt(event) not in {"", TEXT, TOOL_CALL}

    def _learnt(self, event: bytes) -> str:
        """Parse a chunk of a form not met before; return its kind if it is known by it now."""
        if self._lessons == 0 or event.find(b"\n\r\n") != len(event) - 3:
            return ""
        self._lessons -= 1
        try:
            kind, text = _plain_of(as_json(loads(event[_DATA:])))
        except ValueError:
            return ""
        template = TextTemplate.learnt(event, text, _text_of, {}, at=_DATA) if kind else None
        if template is None:
            return ""
        (self._texts if kind == TEXT else self._held).insert(0, template)
        return kind


def _text_of(chunk: Json) -> object:
    return _plain_of(chunk)[1]


def _plain_of(chunk: Json) -> tuple[str, str]:
    """Return the kind of block that a chunk goes on in, and the text it adds to it.

    Nothing: it says or may say anything more.
    """
    candidates = as_list(chunk.get("candidates"))
    candidate = as_json(candidates[0]) if len(candidates) == 1 else {}
    parts = as_list(as_json(candidate.get("content")).get("parts"))
    part = as_json(parts[0]) if len(parts) == 1 else {}
    strange = chunk.keys() & {"error", "promptFeedback"} or candidate.keys() - {"content", "index"}
    if strange or candidate.get("index"):
        return "", ""
    if plain(part):
        return kind_of(part), as_text(part["text"])
    # One more piece of one argument of a call, and not the last.
    call = as_json(part.get("functionCall"))
    pieces = as_list(call.get("partialArgs"))
    more = call.keys() == {"partialArgs", "willContinue"} and call["willContinue"] is True
    if part.keys() != {"functionCall"} or not more or len(pieces) != 1:
        return "", ""
    text = as_json(pieces[0]).get("stringValue")
    return (TOOL_CALL, text) if isinstance(text, str) else ("", "")
