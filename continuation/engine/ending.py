"""How the caller's answer is to end: what the last decision means for its terminal bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from continuation.dialect import MessageBuilder, ProviderRequest
from continuation.engine.table import Action, Decision
from continuation.policy import Policy
from continuation.reports.report import Report
from continuation.types import AttemptResult, Close, Mode, Outcome, Stop, ToolCallState


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of a turn: how it is written, and what its report says."""

    close: Close
    outcome: Outcome
    reason: str | None


def as_it_came(decision: Decision, ending: AttemptResult, mode: Mode, policy: Policy) -> bool:
    """Whether the first answer, looked at, was found whole and goes out byte for byte."""
    whole = ending.stop in {Stop.END, Stop.REFUSED, Stop.WINDOW}
    half = ending.stop is Stop.REFUSED and ending.call is ToolCallState.CUT
    if half and policy.truncated_tool_call != "keep":
        return False  # a filter broke in: half a call does not go out, whatever the reason
    return whole and mode is Mode.FIRST and ending.closed and decision.action is Action.FINISH


def closing(
    decision: Decision,
    outcome: Outcome,
    ending: AttemptResult,
    so_far: Report,
    policy: Policy,
    call: ProviderRequest,
    answer: MessageBuilder,
) -> Closing:
    """Say how an answer of ours ends. Half a document is never given out as a whole one."""
    usage = so_far.turn if policy.usage == "turn" else so_far.billed
    truncated = ending.stop is Stop.LENGTH
    if decision.action is Action.CUT_CALL:
        cut = ending.stop is not Stop.WINDOW
        close = Close(usage=usage, truncated_tool_call=policy.truncated_tool_call, truncated=cut)
    elif decision.action is Action.STOP:
        synthetic = policy.on_failure == "stop" and not (call.structured or answer.half_call)
        close = Close(usage=usage, synthetic=synthetic, truncated=not synthetic)
    elif outcome is Outcome.HEALED and call.structured and _joined(so_far) and not answer.parses():
        close = Close(usage=usage, truncated=True)
        return Closing(close, Outcome.TRUNCATED, "the joined text is not whole JSON")
    else:
        close = Close(usage=usage, truncated=truncated)
    return Closing(close, outcome, decision.reason)


def as_shown(end: Closing, answer: MessageBuilder) -> Closing:
    """Return how the turn ended, now that all of it was shown: a half call is no healed turn."""
    if end.outcome is not Outcome.HEALED or not answer.half_call:
        return end
    reason = "a function call that was shown as it came stays half"
    return replace(end, outcome=Outcome.TRUNCATED, reason=reason)


def _joined(so_far: Report) -> bool:
    return any(a.mode is Mode.RECOVERY and not a.discarded for a in so_far.attempts)
