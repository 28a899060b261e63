"""What the end of an attempt is worth, whatever its label says.

`decide.py` takes an ending at its word; here it is seen to that the word is good. Labels lie both
ways: servers call a cut answer finished (`stop` with every token of the limit used, arguments
that do not parse), and a connection may break behind an answer that had arrived.
"""

from __future__ import annotations

from dataclasses import replace

from continuation.dialect import MessageBuilder
from continuation.seams.seam import is_loop
from continuation.types import AttemptResult, Stop, ToolCallState


def passes(ending: AttemptResult) -> bool:
    """Whether nothing but its label could speak against a first answer, and it does not."""
    cut = ending.stop in {Stop.LENGTH, Stop.DROPPED} or ending.call is ToolCallState.CUT
    half = ending.stop is Stop.WINDOW and ending.call is not ToolCallState.NONE
    return not (cut or half)


def suspect(ending: AttemptResult, limit: int | None) -> bool:
    """Whether an answer that is called finished used up its whole limit."""
    output = ending.usage.output if ending.usage else None
    used_up = output is not None and limit is not None and output >= limit
    return used_up and ending.stop is Stop.END


def judged(
    ending: AttemptResult, answer: MessageBuilder, limit: int | None, *, structured: bool
) -> AttemptResult:
    """Return an ending under the label it deserves, after a look at what the answer holds.

    `limit`: the one that was sent; `None` where the label alone is to count.
    """
    if ending.stop is Stop.END and _cut_call(ending, limit):
        ending = replace(ending, stop=Stop.LENGTH, call=ToolCallState.CUT)
    elif suspect(ending, limit) and _stops_short(ending, answer, structured=structured):
        ending = replace(ending, stop=Stop.LENGTH)
    if ending.stop is Stop.LENGTH and not ending.stalled:
        ending = replace(ending, stalled=is_loop(answer.open_text))
    return ending


def _cut_call(ending: AttemptResult, limit: int | None) -> bool:
    """Whether the last call was cut: its arguments show it, or hide it at exactly the limit.

    Beyond the limit is no evidence here: some servers count thinking that the limit does not.
    """
    if ending.call is not ToolCallState.WHOLE or ending.args_verified:
        return ending.call is ToolCallState.CUT
    return limit is not None and ending.usage is not None and ending.usage.output == limit


def _stops_short(ending: AttemptResult, answer: MessageBuilder, *, structured: bool) -> bool:
    """Whether text that used up its limit ends where no text ends."""
    if ending.call is not ToolCallState.NONE:
        return False
    text = answer.open_text
    if not (text or ending.text or ending.not_resumable):
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

    `new` is how that attempt ended, `None` if it failed for good; `resendable`: one more drop can
    be made good.
    """
    stop = held.stop
    if new is not None and new.stop in {Stop.DROPPED, Stop.LENGTH}:
        stop = new.stop  # cut where it should have made a drop good: there is no room at this limit
    if stop is Stop.DROPPED and held.closed and not resendable:
        stop = Stop.LENGTH  # what we hold was cut, and arrived: no drop makes it a failure
    return replace(held, stop=stop)
