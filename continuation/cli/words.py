"""Describes events in words, one line for each."""

from __future__ import annotations

from continuation.reports.account import plural, summary
from continuation.reports.report import (
    ChainStore,
    Escalating,
    Event,
    Finished,
    NotDurable,
    Recovering,
    Repairing,
    Retrying,
    Truncated,
)

_WAYS = {
    "prefill": "continue from a prefill",
    "prompt": "continue by a prompt",
    "retry_smaller": "request the call again, in smaller pieces",
    "call": "request the call that the text announces",
    "argument": "continue the call's argument, as text",
    "resend": "resend the request",
    "token": "continue by the provider's own token",
}


def limited(event: Escalating | Recovering | Truncated) -> str:
    """Return the output limit of an attempt, in words."""
    return "no limit" if event.limit is None else f"limit {event.limit:,}"


def describe(event: Event) -> str:  # noqa: C901 - a case for each kind
    match event:
        case Truncated(reason="dropped"):
            return f"attempt {event.attempt}: the stream was dropped"
        case Truncated():
            count = event.output_tokens
            about = "~" * event.estimated
            after = "" if count is None else f" after {about}{plural(count, 'token')}"
            return f"attempt {event.attempt} was truncated{after}: {event.reason}"
        case Escalating():
            use = "only the text after what was delivered is used"
            if event.replaces:
                use = "the new answer replaces the first"
            return f"attempt {event.attempt}: resend the request, {limited(event)}; {use}"
        case Recovering():
            way = _WAYS.get(event.way, event.way)
            return f"attempt {event.attempt}: {way}, {limited(event)}"
        case Retrying():
            return f"attempt {event.attempt} failed ({event.error}); retry in {event.seconds:.1f} s"
        case Repairing():
            changes = plural(event.changes, "change")
            return f"attempt {event.attempt}: history repaired ({event.code}, {changes})"
        case NotDurable():
            reason = event.reason or event.error
            return f"the journal could not be written, so this answer is not recorded: {reason}"
        case ChainStore():
            came = f"failed ({event.error})" if event.error else "answered"
            return f"the chain store {came}: {event.operation}, {event.seconds * 1000:.0f} ms"
        case Finished():
            return f"finished: {summary(event.report)}"
