"""Building of the caller's answer: attempts go in event by event, one answer comes out.

A `MessageBuilder` knows which attempt is under way, has its bytes read, and returns its result.
During the caller's own attempt there is only a `FirstStream`: bytes are sent on as they came, only
their structure is read, and an answer that is not cut is never parsed beyond its few structural
events. A `ClientStream`, which owns what the caller has been shown, and an `AttemptReader` are
built when that answer turns out to need more than its own bytes. In both cases a small `Gate`
decides what may be shown. The codec translates bytes to events and events to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from continuation.answer.blocks import (
    NATIVE,
    REFUSAL,
    TEXT,
    THINKING,
    TOOL_CALL,
    Block,
    Segment,
    calls_in,
)
from continuation.answer.client_stream import ClientStream
from continuation.answer.wire_codec import Reader, WireCodec
from continuation.dialect import Feed
from continuation.policy import Policy
from continuation.seams.seam import Verdict
from continuation.seams.text import says_the_same
from continuation.types import (
    AttemptResult,
    Enough,
    Head,
    JoinPlan,
    Json,
    Mode,
    ReplayBuffer,
    Stop,
    StopWord,
    StreamError,
    ToolCallState,
    Usage,
)
from continuation.wire import eventstream, sse
from continuation.wire.json_values import as_json, as_text, dumps, loads
from continuation.wire.request import word

if TYPE_CHECKING:
    from continuation.answer.call_completion import CallCompletion


class Gate:
    """Decides at each event whether all that was read so far may be shown.

    Text is shown as it comes, and so are the items in a codec's `live`. Anything else is held until
    one of these follows it, so that it can still be dropped: a thinking block may be cut before its
    signature, a function call before its last brace. Once a call has begun, all is held until the
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
        """Begin. `live`: types of blocks shown as they come, if the answer is `streamed`.

        `hold_calls`: hold calls even if policy shows them live.
        """
        self._live = live if streamed else frozenset[str]()
        self._runs = False
        """The open block has one of these types; its end is shown as well."""
        self._live_calls = streamed and policy.stream_tool_calls == "live" and not hold_calls
        self._completes = policy.truncated_tool_call == "complete"
        self._live_thinking = streamed and policy.stream_thinking == "live"
        self._calls = self._begun = False
        self.flowing = False
        """Deltas may be shown without being read."""
        self.blind = False
        """Deltas need not be read: all of them are shown, or all are held."""
        self.behind = False
        """The deltas shown are of a call, whose last `BEHIND` characters are held: if it is cut,
        the model can write these again."""

    def step(self, event: Json) -> bool:
        """Take the next event; return whether it and all before it may be shown."""
        kind = event.get("type")
        if kind == "content_block_delta":
            if not self.blind and as_text(as_json(event.get("delta")).get("text")).strip():
                self.flowing = self.blind = True
            return self.flowing
        if kind == "content_block_start":
            block = as_text(as_json(event.get("content_block")).get("type"))
            call, thought = block == TOOL_CALL, block in THINKING
            self._runs = block in self._live
            # A call that came parsed may lack something without showing it.
            call_flows = self._live_calls and call and event.get("parsed") is not True
            live = call_flows or (self._live_thinking and thought) or self._runs
            self._calls, self._begun = self._calls or (call and not call_flows), True
            self.flowing = live and not self._calls
            self.behind = call and self.flowing and self._completes
            self.blind = not self.behind and (self.flowing or self._calls or block != TEXT)
            return self.flowing
        if kind == "content_block_stop":
            ran = self._runs and self.flowing
            self.flowing, self.blind = False, True
            return ran
        if kind == "message_delta" and as_json(event.get("delta")).get("stop_reason"):
            # This may be the end: what follows and is not text is held, to be read with it.
            self.flowing, self.blind = False, self._calls
        if kind in {"message_delta", "message_stop", "error"}:
            return False
        # A second `message_start`, in spliced streams, releases nothing that is held.
        return self.flowing or (kind == "message_start" and not self._begun)


BEHIND = 600
"""Characters held at the end of a live call that may be completed."""
_ALIVE = 5.0
"""Seconds; if nothing else may be shown for so long, a ping is sent ahead of what is held."""


class FirstStream:
    """The caller's own attempt as server-sent events."""

    frames: Callable[..., list[sse.Frame]] = staticmethod(sse.frames)
    """Returns the whole events in bytes."""

    def __init__(self, codec: WireCodec, replay: ReplayBuffer, gate: Gate) -> None:
        self._codec = codec
        self._reader = codec.reader()
        self._fast_path = codec.fast_path()
        self._replay = replay
        self._gate = gate
        self._seen = 0
        self._quiet = -1, 0.0
        """How many bytes were shown when a ping was first held after them, and when that was."""
        self._sketch = Segment()
        self._behind: list[tuple[int, int]] = []
        """Of a call that is shown with a delay: ends of events, and its characters up to there."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the replay buffer may be shown now; it ends with `chunk` already."""
        # The common case, events of text that is shown as it comes, costs these checks and nothing
        # else; the shells make them themselves first.
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
            # Search only in what is new: the event that ends an answer can be as long as it.
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
        if end == len(raw):  # all bytes so far are whole events, and shown
            self._replay.flows = self._fast_path.flows
        if end == len(raw) == self._replay.sent + len(chunk):
            self._replay.sent = end
            return chunk
        return self._show(end)

    def _show(self, end: int) -> bytes:
        start, self._replay.sent = self._replay.sent, end
        return bytes(memoryview(self._replay.raw)[start:end])

    def _read(self, frames: Sequence[sse.Frame]) -> bytes:
        """Read events one by one; return the bytes that may be shown now."""
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
                del self._replay.raw[start : frame.end]  # so that it is not sent twice
                self._seen = start
                return shown + alive + self._read(self.frames(self._replay.raw, start))
            if "message_stop" in kinds:
                raise Enough(shown, self._result())
            if "error" in kinds:
                raise Enough(shown)
        return shown

    def _lagging(self, end: int, events: Sequence[Json]) -> int:
        """Return the end of the bytes that may be shown of a call that has come up to `end`."""
        if any(event["type"] == "content_block_start" for event in events):
            self._behind.clear()
        pieces = [as_text(as_json(event.get("delta")).get("partial_json")) for event in events]
        length = sum(map(len, pieces)) + (self._behind[-1][1] if self._behind else 0)
        self._behind.append((end, length))
        while len(self._behind) > 1 and self._behind[1][1] + BEHIND <= length:
            self._behind.pop(0)
        return self._behind[0][0]

    def _is_quiet(self) -> bool:
        """Whether only pings came for so long that one is to be sent on, to keep the connection."""
        (sent, since), now = self._quiet, self._replay.seconds()
        if sent == self._replay.sent and now - since < _ALIVE:
            return False
        self._quiet = self._replay.sent, now
        return sent == self._replay.sent

    def result_by_labels(self) -> AttemptResult | None:
        """Return the result when the bytes have ended; `None`: the labels alone do not tell it."""
        sketch = self._sketch
        if sketch.error or sketch.reason is None:
            return None
        if self._replay.flows is None and self._replay.raw[self._seen :].strip():
            return None
        ended = any(event.get("type") == "message_stop" for event in self._reader.eof())
        return self._result() if ended else None

    def _result(self) -> AttemptResult:
        """Return the result that follows from the events read so far."""
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
            return ToolCallState.CUT  # the answer has to be read in full
        return self._codec.quick_calls(bytearray(sse.encode("", last)), self._sketch)


class AttemptReader:
    """Reads one response into a segment, which an earlier hop may have begun.

    It makes the client stream show what the gate allows.
    """

    def __init__(self, reader: Reader, segment: Segment, gate: Gate, client: ClientStream) -> None:
        self.buffer = bytearray()
        """Bytes that came and are not read yet; of a JSON body, all of them."""
        self._reader = reader
        self._segment = segment
        self._gate = gate
        self._client = client
        self._over = False
        """The answer has ended; bytes that may still come are ignored."""
        self.steady: tuple[object, Block, bool] | None = None
        """The index of a block, the block, and whether it is shown: its deltas need no check."""

    def collect(self, chunk: bytes) -> bytes:
        """Collect a JSON body, of which nothing is shown until it is whole; return `b""`."""
        self.buffer += chunk
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Read a stream's next bytes; return what is shown. Raises `Enough` at the answer's end."""
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
        """Read the last event of a stream; `ended`: its bytes ended without an error."""
        if not self._over:
            for frame in sse.frames(self.buffer, final=True):
                self.see(() if frame.empty else self._reader.events(frame))
            if ended:
                self.see(self._reader.eof())

    def read_again(
        self, frames: Sequence[sse.Frame], sent: int, *, ended: bool
    ) -> tuple[int, list[Json]]:
        """Read a stream again of which the caller has been sent the first `sent` bytes.

        Return how many events these were, and the events after them that are only passed on: pings
        and unknown ones.
        """
        shown, held = 0, list[Json]()
        for frame in frames:
            events = () if frame.empty else self._reader.events(frame)
            over = self.see(events, gated=False)
            if frame.end <= sent:  # shown whatever the gate says now: the caller has it
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
        """Take the next events; show what the gate allows. Return whether the answer has ended.

        A text is shown even if more follows it in its frame, for all is written anew. `gated`:
        `False` shows nothing, whatever the gate allows.
        """
        gate, segment, client = self._gate, self._segment, self._client
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
                self._over = segment.stopped or segment.error is not None
            elif block is not None:  # all its deltas are held
                self.steady = index, block, False
        return self._over


class MessageBuilder:
    """One model turn, built from one attempt after another."""

    def __init__(self, codec: WireCodec, policy: Policy) -> None:
        self._codec = codec
        self._policy = policy
        self._replay = ReplayBuffer()
        self._streamed = True
        """The caller reads a stream."""
        self._framed = False
        """The caller's stream has AWS's framing."""
        self._first: FirstStream | None = None
        self._plan = JoinPlan(Mode.FIRST)
        self._client: ClientStream
        self._segment: Segment
        self._gate: Gate
        self._attempt: AttemptReader
        self._length_before = 0
        """Characters of visible text that the turn had before the attempt under way."""
        self._usage: Json = {}
        self._token: str | None = None
        """The continuation token that the attempt under way was asked with, if any."""
        self._held_events: list[Json] = []
        """Held pings and unknown events of the caller's own attempt."""
        self.lasting: Json = {}
        """Fields from the attempts' ends that hold for the whole turn."""
        self.stop: str | None = None
        """The stop reason the caller got; `None` until the turn is finished."""
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery sends: each attempt's content, and the prompt that asked for it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        """Return the feed for the caller's own attempt; the shell adds its bytes to `replay`."""
        self._replay, self._streamed = replay, head.streamed
        if not head.streamed:
            return lambda chunk: b""  # a JSON body is held until it is whole
        replay.last = self._codec.last
        self._framed = head.framed
        kind = FirstFramed if head.framed else FirstStream
        self._first = kind(self._codec, replay, Gate(self._policy, self._codec.live))
        return self._first.feed

    def gather(self, head: Head) -> Feed:
        """Return the feed for the caller's own attempt if a stream is to become a body."""
        self._streamed = False
        self._client = ClientStream(
            self._codec.writer(), self._replay, streamed=False, served=self._codec.served
        )
        self._segment = Segment()
        return self.begin(JoinPlan(Mode.REPLACE), head)

    def gathered(self) -> bytes:
        """Return the body that the stream of the caller's own attempt amounts to, unchanged."""
        segment = self._segment
        writer = self._codec.writer()
        return dumps(writer.body(segment.message, segment.blocks, segment.delta, segment.usage))

    def begin(self, plan: JoinPlan, head: Head) -> Feed:
        """Return the feed for a later attempt."""
        self._plan = plan
        if plan.mode is not Mode.REPLACE:  # a replacement has pings of its own
            self._pass_on_held()
        if plan.mode is Mode.RECOVERY:
            self._client.leave()
        self._join(unary=not head.streamed)
        self._length_before = len(self._client.text)
        if head.framed:
            feed, unframed = self._attempt.feed, eventstream.Unframed()
            return lambda chunk: feed(unframed(chunk))
        return self._attempt.feed if head.streamed else self._attempt.collect

    def _pass_on_held(self) -> None:
        held, self._held_events = self._held_events, []
        for event in held:
            self._client.pass_on(event)

    def _join(self, *, unary: bool) -> None:
        """Begin another response of the provider, joined to the caller's answer so far."""
        client, mode = self._client, self._plan.mode
        if mode is Mode.NATIVE_CONTINUATION:  # the response continues the same answer
            self._token = self._segment.token
            self._segment.reopen()
            self._segment.unary = unary
        else:
            self._token = None
            self._segment = Segment(unary=unary)
        client.join(self._segment, self._plan)
        if mode is not Mode.NATIVE_CONTINUATION:
            held = bool(client.joined.live_calls)
            live = self._codec.live
            self._gate = Gate(self._policy, live, hold_calls=held, streamed=client.streamed)
        self._attempt = AttemptReader(self._codec.reader(), self._segment, self._gate, client)

    def prepare_recovery(self) -> None:
        """Settle the end of the text so far, which the next request will ask to continue."""
        if not self._client.joined.waits:  # else held text may still be shown, if no more comes
            self._client.leave()

    def revert(self) -> None:
        """Forget the attempt read last; what the one before holds may still be shown."""
        self._client.revert()
        self._segment = self._client.joined.segment

    # --- the end of an attempt ---------------------------------------------------------------

    def take(self) -> bytes:
        """Return the bytes that became ready for the caller when an attempt ended."""
        return self._client.take()

    def result_by_labels(self, error: BaseException | None = None) -> AttemptResult | None:
        """Return how the caller's own attempt ended; `None`: its labels alone do not tell."""
        if self._first is not None:
            return self._first.result_by_labels()
        return self._codec.quick_body(self._replay.raw) if error is None else None

    def end(self, error: BaseException | None = None) -> AttemptResult:
        """Read the end of the attempt's bytes, and return its result; `error` broke them off."""
        first, self._first = self._first, None
        passed_on = list[Json]()
        if self._plan.mode is Mode.FIRST:
            codec, muted = self._codec, first is not None
            self._client = ClientStream(
                codec.writer(),
                self._replay,
                streamed=self._streamed,
                muted=muted,
                framed=self._framed,
                served=codec.served,
            )
            self._join(unary=not self._streamed)
            if first is not None:
                passed_on = self._read_again(first, error)
            elif error is not None:
                return AttemptResult(stop=Stop.DROPPED, opened=False, error=error)
            else:
                try:
                    self._read_body(self._replay.raw)
                except ValueError:  # not JSON: the answer is passed on as it is
                    return AttemptResult(stop=Stop.END, opened=False)
        elif not self._segment.unary:
            self._attempt.finish(ended=error is None)
        else:
            try:
                self._read_body(self._attempt.buffer)
            except ValueError:  # half a body, as good as dropped; or a stream under another type
                self._attempt.finish(ended=error is None)
        client, stop = self._client, self._ending
        # A first answer that is whole may still go out as it came, all of it.
        whole = self._plan.mode is Mode.FIRST and stop not in {Stop.LENGTH, Stop.DROPPED}
        self._held_events = [] if whole else passed_on
        if (client.joined.adds or client.blocks) and not whole:
            client.flush_held()
        # If the seam is not decided yet, its text stays held: half an anchor is not text. After a
        # drop the next attempt repeats it, after a pause the next hop continues it.
        if not (stop in {Stop.DROPPED, Stop.PAUSED} and client.joined.waits):
            client.finish_text(ended=stop is Stop.END, refused=stop is Stop.REFUSED)
            client.place_annotations()
            self._remember()
        return self._result(stop, error)

    def _read_again(self, first: FirstStream, error: BaseException | None) -> list[Json]:
        """Read the caller's own attempt in full, some of whose bytes have been sent on already.

        Return the held events that are only passed on.
        """
        replay, segment = self._replay, self._segment
        frames = first.frames(replay.raw, final=True)
        events, passed_on = self._attempt.read_again(frames, replay.sent, ended=error is None)
        if not (events or segment.blocks or segment.reason):
            self._client.message.clear()  # only an opening came: the caller gets a later one
        self._client.unmute({**segment.delta, "stop_reason": segment.reason}, events)
        return passed_on

    def _read_body(self, raw: bytes | bytearray) -> None:
        self._attempt.see(self._codec.to_events(as_json(loads(raw))))

    def _result(self, stop: Stop, error: BaseException | None) -> AttemptResult:
        segment, client, mode = self._segment, self._client, self._plan.mode
        text, calls = client.text, segment.calls
        opened = segment.events > 0
        counted = segment.reason is not None and bool(segment.usage)
        unknown, unseen = None, 0
        for block in segment.blocks:
            if unknown is None and not self._codec.knows(block.kind):
                unknown = f"a block of unknown type {block.kind!r}"
            if block.kind == TEXT and not block.begun:
                unseen += len(block.text)
        # A new token: not the one with which the attempt was asked.
        hops = segment.token not in {None, self._token}
        progress = len(text) > self._length_before or bool(calls) or hops
        if mode in {Mode.FIRST, Mode.REPLACE}:
            progress = True
        elif stop is Stop.END and mode is Mode.NATIVE_CONTINUATION:
            progress = True  # its end is the answer's end, even if it brought no text
        elif stop is Stop.END and mode is Mode.APPEND_TAIL:  # if it caught up, it is complete
            progress = progress or not (client.joined.behind or self.half_call)
        anchor = (self._plan.anchor or "").rstrip()
        seam, again = client.joined.seam, False
        if mode is Mode.RECOVERY and stop is Stop.LENGTH:
            again = seam is not None and seam.restarted
            again = again or says_the_same(text, self._length_before)
        if error is None and segment.error is not None:
            kind = word(segment.error.get("type")) or "error event"
            error = StreamError(kind, lasting=segment.error.get("lasting") is True)
        return AttemptResult(
            stop=stop,
            raw=segment.reason,
            id=self._codec.identity(segment.message),
            text=bool(text.strip() or client.held),
            call=segment.call_state(ended=stop is Stop.END),
            shown=client.streamed and bool(client.blocks),
            opened=opened,
            closed=segment.stopped,
            made_progress=progress,
            stalled=again,
            not_resumable=unknown,
            # After a drop the same token may be used again.
            token=hops or (stop is Stop.DROPPED and segment.token is not None),
            length=len(text) + unseen,
            usage=self._codec.read_usage(segment.usage),
            unmetered_text=segment.generated if opened and not counted else None,
            error=error,
            repeated=bool(anchor) and not progress and segment.text.rstrip().endswith(anchor),
            args_verified=not calls or calls[-1].shows_cut or calls[-1].finished,
            only_call=len(calls) < 2,
        )

    @property
    def _ending(self) -> Stop:
        stop = self._codec.stop_of(self._segment.reason, closed=self._segment.stopped)
        if stop is Stop.END and self._plan.mode is Mode.RECOVERY:
            # Chat and Responses write a refusal in a field of its own, under a normal reason.
            refused = any(block.kind == REFUSAL for block in self._segment.blocks)
            return Stop.REFUSED if refused else stop
        # A pause of the caller's own attempt is shown to the caller, who may continue from it.
        return Stop.END if stop is Stop.PAUSED and self._plan.mode is Mode.FIRST else stop

    # --- what a later request replays ---------------------------------------------------------

    def _remember(self) -> None:
        """Keep what later requests and the end of the turn need from the attempt read last."""
        mode, prompt, delta = self._plan.mode, self._plan.prompt, self._segment.delta
        if mode is Mode.REPLACE:
            self._usage = {**self._usage, **self._segment.usage}
        else:
            self._usage = self._codec.add_usage(self._usage, self._segment.usage)
        for key in self._codec.lasting:
            if delta.get(key):
                self.lasting[key] = delta[key]
        own = mode in {Mode.FIRST, Mode.REPLACE} or (mode is Mode.RECOVERY and prompt is not None)
        blocks = self._carried
        if not own:
            blocks = [block for block in self._client.blocks if block.kind != TOOL_CALL]
        content = [self._codec.wire(block) for block in blocks]
        if mode is Mode.RECOVERY and own:
            self.pairs.append((content, prompt))
        else:
            self.pairs = [(content, None)]

    @property
    def _carried(self) -> list[Block]:
        """The attempt's blocks that a later request may carry.

        Left out are blank text, unsigned and trailing thinking, calls without a result (which no
        provider accepts), and what the format cannot send back.
        """
        blocks, carries = self._segment.blocks, self._codec.carries
        kept = [b for b in blocks if b.kind != TOOL_CALL and b.fit and carries(b, blocks)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return kept

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as the content of one assistant message."""
        return [self._codec.wire(block) for block in self._client.blocks or self._carried]

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text that the caller has or will get."""
        return self._client.text

    @property
    def holds(self) -> bool:
        """Whether something of the attempt under way has arrived that is not shown yet."""
        if self._plan.mode is Mode.FIRST:
            return self._replay.sent < len(self._replay.raw)
        return self._gate.blind and not self._gate.flowing

    @property
    def open_text(self) -> str:
        """The visible text that a recovery would continue, held text included."""
        tail, held = self._client.tail, self._client.held
        if held is None or not (tail and held.begun):
            return tail + held.text if held is not None else tail
        pieces = [d for d in held.deltas[held.shown :] if d.get("type") == "text_delta"]
        return tail + "".join([as_text(delta.get("text")) for delta in pieces])

    @property
    def half_call(self) -> bool:
        """Whether the caller has been shown, by policy, a part of a call that is not whole."""
        for call in calls_in(self._client.blocks) if self._client.streamed else ():
            if call.broken or not call.done:
                return True
        return False

    @property
    def cut_call(self) -> tuple[str, int]:
        """The name of the attempt's last call, and how many characters of its arguments arrived."""
        call = self._segment.calls[-1]
        return as_text(call.start.get("name")), len(self.arrived(call) or call.arguments)

    @property
    def calls(self) -> list[tuple[str, int]]:
        """The name of each whole call in the caller's answer, and how long its arguments are."""
        calls = [call for call in calls_in(self._client.blocks) if not call.broken]
        return [
            (as_text(call.start.get("name")), len(self.arrived(call) or call.arguments))
            for call in calls
        ]

    @property
    def token(self) -> str | None:
        """The continuation token of the attempt read last; `None`: it has none."""
        return self._segment.token

    def seams(self) -> list[tuple[int, Verdict]]:
        """Return the last attempt's seam with the characters of text before it; `[]`: no seam."""
        seam = self._client.joined.seam
        return [(self._length_before, seam.verdict)] if seam is not None and seam.verdict else []

    def parses(self, schema: Json | None = None) -> bool:
        """Whether the visible text is whole JSON that `schema`, if given, accepts."""
        held = self._client.held
        try:
            document = loads(self.text + (held.text if held is not None else ""))
        except ValueError:
            return False
        if schema is None:
            return True
        from continuation.answer.call_completion import mistake

        return mistake(document, schema) is None

    # --- the end of the turn -----------------------------------------------------------------

    def fork(self) -> MessageBuilder:
        """Return a builder for an answer that begins again; this one stays as it is."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._replay, other._streamed = self._replay, self._streamed
        other._client, other._segment = self._client.fork(), Segment()
        other._usage = self._usage
        return other

    # --- a call that is completed ------------------------------------------------------------

    def completion(self, begun: CallCompletion | None) -> CallCompletion:
        """Return the completion of the call that was cut: `begun`, if that is of the same call."""
        # Imported here: few programs ask for completed calls.
        from continuation.answer.call_completion import CallCompletion

        call = self._segment.calls[-1]
        return begun if begun is not None and begun.call is call else CallCompletion(self, call)

    def arrived(self, call: Block) -> str | None:
        """Return the argument text of a cut call up to the cut; `None`: it is unknown."""
        return self._codec.arrived(call)

    def shown_of(self, call: Block) -> str:
        """Return the argument text of a call that the caller has been shown; `""`: none of it."""
        if not call.shown:
            return ""
        shown = Block(call.start, call.deltas[: call.shown], free=call.free)
        return self._codec.arrived(shown) or ""

    def aside(self, text: str) -> MessageBuilder:
        """Return a separate builder for a text that begins with `text`, to be continued."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._streamed = False
        other._client = ClientStream(self._codec.writer(), other._replay, streamed=False)
        other._client.begin_text(text)
        other._segment = Segment()
        return other

    @property
    def before(self) -> str:
        """The visible text that the turn had before the attempt read last."""
        return self._client.text[: self._length_before]

    @property
    def last_arguments(self) -> str | None:
        """The argument text of the last call in the attempt read last; `None`: it has no call."""
        calls = self._segment.calls
        return self._codec.arguments(calls[-1]) if calls else None

    @property
    def attempt_text(self) -> str:
        """The visible text of the attempt read last, before any seam."""
        return self._segment.text

    def complete_call(self, call: Block, arguments: str) -> bool:
        """Make a cut call whole; `False`: `arguments` do not begin with what has been shown."""
        arrived = self.arrived(call) or ""
        if call.closed:
            return False
        if not arguments.startswith(arrived):
            arrived = self.shown_of(call)
            if not arguments.startswith(arrived):
                return False
            self._forget_unshown(call)
        call.deltas += self._codec.rest_of(call, arrived, arguments)
        call.done = call.finished = True
        segment = self._segment
        segment.reason, segment.stopped = self._codec.called, True
        segment.delta = {"stop_reason": segment.reason}
        return True

    @staticmethod
    def _forget_unshown(call: Block) -> None:
        del call.deltas[call.shown :]
        call.forget()

    def go_on(self, call: Block, text: str) -> bytes:
        """Add `text` to the string that a live call broke off in; return the bytes to show."""
        if not call.begun or call.closed:
            return b""
        call.done = False  # the provider may have ended the block where it broke off
        self._forget_unshown(call)
        call.deltas += self._codec.goes_on(call, text)
        self._client.show()
        return self._client.take()

    def ended(self) -> AttemptResult:
        """Return the attempt's result, now that its call is whole."""
        return self._result(Stop.END, None)

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Show what is still held and fit to be shown; `whole`: the last attempt ended normally.

        `cut_call`: the policy `truncated_tool_call` for a cut call; `None`: it is left out.
        """
        self._pass_on_held()
        stop = self._ending
        self._client.finish_text(ended=stop is Stop.END, refused=stop is Stop.REFUSED)
        self._client.release(cut_call, ended=whole)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn: return the remaining bytes with the terminal event, or the JSON body."""
        codec, delta = self._codec, {**self._segment.delta, **self.lasting}
        if stop is StopWord.ENDED:
            delta["stop_reason"] = codec.called if calls_in(self._client.blocks) else codec.ended
        elif stop in {StopWord.TRUNCATED, StopWord.RAISED}:
            delta["stop_reason"] = codec.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self.stop = as_text(delta.get("stop_reason")) or None
        return self._client.end(delta, codec.write_usage(self._usage, usage))
