"""The delivered part of an answer, as block events, so that another process can continue it.

Bytes are not enough. An answer that is delivered twice has the same text but not the same bytes,
because pings and the splits between events differ. So a `Given` reads the delivered bytes as it
would read a provider's answer. It returns the new content as few block events, and skips events
that are known already. `played` turns such events into the beginning of a stream. The engine uses
it as a first attempt, and continues it as usual after a dropped connection.
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
"""How many bytes of events are read one by one, before later events are read as one."""


@dataclass(slots=True)
class _Known:
    """How much of a block is known. `sizes`: type of delta -> characters."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    others: int = 0
    """Number of deltas with more than a text."""
    done: bool = False


class Given:
    """Reads the bytes that are delivered to one caller."""

    def __init__(self, codec: WireCodec, known: Iterable[Json] = (), *, framed: bool) -> None:
        """Begin. `known`: events of an earlier `Given`; `framed`: the bytes have AWS's framing."""
        self._codec = codec
        self._reader = codec.reader()
        self._unframed = eventstream.Unframed() if framed else None
        self._rest = b""
        """The beginning of an event that has not arrived completely."""
        self._pending: list[Json] = []
        self._number: dict[object, int] = {}
        """Index of a block -> how many blocks began before it."""
        self._count = 0
        self._index: object = None
        self._known: list[_Known] = []
        self._opened = False
        self.segment = Segment()
        """Everything that was delivered."""
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
        """Read the next bytes that were delivered."""
        if self._unframed is not None:
            chunks = [self._unframed(b"".join(chunks))]
        raw, look = self._rest + b"".join(chunks), _LOOK
        chunks = () if self._rest else chunks
        while True:
            if found := self._reader.joined(raw, self._index, chunks):
                delta, read = found
                self._take({"type": "content_block_delta", "index": self._index, "delta": delta})
                raw, look = raw[read:], _LOOK
            # After one parsed event, the reader can join later ones cheaply. So parse only a few.
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
        """Read a complete JSON body."""
        for event in self._codec.to_events(as_json(loads(data))):
            self._take(event)

    def eof(self) -> None:
        """Process the end of the bytes."""
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
        """Return the new events since the last call. Adjacent texts of a block become one."""
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
        """Whether the answer ended normally: not at a limit, and not refused."""
        return self._codec.stop_of(self.segment.reason, closed=True) is Stop.END

    def body(self) -> Json:
        """Return everything that was delivered as one JSON body in the provider's format."""
        segment = self.segment
        writer = self._codec.writer()
        return writer.body(segment.message, segment.blocks, segment.delta, segment.usage)


def _text_of(event: Json) -> tuple[str, str | None]:
    """Return the type of a delta and its text; `None` as the text: the delta has more than that."""
    delta = as_json(event.get("delta"))
    name = as_text(delta.get("type"))
    text = delta.get(KEYS.get(name, ""))
    return name, text if isinstance(text, str) and len(delta) == 2 else None


def played(codec: WireCodec, events: Sequence[Json], *, framed: bool = False) -> bytes:
    """Return the bytes of a stream with these block events. It ends if they have a stop reason."""
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
