"""What the label of an attempt is worth.

The table takes a result at its word; here it is seen to that the word is good. Labels lie both
ways: servers call a cut answer finished (`stop` with every token of the limit used, arguments
that do not parse), and a connection may break behind an answer that had arrived.
"""

from __future__ import annotations

from dataclasses import replace

from continuation.dialect import MessageBuilder
from continuation.seams.text import is_loop
from continuation.types import AttemptResult, Stop, ToolCallState


def used_up(result: AttemptResult, limit: int | None) -> bool:
    """Whether an attempt used its whole limit; `limit` is `None` where labels are to be trusted."""
    output = result.usage.output if result.usage else None
    return output is not None and limit is not None and output >= limit


def judged(
    result: AttemptResult, answer: MessageBuilder, limit: int | None, *, structured: bool
) -> AttemptResult:
    """Return a result under the label it deserves, after a look at what the answer holds.

    `limit`: the one that was sent; `None` where the label alone is to count.
    """
    if result.stop is Stop.END:
        if _cut_call(result, limit):
            result = replace(result, stop=Stop.LENGTH, call=ToolCallState.CUT)
        elif used_up(result, limit) and _stops_short(result, answer, structured=structured):
            result = replace(result, stop=Stop.LENGTH)
    if result.stop is Stop.LENGTH and not result.stalled:
        result = replace(result, stalled=is_loop(answer.open_text))
    return result


def _cut_call(result: AttemptResult, limit: int | None) -> bool:
    """Whether the last call was cut: its arguments show it, or hide it at exactly the limit.

    Beyond the limit is no evidence here: some servers count thinking that the limit does not.
    """
    if result.call is not ToolCallState.WHOLE or result.args_verified:
        return result.call is ToolCallState.CUT
    return limit is not None and result.usage is not None and result.usage.output == limit


def _stops_short(result: AttemptResult, answer: MessageBuilder, *, structured: bool) -> bool:
    """Whether text that used up its limit ends where no text ends."""
    if result.call is not ToolCallState.NONE:
        return False
    text = answer.open_text
    if not (text or result.text or result.not_resumable):
        return True  # all of it went into thinking
    half = structured and bool(text) and not answer.parses()
    return half or text[-1:].isalnum()


def better(new: AttemptResult, held: AttemptResult) -> bool:
    """Whether an answer that was generated anew takes the place of the one in hand."""
    if new.shown:
        return True
    if new.stop is Stop.END and (new.text or new.call is not ToolCallState.NONE):
        return True
    if new.stop in {Stop.END, Stop.REFUSED}:  # it says nothing, or not what was asked for
        return not held.text
    if new.stop is Stop.DROPPED and held.closed:  # half an answer for a whole, if cut, one
        return new.length > held.length
    return new.length >= held.length


def follows(new: AttemptResult) -> bool:
    """Whether an answer that was generated anew ends the turn behind what was shown of another."""
    return new.made_progress and new.stop is not Stop.DROPPED


def restored(held: AttemptResult, new: AttemptResult | None, *, resendable: bool) -> AttemptResult:
    """Return how the turn stands when an attempt that was to better it did not.

    `new` is what that attempt came to, `None` if it failed for good; `resendable`: one more drop
    can be made good.
    """
    stop = held.stop
    if new is not None and new.stop in {Stop.DROPPED, Stop.LENGTH}:
        stop = new.stop  # cut where it should have made a drop good: there is no room at this limit
    if stop is Stop.DROPPED and held.closed and not resendable:
        stop = Stop.LENGTH  # what we hold was cut, and arrived: no drop makes it a failure
    return replace(held, stop=stop)
