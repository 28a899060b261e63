"""One response of the provider's, read event by event; what may be shown of it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from continuation.answer.block_emitter import BlockEmitter
from continuation.answer.blocks import NATIVE, Segment
from continuation.answer.client_stream import ClientStream
from continuation.answer.first_stream import Gate
from continuation.answer.wire_codec import Reader
from continuation.types import Enough, Json
from continuation.wire import sse as _sse
from continuation.wire.json_values import as_json


class AttemptReader:
    """Reads one response into a segment, which may have been begun in an earlier hop."""

    def __init__(
        self,
        reader: Reader,
        segment: Segment,
        gate: Gate,
        sink: ClientStream,
        showing: BlockEmitter,
    ) -> None:
        self.buffer = bytearray()
        """What has come and is not read yet: of a JSON body, all."""
        self._reader = reader
        self._segment = segment
        self._gate = gate
        self._sink = sink
        self._showing = showing

    def collect(self, chunk: bytes) -> bytes:
        """Hold a JSON body until it is whole."""
        self.buffer += chunk
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Read the events of a stream as they come; `Enough`: no more of them is of use."""
        self.buffer += chunk
        if not _sse.may_end(self.buffer, 0, len(chunk)):
            return b""
        read = 0
        for frame in _sse.frames(self.buffer):
            read = frame.end
            if frame.empty:
                self._sink.comment()
            else:
                self.see(self._reader.events(frame))
            if self._over:
                raise Enough(self._sink.take())
        del self.buffer[:read]
        return self._sink.take()

    def finish(self, *, ended: bool) -> None:
        """Read the last event of a stream; `ended`: its bytes ended where they should."""
        if self._over:
            return
        for frame in _sse.frames(self.buffer, final=True):
            self.see(() if frame.empty else self._reader.events(frame))
        if ended:
            self.see(self._reader.eof())

    def again(self, frames: Sequence[_sse.Frame], sent: int, *, ended: bool) -> None:
        """Read a stream of which the caller has had `sent` bytes, as they came."""
        for frame in frames:
            if not frame.empty:
                self._take(self._reader.events(frame))
            if frame.end <= sent:  # not what the gate says now: what the caller has had
                self._showing.flow()
            if self._over:
                return
        if ended:
            self.see(self._reader.eof())

    def see(self, events: Sequence[Json]) -> None:
        """Take the next events; show what the gate lets pass.

        What is behind a text in its frame does not hold it up, for it is written anew.
        """
        for event in events:
            if self._take([event]):
                self._showing.flow()

    def _take(self, events: Sequence[Json]) -> bool:
        """Take the events of the next frame; return whether all that came may be shown."""
        ready = False
        for event in events:
            self._segment.add(event)
            kind = event.get("type")
            if kind not in NATIVE:
                self._sink.pass_on(event)
            elif kind == "message_start":
                self._sink.begin(as_json(event.get("message")))
            else:
                ready = self._gate.step(event)
        return ready

    @property
    def _over(self) -> bool:
        """Whether what may still come is not the answer's, or not worth reading."""
        segment = self._segment
        return segment.stopped or segment.error is not None or self._showing.joint.stalled
