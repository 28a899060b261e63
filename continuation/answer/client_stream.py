"""The one owner of what the caller has been shown, what is held, and what may be taken back.

Theory of operation
-------------------
The caller sent one request and reads one answer. It may take several attempts, each a `Segment`
of blocks that grows as its bytes are read. One `ClientStream` joins them to the caller's answer:

     attempt 1   [text .........][call .. cut              } segments: what was read, event by
     attempt 2        [text ........][call ...........]    } event, by the `MessageBuilder`
                            |
                            |  show: the gate lets all that was read so far be shown
                            |  release: the turn is over, what is held and fit is shown
                            v
     caller      [text .........|........][call ....... ] end
                  shown          ^ seam     held until here

A character, or a piece of a call, is in one of three states.

* *Shown*: it is in `blocks`. If the caller reads a stream, it was written then, irrevocably.
* *Held*: it is in the attempt's segment and not in `blocks`. How far each block of an attempt was
  shown is noted in the block (`begun`, `shown`, `closed`), and only this module writes that. Three
  things hold content: the gate, which has not let it pass (thinking that may lack its signature, a
  call that may lack its brace); the seam, which has not decided how two texts meet; and policy,
  which keeps calls for the end of the message.
* *Retractable*: it is in `blocks`, but the caller reads no stream. So a seam may take back the end
  of the open text, until it has decided. What was streamed is never taken back.

What is called when. The `MessageBuilder` reads; it never writes a byte for the caller.

    begin        an attempt's opening was read: the caller gets the first one
    join         another response is about to be read; `plan` tells how it joins the answer
    revert       that response was of no use
    show         by the gate: all that was read of the attempt so far may be shown
    run, more    the same for the common case, one more piece of a text that is being shown
    flush_held,  the attempt has ended: show what was held only because of what followed it, and
    finish_text  what its seam still holds
    leave        a later attempt continues the turn: settle what this one left
    release,     the turn has ended: show what is held and fit to be shown, then the terminal event,
    end          or the whole body

How an attempt's text is placed depends on the attempt. The first one, one that replaces it, and one
that is the provider's own continuation are shown as they are (`_emit_plain`). A recovery
(`Mode.RECOVERY`) was asked to continue the last text and often repeats some of it: its text passes
a `Seam`, which holds the beginning until it knows what to drop. An answer generated again after one
that was shown (`Mode.APPEND_TAIL`) begins with what the caller has: `Replay` passes only what comes
after that. An attempt (`Joined`) has one of the two, or neither. Deltas about *places* in a text
(citations, annotations) are kept aside until the seam has decided where these are.

Calls are held until the end of the turn, unless policy shows them live. Arguments that were shown
can be continued but never changed. So a later call repeats a shown one if it begins with exactly
what was shown, and then only its rest is shown (`_release`).

The invariants, each held in one place:

1. The pieces streamed, joined, are the final text: `delta` is the only way into a block, and writes
   what it keeps; `_write`, which takes text back, asserts that there is no stream.
2. At most one block is open, the last: `_start` ends the one before, `delta` refuses a closed one.
3. Half a call is shown only if it was asked for: calls are shown by `_release`, for which `release`
   has sorted out the cut ones, or by a gate whose policy is to show them live.
4. There is exactly one terminal event, and nothing after it: after `end` no block is open, and
   `_start` and `end` refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from continuation.prompts import cut_call_note
from continuation.providers.contract import Writer
from continuation.seams.seam import Replay, Seam
from continuation.types import JoinPlan, Json, Mode, ReplayBuffer
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment, answered, calls_in
from continuation.wire.eventstream import reframed
from continuation.wire.json_values import as_text, dumps


@dataclass(slots=True, eq=False)
class Joined:
    """One attempt and how it joins the caller's answer: how far it is shown, by which rules."""

    segment: Segment
    adds: bool = False
    """It adds to text of an earlier attempt."""
    ran: list[str] = field(default_factory=list[str])
    """Types of items that the provider ran and the caller was shown, which may be run again."""
    live_calls: list[Block] = field(default_factory=list[Block])
    """Calls of earlier attempts that were shown live, and that this attempt may repeat."""
    seam: Seam | None = None
    """Joins a recovery's text to the text before it, and may hold its beginning."""
    follow: Replay | None = None
    """Passes only what comes after the text that was shown."""
    anchor: str | None = None
    """The words that the attempt was asked to repeat first, if it was."""
    apart: bool = False
    """The text that comes first begins a paragraph of its own."""
    before: str = ""
    """The text to which the seam joins the attempt's text."""
    retractable: Block | None = None
    """The caller's block whose end the seam may take back; `None` once it has decided."""
    next: int = 0
    """Index of the first block that may not have been shown to its end."""
    source: Block | None = None
    """The attempt's block that was begun last without a seam."""
    target: Block | None = None
    """The caller's block that `source` became."""
    text: Block | None = None
    """The attempt's text block that is being joined."""
    fed: int = 0
    """Characters of the attempt that have passed the seam, `text` included."""
    start: int = 0
    """Characters of the attempt that had passed the seam when `text` began."""
    annotations: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])
    """Deltas on places in a text (citations), kept until the seam has decided; with its `start`."""

    @property
    def waits(self) -> bool:
        """Whether the seam has not decided yet how the texts meet."""
        return self.seam is not None and self.seam.verdict is None

    @property
    def behind(self) -> bool:
        """Whether the attempt has not yet repeated all that was shown before it."""
        return self.follow is not None and not self.follow.done

    def feed(self, piece: str) -> str:
        """Take a piece of the text; return what may be shown now."""
        if self.follow is not None:
            passed = self.follow.feed(piece)
            return "" if self.follow.lost else passed
        return piece if self.seam is None else self.seam.feed(piece)


class ClientStream:
    """The caller's answer: blocks with dense indices, written in the format."""

    def __init__(
        self,
        writer: Writer,
        replay: ReplayBuffer,
        *,
        streamed: bool,
        muted: bool = False,
        framed: bool = False,
        served: frozenset[str] = frozenset(),
    ) -> None:
        """Begin. `streamed`: the caller reads a stream; `framed`: an AWS event stream.

        `muted`: write nothing, because the caller has had these events as the provider's bytes.
        `served`: types of items that the provider runs itself; each is shown once.
        """
        self.streamed = streamed
        self._served = served
        self._ran: list[str] = []
        """Types of the `served` items that were shown whole."""
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.joined = self._earlier = Joined(Segment())
        """`joined`: the attempt under way; `_earlier`: the one before."""
        self._replay = replay
        self._writes = streamed and not muted
        self.framed = framed
        self._ended = False
        self._closing_delta: Json = {}
        self._writer = writer
        self._out: list[bytes] = []

    # --- the caller's blocks: all that changes them, and all that is written --------------------

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return reframed(out) if self.framed else out

    def begin(self, message: Json) -> None:
        """Open the message; only the first opening is the caller's."""
        if not self.message:
            self.message.update(message)  # in place, for forks share it
            if self._writes:
                self._out.append(self._writer.open(message))

    def begin_text(self, text: str) -> None:
        """Begin a text block with this text."""
        self._start(Block({"type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": text})

    def pass_on(self, event: Json | None) -> None:
        """Pass an event on as it is; `None`: a comment, which keeps the connection alive.

        A comment is sent as a blank line, which every reader skips: google-genai parses comments.
        """
        if self._writes:
            self._out.append(b"\n" if event is None else self._writer.other(event))

    def _start(self, like: Block) -> None:
        """Begin a block like another one, without its deltas, and end the one before."""
        assert not self._ended
        self._stop()
        block = Block(dict(like.start), loose=like.loose, free=like.free, sealed=like.sealed)
        self.blocks.append(block)
        if self._writes:
            self._out.append(self._writer.start(len(self.blocks) - 1, block))
            self._note_closing()

    def delta(self, delta: Json) -> None:
        """Add a delta to the open block: the only way in which content reaches the caller."""
        block = self.blocks[-1]
        assert not block.done
        block.deltas.append(delta)
        if self._writes:
            self._out.append(self._writer.delta(len(self.blocks) - 1, block, delta))

    def _stop(self) -> None:
        """End the open block, if there is one."""
        block = self.open
        if block is None:
            return
        if self._writes:
            self._out.append(self._writer.stop(len(self.blocks) - 1, block))
        block.done = True
        self._note_closing()

    def end(self, delta: Json, usage: Json) -> bytes:
        """Close the message; return the last bytes with the terminal event, or the whole body."""
        assert not self._ended
        self._stop()
        self._ended = True
        if not self.streamed:
            return dumps(self._writer.body(self.message, self.blocks, delta, usage))
        self._out.append(self._writer.end(self.blocks, delta, usage))
        return self.take()

    def _note_closing(self) -> None:
        """Note for the shell which bytes would close the answer here, if our own code fails."""
        if self._writes:
            closing = self._writer.closing(self.blocks, self._closing_delta)
            self._replay.closing = reframed(closing) if self.framed else closing

    def unmute(self, delta: Json, events: int) -> None:
        """Write events from here on; the caller has had so many `events` of the provider's.

        `delta`: the fields with which the message would end now.
        """
        self._writes, self._closing_delta = self.streamed, delta
        self._writer.resume(self.message, self.blocks, events)
        self._note_closing()

    def fork(self) -> ClientStream:
        """Return a client stream without blocks, whose message is opened if this one's is.

        The two share the writer, which counts what the caller has had: only one of them may write
        blocks from now on.
        """
        other = ClientStream(
            self._writer,
            self._replay,
            streamed=self.streamed,
            framed=self.framed,
            served=self._served,
        )
        other.message, other._closing_delta = self.message, self._closing_delta
        return other

    # --- what the caller has ---------------------------------------------------------------------

    @property
    def open(self) -> Block | None:
        """The block that has begun and not ended; `None`: there is none."""
        return self.blocks[-1] if self.blocks and not self.blocks[-1].done else None

    @property
    def open_text(self) -> Block | None:
        """The open text block to which more text can be added; `None`: there is none."""
        block = self.open
        return block if block is not None and block.kind == TEXT and not block.sealed else None

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join([block.text for block in self.blocks if block.kind == TEXT])

    @property
    def tail(self) -> str:
        """The text that a later attempt continues: the last block, and texts right before it."""
        tail, phase = "", None
        for block in reversed(self.blocks):
            if block.kind in THINKING:
                continue  # not visible text: the text before it is the last one
            if block.kind == TEXT:
                phase = block.phase if phase is None else phase
                if block.phase != phase:
                    break
                tail = block.text + tail
            elif not block.sealed:
                break
        return tail

    # --- an attempt begins -----------------------------------------------------------------------

    def join(self, segment: Segment, plan: JoinPlan) -> None:
        """Begin another response of the provider; `plan`: how it joins the answer so far."""
        mode, self._earlier = plan.mode, self.joined
        if mode is Mode.NATIVE_CONTINUATION:
            # The same answer continues, with its seam if that has not decided.
            if not self.joined.waits:
                self.joined.seam = self.joined.retractable = None
            return
        joined = self.joined = Joined(
            segment,
            adds=mode in {Mode.RECOVERY, Mode.APPEND_TAIL},
            live_calls=calls_in(self.blocks),
        )
        if mode is Mode.APPEND_TAIL:
            joined.follow = Replay(self.text)
            joined.ran = [*self._ran]
        elif mode is Mode.RECOVERY and not plan.glue:
            joined.apart = plan.apart
            self._stop()
        elif mode is Mode.RECOVERY and (before := self.tail):
            joined.before, joined.anchor, joined.retractable = before, plan.anchor, self.open_text
            unshown = 0
            if joined.retractable is not None:
                joined.retractable.merge_text(joined.retractable.text)  # it will be read often
                unshown = 0 if self.streamed else len(joined.retractable.text)
            joined.seam = Seam(
                before,
                anchor=plan.anchor,
                prefilled=plan.prefilled,
                unshown=unshown,
                hold=plan.hold,
            )

    def revert(self) -> None:
        """Forget the attempt joined last; what the one before holds may still be shown."""
        self.joined = joined = self._earlier
        joined.seam = joined.follow = joined.retractable = None

    # --- while it is read ------------------------------------------------------------------------

    def show(self) -> None:
        """Show all blocks read so far, the last one as far as it has come."""
        joined, blocks = self.joined, self.joined.segment.blocks
        for block in blocks[joined.next :]:
            self._show(block)
        joined.next = max(joined.next, len(blocks) - 1)

    def _show(self, block: Block) -> None:
        """Show a block as far as it has come, and its end if that has come."""
        if block.closed:
            return
        self._emit(block)
        joined = self.joined
        if block.done and joined.behind and block.kind not in {TEXT, TOOL_CALL}:
            block.closed = True  # a repetition: it was shown with the text that follows it
        if block.done and block.begun:
            block.closed = True
            if block.kind in self._served and not block.cut:
                self._ran.append(block.kind)
            if joined.adds and block.kind == TEXT:
                if joined.waits:
                    return  # the anchor may continue in another text, after thinking
                self._end_text()
            if self.open is not None and self.open.kind == block.kind:
                self._stop()  # but not a call that was shown live, which may be continued

    def _emit(self, block: Block) -> None:
        """Show what has come of a block, by the rules of its attempt."""
        joined, kind = self.joined, block.kind
        if joined.adds and kind in THINKING:
            return
        if kind in joined.ran and not block.begun:
            joined.ran.remove(kind)
            block.closed = True
            return
        if joined.adds and block.sealed:
            # A signed block is shown as it is; if its beginning is dropped, so is its signature.
            if block.begun or (kind != TEXT and (joined.waits or joined.behind)):
                return
            text = joined.feed(block.text) if kind == TEXT else ""
            # A text that occurs in the text before may be a part of the repeated anchor.
            half = joined.waits and block.text.strip() in joined.before
            if kind == TEXT and joined.seam is not None and not half:
                text += joined.seam.finish()
            if text == block.text:
                self._write("")
                self._emit_plain(block)
            else:
                block.begun, block.shown = True, len(block.deltas)
                self._write(text)
        elif joined.adds and kind == TEXT:
            self._emit_text(block)
        elif kind == TOOL_CALL or not (joined.behind or joined.live_calls):
            # If a call was shown live, the blocks before it were shown as well.
            if joined.adds:
                self._end_text()
            self._emit_plain(block)

    def _emit_plain(self, block: Block) -> None:
        """Show a block as it is."""
        joined = self.joined
        if not block.begun:
            self._start(block)
            block.begun = True
            joined.source, joined.target = block, self.blocks[-1]
        # Another block may have begun since; then this block's rest must not be added to that one.
        if joined.source is block and joined.target is self.open:
            for delta in block.deltas[block.shown :]:
                self.delta(delta)
        block.shown = len(block.deltas)

    # --- text that is joined to other text -------------------------------------------------------

    def _emit_text(self, block: Block) -> None:
        """Show what has come of a text, joined to the text before it."""
        joined, deltas = self.joined, block.deltas[block.shown :]
        if not block.begun:
            block.begun = True
            if joined.text is not None and joined.text.phase != block.phase:
                self._end_text()  # a text of another phase does not continue it
            joined.text, joined.start = block, joined.fed
            phase = self.open_text.phase if self.open_text is not None else ""
            if phase and block.phase not in {"", phase}:
                self._stop()
            deltas.insert(0, {"type": "text_delta", "text": block.start.get("text")})
        for delta in deltas:
            if delta.get("type") == "text_delta":
                if piece := as_text(delta.get("text")):
                    joined.fed += len(piece)
                    self._write(joined.feed(piece))
            elif not joined.behind:  # otherwise it belongs to text that was shown
                joined.annotations.append((joined.start, delta))
                if not joined.waits:
                    self.place_annotations()
        block.shown = len(block.deltas)

    def _end_text(self) -> None:
        """End a text: show what its seam still holds."""
        self._write(self.joined.seam.finish() if self.joined.seam is not None else "")
        self.place_annotations()

    def _write(self, piece: str) -> None:
        """Show text that has passed the seam, in the open text block or else in a new one."""
        joined, text = self.joined, self.open_text
        if joined.retractable is not None and joined.seam is not None and joined.seam.verdict:
            joined.retractable = None
            if text is not None and (taken := joined.seam.verdict.taken_back):
                assert not self.streamed
                text.merge_text(text.text[:-taken])
        if not piece:
            return
        if text is None:
            like = joined.text.start if joined.text is not None else {}
            self._start(Block({**like, "type": TEXT, "text": ""}))
            if joined.apart and self.text.strip():  # most programs join all text of an answer
                joined.apart, piece = False, f"\n\n{piece}"
            self.place_annotations(len(piece))
        self.delta({"type": "text_delta", "text": piece})

    def place_annotations(self, ahead: int = 0) -> None:
        """Write the kept deltas on places in a text, if a text block is open for them.

        `by` moves their places by the text before. `ahead`: characters about to be written there.
        """
        joined, target = self.joined, self.open_text
        if target is None or not joined.annotations:
            return
        annotations, joined.annotations = joined.annotations, []
        for start, delta in annotations:
            by = len(target.text) + ahead - (joined.fed - start)
            placed = {**delta, "by": by} if by else delta
            if joined.follow is None or placed not in target.deltas:  # if not a repetition
                self.delta(placed)

    @property
    def run(self) -> Block | None:
        """The attempt's text block to which `more` may add; `None`: there is none."""
        joined = self.joined
        blocks, target = joined.segment.blocks, self.open_text
        block = blocks[-1] if blocks else None
        if block is None or target is None or block.kind != TEXT or block.sealed:
            return None
        if block.done or block.closed or not block.begun or block.shown < len(block.deltas):
            return None
        if joined.adds:
            settled = joined.text is block and joined.retractable is None and not joined.annotations
            return block if settled and not (joined.waits or joined.behind) else None
        return block if joined.source is block and joined.target is target else None

    def more(self, block: Block, delta: Json) -> None:
        """Show one more text delta of the block `run`, as `show` would."""
        joined, text = self.joined, as_text(delta["text"])
        block.deltas.append(delta)
        block.shown += 1
        if joined.adds:
            joined.fed += len(text)
            if (seam := joined.seam) is not None:
                passed = seam.feed(text)
                if passed != text:
                    text = passed
                    delta = {"type": "text_delta", "text": text}
        if text:
            self.delta(delta)

    # --- when it has ended -----------------------------------------------------------------------

    @property
    def held(self) -> Block | None:
        """The visible text block at the end of an attempt without calls, if it is not all shown.

        `None`: there is none. Thinking, and signed blocks that are not text, may follow it.
        """
        joined, blocks = self.joined, self.joined.segment.blocks
        last, at = None, len(blocks)
        while last is None and at:
            at -= 1
            if blocks[at].kind == TEXT or not (blocks[at].sealed or blocks[at].kind in THINKING):
                last = blocks[at]
        if last is None or last.kind != TEXT or last.closed or joined.segment.calls:
            return None
        if last.begun and last.shown == len(last.deltas):
            return None
        texts = [b.text for b in blocks[joined.next : at] if b.kind == TEXT and not b.begun]
        return last if last.text and "".join([*texts, last.text]).strip() else None

    def flush_held(self) -> None:
        """Show text that was held only because of what followed it in the same event."""
        if (last := self.held) is not None:
            joined, blocks = self.joined, self.joined.segment.blocks
            at = blocks.index(last)
            for block in blocks[joined.next : at]:
                self._show(block)
            joined.next = at
            self._emit(last)

    def finish_text(self, *, ended: bool, refused: bool = False) -> None:
        """Show what the seam still holds at the attempt's end.

        `ended`: it ended normally; `refused`: with a refusal.
        """
        joined, segment = self.joined, self.joined.segment
        for block in segment.blocks if joined.waits else ():
            if block.kind == TEXT:
                if not block.begun:
                    self._emit(block)  # only white space, else the gate had shown it
                break
        if joined.seam is not None and joined.next < len(segment.blocks):
            # If it broke off inside the repeated anchor, the rest may still come, so it stays held.
            # Not if a call followed: then the text has ended, and must be shown before the call.
            asked = joined.waits and joined.anchor is not None and not segment.calls
            if ended or not (asked and segment.text.strip() in joined.before):
                named = as_text(segment.delta.get("stop_sequence"))
                self._write(joined.seam.finish(named, refused=refused))

    def leave(self) -> None:
        """Show held text, and items that the provider ran, now that another attempt continues."""
        joined, blocks = self.joined, self.joined.segment.blocks
        joined.seam = joined.follow = joined.retractable = None
        self.flush_held()
        finished, ran = list[Block](), False
        for block in blocks:
            kind = block.kind
            if block.done and not block.closed and kind != TOOL_CALL and answered(block, blocks):
                finished.append(block)
                ran = ran or kind not in THINKING | {TEXT}
        if ran:
            while finished[-1].kind in THINKING:
                finished.pop()
            for block in finished:
                self._show(block)

    # --- when the turn has ended -----------------------------------------------------------------

    def release(self, cut_call: str | None, *, ended: bool) -> None:
        """Show what is held and fit to be shown; `ended`: the last attempt ended normally.

        `cut_call`: the policy `truncated_tool_call` for a cut call; `None`: it is left out.
        """
        rest = [block for block in self.joined.segment.blocks if not block.closed]
        cut, fit = list[Block](), list[Block]()
        for block in rest:
            if block.kind == TOOL_CALL and not block.whole(ended=ended):
                cut.append(block)
                if cut_call != "keep":
                    continue  # however the turn ends: half a call is shown only if asked for
            if ended or (block.fit and answered(block, rest)):
                fit.append(block)
        calls = calls_in(fit)
        explained = bool(cut) and cut_call in {"explain", "retry_smaller", "complete"}
        while not (ended or calls or explained) and fit and fit[-1].kind in THINKING:
            fit.pop()  # nothing follows it, and some providers do not accept it back
        if cut:  # the note comes after the text and before the calls that are whole
            for block in [block for block in fit if block.kind != TOOL_CALL]:
                self._show(block)
            if explained or (cut_call == "drop" and not (self.blocks or calls)):
                # Most programs join all text of an answer: make the note a paragraph of its own.
                gap = "\n\n" if self.text.strip() else ""
                note = cut_call_note(as_text(cut[-1].start.get("name")), len(cut[-1].arguments))
                self.begin_text(gap + note)
                self._stop()
            fit = calls
        for block in fit:
            self._release(block)

    def _release(self, block: Block) -> None:
        """Show a block to its end; of a call that repeats one shown live, only what that lacks.

        If the call was shown whole, the arguments must be the same JSON, not the same text.
        """
        if block.kind != TOOL_CALL:
            self._show(block)
            return
        block.closed = True
        for live in () if block.begun else self.joined.live_calls:
            rest = live.rest_of(block)
            if rest is None or (rest and live is not self.open):
                continue
            self.joined.live_calls.remove(live)
            block.begun = True
            if rest:
                self.delta({"type": "input_json_delta", "partial_json": rest})
            if live is self.open:
                self._stop()
            return
        self._emit_plain(block)  # by policy its beginning may have been shown already
        self._stop()
