"""`continuation check` and `repair`: find faults in saved sessions, and write repaired copies."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from continuation.cli.exits import CommandError, Commands, Exit, positive, reason
from continuation.cli.screen import print_json, screen, wants_json
from continuation.registry import shapes
from continuation.reports.account import plural

if TYPE_CHECKING:
    from continuation.sessions import SavedSession

T = TypeVar("T")

_FORMS = """\
PATH is one of:
- a request body (JSON with `messages`, `contents` or `input`)
- a log with one JSON object per line (Claude Code, kimi-code, qwen-code,
  codex, gemini-cli, or messages alone)
- opencode's database or storage folder
- a folder of these; other files in it are skipped

The command recognizes the format from the content. It assumes that the
session has ended, so a tool call without a result is a fault. It never prints
message text."""
_EXITS = """\
exit status (of several PATHs, the highest):
    0  {good}
{found}    2  not repairable: no conversation was found, or PATH cannot be read or
       written (also: wrong usage)

example: continuation {example}"""
_BEYOND = 2
"""The exit status for a path that is not repairable."""
_CHECK = f"""\
Find the faults in saved sessions: where each one is, the error that a provider
would answer, and what `continuation repair` would do. Nothing is written.

{_FORMS}"""
_REPAIR = f"""\
Write a copy of a saved session that its provider accepts again, as
NAME.repaired.EXT beside the original. A valid session is not copied. No file is
overwritten, and a copy is written completely or not at all. Lines that need no
repair stay the same, byte for byte. For a folder, FOLDER.repaired holds only
the repaired files, at the same relative paths, so that you can copy it over the
folder.

{_FORMS}"""


def add_to(commands: Commands) -> None:
    check = commands.add_parser(
        "check", help="find the faults in saved sessions", description=_CHECK
    )
    repair = commands.add_parser(
        "repair", help="write a repaired copy of saved sessions", description=_REPAIR
    )
    for parser, good, found, example in (
        (check, "valid", "    1  a fault was found\n", "check ~/.claude/projects"),
        (repair, "valid or repaired", "", "repair session.jsonl"),
    ):
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _EXITS.format(good=good, found=found, example=example)
        parser.add_argument(
            "paths", nargs="+", type=Path, metavar="PATH", help="read this file or folder"
        )
    check.set_defaults(command=_check)
    where = repair.add_mutually_exclusive_group()
    where.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="write the copy to PATH (default: NAME.repaired.EXT)",
    )
    where.add_argument(
        "--in-place",
        action="store_true",
        help="repair the original, unless another program has it open, and keep a copy of it as "
        "NAME.orig.EXT (of the repaired files in a FOLDER: as FOLDER.orig)",
    )
    repair.add_argument(
        "--strip-thinking",
        action="store_true",
        help="remove the model's thinking, which another provider or account rejects",
    )
    repair.add_argument(
        "--shrink",
        type=positive,
        metavar="TOKENS",
        help="shorten results of tools, the oldest first, until the session has at most about "
        "TOKENS tokens (without the system prompt and the tools that the agent adds)",
    )
    repair.set_defaults(command=_repair)


def _check(arguments: argparse.Namespace) -> int:
    from continuation.sessions import checked

    return _print(arguments, checked)


def _repair(arguments: argparse.Namespace) -> int:
    out: Path | None = arguments.out
    if out is not None and (many := len(arguments.paths)) > 1:
        message = f"--out {out}: works with one PATH, but there are {many}; repair them one by one"
        raise CommandError(message, Exit.USAGE)
    if out is not None and not out.absolute().parent.is_dir():
        message = f"--out {out}: the folder {out.parent} does not exist; create it first"
        raise CommandError(message, Exit.USAGE)
    from continuation.sessions import SAVED, repairing

    thinking = "strip" if arguments.strip_thinking else SAVED.thinking
    policy = replace(SAVED, thinking=thinking, shrink=arguments.shrink)
    how = partial(repairing, target=out, in_place=arguments.in_place, policy=policy)
    return _print(arguments, how)


def _print(arguments: argparse.Namespace, how: Callable[[Path], Iterable[SavedSession]]) -> int:
    """Write what is found at each path to standard output; return the highest exit status."""
    from continuation.sessions import resting

    out = screen(sys.stdout)
    entries: list[dict[str, Any]] = []
    worst = 0
    for path in arguments.paths:
        # A path that cannot be read or written does not stop the others.
        try:
            with resting():  # garbage collection would be slow: there are many objects, no cycles
                status, lines, documents = _describe(path, how(path))
        except (OSError, RecursionError) as broken:
            deep = isinstance(broken, RecursionError)
            error = f"{path}: its JSON is nested too deeply" if deep else reason(broken)
            status, lines = _BEYOND, [(error, _STYLES[_BEYOND])]
            documents = [{"path": str(path), "exit_code": _BEYOND, "error": error}]
        worst = max(worst, status)
        entries += documents
        for line, style in lines:
            out.line(_safe(line), style)
    print_json({"sessions": entries})
    return worst


def _describe(
    path: Path, sessions: Iterable[SavedSession]
) -> tuple[int, list[tuple[str, str]], list[dict[str, Any]]]:
    """Return a path's exit status, lines with their styles, and entries if the output is JSON.

    If there are many sessions, the lines have only the number of the clean ones.
    """
    entries, clean = list[dict[str, Any]](), list[tuple[str, str]]()
    lines, states, worst = list[tuple[str, str]](), Counter[str](), 0
    for session in sessions:
        status, state = _status(session), _state(session)
        if wants_json():
            entries.append(_entry(session))
        states[state] += 1
        worst = max(worst, status)
        head = (_headline(session), _STYLES[status])
        if state == _STATES[0]:
            clean = [head]
        else:
            lines += [head, *((line, "") for line in _details(session))]
    if (count := states.total()) > 1:
        parts = ", ".join(f"{states[state]} {state}" for state in _STATES if states[state])
        clean = [(f"{path}: {count} sessions: {parts}", _STYLES[worst])]
    return worst, lines + clean, entries


def _status(session: SavedSession) -> int:
    return 0 if session.written is not None else session.exit_code


# -- in words ------------------------------------------------------------------------------------

_STYLES = ("green", "yellow", "red")
_STATES = ("clean", "repairable", "not repairable", "repaired")


def _state(session: SavedSession) -> str:
    return _STATES[3 if session.written is not None else session.exit_code]


def _headline(session: SavedSession) -> str:
    form = [session.format]
    if session.dialect is not None:
        form += [str(session.dialect), plural(_length(session), "message")]
    name = f" {session.name}" if session.name else ""
    return f"{session.path}{name}: {_state(session)} ({', '.join(form)})"


def _length(session: SavedSession) -> int:
    fields = dict.fromkeys(shape.messages for shape in shapes().values())
    lists = [session.body[name] for name in fields if isinstance(session.body.get(name), list)]
    return len(lists[0]) if lists else 0


def _kinds(items: Iterable[T], kind: Callable[[T], Hashable]) -> Iterator[tuple[T, str]]:
    """Yield the first item of each kind, with the number of others as a text.

    A broken log may have an item in each line.
    """
    first, count = dict[Hashable, T](), Counter[Hashable]()
    for each in items:
        first.setdefault(kind(each), each)
        count[kind(each)] += 1
    for name, each in first.items():
        yield each, f" (and {count[name] - 1} more like it)" if count[name] > 1 else ""


def _details(session: SavedSession) -> Iterator[str]:
    from continuation.history.rules import TABLE

    repairs = TABLE["repairs"]
    for problem, more in _kinds(session.problems, lambda each: each.code):
        position = f"line {problem.line}" if problem.line else "the file"
        yield f"  {position}: {problem.message}{more}"
    for violation, more in _kinds(session.violations, lambda each: (each.code, each.repair)):
        line = _number(session, violation.path)
        where = violation.path if line is None else f"line {line}, {violation.path}"
        yield f"  {where}: {violation.code}{more}"
        yield f"      a provider would say: {violation.message}"
        if session.written is None:
            yield f"      a repair would: {repairs[violation.repair]['does']}"
    # If the copy was written, the changes. If not, the changes for which there is no violation.
    announced = {violation.code for violation in session.violations}
    changes = session.repaired.changes if session.repaired is not None else ()
    for change, more in _kinds(changes, lambda each: (each.what, each.why)):
        what = repairs[change.what]["does"]
        if session.written is not None:
            yield f"  repaired at {change.where}: {what}{more}"
        elif change.why not in announced:
            yield f"  {change.where}: a repair would also {what}{more}"
    for left in session.repaired.left if session.repaired is not None else ():
        yield f"  {left.path}: {left.code} cannot be repaired"
    if session.written is not None:
        yield f"  written: {session.written}"


def _number(session: SavedSession, path: str) -> int | None:
    """Return the number of the log's line from which a path in the body is, or None."""
    from continuation.sessions.rewrite import LogSource

    match = re.match(r"\w+\[(\d+)\]", path)
    if match is None or not isinstance(session.source, LogSource):
        return None
    records = session.source.entries[int(match[1])].records
    return records[0].line if records else None


def _safe(text: str) -> str:
    """Escape unprintable characters, which could control the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


# -- as JSON -------------------------------------------------------------------------------------


def _entry(session: SavedSession) -> dict[str, Any]:
    repaired = session.repaired
    return {
        "path": str(session.path),
        "session": session.name or None,
        "exit_code": _status(session),
        "format": session.format,
        "dialect": None if session.dialect is None else str(session.dialect),
        "messages": _length(session),
        "problems": [asdict(problem) for problem in session.problems],
        "violations": [
            {**asdict(violation), "line": _number(session, violation.path)}
            for violation in session.violations
        ],
        "changes": [asdict(change) for change in repaired.changes] if repaired else [],
        "left": [asdict(violation) for violation in repaired.left] if repaired else [],
        "written": None if session.written is None else str(session.written),
    }
