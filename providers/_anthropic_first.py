"""The first attempt, read at almost no cost: bytes pass as they came, structure is looked at.

An answer that is not cut is never parsed beyond its few structural events. What may be shown is
decided by one small `Gate`, which also decides it when a cut answer is read again event by event.
"""

from __future__ import annotations

import json
import re

from continuation.dialect import Settle
from continuation.policy import Policy
from continuation.providers import _sse
from continuation.providers._anthropic_blocks import (
    CALL,
    THINKING,
    Segment,
    as_json,
    as_text,
    loads,
    read_usage,
)
from continuation.types import CallState, Ending, Enough, Json, Stop, Tape, Usage

STOPS = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.WINDOW,
    "refusal": Stop.REFUSED,
}
"""Stop reasons that mean something to the engine; any other one is an ordinary end."""


def stop_of(reason: str | None, *, closed: bool) -> Stop:
    """Read a stop reason; without one an answer has ended only if its terminal event came."""
    if reason is None:
        return Stop.END if closed else Stop.DROPPED
    return STOPS.get(reason, Stop.END)


class Gate:
    """Says of each event whether all that was read so far may be shown.

    Text flows. Anything else waits until visible text follows it, so that it can be taken back:
    a thinking block may be cut before its signature, a function call before its last brace. Once
    a call has begun, all waits for the end of the message.
    """

    def __init__(self, policy: Policy) -> None:
        self._live_calls = policy.tool_stream == "live"
        self._live_thinking = policy.thinking_stream == "live"
        self._calls = False
        self.flowing = False
        """Deltas may be shown unseen."""
        self.blind = False
        """Deltas need not be looked at: they flow, or they wait whatever they are."""

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
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        return kind == "message_start" or self.flowing

    def _start(self, kind: str) -> bool:
        live = (self._live_calls and kind == CALL) or (self._live_thinking and kind in THINKING)
        self._calls = self._calls or (kind == CALL and not self._live_calls)
        self.flowing = live and not self._calls
        self.blind = self.flowing or self._calls or kind != "text"
        return self.flowing

    def _delta(self, delta: Json) -> bool:
        if not self.blind and as_text(delta.get("text")).strip():
            self.flowing = self.blind = True
        return self.flowing


# A raw line break cannot stand inside JSON, so counting these is exact for LF-framed events.
_DELTA = b"event: content_block_delta\n"
_BLANK = b"\n\n"
_LF, _CR = b"\n\r"


class FirstStream:
    """The caller's own attempt as server-sent events."""

    def __init__(self, tape: Tape, gate: Gate, settle: Settle) -> None:
        self._tape = tape
        self._gate = gate
        self._settle = settle
        self._seen = 0
        self._level = False
        """Text flows and all that came so far was whole events, and is shown."""
        self._sketch = Segment()
        self.settled: Ending | None = None
        """How the answer ended, once it may go out as it came; all further bytes pass."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the tape may be shown now; `chunk` is already on it."""
        # The common case, one event of flowing text, costs these looks and nothing else.
        if (
            self._level
            and chunk.startswith(_DELTA)
            and chunk.endswith(_BLANK)
            and _LF not in chunk[len(_DELTA) : -len(_BLANK)]
            and _CR not in chunk
        ):
            self._tape.sent = len(self._tape.raw)
            return chunk
        if self._level:
            self._seen, self._level = self._tape.sent, False
        return self._feed(chunk)

    def _feed(self, chunk: bytes) -> bytes:
        raw = self._tape.raw
        if self.settled is not None:
            self._tape.sent = len(raw)
            return chunk
        end = len(raw)
        if not raw.endswith(_BLANK):
            end = raw.rfind(_BLANK, self._seen) + 2
        if not (self._gate.blind and end > self._seen and self._only_deltas(end)):
            return self._look(chunk)
        self._seen = end
        if not self._gate.flowing:
            return b""
        shown = self._show(end, chunk)
        self._level = end == len(raw)
        return shown

    def _only_deltas(self, end: int) -> bool:
        raw, seen = self._tape.raw, self._seen
        deltas = raw.count(_DELTA, seen, end)
        return deltas == raw.count(_BLANK, seen, end) and raw.find(b"\r", seen, end) < 0

    def _show(self, end: int, chunk: bytes) -> bytes:
        tape = self._tape
        start, tape.sent = tape.sent, end
        if end - start == len(chunk) and end == len(tape.raw):
            return chunk
        return bytes(memoryview(tape.raw)[start:end])

    def _look(self, chunk: bytes) -> bytes:
        """Read the new events one by one."""
        shown = b""
        for frame in _sse.frames(self._tape.raw, self._seen):
            start, self._seen = self._seen, frame.end
            event = self._event(frame)
            if self._gate.step(event):
                shown += self._show(frame.end, b"")
            elif frame.empty or event.get("type") == "ping":
                # Neither is content, and both keep the caller's connection alive.
                shown += bytes(self._tape.raw[start : frame.end])
            if event.get("type") == "message_stop":
                return shown + self._end(shown)
            if event.get("type") == "error":
                raise Enough(shown)
        return shown

    def _event(self, frame: _sse.Frame) -> Json:
        try:
            event = as_json(loads(frame.data)) if frame.data else {}
        except ValueError:
            event = {}
        event.setdefault("type", frame.name)
        if event["type"] == "content_block_delta":
            return event
        if event["type"] == "content_block_stop":
            self._sketch.events += 1
        else:
            self._sketch.add(event)
        return event

    def _end(self, shown: bytes) -> bytes:
        sketch = self._sketch
        quick = Ending(
            stop=stop_of(sketch.reason, closed=True),
            raw=sketch.reason,
            usage=read_usage(sketch.usage),
            call=self._calls(),
            text=True,
        )
        if not self._settle(quick):
            raise Enough(shown)
        self.settled = quick
        return self._show(len(self._tape.raw), b"")

    def _calls(self) -> CallState:
        """Look at the last delta only: arguments that do not end in a brace are not whole."""
        if not self._sketch.calls:
            return CallState.NONE
        raw = self._tape.raw
        at = raw.rfind(b'"partial_json"')
        tail = bytes(raw[at : raw.find(b"\n", at)]) if at >= 0 else b""
        found = re.search(rb'"partial_json"\s*:\s*"((?:[^"\\]|\\.)*)"', tail)
        if found is None or found[1].rstrip().endswith(b"}") or not found[1]:
            return CallState.WHOLE
        return CallState.CUT


_REASON = re.compile(rb'"stop_reason"\s*:\s*(?:"([^"\\]*)"|null)')
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_WINDOW = 4096
_JSON = json.JSONDecoder()


def quick_body(body: bytes | bytearray) -> Ending | None:
    """Read how a JSON answer ended without parsing it; `None` when that needs a full look."""
    reasons = {match[1] for match in _REASON.finditer(body)}
    if len(reasons) != 1:
        return None
    reason = (reasons.pop() or b"").decode() or None
    return Ending(
        stop=stop_of(reason, closed=True), raw=reason, usage=_quick_usage(body), text=True
    )


def _quick_usage(body: bytes | bytearray) -> Usage | None:
    at, found = len(body), None
    while found is None:  # the last one counts, and the message's own is near the end
        at = body.rfind(b'"usage"', 0, at)
        if at < 0:
            return None
        found = _USAGE.match(body, at)
    text = bytes(body[found.end() : found.end() + _WINDOW]).decode("utf-8", "replace")
    try:
        usage, _ = _JSON.raw_decode(text)
    except ValueError:
        return None
    return read_usage(as_json(usage))
