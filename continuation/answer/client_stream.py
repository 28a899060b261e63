"""The only owner of the caller's answer: what is delivered, buffered, or may be retracted.

Theory of operation
-------------------
The caller sent one request and reads one answer. That may take several attempts. Each attempt is a
`Segment` of blocks, which grows as its bytes are read. One `ClientStream` joins the segments to the
caller's answer:

     attempt 1   [text .........][call .. cut              } segments: what was read, event by
     attempt 2        [text ........][call ...........]    } event, by the `MessageBuilder`
                            |
                            |  show: the gate allows delivery of all that was read so far
                            |  release: the turn has ended; deliver what is buffered and fit
                            v
     caller      [text .........|........][call ....... ] end
                  delivered      ^ seam     buffered until here

A character, or a piece of a call, is in one of three states.

* *Shown* (delivered): it is in `blocks`. If the caller reads a stream, it was written at that
  moment and cannot be retracted.
* *Held* (buffered): it is in the attempt's segment, but not in `blocks`. Each block of an attempt
  notes how far it was delivered (`begun`, `shown`, `closed`), and only this module writes that.
  Three things buffer content. The gate has not allowed it yet: thinking may lack its signature, a
  call may lack its last brace. The seam has not decided yet how two texts meet. Or the policy
  delivers calls only at the end of the message.
* *Retractable*: it is in `blocks`, but the caller reads no stream. So a seam may remove the end of
  the open text, until it has decided. Streamed text is never removed.

What is called when. The `MessageBuilder` reads. It never writes a byte for the caller.

    begin        an attempt's opening was read; the first one is delivered
    join         another response is about to be read; `plan` says how it joins the answer
    revert       that response was useless
    show         the gate allows delivery of all that was read of the attempt so far
    run, more    the same for the common case: one more piece of a text that is being delivered
    flush_held,  the attempt has ended: deliver what was buffered only because of what followed it,
    finish_text  and what its seam still buffers
    leave        a later attempt continues the turn: settle what this one left
    release,     the turn has ended: deliver what is buffered and fit, then the terminal event, or
    end          the complete body

How an attempt's text is placed depends on the attempt. The first attempt, one that replaces it, and
the provider's own continuation are delivered unchanged (`_emit_plain`). A recovery
(`Mode.RECOVERY`) was asked to continue the last text, and often repeats some of it. Its text passes
through a `Seam`, which buffers the beginning until it knows what to drop. An answer that is
generated again after delivery (`Mode.APPEND_TAIL`) begins with text that the caller has. `Replay`
passes only the text after that. An attempt (`Joined`) has one of the two, or neither. Deltas about
*places* in a text (citations, annotations) are kept until the seam has decided where these are.

Calls are buffered until the end of the turn, unless the policy delivers them live. Delivered
arguments can be continued but never changed. A later call repeats a delivered one if it begins with
exactly the delivered arguments. Then only its rest is delivered (`_release`).

The invariants, and the one place that keeps each:

1. The streamed pieces, joined, are the final text. `delta` is the only way into a block, and writes
   what it keeps. `_write`, which removes text, asserts that there is no stream.
2. At most one block is open, the last one. `_start` ends the block before, and `delta` refuses a
   closed one.
3. Half a call is delivered only if the policy says so. Calls are delivered by `_release`, after
   `release` has removed the truncated ones, or by a gate with a policy that delivers them live.
4. There is exactly one terminal event, and nothing after it. After `end` no block is open, and
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
    """One attempt, and how it joins the caller's answer: how far it is delivered, and how."""

    segment: Segment
    adds: bool = False
    """Whether it adds to the text of an earlier attempt."""
    ran: list[str] = field(default_factory=list[str])
    """Types of delivered items that the provider ran, and which it may run again."""
    live_calls: list[Block] = field(default_factory=list[Block])
    """Calls of earlier attempts that were delivered live. This attempt may repeat them."""
    seam: Seam | None = None
    """Joins a recovery's text to the text before it, and may buffer its beginning."""
    follow: Replay | None = None
    """Passes only the text after the delivered text."""
    anchor: str | None = None
    """The words that the attempt was asked to repeat first, if it was."""
    apart: bool = False
    """The text that comes first begins a paragraph of its own."""
    before: str = ""
    """The text to which the seam joins the attempt's text."""
    retractable: Block | None = None
    """The caller's block from which the seam may remove text; `None` once it has decided."""
    next: int = 0
    """Index of the first block that is perhaps not delivered to its end."""
    source: Block | None = None
    """The attempt's last block that began without a seam."""
    target: Block | None = None
    """The caller's block that `source` became."""
    text: Block | None = None
    """The attempt's text block that is being joined."""
    fed: int = 0
    """Characters of the attempt that have passed the seam, `text` included."""
    start: int = 0
    """Characters of the attempt that had passed the seam when `text` began."""
    annotations: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])
    """Deltas about places in a text (citations) with its `start`, until the seam has decided."""

    @property
    def waits(self) -> bool:
        """Whether the seam has not yet decided how the texts meet."""
        return self.seam is not None and self.seam.verdict is None

    @property
    def behind(self) -> bool:
        """Whether the attempt has not yet repeated all text that was delivered before it."""
        return self.follow is not None and not self.follow.done

    def feed(self, piece: str) -> str:
        """Process a piece of the text; return the text to deliver now."""
        if self.follow is not None:
            passed = self.follow.feed(piece)
            return "" if self.follow.lost else passed
        return piece if self.seam is None else self.seam.feed(piece)


class ClientStream:
    """The caller's answer: blocks with consecutive indices, written in the format."""

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

        `muted`: write nothing, because the caller already has these events as the provider's
        bytes. `served`: types of items that the provider runs itself; each is delivered once.
        """
        self.streamed = streamed
        self._served = served
        self._ran: list[str] = []
        """Types of the `served` items that were delivered completely."""
        self.message: Json = {}
        self.blocks: list[Block] = []
        self.joined = self._earlier = Joined(Segment())
        """`joined`: the current attempt; `_earlier`: the one before."""
        self._replay = replay
        self._writes = streamed and not muted
        self.framed = framed
        self._ended = False
        self._closing_delta: Json = {}
        self._writer = writer
        self._out: list[bytes] = []

    # --- the caller's blocks: only these methods change them and write ---------------------------

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        out, self._out = b"".join(self._out), []
        return reframed(out) if self.framed else out

    def begin(self, message: Json) -> None:
        """Open the message. Only the first opening is delivered."""
        if not self.message:
            self.message.update(message)  # in place, because forks share it
            if self._writes:
                self._out.append(self._writer.open(message))

    def begin_text(self, text: str) -> None:
        """Begin a text block with this text."""
        self._start(Block({"type": TEXT, "text": ""}))
        self.delta({"type": "text_delta", "text": text})

    def pass_on(self, event: Json | None) -> None:
        """Pass an event on unchanged; `None`: a comment, which keeps the connection alive.

        A comment is sent as a blank line, which every reader skips. google-genai would parse a
        comment.
        """
        if self._writes:
            self._out.append(b"\n" if event is None else self._writer.other(event))

    def _start(self, like: Block) -> None:
        """End the open block; begin a block like another one, without its deltas."""
        assert not self._ended
        self._stop()
        block = Block(dict(like.start), loose=like.loose, free=like.free, sealed=like.sealed)
        self.blocks.append(block)
        if self._writes:
            self._out.append(self._writer.start(len(self.blocks) - 1, block))
            self._note_closing()

    def delta(self, delta: Json) -> None:
        """Add a delta to the open block. Content reaches the caller only in this way."""
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
        """Close the message; return the last bytes with the terminal event, or the JSON body."""
        assert not self._ended
        self._stop()
        self._ended = True
        if not self.streamed:
            return dumps(self._writer.body(self.message, self.blocks, delta, usage))
        self._out.append(self._writer.end(self.blocks, delta, usage))
        return self.take()

    def _note_closing(self) -> None:
        """Store the bytes that close the answer here, for the shell, in case our own code fails."""
        if self._writes:
            closing = self._writer.closing(self.blocks, self._closing_delta)
            self._replay.closing = reframed(closing) if self.framed else closing

    def unmute(self, delta: Json, events: int) -> None:
        """Write events from here on. `events`: how many of the provider's events were delivered.

        `delta`: the fields with which the message would end now.
        """
        self._writes, self._closing_delta = self.streamed, delta
        self._writer.resume(self.message, self.blocks, events)
        self._note_closing()

    def fork(self) -> ClientStream:
        """Return a client stream without blocks. Its message is open if this one's is.

        The two share the writer, which counts what was delivered. So only one of them may write
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
                continue  # not visible, so the text before it is the last one
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
        """Begin another response of the provider. `plan`: how it joins the answer so far."""
        mode, self._earlier = plan.mode, self.joined
        if mode is Mode.NATIVE_CONTINUATION:
            # The same answer continues, with its seam if that has not decided yet.
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
        """Drop the last attempt. What the one before has buffered may still be delivered."""
        self.joined = joined = self._earlier
        joined.seam = joined.follow = joined.retractable = None

    # --- while it is read ------------------------------------------------------------------------

    def show(self) -> None:
        """Deliver all blocks read so far, the last one as far as it has arrived."""
        joined, blocks = self.joined, self.joined.segment.blocks
        for block in blocks[joined.next :]:
            self._show(block)
        joined.next = max(joined.next, len(blocks) - 1)

    def _show(self, block: Block) -> None:
        """Deliver a block as far as it has arrived, with its end if that has arrived."""
        if block.closed:
            return
        self._emit(block)
        joined = self.joined
        if block.done and joined.behind and block.kind not in {TEXT, TOOL_CALL}:
            block.closed = True  # a repetition: the earlier attempt delivered it
        if block.done and block.begun:
            block.closed = True
            if block.kind in self._served and not block.cut:
                self._ran.append(block.kind)
            if joined.adds and block.kind == TEXT:
                if joined.waits:
                    return  # the anchor may continue in another text, after thinking
                self._end_text()
            if self.open is not None and self.open.kind == block.kind:
                self._stop()  # not a call that was delivered live: it may be continued

    def _emit(self, block: Block) -> None:
        """Deliver what has arrived of a block, by the rules of its attempt."""
        joined, kind = self.joined, block.kind
        if joined.adds and kind in THINKING:
            return
        if kind in joined.ran and not block.begun:
            joined.ran.remove(kind)
            block.closed = True
            return
        if joined.adds and block.sealed:
            # A signed block is delivered unchanged. Without its beginning, it loses its signature.
            if block.begun or (kind != TEXT and (joined.waits or joined.behind)):
                return
            text = joined.feed(block.text) if kind == TEXT else ""
            # If the text before contains this text, it may be a part of the repeated anchor.
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
            # If a call was delivered live, the blocks before it were delivered too.
            if joined.adds:
                self._end_text()
            self._emit_plain(block)

    def _emit_plain(self, block: Block) -> None:
        """Deliver a block unchanged."""
        joined = self.joined
        if not block.begun:
            self._start(block)
            block.begun = True
            joined.source, joined.target = block, self.blocks[-1]
        # If another block has begun since, do not add the rest of this block to that one.
        if joined.source is block and joined.target is self.open:
            for delta in block.deltas[block.shown :]:
                self.delta(delta)
        block.shown = len(block.deltas)

    # --- text that is joined to other text -------------------------------------------------------

    def _emit_text(self, block: Block) -> None:
        """Deliver what has arrived of a text, joined to the text before it."""
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
            elif not joined.behind:  # otherwise it belongs to delivered text
                joined.annotations.append((joined.start, delta))
                if not joined.waits:
                    self.place_annotations()
        block.shown = len(block.deltas)

    def _end_text(self) -> None:
        """End a text: deliver what its seam still buffers."""
        self._write(self.joined.seam.finish() if self.joined.seam is not None else "")
        self.place_annotations()

    def _write(self, piece: str) -> None:
        """Deliver text that has passed the seam, in the open text block or else in a new one."""
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
        """Write the kept deltas about places in a text, if a text block is open for them.

        `by` moves their places by the length of the text before. `ahead`: how many characters are
        about to be written.
        """
        joined, target = self.joined, self.open_text
        if target is None or not joined.annotations:
            return
        annotations, joined.annotations = joined.annotations, []
        for start, delta in annotations:
            by = len(target.text) + ahead - (joined.fed - start)
            placed = {**delta, "by": by} if by else delta
            if joined.follow is None or placed not in target.deltas:  # unless it is a repetition
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
        """Deliver one more text delta of the block `run`, as `show` would."""
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
        """The last visible text block of an attempt without calls, if a part is not delivered.

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
        """Deliver text that was buffered only because of what followed it in the same event."""
        if (last := self.held) is not None:
            joined, blocks = self.joined, self.joined.segment.blocks
            at = blocks.index(last)
            for block in blocks[joined.next : at]:
                self._show(block)
            joined.next = at
            self._emit(last)

    def finish_text(self, *, ended: bool, refused: bool = False) -> None:
        """Deliver what the seam still buffers at the attempt's end.

        `ended`: the attempt ended normally; `refused`: with a refusal.
        """
        joined, segment = self.joined, self.joined.segment
        for block in segment.blocks if joined.waits else ():
            if block.kind == TEXT:
                if not block.begun:
                    self._emit(block)  # only white space, which the gate had not allowed
                break
        if joined.seam is not None and joined.next < len(segment.blocks):
            # If it broke off inside the repeated anchor, keep it, because the rest may still
            # arrive. But if a call follows, the text has ended, and must be delivered before it.
            asked = joined.waits and joined.anchor is not None and not segment.calls
            if ended or not (asked and segment.text.strip() in joined.before):
                named = as_text(segment.delta.get("stop_sequence"))
                self._write(joined.seam.finish(named, refused=refused))

    def leave(self) -> None:
        """Deliver buffered text, and items that the provider ran. Another attempt continues."""
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
        """Deliver what is buffered and fit. `ended`: the last attempt ended normally.

        `cut_call`: the policy `truncated_tool_call` for a truncated call; `None`: drop the call.
        """
        rest = [block for block in self.joined.segment.blocks if not block.closed]
        cut, fit = list[Block](), list[Block]()
        for block in rest:
            if block.kind == TOOL_CALL and not block.whole(ended=ended):
                cut.append(block)
                if cut_call != "keep":
                    continue  # half a call is delivered only if the policy says so
            if ended or (block.fit and answered(block, rest)):
                fit.append(block)
        calls = calls_in(fit)
        explained = bool(cut) and cut_call in {"explain", "retry_smaller", "complete"}
        while not (ended or calls or explained) and fit and fit[-1].kind in THINKING:
            fit.pop()  # nothing follows it, and some providers refuse that in a request
        if cut:  # the note comes after the text and before the complete calls
            for block in [block for block in fit if block.kind != TOOL_CALL]:
                self._show(block)
            if explained or (cut_call == "drop" and not (self.blocks or calls)):
                # Most programs join all text of an answer, so make the note a separate paragraph.
                gap = "\n\n" if self.text.strip() else ""
                note = cut_call_note(as_text(cut[-1].start.get("name")), len(cut[-1].arguments))
                self.begin_text(gap + note)
                self._stop()
            fit = calls
        for block in fit:
            self._release(block)

    def _release(self, block: Block) -> None:
        """Deliver a block to its end. If a call repeats one delivered live, deliver only the rest.

        If that call was delivered completely, the arguments must be equal as JSON, not as text.
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
        self._emit_plain(block)  # by policy, its beginning may be delivered already
        self._stop()
