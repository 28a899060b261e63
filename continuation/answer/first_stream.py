"""The caller's own attempt: bytes pass as they came, and only structure is looked at.

An answer that is not cut is never parsed beyond its few structural events. What may be shown is
decided by a small `Gate`, here as in every later attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Segment
from continuation.answer.wire_codec import WireCodec
from continuation.policy import Policy
from continuation.types import (
    AttemptResult,
    Enough,
    Json,
    ReplayBuffer,
    Stop,
    ToolCallState,
)
from continuation.wire import eventstream, sse
from continuation.wire.json_values import as_json, as_text

if TYPE_CHECKING:
    pass


class Gate:
    """Says of each event whether all that was read so far may be shown.

    Text flows, and so does what the provider runs itself (`live` of a codec). Anything else waits
    until one of them follows it, so that it can be taken back: a thinking block may be cut before
    its signature, a function call before its last brace. Once a call has begun, all waits for the
    end of the message.
    """

    def __init__(
        self,
        policy: Policy,
        live: frozenset[str] = frozenset(),
        *,
        hold_calls: bool = False,
        streamed: bool = True,
    ) -> None:
        """Begin. `hold_calls`: even if by policy calls may be shown as they come.

        `streamed`: the caller reads a stream; in a JSON body nothing is live.
        """
        self._live = live if streamed else frozenset[str]()
        self._runs = False
        """The open block is one of them; its end flows as well."""
        self._live_calls = streamed and policy.stream_tool_calls == "live" and not hold_calls
        self._completes = policy.truncated_tool_call == "complete"
        self._live_thinking = streamed and policy.stream_thinking == "live"
        self._calls = self._begun = False
        self.flowing = False
        """Deltas may be shown unseen."""
        self.blind = False
        """Deltas need not be looked at: they flow, or they wait whatever they are."""
        self.behind = False
        """What flows is a call's, and is to be shown some way behind: if it is cut there, what was
        not shown of it can be said anew."""

    def step(self, event: Json) -> bool:
        """Take the next event; `True`: it and all before it may be shown."""
        kind = event.get("type")
        if kind == "content_block_delta":
            if not self.blind and as_text(as_json(event.get("delta")).get("text")).strip():
                self.flowing = self.blind = True
            return self.flowing
        if kind == "content_block_start":
            block = as_text(as_json(event.get("content_block")).get("type"))
            call, thought = block == TOOL_CALL, block in THINKING
            self._runs = block in self._live
            live = (self._live_calls and call) or (self._live_thinking and thought) or self._runs
            self._calls, self._begun = self._calls or (call and not self._live_calls), True
            self.flowing = live and not self._calls
            self.behind = call and self.flowing and self._completes
            self.blind = not self.behind and (self.flowing or self._calls or block != TEXT)
            return self.flowing
        if kind == "content_block_stop":
            ran = self._runs and self.flowing
            self.flowing, self.blind = False, True
            return ran
        if kind == "message_delta" and as_json(event.get("delta")).get("stop_reason"):
            # Perhaps the end: what follows it, and is no text, waits to be seen with it.
            self.flowing, self.blind = False, self._calls
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        # An opening in the middle, of spliced streams, frees nothing that is held.
        return self.flowing or (kind == "message_start" and not self._begun)


BEHIND = 600
"""Characters that a live call which may be completed is shown behind."""
_ALIVE = 5.0
"""Seconds; where nothing else may be shown for so long, a ping is no longer held in its place."""


class FirstStream:
    """The caller's own attempt as server-sent events."""

    frames: Callable[..., list[sse.Frame]] = staticmethod(sse.frames)
    """Finds the whole events in bytes."""

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        self._codec = codec
        self._reader = codec.reader()
        self._fast_path = codec.fast_path()
        self._replay = replay
        self._gate = gate
        self._seen = 0
        self._quiet = -1, 0.0
        """How many bytes were out when the first ping was held behind them, and when."""
        self._sketch = Segment()
        self._behind: list[tuple[int, int]] = []
        """Where events of a call end that is shown some way behind, and how long it is there."""

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
        raw, gate, blank = self._replay.raw, self._gate, self._fast_path.blank
        end = len(raw)
        if not raw.endswith(blank):
            # Only in what is new: the event that ends an answer can be as long as the answer.
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
        self._seen = end
        if not gate.flowing:
            return b""
        if end == len(raw):  # all that came so far was whole events, and is shown
            self._replay.flows = self._fast_path.flows
        if end == len(raw) == self._replay.sent + len(chunk):
            self._replay.sent = end
            return chunk
        return self._show(end)

    def _show(self, end: int) -> bytes:
        start, self._replay.sent = self._replay.sent, end
        return bytes(memoryview(self._replay.raw)[start:end])

    def _read(self, frames: Sequence[sse.Frame]) -> bytes:
        """Read events one by one."""
        shown = b""
        for frame in frames:
            start, self._seen = self._seen, frame.end
            events = () if frame.empty else self._reader.events(frame)
            kinds, passes = set[object](), False
            for event in events:
                kinds.add(event["type"])
                if event["type"] in {"content_block_delta", "content_block_stop"}:
                    self._sketch.events += 1
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
                del self._replay.raw[start : frame.end]  # it goes out once
                self._seen = start
                return shown + alive + self._read(self.frames(self._replay.raw, start))
            if "message_stop" in kinds:
                raise Enough(shown, self._result())
            if "error" in kinds:
                raise Enough(shown)
        return shown

    def _lagging(self, end: int, events: Sequence[Json]) -> int:
        """Return up to where a call may be shown that has come up to `end`."""
        if any(event["type"] == "content_block_start" for event in events):
            self._behind.clear()
        told = [as_text(as_json(event.get("delta")).get("partial_json")) for event in events]
        length = sum(map(len, told)) + (self._behind[-1][1] if self._behind else 0)
        self._behind.append((end, length))
        while len(self._behind) > 1 and self._behind[1][1] + BEHIND <= length:
            self._behind.pop(0)
        return self._behind[0][0]

    def _is_quiet(self) -> bool:
        """Whether nothing but pings came for so long that the connection is to be kept alive."""
        (sent, since), now = self._quiet, self._replay.seconds()
        if sent == self._replay.sent and now - since < _ALIVE:
            return False
        self._quiet = self._replay.sent, now
        return sent == self._replay.sent

    def result_by_labels(self) -> AttemptResult | None:
        """The bytes have ended: say how an answer ended that gave a reason, and now is known to."""
        sketch = self._sketch
        if sketch.error or sketch.reason is None:
            return None
        if self._replay.flows is None and self._replay.raw[self._seen :].strip():
            return None
        ended = any(event.get("type") == "message_stop" for event in self._reader.eof())
        return self._result() if ended else None

    def _result(self) -> AttemptResult:
        """Say how the answer ended, of what was looked at."""
        codec, sketch = self._codec, self._sketch
        stop = codec.stop_of(sketch.reason, closed=True)
        return AttemptResult(
            stop=Stop.END if stop is Stop.PAUSED else stop,
            raw=sketch.reason,
            id=codec.identity(sketch.message),
            usage=codec.read_usage(sketch.usage),
            call=self._quick_calls(),
            text=True,
        )

    def _quick_calls(self) -> ToolCallState:
        return self._codec.quick_calls(self._replay.raw, self._sketch)


class FirstFramed(FirstStream):
    """The caller's own attempt as an AWS event stream."""

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
            return ToolCallState.CUT  # to be looked at in full
        return self._codec.quick_calls(bytearray(sse.encode("", last)), self._sketch)
