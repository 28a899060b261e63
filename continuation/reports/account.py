"""What became of a turn, told to people: the lines of `str(report)`, the log, the cost."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from continuation.ledger import Attempt, Lesson
from continuation.reports.report import CallReport, Report, SeamReport
from continuation.types import Change, Mode, Outcome, Usage

T = TypeVar("T")
logger = logging.getLogger("continuation")

_REMEDIES = {
    "max_turn_seconds spent": "raise max_turn_seconds",
    "max_turn_output_tokens spent": "raise max_turn_output_tokens",
    "max_attempts spent": "raise max_attempts",
    "the caller's timeout is spent": "raise the call's timeout, or stream it",
    "all recoveries used": "raise max_recoveries",
    "context window full": "shorten what is sent",
    "a function call was cut at the ceiling": (
        'say truncated_tool_call = "retry_smaller" or "complete", or ask for less in one call'
    ),
    "cut after a function call": "run it, and go on with its result",
    "stream dropped after a function call": "run it, and go on with its result",
    "thinking used the whole limit: no visible text": "say less_thinking = true",
}
"""What helps, by the reason."""
_OTHERWISE = {
    Outcome.PARTIAL: "ask again for what is missing",
    Outcome.TRUNCATED: "ask for less at once",
    Outcome.STALLED: "ask again in other words",
}


def number(count: int | None) -> str:
    """Write a count as people do; an unknown one is a dash."""
    return "-" if count is None else f"{count:,}"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def summary(report: Report) -> str:
    """Say in one line what became of a turn, and why if it is not whole."""
    why = [report.reason] if report.reason else []
    # What ended the turn, not a refusal that was got over on the way.
    error = report.attempts[-1].error if report.attempts else report.error
    if error and report.reason == f"status {error.split()[0]}":
        why = [f"status {error}"]
    elif error and error != report.reason and report.outcome not in ("complete", "healed"):
        why.append(f"error {error}")
    told = f"{report.outcome} ({'; '.join(why)})" if why else str(report.outcome)
    told += f", {plural(len(report.attempts), 'attempt')}"
    if report.stop:
        told += f", stop reason {report.stop}{' (synthetic)' if report.synthetic else ''}"
    return told


def costs(report: Report) -> tuple[str, str]:
    """Say what the turn would have cost uncut, and what was billed for all attempts."""
    return _tokens(report.turn), _tokens(report.billed)


def _tokens(usage: Usage) -> str:
    return f"{number(usage.prompt)} tokens in, {number(usage.output)} out"


def account(report: Report) -> str:
    """Tell the turn in lines: what became of it, each attempt, what was billed."""
    lines = [f"{report.model or report.dialect}: {summary(report)}, {report.seconds:.1f} s"]
    for one in report.attempts:
        limit = "no limit" if one.limit is None else f"limit {one.limit:,}"
        ended = one.error or one.stop or "no end"
        more = ", discarded" if one.discarded else ", saved" if one.saved else ""
        told = f"{limit}, {_tokens(one.usage or Usage())}, {ended}, {one.seconds:.1f} s{more}"
        lines.append(f"  {one.number} {one.mode}: {told}")
    price = report.cost
    paid = "" if price is None else f", ${price:.4f}"
    lines.append(f"  billed: {_tokens(report.billed)}{paid}")
    return "\n".join(lines)


def read(told: Mapping[str, Any]) -> Report:
    """Make a report again of what its `as_dict` told; see `Report.from_dict`."""
    if not isinstance(told, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from JSON
        raise ValueError(f"this is no report of a turn: a {type(told).__name__}, not an object")
    needed = (item.name for item in fields(Report) if item.default is item.default_factory)
    if lacking := [name for name in needed if name not in told]:
        raise ValueError(f"this is no report of a turn: it does not say its {', '.join(lacking)}")
    parts = (
        ("attempts", Attempt), ("seams", SeamReport), ("learned", Lesson),
        ("repairs", Change), ("calls", CallReport),
    )  # fmt: skip
    try:
        lists = {
            name: tuple(_known(kind, each) for each in told.get(name, ())) for name, kind in parts
        }
        return _known(Report, {**told, **lists, "rows": tuple(told.get("rows", ()))})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is no report of a turn: {error}") from error


def _known(kind: type[T], told: Mapping[str, Any]) -> T:
    """Make one of `kind`, of those of its fields that are told."""
    names = (item.name for item in fields(kind))  # type: ignore[arg-type]  # of dataclasses alone
    values: dict[str, Any] = {name: told[name] for name in names if name in told}
    for name, of in (("outcome", Outcome), ("mode", Mode)):
        if name in values:
            values[name] = of(values[name])
    if values.get("usage") is not None:
        values["usage"] = _known(Usage, values["usage"])
    return kind(**values)


def remedy(report: Report) -> str:
    """Say what helps where a turn did not become whole."""
    return _REMEDIES.get(report.reason or "") or _OTHERWISE.get(report.outcome, "")


def log(report: Report) -> None:
    """Log a turn that was cut: a warning with what helps, or that it was healed. Never its text."""
    count = report.characters
    held = "" if count is None else f", {plural(count, 'character')} in hand"
    if report.outcome is Outcome.HEALED:
        logger.info("%s: %s%s", report.model, summary(report), held, extra={"report": report})
        return
    # Who leaves an answer half-way knows that it is not whole.
    level = logging.INFO if report.reason == "closed by the caller" else logging.WARNING
    told = (report.model, summary(report), held, remedy(report))
    logger.log(level, "%s: %s%s: %s", *told, extra={"report": report})


def cost(report: Report) -> float | None:
    """Return the list price of all that was billed, in US dollars; `None`: it is not known."""
    paid = [each for each in report.attempts if not each.saved]
    usages = [each.usage for each in paid if each.usage is not None]
    if paid and not usages:  # nobody looked (an untouched answer), or nobody said
        return None
    return price(report.model, report.host, usages)


def price(model: str | None, host: str | None, usages: Iterable[Usage]) -> float | None:
    """Return the list price of what a model used, in US dollars; `None`: it is not known."""
    try:
        prices: Any = importlib.import_module("genai_prices")
    except ImportError:
        return None
    vendor = {"provider_api_url": f"https://{host}"}
    anybody = dict[str, str]()  # of a gateway nobody knows prices: the model's maker's stand in
    total = 0.0
    for usage in usages:
        tokens = prices.Usage(
            input_tokens=usage.prompt,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.output,
        )
        for who in (vendor, anybody):
            try:
                found = prices.calc_price(tokens, (model or "").removeprefix("models/"), **who)
            except (LookupError, ValueError):
                continue
            total += float(found.total_price)
            break
        else:
            return None
    return total
