"""`continuation report`: shows reports of turns that are stored as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from continuation.cli.exits import CommandError, Commands, Exit, free, needs, reason
from continuation.cli.screen import Screen, print_json, screen
from continuation.reports.report import Report

_DESCRIPTION = """\
Print the reports in FILE. FILE holds the JSON of `report.as_dict()` or of `continuation run
--json`, a list of them, or one per line, as `continuation serve` writes its log. A report contains
no message text, and the HTML page loads nothing from the network."""
_WANTED = (
    "the JSON of `report.as_dict()` or of `continuation run --json`, or a file with one per line"
)


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "report", help="print the reports in a file", description=_DESCRIPTION
    )
    parser.epilog = "example: continuation report turns.jsonl --html --out turns.html"
    parser.add_argument("file", metavar="FILE", help='read FILE; "-" reads standard input')
    parser.add_argument(
        "--html", action="store_true", help="write an HTML page with a timeline of each turn"
    )
    parser.add_argument(
        "--out", type=Path, metavar="PATH", help="write to PATH (default: standard output)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file that --out names")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the reports, as text or as one page of HTML."""
    needs(arguments.force, "--force", arguments.out, "--out PATH")
    if arguments.html and arguments.json and arguments.out is None:
        message = "--html: --json uses standard output; add --out PATH"
        raise CommandError(message, Exit.USAGE)
    where, out = arguments.file, arguments.out and free(arguments.out, force=arguments.force)
    try:
        text = sys.stdin.read() if where == "-" else Path(where).read_text(encoding="utf-8")
        reports = [Report.from_dict(each) for each in _entries(text)]
    except UnicodeDecodeError as error:
        message = f"{where}: not UTF-8 text (byte {error.start}); give {_WANTED}"
        raise CommandError(message, Exit.USAGE) from error
    except OSError as error:
        raise CommandError(reason(error), Exit.USAGE) from error
    except RecursionError as error:
        message = f"{where}: its JSON is nested too deeply; give {_WANTED}"
        raise CommandError(message, Exit.USAGE) from error
    except ValueError as error:
        raise CommandError(f"{where}: {error}; give {_WANTED}", Exit.USAGE) from error
    print_json([report.as_dict() for report in reports])
    output = "\n".join(map(str, reports))
    if arguments.html:
        from continuation.reports.timeline import page

        output = page(reports)
    if out is None:
        (Screen(sys.stdout) if arguments.html else screen(sys.stdout)).line(output.rstrip("\n"))
        return Exit.WHOLE
    try:
        out.write_text(output, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--out {reason(error)}", Exit.USAGE) from error
    return Exit.WHOLE


def _entries(text: str) -> list[Any]:
    """Return the reports in a JSON value, in a list, or in lines. Raises `ValueError` for none."""
    try:
        value: Any = json.loads(text)
        entries = cast("Iterable[Any]", value if isinstance(value, list) else [value])
    except ValueError:
        entries = [_line(number, line) for number, line in enumerate(text.splitlines(), 1) if line]
    reports = [_report(entry) for entry in entries]
    if not [entry for entry in reports if entry is not None]:
        raise ValueError("it has no report")
    return reports


def _report(entry: Any) -> Any:
    return cast("dict[str, Any]", entry).get("report", entry) if isinstance(entry, dict) else entry


def _line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(f"line {number} is not JSON") from None
