"""Reads one response, event by event, into a segment, and delivers what the gate allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from continuation.answer.client_stream import ClientStream
from continuation.answer.gate import Gate
from continuation.providers.contract import Reader
from continuation.types import Enough, Json
from continuation.wire import sse
from continuation.wire.blocks import NATIVE, Block, Segment
from continuation.wire.json_values import as_json


class AttemptReader:
    """Reads one response into a segment, which an earlier hop may have begun.

    It makes the client stream deliver what the gate allows.
    """

    def __init__(self, reader: Reader, segment: Segment, gate: Gate, client: ClientStream) -> None:
        self.buffer = bytearray()
        """Bytes that arrived but are not read yet; for a JSON body, all bytes."""
        self._reader = reader
        self._segment = segment
        self.gate = gate
        self._client = client
        self._over = False
        """Whether the answer has ended. Later bytes are ignored."""
        self.steady: tuple[object, Block, bool] | None = None
        """A block with deltas that need no check: its index, the block, whether it is delivered."""

    def collect(self, chunk: bytes) -> bytes:
        """Buffer a JSON body, because nothing of it is delivered before it is complete."""
        self.buffer += chunk
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Read a stream's next bytes; return the bytes to deliver. Raises `Enough` at the end."""
        raw, read, reader, client = chunk, 0, self._reader, self._client
        if self.buffer:
            self.buffer += chunk
            if not sse.may_end(self.buffer, 0, len(chunk)):
                return b""
            raw = bytes(self.buffer)
        if self.steady is not None:  # the common case: events with only a delta of this block
            index, block, shown = self.steady
            for delta, end in reader.deltas(raw, index, text=shown):
                read, self._segment.events = end, self._segment.events + 1
                if shown:
                    client.more(block, delta)
                else:
                    block.deltas.append(delta)
        more = read < len(raw) and sse.may_end(raw, read, len(raw))
        for frame in sse.frames(raw, read) if more else ():
            read = frame.end
            if frame.empty:
                client.pass_on(None)
            elif self.see(reader.events(frame)):
                raise Enough(client.take())
        self.buffer[:] = raw[read:]
        return client.take()

    def finish(self, *, ended: bool) -> None:
        """Read the last event of a stream. `ended`: its bytes ended without an error."""
        if not self._over:
            for frame in sse.frames(self.buffer, final=True):
                self.see(() if frame.empty else self._reader.events(frame))
            if ended:
                self.see(self._reader.eof())

    def read_again(
        self, frames: Sequence[sse.Frame], sent: int, *, ended: bool
    ) -> tuple[int, list[Json]]:
        """Read a stream again after its first `sent` bytes were delivered.

        Return how many events those bytes had, and the later events that are only passed on: pings
        and unknown ones.
        """
        shown, held = 0, list[Json]()
        for frame in frames:
            events = () if frame.empty else self._reader.events(frame)
            over = self.see(events, gated=False)
            if frame.end <= sent:  # the caller has it, so the gate does not matter
                self._client.show()
                shown += not frame.empty
            else:
                held += [event for event in events if event.get("type") not in NATIVE]
            if over:
                return shown, held
        if ended:
            self.see(self._reader.eof())
        return shown, held

    def see(self, events: Iterable[Json], *, gated: bool = True) -> bool:
        """Process events and deliver what the gate allows; return whether the answer has ended.

        A text is delivered even if more follows it in its frame, because all is written anew.
        `gated`: `False` delivers nothing, even if the gate allows it.
        """
        gate, segment, client = self.gate, self._segment, self._client
        for event in events:
            kind = event.get("type")
            steady = self.steady if kind == "content_block_delta" else None
            if steady is not None and steady[2] and event.get("index") == steady[0]:
                delta = as_json(event.get("delta"))
                text = delta.get("text")
                if len(delta) == 2 and type(text) is str and delta.get("type") == "text_delta":
                    segment.events += 1
                    client.more(steady[1], delta)
                    continue
            segment.add(event)
            if kind not in NATIVE:
                client.pass_on(event)
                continue
            self.steady, index = None, event.get("index")
            block = segment.at.get(index) if kind == "content_block_delta" else None
            if kind == "message_start":
                client.begin(as_json(event.get("message")))
            elif gate.flowing or not gate.blind or kind != "content_block_delta":
                if gate.step(event) and gated:
                    client.show()
                    if block is not None and gate.flowing and client.run is block:
                        self.steady = index, block, True
                self._over = segment.stopped or segment.error is not None or gate.runs_away
            elif block is not None:  # all its deltas are buffered
                self.steady = index, block, False
        return self._over
