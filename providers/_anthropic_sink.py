"""The caller's side of a Messages turn: events with dense indices, and the content they make."""

from __future__ import annotations

import json

from continuation.providers import _sse
from continuation.providers._anthropic_blocks import Block, as_json, as_text, dumps
from continuation.types import Json, Tape

_STRINGS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_DELTA = (
    "event: content_block_delta\n"
    'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":%s}}\n\n'
)
_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Sink:
    """The caller's side: writes events with its own indices and keeps the content they make."""

    def __init__(self, *, streamed: bool) -> None:
        self.streamed = streamed
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.muted = False
        self.closing_delta: Json = {}
        self.tape: Tape | None = None
        self._out: list[bytes] = []

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return out

    def write(self, event: Json) -> None:
        """Pass an event on as it is."""
        if self.streamed and not self.muted:
            self._out.append(_sse.encode(as_text(event.get("type")), dumps(event)))

    def comment(self) -> None:
        """Keep the caller's connection alive, as the provider keeps ours."""
        if self.streamed and not self.muted:
            self._out.append(b":\n\n")

    def begin(self, event: Json) -> None:
        """Open the message; only the first opening is the caller's."""
        if not self.message:
            self.message = as_json(event.get("message"))
            self.write(event)

    @property
    def open(self) -> Block | None:
        """The block that has begun and not ended."""
        return self.blocks[-1] if self.blocks and not self.blocks[-1].done else None

    def start(self, block: Json) -> None:
        self.stop()
        self.blocks.append(Block(dict(block)))
        index = len(self.blocks) - 1
        self.write({"type": "content_block_start", "index": index, "content_block": block})
        self._mark()

    def delta(self, delta: Json) -> None:
        self.blocks[-1].deltas.append(delta)
        if self.streamed and not self.muted:
            self._out.append(_delta_event(len(self.blocks) - 1, delta))

    def text(self, piece: str) -> None:
        if piece:
            self.delta({"type": "text_delta", "text": piece})

    def stop(self) -> None:
        if self.open is not None:
            self.write({"type": "content_block_stop", "index": len(self.blocks) - 1})
            self.blocks[-1].done = True
            self._mark()

    def take_back(self, characters: int) -> None:
        """Remove the end of the open text; only where nothing was streamed."""
        if characters and self.open is not None and not self.streamed:
            text = self.open.text
            fold(self.open, text[: len(text) - characters])

    def end(self, delta: Json, usage: Json) -> bytes:
        """Close the message: the terminal events, or the whole body."""
        self.stop()
        self.write({"type": "message_delta", "delta": delta, "usage": usage})
        self.write({"type": "message_stop"})
        if self.streamed:
            return self.take()
        content = [block.wire() for block in self.blocks]
        return dumps({**self.message, "content": content, **delta, "usage": usage})

    def _mark(self) -> None:
        """Keep on the tape how the message would be closed here, should our own code fail."""
        if self.tape is None or not self.streamed or self.muted:
            return
        usage: Json = {"output_tokens": 0}
        events = list[Json]()
        events.append({"type": "message_delta", "delta": self.closing_delta, "usage": usage})
        events.append({"type": "message_stop"})
        if self.open is not None:
            index = len(self.blocks) - 1
            stop: Json = {"type": "content_block_stop", "index": index}
            events.insert(0, stop)
        self.tape.closing = b"".join(_sse.encode(as_text(e["type"]), dumps(e)) for e in events)

    def unmute(self, delta: Json) -> None:
        """From here on events are written; `delta` is how the message would end now."""
        self.muted = False
        self.closing_delta = delta
        self._mark()


def fold(block: Block, text: str) -> None:
    """Make `text` the text of a block, in one piece."""
    block.start["text"] = ""
    others = [delta for delta in block.deltas if delta.get("type") != "text_delta"]
    block.deltas = [{"type": "text_delta", "text": text}, *others]


def _delta_event(index: int, delta: Json) -> bytes:
    """Write a delta; the common kinds by hand, in a third of the time."""
    kind = as_text(delta.get("type"))
    key = _STRINGS.get(kind)
    string = delta.get(key) if key is not None and len(delta) == 2 else None
    if isinstance(string, str):
        try:
            return (_DELTA % (index, kind, key, _quoted(string))).encode()
        except UnicodeEncodeError:  # half an emoji: `dumps` escapes it
            pass
    event = {"type": "content_block_delta", "index": index, "delta": delta}
    return _sse.encode("content_block_delta", dumps(event))
