"""The command `continuation`: its parser and its exit status. Each subcommand is in a module."""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from continuation import __version__
from continuation.cli.exits import CommandError, Exit
from continuation.cli.interrupts import repeat_ignored_interrupts
from continuation.cli.screen import output_mode, silence, soften

__all__ = ["Exit", "main"]

_COMMANDS = {
    **{name: name for name in ("demo", "run", "report", "serve", "simulate")},
    "finish": "batch",
    "check": "sessions",
    "repair": "sessions",
    "sessions": "journal",
    **{name: name for name in ("config", "limits", "doctor")},
}
"""The module of each command. Only the called command's module is imported: most are slow."""
_EPILOG = """\
exit status:
    0  the answer is complete (demo: the texts are identical; serve, simulate: stopped by Ctrl-C)
    1  the answer is incomplete or could not be written (demo: the texts differ)
    2  wrong usage: an argument, a file or the configuration
    3  something is missing: an extra or a key
    4  the provider answered with an error or could not be reached
   70  an internal error; nothing that was read is printed
  130  stopped by Ctrl-C; the text that had arrived was kept
run --batch, finish: the highest of the lines (each counts as a run); 2 if no line can be sent
check, repair: 0 valid or repaired; 1 `check` found a fault; 2 not repairable
config check: 1 if the file has mistakes; doctor: 1 if something is wrong

example:
    continuation run "Write a guide to ..." --model claude-sonnet-5 --out guide.md

Output has colours on a terminal, but not in a pipe or when NO_COLOR is set."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of the process), and return its exit status.

    Raises `SystemExit`, as argparse does, for `--help`, `--version` and wrong usage.
    """
    soften(sys.stdout, sys.stderr)
    command_line = sys.argv[1:] if argv is None else argv
    arguments = _parser(command_line[0] if command_line else "").parse_args(command_line)
    logger = logging.getLogger("continuation")
    logger.addFilter(_is_no_report)
    try:
        with (
            output_mode("json" if arguments.json else "quiet" if arguments.quiet else "lines"),
            repeat_ignored_interrupts(),
        ):
            return int(arguments.command(arguments))
    except (CommandError, KeyboardInterrupt) as error:
        message, status = "interrupted", Exit.INTERRUPTED
        if isinstance(error, CommandError):
            message, status = str(error), error.exit
        if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `2>&-`
            sys.stderr.write(f"continuation: {message}\n")
        return int(status)
    except Exception as error:  # its text is not printed, because it may contain what was read
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {at.name}, line {at.lineno} of {Path(at.filename).name}"
        if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stderr.write(f"continuation: internal error: {where}\n")
        return int(Exit.CRASH)
    finally:
        logger.removeFilter(_is_no_report)
        silence(sys.stdout, sys.stderr)


def _is_no_report(record: logging.LogRecord) -> bool:
    """Whether a log record is not the report of a turn. The commands write reports themselves."""
    return not hasattr(record, "report")


class _Parser(argparse.ArgumentParser):
    """A parser that adds `--json` and `--quiet` to every command that can be run.

    It refuses abbreviated options, because a misspelled option could be one. For a misspelled
    option it suggests the nearest.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.allow_abbrev = False

    def error(self, message: str) -> NoReturn:
        """End the program with the message, and suggest what the user probably meant."""
        known = self.option_strings()
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            wrong, known = choice, re.findall(r"[\w-]+", choice[2])
        if wrong and (near := difflib.get_close_matches(wrong[1], known, n=1)):
            message = f"{message}; did you mean {near[0]}?"
        super().error(message)

    def option_strings(self) -> list[str]:
        """Return all options, including those of subcommands."""
        found = list[str]()
        for action in self._actions:
            found += action.option_strings
            below: object = action.choices  # of subcommands: name -> parser
            if isinstance(below, dict):
                parsers = cast("dict[str, _Parser]", below).values()
                found += [option for parser in parsers for option in parser.option_strings()]
        return found

    def set_defaults(self, **defaults: Any) -> None:
        super().set_defaults(**defaults)
        if "command" in defaults:
            group = self.add_mutually_exclusive_group()
            group.add_argument(
                "--json", action="store_true", help="print one JSON value and nothing else"
            )
            group.add_argument("--quiet", action="store_true", help="print errors only")


def _parser(command: str) -> argparse.ArgumentParser:
    """Return a parser with one command if `command` is its name, or else with all commands."""
    parser = _Parser(
        prog="continuation",
        description="Complete model answers that were truncated at the output limit or dropped.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"continuation {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = _COMMANDS.get(command)
    for module in [chosen] if chosen else dict.fromkeys(_COMMANDS.values()):
        importlib.import_module(f"{__name__}.{module}").add_to(commands)
    return parser
