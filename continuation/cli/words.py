"""Events and reports in words: one line for each event, the rows of the tables."""

from __future__ import annotations

from collections.abc import Sequence

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
from continuation.types import Usage

ATTEMPT_HEAD = (">attempt", "mode", ">limit", "stop reason", ">in", ">out", "discarded", ">seconds")
SEAM_HEAD = (">attempt", ">at character", "found", ">dropped", ">taken back", ">inserted", "around")
_AROUND = 16
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


def describe(event: Event) -> str:
    """Say in one line what happened."""
    match event:
        case Truncated():
            return _truncated(event)
        case Escalating():
            return (
                f"attempt {event.attempt}: the same request again, {_limit(event)}; {_use(event)}"
            )
        case Recovering():
            way = _WAYS.get(event.way, event.way)
            return f"attempt {event.attempt}: {way}, {_limit(event)}"
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


def _truncated(event: Truncated) -> str:
    if event.reason == "dropped":
        return f"attempt {event.attempt}: the stream was dropped"
    count = "" if event.output_tokens is None else f" after {number(event.output_tokens)} tokens"
    return f"attempt {event.attempt} was cut{count}: {event.reason}"


def refused(asked: Escalating | Recovering, then: Truncated) -> str:
    """Say why the attempt that was cut is not the one that was told of: no event tells that."""
    return f"attempt {asked.attempt} was refused; attempt {then.attempt} has {_limit(then)}"


def _limit(event: Escalating | Recovering | Truncated) -> str:
    return "no limit" if event.limit is None else f"limit {event.limit:,}"


def _use(event: Escalating) -> str:
    if event.replaces:
        return "its answer takes the place of the first"
    return "only what follows the text already shown is used"


def summary(report: Report) -> str:
    """Say in one line what became of a turn, and why if it is not whole."""
    why = "; ".join(text for text in (report.reason, _error(report)) if text)
    parts = [
        f"{report.outcome} ({why})" if why else str(report.outcome),
        plural(len(report.attempts), "attempt"),
    ]
    if report.stop:
        parts.append(f"stop reason {report.stop}{' (synthetic)' if report.synthetic else ''}")
    return ", ".join(parts)


def _error(report: Report) -> str | None:
    """Tell what ended the turn, not a refusal that was got over on the way."""
    ended = report.attempts[-1].error if report.attempts else report.error
    return f"error {ended}" if ended and report.outcome not in _FINE else None


_FINE = ("complete", "healed")


def costs(report: Report) -> tuple[str, str]:
    """Say what the turn would have cost uncut, and what was billed for all attempts."""
    return _tokens(report.turn), _tokens(report.billed)


def _tokens(usage: Usage) -> str:
    return f"{number(usage.prompt)} tokens in, {number(usage.output)} out"


def attempt_rows(report: Report) -> Sequence[Sequence[str]]:
    """Return one row per attempt, under `ATTEMPT_HEAD`."""
    return [
        (
            str(attempt.number),
            str(attempt.mode),
            number(attempt.limit),
            attempt.stop or attempt.error or "-",
            number(attempt.usage.prompt if attempt.usage else None),
            number(attempt.usage.output if attempt.usage else None),
            "yes" if attempt.discarded else "no",
            f"{attempt.seconds:.2f}",
        )
        for attempt in report.attempts
    ]


def seam_rows(report: Report, text: str) -> Sequence[Sequence[str]]:
    """Return one row per seam in `text`, under `SEAM_HEAD`."""
    return [
        (
            str(seam.attempt),
            number(seam.at),
            seam.kind,
            number(seam.dropped),
            number(seam.taken_back),
            number(seam.inserted),
            around(text, seam.at - seam.taken_back),
        )
        for seam in report.seams
    ]


def around(text: str, place: int) -> str:
    """Quote the text around a place, which `|` marks; nothing in it can move a cursor."""
    before = repr(text[max(0, place - _AROUND) : place])[1:-1]
    after = repr(text[place : place + _AROUND])[1:-1]
    return f"{before}|{after}"
