"""What the caller was given of an answer, as block events, so that another process can continue it.

Bytes would not do: an answer that is delivered twice has the same text but not the same bytes, for
pings and the cuts between events differ. So a `Given` reads what is sent to the caller as it reads
a provider's answer, returns what is new in it as few block events, and skips events known before.
`played` turns such events into the beginning of a stream: a first attempt for the engine, which
continues it like any that broke off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from continuation.answer.client_stream import ClientStream
from continuation.providers.contract import WireCodec
from continuation.types import JoinPlan, Json, Mode, ReplayBuffer, Stop
from continuation.wire import eventstream, sse
from continuation.wire.blocks import NATIVE, Segment
from continuation.wire.json_values import as_json, as_text, loads
from continuation.wire.text_template import KEYS

_LOOK = 1024
"""Bytes in which events are read one by one, before those after them are read as one."""


@dataclass(slots=True)
class _Known:
    """How much of a block is known: `sizes` has the characters by type of delta."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    others: int = 0
    """Number of deltas that hold more than a text."""
    done: bool = False


class Given:
    """Reads what one caller is given."""

    def __init__(self, codec: WireCodec, known: Iterable[Json] = (), *, framed: bool) -> None:
        """Begin. `known`: events of an earlier `Given`; `framed`: the bytes have AWS's framing."""
        self._codec = codec
        self._reader = codec.reader()
        self._unframed = eventstream.Unframed() if framed else None
        self._rest = b""
        """The beginning of an event whose end has not come."""
        self._pending: list[Json] = []
        self._number: dict[object, int] = {}
        """Index of a block -> how many blocks began before it."""
        self._count = 0
        self._index: object = None
        self._known: list[_Known] = []
        self._opened = False
        self.segment = Segment()
        """All that was given."""
        for event in known:
            self._learn(event)

    def _learn(self, event: Json) -> None:
        kind = event["type"]
        if kind == "message_start":
            self._opened = True
        elif kind == "content_block_start":
            self._number[event["index"]] = len(self._known)
            self._known.append(_Known())
        else:
            block = self._known[self._number[event["index"]]]
            name, text = _text_of(event)
            if kind == "content_block_stop":
                block.done = True
            elif text is None:
                block.others += 1
            else:
                block.sizes[name] = block.sizes.get(name, 0) + len(text)

    def read(self, chunks: Sequence[bytes]) -> None:
        """Take the next bytes that the caller was given."""
        if self._unframed is not None:
            chunks = [self._unframed(b"".join(chunks))]
        raw, look = self._rest + b"".join(chunks), _LOOK
        chunks = () if self._rest else chunks
        while True:
            if found := self._reader.joined(raw, self._index, chunks):
                delta, read = found
                self._take({"type": "content_block_delta", "index": self._index, "delta": delta})
                raw, look = raw[read:], _LOOK
            # One parsed event lets the reader join those after it cheaply: so first only a few.
            part, read, chunks = raw[:look], 0, ()
            for frame in sse.frames(part):
                read = frame.end
                for event in () if frame.empty else self._reader.events(frame):
                    self._take(event)
            if not read and len(part) == len(raw):
                break
            raw, look = raw[read:], 2 * look
        self._rest = raw

    def read_body(self, data: bytes) -> None:
        """Take a whole JSON body."""
        for event in self._codec.to_events(as_json(loads(data))):
            self._take(event)

    def eof(self) -> None:
        """Take the end of the bytes."""
        for event in self._reader.eof():
            self._take(event)

    def _take(self, event: Json) -> None:
        kind = event["type"]
        if kind not in NATIVE:
            return
        self.segment.add(event)
        if kind == "message_start":
            if not self._opened:
                self._pending.append(event)
            self._opened = True
        elif kind == "content_block_start":
            self._number[event["index"]] = self._count
            self._count += 1
            if self._count > len(self._known):
                self._pending.append(event)
        elif kind == "content_block_delta":
            self._index = event["index"]
            if (rest := self._new(event)) is not None:
                self._pending.append(rest)
        elif kind == "content_block_stop":
            number = self._number[event["index"]]
            if number >= len(self._known) or not self._known[number].done:
                self._pending.append(event)

    def _new(self, event: Json) -> Json | None:
        """Return the unknown part of a delta event; `None`: all of it is known."""
        number = self._number[event["index"]]
        if number >= len(self._known):
            return event
        block, (name, text) = self._known[number], _text_of(event)
        if text is None:
            block.others -= 1
            return event if block.others < 0 else None
        known = block.sizes.get(name, 0)
        block.sizes[name] = max(0, known - len(text))
        rest = text[known:]
        return {**event, "delta": {"type": name, KEYS[name]: rest}} if rest else None

    def new_events(self) -> list[Json]:
        """Return the new events since the last call; adjacent texts of a block become one."""
        merged, joined = list[Json](), list[str]()
        last: tuple[object, str] | None = None
        pending, self._pending = self._pending, []
        for event in [*pending, None]:
            name, text = ("", None) if event is None else _text_of(event)
            if text is not None and event is not None and last == (event["index"], name):
                joined.append(text)
                continue
            if last is not None:
                index, kind = last
                delta: Json = {"type": kind, KEYS[kind]: "".join(joined)}
                merged.append({"type": "content_block_delta", "index": index, "delta": delta})
                last = None
            if event is not None and text is not None:
                last, joined = (event["index"], name), [text]
            elif event is not None:
                merged.append(event)
        return merged

    @property
    def is_whole(self) -> bool:
        """Whether it ended normally: not at a limit, and not refused."""
        return self._codec.stop_of(self.segment.reason, closed=True) is Stop.END

    def body(self) -> Json:
        """Return all that was given as one JSON body in the provider's format."""
        segment = self.segment
        writer = self._codec.writer()
        return writer.body(segment.message, segment.blocks, segment.delta, segment.usage)


def _text_of(event: Json) -> tuple[str, str | None]:
    """Return the type of a delta and its text; `None` for the text if it holds more than that."""
    delta = as_json(event.get("delta"))
    name = as_text(delta.get("type"))
    text = delta.get(KEYS.get(name, ""))
    return name, text if isinstance(text, str) and len(delta) == 2 else None


def played(codec: WireCodec, events: Sequence[Json], *, framed: bool = False) -> bytes:
    """Return the bytes of a stream with these block events; it ends if they have a stop reason."""
    segment = Segment()
    client = ClientStream(codec.writer(), ReplayBuffer(), streamed=True, framed=framed)
    client.join(segment, JoinPlan(Mode.FIRST))
    for event in events:
        segment.add(event)
        if event["type"] == "message_start":
            client.begin(segment.message)
    client.show()
    ended = segment.reason is not None
    return client.take() + (client.end(segment.delta, segment.usage) if ended else b"")
