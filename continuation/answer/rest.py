"""What a turn still holds at its end: which of it goes out, in which order, with which note."""

from __future__ import annotations

from continuation.answer.block_emitter import BlockEmitter
from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block, answered
from continuation.answer.client_stream import ClientStream, text_of
from continuation.prompts import cut_call_note
from continuation.wire.json_values import as_text


def show_rest(
    showing: BlockEmitter, sink: ClientStream, cut_call: str | None, *, ended: bool
) -> None:
    """Show what is held and fit to be seen; `ended`: the last attempt ended as it should.

    `cut_call`: the policy `truncated_tool_call`, where a call may be said to be cut.
    """
    rest = showing.rest
    cut = [block for block in rest if block.kind == TOOL_CALL and not block.whole(ended=ended)]
    # Whatever ends the turn: half a call goes out only if the caller asked for it.
    lost = [] if cut_call == "keep" else cut
    fit = [block for block in rest if block not in lost]
    if not ended:
        fit = [block for block in fit if _fit(block) and answered(block, rest)]
    calls = [block for block in fit if block.kind == TOOL_CALL]
    explained = bool(cut) and cut_call in {"explain", "retry_smaller"}
    while not (ended or calls or explained) and fit and fit[-1].kind in THINKING:
        fit.pop()  # it leads nowhere, and some providers would not take it back
    if not cut:
        showing.release(fit)
        return
    showing.release([block for block in fit if block.kind != TOOL_CALL])
    if explained or (cut_call == "drop" and not (sink.blocks or calls)):
        _note(sink, cut[-1])
    showing.release(calls)


def _fit(block: Block) -> bool:
    """Whether a block may be seen though the attempt broke off."""
    if block.kind in THINKING:
        return block.signed
    if block.kind == TEXT:
        return bool(block.text.strip())
    return block.done or block.kind == TOOL_CALL


def _note(sink: ClientStream, call: Block) -> None:
    """Say in a text of its own which call was cut, and how far it had come."""
    note = cut_call_note(as_text(call.start.get("name")), len(call.arguments))
    # Most readers join all text of an answer; the note is a paragraph of its own in it.
    gap = "\n\n" if text_of(sink).strip() else ""
    sink.start(Block({"type": TEXT, "text": ""}))
    sink.text(gap + note)
    sink.stop()
