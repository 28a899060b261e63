"""Writes a Gemini answer as chunks, each a complete response, or as one body.

Chunks are server-sent events, or elements of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from continuation.providers.contract import Writer
from continuation.providers.gemini.parts import gathered, merged, part_of
from continuation.providers.gemini.reader import LENGTH
from continuation.types import Json
from continuation.wire.blocks import Block
from continuation.wire.json_values import as_json, as_list, as_text, dumps
from continuation.wire.text_template import PlainWriter

_NO_TEXT: Json = {"text": ""}
"""The part of a chunk without content. The SDK's chat treats a chunk without parts as a failed
turn, and drops the turn."""


class GeminiWriter(Writer):
    """Writes one answer. Parts that are not plain text are buffered until text or the end follows.

    So one chunk has all calls, because the SDK's chat records a content for each chunk, and the
    provider refuses results of calls in different contents. The end of an answer with content has a
    part. An answer without content has no parts, because Vertex would refuse an empty text.
    """

    def __init__(self, array: Callable[[], bool]) -> None:
        """Make a writer. `array` returns whether chunks are elements of an array.

        It is called for each chunk.
        """
        self._array = array
        self._begun = False
        """Whether the array's opening bracket and an element have been written."""
        self._message: Json = {}
        self._waiting: list[Json] = []
        self._had = 0
        self._plain = PlainWriter()

    def open(self, message: Json) -> bytes:
        self._message = message  # each chunk contains its fields
        return b""

    def start(self, index: int, block: Block) -> bytes:
        if "part" in block.start:
            self._waiting.append(part_of(block))
        # In an array, an element must precede the bytes of `closing`, so write one now.
        return self._content([_NO_TEXT]) if self._array() and not self._begun else b""

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        kind = delta.get("type")
        if kind == "part_delta":
            out, self._waiting = self._flush(), [as_json(delta.get("part"))]
            return out
        if "part" in block.start:
            return b""
        if kind == "text_delta":
            text = as_text(delta.get("text"))
            if self._waiting or not self._begun:
                return self._flush({"text": text})
            # Nothing is buffered, so one chunk for the text is enough.
            return self._plain.write(None, text, lambda text, _: self._content([{"text": text}]))
        if kind == "thinking_delta":
            return self._flush({"text": delta.get("thinking"), "thought": True})
        return b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        self._message, self._had = message, shown
        self._begun, self._plain = shown > 0, PlainWriter()

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        ending = {**delta, "stop_reason": delta.get("stop_reason") or LENGTH}
        return self._chunk(self._end(ending, self._last_parts(blocks)), last=True)

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        parts, self._waiting = self._last_parts(blocks), []
        return self._chunk(self._end(delta, parts), usage, last=True)

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        self._message = message
        return self._response(self._end(delta, merged(blocks)), usage)

    # --- chunks --------------------------------------------------------------------------------

    def _last_parts(self, blocks: Sequence[Block]) -> list[Json]:
        return self._waiting or ([_NO_TEXT] if blocks else [])

    def _flush(self, *more: Json) -> bytes:
        """Return a chunk with the buffered parts, then one chunk for each of `more`."""
        waiting, self._waiting = self._waiting, []
        return b"".join(self._content(parts) for parts in (waiting, *([p] for p in more)) if parts)

    def _content(self, parts: list[Json]) -> bytes:
        content = {"parts": parts, "role": "model"}
        chunk = self._chunk({"candidates": [{"content": content, "index": 0}]})
        self._begun = True
        return chunk

    def _chunk(self, response: Json, usage: Json | None = None, *, last: bool = False) -> bytes:
        data = dumps(self._response(response, usage))
        if self._array():
            return (b",\r\n" if self._begun else b"[") + data + (b"\r\n]" if last else b"")
        return b"data: " + data + b"\r\n\r\n"

    def _response(self, response: Json, usage: Json | None = None) -> Json:
        counts: Json = {"usageMetadata": usage} if usage else {}
        head = {key: value for key, value in self._message.items() if key != "usage"}
        return {**response, **counts, **head}

    def _end(self, delta: Json, parts: list[Json]) -> Json:
        """Return the response that ends the answer, with its reason and the candidate's fields."""
        feedback, reason = as_json(delta.get("feedback")), as_text(delta.get("stop_reason"))
        if feedback and feedback.get("blockReason") == reason:
            return {"promptFeedback": feedback}
        token = ""
        if reason in {LENGTH, "CONTINUATION"}:
            # Do not write CONTINUATION: the SDK would continue by the token, though we had to stop.
            token = as_text(delta.get("token"))
            reason = as_text(delta.get("finishReason")) or LENGTH
        items = [as_json(item) for item in as_list(delta.get("beside"))]
        # Leave out the fields that the caller already got, in chunks that passed through unchanged.
        had = range(self._had + 1)
        new = (as_json(item.get("candidate")) for item in items if item.get("chunk") not in had)
        ending: Json = {
            "content": {"parts": parts, "role": "model"},
            "finishReason": reason,
            "finishMessage": delta.get("finishMessage"),
            "continuationToken": token or None,
            "index": 0,
        }
        present = {key: value for key, value in ending.items() if value is not None}
        return {"candidates": [{**gathered(new), **present}]}
