"""The first attempt, read at almost no cost: bytes pass as they came, structure is looked at.

An answer that is not cut is never parsed beyond its few structural events. What may be shown is
decided by one small `Gate`, which also decides it when a cut answer is read again event by event.
"""

from __future__ import annotations

from collections.abc import Sequence

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Segment
from continuation.answer.wire_codec import WireCodec
from continuation.policy import Policy
from continuation.types import AttemptResult, Enough, Json, ReplayBuffer, Stop
from continuation.wire import sse as _sse
from continuation.wire.json_values import as_json, as_text


class Gate:
    """Says of each event whether all that was read so far may be shown.

    Text flows. Anything else waits until visible text follows it, so that it can be taken back:
    a thinking block may be cut before its signature, a function call before its last brace. Once
    a call has begun, all waits for the end of the message.
    """

    def __init__(self, policy: Policy, *, hold_calls: bool = False, streamed: bool = True) -> None:
        """Begin. `hold_calls`: even if by policy calls may be shown as they come.

        `streamed`: the caller reads a stream; in a JSON body nothing is live.
        """
        self._live_calls = streamed and policy.stream_tool_calls == "live" and not hold_calls
        self._live_thinking = streamed and policy.stream_thinking == "live"
        self._calls = False
        self.flowing = False
        """Deltas may be shown unseen."""
        self.blind = False
        """Deltas need not be looked at: they flow, or they wait whatever they are."""

    def pass_on(self, events: Sequence[Json]) -> bool:
        """Take the events of one frame; `True`: it and all before it may be shown."""
        last = False
        for event in events:
            last = self.step(event)
        return last

    def step(self, event: Json) -> bool:
        """Take the next event; `True`: it and all before it may be shown."""
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._delta(as_json(event.get("delta")))
        if kind == "content_block_start":
            return self._start(as_text(as_json(event.get("content_block")).get("type")))
        if kind == "content_block_stop":
            self.flowing, self.blind = False, True
            return False
        if kind == "message_delta" and as_json(event.get("delta")).get("stop_reason"):
            # Perhaps the end: what follows it, and is no text, waits to be seen with it.
            self.flowing, self.blind = False, self._calls
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        return kind == "message_start" or self.flowing

    def _start(self, kind: str) -> bool:
        live = (self._live_calls and kind == TOOL_CALL) or (
            self._live_thinking and kind in THINKING
        )
        self._calls = self._calls or (kind == TOOL_CALL and not self._live_calls)
        self.flowing = live and not self._calls
        self.blind = self.flowing or self._calls or kind != TEXT
        return self.flowing

    def _delta(self, delta: Json) -> bool:
        if not self.blind and as_text(delta.get("text")).strip():
            self.flowing = self.blind = True
        return self.flowing


class FirstStream:
    """The caller's own attempt as server-sent events."""

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        self._codec = codec
        self._reader = codec.reader()
        self._fast_path = codec.fast_path()
        self._blank = self._fast_path.blank
        self._replay = replay
        self._gate = gate
        self._seen = 0
        self._sketch = Segment()

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the replay buffer may be shown now; `chunk` is already on it."""
        # The common case, events of flowing text, costs these looks and nothing else; a shell that
        # is in haste takes them itself.
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
            replay.sent = sent  # nothing is returned, so nothing was sent
            raise

    def _feed(self, chunk: bytes) -> bytes:
        raw = self._replay.raw
        end = len(raw)
        if not raw.endswith(self._blank):
            # Only in what is new: the event that ends an answer can be as long as the answer.
            new = max(self._seen, end - len(chunk) - len(self._blank) + 1)
            end = raw.rfind(self._blank, new) + len(self._blank)
        gate = self._gate
        if not (
            gate.blind
            and end > self._seen
            and self._fast_path.skips(raw, self._seen, end, flowing=gate.flowing)
        ):
            return self._look(chunk)
        self._seen = end
        if not gate.flowing:
            return b""
        shown = self._show(end, chunk)
        if end == len(raw):  # all that came so far was whole events, and is shown
            self._replay.flows = self._fast_path.flows
        return shown

    def _show(self, end: int, chunk: bytes) -> bytes:
        replay = self._replay
        start, replay.sent = replay.sent, end
        if end - start == len(chunk) and end == len(replay.raw):
            return chunk
        return bytes(memoryview(replay.raw)[start:end])

    def _look(self, chunk: bytes) -> bytes:
        """Read the new events one by one."""
        raw = self._replay.raw
        if not (raw.endswith(self._blank) or _sse.may_end(raw, self._seen, len(chunk))):
            return b""
        return self._read(_sse.frames(raw, self._seen))

    def _read(self, frames: Sequence[_sse.Frame]) -> bytes:
        shown = b""
        for frame in frames:
            start, self._seen = self._seen, frame.end
            events = () if frame.empty else self._reader.events(frame)
            for event in events:
                self._note(event)
            kinds = {event.get("type") for event in events}
            if self._gate.pass_on(events):
                shown += self._show(frame.end, b"")
            elif frame.empty or kinds == {"ping"}:
                # No content, and it keeps the caller's connection alive.
                shown += bytes(self._replay.raw[start : frame.end])
            if "message_stop" in kinds:
                raise Enough(shown, self._result())
            if "error" in kinds:
                raise Enough(shown)
        return shown

    def result_by_labels(self) -> AttemptResult | None:
        """The bytes have ended: say how an answer ended that gave a reason, and now is known to."""
        sketch = self._sketch
        if sketch.error or sketch.reason is None:
            return None
        if self._replay.flows is None and self._replay.raw[self._seen :].strip():
            return None
        ended = any(event.get("type") == "message_stop" for event in self._reader.eof())
        return self._result() if ended else None

    def frames(self) -> list[_sse.Frame]:
        """Return all events that have come, the last one too if it lacks only its blank line."""
        return _sse.frames(self._replay.raw, final=True)

    def _note(self, event: Json) -> None:
        if event["type"] in {"content_block_delta", "content_block_stop"}:
            self._sketch.events += 1
        else:
            self._sketch.add(event)

    def _result(self) -> AttemptResult:
        """Say how the answer ended, of what was looked at."""
        codec, sketch = self._codec, self._sketch
        stop = codec.stop_of(sketch.reason, closed=True)
        return AttemptResult(
            stop=Stop.END if stop is Stop.PAUSED else stop,
            raw=sketch.reason,
            id=codec.identity(sketch.message),
            usage=codec.read_usage(sketch.usage),
            call=codec.quick_calls(self._replay.raw, sketch),
            text=True,
        )
