"""Which of an attempt's blocks the caller is shown, and as far as they have come."""

from __future__ import annotations

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block, Segment, answered
from continuation.answer.client_stream import ClientStream
from continuation.answer.live_calls import LiveCalls
from continuation.answer.text_splicer import TextSplicer
from continuation.types import Mode, Resume
from continuation.wire.json_values import as_text


class BlockEmitter:
    """Shows the blocks of one attempt, and what the provider's own hops add to it.

    When it may do so is decided elsewhere: it shows what has been read whenever it is told to.
    """

    def __init__(self, sink: ClientStream, segment: Segment, resume: Resume | None = None) -> None:
        """Begin where the sink stands; `resume`: how a later attempt joins the turn."""
        self.again = resume is not None and resume.mode in {Mode.RECOVERY, Mode.APPEND_TAIL}
        """The attempt adds to text of an earlier one."""
        self.joint = TextSplicer(sink, resume)
        self.live_calls = LiveCalls(sink)
        self._sink = sink
        self._segment = segment
        self._at = 0
        """The first block that may not be settled yet."""
        self._plain: tuple[Block | None, Block | None] = None, None
        """The block that was begun last as it is, and what it is in the turn."""

    # --- while the attempt is read -------------------------------------------------------------

    def flow(self) -> None:
        """Show all blocks read so far, the last one as far as it has come."""
        blocks = self._segment.blocks
        if self._at < len(blocks) - 1:
            self._show_all(blocks[self._at : -1])
            self._at = len(blocks) - 1
        if blocks:
            self._show(blocks[-1])

    def _show_all(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._show(block)

    def _show(self, block: Block) -> None:
        if block.closed:
            return
        self._say(block)
        if block.done and self.joint.behind and block.kind not in {TEXT, TOOL_CALL}:
            block.closed = True  # it stands before text that was shown, and so was shown with it
        if block.done and block.begun:
            block.closed = True
            if self.again and block.kind == TEXT:
                if self.joint.waits:
                    return  # what it is asked to repeat may go on in another text, behind a thought
                self.joint.end()
            if self._sink.open is not None and self._sink.open.kind == block.kind:
                self._sink.stop()  # not a call that was shown live, and may go on

    def _say(self, block: Block) -> None:
        """Show of a block what has come of it."""
        kind = block.kind
        if self.again and kind in THINKING:
            return
        if self.again and block.sealed:
            self._say_sealed(block)
        elif self.again and kind == TEXT:
            self.joint.say(block)
        elif kind == TOOL_CALL or not (self.joint.behind or self.live_calls):
            # What stands before a call that was shown live was shown as well.
            if self.again:
                self.joint.end()
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
        joint = self.joint
        if block.begun or (block.kind != TEXT and (joint.waits or joint.behind)):
            return
        text = joint.whole(block.text) if block.kind == TEXT else ""
        if text == block.text:
            joint.write("")
            self._say_plain(block)
        else:
            block.begun, block.shown = True, len(block.deltas)
            joint.write(text)

    # --- when it has ended ---------------------------------------------------------------------

    @property
    def held(self) -> str:
        """Visible text at the attempt's end that has not been shown, with no call beside it."""
        blocks, at = self._segment.blocks, self._last_said
        last = blocks[at] if blocks else None
        if last is None or last.kind != TEXT or self._segment.calls or last.closed:
            return ""
        if last.shown == len(last.deltas) and last.begun:
            return ""
        before = (b.text for b in blocks[self._at : at] if b.kind == TEXT and not b.begun)
        return last.text if "".join((*before, last.text)).strip() else ""

    @property
    def unshown(self) -> str:
        """What `flush_held` adds to the text that was shown."""
        if not self.held:
            return ""
        block = self._segment.blocks[self._last_said]
        if not block.begun:
            return self.held
        told = (d for d in block.deltas[block.shown :] if d.get("type") == "text_delta")
        return "".join(as_text(delta.get("text")) for delta in told)

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

    def flush_held(self) -> None:
        """Show text that was held only because of what came behind it in one event."""
        if not self.held:
            return
        blocks, last = self._segment.blocks, self._last_said
        self._show_all(blocks[self._at : last])
        self._at = last
        self._say(blocks[last])

    def finish_text(self, *, ended: bool) -> None:
        """The attempt's text has ended, or broke off: show what its seam still holds."""
        texts = (block for block in self._segment.blocks if block.kind == TEXT)
        if self.joint.waits and (first := next(texts, None)) and not first.begun:
            self._say(first)  # nothing but white space, or the gate had let it pass
        if self._at < len(self._segment.blocks):
            self.joint.finish(self._segment.text, ended=ended)

    def leave(self) -> None:
        """Settle what was left unshown, now that the turn goes on from it."""
        self.joint.leave()
        self.flush_held()
        blocks = self._segment.blocks
        finished = [b for b in blocks if b.done and not b.closed and b.kind != TOOL_CALL]
        finished = [block for block in finished if answered(block, blocks)]
        if any(block.kind not in THINKING | {TEXT} for block in finished):
            while finished[-1].kind in THINKING:
                finished.pop()
            self._show_all(finished)

    # --- when the turn has ended ---------------------------------------------------------------

    @property
    def rest(self) -> list[Block]:
        """The blocks that were not shown to their end."""
        return [block for block in self._segment.blocks if not block.closed]

    def release(self, blocks: list[Block]) -> None:
        """Show blocks to their end; calls, which a recovery holds back, as well."""
        for block in blocks:
            if block.kind == TOOL_CALL:
                self._release_call(block)
            else:
                self._show(block)

    def _release_call(self, call: Block) -> None:
        if not call.begun and self.live_calls.meet(call):
            call.begun = True
        else:
            self._say_plain(call)  # by policy its beginning may have gone out as it came
            self._sink.stop()
        call.closed = True
