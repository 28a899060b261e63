"""What happens when: the decision table, row by row. The first row that fits wins.

Everything the engine decides after an attempt is decided here, by a pure function of a
`Situation`. `design/decision-table.md` shows the same rows in prose; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from continuation.types import Outcome, Stop, ToolCallState


class Action(StrEnum):
    """What the engine does next."""

    FINISH = "finish"
    """End the turn with the provider's own stop reason."""
    STOP = "stop"
    """End the turn with a synthetic STOP (or the truth, by policy)."""
    CUT_CALL = "truncated_tool_call"
    """End the turn; the cut call is treated by the policy `truncated_tool_call`."""
    RAISE = "raise"
    """There is nothing in hand: the caller gets the first attempt's error."""
    ESCALATE = "escalate"
    """The same request at the ceiling; its answer replaces what we hold."""
    ESCALATE_BEHIND = "escalate_behind"
    """The same request at the ceiling; only what follows the shown text, or only its calls."""
    RESEND = "resend"
    """The same request again after a drop; nothing was shown."""
    RESEND_BEHIND = "resend_behind"
    """The same request again after a drop; only what follows, or only its calls."""
    RECOVER = "recover"
    RESUME = "resume"
    """A recovery after a dropped stream, on its own budget."""
    TOKEN = "token"
    """The provider's own continuation."""
    CHECKPOINT = "checkpoint"
    """The same after a drop: nothing came behind the provider's last token."""
    THINK_LESS = "think_less"
    """The same request at the ceiling, with less thinking; its answer replaces what we hold."""
    RETRY_SMALLER = "retry_smaller"
    """One more attempt without the cut call, asking for smaller pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision may depend on."""

    stop: Stop
    text: bool = False
    call: ToolCallState = ToolCallState.NONE
    shown: bool = False
    structured: bool = False
    liftable: bool = False
    """The constraint on structured output can be lifted for a recovery, and the whole checked."""
    below: bool = False
    """The limit can still be raised by a fifth or more, and was not raised yet."""
    token: bool = False
    """The provider gave a new continuation token, and nothing has come behind it."""
    raisable: bool = True
    """The limit can still be raised, by however little."""
    recovering: bool = False
    """The attempt that ended went on from a partial."""
    later: bool = False
    """It was not the first attempt."""
    opened: bool = True
    """At least one event of the attempt arrived."""
    made_progress: bool = True
    stalled: bool = False
    not_resumable: str | None = None
    failed: bool = False
    """The attempt failed for good, its retries included."""
    spent: str | None = None
    """The budget that is used up, if one is."""
    recoveries: bool = True
    """A recovery is left."""
    drops: bool = True
    """A resumption after a drop is left."""
    think_less: bool = False
    """Policy asks for one attempt with less thinking, the request has less, and it was not made."""
    retry_smaller: bool = False
    """Policy asks for one guided attempt, and it was not made yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    name: str
    fits: Callable[[Situation], bool]
    action: Action
    outcome: Outcome | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A row that won, with the outcome and reason spelled out for the report."""

    row: str
    action: Action
    outcome: Outcome | None = None
    reason: str | None = None


def _cut(s: Situation) -> bool:
    return s.stop is Stop.LENGTH


def _dropped(s: Situation) -> bool:
    return s.stop is Stop.DROPPED


def _has_call(s: Situation) -> bool:
    return s.call is not ToolCallState.NONE


ROWS: tuple[Row, ...] = (
    Row(
        "a recovery failed for good",
        lambda s: s.failed and s.recovering,
        Action.STOP,
        Outcome.PARTIAL,
        "recovery failed",
    ),
    Row(
        "a recovery was refused",
        lambda s: s.recovering and s.stop is Stop.REFUSED,
        Action.STOP,
        Outcome.PARTIAL,
        "recovery refused",
    ),
    Row(
        "the text repeats itself",
        lambda s: s.stalled,
        Action.STOP,
        Outcome.STALLED,
        "the model only repeated what it had written",
    ),
    Row(
        "a recovery was empty",
        lambda s: s.recovering and not s.made_progress and not _dropped(s),
        Action.STOP,
        Outcome.PARTIAL,
        "recovery was empty",
    ),
    Row(
        "ended normally after a later attempt",
        lambda s: s.stop in {Stop.END, Stop.REFUSED} and s.later,
        Action.FINISH,
        Outcome.HEALED,
    ),
    Row(
        "ended normally",
        lambda s: s.stop in {Stop.END, Stop.REFUSED},
        Action.FINISH,
        Outcome.COMPLETE,
    ),
    Row(
        "the context window is full, a call was cut",
        lambda s: s.stop is Stop.WINDOW and s.call is ToolCallState.CUT,
        Action.CUT_CALL,
        Outcome.TRUNCATED,
        "context window full",
    ),
    Row(
        "the context window is full",
        lambda s: s.stop is Stop.WINDOW,
        Action.FINISH,
        Outcome.TRUNCATED,
        "context window full",
    ),
    # --- dropped streams, nothing in hand: an error must stay an error -----------------------
    Row(
        "dropped before the first event",
        lambda s: _dropped(s) and not s.later and not s.opened,
        Action.RAISE,
        Outcome.FAILED,
        "no answer came",
    ),
    Row(
        "dropped, nothing in hand, none left",
        lambda s: _dropped(s) and not (s.text or s.shown or _has_call(s)) and _no_drops(s),
        Action.RAISE,
        Outcome.FAILED,
        "stream dropped",
    ),
    Row(
        "a budget is spent, a call was cut",
        lambda s: s.spent is not None and s.call is ToolCallState.CUT,
        Action.CUT_CALL,
        Outcome.PARTIAL,
    ),
    Row(
        "a budget is spent, a stream dropped",
        lambda s: s.spent is not None and _dropped(s),
        Action.STOP,
        Outcome.PARTIAL,
    ),
    Row("a budget is spent", lambda s: s.spent is not None, Action.FINISH, Outcome.PARTIAL),
    Row(
        "dropped behind a checkpoint",
        lambda s: _dropped(s) and s.drops and s.token,
        Action.CHECKPOINT,
    ),
    Row(
        "dropped, nothing shown, no text to go on from",
        lambda s: _dropped(s) and s.drops and not s.shown and _must_repeat(s),
        Action.RESEND,
    ),
    Row(
        "dropped, text shown, then a call",
        lambda s: _dropped(s) and s.drops and s.shown and _must_repeat(s),
        Action.RESEND_BEHIND,
    ),
    Row(
        "dropped, visible text, no call",
        lambda s: _dropped(s) and s.drops and s.not_resumable is None,
        Action.RESUME,
    ),
    Row(
        "dropped, a call stays cut",
        lambda s: _dropped(s) and s.call is ToolCallState.CUT,
        Action.CUT_CALL,
        Outcome.PARTIAL,
        "stream dropped",
    ),
    Row("dropped for good", _dropped, Action.STOP, Outcome.PARTIAL, "stream dropped"),
    # --- within a provider's own hops ------------------------------------------------------
    Row("a hop ended with a token", lambda s: s.stop is Stop.PAUSED and s.token, Action.TOKEN),
    Row(
        "a hop ended without a new token",
        lambda s: s.stop is Stop.PAUSED,
        Action.FINISH,
        Outcome.PARTIAL,
        "the provider's continuation made no progress",
    ),
    # --- at the output limit -----------------------------------------------------------------
    Row(
        "cut, the provider gave a token",
        lambda s: _cut(s) and s.token and s.raisable,
        Action.TOKEN,
    ),
    Row(
        "cut below the ceiling, nothing shown",
        lambda s: _cut(s) and s.below and not s.shown and not s.recovering,
        Action.ESCALATE,
    ),
    Row(
        "cut below the ceiling, text shown, then a call",
        lambda s: _cut(s) and s.below and s.shown and (_has_call(s) or not s.text),
        Action.ESCALATE_BEHIND,
    ),
    Row(
        "cut below the ceiling, text shown",
        lambda s: _cut(s) and s.below and s.recoveries and _can_recover(s),
        Action.RECOVER,
    ),
    Row(
        "cut at the ceiling, a call cut, guidance asked for",
        lambda s: _cut(s) and s.call is ToolCallState.CUT and s.retry_smaller and _can_lift(s),
        Action.RETRY_SMALLER,
    ),
    Row(
        "cut at the ceiling, a call cut",
        lambda s: _cut(s) and s.call is ToolCallState.CUT,
        Action.CUT_CALL,
        Outcome.TRUNCATED,
        "a function call was cut at the ceiling",
    ),
    Row(
        "cut at the ceiling, calls whole",
        lambda s: _cut(s) and s.call is ToolCallState.WHOLE,
        Action.FINISH,
        Outcome.TRUNCATED,
        "cut at the ceiling after a function call",
    ),
    Row(
        "cut at the ceiling, the turn cannot be gone on from",
        lambda s: _cut(s) and s.not_resumable is not None,
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    Row(
        "cut at the ceiling, no visible text, less thinking asked for",
        lambda s: _cut(s) and not s.text and not s.shown and s.think_less,
        Action.THINK_LESS,
    ),
    Row(
        "cut at the ceiling, no visible text",
        lambda s: _cut(s) and not s.text,
        Action.FINISH,
        Outcome.TRUNCATED,
        "thinking used the whole limit: no visible text",
    ),
    Row(
        "cut at the ceiling, structured output",
        lambda s: _cut(s) and s.structured and (s.shown or not s.liftable),
        Action.FINISH,
        Outcome.TRUNCATED,
        "structured output, or the rest of an earlier answer, cannot be gone on with",
    ),
    Row(
        "cut at the ceiling, visible text",
        lambda s: _cut(s) and s.recoveries,
        Action.RECOVER,
    ),
    Row(
        "cut, all recoveries used",
        _cut,
        Action.FINISH,
        Outcome.TRUNCATED,
        "all recoveries used",
    ),
)


def _no_drops(s: Situation) -> bool:
    return not s.drops or s.spent is not None


def _must_repeat(s: Situation) -> bool:
    """Only text can be gone on from; anything else has to be asked for again."""
    return not s.text or s.structured or (_has_call(s) and not s.recovering)


def _can_recover(s: Situation) -> bool:
    return s.text and not _has_call(s) and s.not_resumable is None and _can_lift(s)


def _can_lift(s: Situation) -> bool:
    return s.liftable or not s.structured


def decide(situation: Situation) -> Decision:
    """Return what the first fitting row says. Total: every situation has a row."""
    row = next(row for row in ROWS if row.fits(situation))
    told = row.outcome not in {None, Outcome.COMPLETE, Outcome.HEALED}
    reason = row.reason or situation.spent or situation.not_resumable if told else None
    return Decision(row.name, row.action, row.outcome, reason)
