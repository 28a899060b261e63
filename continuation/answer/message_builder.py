"""One turn as the caller gets it: attempts go in event by event, one answer comes out.

It knows which attempt is under way, and says how it stands. An `AttemptReader` reads it, the gate
says when what was read may be shown, a `BlockEmitter` shows it through the `TextSplicer` and the
`ClientStream`, `show_rest` shows what is left when the turn ends; how bytes become events and
events bytes is the codec's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from continuation.answer.attempt_reader import AttemptReader
from continuation.answer.block_emitter import BlockEmitter
from continuation.answer.blocks import TOOL_CALL, Segment
from continuation.answer.client_stream import ClientStream, text_of
from continuation.answer.first_stream import FirstStream, Gate
from continuation.answer.rest import show_rest
from continuation.answer.standing import call_state, carried, stream_error, unknown_block, waiting
from continuation.answer.wire_codec import WireCodec
from continuation.dialect import Feed
from continuation.policy import Policy
from continuation.seams.seam import Verdict
from continuation.types import (
    AttemptResult,
    Head,
    Json,
    Mode,
    ReplayBuffer,
    Resume,
    Stop,
    StopWord,
    Usage,
)
from continuation.wire.json_values import as_json, as_text, loads


class MessageBuilder:
    """One model turn, built from one attempt after another."""

    def __init__(self, form: WireCodec, policy: Policy) -> None:
        self._form = form
        self._policy = policy
        self._sink = ClientStream(form.writer(), streamed=True)
        self._replay = ReplayBuffer()
        self._first: FirstStream | None = None
        self._resume = Resume(Mode.FIRST)
        self._set_out(unary=False)
        self._earlier = self._segment, self._showing
        self._before = 0
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
        self._replay = replay
        self._open(streamed=head.streamed)
        if head.streamed:
            replay.last = self._form.last
            self._first = FirstStream(self._form, replay, Gate(self._policy))
            return self._first.feed
        return _wait

    def _open(self, *, streamed: bool) -> None:
        """Begin the caller's side of the turn."""
        self._sink = ClientStream(self._form.writer(), streamed=streamed)
        self._sink.replay = self._replay
        self._set_out(unary=not streamed)

    def _set_out(self, resume: Resume | None = None, *, unary: bool) -> None:
        """Begin another answer of the provider's, where the sink stands."""
        self._segment = Segment(unary=unary)
        self._showing = BlockEmitter(self._sink, self._segment, resume)
        shown, live = bool(self._showing.live_calls), self._sink.streamed
        self._gate = Gate(self._policy, hold_calls=shown, streamed=live)
        self._read_on()

    def _read_on(self) -> None:
        """Begin another response: of a new answer, or the next hop of the same."""
        reader = self._form.reader()
        self._reading = AttemptReader(reader, self._segment, self._gate, self._sink, self._showing)

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read a later attempt."""
        self._earlier = self._segment, self._showing
        self._resume = resume
        if resume.mode is Mode.NATIVE_CONTINUATION:  # not another answer, but more of this one
            self._showing.joint.hop()
            self._token = self._segment.token
            self._segment.reopen()
            self._segment.unary = not head.streamed
            self._read_on()
        else:
            if resume.mode is Mode.RECOVERY:
                self._showing.leave()
            self._token = None
            self._set_out(resume, unary=not head.streamed)
        self._before = len(self.text)
        return self._reading.feed if head.streamed else self._reading.collect

    def settle(self) -> None:
        """Settle what the turn is gone on from, before it is asked to: what stands at its end."""
        if not self._showing.joint.waits:  # what a seam holds may still be shown, if nothing comes
            self._showing.leave()

    def revert(self) -> None:
        """Forget the attempt read last; the one before may still show what it holds."""
        self._segment, self._showing = self._earlier
        self._showing.joint.leave()

    # --- the end of an attempt ---------------------------------------------------------------

    def take(self) -> bytes:
        """Return bytes that became ready for the caller when an attempt ended."""
        return self._sink.take()

    def glance(self, error: BaseException | None = None) -> AttemptResult | None:
        """Say how the caller's own attempt ended, if its labels alone tell."""
        if self._first is not None:
            return self._first.glance()
        return self._form.quick_body(self._replay.raw) if error is None else None

    def end(self, error: BaseException | None = None) -> AttemptResult:
        """The attempt's bytes have ended: say how it stands."""
        if self._resume.mode is Mode.FIRST:
            unread = self._end_first(error)
            self._first = None
            if unread is not None:
                return unread
        else:
            self._end_later(error)
        stop = self._ending
        # A first answer that is whole may still go out as it came, all of it.
        whole = self._resume.mode is Mode.FIRST and stop not in {Stop.LENGTH, Stop.DROPPED}
        if (self._showing.again or self._sink.blocks) and not whole:
            self._showing.flush_held()
        # The head of a recovery that broke off comes again, and that of one that pauses goes on:
        # half an anchor is no text.
        if not (stop in {Stop.DROPPED, Stop.PAUSED} and self._showing.joint.waits):
            self._showing.finish_text(ended=stop is Stop.END)
            self._showing.joint.place_asides()
            self._remember()
        return self._standing(stop, error)

    def _standing(self, stop: Stop, error: BaseException | None) -> AttemptResult:
        segment, text = self._segment, self.text
        opened = segment.events > 0
        counted = segment.reason is not None and bool(segment.usage)
        return AttemptResult(
            stop=stop,
            raw=segment.reason,
            id=self._form.identity(segment.message),
            text=bool(text.strip() or self._showing.held),
            call=call_state(segment, stop),
            shown=self._sink.streamed and bool(self._sink.blocks),
            opened=opened,
            closed=segment.stopped,
            made_progress=self._made_progress(text),
            stalled=self._showing.joint.stalled,
            not_resumable=unknown_block(segment, self._form),
            # What breaks off at once may ask with the same token again.
            token=self._hops or (stop is Stop.DROPPED and segment.token is not None),
            length=len(text) + waiting(segment),
            usage=self._form.read_usage(segment.usage),
            unmetered_text=segment.said if opened and not counted else None,
            error=error or stream_error(segment),
            args_verified=not segment.calls
            or segment.calls[-1].speaks
            or segment.calls[-1].followed,
            only_call=len(segment.calls) < 2,
        )

    @property
    def _ending(self) -> Stop:
        stop = self._form.stop_of(self._segment.reason, closed=self._segment.stopped)
        # In the caller's own attempt a pause is the caller's to see, and to go on from.
        return Stop.END if stop is Stop.PAUSED and self._resume.mode is Mode.FIRST else stop

    def _end_first(self, error: BaseException | None) -> AttemptResult | None:
        """Read the caller's own attempt; an ending is all there is to say of it."""
        if self._first is None:
            return self._end_body(error)
        self._sink.muted = True
        frames = self._first.frames()
        self._reading.again(frames, self._replay.sent, ended=error is None)
        shown = sum(not frame.empty for frame in frames if frame.end <= self._replay.sent)
        delta: Json = {**self._segment.delta, "stop_reason": self._segment.reason}
        if not (shown or self._segment.blocks or self._segment.reason):
            self._sink.message.clear()  # its opening broke off: a later one is the caller's
        self._sink.unmute(delta, shown)
        return None

    def _end_body(self, error: BaseException | None) -> AttemptResult | None:
        if error is not None:
            return AttemptResult(stop=Stop.DROPPED, opened=False, error=error)
        try:
            self._replay_body(self._replay.raw)
        except ValueError:  # not JSON at all: nothing of ours
            return AttemptResult(stop=Stop.END, opened=False)
        return None

    def _end_later(self, error: BaseException | None) -> None:
        """Read of a later attempt what has not been read as it came."""
        if not self._segment.unary:
            self._reading.finish(ended=error is None)
            return
        with suppress(ValueError):  # half a body: as good as dropped
            self._replay_body(self._reading.buffer)

    def _replay_body(self, raw: bytes | bytearray) -> None:
        for event in self._form.to_events(as_json(loads(raw))):
            self._see([event])

    def _see(self, events: Sequence[Json]) -> None:
        self._reading.see(events)

    def _remember(self) -> None:
        self._usage = self._usage or dict(self._segment.usage)
        delta = self._segment.delta
        self._lasting |= {k: delta[k] for k in self._form.lasting if delta.get(k)}
        content = [self._form.wire(block) for block in carried(self._segment, self._form)]
        if self._resume.mode is Mode.RECOVERY and self._resume.prompt is not None:
            self.pairs.append((content, self._resume.prompt))
        elif self._resume.mode in {Mode.FIRST, Mode.REPLACE}:
            self.pairs = [(content, None)]
        else:
            said = (block for block in self._sink.blocks if block.kind != TOOL_CALL)
            self.pairs = [([self._form.wire(block) for block in said], None)]

    def _made_progress(self, text: str) -> bool:
        mode = self._resume.mode
        if mode in {Mode.FIRST, Mode.REPLACE}:
            return True
        hops = mode is Mode.NATIVE_CONTINUATION  # its end is the answer's, whatever it brought
        behind = self._showing.joint.behind or self.half_call
        caught_up = mode is Mode.APPEND_TAIL and not behind  # nothing was left
        if (hops or caught_up) and self._ending is Stop.END:
            return True
        return len(text) > self._before or bool(self._segment.calls) or self._hops

    @property
    def _hops(self) -> bool:
        """Whether the attempt ended with a token that it was not asked to go on by itself."""
        return self._segment.token not in {None, self._token}

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text of the turn that has passed the sink."""
        return text_of(self._sink)

    @property
    def open_text(self) -> str:
        """The visible text a recovery would go on from."""
        tail = self._sink.tail
        return tail + self._showing.unshown if tail else self._showing.held

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message would carry it."""
        blocks = self._sink.blocks or carried(self._segment, self._form)
        return [self._form.wire(block) for block in blocks]

    @property
    def stop(self) -> str | None:
        """The stop reason the caller got, once finished."""
        return self._stop

    @property
    def half_call(self) -> bool:
        """Whether the caller has been shown, by policy, a call that is not whole."""
        calls = [block for block in self._sink.blocks if block.kind == TOOL_CALL]
        last = self._sink.open
        return self._sink.streamed and (last in calls or any(call.broken for call in calls))

    @property
    def cut_name(self) -> str:
        """Name of the call that was cut."""
        return as_text(self._segment.calls[-1].start.get("name")) if self._segment.calls else ""

    @property
    def cut_length(self) -> int:
        """Characters of the cut call's arguments that arrived."""
        return len(self._segment.calls[-1].arguments) if self._segment.calls else 0

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one."""
        verdict = self._showing.joint.verdict
        return [(self._before, verdict)] if verdict is not None else []

    @property
    def token(self) -> str | None:
        """The continuation token of the attempt read last."""
        return self._segment.token

    def lasting(self, key: str) -> object:
        """Return what the end of an attempt said that holds for the whole turn."""
        return self._lasting.get(key)

    def parses(self) -> bool:
        """Whether the visible text is whole JSON."""
        try:
            loads(self.text + self._showing.held)
        except ValueError:
            return False
        return True

    # --- the end of the turn -----------------------------------------------------------------

    def fork(self) -> MessageBuilder:
        """Return an answer that begins anew after nothing was shown; this one stays as it is."""
        other: MessageBuilder = type(self)(self._form, self._policy)
        other._replay = self._replay
        other._sink = self._sink.anew()
        other._set_out(unary=False)
        other._usage = self._usage
        return other

    def release(self, *, whole: bool, cut_call: str | None) -> None:
        """Show what is still held and fit to be seen, and of a cut call what `cut_call` says.

        `whole`: the last attempt ended as it should.
        """
        self._showing.finish_text(ended=self._ending is Stop.END)
        show_rest(self._showing, self._sink, cut_call, ended=whole)

    def finish(self, stop: StopWord, usage: Usage) -> bytes:
        """End the turn: return what is left to be shown, and the terminal bytes."""
        delta: Json = {**self._segment.delta, **self._lasting}
        if stop is StopWord.ENDED:
            calls = any(block.kind == TOOL_CALL for block in self._sink.blocks)
            delta["stop_reason"] = self._form.called if calls else self._form.ended
        elif stop is StopWord.TRUNCATED:
            delta["stop_reason"] = self._form.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self._stop = as_text(delta.get("stop_reason")) or None
        return self._sink.end(delta, self._form.write_usage(self._usage, usage))


def _wait(chunk: bytes) -> bytes:
    """Hold a JSON body until it is whole."""
    return b""
