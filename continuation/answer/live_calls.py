"""Calls that went out as they came, by policy, and what a later attempt can still make of them."""

from __future__ import annotations

from continuation.answer.blocks import TOOL_CALL, Block
from continuation.answer.client_stream import ClientStream


class LiveCalls:
    """The calls the caller has had of earlier attempts, and that one attempt may repeat.

    Arguments that were shown can be gone on with but never changed. So a call is the repetition of
    a shown one if its arguments begin with exactly what was shown: then only the rest goes out,
    and the caller has one call, not two. Of a call that was shown whole the JSON has to be the
    same, not its text.
    """

    def __init__(self, sink: ClientStream) -> None:
        self._sink = sink
        self._awaited = [block for block in sink.blocks if block.kind == TOOL_CALL]

    def __bool__(self) -> bool:
        """Whether a call was shown that has not been repeated yet."""
        return bool(self._awaited)

    def meet(self, call: Block) -> bool:
        """Whether a whole call repeats a shown one; what was cut of that is shown now."""
        for shown in self._awaited:
            rest = shown.rest_of(call)
            if rest is None or (rest and shown is not self._sink.open):
                continue
            self._awaited.remove(shown)
            if rest:
                self._sink.delta({"type": "input_json_delta", "partial_json": rest})
            if shown is self._sink.open:
                self._sink.stop()
            return True
        return False
