"""One turn as the caller gets it: attempts go in event by event, one answer comes out.

It decides nothing but order: what is shown, what waits, and which block a later attempt's text
goes on in. How it meets the text before it is the seam module's work, how bytes become events and
events bytes the form's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from continuation.dialect import Feed, Settle
from continuation.policy import Policy
from continuation.prompts import cut_call_note
from continuation.providers import _sse
from continuation.providers._blocks import CALL, NATIVE, TEXT, THINKING, Block, Segment
from continuation.providers._first import FirstStream, Gate
from continuation.providers._form import Form
from continuation.providers._joint import Joint, text_of
from continuation.providers._json import as_json, as_text, loads
from continuation.providers._sink import Sink
from continuation.seam import Verdict
from continuation.types import (
    CallState,
    Close,
    Ending,
    Enough,
    Head,
    Json,
    Mode,
    Resume,
    Stop,
    StreamError,
    Tape,
)


class Answer:
    """One model turn, built from one attempt after another."""

    def __init__(self, form: Form, policy: Policy) -> None:
        self._form = form
        self._policy = policy
        self._sink = Sink(form.writer(), streamed=True)
        self._tape = Tape()
        self._first: FirstStream | None = None
        self._resume = Resume(Mode.FIRST)
        self._again = False
        """The attempt adds to text of an earlier one."""
        self._segment = self._earlier = Segment()
        self._gate = Gate(policy)
        self._reader = form.reader()
        self._joint = Joint(self._sink)
        self._met: list[Block] = []
        """Calls that were shown live, and that the attempt under way has not repeated yet."""
        self._plain: tuple[Block | None, Block | None] = None, None
        """The block of an attempt that was begun last as it is, and what it is in the turn."""
        self._buffer = bytearray()
        self._parsed = 0
        self._at = 0
        self._before = 0
        self._settle: Settle = _never
        self._usage: Json = {}
        self._lasting: Json = {}
        self._stop: str | None = None
        self._token: str | None = None
        """What the attempt under way was asked to go on by."""
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery replays: each attempt's content, and the prompt that asked for it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, tape: Tape, settle: Settle) -> Feed:
        """Begin to read the caller's own attempt; the shell appends its bytes to `tape`."""
        self._tape = tape
        self._open(streamed=head.streamed)
        if head.streamed:
            self._first = FirstStream(self._form, tape, Gate(self._policy), settle)
            return self._first.feed
        self._settle = settle
        return _wait

    def _open(self, *, streamed: bool) -> None:
        """Begin the caller's side of the turn."""
        self._sink = Sink(self._form.writer(), streamed=streamed)
        self._sink.tape = self._tape
        self._joint = Joint(self._sink)
        self._gate = Gate(self._policy, streamed=streamed)

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read a later attempt."""
        self._earlier = self._segment
        self._resume = resume
        if resume.mode is Mode.TOKEN:  # not another answer, but more of this one
            self._joint.hop()
            self._token = self._segment.token
            self._segment.reopen()
            self._segment.unary = not head.streamed
        else:
            if resume.mode is Mode.ONWARD:
                self._joint.leave()
                self._leave()
            self._joint = Joint(self._sink, resume)
            self._token = None
            self._again = resume.mode in {Mode.ONWARD, Mode.BEHIND}
            self._segment = Segment(unary=not head.streamed)
            self._met = [b for b in self._sink.blocks if b.kind == CALL]
            live = self._sink.streamed
            self._gate = Gate(self._policy, hold_calls=bool(self._met), streamed=live)
            self._at = 0
        self._reader = self._form.reader()
        self._buffer = bytearray()
        self._parsed = 0
        self._before = len(self.text)
        return self._feed if head.streamed else self._collect

    def revert(self) -> None:
        """Forget the attempt read last; nothing of it is in the turn."""
        self._segment = self._earlier
        self._joint = Joint(self._sink)

    def _leave(self) -> None:
        """Settle what the attempt before left unshown, now that the turn goes on from it."""
        self._spill()
        finished = [b for b in self._segment.blocks if b.done and not b.closed and b.kind != CALL]
        if any(b.kind not in THINKING | {TEXT} for b in finished):
            while finished[-1].kind in THINKING:
                finished.pop()
            self._show_blocks(finished)

    def _collect(self, chunk: bytes) -> bytes:
        self._buffer += chunk
        return b""

    def _feed(self, chunk: bytes) -> bytes:
        """Read the events of a later attempt as they come."""
        self._buffer += chunk
        if not _sse.may_end(self._buffer, 0, len(chunk)):
            return b""
        for frame in _sse.frames(self._buffer):
            self._parsed = frame.end
            if frame.empty:
                self._sink.comment()
            else:
                self._see(self._reader.events(frame))
            if self._segment.stopped or self._segment.error or self._joint.stalled:
                raise Enough(self._sink.take())
        del self._buffer[: self._parsed]
        self._parsed = 0
        return self._sink.take()

    def _see(self, events: Sequence[Json]) -> None:
        """Take the next events; show what the gate lets pass.

        What is behind a text in its frame does not hold it up, for it is written anew.
        """
        for event in events:
            if self._take([event]):
                self._show()

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

    # --- showing ---------------------------------------------------------------------------

    def _show(self) -> None:
        """Show all blocks read so far, the last one as far as it has come."""
        blocks = self._segment.blocks
        if self._at < len(blocks) - 1:
            self._show_blocks(blocks[self._at : -1])
            self._at = len(blocks) - 1
        if blocks:
            self._show_block(blocks[-1])

    def _show_blocks(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._show_block(block)

    def _show_block(self, block: Block) -> None:
        if block.closed:
            return
        self._say(block)
        if block.done and block.begun:
            if self._again and block.kind == TEXT:
                self._joint.end()
            if self._sink.open is not None and self._sink.open.kind == block.kind:
                self._sink.stop()  # not a call that was shown live, and may go on
            block.closed = True

    def _say(self, block: Block) -> None:
        """Show of a block what has come of it."""
        kind = block.kind
        if self._again and kind in THINKING:
            return
        if self._again and block.sealed:
            self._say_sealed(block)
        elif self._again and kind == TEXT:
            self._joint.say(block)
        elif kind == CALL or not self._joint.behind:
            self._say_plain(block)

    def _say_plain(self, block: Block) -> None:
        if not block.begun:
            self._sink.start(block)
            block.begun = True
            self._plain = block, self._sink.open
        # What was begun live may have been overtaken: the rest of it belongs to no other block.
        if self._plain[0] is block and self._plain[1] is self._sink.open:
            for delta in block.deltas[block.shown :]:
                self._sink.delta(delta)
        block.shown = len(block.deltas)

    def _say_sealed(self, block: Block) -> None:
        """Show what is signed as it is; where its head has to go, so does its signature."""
        joint = self._joint
        if block.begun or (block.kind != TEXT and (joint.waits or joint.behind)):
            return
        text = joint.whole(block.text) if block.kind == TEXT else ""
        if text == block.text:
            joint.write("")
            self._say_plain(block)
        else:
            block.begun, block.shown = True, len(block.deltas)
            joint.write(text)

    def _spill(self) -> None:
        """Show text that was held only because of what came behind it in one event."""
        if not self._held:
            return
        blocks, last = self._segment.blocks, self._last_said
        self._show_blocks(blocks[self._at : last])
        self._at = last
        self._say(blocks[last])

    @property
    def _last_said(self) -> int:
        """Place of the last block that is no thinking; what is under a signature alone is none."""
        blocks = self._segment.blocks
        said = (
            n
            for n in reversed(range(len(blocks)))
            if blocks[n].kind == TEXT or not (blocks[n].sealed or blocks[n].kind in THINKING)
        )
        return next(said, 0)

    @property
    def _held(self) -> str:
        """Visible text at the attempt's end that has not been shown, with no call beside it."""
        blocks, at = self._segment.blocks, self._last_said
        last = blocks[at] if blocks else None
        if last is None or last.kind != TEXT or self._segment.calls or last.closed:
            return ""
        if last.shown == len(last.deltas) and last.begun:
            return ""
        before = (b.text for b in blocks[self._at : at] if b.kind == TEXT and not b.begun)
        return last.text if "".join((*before, last.text)).strip() else ""

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text of the turn that has passed the sink."""
        return text_of(self._sink)

    @property
    def open_text(self) -> str:
        """The visible text a recovery would go on from."""
        return self._sink.tail or self._held

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message would carry it."""
        return [self._form.wire(block) for block in self._sink.blocks or self._carried()]

    @property
    def stop(self) -> str | None:
        """The stop reason the caller got, once finished."""
        return self._stop

    @property
    def cut_name(self) -> str:
        """Name of the call that was cut."""
        return as_text(self._segment.calls[-1].start.get("name")) if self._segment.calls else ""

    @property
    def cut_length(self) -> int:
        """Characters of the cut call's arguments that arrived."""
        return len(self._segment.calls[-1].arguments) if self._segment.calls else 0

    def take(self) -> bytes:
        """Return bytes that became ready for the caller when an attempt ended."""
        return self._sink.take()

    def end(self, error: BaseException | None = None) -> Ending:
        """The attempt's bytes have ended: say how it stands."""
        segment = self._segment
        if self._resume.mode is Mode.FIRST:
            quick = self._end_first(error)
            # Both lead back to the turn: a cycle would keep the answer's bytes in memory.
            self._first, self._settle = None, _never
            if quick is not None:
                return quick
        elif self._segment.unary:
            self._end_body()
        elif not (segment.stopped or segment.error or self._joint.stalled):
            for frame in _sse.frames(self._buffer, final=True):
                self._see(() if frame.empty else self._reader.events(frame))
            if error is None:
                self._see(self._reader.eof())
        segment = self._segment
        stop = self._ending
        # A first answer that is whole may still go out as it came, all of it.
        whole = self._resume.mode is Mode.FIRST and stop not in {Stop.LENGTH, Stop.DROPPED}
        if (self._again or self._sink.blocks) and not whole:
            self._spill()
        # The head of a recovery that broke off is asked for again: half an anchor is no text.
        if not (stop is Stop.DROPPED and self._joint.waits):
            self._finish_text()
            self._joint.place_asides()
            self._remember()
        call = self._call_state(stop)
        text = self.text
        waiting = "".join(b.text for b in segment.blocks if b.kind == TEXT and not b.begun)
        return Ending(
            stop=stop,
            raw=segment.reason,
            id=self._form.identity(segment.message),
            text=bool(text.strip() or self._held),
            call=call,
            shown=self._sink.streamed and bool(self._sink.blocks),
            opened=segment.events > 0,
            closed=segment.stopped,
            fresh=self._fresh(text),
            stalled=self._joint.stalled,
            stuck=self._stuck(),
            token=segment.token is not None and segment.token != self._token,
            length=len(text) + len(waiting),
            usage=self._form.read_usage(segment.usage),
            said=segment.said if segment.reason is None or not segment.usage else None,
            error=error or _stream_error(segment),
            alone=len(segment.calls) < 2,
        )

    @property
    def _ending(self) -> Stop:
        stop = self._form.stop_of(self._segment.reason, closed=self._segment.stopped)
        # In the caller's own attempt a pause is the caller's to see, and to go on from.
        return Stop.END if stop is Stop.PAUSED and self._resume.mode is Mode.FIRST else stop

    def _finish_text(self) -> None:
        """The attempt's text has ended: show what its seam still holds."""
        texts = (block for block in self._segment.blocks if block.kind == TEXT)
        if self._joint.waits and (first := next(texts, None)) and not first.begun:
            self._say(first)  # nothing but white space, or the gate had let it pass
        if self._at < len(self._segment.blocks):
            self._joint.finish(self._segment.text, dropped=self._ending is Stop.DROPPED)

    def _end_first(self, error: BaseException | None) -> Ending | None:
        raw = self._tape.raw
        if self._first is not None:
            self._first.finish()
            if self._first.settled is not None:
                if error is not None and not raw.rstrip().endswith(self._form.last.rstrip()):
                    raw += self._form.last
                return self._first.settled
            self._sink.muted = True
            frames = self._first.frames()
            self._replay(frames, ended=error is None)
            shown = sum(not frame.empty for frame in frames if frame.end <= self._tape.sent)
            delta: Json = {**self._segment.delta, "stop_reason": self._segment.reason}
            if not (shown or self._segment.blocks or self._segment.reason):
                self._sink.message.clear()  # its opening broke off: a later one is the caller's
            self._sink.unmute(delta, shown)
            return None
        if error is not None:
            return Ending(stop=Stop.DROPPED, opened=False, error=error)
        quick = self._form.quick_body(raw)
        if quick is not None and self._settle(quick):
            return quick
        self._segment = Segment(unary=True)
        try:
            self._replay_body(raw)
        except ValueError:  # not JSON at all: nothing of ours
            return Ending(stop=Stop.END, opened=False)
        return None

    def _replay(self, frames: Sequence[_sse.Frame], *, ended: bool) -> None:
        for frame in frames:
            if not frame.empty:
                self._take(self._reader.events(frame))
            if frame.end <= self._tape.sent:  # not what the gate says now: what the caller has had
                self._show()
            if self._segment.stopped or self._segment.error:
                return
        if ended:
            self._see(self._reader.eof())

    def _end_body(self) -> None:
        try:
            self._replay_body(self._buffer)
        except ValueError:
            self._segment = Segment(unary=True)  # half a body: as good as dropped

    def _replay_body(self, raw: bytes | bytearray) -> None:
        for event in self._form.explode(as_json(loads(raw))):
            self._see([event])

    def _remember(self) -> None:
        self._usage = self._usage or dict(self._segment.usage)
        delta = self._segment.delta
        self._lasting |= {k: delta[k] for k in self._form.lasting if delta.get(k)}
        content = [self._form.wire(block) for block in self._carried()]
        if self._resume.mode is Mode.ONWARD and self._resume.prompt is not None:
            self.pairs.append((content, self._resume.prompt))
        elif self._resume.mode in {Mode.FIRST, Mode.FRESH}:
            self.pairs = [(content, None)]
        else:
            said = (block for block in self._sink.blocks if block.kind != CALL)
            self.pairs = [([self._form.wire(block) for block in said], None)]

    def _carried(self) -> list[Block]:
        blocks = self._segment.blocks
        kept = [b for b in self._segment.carried(calls=False) if self._form.carries(b, blocks)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return kept

    def _call_state(self, stop: Stop) -> CallState:
        calls = self._segment.calls
        if not calls:
            return CallState.NONE
        ended = stop is Stop.END
        if self._segment.unary and not ended and self._segment.blocks[-1] is calls[-1]:
            return CallState.CUT
        whole = all(call.whole(ended=ended) for call in calls)
        return CallState.WHOLE if whole else CallState.CUT

    def _fresh(self, text: str) -> bool:
        if self._resume.mode in {Mode.FIRST, Mode.FRESH}:
            return True
        hops = self._resume.mode is Mode.TOKEN  # its end is the answer's, whatever it brought
        again = self._resume.mode is Mode.BEHIND and not self._joint.behind  # nothing was left
        if (hops or again) and self._ending is Stop.END:
            return True
        hopped = self._segment.token is not None and self._segment.token != self._token
        return len(text) > self._before or bool(self._segment.calls) or hopped

    def _stuck(self) -> str | None:
        kinds = (block.kind for block in self._segment.blocks)
        unknown = next((kind for kind in kinds if not self._form.knows(kind)), None)
        return f"a block of unknown type {unknown!r}" if unknown else None

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one."""
        verdict = self._joint.verdict
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
            json.loads(self.text + self._held)
        except ValueError:
            return False
        return True

    # --- the end -----------------------------------------------------------------------------

    def fork(self) -> Answer:
        """Return an answer that begins anew after nothing was shown; this one stays as it is."""
        other: Answer = type(self)(self._form, self._policy)
        other._tape = self._tape
        other._sink = self._sink.anew()
        other._joint = Joint(other._sink)
        other._usage = self._usage
        return other

    def finish(self, close: Close) -> bytes:
        """End the turn: what is still held and fit to be seen, then the terminal bytes."""
        self._finish_text()
        self._show_rest(close)
        delta: Json = {**self._segment.delta, **self._lasting}
        if close.synthetic:
            calls = any(block.kind == CALL for block in self._sink.blocks)
            delta["stop_reason"] = self._form.called if calls else self._form.ended
        elif close.truncated or not (self._segment.reason or self._segment.stopped):
            delta["stop_reason"] = self._form.truncated
        if delta.get("stop_reason") != self._segment.reason:
            delta.pop("stop_sequence", None)
        self._stop = as_text(delta.get("stop_reason")) or None
        return self._sink.end(delta, self._form.write_usage(self._usage, close.usage))

    def _show_rest(self, close: Close) -> None:
        ended = self._ending in {Stop.END, Stop.REFUSED}
        rest = [block for block in self._segment.blocks if not block.closed]
        calls = [block for block in rest if block.kind == CALL]
        cut = [call for call in calls if not call.whole(ended=ended)]
        # Whatever ends the turn: half a call goes out only if the caller asked for it.
        whole = [call for call in calls if call not in cut or close.cut_call == "keep"]
        others = [b for b in rest if b.kind != CALL and (ended or self._fit(b))]
        followed = whole or (cut and close.cut_call in {"explain", "guide"})
        while not (ended or followed) and others and others[-1].kind in THINKING:
            others.pop()  # it leads nowhere, and some providers would not take it back
        if not cut:
            ids = {id(block) for block in (*others, *whole)}
            self._show_held([block for block in rest if id(block) in ids])
            return
        self._show_held(others)
        empty = not self._sink.blocks and not whole
        if close.cut_call in {"explain", "guide"} or (close.cut_call == "drop" and empty):
            self._note(cut[-1])
        self._show_held(whole)

    def _show_held(self, blocks: list[Block]) -> None:
        """Show blocks at the end of the turn; calls, which a recovery holds back as well."""
        for block in blocks:
            if block.kind != CALL:
                self._show_block(block)
                continue
            if not block.begun and self._repeats(block):
                block.begun = block.closed = True
                continue
            self._say_plain(block)  # by policy its beginning may have gone out as it came
            self._sink.stop()
            block.closed = True

    def _repeats(self, call: Block) -> bool:
        """Whether a call was shown live in an attempt before; what was cut of it is shown now."""
        for shown in self._met:
            rest = shown.rest_of(call)
            if rest is None or (rest and shown is not self._sink.open):
                continue
            self._met.remove(shown)
            if rest:
                self._sink.delta({"type": "input_json_delta", "partial_json": rest})
                self._sink.stop()
            return True
        return False

    def _fit(self, block: Block) -> bool:
        if block.kind in THINKING:
            return block.signed
        if block.kind == TEXT:
            return bool(block.text)
        return block.done

    def _note(self, call: Block) -> None:
        note = cut_call_note(as_text(call.start.get("name")), len(call.arguments))
        # Most readers join all text of an answer; the note is a paragraph of its own in it.
        gap = "\n\n" if self.text.strip() else ""
        self._sink.start(Block({"type": TEXT, "text": ""}))
        self._sink.text(gap + note)
        self._sink.stop()


def _wait(chunk: bytes) -> bytes:
    """Hold a JSON body until it is whole."""
    return b""


def _never(ending: Ending) -> bool:
    return False


def _stream_error(segment: Segment) -> BaseException | None:
    if segment.error is None:
        return None
    return StreamError(as_text(segment.error.get("type")) or "error event")
