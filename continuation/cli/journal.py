"""`continuation sessions`: shows what is in a journal, and what a resume would do."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from continuation.cli.exits import CommandError, Commands, Exit
from continuation.cli.screen import print_json, screen
from continuation.reports.account import number, plural

if TYPE_CHECKING:
    from collections.abc import Generator

    from continuation.journal import Journal
    from continuation.journal.look import Listed

_DESCRIPTION = """\
Inspect the sessions of a `continuation.Journal`, also while a process uses it. Only `prune` changes
the journal. Message text appears only in the output of `export` and `copy`, and of `show` with
--content."""
_COPY = """\
Copy the journal's file, also while a process uses it. If no process uses the journal, you can copy
the file itself instead."""
_EXPORT = """\
Write a session's valid history to standard output, as the JSON of a request. (To copy a whole
journal, use `continuation sessions copy`.)"""
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_STYLES = {"running": "green", "interrupted": "yellow", "calls open": "yellow", "idle": ""}


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "sessions", help="list, show, resume, export, copy and prune a journal's sessions",
        description=_DESCRIPTION,
    )  # fmt: skip
    parser.epilog = "example: continuation sessions list agent.db"
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    for verb, act, about in (
        ("list", _list, "list the sessions: state, owner, and open tool calls"),
        ("show", _show, "show the events of a session, with their times"),
        (
            "resume",
            _resume,
            "show how far a session's running turn got, and what is sent when it resumes",
        ),
        ("export", _export, "write a session's valid history as the JSON of a request"),
        ("copy", _copy, "copy the journal's file, also while a process uses it"),
        ("prune", _prune, "remove old sessions that no process owns"),
    ):
        one = verbs.add_parser(verb, help=about, description=about[0].upper() + about[1:] + ".")
        more = {"copy": " copy.db", "list": "", "prune": " --older 2w"}.get(verb, " my-session")
        one.epilog = f"example: continuation sessions {verb} agent.db{more}"
        one.add_argument(
            "journal", metavar="JOURNAL", help="read this journal: a file or a postgresql:// URL"
        )
        if verb in {"show", "resume", "export"}:
            one.add_argument("session", metavar="SESSION", help="read the session of this name")
        if verb == "show":
            one.add_argument("--content", action="store_true", help="include message text")
        if verb == "copy":
            one.add_argument("copy", type=Path, metavar="COPY", help="write the copy to this file")
            one.description = _COPY
        if verb == "export":
            one.description = _EXPORT
            one.add_argument("--dialect", metavar="D", help="fail if the session's format is not D")
        if verb == "prune":
            one.add_argument(
                "--older", type=_age, default=_age("30d"), metavar="AGE",
                help="select sessions unused for AGE, such as 90m, 12h, 30d, 2w (default: 30d)",
            )  # fmt: skip
            one.add_argument(
                "--yes", action="store_true", help="remove the sessions (default: only list them)"
            )
        one.set_defaults(command=_run, act=act)


def _age(text: str) -> float:
    """Read an age in seconds, for argparse."""
    if (read := re.fullmatch(r"(\d+)([mhdw])", text)) is None:
        message = f"{text!r} is not an age; write a number and m, h, d or w, as in 30d"
        raise argparse.ArgumentTypeError(message)
    return int(read[1]) * _UNITS[read[2]]


def _run(arguments: argparse.Namespace) -> int:
    from continuation.journal import JournalError

    try:
        lines, entry = arguments.act(arguments)
    except (JournalError, ValueError, OSError) as error:
        raise CommandError(str(error), Exit.USAGE) from error
    out = screen(sys.stdout)
    print_json(entry)
    for line, style in lines:
        out.line(
            "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in line), style
        )
    return Exit.WHOLE


Listing = tuple[list[tuple[str, str]], dict[str, Any]]
"""Lines with their styles, and the same content as JSON."""


def _list(arguments: argparse.Namespace) -> Listing:
    sessions = listed(arguments.journal)
    lines = [line for each in sessions for line in lines_of(each)]
    return lines or [("no sessions", "")], {"sessions": [asdict(each) for each in sessions]}


def listed(target: str | os.PathLike[str]) -> list[Listed]:
    """Return the sessions of a journal. Raises `JournalError`."""
    from continuation.journal import look

    with look.reading(target) as journal:
        return look.sessions(journal)


def lines_of(one: Listed) -> list[tuple[str, str]]:
    """Return lines that describe one session, with their styles."""
    owner = f"owner {one.owner} (process {one.process})" if one.owner else "no owner"
    seen = f"seen {_span(time.time() - one.seen)} ago"
    parts = [one.dialect, one.model, plural(one.turns, "turn"), owner, seen]
    lines = [(f"{one.session}: {one.state}", _STYLES[one.state])]
    lines += [("  " + ", ".join(filter(None, parts)), "")]
    if one.saves:
        saved = f"{plural(one.characters, 'character')} in {plural(one.saves, 'save')}"
        calls = plural(one.attempts, "upstream call")
        lines.append((f"  an answer is incomplete: {saved}, {calls}", ""))
    for call in one.calls:
        lines.append((f"  {call.name} ({call.id}) began {_span(call.seconds)} ago: no result", ""))
    if one.waiting:
        lines.append((f"  {plural(one.waiting, 'call')} of the last answer has not started", ""))
    return lines


def _span(seconds: float) -> str:
    for unit, size in reversed(_UNITS.items()):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _show(arguments: argparse.Namespace) -> Listing:
    from continuation.journal import look

    with look.reading(arguments.journal) as journal:
        one = look.sessions(journal, arguments.session)[0]
        moments = look.timeline(journal, one.session, content=arguments.content)
    lines = lines_of(one)
    for moment in moments:
        took = "" if moment.seconds is None else f", after {moment.seconds:.3f} s"
        lines.append((f"  {moment.at:+11.3f} s  {moment.what}{took}", ""))
        if moment.content is not None:
            text = json.dumps(moment.content, ensure_ascii=False)
            lines.append((f"                 {text}", "dim"))
    return lines, {**asdict(one), "moments": [asdict(moment) for moment in moments]}


@contextmanager
def _opened(arguments: argparse.Namespace) -> Generator[tuple[Listed, Journal]]:
    """Open a session's journal for reading; yield the session's entry and the journal."""
    from continuation.journal import Journal, look

    with look.reading(arguments.journal) as journal:
        one = look.sessions(journal, arguments.session)[0]
        content = look.content_mode(journal, one.session)
    with Journal(arguments.journal, one.session, readonly=True, content=content) as opened:
        yield one, opened


def _resume(arguments: argparse.Namespace) -> Listing:
    with _opened(arguments) as (one, journal):
        resume = journal.resume()
    document, lines = {**asdict(resume), "state": one.state, "owner": one.owner}, lines_of(one)
    if one.owner == "alive":
        lines.append((f"cannot resume: process {one.process} owns the session", "red"))
    elif resume.kind == "turn" and resume.resumable:
        where = f"after {plural(resume.characters, 'character')} that are not billed again"
        lines.append((f"the same request continues {where}", ""))
    elif resume.kind == "turn":
        lines.append(("the same request is sent again: no text of its answer was recorded", ""))
    elif resume.kind == "nothing":
        lines.append(("there is nothing to resume: the next request begins a turn", ""))
    for calls, what in (
        (resume.not_started, "has not started: safe to run"),
        (resume.unknown, "started, and its result is unknown: not run again"),
    ):
        lines += [(f"  {call.name} ({call.id}) {what}", "") for call in calls]
    lines += [
        (f"  the result of {call} is sent with the next request", "") for call in resume.unsent
    ]
    for kind in ("not_started", "unknown", "abandoned"):  # leave out the calls' arguments
        document[kind] = [{"id": call.id, "name": call.name} for call in getattr(resume, kind)]
    return lines, document


def _export(arguments: argparse.Namespace) -> Listing:
    with _opened(arguments) as (one, journal):
        messages = journal.history(arguments.dialect)
    from continuation.registry import shapes

    shape = shapes().get(one.dialect)
    # A session without an answer has no format.
    key = "messages" if shape is None else shape.messages
    body = {"model": one.model, key: messages}
    return [(json.dumps(body, indent=2, ensure_ascii=False), "")], body


def _copy(arguments: argparse.Namespace) -> Listing:
    from continuation.journal import look

    to: Path = arguments.copy
    try:
        size = look.copy(arguments.journal, to)
    except FileExistsError as error:
        message = f"{to}: the file exists; name another one, or remove it"
        raise CommandError(message, Exit.USAGE) from error
    line = f"copied to {to}, {number(size)} bytes; use either the copy or the original, not both"
    return [(line, "")], {"copy": str(to), "bytes": size}


def _prune(arguments: argparse.Namespace) -> Listing:
    from continuation.journal import look

    freed = 0
    if arguments.yes:
        removed, freed = look.prune(arguments.journal, arguments.older)
    else:
        removed = [one.session for one in listed(arguments.journal) if one.silent(arguments.older)]
    lines = [(f"{'removed' if arguments.yes else 'would remove'} {name}", "") for name in removed]
    message = f"removed {plural(len(removed), 'session')}"
    if freed:
        message = f"{message}; the file is {number(freed)} bytes smaller"
    if not arguments.yes:
        message = f"{plural(len(removed), 'session')}; nothing is removed without --yes"
    return [*lines, (message, "")], {"removed": arguments.yes, "sessions": removed, "bytes": freed}
