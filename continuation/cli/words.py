"""Events and reports in words: one line for each."""

from __future__ import annotations

from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Repairing,
    Report,
    Retrying,
    Truncated,
)

_WAYS = {
    "prefill": "going on from a prefill",
    "prompt": "asked to go on",
    "retry_smaller": "asked for the call again, in smaller pieces",
    "resend": "the same request again",
    "token": "going on by the provider's own token",
}


def number(count: int | None) -> str:
    """Write a count as people do; an unknown one is a dash."""
    return "-" if count is None else f"{count:,}"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def limited(event: Escalating | Recovering | Truncated) -> str:
    """Write the output limit of an attempt."""
    return "no limit" if event.limit is None else f"limit {event.limit:,}"


def describe(event: Event) -> str:
    """Say in one line what happened."""
    match event:
        case Truncated(reason="dropped"):
            return f"attempt {event.attempt}: the stream was dropped"
        case Truncated():
            count = event.output_tokens
            after = "" if count is None else f" after {count:,} tokens"
            return f"attempt {event.attempt} was cut{after}: {event.reason}"
        case Escalating():
            use = "only what follows the text already shown is used"
            if event.replaces:
                use = "its answer takes the place of the first"
            return f"attempt {event.attempt}: the same request again, {limited(event)}; {use}"
        case Recovering():
            way = _WAYS.get(event.way, event.way)
            return f"attempt {event.attempt}: {way}, {limited(event)}"
        case Retrying():
            return (
                f"attempt {event.attempt} was turned away ({event.error}); "
                f"again in {event.seconds:.1f} s"
            )
        case Repairing():
            changes = plural(event.changes, "change")
            return f"attempt {event.attempt}: the history was repaired ({event.code}, {changes})"
        case Finished():
            return f"finished: {summary(event.report)}"


def summary(report: Report) -> str:
    """Say in one line what became of a turn, and why if it is not whole."""
    why = [report.reason] if report.reason else []
    # What ended the turn, not a refusal that was got over on the way.
    error = report.attempts[-1].error if report.attempts else report.error
    if error and report.outcome not in ("complete", "healed"):
        why.append(f"error {error}")
    told = f"{report.outcome} ({'; '.join(why)})" if why else str(report.outcome)
    told += f", {plural(len(report.attempts), 'attempt')}"
    if report.stop:
        told += f", stop reason {report.stop}{' (synthetic)' if report.synthetic else ''}"
    return told


def costs(report: Report) -> tuple[str, str]:
    """Say what the turn would have cost uncut, and what was billed for all attempts."""
    turn, billed = (
        f"{number(usage.prompt)} tokens in, {number(usage.output)} out"
        for usage in (report.turn, report.billed)
    )
    return turn, billed
