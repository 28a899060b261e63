"""A report in words: the lines of `str(report)`, the log, advice, and the cost."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from continuation.ledger import Attempt, Lesson
from continuation.logs import line
from continuation.policy import Policy
from continuation.reports.report import CallReport, Report, SeamReport
from continuation.types import Change, Mode, Outcome, Stop, Usage

T = TypeVar("T")
logger = logging.getLogger("continuation")

_REMEDIES = {
    "max_turn_seconds spent": "raise max_turn_seconds",
    "max_turn_output_tokens spent": "raise max_turn_output_tokens",
    "max_attempts spent": "raise max_attempts",
    "the caller's timeout is spent": "raise the call's timeout, or stream the answer",
    "all recoveries used": "raise max_recoveries",
    "the model only repeated the same text": "change the wording of the request",
    "context window full": "shorten the request (of a saved session: with `continuation repair "
    "--shrink TOKENS FILE`)",
    "truncated after a function call": "run the call, and continue with its result",
    "stream dropped after a function call": "run the call, and continue with its result",
}
"""The reason of a report -> advice."""
_CUT_CALL = "a function call was truncated at the ceiling"
_THOUGHT = "thinking used the whole limit: no visible text"
_THOUGHT_LESS = "truncated at the ceiling, no visible text, less thinking allowed"
"""The row of the decision table that sends an attempt for the policy `less_thinking`."""
_BY_ENDING = {
    Stop.REFUSED: "change the request, or send it to another model",
    Stop.ABORTED: "send the request again, or simplify the schemas of its tools",
    Stop.REPETITION: "set stop_repetition = true, or change the request",
    Stop.OTHER: "look up the stop reason in the provider's documentation",
    Stop.PAUSED: 'send the answer back to continue it, or set paused = "resume"',
    "empty": "request the answer as text, or lower the effort for thinking",
}
"""The `ending` of a report -> advice."""
_BY_OUTCOME = {
    Outcome.PARTIAL: "send the request again, for the part that is missing",
    Outcome.TRUNCATED: "request a shorter answer",
    Outcome.STALLED: "change the wording of the request",
}


def number(count: int | None) -> str:
    """Return a count with thousands separators; `-` for `None`."""
    return "-" if count is None else f"{count:,}"


def made(usage: Usage | None) -> str:
    """Return a usage's output tokens, with `~` before an estimate; `-` for `None`."""
    if usage is None or usage.output is None:
        return "-"
    return f"{'~' * usage.estimated}{usage.output:,}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun. The noun gets an `s` unless the count is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def summary(report: Report) -> str:
    """Return one line: the outcome of the turn, and the reason if it is not complete."""
    reasons = [report.reason] if report.reason else []
    # The error that ended the turn. An earlier refusal after which it continued does not matter.
    error = report.attempts[-1].error if report.attempts else report.error
    if error and report.reason == f"status {error.split()[0]}":
        reasons = [f"status {error}"]
    elif error and error != report.reason and report.outcome not in ("complete", "healed"):
        reasons.append(f"error {error}")
    text = f"{report.outcome} ({'; '.join(reasons)})" if reasons else str(report.outcome)
    text += f", {plural(len(report.attempts), 'attempt')}"
    if report.stop:
        text += f", stop reason {report.stop}{' (synthetic)' if report.synthetic else ''}"
    return text


def why(report: Report) -> str | None:
    """Return why a turn is not complete, with the server's name for an error; `None`: unknown."""
    if report.error and report.reason == f"status {report.error.split()[0]}":
        return f"status {report.error}"
    return report.reason or report.error


def advice(report: Report) -> str:
    """Return how an incomplete answer ended, and advice; `""`: it is complete, or has none."""
    if report.outcome in (Outcome.COMPLETE, Outcome.HEALED):
        return ""
    parts = {"ending": report.ending, "remedy": report.remedy}
    return "; ".join(f"{name}: {text}" for name, text in parts.items() if text)


def costs(report: Report) -> tuple[str, str]:
    """Return two texts: the tokens of the turn as one answer, and those billed for all attempts."""
    return _tokens(report.turn), "at least " * is_partial(report) + _tokens(report.billed)


def is_partial(report: Report) -> bool:
    """Whether the sum of the billed tokens lacks the prompt or the output of an attempt."""
    paid = [each.usage or Usage() for each in report.attempts if each.answered and not each.saved]
    counts = zip(*((usage.prompt, usage.output) for usage in paid), strict=True)
    return any(None in each and any(count is not None for count in each) for each in counts)


def dollars(report: Report) -> str:
    """Return what was billed as `, $0.0123`, with `~` if it is not exact; `""`: unknown."""
    if (cost := report.cost) is None:
        return ""
    return f", {'~' * (report.billed.estimated or is_partial(report))}${cost:.4f}"


def _tokens(usage: Usage) -> str:
    noun = "token" if usage.prompt == 1 else "tokens"
    return f"{number(usage.prompt)} {noun} in, {made(usage)} out"


def account(report: Report) -> str:
    """Return the turn in lines: its outcome, each attempt, and what was billed."""
    lines = [f"{report.model or report.dialect}: {summary(report)}, {report.seconds:.1f} s"]
    if helps := advice(report):
        lines.append(f"  {helps}")
    for attempt in report.attempts:
        limit = "no limit" if attempt.limit is None else f"limit {attempt.limit:,}"
        end = attempt.error or attempt.stop or "no end"
        note = ", saved" * attempt.saved
        if attempt.discarded:
            note = ", discarded"
            if attempt.kept:
                note = f", {plural(attempt.kept, 'character')} kept, the rest discarded"
        line = f"{limit}, {_tokens(attempt.usage or Usage())}, {end}, {attempt.seconds:.1f} s{note}"
        lines.append(f"  {attempt.number} {attempt.mode}: {line}")
    lines.append(f"  billed: {costs(report)[1]}{dollars(report)}")
    return "\n".join(lines)


def read(data: Mapping[str, Any]) -> Report:
    """Make a report from the mapping that `as_dict` returned; see `Report.from_dict`.

    Raises `ValueError` if the mapping is not a report.
    """
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from JSON
        kind = type(data).__name__
        raise ValueError(f"this is not a report of a turn: it must be an object, not {kind}")
    needed = (item.name for item in fields(Report) if item.default is item.default_factory)
    if missing := [name for name in needed if name not in data]:
        raise ValueError(f"this is not a report of a turn: it has no {', '.join(missing)}")
    parts = (
        ("attempts", Attempt), ("seams", SeamReport), ("learned", Lesson),
        ("repairs", Change), ("calls", CallReport),
    )  # fmt: skip
    try:
        lists = {
            name: tuple(_make(kind, each) for each in data.get(name, ())) for name, kind in parts
        }
        return _make(Report, {**data, **lists, "rows": tuple(data.get("rows", ()))})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is not a report of a turn: {error}") from error


def _make(kind: type[T], data: Mapping[str, Any]) -> T:
    """Make an object of the dataclass `kind` from those of its fields that the mapping has."""
    names = (item.name for item in fields(kind))  # type: ignore[arg-type]  # of dataclasses alone
    values: dict[str, Any] = {name: data[name] for name in names if name in data}
    for name, of in (("outcome", Outcome), ("mode", Mode)):
        if name in values:
            values[name] = of(values[name])
    if values.get("usage") is not None:
        values["usage"] = _make(Usage, values["usage"])
    return kind(**values)


def remedy(report: Report, policy: Policy | None = None) -> str:
    """Return advice for a turn that is not complete; `""`: there is none.

    It suggests no setting that the turn's `policy` already has, or that the report shows.
    """
    if report.reason == _CUT_CALL:
        how = policy.truncated_tool_call if policy else report.calls[-1].how if report.calls else ""
        others = [repr(way) for way in ("retry_smaller", "complete") if way != how]
        ways = " or ".join(others).replace("'", '"')
        return f"set truncated_tool_call = {ways}, or request smaller calls"
    if report.reason == _THOUGHT:
        tried = _THOUGHT_LESS in report.rows or (policy is not None and policy.less_thinking)
        more = "" if tried else "set less_thinking = true, or "
        return f"{more}lower the effort or the budget for thinking"
    by_ending = _BY_ENDING.get(report.ending or "") if report.outcome is Outcome.INCOMPLETE else ""
    return _REMEDIES.get(report.reason or "") or by_ending or _BY_OUTCOME.get(report.outcome, "")


def log(report: Report) -> None:
    """Log a truncated turn: as info if it was completed, or else as a warning with advice.

    The log never has the answer's text.
    """
    attempts, sizes = len(report.attempts), {"characters": report.characters}
    stop = {"stop_reason": report.stop, "synthetic": "true" if report.synthetic else None}
    if report.outcome is Outcome.HEALED:
        text = line("answer completed", model=report.model, attempts=attempts, **stop, **sizes)
        logger.info("%s", text, extra={"report": report})
        return
    # A caller who stops reading an answer, or gets a paused one to continue, knows that.
    known = report.reason == "closed by the caller" or report.ending == Stop.PAUSED
    level = logging.INFO if known else logging.WARNING
    reason, error = why(report), report.attempts[-1].error if report.attempts else report.error
    text = line(
        "answer incomplete",
        model=report.model,
        outcome=report.outcome,
        reason=reason,
        error=error if error and error not in (reason or "") else None,
        ending=report.ending,
        attempts=attempts,
        **stop,
        **sizes,
        remedy=report.remedy,
    )
    logger.log(level, "%s", text, extra={"report": report})


def cost(report: Report) -> float | None:
    """Return the list price of what was billed, in US dollars; `None`: it is unknown."""
    paid = [each for each in report.attempts if not each.saved]
    usages = [each.usage for each in paid if each.usage is not None]
    if paid and not usages:  # the answer was not read, or had no usage
        return None
    return price(report.model, report.host, usages)


def price(model: str | None, host: str | None, usages: Iterable[Usage]) -> float | None:
    """Return the list price of what a model used, in US dollars; `None`: it is unknown."""
    try:
        prices: Any = importlib.import_module("genai_prices")
    except ImportError:
        return None
    vendor = {"provider_api_url": f"https://{host}"}
    any_host = dict[str, str]()  # for a host without known prices, use those of the model's maker
    total = 0.0
    for usage in usages:
        tokens = prices.Usage(
            input_tokens=usage.prompt,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.output,
        )
        for provider in (vendor, any_host):
            try:
                quote = prices.calc_price(tokens, (model or "").removeprefix("models/"), **provider)
            except (LookupError, ValueError):
                continue
            total += float(quote.total_price)
            break
        else:
            return None
    return total
