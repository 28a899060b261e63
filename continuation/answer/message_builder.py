"""One turn as the caller gets it: attempts go in event by event, one answer comes out.

A `MessageBuilder` knows which attempt is under way, has its bytes read, and says how it stands.
While the caller's own attempt runs there is only a `FirstStream`; a `ClientStream`, which owns
what the caller has been shown, and an `AttemptReader` are built when that answer turns out to need
more than its own bytes. How bytes become events and events bytes is the codec's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from continuation.answer.blocks import NATIVE, TEXT, THINKING, TOOL_CALL, Block, Segment
from continuation.answer.client_stream import ClientStream, Joined
from continuation.answer.first_stream import FirstStream, Gate
from continuation.answer.wire_codec import Reader, WireCodec
from continuation.dialect import Feed
from continuation.policy import Policy
from continuation.seams.seam import Verdict
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
    Usage,
)
from continuation.wire import sse
from continuation.wire.json_values import as_json, as_text, loads
from continuation.wire.request import word


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
        self.flowing: tuple[object, Block] | None = None
        """The index of the text that flows, and its block: more of it needs no look."""

    def collect(self, chunk: bytes) -> bytes:
        """Hold a JSON body until it is whole."""
        self.buffer += chunk
        return b""

    def feed(self, chunk: bytes) -> bytes:
        """Read the events of a stream as they come; `Enough`: no more of them is of use."""
        self.buffer += chunk
        if not sse.may_end(self.buffer, 0, len(chunk)):
            return b""
        read, client, events = 0, self._client, self._reader.events
        for frame in sse.frames(self.buffer):
            read = frame.end
            if frame.empty:
                client.comment()
            elif self.see(events(frame)):
                raise Enough(client.take())
        del self.buffer[:read]
        return client.take()

    def finish(self, *, ended: bool) -> None:
        """Read the last event of a stream; `ended`: its bytes ended where they should."""
        if self._over:
            return
        for frame in sse.frames(self.buffer, final=True):
            self.see(() if frame.empty else self._reader.events(frame))
        if ended:
            self.see(self._reader.eof())

    def read_again(self, frames: Sequence[sse.Frame], sent: int, *, ended: bool) -> None:
        """Read a stream of which the caller has had `sent` bytes, as they came."""
        for frame in frames:
            for event in () if frame.empty else self._reader.events(frame):
                self._take(event)
            if frame.end <= sent:  # not what the gate says now: what the caller has had
                self._client.show()
            if self._over:
                return
        if ended:
            self.see(self._reader.eof())

    def see(self, events: Iterable[Json]) -> bool:
        """Take the next events; show what the gate lets pass. Return whether no more are of use.

        What is behind a text in its frame does not hold it up, for it is written anew.
        """
        over, gate = False, self._gate
        for event in events:
            kind = event.get("type")
            if kind not in NATIVE:
                self._take(event)
                continue
            if (flowing := self.flowing) is not None and event.get("index") == flowing[0]:
                delta = as_json(event.get("delta"))
                text = delta.get("text")
                if len(delta) == 2 and type(text) is str and delta.get("type") == "text_delta":
                    self._segment.events += 1
                    over = self._client.more(flowing[1], delta, text)
                    continue
            self.flowing = None
            if kind == "content_block_delta" and gate.blind and not gate.flowing:
                self._segment.add(event)  # it waits, whatever it is
                continue
            if self._take(event):
                self._client.show()
                block, index = self._client.run, event.get("index")
                if block is not None and gate.flowing and self._segment.at(index) is block:
                    self.flowing = index, block
            over = self._over
        return over

    def _take(self, event: Json) -> bool:
        """Take the next event; return whether all that came may be shown."""
        self._segment.add(event)
        kind = event.get("type")
        if kind not in NATIVE:
            self._client.pass_on(event)
        elif kind == "message_start":
            self._client.begin(as_json(event.get("message")))
        else:
            return self._gate.step(event)
        return False

    @property
    def _over(self) -> bool:
        """Whether what may still come is not the answer's, or not worth reading."""
        segment = self._segment
        stalled = self._client.joined.splicer.stalled
        return stalled or segment.stopped or segment.error is not None


class MessageBuilder:
    """One model turn, built from one attempt after another."""

    def __init__(self, codec: WireCodec, policy: Policy) -> None:
        self._codec = codec
        self._policy = policy
        self._replay = ReplayBuffer()
        self._streamed = True
        """The caller reads a stream."""
        self._first: FirstStream | None = None
        self._resume = Resume(Mode.FIRST)
        self._client: ClientStream
        self._segment: Segment
        self._attempt: AttemptReader
        self._earlier: Joined
        """What was under way before the attempt under way."""
        self._length_before = 0
        """Characters of visible text that the turn had before the attempt under way."""
        self._usage: Json = {}
        self._lasting: Json = {}
        self._stop: str | None = None
        self._token: str | None = None
        """What the attempt under way was asked to go on by."""
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery replays: each attempt's content, and the prompt that asked for it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, replay: ReplayBuffer) -> Feed:
        """Begin to read the caller's own attempt; the shell appends its bytes to `replay`."""
        self._replay, self._streamed = replay, head.streamed
        if not head.streamed:
            return lambda chunk: b""  # a JSON body is held until it is whole
        replay.last = self._codec.last
        self._first = FirstStream(self._codec, replay, Gate(self._policy))
        return self._first.feed

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read a later attempt."""
        client = self._client
        self._earlier = client.joined
        self._resume = resume
        if resume.mode is Mode.NATIVE_CONTINUATION:  # not another answer, but more of this one
            client.hop()
            self._token = self._segment.token
            self._segment.reopen()
            self._segment.unary = not head.streamed
        else:
            if resume.mode is Mode.RECOVERY:
                client.leave()
            self._token = None
            self._join(resume, unary=not head.streamed)
        self._length_before = len(client.text)
        self._attempt = self._new_reader()
        return self._attempt.feed if head.streamed else self._attempt.collect

    def _join(self, resume: Resume | None = None, *, unary: bool) -> None:
        """Begin another answer of the provider's, where the caller's stands."""
        self._segment = Segment(unary=unary)
        self._client.join(self._segment, resume)
        held = bool(self._client.joined.live_calls)
        self._gate = Gate(self._policy, hold_calls=held, streamed=self._client.streamed)

    def _new_reader(self) -> AttemptReader:
        return AttemptReader(self._codec.reader(), self._segment, self._gate, self._client)

    def prepare_recovery(self) -> None:
        """Settle what the turn is gone on from, before it is asked to: what stands at its end."""
        if not self._client.joined.splicer.waits:  # else it may still be shown, if nothing comes
            self._client.leave()

    def revert(self) -> None:
        """Forget the attempt read last; the one before may still show what it holds."""
        self._client.joined = self._earlier
        self._segment = self._earlier.segment
        self._client.forget_seam()

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
        if self._resume.mode is Mode.FIRST:
            self._client = ClientStream(self._codec.writer(), streamed=self._streamed)
            self._client.replay = self._replay
            self._join(unary=not self._streamed)
            self._attempt = self._new_reader()
            first, self._first = self._first, None
            if first is not None:
                self._read_first(first, error)
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
        if (client.joined.adds or client.blocks) and not whole:
            client.flush_held()
        # The head of a recovery that broke off comes again, and that of one that pauses goes on:
        # half an anchor is no text.
        if not (stop in {Stop.DROPPED, Stop.PAUSED} and client.joined.splicer.waits):
            client.finish_text(ended=stop is Stop.END)
            client.place_asides()
            self._remember()
        return self._result(stop, error)

    def _read_first(self, first: FirstStream, error: BaseException | None) -> None:
        """Read the caller's own attempt in full, of which the provider's bytes have gone out."""
        self._client.mute()
        frames, sent = first.frames(), self._replay.sent
        self._attempt.read_again(frames, sent, ended=error is None)
        events = sum(not frame.empty for frame in frames if frame.end <= sent)
        segment = self._segment
        if not (events or segment.blocks or segment.reason):
            self._client.message.clear()  # its opening broke off: a later one is the caller's
        self._client.unmute({**segment.delta, "stop_reason": segment.reason}, events)

    def _read_body(self, raw: bytes | bytearray) -> None:
        self._attempt.see(self._codec.to_events(as_json(loads(raw))))

    def _result(self, stop: Stop, error: BaseException | None) -> AttemptResult:
        segment, client = self._segment, self._client
        text, calls = client.text, segment.calls
        opened = segment.events > 0
        counted = segment.reason is not None and bool(segment.usage)
        kinds = (block.kind for block in segment.blocks)
        unknown = next((kind for kind in kinds if not self._codec.knows(kind)), None)
        unseen = sum(len(b.text) for b in segment.blocks if b.kind == TEXT and not b.begun)
        if error is None and segment.error is not None:
            error = StreamError(word(segment.error.get("type")) or "error event")
        return AttemptResult(
            stop=stop,
            raw=segment.reason,
            id=self._codec.identity(segment.message),
            text=bool(text.strip() or client.held),
            call=segment.call_state(ended=stop is Stop.END),
            shown=client.streamed and bool(client.blocks),
            opened=opened,
            closed=segment.stopped,
            made_progress=self._made_progress(text),
            stalled=client.joined.splicer.stalled,
            not_resumable=f"a block of unknown type {unknown!r}" if unknown else None,
            # What breaks off at once may ask with the same token again.
            token=self._hops or (stop is Stop.DROPPED and segment.token is not None),
            length=len(text) + unseen,
            usage=self._codec.read_usage(segment.usage),
            unmetered_text=segment.generated if opened and not counted else None,
            error=error,
            args_verified=not calls or calls[-1].speaks or calls[-1].followed,
            only_call=len(calls) < 2,
        )

    @property
    def _ending(self) -> Stop:
        stop = self._codec.stop_of(self._segment.reason, closed=self._segment.stopped)
        # In the caller's own attempt a pause is the caller's to see, and to go on from.
        return Stop.END if stop is Stop.PAUSED and self._resume.mode is Mode.FIRST else stop

    def _made_progress(self, text: str) -> bool:
        mode = self._resume.mode
        if mode in {Mode.FIRST, Mode.REPLACE}:
            return True
        hops = mode is Mode.NATIVE_CONTINUATION  # its end is the answer's, whatever it brought
        behind = self._client.joined.splicer.behind or self.half_call
        caught_up = mode is Mode.APPEND_TAIL and not behind  # nothing was left
        if (hops or caught_up) and self._ending is Stop.END:
            return True
        return len(text) > self._length_before or bool(self._segment.calls) or self._hops

    @property
    def _hops(self) -> bool:
        """Whether the attempt ended with a token that it was not asked to go on by itself."""
        return self._segment.token not in {None, self._token}

    # --- what a later request replays ---------------------------------------------------------

    def _remember(self) -> None:
        """Keep what later requests, and the end of the turn, need of the attempt read last."""
        self._usage = self._usage or dict(self._segment.usage)
        delta = self._segment.delta
        self._lasting |= {k: delta[k] for k in self._codec.lasting if delta.get(k)}
        content = self._wired(self._carried)
        if self._resume.mode is Mode.RECOVERY and self._resume.prompt is not None:
            self.pairs.append((content, self._resume.prompt))
        elif self._resume.mode in {Mode.FIRST, Mode.REPLACE}:
            self.pairs = [(content, None)]
        else:
            blocks = [block for block in self._client.blocks if block.kind != TOOL_CALL]
            self.pairs = [(self._wired(blocks), None)]

    @property
    def _carried(self) -> list[Block]:
        """The attempt's blocks that a later request may carry.

        Dropped: blank text, unsigned and trailing thinking, calls that have no result yet (no
        provider takes them), and what the format cannot send back.
        """
        blocks = self._segment.blocks
        kept = [b for b in blocks if b.kind != TOOL_CALL and b.fit]
        kept = [block for block in kept if self._codec.carries(block, blocks)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return kept

    def _wired(self, blocks: Sequence[Block]) -> list[Json]:
        return [self._codec.wire(block) for block in blocks]

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message would carry it."""
        return self._wired(self._client.blocks or self._carried)

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text that the caller has, or gets."""
        return self._client.text

    @property
    def open_text(self) -> str:
        """The visible text a recovery would go on from."""
        return self._client.open_tail

    @property
    def stop(self) -> str | None:
        """The stop reason the caller got, once finished."""
        return self._stop

    @property
    def half_call(self) -> bool:
        """Whether the caller has been shown, by policy, a call that is not whole."""
        return self._client.half_call

    @property
    def cut_name(self) -> str:
        """Name of the call that was cut."""
        return as_text(self._segment.calls[-1].start.get("name")) if self._segment.calls else ""

    @property
    def cut_length(self) -> int:
        """Characters of the cut call's arguments that arrived."""
        return len(self._segment.calls[-1].arguments) if self._segment.calls else 0

    @property
    def token(self) -> str | None:
        """The continuation token of the attempt read last."""
        return self._segment.token

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one."""
        verdict = self._client.joined.splicer.verdict
        return [(self._length_before, verdict)] if verdict is not None else []

    def lasting(self, key: str) -> object:
        """Return what the end of an attempt said that holds for the whole turn."""
        return self._lasting.get(key)

    def parses(self) -> bool:
        """Whether the visible text is whole JSON."""
        try:
            loads(self.text + self._client.held)
        except ValueError:
            return False
        return True

    # --- the end of the turn -----------------------------------------------------------------

    def fork(self) -> MessageBuilder:
        """Return an answer that begins anew after nothing was shown; this one stays as it is."""
        other: MessageBuilder = type(self)(self._codec, self._policy)
        other._replay, other._streamed = self._replay, self._streamed
        other._client = self._client.anew()
        other._join(unary=False)
        other._usage = self._usage
        return other

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Show what is still held and fit to be seen, and of a cut call what `cut_call` says.

        `whole`: the last attempt ended as it should.
        """
        self._client.finish_text(ended=self._ending is Stop.END)
        self._client.release(cut_call, ended=whole)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn: return what is left to be shown, and the terminal bytes."""
        codec, delta = self._codec, {**self._segment.delta, **self._lasting}
        if stop is StopWord.ENDED:
            delta["stop_reason"] = codec.called if self._client.calls else codec.ended
        elif stop is StopWord.TRUNCATED:
            delta["stop_reason"] = codec.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self._stop = as_text(delta.get("stop_reason")) or None
        return self._client.end(delta, codec.write_usage(self._usage, usage))
