"""One turn as the caller gets it: attempts go in event by event, one answer comes out.

A `MessageBuilder` knows which attempt is under way, has its bytes read, and says how it stands.
While the caller's own attempt runs there is only a `FirstStream`: bytes pass as they came, only
structure is looked at, and an answer that is not cut is never parsed beyond its few structural
events. A `ClientStream`, which owns what the caller has been shown, and an `AttemptReader` are
built when that answer turns out to need more than its own bytes. What may be shown is decided by
one small `Gate` in both. How bytes become events and events bytes is the codec's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from continuation.answer.blocks import NATIVE, TEXT, THINKING, TOOL_CALL, Block, Segment, calls_in
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
    Json,
    Mode,
    ReplayBuffer,
    Resume,
    Stop,
    StopWord,
    StreamError,
    ToolCallState,
    Usage,
)
from continuation.wire import eventstream, sse
from continuation.wire.json_values import as_json, as_text, loads
from continuation.wire.request import word

if TYPE_CHECKING:
    from continuation.answer.call_completion import CallCompletion


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
        pieces = [as_text(as_json(event.get("delta")).get("partial_json")) for event in events]
        length = sum(map(len, pieces)) + (self._behind[-1][1] if self._behind else 0)
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


class AttemptReader:
    """Reads one response into a segment, and has the caller shown what the gate lets pass.

    The segment may have been begun in an earlier hop.
    """

    def __init__(self, reader: Reader, segment: Segment, gate: Gate, client: ClientStream) -> None:
        self.buffer = bytearray()
        """What has come and is not read yet: of a JSON body, all."""
        self._reader = reader
        self._segment = segment
        self._gate = gate
        self._client = client
        self._over = False
        """What may still come is not the answer's, or not worth reading."""
        self.steady: tuple[object, Block, bool] | None = None
        """The index of a block, the block, whether it is shown: more of it needs no look."""

    def collect(self, chunk: bytes) -> bytes:
        """Hold a JSON body until it is whole."""
        self.buffer += chunk
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Read the events of a stream as they come; `Enough`: the answer has ended."""
        raw, read, reader, client = chunk, 0, self._reader, self._client
        if self.buffer:
            self.buffer += chunk
            if not sse.may_end(self.buffer, 0, len(chunk)):
                return b""
            raw = bytes(self.buffer)
        if self.steady is not None:  # the common case: events that say nothing but more of it
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
        """Read the last event of a stream; `ended`: its bytes ended where they should."""
        if not self._over:
            for frame in sse.frames(self.buffer, final=True):
                self.see(() if frame.empty else self._reader.events(frame))
            if ended:
                self.see(self._reader.eof())

    def read_again(
        self, frames: Sequence[sse.Frame], sent: int, *, ended: bool
    ) -> tuple[int, list[Json]]:
        """Read a stream of which the caller has had `sent` bytes, as they came.

        Return how many events those were, and what was held that is only passed on: pings, and
        events that nobody knows.
        """
        shown, held = 0, list[Json]()
        for frame in frames:
            events = () if frame.empty else self._reader.events(frame)
            over = self.see(events, gated=False)
            if frame.end <= sent:  # not what the gate says now: what the caller has had
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
        """Take the next events; show what the gate lets pass. Return whether no more are of use.

        What is behind a text in its frame does not hold it up, for it is written anew. `gated`:
        unless it is not the gate that says what to show.
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
            elif block is not None:  # it waits, whatever it is
                self.steady = index, block, False
        return self._over


class MessageBuilder:
    """One model turn, built from one attempt after another."""

    def __init__(self, codec: WireCodec, policy: Policy) -> None:
        self._codec = codec
        self._policy = policy
        self._replay = ReplayBuffer()
        self._streamed = True
        """The caller reads a stream..."""
        self._framed = False
        """...of AWS's framing."""
        self._first: FirstStream | None = None
        self._resume = Resume(Mode.FIRST)
        self._client: ClientStream
        self._segment: Segment
        self._gate: Gate
        self._attempt: AttemptReader
        self._length_before = 0
        """Characters of visible text that the turn had before the attempt under way."""
        self._usage: Json = {}
        self._token: str | None = None
        """What the attempt under way was asked to go on by."""
        self._held_events: list[Json] = []
        """Pings of the caller's own attempt, and events that nobody knows, that were held."""
        self.lasting: Json = {}
        """What the ends of the attempts said that holds for the whole turn."""
        self.stop: str | None = None
        """The stop reason the caller got, once finished."""
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery replays: each attempt's content, and the prompt that asked for it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        """Begin to read the caller's own attempt; the shell appends its bytes to `replay`."""
        self._replay, self._streamed = replay, head.streamed
        if not head.streamed:
            return lambda chunk: b""  # a JSON body is held until it is whole
        replay.last = self._codec.last
        self._framed = head.framed
        kind = FirstFramed if head.framed else FirstStream
        self._first = kind(self._codec, replay, Gate(self._policy, self._codec.live))
        return self._first.feed

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read a later attempt."""
        self._resume = resume
        if resume.mode is not Mode.REPLACE:  # that one brings its own
            self._pass_on_held()
        if resume.mode is Mode.RECOVERY:
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
        """Begin another response of the provider's, where the caller's answer stands."""
        client, mode = self._client, self._resume.mode
        if mode is Mode.NATIVE_CONTINUATION:  # not another answer, but more of this one
            self._token = self._segment.token
            self._segment.reopen()
            self._segment.unary = unary
        else:
            self._token = None
            self._segment = Segment(unary=unary)
        client.join(self._segment, self._resume)
        if mode is not Mode.NATIVE_CONTINUATION:
            held = bool(client.joined.live_calls)
            live = self._codec.live
            self._gate = Gate(self._policy, live, hold_calls=held, streamed=client.streamed)
        self._attempt = AttemptReader(self._codec.reader(), self._segment, self._gate, client)

    def prepare_recovery(self) -> None:
        """Settle what the turn is gone on from, before it is asked to: what stands at its end."""
        if not self._client.joined.waits:  # else it may still be shown, if nothing comes
            self._client.leave()

    def revert(self) -> None:
        """Forget the attempt read last; the one before may still show what it holds."""
        self._client.revert()
        self._segment = self._client.joined.segment

    # --- the end of an attempt ---------------------------------------------------------------

    def take(self) -> bytes:
        """Return bytes that became ready for the caller when an attempt ended."""
        return self._client.take()

    def result_by_labels(self, error: BaseException | None = None) -> AttemptResult | None:
        """Say how the caller's own attempt ended, if its labels alone tell."""
        if self._first is not None:
            return self._first.result_by_labels()
        return self._codec.quick_body(self._replay.raw) if error is None else None

    def end(self, error: BaseException | None = None) -> AttemptResult:
        """The attempt's bytes have ended: say how it stands."""
        first, self._first = self._first, None
        passed_on = list[Json]()
        if self._resume.mode is Mode.FIRST:
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
                except ValueError:  # not JSON at all: nothing of ours
                    return AttemptResult(stop=Stop.END, opened=False)
        elif not self._segment.unary:
            self._attempt.finish(ended=error is None)
        else:
            with suppress(ValueError):  # half a body: as good as dropped
                self._read_body(self._attempt.buffer)
        client, stop = self._client, self._ending
        # A first answer that is whole may still go out as it came, all of it.
        whole = self._resume.mode is Mode.FIRST and stop not in {Stop.LENGTH, Stop.DROPPED}
        self._held_events = [] if whole else passed_on
        if (client.joined.adds or client.blocks) and not whole:
            client.flush_held()
        # The head of a recovery that broke off comes again, and that of one that pauses goes on:
        # half an anchor is no text.
        if not (stop in {Stop.DROPPED, Stop.PAUSED} and client.joined.waits):
            client.finish_text(ended=stop is Stop.END)
            client.place_annotations()
            self._remember()
        return self._result(stop, error)

    def _read_again(self, first: FirstStream, error: BaseException | None) -> list[Json]:
        """Read the caller's own attempt in full, of which the provider's bytes have gone out.

        Return what was held with the rest of it and is only passed on.
        """
        replay, segment = self._replay, self._segment
        frames = first.frames(replay.raw, final=True)
        events, passed_on = self._attempt.read_again(frames, replay.sent, ended=error is None)
        if not (events or segment.blocks or segment.reason):
            self._client.message.clear()  # its opening broke off: a later one is the caller's
        self._client.unmute({**segment.delta, "stop_reason": segment.reason}, events)
        return passed_on

    def _read_body(self, raw: bytes | bytearray) -> None:
        self._attempt.see(self._codec.to_events(as_json(loads(raw))))

    def _result(self, stop: Stop, error: BaseException | None) -> AttemptResult:
        segment, client, mode = self._segment, self._client, self._resume.mode
        text, calls = client.text, segment.calls
        opened = segment.events > 0
        counted = segment.reason is not None and bool(segment.usage)
        unknown, unseen = None, 0
        for block in segment.blocks:
            if unknown is None and not self._codec.knows(block.kind):
                unknown = f"a block of unknown type {block.kind!r}"
            if block.kind == TEXT and not block.begun:
                unseen += len(block.text)
        # A token that it was not asked to go on by itself.
        hops = segment.token not in {None, self._token}
        progress = len(text) > self._length_before or bool(calls) or hops
        if mode in {Mode.FIRST, Mode.REPLACE}:
            progress = True
        elif stop is Stop.END and mode is Mode.NATIVE_CONTINUATION:
            progress = True  # its end is the answer's, whatever it brought
        elif stop is Stop.END and mode is Mode.APPEND_TAIL:  # nothing was left, if it caught up
            progress = progress or not (client.joined.behind or self.half_call)
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
            # What breaks off at once may ask with the same token again.
            token=hops or (stop is Stop.DROPPED and segment.token is not None),
            length=len(text) + unseen,
            usage=self._codec.read_usage(segment.usage),
            unmetered_text=segment.generated if opened and not counted else None,
            error=error,
            args_verified=not calls or calls[-1].shows_cut or calls[-1].finished,
            only_call=len(calls) < 2,
        )

    @property
    def _ending(self) -> Stop:
        stop = self._codec.stop_of(self._segment.reason, closed=self._segment.stopped)
        # In the caller's own attempt a pause is the caller's to see, and to go on from.
        return Stop.END if stop is Stop.PAUSED and self._resume.mode is Mode.FIRST else stop

    # --- what a later request replays ---------------------------------------------------------

    def _remember(self) -> None:
        """Keep what later requests, and the end of the turn, need of the attempt read last."""
        mode, prompt, delta = self._resume.mode, self._resume.prompt, self._segment.delta
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

        Dropped: blank text, unsigned and trailing thinking, calls that have no result yet (no
        provider takes them), and what the format cannot send back.
        """
        blocks, carries = self._segment.blocks, self._codec.carries
        kept = [b for b in blocks if b.kind != TOOL_CALL and b.fit and carries(b, blocks)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return kept

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message would carry it."""
        return [self._codec.wire(block) for block in self._client.blocks or self._carried]

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text that the caller has, or gets."""
        return self._client.text

    @property
    def open_text(self) -> str:
        """The visible text that a recovery would go on from, what is still held with it."""
        tail, held = self._client.tail, self._client.held
        if held is None or not (tail and held.begun):
            return tail + held.text if held is not None else tail
        pieces = [d for d in held.deltas[held.shown :] if d.get("type") == "text_delta"]
        return tail + "".join([as_text(delta.get("text")) for delta in pieces])

    @property
    def half_call(self) -> bool:
        """Whether the caller has been shown, by policy, a call that is not whole."""
        for call in calls_in(self._client.blocks) if self._client.streamed else ():
            if call.broken or not call.done:
                return True
        return False

    @property
    def cut_call(self) -> tuple[str, int]:
        """Name of the call that was cut, and how many characters of its arguments arrived."""
        call = self._segment.calls[-1]
        return as_text(call.start.get("name")), len(call.arguments)

    @property
    def calls(self) -> list[tuple[str, int]]:
        """Name and length of each call that the caller gets."""
        calls = calls_in(self._client.blocks)
        return [
            (as_text(call.start.get("name")), len(self.arrived(call) or call.arguments))
            for call in calls
        ]

    @property
    def token(self) -> str | None:
        """The continuation token of the attempt read last."""
        return self._segment.token

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one."""
        seam = self._client.joined.seam
        return [(self._length_before, seam.verdict)] if seam is not None and seam.verdict else []

    def parses(self, schema: Json | None = None) -> bool:
        """Whether the visible text is whole JSON, and one that `schema` takes."""
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
        """Return an answer that begins anew after nothing was shown; this one stays as it is."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._replay, other._streamed = self._replay, self._streamed
        other._client, other._segment = self._client.fork(), Segment()
        other._usage = self._usage
        return other

    # --- a call that is completed ------------------------------------------------------------

    def completion(self, begun: CallCompletion | None) -> CallCompletion:
        """Return what has the call gone on with that was cut; `begun`: it may be that already."""
        # Hardly anybody asks for completed calls.
        from continuation.answer.call_completion import CallCompletion

        call = self._segment.calls[-1]
        return begun if begun is not None and begun.call is call else CallCompletion(self, call)

    def arrived(self, call: Block) -> str | None:
        """Return the argument text of a cut call up to the cut; `None`: it cannot be known."""
        return self._codec.arrived(call)

    def shown_of(self, call: Block) -> str:
        """Return the argument text of a call as far as the caller has been shown it."""
        if not call.shown:
            return ""
        shown = Block(call.start, call.deltas[: call.shown], free=call.free)
        return self._codec.arrived(shown) or ""

    def aside(self, text: str) -> MessageBuilder:
        """Return a builder for a text of its own, which goes on from `text`."""
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
    def last_arguments(self) -> str:
        """The argument text of the last call of the attempt read last; `""`: it has none."""
        calls = self._segment.calls
        return calls[-1].arguments if calls else ""

    @property
    def attempt_text(self) -> str:
        """The visible text of the attempt read last, as it came."""
        return self._segment.text

    def complete_call(self, call: Block, arguments: str) -> bool:
        """Make a cut call whole; `False`: the caller has seen what is not in `arguments`."""
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
        """Show what a call goes on with whose beginning the caller has been shown as it came."""
        if not call.begun or call.closed:
            return b""
        call.done = False  # its provider may have ended it where it broke off
        self._forget_unshown(call)
        call.deltas += self._codec.goes_on(call, text)
        self._client.show()
        return self._client.take()

    def ended(self) -> AttemptResult:
        """Say how the attempt stands, now that its call is whole."""
        return self._result(Stop.END, None)

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Show what is still held and fit to be seen, and of a cut call what `cut_call` says.

        `whole`: the last attempt ended as it should.
        """
        self._pass_on_held()
        self._client.finish_text(ended=self._ending is Stop.END)
        self._client.release(cut_call, ended=whole)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn: return what is left to be shown, and the terminal bytes."""
        codec, delta = self._codec, {**self._segment.delta, **self.lasting}
        if stop is StopWord.ENDED:
            delta["stop_reason"] = codec.called if calls_in(self._client.blocks) else codec.ended
        elif stop in {StopWord.TRUNCATED, StopWord.RAISED}:
            delta["stop_reason"] = codec.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self.stop = as_text(delta.get("stop_reason")) or None
        return self._client.end(delta, codec.write_usage(self._usage, usage))
