"""Reads saved sessions in every form, and reports their problems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from continuation.history import Change
from continuation.history.api import diagnosed, shrunk
from continuation.history.detect import detect
from continuation.history.types import HistoryFormat, Repaired, RepairPolicy, Violation
from continuation.sessions.formats import no_text
from continuation.sessions.gemini_cli import Checkpoint, SavedChat
from continuation.sessions.kimi import KimiCode
from continuation.sessions.lines import Problem, Record, parse_cut, read_lines, without_halves
from continuation.sessions.logs import ClaudeCode, Codex, Log, Plain, QwenCode
from continuation.sessions.opencode import Folder, SessionStore, Storage
from continuation.sessions.opencode_database import Database, is_database, opened
from continuation.sessions.rewrite import LogSource
from continuation.wire.json_values import as_map, as_text, is_list, is_map

_LOGS: tuple[Log, ...] = (KimiCode(), Codex(), QwenCode(), ClaudeCode(), Plain())
_FIELD = {HistoryFormat.GEMINI: "contents", HistoryFormat.OPENAI_RESPONSES: "input"}
_SUFFIXES = (".jsonl", ".json", ".db")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicy(RepairPolicy):
    """How a saved session is repaired."""

    shrink: int | None = None
    """Shorten results of tools until the session has at most so many tokens; `None`: do not."""


SAVED = SavedPolicy(live=False, prefill=True)
"""The policy for what is on disk: no program is at work on it, and no request is about to leave."""


@dataclass(slots=True)
class SavedSession:
    """A saved session that was read."""

    path: Path
    format: str
    """The agent's name, "json" (a request), "jsonl" (one message per line) or "unknown"."""
    dialect: HistoryFormat | None
    """The format of its messages; None if no conversation was found."""
    body: dict[str, Any]
    problems: list[Problem] = field(default_factory=list[Problem])
    violations: list[Violation] = field(default_factory=list[Violation])
    repaired: Repaired | None = None
    """The result of a repair; None if it was only read, or has no conversation."""
    written: Path | None = None
    """Where `repairing` wrote the repaired copy."""
    source: LogSource | Storage | SavedChat | Checkpoint | None = None
    """The source that it was read from; None for a request body."""
    name: str = ""
    """Its id, if a path has several sessions; else ""."""
    model: str = ""
    """The model whose rules apply, if the log names one that is not its agent's own; else ""."""
    too_large: bool = False
    """It has too many tokens, even if all of its results are shortened."""

    @property
    def exit_code(self) -> int:
        """0 if it is clean, 1 if it is repaired or can be, 2 if it cannot be repaired."""
        left = self.repaired is not None and self.repaired.left
        if self.dialect is None or left or self.too_large:
            return 2
        changed = self.repaired is not None and bool(self.repaired.changes)
        return 1 if self.problems or self.violations or changed else 0


def checked(path: Path, *, policy: RepairPolicy | None = None) -> Iterator[SavedSession]:
    """Read the sessions at a path one at a time, with `violations` and `repaired` filled in.

    Assume that no program is working on it. So a trailing open call is a fault, unless the policy
    has `live`. Raises OSError if the path cannot be read.
    """
    return (with_diagnosis(session, policy) for session in read(path))


def with_diagnosis(session: SavedSession, policy: RepairPolicy | None) -> SavedSession:
    """Fill in `violations` and `repaired` of a session that was read, and return it."""
    # No request is about to be sent, so the history may end with the assistant.
    policy = policy if policy is not None else SAVED
    if session.dialect is not None:
        body, dialect = session.body, session.dialect
        live = policy.live or not any(body.values())  # an empty history has just begun
        diagnosis = diagnosed(body, dialect, replace(policy, live=live), session.model)
        session.violations, session.repaired = diagnosis
        if isinstance(policy, SavedPolicy) and policy.shrink is not None:
            _shrink(session, session.repaired, dialect, policy, policy.shrink)
    if policy.thinking != "keep" and isinstance(session.source, Storage) and session.repaired:
        gone = [Change("drop_thinking", "/".join(k), "") for k in session.source.strip_thinking()]
        session.repaired = replace(session.repaired, changes=(*session.repaired.changes, *gone))
    return session


def _shrink(
    session: SavedSession,
    repaired: Repaired,
    dialect: HistoryFormat,
    policy: SavedPolicy,
    most: int,
) -> None:
    """Let the repair shorten results until at most so many tokens are left; report if it cannot."""
    body = session.body
    messages = next(filter(is_list, body.values()), list[Any]())
    models = (as_text(as_map(message).get("model")) for message in reversed(messages))
    writer = as_text(body.get("model")) or session.model or next(filter(None, models), "")
    session.repaired, before, after = shrunk(
        repaired, dialect, policy, session.model or as_text(body.get("model")), writer, most
    )
    if after > most:
        session.too_large = True
        message = (
            f"it has about {before:,} tokens, and {after:,} if all results of tools are shortened: "
            f"more than {most:,}. Allow more, or begin a new session with a summary of this one."
        )
        session.problems.append(Problem("too_large", 0, message))


# -- reading -------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[SavedSession]:
    """Yield the sessions of a file, of opencode's storage, or of a folder of logs.

    Damage is reported in `problems`, never raised.
    """
    if not path.is_dir():
        yield from read_file(path)
        return
    is_empty = True
    if (folder := storage_in(path)) is not None:
        for session in read_store(folder, path):
            is_empty = False
            yield session
    else:
        for file in sessions_in(path):
            for session in sessions_of_file(file, read_file(file)):
                is_empty = False
                yield session
    if is_empty:
        problem = Problem("no_session", 0, "no session in this folder")
        yield SavedSession(path, "unknown", None, {}, [problem])


def storage_in(path: Path) -> Folder | None:
    """Return the opencode storage in a folder; None: there is none, or a database replaced it."""
    return None if any(path.glob("opencode*.db")) else Folder.find(path)


def sessions_in(path: Path) -> list[Path]:
    """Return the files of a folder that may be sessions, without originals that a repair kept."""
    databases = sorted(path.glob("opencode*.db"))
    files = databases or sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES)
    return [file for file in files if ".orig" not in file.suffixes and file.is_file()]


def sessions_of_file(file: Path, sessions: Iterator[SavedSession]) -> Iterator[SavedSession]:
    """Yield the sessions of one file of a folder. Skip a file that is no session.

    A log with damaged lines and without a readable conversation is a lost session. A file that
    cannot be read or repaired becomes a session with a problem, so that the others are still read.
    """
    try:
        for session in sessions:
            torn = any(problem.code != "no_session" for problem in session.problems)
            if session.dialect is not None or (torn and file.suffix == ".jsonl"):
                yield session
    except (OSError, RecursionError) as error:
        failed = Problem("failed", 0, getattr(error, "strerror", None) or str(error))
        yield SavedSession(file, "unknown", None, {}, [failed])


def read_file(path: Path) -> Iterator[SavedSession]:
    """Yield the session in a file, or all sessions of a database."""
    if not is_database(path):
        data = path.read_bytes()
        if (problem := no_text(data)) is not None:
            yield SavedSession(path, "unknown", None, {}, [problem])
            return
        yield _load_json(path, data) or _load_log(path, data)
        return
    with opened(path) as database:
        yield from read_database(database, path)


def read_database(database: Database, path: Path) -> Iterator[SavedSession]:
    """Yield all sessions of a database."""
    if database.is_opencode:
        yield from read_store(database, path)
        return
    problem = Problem("no_session", 0, "no agent's sessions were found in this database")
    yield SavedSession(path, "unknown", None, {}, [problem])


def read_store(store: SessionStore, path: Path) -> Iterator[SavedSession]:
    """Yield opencode's sessions from a folder or a database."""
    for name in store.sessions():
        storage = Storage(store, name)
        storage.read()
        body, dialect = {"messages": storage.body}, HistoryFormat.OPENAI_CHAT
        yield SavedSession(
            path, "opencode", dialect, body, storage.problems, source=storage, name=name
        )


def _load_json(path: Path, data: bytes) -> SavedSession | None:
    """Read a JSON document: a request body, a list of messages, or a saved chat of gemini-cli.

    Return None if the file is something else.
    """
    problems: list[Problem] = []
    try:
        document: Any = json.loads(data)
        value = without_halves(document, data)
        if value is not document:
            text = "a character in this file is incomplete; it becomes a replacement mark."
            problems.append(Problem("half_utf8", 0, text))
    except ValueError:
        # More than one line begins an object, so it is a log.
        is_log = data.replace(b"\0", b"").count(b"\n{") > 1
        value = None if is_log else parse_cut(data)
        text = "the file is incomplete; the part that arrived is used."
        problems.append(Problem("torn_body", 0, text))
    body = dict(as_map(value))
    if SavedChat.fits(body):
        whole = is_list(body.get("messages"))
        records = [Record(1, data, body)]
        return _load_chat(path, records, problems, is_document=True) if whole else None
    if is_list(history := body.get("history")):
        contents, source = {"contents": history}, Checkpoint(body)
        gemini = HistoryFormat.GEMINI
        return SavedSession(path, "gemini-cli", gemini, contents, problems, source=source)
    if is_list(value):
        dialect = Plain().dialect([message for message in value if is_map(message)])
        body = {_FIELD.get(dialect, "messages"): value}
    has_list = any(is_list(body.get(key)) for key in ("messages", "contents", "input"))
    if not has_list or "type" in body:
        return None
    return SavedSession(path, "json", detect(body), body, problems)


def _load_log(path: Path, data: bytes) -> SavedSession:
    records, problems = read_lines(data)
    if any(SavedChat.fits(record.value) for record in records):
        return _load_chat(path, records, problems)
    log = next((log for log in _LOGS if any(log.fits(r.value) for r in records)), None)
    if log is None:
        problems.append(Problem("no_session", 0, "no conversation was found in this file"))
        return SavedSession(path, "unknown", None, {}, problems)
    entries, extra = log.read(records)
    messages = [entry.message for entry in entries]
    dialect = log.dialect(messages)
    body = {_FIELD.get(dialect, "messages"): messages}
    source = LogSource(log, records, entries)
    # Not for Claude models: only a request, not the log, has their thinking settings.
    models = [as_text(as_map(message).get("model")) for message in messages]
    model = next((name for name in reversed(models) if name and "claude" not in name.lower()), "")
    return SavedSession(path, log.name, dialect, body, problems + extra, source=source, model=model)


def _load_chat(
    path: Path, records: list[Record], problems: list[Problem], *, is_document: bool = False
) -> SavedSession:
    chat = SavedChat(records, is_document=is_document)
    body, dialect = {"contents": chat.contents}, HistoryFormat.GEMINI
    return SavedSession(path, "gemini-cli", dialect, body, problems, source=chat)
