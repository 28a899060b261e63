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
* *Takeable*: it is in `blocks`, but the caller reads no stream. So a seam may have the end of the
  open text back, until it has decided. What was streamed is never taken back.

Who calls what, and when. The `MessageBuilder` reads; it never writes a byte for the caller.

    begin        an attempt's opening was read: the first one is the caller's
    join         another answer is about to be read; `resume` says how it goes on from here
    hop          the same answer is about to go on in another response
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
pass only what comes after. A `TextSplicer` has one of the two, or neither. What a delta says of
*places* in a text (citations, annotations) is kept aside until the seam tells where they are.

Calls are held until the end of the turn, unless policy shows them live. Arguments that were shown
can be gone on with but never changed; so a later call is the repetition of a shown one if it begins
with exactly what was shown, and then only its rest goes out (`_repeats_live_call`).

The invariants, each held in one place:

1. What was streamed, joined, is the final text: `delta` is the only way into a block, and writes
   what it keeps; `_take_back` refuses where there is a stream.
2. At most one block is open, the last: `_start` ends the one before, `delta` refuses a closed one.
3. Half a call never goes out unless it was asked for: calls leave by `_release_call`, for which
   `release` has sorted the cut ones out, or by a gate whose policy is to show them live.
4. There is exactly one terminal event, and nothing behind it: after `end` no block is open, and
   `_start` and `end` refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment, answered
from continuation.answer.wire_codec import Writer
from continuation.prompts import cut_call_note
from continuation.seams.seam import Replay, Seam, Verdict
from continuation.types import Json, Mode, ReplayBuffer, Resume
from continuation.wire.json_values import as_text


class TextSplicer:
    """Lets pass of one attempt's text what goes on from the text before it.

    It knows the two texts and nothing of the caller: where what passes goes is its owner's work.
    """

    def __init__(
        self, seam: Seam | None = None, follow: Replay | None = None, resume: Resume | None = None
    ) -> None:
        self.seam = seam
        """Joins a recovery's text onto the text before it; it may hold the head of it."""
        self._follow = follow
        self._anchor = resume.anchor if resume is not None else None

    def hop(self) -> None:
        """The same answer goes on in another response, and so does a seam it has not decided."""
        if not self.waits:
            self.seam = None

    def drop(self) -> None:
        """What is left of the attempt needs no joining."""
        self.seam = self._follow = None

    @property
    def verdict(self) -> Verdict | None:
        """How the texts meet, once that is decided."""
        return self.seam.verdict if self.seam is not None else None

    @property
    def waits(self) -> bool:
        """Whether how the texts meet is still to be decided."""
        return self.seam is not None and self.seam.verdict is None

    @property
    def stalled(self) -> bool:
        """Whether the attempt only repeats what was there."""
        return self.seam is not None and self.seam.stalled

    @property
    def behind(self) -> bool:
        """Whether the attempt has not yet repeated all that was shown before it."""
        return self._follow is not None and not self._follow.done

    @property
    def follows(self) -> bool:
        """Whether what was shown before is repeated by the attempt."""
        return self._follow is not None

    def feed(self, piece: str) -> str:
        """Take a piece of the text; return what may be shown now."""
        if self._follow is not None:
            passed = self._follow.feed(piece)
            return "" if self._follow.lost else passed
        return piece if self.seam is None else self.seam.feed(piece)

    def whole(self, text: str, before: str) -> str:
        """Return of a text that comes in one piece what may be shown.

        One that is in the text before may be half of what the attempt was asked to repeat first.
        """
        passed = self.feed(text)
        return passed if self.waits and text.strip() in before else passed + self.rest()

    def rest(self) -> str:
        """A text has ended: return what is still held of it."""
        return self.seam.finish() if self.seam is not None else ""

    def repeats(self, text: str, before: str) -> bool:
        """Whether all that came is part of the repetition that was asked for, and perhaps half."""
        return self._anchor is not None and self.waits and text.strip() in before


@dataclass(slots=True, eq=False)
class Joined:
    """One attempt on its way to the caller: how far it has come, and by which rules."""

    segment: Segment
    splicer: TextSplicer
    adds: bool
    """It adds to text of an earlier attempt."""
    live_calls: list[Block]
    """Calls that the caller has had, live, of earlier attempts, and that this may repeat."""
    before: str = ""
    """The text that the seam joins its text to."""
    takeable: Block | None = None
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
    """...how many characters of it went through the splicer..."""
    asides: list[Json] = field(default_factory=list[Json])
    """...and what is said of places in it, until it is known where they are."""


class ClientStream:
    """The caller's answer: blocks with dense indices, written as the format has them."""

    def __init__(self, writer: Writer, *, streamed: bool) -> None:
        self.streamed = streamed
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.replay: ReplayBuffer | None = None
        self.joined = Joined(Segment(), TextSplicer(), adds=False, live_calls=[])
        """The attempt under way."""
        self._muted = False
        """The caller has had what is told now as the provider's own bytes."""
        self._ended = False
        self._closing_delta: Json = {}
        self._writer = writer
        self._out: list[bytes] = []

    # --- the caller's blocks: all that changes them, and all that is written --------------------

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return out

    @property
    def _writing(self) -> bool:
        return self.streamed and not self._muted

    def begin(self, message: Json) -> None:
        """Open the message; only the first opening is the caller's."""
        if not self.message:
            self.message.update(message)  # in place: it is open for streams begun anew as well
            if self._writing:
                self._out.append(self._writer.open(message))

    def pass_on(self, event: Json) -> None:
        """Pass an event on as it is."""
        if self._writing:
            self._out.append(self._writer.other(event))

    def comment(self) -> None:
        """Keep the caller's connection alive, as the provider keeps ours.

        By a blank line, which every reader skips; a comment is no event to google-genai but JSON.
        """
        if self._writing:
            self._out.append(b"\n")

    def _start(self, like: Block) -> None:
        """Begin a block like another one, without its deltas."""
        assert not self._ended
        self._stop()
        block = Block(dict(like.start), loose=like.loose, free=like.free, sealed=like.sealed)
        self.blocks.append(block)
        if self._writing:
            self._out.append(self._writer.start(len(self.blocks) - 1, block))
        self._note_closing()

    def delta(self, delta: Json) -> None:
        """Go on in the open block: the only way in which content reaches the caller."""
        block = self.blocks[-1]
        assert not block.done
        block.deltas.append(delta)
        if self.streamed and not self._muted:
            self._out.append(self._writer.delta(len(self.blocks) - 1, block, delta))

    def _stop(self) -> None:
        block = self.open
        if block is None:
            return
        if self._writing:
            self._out.append(self._writer.stop(len(self.blocks) - 1, block))
        block.done = True
        self._note_closing()

    def _take_back(self, characters: int) -> None:
        """Remove the end of the open text."""
        if not characters or self.open_text is None:
            return
        assert not self.streamed
        text = self.open_text.text
        self.open_text.merge_text(text[: len(text) - characters])

    def end(self, delta: Json, usage: Json) -> bytes:
        """Close the message: the terminal event, or the whole body."""
        assert not self._ended
        self._stop()
        self._ended = True
        if not self.streamed:
            return self._writer.body(self.message, self.blocks, delta, usage)
        self._out.append(self._writer.end(self.blocks, delta, usage))
        return self.take()

    def _note_closing(self) -> None:
        """Tell the shell how the answer would be closed here, should our own code fail."""
        if self.replay is not None and self._writing:
            self.replay.closing = self._writer.closing(self.blocks, self._closing_delta)

    def mute(self) -> None:
        """What is told from here on, the caller has had: as the provider's own bytes."""
        self._muted = True

    def unmute(self, delta: Json, events: int) -> None:
        """From here on events are written, behind the `events` of the provider's that went out.

        `delta` is how the message would end now.
        """
        self._muted, self._closing_delta = False, delta
        self._writer.resume(self.message, self.blocks, events)
        self._note_closing()

    def anew(self) -> ClientStream:
        """Return one that stands where this one stood before its first block.

        The two share the writer, which counts what the caller has had: only one goes on to write
        blocks.
        """
        other = ClientStream(self._writer, streamed=self.streamed)
        other.message, other.replay = self.message, self.replay
        other._closing_delta = self._closing_delta
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
        return "".join(block.text for block in self.blocks if block.kind == TEXT)

    @property
    def calls(self) -> list[Block]:
        """The calls that are for the caller to run."""
        return [block for block in self.blocks if block.kind == TOOL_CALL]

    @property
    def tail(self) -> str:
        """The text that a later attempt goes on from: the last, and text right before it."""
        texts, phase = list[str](), None
        for block in reversed(self.blocks):
            if block.kind in THINKING:
                continue  # nobody was told it: the text before it is what was said last
            if block.kind == TEXT:
                phase = block.phase if phase is None else phase
                if block.phase != phase:
                    break
                texts.append(block.text)
            elif not block.sealed:
                break
        return "".join(reversed(texts))

    @property
    def half_call(self) -> bool:
        """Whether the caller has been shown, by policy, a call that is not whole."""
        calls, last = self.calls, self.open
        return self.streamed and (last in calls or any(call.broken for call in calls))

    # --- an attempt begins -----------------------------------------------------------------------

    def join(self, segment: Segment, resume: Resume | None = None) -> None:
        """Begin to take another answer of the provider's; `resume`: how it goes on from here."""
        mode = resume.mode if resume is not None else None
        joined = Joined(
            segment,
            TextSplicer(),
            adds=mode in {Mode.RECOVERY, Mode.APPEND_TAIL},
            live_calls=self.calls,
        )
        if mode is Mode.APPEND_TAIL:
            joined.splicer = TextSplicer(follow=Replay(self.text))
        elif resume is not None and mode is Mode.RECOVERY and not resume.glue:
            self._stop()
        elif resume is not None and mode is Mode.RECOVERY and (before := self.tail):
            joined.before, joined.takeable = before, self.open_text
            unshown = 0
            if joined.takeable is not None:
                joined.takeable.merge_text(joined.takeable.text)  # it is read again and again
                unshown = 0 if self.streamed else len(joined.takeable.text)
            seam = Seam(
                before,
                anchor=resume.anchor,
                prefilled=resume.prefilled,
                unshown=unshown,
                hold=resume.hold,
            )
            joined.splicer = TextSplicer(seam, resume=resume)
        self.joined = joined

    def hop(self) -> None:
        """The same answer goes on in another response, and so does a seam it has not decided."""
        self.joined.splicer.hop()
        if self.joined.splicer.seam is None:
            self.joined.takeable = None

    # --- while it is read ------------------------------------------------------------------------

    def show(self) -> None:
        """Show all blocks read so far, the last one as far as it has come."""
        joined, blocks = self.joined, self.joined.segment.blocks
        for block in blocks[joined.next : -1]:
            self._show(block)
        joined.next = max(joined.next, len(blocks) - 1)
        if blocks:
            self._show(blocks[-1])

    def _show(self, block: Block) -> None:
        """Show a block as far as it has come, and its end if that has come."""
        if block.closed:
            return
        self._emit(block)
        joined = self.joined
        if block.done and joined.splicer.behind and block.kind not in {TEXT, TOOL_CALL}:
            block.closed = True  # it stands before text that was shown, and so was shown with it
        if block.done and block.begun:
            block.closed = True
            if joined.adds and block.kind == TEXT:
                if joined.splicer.waits:
                    return  # what it is asked to repeat may go on in another text, behind a thought
                self._end_text()
            if self.open is not None and self.open.kind == block.kind:
                self._stop()  # not a call that was shown live, and may go on

    def _emit(self, block: Block) -> None:
        """Show of a block what has come of it, by the rules of its attempt."""
        joined, kind = self.joined, block.kind
        if joined.adds and kind in THINKING:
            return
        if joined.adds and block.sealed:
            self._emit_sealed(block)
        elif joined.adds and kind == TEXT:
            self._emit_text(block)
        elif kind == TOOL_CALL or not (joined.splicer.behind or joined.live_calls):
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

    def _emit_sealed(self, block: Block) -> None:
        """Show what is signed as it is; where its head has to go, so does its signature."""
        splicer = self.joined.splicer
        if block.begun or (block.kind != TEXT and (splicer.waits or splicer.behind)):
            return
        text = splicer.whole(block.text, self.joined.before) if block.kind == TEXT else ""
        if text == block.text:
            self._write("")
            self._emit_plain(block)
        else:
            block.begun, block.shown = True, len(block.deltas)
            self._write(text)

    # --- text that goes on from other text -------------------------------------------------------

    def _emit_text(self, block: Block) -> None:
        """Show of a text what has come of it, in the text before it."""
        joined = self.joined
        if not block.begun:
            block.begun = True
            self._begin_text(block)
            self._feed(as_text(block.start.get("text")))
        for delta in block.deltas[block.shown :]:
            if delta.get("type") == "text_delta":
                self._feed(as_text(delta.get("text")))
            elif not joined.splicer.behind:  # else it is of text that was shown
                joined.asides.append(delta)
                if not joined.splicer.waits:
                    self.place_asides()
        block.shown = len(block.deltas)

    def _begin_text(self, block: Block) -> None:
        joined = self.joined
        if joined.text is not None and joined.text.phase != block.phase:
            self._end_text()  # a text of another phase is no rest of it
        joined.text, joined.fed, joined.asides = block, 0, []
        phase = self.open_text.phase if self.open_text is not None else ""
        if phase and block.phase not in {"", phase}:
            self._stop()

    def _feed(self, piece: str) -> None:
        if piece:
            self.joined.fed += len(piece)
            self._write(self.joined.splicer.feed(piece))

    def _end_text(self) -> None:
        """A text has ended: show what its seam still holds."""
        self._write(self.joined.splicer.rest())
        self.place_asides()

    def _write(self, piece: str) -> None:
        """Show text that has passed: in the open text, or in one like the attempt's."""
        joined = self.joined
        if joined.takeable is not None and joined.splicer.verdict is not None:
            self._take_back(joined.splicer.verdict.taken_back)
            joined.takeable = None
        if not piece:
            return
        if self.open_text is None:
            like = joined.text.start if joined.text is not None else {}
            self._start(Block({**like, "type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": piece})

    def place_asides(self) -> None:
        """Show what is said of a text; `by`: how far on in the turn's text its places are."""
        joined, target = self.joined, self.open_text
        asides, joined.asides = joined.asides, []
        if target is None:
            return
        by = len(target.text) - joined.fed if asides else 0
        for delta in asides:
            placed = {**delta, "by": by} if by else delta
            if not joined.splicer.follows or placed not in target.deltas:  # else it is told again
                self.delta(placed)

    @property
    def run(self) -> Block | None:
        """The attempt's text that flows: `more` of it may be shown as it comes, if there is any."""
        joined = self.joined
        blocks, target, splicer = joined.segment.blocks, self.open_text, joined.splicer
        block = blocks[-1] if blocks else None
        if block is None or target is None or block.kind != TEXT or block.sealed:
            return None
        if block.done or block.closed or not block.begun or block.shown < len(block.deltas):
            return None
        if joined.adds:
            settled = joined.text is block and joined.takeable is None and not joined.asides
            return block if settled and not (splicer.waits or splicer.behind) else None
        return block if joined.source is block and joined.target is target else None

    def more(self, block: Block, delta: Json, text: str) -> bool:
        """Show one more piece of the text that flows, as `show` would; whether it stalls."""
        block.deltas.append(delta)
        block.shown += 1
        joined, passed = self.joined, text
        if joined.adds:
            joined.fed += len(text)
            if (seam := joined.splicer.seam) is not None:
                passed = seam.feed(text)
                if passed != text:
                    delta = {"type": "text_delta", "text": passed}
                if seam.stalled:
                    return True
        if passed:
            self.delta(delta)
        return False

    # --- when it has ended -----------------------------------------------------------------------

    @property
    def held(self) -> str:
        """Visible text at the attempt's end that has not been shown, with no call beside it."""
        segment = self.joined.segment
        blocks, at = segment.blocks, self._last_visible
        last = blocks[at] if blocks else None
        if last is None or last.kind != TEXT or segment.calls or last.closed:
            return ""
        if last.shown == len(last.deltas) and last.begun:
            return ""
        earlier = blocks[self.joined.next : at]
        before = (b.text for b in earlier if b.kind == TEXT and not b.begun)
        return last.text if "".join((*before, last.text)).strip() else ""

    @property
    def open_tail(self) -> str:
        """The visible text that a recovery would go on from, what is still held with it."""
        tail, held = self.tail, self.held
        if not (tail and held):
            return tail or held
        block = self.joined.segment.blocks[self._last_visible]
        if not block.begun:
            return tail + held
        pieces = (d for d in block.deltas[block.shown :] if d.get("type") == "text_delta")
        return tail + "".join(as_text(delta.get("text")) for delta in pieces)

    @property
    def _last_visible(self) -> int:
        """Place of the last block that is no thinking; what is under a signature alone is none."""
        blocks = self.joined.segment.blocks
        visible = (
            n
            for n in reversed(range(len(blocks)))
            if blocks[n].kind == TEXT or not (blocks[n].sealed or blocks[n].kind in THINKING)
        )
        return next(visible, 0)

    def flush_held(self) -> None:
        """Show text that was held only because of what came behind it in one event."""
        if not self.held:
            return
        joined, last = self.joined, self._last_visible
        for block in joined.segment.blocks[joined.next : last]:
            self._show(block)
        joined.next = last
        self._emit(joined.segment.blocks[last])

    def finish_text(self, *, ended: bool) -> None:
        """The attempt's text has ended, or broke off: show what its seam still holds."""
        joined = self.joined
        blocks = joined.segment.blocks
        first = next((block for block in blocks if block.kind == TEXT), None)
        if joined.splicer.waits and first is not None and not first.begun:
            self._emit(first)  # nothing but white space, or the gate had let it pass
        if joined.next < len(blocks) and joined.splicer.seam is not None:
            if not ended and joined.splicer.repeats(joined.segment.text, joined.before):
                return  # it broke off while it repeated what it was asked to, and perhaps more
            self._write(joined.splicer.rest())

    def leave(self) -> None:
        """Settle what was left unshown, now that the turn goes on from it."""
        self.forget_seam()
        self.flush_held()
        blocks = self.joined.segment.blocks
        finished = [b for b in blocks if b.done and not b.closed and b.kind != TOOL_CALL]
        finished = [block for block in finished if answered(block, blocks)]
        if any(block.kind not in THINKING | {TEXT} for block in finished):
            while finished[-1].kind in THINKING:
                finished.pop()
            for block in finished:
                self._show(block)

    def forget_seam(self) -> None:
        """What is left of the attempt needs no joining."""
        self.joined.splicer.drop()
        self.joined.takeable = None

    # --- when the turn has ended -----------------------------------------------------------------

    def release(self, cut_call: str | None, *, ended: bool) -> None:
        """Show what is held and fit to be seen; `ended`: the last attempt ended as it should.

        `cut_call`: the policy `truncated_tool_call`, where a call may be said to be cut.
        """
        rest = [block for block in self.joined.segment.blocks if not block.closed]
        cut = [block for block in rest if block.kind == TOOL_CALL and not block.whole(ended=ended)]
        # Whatever ends the turn: half a call goes out only if the caller asked for it.
        lost = [] if cut_call == "keep" else cut
        fit = [block for block in rest if block not in lost]
        if not ended:
            fit = [block for block in fit if block.fit and answered(block, rest)]
        calls = [block for block in fit if block.kind == TOOL_CALL]
        explained = bool(cut) and cut_call in {"explain", "retry_smaller"}
        while not (ended or calls or explained) and fit and fit[-1].kind in THINKING:
            fit.pop()  # it leads nowhere, and some providers would not take it back
        if cut:  # a note stands between what was said and the calls that are whole
            self._release([block for block in fit if block.kind != TOOL_CALL])
            silent = cut_call == "drop" and not (self.blocks or calls)
            if explained or silent:
                self._explain(cut[-1])
            fit = calls
        self._release(fit)

    def _release(self, blocks: list[Block]) -> None:
        """Show blocks to their end; calls, which a recovery holds back, as well."""
        for block in blocks:
            if block.kind == TOOL_CALL:
                self._release_call(block)
            else:
                self._show(block)

    def _release_call(self, call: Block) -> None:
        if not call.begun and self._repeats_live_call(call):
            call.begun = True
        else:
            self._emit_plain(call)  # by policy its beginning may have gone out as it came
            self._stop()
        call.closed = True

    def _repeats_live_call(self, call: Block) -> bool:
        """Whether a whole call repeats one that was shown live; what that lacks is shown now.

        Of a call that was shown whole the JSON has to be the same, not its text.
        """
        for live in self.joined.live_calls:
            rest = live.rest_of(call)
            if rest is None or (rest and live is not self.open):
                continue
            self.joined.live_calls.remove(live)
            if rest:
                self.delta({"type": "input_json_delta", "partial_json": rest})
            if live is self.open:
                self._stop()
            return True
        return False

    def _explain(self, call: Block) -> None:
        """Say in a text of its own which call was cut, and how far it had come."""
        note = cut_call_note(as_text(call.start.get("name")), len(call.arguments))
        # Most readers join all text of an answer; the note is a paragraph of its own in it.
        gap = "\n\n" if self.text.strip() else ""
        self._start(Block({"type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": gap + note})
        self._stop()
