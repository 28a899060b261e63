"""Counts the results of a batch, shows the counts while it runs, and sums them up at the end."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable

import continuation
from continuation.bulk.lines import (
    answer_json,
    is_cut,
)
from continuation.cli.batch.files import Lines
from continuation.cli.batch.output import Output
from continuation.cli.exits import Exit
from continuation.cli.refusals import sdk_error
from continuation.cli.screen import ShowLine, print_json
from continuation.reports.account import number, plural

WHOLE_OUTCOMES = ("complete", "healed", "untouched")
_ENOUGH = 20
"""The batch ends after so many consecutive errors that every request would have.

A missing connection is such an error.
"""
_NOT_SENT = TypeError, ValueError
"""What an SDK raises for a request that it cannot send."""
_EVERY = 10.0
"""Seconds between two lines of progress, if there is no live line."""
_SLOWEST = 3
"""The most slow requests that are named."""


class Tally:
    """Counts results, and shows the counts while they arrive and at the end."""

    def __init__(self, lines: Lines, out: Output) -> None:
        self._lines, self._out = lines, out
        self._outcomes = Counter[str]()
        self._failed = self._cut = self._in_a_row = 0
        """Failed requests, incomplete answers, consecutive errors that every request would have."""
        self._input = self._output = 0
        self._estimated = False
        """Whether the sum of output tokens contains an estimate."""
        self._cost: float | None = None
        self._slowest: list[tuple[float, int, str]] = []
        self._began = self._last = time.monotonic()

    def add(self, result: continuation.BatchResult, describe: Callable[[Exception], str]) -> None:
        """Count a result, and write its line. Raises `OSError`."""
        report = result.report
        if report is not None:
            self._input += report.billed.prompt or 0
            self._output += report.billed.output or 0
            self._estimated = self._estimated or report.billed.estimated
            if (cost := report.cost) is not None:
                self._cost = (self._cost or 0.0) + cost
            slow = report.seconds, result.index, result.id
            push = heapq.heappush if len(self._slowest) < _SLOWEST else heapq.heappushpop
            push(self._slowest, slow)
        where = f"line {result.index}: {result.id!r}"
        if result.error is not None:
            self._lines.drop(result.index)
        if result.error is not None and report is None and isinstance(result.error, _NOT_SENT):
            why = f"{result.id!r} cannot be sent: {sdk_error(result.error)}; change the request"
            self._lines.report_bad(result.index, why)
            return
        if result.error is not None:
            self._failed += 1
            self._lines.notes.line(f"continuation: {where} failed: {describe(result.error)}", "red")
            return
        outcome = str(report.outcome) if report else "untouched"
        self._out.write(self._lines.line(result))
        self._outcomes[outcome] += 1
        if outcome not in WHOLE_OUTCOMES or is_cut(answer_json(result.answer)):
            self._cut += 1
            why = f": {report.reason}" if report and report.reason else ""
            self._lines.notes.line(f"continuation: {where} is incomplete: {outcome}{why}", "yellow")

    def reason_to_stop(self, result: continuation.BatchResult) -> str:
        """Return why every other request would fail too, or `""` if one may succeed."""
        error = result.error
        status = getattr(error, "status_code", getattr(error, "code", None))
        refused, sent = status in {401, 403}, result.report is not None
        if not refused and (error is None or status is not None or not sent):
            self._in_a_row = 0
            return ""
        self._in_a_row += 1
        enough = refused and not self._outcomes
        return (
            "every other request would fail the same way"
            if enough or self._in_a_row >= _ENOUGH
            else ""
        )

    @property
    def _done(self) -> int:
        return self._outcomes.total() + self._failed + self._lines.bad + self._lines.before

    def show(self, show: ShowLine) -> None:
        """Show progress on a live line, or else on a new line every `_EVERY` seconds."""
        now = time.monotonic()
        if not self._lines.notes.live and now < self._last + _EVERY:
            return
        self._last, came = now, self._outcomes.total() + self._failed
        rate, left = came / max(now - self._began, 0.001), max(self._lines.count - self._done, 0)
        parts = [f"{self._done:,} of {self._lines.count:,}", f"{rate:,.1f} per second"]
        if self._cost is not None:
            parts.append(f"~${self._cost:.2f}")
        minutes, seconds = divmod(int(left / max(rate, 0.001)), 60)
        parts.append(f"{minutes}:{seconds:02} left")
        show(", ".join(parts), self._done)
        if not self._lines.notes.live:
            self._lines.notes.line(f"continuation: {', '.join(parts)}")

    def end(self, why: tuple[str, Exit]) -> int:
        """Write the summary; return the exit status.

        `why`: what ended the batch early (`""`: nothing), and the exit status of that.
        """
        error, status = why
        lines, note = self._lines, self._lines.notes.line
        seconds = time.monotonic() - self._began
        outcomes = dict(self._outcomes.most_common())
        nothing = "none done" if error else "nothing to do"
        counts = [f"{count:,} {outcome}" for outcome, count in outcomes.items()]
        for count, what in ((self._failed, "failed"), (lines.bad, "bad"), (lines.before, "before")):
            counts += [f"{count:,} {what}"] if count else []
        note(f"continuation: {plural(self._done, 'line')}: {', '.join(counts) or nothing}")
        cost = "" if self._cost is None else f", {'~' * self._estimated}${self._cost:.4f}"
        about = "~" * self._estimated
        tokens = f"{plural(self._input, 'token')} in, {about}{number(self._output)} out"
        note(f"continuation: billed: {tokens}{cost}; {seconds:.1f} s")
        slowest = sorted(self._slowest, reverse=True)
        if slowest:
            items = (f"{name} (line {line}) {took:.1f} s" for took, line, name in slowest)
            note(f"continuation: slowest: {', '.join(items)}")
        if error:
            note(f"continuation: {error}; run the same command to resume", "red")
        flags = (Exit.PROVIDER, self._failed), (Exit.USAGE, lines.bad), (Exit.NOT_WHOLE, self._cut)
        status = max(status, *(flag for flag, count in flags if count), Exit.WHOLE)
        print_json(
            {"exit": status, "error": error or None, "outcomes": outcomes, "failed": self._failed}
            | {"not_whole": self._cut, "no_result": lines.missing}
            | {"bad": lines.bad, "before": lines.before, "seconds": round(seconds, 3)}
            | {"input": self._input, "output": self._output, "estimated": self._estimated}
            | {"cost": self._cost}
            | {"slowest": [{"id": i, "line": n, "seconds": round(s, 3)} for s, n, i in slowest]}
        )
        return status
