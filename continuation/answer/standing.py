"""What one attempt came to: questions about its segment, asked once its bytes have ended."""

from __future__ import annotations

from continuation.answer.blocks import TEXT, THINKING, Block, Segment
from continuation.answer.wire_codec import WireCodec
from continuation.types import Stop, StreamError, ToolCallState
from continuation.wire.error_body import word


def call_state(segment: Segment, stop: Stop) -> ToolCallState:
    """Return how the attempt's calls stand; one that was cut makes all of them cut."""
    calls = segment.calls
    if not calls:
        return ToolCallState.NONE
    ended = stop is Stop.END
    if segment.unary and not ended and segment.blocks[-1] is calls[-1]:
        return ToolCallState.CUT
    whole = all(call.whole(ended=ended) for call in calls)
    return ToolCallState.WHOLE if whole else ToolCallState.CUT


def unknown_block(segment: Segment, form: WireCodec) -> str | None:
    """Say which block no later attempt can go on from; `None`: there is none."""
    kinds = (block.kind for block in segment.blocks)
    unknown = next((kind for kind in kinds if not form.knows(kind)), None)
    return f"a block of unknown type {unknown!r}" if unknown else None


def waiting(segment: Segment) -> int:
    """Return how many characters of visible text are in blocks the caller has not seen begin."""
    return sum(len(b.text) for b in segment.blocks if b.kind == TEXT and not b.begun)


def carried(segment: Segment, form: WireCodec) -> list[Block]:
    """Return the blocks that a later request of this format may carry."""
    blocks = segment.blocks
    kept = [b for b in segment.carried(calls=False) if form.carries(b, blocks)]
    while kept and kept[-1].kind in THINKING:
        kept.pop()
    return kept


def stream_error(segment: Segment) -> StreamError | None:
    """Return the error event that ended the attempt, as an exception."""
    if segment.error is None:
        return None
    return StreamError(word(segment.error.get("type")) or "error event")
