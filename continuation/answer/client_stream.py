"""What the caller has been shown, what is held, and what may still be taken back: the one owner.

Theory of operation
-------------------
The caller asked once and reads one answer. We may need several attempts for it, each a `Segment`
of blocks that grows as its bytes are read. Between the two stands one `ClientStream`:

     attempt 1   [text .........][call .. cut              } segments: what was read, event by
     attempt 2        [text ........][call ...........]    } event, by the `MessageBuilder`
                            |
                            |  show: the gate says that all read so far may go out
                            |  release: the turn is over, what is held and fit goes out
                            v
     caller      [text .........|........][call ....... ] end
                  shown          ^ seam     held until here

A character, or a piece of a call, is in one of three states.

* *Shown*: it is in `blocks`. If the caller reads a stream it was written at that moment, for good.
* *Held*: it is in the attempt's segment, and not in `blocks`. How far each block of an attempt was
  shown stands on the block (`begun`, `shown`, `closed`), and nobody but this module writes it.
  Three things hold: the gate, which has not let it pass (thinking that may lack its signature, a
  call that may lack its brace); the seam, which has not decided how two texts meet; and policy,
  which lets calls wait for the end of the message.
* *Retractable*: it is in `blocks`, but the caller reads no stream. So a seam may take back the end
  of the open text, until it has decided. What was streamed is never taken back.

Who calls what, and when. The `MessageBuilder` reads; it never writes a byte for the caller.

    begin        an attempt's opening was read: the first one is the caller's
    join         another response is about to be read; `resume` says how it goes on from here
    revert       ... and came to nothing
    show         the gate: all that was read of the attempt so far may be shown
    run, more    the same for the common case, one more piece of the text that flows
    flush_held,  the attempt has ended: what was held only because of what stood behind it, and
    finish_text  what its seam still holds
    leave        the turn goes on in a later attempt: settle what this one left
    release,     the turn has ended: what is held and fit to be seen, then the terminal event, or
    end          the whole body

How an attempt's text finds its place depends on the attempt. The first one, one that replaces it,
and one that the provider itself continues are shown as they are (`_emit_plain`). A recovery
(`Mode.RECOVERY`) was asked to go on from the last text and often repeats some of it: its text goes
through a `Seam`, which holds the head until it knows what to drop. An answer that was generated
again behind one that was shown (`Mode.APPEND_TAIL`) says first what the caller has: `Replay` lets
pass only what comes after. An attempt (`Joined`) has one of the two, or neither. What a delta says
of *places* in a text (citations, annotations) is kept aside until the seam tells where they are.

Calls are held until the end of the turn, unless policy shows them live. Arguments that were shown
can be gone on with but never changed; so a later call is the repetition of a shown one if it begins
with exactly what was shown, and then only its rest goes out (`_release`).

The invariants, each held in one place:

1. What was streamed, joined, is the final text: `delta` is the only way into a block, and writes
   what it keeps; `_write`, which takes text back, refuses to where there is a stream.
2. At most one block is open, the last: `_start` ends the one before, `delta` refuses a closed one.
3. Half a call never goes out unless it was asked for: calls leave by `_release`, for which
   `release` has sorted the cut ones out, or by a gate whose policy is to show them live.
4. There is exactly one terminal event, and nothing behind it: after `end` no block is open, and
   `_start` and `end` refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment, answered, calls_in
from continuation.answer.wire_codec import Writer
from continuation.prompts import cut_call_note
from continuation.seams.seam import Replay, Seam
from continuation.types import Json, Mode, ReplayBuffer, Resume
from continuation.wire.eventstream import reframed
from continuation.wire.json_values import as_text, dumps


@dataclass(slots=True, eq=False)
class Joined:
    """One attempt on its way to the caller: how far it has come, and by which rules."""

    segment: Segment
    adds: bool = False
    """It adds to text of an earlier attempt."""
    ran: list[str] = field(default_factory=list[str])
    """Types of what the provider ran already, as it was shown, and may run again."""
    live_calls: list[Block] = field(default_factory=list[Block])
    """Calls that the caller has had, live, of earlier attempts, and that this may repeat."""
    seam: Seam | None = None
    """Joins a recovery's text onto the text before it; it may hold the head of it."""
    follow: Replay | None = None
    """Lets pass only what comes behind the text that was shown."""
    anchor: str | None = None
    """The words of the text before that the attempt was asked to repeat first."""
    before: str = ""
    """The text that the seam joins its text to."""
    retractable: Block | None = None
    """The caller's block whose end the seam may take back, until it has decided."""
    next: int = 0
    """The first block that may not have been shown to its end."""
    source: Block | None = None
    """The block that was begun last as it is..."""
    target: Block | None = None
    """...and what it is in the caller's answer."""
    text: Block | None = None
    """The attempt's text that is being joined..."""
    fed: int = 0
    """...how many characters of the attempt went through the seam..."""
    start: int = 0
    """...before it, and with it..."""
    annotations: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])
    """...and deltas on places in it (citations), with its `start`, until the seam has decided."""

    @property
    def waits(self) -> bool:
        """Whether how the texts meet is still to be decided."""
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
    """The caller's answer: blocks with dense indices, written as the format has them."""

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
        """Begin; `muted`: the caller has had what is told now, as the provider's own bytes.

        `framed`: it is an AWS event stream, and what is written becomes one on its way out.
        `served`: types of items that the provider runs itself, and are told once.
        """
        self.streamed = streamed
        self._served = served
        self._ran: list[str] = []
        """The types of those that were shown whole."""
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.joined = self._earlier = Joined(Segment())
        """The attempt under way, and the one before."""
        self._replay = replay
        self._writes = streamed and not muted
        self._framed = framed
        self._ended = False
        self._closing_delta: Json = {}
        self._writer = writer
        self._out: list[bytes] = []

    # --- the caller's blocks: all that changes them, and all that is written --------------------

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return reframed(out) if self._framed else out

    def begin(self, message: Json) -> None:
        """Open the message; only the first opening is the caller's."""
        if not self.message:
            self.message.update(message)  # in place: it is open for streams begun anew as well
            if self._writes:
                self._out.append(self._writer.open(message))

    def begin_text(self, text: str) -> None:
        """Begin with a text that is there already."""
        self._start(Block({"type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": text})

    def pass_on(self, event: Json | None) -> None:
        """Pass an event on as it is; `None`: a comment, which keeps the connection alive.

        A comment goes out as a blank line, which every reader skips: to google-genai it is JSON.
        """
        if self._writes:
            self._out.append(b"\n" if event is None else self._writer.other(event))

    def _start(self, like: Block) -> None:
        """Begin a block like another one, without its deltas."""
        assert not self._ended
        self._stop()
        block = Block(dict(like.start), loose=like.loose, free=like.free, sealed=like.sealed)
        self.blocks.append(block)
        if self._writes:
            self._out.append(self._writer.start(len(self.blocks) - 1, block))
            self._note_closing()

    def delta(self, delta: Json) -> None:
        """Go on in the open block: the only way in which content reaches the caller."""
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
        """Close the message: the terminal event, or the whole body."""
        assert not self._ended
        self._stop()
        self._ended = True
        if not self.streamed:
            return dumps(self._writer.body(self.message, self.blocks, delta, usage))
        self._out.append(self._writer.end(self.blocks, delta, usage))
        return self.take()

    def _note_closing(self) -> None:
        """Tell the shell how the answer would be closed here, should our own code fail."""
        if self._writes:
            closing = self._writer.closing(self.blocks, self._closing_delta)
            self._replay.closing = reframed(closing) if self._framed else closing

    def unmute(self, delta: Json, events: int) -> None:
        """From here on events are written, behind the `events` of the provider's that went out.

        `delta` is how the message would end now.
        """
        self._writes, self._closing_delta = self.streamed, delta
        self._writer.resume(self.message, self.blocks, events)
        self._note_closing()

    def fork(self) -> ClientStream:
        """Return one that stands where this one stood before its first block.

        The two share the writer, which counts what the caller has had: only one goes on to write
        blocks.
        """
        other = ClientStream(
            self._writer,
            self._replay,
            streamed=self.streamed,
            framed=self._framed,
            served=self._served,
        )
        other.message, other._closing_delta = self.message, self._closing_delta
        return other

    # --- what the caller has ---------------------------------------------------------------------

    @property
    def open(self) -> Block | None:
        """The block that has begun and not ended."""
        return self.blocks[-1] if self.blocks and not self.blocks[-1].done else None

    @property
    def open_text(self) -> Block | None:
        """The text that more text can go on in."""
        block = self.open
        return block if block is not None and block.kind == TEXT and not block.sealed else None

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join([block.text for block in self.blocks if block.kind == TEXT])

    @property
    def tail(self) -> str:
        """The text that a later attempt goes on from: the last, and text right before it."""
        tail, phase = "", None
        for block in reversed(self.blocks):
            if block.kind in THINKING:
                continue  # not visible text: what stands before it is the last text
            if block.kind == TEXT:
                phase = block.phase if phase is None else phase
                if block.phase != phase:
                    break
                tail = block.text + tail
            elif not block.sealed:
                break
        return tail

    # --- an attempt begins -----------------------------------------------------------------------

    def join(self, segment: Segment, resume: Resume) -> None:
        """Begin to take another response of the provider's; `resume`: how it goes on from here."""
        mode, self._earlier = resume.mode, self.joined
        if mode is Mode.NATIVE_CONTINUATION:
            # The same answer goes on, and so does a seam that it has not decided.
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
        elif mode is Mode.RECOVERY and not resume.glue:
            self._stop()
        elif mode is Mode.RECOVERY and (before := self.tail):
            joined.before, joined.anchor, joined.retractable = before, resume.anchor, self.open_text
            unshown = 0
            if joined.retractable is not None:
                joined.retractable.merge_text(joined.retractable.text)  # it is read again and again
                unshown = 0 if self.streamed else len(joined.retractable.text)
            joined.seam = Seam(
                before,
                anchor=resume.anchor,
                prefilled=resume.prefilled,
                unshown=unshown,
                hold=resume.hold,
            )

    def revert(self) -> None:
        """Forget the attempt that was joined last; the one before may still show what it holds."""
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
            block.closed = True  # it stands before text that was shown, and so was shown with it
        if block.done and block.begun:
            block.closed = True
            if block.kind in self._served and not block.cut:
                self._ran.append(block.kind)
            if joined.adds and block.kind == TEXT:
                if joined.waits:
                    return  # what it is asked to repeat may go on in another text, behind a thought
                self._end_text()
            if self.open is not None and self.open.kind == block.kind:
                self._stop()  # not a call that was shown live, and may go on

    def _emit(self, block: Block) -> None:
        """Show of a block what has come of it, by the rules of its attempt."""
        joined, kind = self.joined, block.kind
        if joined.adds and kind in THINKING:
            return
        if kind in joined.ran and not block.begun:
            joined.ran.remove(kind)
            block.closed = True
            return
        if joined.adds and block.sealed:
            # What is signed goes out as it is; where its head has to go, so does its signature.
            if block.begun or (kind != TEXT and (joined.waits or joined.behind)):
                return
            text = joined.feed(block.text) if kind == TEXT else ""
            # One that is in the text before may be half of what is to be repeated first.
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
            # What stands before a call that was shown live was shown as well.
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
        # What was begun live may have been overtaken: the rest of it belongs to no other block.
        if joined.source is block and joined.target is self.open:
            for delta in block.deltas[block.shown :]:
                self.delta(delta)
        block.shown = len(block.deltas)

    # --- text that goes on from other text -------------------------------------------------------

    def _emit_text(self, block: Block) -> None:
        """Show of a text what has come of it, in the text before it."""
        joined, deltas = self.joined, block.deltas[block.shown :]
        if not block.begun:
            block.begun = True
            if joined.text is not None and joined.text.phase != block.phase:
                self._end_text()  # a text of another phase is no rest of it
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
            elif not joined.behind:  # else it is of text that was shown
                joined.annotations.append((joined.start, delta))
                if not joined.waits:
                    self.place_annotations()
        block.shown = len(block.deltas)

    def _end_text(self) -> None:
        """A text has ended: show what its seam still holds."""
        self._write(self.joined.seam.finish() if self.joined.seam is not None else "")
        self.place_annotations()

    def _write(self, piece: str) -> None:
        """Show text that has passed: in the open text, or in one like the attempt's."""
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
            self.place_annotations(len(piece))
        self.delta({"type": "text_delta", "text": piece})

    def place_annotations(self, ahead: int = 0) -> None:
        """Write the deltas on places in a text, moved `by` as far as the turn's text is longer.

        They wait for a text to stand in. `ahead`: characters that are about to follow there.
        """
        joined, target = self.joined, self.open_text
        if target is None or not joined.annotations:
            return
        annotations, joined.annotations = joined.annotations, []
        for start, delta in annotations:
            by = len(target.text) + ahead - (joined.fed - start)
            placed = {**delta, "by": by} if by else delta
            if joined.follow is None or placed not in target.deltas:  # else it is a repetition
                self.delta(placed)

    @property
    def run(self) -> Block | None:
        """The attempt's text that flows: `more` of it may be shown as it comes, if there is any."""
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
        """Show one more piece of the text that flows, as `show` would."""
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
        """The visible text at the attempt's end, with no call beside it, if the caller lacks of it.

        Thinking, and what is under a signature alone, may stand behind it.
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
        """Show text that was held only because of what came behind it in one event."""
        if (last := self.held) is not None:
            joined, blocks = self.joined, self.joined.segment.blocks
            at = blocks.index(last)
            for block in blocks[joined.next : at]:
                self._show(block)
            joined.next = at
            self._emit(last)

    def finish_text(self, *, ended: bool) -> None:
        """The attempt's text has ended, or broke off: show what its seam still holds."""
        joined, segment = self.joined, self.joined.segment
        for block in segment.blocks if joined.waits else ():
            if block.kind == TEXT:
                if not block.begun:
                    self._emit(block)  # only white space, or the gate had let it pass
                break
        if joined.seam is not None and joined.next < len(segment.blocks):
            # Where it broke off while it repeated what it was asked to, there may be more of that,
            # but not behind a call: text that ended there is the caller's before the call is.
            asked = joined.waits and joined.anchor is not None and not segment.calls
            if ended or not (asked and segment.text.strip() in joined.before):
                self._write(joined.seam.finish(as_text(segment.delta.get("stop_sequence"))))

    def leave(self) -> None:
        """Settle what was left unshown, now that the turn goes on from it."""
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
        """Show what is held and fit to be seen; `ended`: the last attempt ended as it should.

        `cut_call`: the policy `truncated_tool_call`, where a call may be said to be cut.
        """
        rest = [block for block in self.joined.segment.blocks if not block.closed]
        cut, fit = list[Block](), list[Block]()
        for block in rest:
            if block.kind == TOOL_CALL and not block.whole(ended=ended):
                cut.append(block)
                if cut_call != "keep":
                    continue  # whatever ends the turn: half a call goes out only if asked for
            if ended or (block.fit and answered(block, rest)):
                fit.append(block)
        calls = calls_in(fit)
        explained = bool(cut) and cut_call in {"explain", "retry_smaller", "complete"}
        while not (ended or calls or explained) and fit and fit[-1].kind in THINKING:
            fit.pop()  # it leads nowhere, and some providers would not take it back
        if cut:  # a note stands between what was said and the calls that are whole
            for block in [block for block in fit if block.kind != TOOL_CALL]:
                self._show(block)
            if explained or (cut_call == "drop" and not (self.blocks or calls)):
                # Most readers join all text of an answer; the note is a paragraph of its own in it.
                gap = "\n\n" if self.text.strip() else ""
                note = cut_call_note(as_text(cut[-1].start.get("name")), len(cut[-1].arguments))
                self.begin_text(gap + note)
                self._stop()
            fit = calls
        for block in fit:
            self._release(block)

    def _release(self, block: Block) -> None:
        """Show a block to its end; of a call that repeats one that was shown live, what that lacks.

        Of a call that was shown whole the JSON has to be the same, not its text.
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
        self._emit_plain(block)  # by policy its beginning may have gone out as it came
        self._stop()
