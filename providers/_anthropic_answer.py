"""One Messages turn as the caller gets it: attempts go in event by event, one message comes out.

It decides nothing but order: what is shown, what waits, and which block a later attempt's text
goes on in. How it meets the text before it is the seam module's work, and how it is written the
sink's.
"""

from __future__ import annotations

import json

from continuation._seam_follow import Follow
from continuation.dialect import Feed, Settle
from continuation.policy import Policy
from continuation.prompts import cut_call_note
from continuation.providers import _sse
from continuation.providers._anthropic_blocks import (
    CALL,
    THINKING,
    Block,
    Segment,
    as_json,
    as_list,
    as_text,
    explode,
    loads,
    read_usage,
    write_usage,
)
from continuation.providers._anthropic_first import FirstStream, Gate, quick_body, stop_of
from continuation.providers._anthropic_sink import Sink, fold
from continuation.seam import Seam, Verdict
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

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._sink = Sink(streamed=True)
        self._tape = Tape()
        self._first: FirstStream | None = None
        self._resume = Resume(Mode.FIRST)
        self._again = False
        """The attempt adds to text of an earlier one."""
        self._segment = self._earlier = Segment()
        self._gate = Gate(policy)
        self._seam: Seam | None = None
        self._follow: Follow | None = None
        self._joined: Block | None = None
        self._buffer = bytearray()
        self._parsed = 0
        self._at = 0
        self._before = 0
        self._settle: Settle = _never
        self._usage: Json = {}
        self._container: object = None
        self._stop: str | None = None
        self.pairs: list[tuple[list[Json], str | None]] = []
        """What a recovery replays: each attempt's content, and the prompt that asked for it."""

    # --- reading ---------------------------------------------------------------------------

    def first(self, head: Head, tape: Tape, settle: Settle) -> Feed:
        """Begin to read the caller's own attempt; the shell appends its bytes to `tape`."""
        self._tape = tape
        self._sink = Sink(streamed=head.streamed)
        self._sink.tape = tape
        if head.streamed:
            self._first = FirstStream(tape, Gate(self._policy), settle)
            return self._first.feed
        self._settle = settle
        return _wait

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read a later attempt."""
        self._leave(resume)
        self._earlier = self._segment
        self._resume = resume
        self._again = resume.mode in {Mode.ONWARD, Mode.BEHIND, Mode.TOKEN}
        self._segment = Segment(unary=not head.streamed)
        self._gate = Gate(self._policy)
        self._buffer = bytearray()
        self._parsed = self._at = 0
        self._before = len(self.text)
        return self._feed if head.streamed else self._collect

    def revert(self) -> None:
        """Forget the attempt read last; nothing of it is in the turn."""
        self._segment = self._earlier
        self._seam = self._follow = None

    def _leave(self, resume: Resume) -> None:
        """Settle what the attempt before left unshown, now that the turn goes on from it."""
        self._seam = self._follow = self._joined = None
        if resume.mode is Mode.BEHIND:
            self._follow = Follow(self.text)
        if resume.mode is not Mode.ONWARD:
            return
        finished = [b for b in self._segment.blocks if b.done and not b.closed and b.kind != CALL]
        if any(b.kind not in THINKING | {"text"} for b in finished):
            while finished[-1].kind in THINKING:
                finished.pop()
            self._show_blocks(finished)
        if not resume.glue:
            self._sink.stop()
        elif self._sink.open is not None and self._sink.open.kind == "text":
            self._joined = self._sink.open
            before = self._joined.text
            fold(self._joined, before)  # it is read again and again from here on
            self._seam = Seam(
                before,
                anchor=resume.anchor,
                prefilled=resume.prefilled,
                unshown=0 if self._sink.streamed else len(before),
                hold=resume.hold,
            )

    def _collect(self, chunk: bytes) -> bytes:
        self._buffer += chunk
        return b""

    def _feed(self, chunk: bytes) -> bytes:
        """Read the events of a later attempt as they come."""
        self._buffer += chunk
        for frame in _sse.frames(self._buffer):
            self._parsed = frame.end
            if frame.empty:
                self._sink.comment()
            else:
                self._see(_decode(frame))
            if self._segment.stopped or self._segment.error or self._stalled():
                raise Enough(self._sink.take())
        del self._buffer[: self._parsed]
        self._parsed = 0
        return self._sink.take()

    def _see(self, event: Json) -> None:
        """Take the next event of the current attempt; show what its gate lets pass."""
        self._segment.add(event)
        kind = event.get("type")
        if kind not in _NATIVE:
            self._sink.write(event)
        elif kind == "message_start":
            self._sink.begin(event)
        elif self._gate.step(event):
            self._show()

    def _stalled(self) -> bool:
        return self._seam is not None and self._seam.stalled

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
        kind = block.kind
        if self._again and kind in THINKING:
            return
        if self._again and kind == "text":
            self._show_joined(block)
        elif self._follow is None or kind == CALL or self._follow.done:
            self._show_plain(block)
        if block.done and block.begun:
            self._sink.stop()
            block.closed = True

    def _show_plain(self, block: Block) -> None:
        if not block.begun:
            self._sink.start(block.start)
            block.begun = True
        for delta in block.deltas[block.shown :]:
            self._sink.delta(delta)
        block.shown = len(block.deltas)

    def _show_joined(self, block: Block) -> None:
        """Show a text block that meets text before it: in the same block, through the seam."""
        if not block.begun:
            block.begun = True
            self._joined_text(as_text(block.start.get("text")))
        for delta in block.deltas[block.shown :]:
            if delta.get("type") == "text_delta":
                self._joined_text(as_text(delta.get("text")))
            elif self._sink.open is not None:
                self._sink.delta(delta)
        block.shown = len(block.deltas)
        if block.done:
            self._text(self._last())

    def _joined_text(self, piece: str) -> None:
        if piece:
            self._text(self._pass(piece))

    def _pass(self, piece: str) -> str:
        if self._follow is not None:
            return self._follow.feed(piece)
        if self._seam is None:
            return piece
        return self._seam.feed(piece)

    def _finish_seam(self) -> None:
        """The attempt's text has ended: show what its seam still holds."""
        if self._seam is None or self._at >= len(self._segment.blocks):
            return
        said, anchor = self._segment.text, self._resume.anchor
        broken = stop_of(self._segment.reason, closed=self._segment.stopped) is Stop.DROPPED
        if broken and anchor is not None and anchor.startswith(said):
            return  # it broke off while it repeated what it was asked to
        self._text(self._last())

    def _last(self) -> str:
        return self._seam.finish() if self._seam is not None else ""

    def _text(self, piece: str) -> None:
        if self._joined is not None and self._seam is not None and self._seam.verdict is not None:
            self._sink.take_back(self._seam.take_back)
            self._joined = None
        if not piece:
            return
        block = self._sink.open
        if block is None or block.kind != "text":
            self._sink.start({"type": "text", "text": ""})
        self._sink.text(piece)

    # --- how it stands -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All visible text of the turn that has passed the sink."""
        return "".join(block.text for block in self._sink.blocks if block.kind == "text")

    @property
    def open_text(self) -> str:
        """The visible text a recovery would go on from."""
        open_block = self._sink.open
        return open_block.text if open_block is not None and open_block.kind == "text" else ""

    @property
    def content(self) -> list[Json]:
        """The turn's content so far, as one assistant message would carry it."""
        return [block.wire() for block in self._sink.blocks]

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
        if self._resume.mode is Mode.FIRST:
            quick = self._end_first(error)
            # Both lead back to the turn: a cycle would keep the answer's bytes in memory.
            self._first, self._settle = None, _never
            if quick is not None:
                return quick
        elif self._segment.unary:
            self._end_body()
        segment = self._segment
        stop = stop_of(segment.reason, closed=segment.stopped)
        # The head of a recovery that broke off is asked for again: half an anchor is no text.
        broken = stop is Stop.DROPPED and self._seam is not None and self._seam.verdict is None
        if not broken:
            self._finish_seam()
            self._remember()
        call = self._call_state(stop)
        waiting = "" if self._at else segment.text  # whitespace that has not been let pass
        text = self.text
        return Ending(
            stop=stop,
            raw=segment.reason,
            text=bool(text.strip()),
            call=call,
            shown=self._sink.streamed and bool(self._sink.blocks),
            opened=segment.events > 0,
            closed=segment.stopped,
            fresh=self._fresh(text),
            stalled=self._stalled(),
            stuck=self._stuck(),
            length=len(text) + len(waiting),
            usage=read_usage(segment.usage),
            said=segment.said if segment.reason is None else None,
            error=error or _stream_error(segment),
            alone=len(segment.calls) < 2,
        )

    def _end_first(self, error: BaseException | None) -> Ending | None:
        raw = self._tape.raw
        if self._first is not None:
            if self._first.settled is not None:
                return self._first.settled
            self._sink.muted = True
            self._replay(_sse.frames(raw, final=True))
            self._sink.unmute({**self._segment.delta, "stop_reason": self._segment.reason})
            return None
        if error is not None:
            return Ending(stop=Stop.DROPPED, opened=False, error=error)
        quick = quick_body(raw)
        if quick is not None and self._settle(quick):
            return quick
        self._segment = Segment(unary=True)
        try:
            self._replay_body(raw)
        except ValueError:  # not JSON at all: nothing of ours
            return Ending(stop=Stop.END, opened=False)
        return None

    def _replay(self, frames: list[_sse.Frame]) -> None:
        for frame in frames:
            if not frame.empty:
                self._see(_decode(frame))
            if self._segment.stopped or self._segment.error:
                return

    def _end_body(self) -> None:
        try:
            self._replay_body(self._buffer)
        except ValueError:
            self._segment = Segment(unary=True)  # half a body: as good as dropped

    def _replay_body(self, raw: bytes | bytearray) -> None:
        for event in explode(as_json(loads(raw))):
            self._see(event)

    def _remember(self) -> None:
        self._usage = self._usage or dict(self._segment.usage)
        self._container = self._segment.delta.get("container") or self._container
        content = self._segment.content(calls=False)
        if self._resume.mode is Mode.ONWARD and self._resume.prompt is not None:
            self.pairs.append((content, self._resume.prompt))
        elif self._resume.mode in {Mode.FIRST, Mode.FRESH}:
            self.pairs = [(content, None)]
        else:
            self.pairs = [([b for b in self.content if b.get("type") != CALL], None)]

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
        return len(text) > self._before or bool(self._segment.calls)

    def _stuck(self) -> str | None:
        unknown = self._segment.unknown
        return f"a block of unknown type {unknown!r}" if unknown else None

    def seams(self) -> list[tuple[int, Verdict]]:
        """The seam of the last attempt, if it had one."""
        if self._seam is None or self._seam.verdict is None:
            return []
        return [(self._before, self._seam.verdict)]

    @property
    def container(self) -> str | None:
        """Id of the container the turn's code ran in; a later request must name it."""
        return as_text(as_json(self._container).get("id")) or None

    def parses(self) -> bool:
        """Whether the visible text is whole JSON."""
        try:
            json.loads(self.text)
        except ValueError:
            return False
        return True

    # --- the end -----------------------------------------------------------------------------

    def fork(self) -> Answer:
        """Return an answer that begins anew after nothing was shown; this one stays as it is."""
        other = Answer(self._policy)
        other._tape = self._tape
        other._sink = Sink(streamed=self._sink.streamed)
        other._sink.message = self._sink.message
        other._sink.closing_delta = self._sink.closing_delta
        other._sink.tape = self._tape
        other._usage = self._usage
        return other

    def finish(self, close: Close) -> bytes:
        """End the turn: what is still held and fit to be seen, then the terminal bytes."""
        self._finish_seam()
        self._show_rest(close)
        delta: Json = dict(self._segment.delta)
        delta.setdefault("stop_sequence", None)
        if self._container is not None:
            delta["container"] = self._container
        if close.synthetic:
            delta.update(stop_reason=self._synthetic(), stop_sequence=None)
        elif close.truncated or not (self._segment.reason or self._segment.stopped):
            delta.update(stop_reason="max_tokens", stop_sequence=None)
        self._stop = as_text(delta.get("stop_reason")) or None
        return self._sink.end(delta, write_usage(self._usage, close.usage))

    def _synthetic(self) -> str:
        calls = any(block.kind == CALL for block in self._sink.blocks)
        return "tool_use" if calls else "end_turn"

    def _show_rest(self, close: Close) -> None:
        segment = self._segment
        ended = stop_of(segment.reason, closed=segment.stopped) in {Stop.END, Stop.REFUSED}
        rest = [block for block in self._segment.blocks if not block.closed]
        calls = [block for block in rest if block.kind == CALL]
        cut = [call for call in calls if not call.whole(ended=ended)]
        # Whatever ends the turn: half a call goes out only if the caller asked for it.
        whole = [call for call in calls if call not in cut or close.cut_call == "keep"]
        others = [b for b in rest if b.kind != CALL and (ended or self._fit(b))]
        self._show_blocks(others)
        empty = not self._sink.blocks and not whole
        if cut and (close.cut_call in {"explain", "guide"} or (close.cut_call == "drop" and empty)):
            self._note(cut[-1])
        for call in whole:
            self._sink.start(call.start)
            for delta in call.deltas:
                self._sink.delta(delta)
            self._sink.stop()

    def _fit(self, block: Block) -> bool:
        if block.kind in THINKING:
            return block.signed
        if block.kind == "text":
            return bool(block.text)
        return block.done

    def _note(self, call: Block) -> None:
        note = cut_call_note(as_text(call.start.get("name")), len(call.arguments))
        self._sink.start({"type": "text", "text": ""})
        self._sink.text(note)
        self._sink.stop()


_NATIVE = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)


# The one string in a delta of each common kind; these are nearly all events of an answer.
def _wait(chunk: bytes) -> bytes:
    """Hold a JSON body until it is whole."""
    return b""


def _never(ending: Ending) -> bool:
    return False


def _decode(frame: _sse.Frame) -> Json:
    try:
        event = as_json(loads(frame.data)) if frame.data else {}
    except ValueError:
        event = {}
    event.setdefault("type", frame.name)
    return event


def _stream_error(segment: Segment) -> BaseException | None:
    if segment.error is None:
        return None
    return StreamError(as_text(segment.error.get("type")) or "error event")


__all__ = ["Answer", "as_list"]
