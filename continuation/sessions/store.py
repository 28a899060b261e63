"""Saved sessions: read one in whatever form, say what is wrong, write a repaired copy beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from continuation.history.api import repair, validate
from continuation.history.detect import detect
from continuation.history.types import HistoryFormat, Repaired, RepairPolicy, Violation
from continuation.sessions.kimi import KimiCode
from continuation.sessions.lines import Problem, before_the_cut, read_lines, written
from continuation.sessions.logs import ClaudeCode, Codex, Log, Plain, QwenCode
from continuation.sessions.opencode import Storage, find_sessions, storage_of
from continuation.sessions.rewrite import LogSource
from continuation.wire.json_values import as_map, is_list, is_map

_LOGS: tuple[Log, ...] = (KimiCode(), Codex(), QwenCode(), ClaudeCode(), Plain())
_FIELD = {HistoryFormat.GEMINI: "contents", HistoryFormat.OPENAI_RESPONSES: "input"}


@dataclass(slots=True)
class SavedSession:
    """A saved session that was read."""

    path: Path
    format: str
    """The agent's name, "json" (a request), "jsonl" (one message a line) or "unknown"."""
    dialect: HistoryFormat | None
    """None where nothing of a conversation was found."""
    body: dict[str, Any]
    problems: list[Problem] = field(default_factory=list[Problem])
    violations: list[Violation] = field(default_factory=list[Violation])
    repaired: Repaired | None = None
    """What a repair would give; None before `check`."""
    written: Path | None = None
    """Where `write_repaired` put the repaired copy."""
    source: LogSource | Storage | None = None
    """What it was read from; None for a request body."""

    @property
    def exit_code(self) -> int:
        """0: clean; 1: repaired, or can be; 2: beyond repair."""
        if self.dialect is None or (self.repaired is not None and self.repaired.left):
            return 2
        changed = self.repaired is not None and bool(self.repaired.changes)
        return 1 if self.problems or self.violations or changed else 0


def load(path: Path) -> list[SavedSession]:
    """Read the session at a path; a folder of opencode's may hold several.

    Damage is reported in `problems`, never raised. Raises OSError if there is nothing to read.
    """
    if path.is_dir():
        found: list[SavedSession] = []
        for folders in find_sessions(path):
            storage = Storage(*folders)
            storage.read()
            body, dialect = {"messages": storage.body}, HistoryFormat.OPENAI_CHAT
            found.append(
                SavedSession(path, "opencode", dialect, body, storage.problems, source=storage)
            )
        lost = Problem("no_session", 0, "no session in this folder")
        return found or [SavedSession(path, "unknown", None, {}, [lost])]
    data = path.read_bytes()
    return [_load_json(path, data) or _load_log(path, data)]


def check(path: Path, *, policy: RepairPolicy | None = None) -> list[SavedSession]:
    """Read the sessions at a path and find what is wrong with their histories.

    A saved session is taken for dead: a trailing open call is a fault, unless the policy says that
    it may be live. Raises what `load` raises.
    """
    policy = policy if policy is not None else RepairPolicy(live=False)
    sessions = load(path)
    for session in sessions:
        if session.dialect is not None:
            body, dialect = session.body, session.dialect
            session.violations = validate(
                body, dialect, model="", strict=policy.strict, live=policy.live
            )
            session.repaired = repair(body, dialect, model="", policy=policy)
    return sessions


def write_repaired(
    path: Path,
    *,
    policy: RepairPolicy | None = None,
    target: Path | None = None,
    in_place: bool = False,
) -> list[SavedSession]:
    """Write a repaired copy of the sessions at a path; clean ones are left alone.

    The copy goes beside the original as `<name>.repaired<suffix>`, or to `target`; with `in_place`
    it takes the original's place, which is kept as `<name>.orig<suffix>`. Either way a file appears
    whole or not at all. Raises what `load` raises, and FileExistsError rather than overwrite.
    """
    sessions = check(path, policy=policy)
    if path.is_dir():
        if any(session.exit_code == 1 for session in sessions):
            _repair_storage(path, sessions, target, in_place=in_place)
        return sessions
    for session in sessions:
        if session.exit_code == 1:
            session.written = _commit(path, _bytes(session), target, in_place=in_place)
    return sessions


# -- reading -------------------------------------------------------------------------------------


def _load_json(path: Path, data: bytes) -> SavedSession | None:
    """A request body, or a bare list of messages; None if the file is something else."""
    problems: list[Problem] = []
    try:
        value: Any = json.loads(data)
    except ValueError:
        # More than one line that begins an object: a log.
        is_log = data.replace(b"\0", b"").count(b"\n{") > 1
        value = None if is_log else before_the_cut(data)
        words = "the file is cut off; what stands before the cut is used."
        problems.append(Problem("torn_body", 0, words))
    body = dict(as_map(value))
    if is_list(value):
        dialect = Plain().dialect([message for message in value if is_map(message)])
        body = {_FIELD.get(dialect, "messages"): value}
    lists = any(is_list(body.get(key)) for key in ("messages", "contents", "input"))
    if not lists or "type" in body:
        return None
    return SavedSession(path, "json", detect(body), body, problems)


def _load_log(path: Path, data: bytes) -> SavedSession:
    records, problems = read_lines(data)
    log = next((log for log in _LOGS if any(log.fits(r.value) for r in records)), None)
    if log is None:
        problems.append(Problem("no_session", 0, "no conversation was found in this file"))
        return SavedSession(path, "unknown", None, {}, problems)
    entries, more = log.read(records)
    messages = [entry.message for entry in entries]
    dialect = log.dialect(messages)
    body = {_FIELD.get(dialect, "messages"): messages}
    source = LogSource(log, records, entries)
    return SavedSession(path, log.name, dialect, body, problems + more, source=source)


# -- writing -------------------------------------------------------------------------------------


def _bytes(session: SavedSession) -> bytes:
    """The repaired file."""
    repaired = session.repaired if session.repaired is not None else Repaired(session.body)
    source = session.source
    if not isinstance(source, LogSource):
        return written(repaired.body, indent=2) + b"\n"
    (messages,) = repaired.body.values()  # a log's body holds nothing else
    origins = repaired.origins or tuple(range(len(messages)))
    return source.rewritten(messages, origins)


def _beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.stem}.{word}{path.suffix}")


def _commit(path: Path, data: bytes, target: Path | None, *, in_place: bool) -> Path:
    if in_place:
        kept = _beside(path, "orig")
        if kept.exists():
            msg = f"{kept}: there is a kept original already; move it away first"
            raise FileExistsError(msg)
        shutil.copy2(path, kept)
        goal = path.resolve()  # what a link leads to is repaired, the link stays
    else:
        goal = target if target is not None else _beside(path, "repaired")
        if goal.exists():
            msg = f"{goal}: exists already; move it away or name another target"
            raise FileExistsError(msg)
    if path.read_bytes().partition(b"\n")[0].endswith(b"\r"):
        data = data.replace(b"\n", b"\r\n")
    _write_whole(goal, data, like=path)
    return path if in_place else goal


def _write_whole(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file so that it is there in full or not at all, even if the power fails.

    It gets the mode of `like`, and its owner where that is allowed.
    """
    status = like.stat()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.name == "posix":
            with contextlib.suppress(OSError):
                os.chown(name, status.st_uid, status.st_gid)
        Path(name).chmod(stat.S_IMODE(status.st_mode))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the name must outlive a power failure, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _repair_storage(
    path: Path, sessions: list[SavedSession], target: Path | None, *, in_place: bool
) -> None:
    """Repair opencode's folder: a copy of all of it, or, in place, with the original kept.

    The repaired storage is written beside, under a name of its own, and gets its place at the end.
    """
    given = storage_of(path)
    root = given.resolve()  # what a link leads to is repaired, the link stays
    kept = _beside(root, "orig") if in_place else None
    goal = (target or _beside(root, "repaired")).absolute()
    made = kept if kept is not None else goal
    if made.exists():
        msg = f"{made}: exists already; move it away or name another target"
        raise FileExistsError(msg)
    if goal.resolve().is_relative_to(root) and kept is None:
        msg = f"{goal}: lies in {root}, which is to be copied; name a target outside of it"
        raise OSError(msg)
    needed = sum(each.stat().st_size for each in root.rglob("*") if each.is_file())
    free = shutil.disk_usage(made.parent).free
    if free < needed:
        msg = f"{made.parent}: a copy takes {needed:,} bytes, and {free:,} are free"
        raise OSError(msg)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=made.parent) as beside:
        copy = Path(beside, root.name)
        shutil.copytree(root, copy, symlinks=True)
        for session in sessions:
            storage, repaired = session.source, session.repaired
            if not isinstance(storage, Storage) or repaired is None or session.exit_code != 1:
                continue
            messages = repaired.body["messages"]
            origins = repaired.origins or tuple(range(len(messages)))
            for file, data in storage.rewrite(messages, origins).items():
                place = copy / file.relative_to(given)
                if data is None:
                    place.unlink(missing_ok=True)
                else:
                    _write_whole(place, data, like=place)
            session.written = given if in_place else goal
        if kept is None:
            copy.rename(goal)
            return
        root.rename(kept)
        try:
            copy.rename(root)
        except BaseException:
            kept.rename(root)
            raise
