"""`continuation report`: what became of turns, from their JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from continuation.cli.exits import CommandError, Commands, Exit, free, reason
from continuation.cli.screen import Screen, screen, tell
from continuation.reports.report import Report

_DESCRIPTION = """\
Show the reports in FILE: the JSON of `report.as_dict()` or of `continuation run --json`, a list of
such, or a log with one a line, as `continuation serve` writes it. Nothing is loaded from anywhere,
and a report holds nothing of what was said."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "report", help="show what became of turns", description=_DESCRIPTION
    )
    parser.add_argument("file", metavar="FILE", help='"-" reads standard input')
    parser.add_argument("--html", action="store_true", help="a page that draws each turn in time")
    parser.add_argument("--out", type=Path, metavar="PATH", help="write it there")
    parser.add_argument("--force", action="store_true", help="replace what --out names")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell each report, as text or as one page of HTML."""
    where, out = arguments.file, arguments.out and free(arguments.out, force=arguments.force)
    try:
        text = sys.stdin.read() if where == "-" else Path(where).read_text(encoding="utf-8")
        reports = [Report.from_dict(one.get("report", one)) for one in _entries(text)]
    except (OSError, ValueError, AttributeError) as error:
        raise CommandError(f"{where}: {reason(error)}", Exit.USAGE) from error
    tell([report.as_dict() for report in reports])
    told = "\n".join(map(str, reports))
    if arguments.html:
        from continuation.reports.timeline import page

        told = page(reports)
    if out is None:
        (Screen(sys.stdout) if arguments.html else screen(sys.stdout)).line(told.rstrip("\n"))
        return Exit.WHOLE
    try:
        out.write_text(told, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--out {reason(error)}", Exit.USAGE) from error
    return Exit.WHOLE


def _entries(text: str) -> list[Any]:
    """Read one value, a list of them, or one a line."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not isinstance(found, list):
        return [found]
    if not found:
        raise ValueError("there is no report in it")
    return found  # pyright: ignore[reportUnknownVariableType] - what JSON holds
