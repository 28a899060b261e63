"""The first attempt while it streams: its bytes are delivered as they arrived.

Only the structure is read. Of a complete answer, only its few structural events are parsed. If the
answer needs more than its own bytes, `MessageBuilder.end` reads the bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from continuation.answer.gate import BEHIND, Gate
from continuation.providers.contract import WireCodec
from continuation.types import AttemptResult, Enough, Json, ReplayBuffer, ToolCallState
from continuation.wire import eventstream, sse
from continuation.wire.blocks import TEXT, Segment
from continuation.wire.json_values import as_json, as_text

_ALIVE = 5.0
"""Seconds without delivery after which a ping is delivered before the buffered bytes."""


class FirstStream:
    """The first attempt as server-sent events."""

    framed = False
    """Whether the stream has AWS's framing."""
    frames: Callable[..., list[sse.Frame]] = staticmethod(sse.frames)
    """Returns the complete events in bytes."""

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        self._codec = codec
        self._reader = codec.reader()
        self._fast_path = codec.fast_path()
        self._replay = replay
        self._gate = gate
        self._seen = 0
        self._quiet = -1, 0.0
        """How many bytes were delivered when a ping was first buffered after them, and the time."""
        self._sketch = Segment()
        self._speaks = False
        """Whether content for the user has arrived, so that the answer is not empty."""
        self._behind: list[tuple[int, int]] = []
        """For a call that is delivered with a delay: ends of events, its characters up to each."""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of the replay buffer to deliver now. It already ends with `chunk`."""
        # In the common case, text is delivered as it arrives. It costs only these checks, and the
        # shells make them first.
        replay = self._replay
        if replay.flows is not None:
            if replay.flows(chunk):
                replay.sent = len(replay.raw)
                return chunk
            self._seen, replay.flows = replay.sent, None
        sent = replay.sent
        try:
            return self._feed(chunk)
        except Enough:
            raise
        except Exception:
            replay.sent = sent  # nothing is returned, so nothing is delivered
            raise

    def _feed(self, chunk: bytes) -> bytes:
        raw, gate, blank = self._replay.raw, self._gate, self._fast_path.blank
        end = len(raw)
        if not raw.endswith(blank):
            # Search only the new bytes: the last event can be as long as the answer.
            new = max(self._seen, end - len(chunk) - len(blank) + 1)
            end = raw.rfind(blank, new) + len(blank)
        if not (
            gate.blind
            and end > self._seen
            and self._fast_path.skips(raw, self._seen, end, flowing=gate.flowing)
        ):
            if not (raw.endswith(blank) or sse.may_end(raw, self._seen, len(chunk))):
                return b""
            return self._read(self.frames(raw, self._seen))
        self._seen, self._sketch.moves = end, True
        if not gate.flowing:
            return b""
        if end == len(raw):  # all bytes so far are complete events, and delivered
            self._replay.flows = self._fast_path.flows
        if end == len(raw) == self._replay.sent + len(chunk):
            self._replay.sent = end
            return chunk
        return self._show(end)

    def _show(self, end: int) -> bytes:
        start, self._replay.sent = self._replay.sent, end
        return bytes(memoryview(self._replay.raw)[start:end])

    def _read(self, frames: Sequence[sse.Frame]) -> bytes:
        """Read events one by one; return the bytes to deliver now."""
        shown = b""
        for frame in frames:
            start, self._seen = self._seen, frame.end
            events = () if frame.empty else self._reader.events(frame)
            kinds, passes = set[object](), False
            for event in events:
                kinds.add(event["type"])
                if event["type"] in {"content_block_delta", "content_block_stop"}:
                    self._sketch.events += 1
                    self._sketch.note(event)
                    self._speaks = self._speaks or bool(
                        as_text(as_json(event.get("delta")).get("text")).strip()
                    )
                else:
                    self._sketch.add(event)
                passes = self._gate.step(event)
            idle = frame.empty or kinds == {"ping"}
            if self._gate.behind and passes and not idle:
                shown += self._show(self._lagging(frame.end, events))
            elif (passes and not self._gate.behind) or (idle and self._replay.sent == start):
                shown += self._show(frame.end)
            elif idle and self._is_quiet():
                alive = bytes(self._replay.raw[start : frame.end])
                del self._replay.raw[start : frame.end]  # so that it is not delivered twice
                self._seen = start
                return shown + alive + self._read(self.frames(self._replay.raw, start))
            if "message_stop" in kinds:
                raise Enough(shown, self.result_by_labels())
            if "error" in kinds or self._gate.runs_away:
                raise Enough(shown)
        return shown

    def _lagging(self, end: int, events: Sequence[Json]) -> int:
        """Return the end of the bytes to deliver of a call that has arrived up to `end`."""
        if any(event["type"] == "content_block_start" for event in events):
            self._behind.clear()
        pieces = [as_text(as_json(event.get("delta")).get("partial_json")) for event in events]
        length = sum(map(len, pieces)) + (self._behind[-1][1] if self._behind else 0)
        self._behind.append((end, length))
        while len(self._behind) > 1 and self._behind[1][1] + BEHIND <= length:
            self._behind.pop(0)
        return self._behind[0][0]

    def _is_quiet(self) -> bool:
        """Whether only pings arrived for so long that one must be delivered, as a keep-alive."""
        (sent, since), now = self._quiet, self._replay.seconds()
        if sent == self._replay.sent and now - since < _ALIVE:
            return False
        self._quiet = self._replay.sent, now
        return sent == self._replay.sent

    def result_by_labels(self) -> AttemptResult | None:
        """Return the result when the bytes have ended; `None`: the labels are not enough."""
        sketch, silent = self._sketch, {TEXT, *self._codec.silent}
        if sketch.error or sketch.reason is None:
            return None
        speaks = self._speaks or any(block.kind not in silent for block in sketch.blocks)
        if not speaks:
            return None  # it may be empty despite a normal stop reason
        if sketch.stopped:
            return self._result()
        if self._replay.flows is None and self._replay.raw[self._seen :].strip():
            return None
        ended = any(event.get("type") == "message_stop" for event in self._reader.eof())
        return self._result() if ended else None

    @property
    def phases(self) -> list[str]:
        """What was generated so far: see `MessageBuilder.phases`."""
        return self._sketch.phases

    def _result(self) -> AttemptResult:
        """Return the result of the events read so far."""
        codec, sketch = self._codec, self._sketch
        return AttemptResult(
            stop=codec.ending(sketch),
            raw=sketch.reason,
            id=codec.identity(sketch.message),
            usage=codec.read_usage(sketch.usage),
            call=self._quick_calls(),
            text=True,
        )

    def _quick_calls(self) -> ToolCallState:
        return self._codec.quick_calls(self._replay.raw, self._sketch)


class FirstFramed(FirstStream):
    """The first attempt as an AWS event stream."""

    framed = True
    frames = staticmethod(eventstream.frames)

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        super().__init__(codec, replay, gate)
        self._deltas = eventstream.Alike(codec.delta)

    def _feed(self, chunk: bytes) -> bytes:
        raw, gate, shown = self._replay.raw, self._gate, b""
        if gate.blind:
            self._seen = self._deltas.end(raw, self._seen)
            shown = self._show(self._seen) if gate.flowing else b""
        try:
            shown += self._read(self.frames(raw, self._seen))
        except Enough as enough:
            raise Enough(shown + enough.show, enough.result) from None
        if gate.flowing and gate.blind and len(raw) == self._replay.sent:
            self._replay.flows = self._deltas.flows
        return shown

    def _quick_calls(self) -> ToolCallState:
        last = self._deltas.last(self._replay.raw) if self._sketch.calls else b""
        if self._sketch.calls and b'"partial_json"' not in last:
            return ToolCallState.CUT  # the complete answer has to be read
        return self._codec.quick_calls(bytearray(sse.encode("", last)), self._sketch)
