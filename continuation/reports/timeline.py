"""Draws a turn as a timeline, for the README's picture, for notebooks and for HTML pages.

Each attempt has a row, and all rows share one axis of seconds. A dashed line is a wait. A striped
bar is the time in which output was buffered, to find the seam or to drop a repetition. The output
of a plain bar is part of the answer, and that of a hollow bar is not. The drawing loads nothing and
runs no script. Every name from a model, a provider or a caller is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from continuation.ledger import Attempt
from continuation.reports.account import advice, costs, dollars, made, number, plural, summary
from continuation.reports.report import Report, SeamReport
from continuation.types import Usage

_WIDTH, _LEFT, _CHART, _ROW = 760, 120, 380, 24
"""In pixels: the drawing's width, the beginning and length of the axis, the height of a row."""
_DARK, _PALE, _IN, _OUT, _BAD, _GOOD = (
    "#24292f", "#6e7781", "#4078c0", "#8c959f", "#b3261e", "#1a7f37"
)  # fmt: skip
_FONT = "font-family:system-ui,-apple-system,'Segoe UI',sans-serif"
_WHOLE = ("complete", "healed")
_STRIPES = (
    '<pattern id="continuation-held" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="6" height="6" fill="#dbe6f4"/>'
    f'<rect width="3" height="6" fill="{_IN}"/></pattern>'
)


def svg(*turns: tuple[str, Report]) -> str:
    """Return an SVG drawing of turns, each a title and a report, on one axis of seconds."""
    longest = max((_end(report) for _, report in turns), default=0.0) or 1.0
    label = "; ".join(f"{title}: {summary(report)}" for title, report in turns)
    body, y = list[str](), 12
    for title, report in turns:
        body.append(_text(12, y + 12, title, size=14, weight=600))
        y += 24
        for row in _rows(report, longest):
            body.append(f'<g transform="translate(0 {y})">{row}</g>')
            y += _ROW
        for line, rgb in _result(report):
            body.append(_text(_LEFT, y + 12, line, rgb=rgb))
            y += 18
        y += 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="100%"'
        f' style="max-width:{_WIDTH}px;{_FONT}" role="img" aria-label="{escape(label)}">'
        f'<defs>{_STRIPES}</defs><rect width="{_WIDTH}" height="{y}" rx="6" fill="#fff"/>'
        f"{''.join(body)}</svg>"
    )


def _end(report: Report) -> float:
    return max((a.begun + a.seconds for a in report.attempts), default=0.0)


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """An attempt to draw; all times are in seconds since the turn began."""

    name: str
    waited: float
    """When the wait before the attempt began."""
    begun: float
    shown: float
    """When output was first delivered; it was buffered until then."""
    ended: float
    kind: str
    """`in`: some of its output is in the answer; `out`: none is; `error`: the attempt failed."""
    what: str
    fate: str
    seam: str | None


def rows(attempts: Iterable[Attempt], seams: Iterable[SeamReport]) -> Iterator[TimelineRow]:
    """Yield a row for each attempt of a turn. The turn may still be under way."""
    seam_of, ended = {seam.attempt: seam for seam in seams}, 0.0
    for attempt in attempts:
        seam = seam_of.get(attempt.number)
        out = attempt.discarded and not attempt.kept
        end = attempt.begun + attempt.seconds
        yield TimelineRow(
            name=f"{attempt.number} {attempt.mode}",
            waited=min(ended, attempt.begun) if attempt.number > 1 else attempt.begun,
            begun=attempt.begun,
            shown=attempt.begun if attempt.shown is None else min(attempt.shown, end),
            ended=end,
            kind="error" if attempt.error and not attempt.kept else "out" if out else "in",
            what=_attempt_text(attempt),
            fate=_fate(attempt),
            seam=None if seam is None else _seam_text(seam),
        )
        ended = max(ended, end)


def _seam_text(seam: SeamReport) -> str:
    where = f"a seam at character {seam.at:,}: {seam.kind}"
    if seam.kind == "assumed":
        where += " (nothing repeated proves it)"
    left_out = f", {plural(seam.dropped, 'character')} repeated and left out"
    return where + left_out * bool(seam.dropped)


def _rows(report: Report, longest: float) -> Iterator[str]:
    """Yield the SVG elements of each attempt and the wait before it."""
    for row in rows(report.attempts, report.seams):
        begin, end, waited, shown = (
            _LEFT + _CHART * at / longest for at in (row.begun, row.ended, row.waited, row.shown)
        )
        shapes = [_text(12, 15, row.name)]
        if begin - waited > 2:
            tooltip = f"waited {row.begun - row.waited:.2f} s"
            line = f'<path d="M{waited:.1f} 10H{begin:.1f}" stroke="{_PALE}" stroke-dasharray="3 3"'
            shapes.append(f"{line}><title>{tooltip}</title></path>")
        bad = row.kind == "error"
        hollow = f'fill="none" stroke="{_BAD if bad else _OUT}"'
        shapes.append(_bar(begin, end, f'fill="{_IN}"' if row.kind == "in" else hollow, row.what))
        if shown - begin > 1:
            tooltip = f"held for {row.shown - row.begun:.2f} s"
            shapes.append(_bar(begin, shown, 'fill="url(#continuation-held)"', tooltip))
        if row.seam is not None:
            mark = f'<path d="M{begin:.1f} -4V24" stroke="{_GOOD}" stroke-width="2">'
            shapes.append(f"{mark}<title>{escape(row.seam)}</title></path>")
        shapes.append(_text(_LEFT + _CHART + 12, 15, row.fate, rgb=_BAD if bad else _PALE))
        yield "".join(shapes)


def _bar(begin: float, end: float, style: str, what: str) -> str:
    box = f'x="{begin:.1f}" y="4" width="{max(end - begin, 1.5):.1f}" height="12" rx="2"'
    return f"<rect {box} {style}><title>{escape(what)}</title></rect>"


def _text(x: int, y: int, text: str, *, rgb: str = _DARK, size: int = 12, weight: int = 400) -> str:
    attributes = f'x="{x}" y="{y}" fill="{rgb}" font-size="{size}" font-weight="{weight}"'
    return f"<text {attributes}>{escape(text)}</text>"


def _fate(attempt: Attempt) -> str:
    """Return how an attempt ended, in at most 40 characters."""
    of = "" if attempt.limit is None else f" of {attempt.limit:,}"
    noun = "token" if attempt.usage and attempt.usage.output == 1 and not of else "tokens"
    count = "" if attempt.usage is None else f"{made(attempt.usage)}{of} {noun}, "
    return f"{count}{attempt.error or attempt.stop or 'no end'}"[:40]


def _attempt_text(attempt: Attempt) -> str:
    notes = [f"{attempt.seconds:.2f} s", _fate(attempt)]
    if attempt.kept:
        notes.append(f"{plural(attempt.kept, 'character')} of it in the answer")
    elif attempt.discarded:
        notes.append("not in the answer")
    return ", ".join([*notes, *["not paid again"] * attempt.saved])


def _result(report: Report) -> Iterator[tuple[str, str]]:
    good = report.outcome in _WHOLE
    yield f"{summary(report)}, {report.seconds:.1f} s", _GOOD if good else _BAD
    turn, billed = costs(report)
    yield f"delivered: {turn}; billed: {billed}{dollars(report)}", _PALE


def fragment(report: Report) -> str:
    """Return the timeline and its tables as HTML for part of a page."""
    parts = [svg((report.model or report.dialect, report))]
    if helps := advice(report):
        parts.append(f"<p>{escape(helps)}</p>")
    attempts = [
        (
            str(a.number), str(a.mode), number(a.limit), a.error or a.stop or "no end",
            number((a.usage or Usage()).prompt), made(a.usage),
            f"{a.begun:.2f}", f"{a.seconds:.2f}", a.request_id or "-",
        )
        for a in report.attempts
    ]  # fmt: skip
    head = ["attempt", "mode", "limit", "ended", "in", "out", "begun", "seconds", "request"]
    parts.append(_table(head, attempts))
    seams = [
        (str(s.attempt), f"{s.at:,}", s.argument or "text", s.kind, f"{s.dropped:,}",
         f"{s.taken_back:,}", f"{s.inserted:,}", f"{s.confidence:.2f}")
        for s in report.seams
    ]  # fmt: skip
    head = ["attempt", "seam at", "in", "found", "left out", "taken back", "put in", "sure"]
    parts.append(_table(head, seams))
    calls = [(c.name, c.how, f"{c.characters:,}", c.reason or "-") for c in report.calls]
    parts.append(_table(["call", "what became of it", "characters", "why"], calls))
    repairs = [(r.what, r.where, r.why) for r in report.repairs]
    parts.append(_table(["repair", "where", "why"], repairs))
    return f'<div style="{_FONT};font-size:13px">{"".join(parts)}</div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table, or `""` if it has no rows."""
    cell = 'style="text-align:left;padding:2px 12px 2px 0;font-weight:'
    lines = ["".join(f'<td {cell}400">{escape(each)}</td>' for each in row) for row in rows]
    names = "".join(f'<th {cell}600">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{names}</tr>{body}</table>" if lines else ""


def page(reports: Sequence[Report]) -> str:
    """Return an HTML page that shows each report."""
    parts = "<hr>".join(map(fragment, reports))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>continuation</title>'
        f'<body style="margin:2em;background:#fff;color:{_DARK}">{parts}</body></html>\n'
    )
