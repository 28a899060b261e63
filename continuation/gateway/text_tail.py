"""The end of the text that a caller receives, for the page, if that may show content."""

from __future__ import annotations

from continuation.answer.given import Given
from continuation.providers.contract import WireCodec
from continuation.types import Json
from continuation.wire.json_values import as_json, as_text

_MAX_CHARACTERS = 400
"""How many characters of the text are kept."""
_MAX_UNREAD = 1 << 16
"""So many bytes can wait unread until the page requests the text. More are read at once."""


class TextTail:
    """Reads one stream as it is sent to the caller."""

    def __init__(self, codec: WireCodec) -> None:
        """Begin. `codec`: that of the stream's format."""
        self._given = Given(codec, framed=False)
        self._chunks: list[bytes] = []
        self._size = 0
        self._end = ""

    def give(self, chunk: bytes) -> None:
        """Take bytes that the caller receives."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > _MAX_UNREAD:
            self.text()

    def text(self) -> str:
        """Return the end of the text so far, at most `_MAX_CHARACTERS` characters."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        self._given.read(chunks)
        text = "".join(map(_delta_text, self._given.new_events()))
        self._end = (self._end + text)[-_MAX_CHARACTERS:]
        return self._end


def _delta_text(event: Json) -> str:
    delta = as_json(event.get("delta"))
    return as_text(delta.get("text")) or as_text(delta.get("partial_json"))
