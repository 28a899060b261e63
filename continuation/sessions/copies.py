"""Writes repaired copies of a file, a database or a folder, beside the original or in its place.

A write is complete or does not happen. An original is changed only after a copy of it exists.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from continuation.history.types import Repaired, RepairPolicy
from continuation.sessions.lines import encoded
from continuation.sessions.opencode import Folder, Storage
from continuation.sessions.opencode_database import Database, ItemKey, is_database, opened
from continuation.sessions.store import (
    SavedSession,
    checked,
    read_database,
    sessions_in,
    sessions_of_file,
    storage_in,
    with_diagnosis,
)


def repairing(
    path: Path,
    *,
    policy: RepairPolicy | None = None,
    target: Path | None = None,
    in_place: bool = False,
) -> Iterator[SavedSession]:
    """Yield the sessions at a path, and write a repaired copy of those that need one.

    The copy is written beside the original as `<name>.repaired<suffix>`, or to `target`. With
    `in_place` it replaces the original, which is kept as `<name>.orig<suffix>`. In a folder of
    logs, only the repaired ones are copied, or with `in_place` kept. The complete storage of
    opencode is copied or kept. The copy is complete when the iterator ends.

    Raises what `checked` raises. Raises FileExistsError instead of overwriting a file, and OSError
    if an original that it must replace is in use.
    """
    copy = _sibling(path, "orig") if in_place else target or _sibling(path, "repaired")
    if not path.is_dir():
        return _repair_file(path, path if in_place else copy, policy, copy if in_place else None)
    root = (storage_in(path) or Folder(path)).root
    if target is None:
        copy = _sibling(root.resolve(), "orig" if in_place else "repaired")
    if copy.absolute().resolve().is_relative_to(root.resolve()):
        raise OSError(f"{copy}: is inside {root}, which is copied; name a target outside of it")
    repair = _repair_storage if storage_in(path) is not None else _repair_folder
    return repair(path, copy.absolute(), policy, in_place=in_place)


def _sibling(path: Path, word: str) -> Path:
    path = path if path.name.strip(".") else path.resolve()  # such as "."
    if not path.name:
        raise OSError(f"{path}: no copy can be written beside it; name a folder in it")
    return path.with_name(f"{path.stem}.{word}{path.suffix}")


# -- what must hold before anything is written ---------------------------------------------------


def _refuse_existing(path: Path, remedy: str = "move it away or name another target") -> None:
    if path.exists():
        raise FileExistsError(f"{path}: exists already; {remedy}")


def _refuse_full(folder: Path, files: Iterable[Path]) -> None:
    needed = sum(each.stat().st_size for each in files if each.is_file())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"{folder}: a copy takes {needed:,} bytes, and {free:,} are free")


class _Unchanged:
    """Checks that files have not changed since it was made, and that no other process has one open.

    Open files can be seen only on Linux. Elsewhere, only changes are noticed.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = list(files)
        self._states = self._look()

    def _look(self) -> list[tuple[int, int, int]]:
        states = [file.stat() for file in self._files]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in states]

    def refuse_use(self) -> None:
        """Raise OSError if another program has one of the files open, or one has changed."""
        names = {(each.st_dev, each.st_ino): file for file in self._files for each in [file.stat()]}
        for open_file in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                foreign = open_file.parts[2] != str(os.getpid())
                state = open_file.stat()
                file = names.get((state.st_dev, state.st_ino))
                if foreign and file is not None:
                    break
        else:
            file = None
            if self._look() != self._states:
                file = self._files[0]
        if file is not None:
            msg = f"{file}: another program uses it; end that program first, or repair a copy"
            raise OSError(msg)


# -- a file --------------------------------------------------------------------------------------


def _repair_file(
    path: Path, destination: Path, policy: RepairPolicy | None, backup: Path | None
) -> Iterator[SavedSession]:
    """Repair a file. Write the result to `destination`, and the original to `backup`, if given."""
    if is_database(path):
        yield from _repair_database(path, destination, policy, backup)
        return
    unchanged = _Unchanged([path])
    for session in checked(path, policy=policy):
        if session.exit_code == 1:
            data = _bytes(session)
            if path.read_bytes().partition(b"\n")[0].endswith(b"\r"):
                data = data.replace(b"\n", b"\r\n")
            if backup is None:
                _refuse_existing(destination)
                _write_whole(destination, data, like=path)
            else:
                _refuse_existing(backup, "it is an original that was kept; move it away first")
                unchanged.refuse_use()
                backup.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, backup)
                _write_whole(path.resolve(), data, like=path)  # so that a link stays a link
            session.written = destination
        yield session


def _bytes(session: SavedSession) -> bytes:
    """Return the bytes of the repaired file."""
    repaired, source = session.repaired or Repaired(session.body), session.source
    if source is None or isinstance(source, Storage):
        return encoded(repaired.body, indented=True) + b"\n"
    (messages,) = repaired.body.values()  # the body of a log has no other field
    return source.rewritten(messages, _origins(repaired, messages))


def _origins(repaired: Repaired, messages: list[Any]) -> tuple[int, ...]:
    return repaired.origins or tuple(range(len(messages)))


def _changes(sessions: Iterable[SavedSession]) -> dict[ItemKey, bytes | None]:
    """Return the changed values of opencode's storage by key; None: the value is deleted."""
    changes: dict[ItemKey, bytes | None] = {}
    for session in sessions:
        storage, repaired = session.source, session.repaired
        if isinstance(storage, Storage) and repaired is not None and session.exit_code == 1:
            messages = repaired.body["messages"]
            changes |= storage.rewrite(messages, _origins(repaired, messages))
    return changes


def _write_whole(path: Path, data: bytes, *, like: Path) -> None:
    """Write a file completely or not at all, even if the power fails."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    _make(path, write, like=like)


def _make(path: Path, write: Callable[[Path], None], *, like: Path) -> None:
    """Call `write` with a temporary path, then rename that file to `path`.

    The file gets the mode of `like`, and its owner if the system allows that.
    """
    status = like.stat()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        write(Path(name))
        if os.name == "posix":
            with contextlib.suppress(OSError):
                os.chown(name, status.st_uid, status.st_gid)
        Path(name).chmod(stat.S_IMODE(status.st_mode))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # so that the name, too, survives a power failure
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# -- a database ----------------------------------------------------------------------------------


def _repair_database(
    path: Path, destination: Path, policy: RepairPolicy | None, backup: Path | None
) -> Iterator[SavedSession]:
    """Repair a copy of opencode's database; or copy it to `backup` and repair the original."""
    with opened(path, alone=backup is not None) as database:
        changes: dict[ItemKey, bytes | None] = {}
        for session in read_database(database, path):
            with_diagnosis(session, policy)
            if own := _changes([session]):
                session.written = destination
                changes |= own
            yield session
        if not changes:
            return
        copy_path = backup or destination
        _refuse_existing(copy_path)
        copy_path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_full(copy_path.parent, [path])

        def copy(file: Path) -> None:
            with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
                database.connection.backup(other)
                if backup is None:
                    Database(other).change(changes)

        _make(copy_path, copy, like=path)
        if backup is not None:
            database.change(changes)


# -- a folder ------------------------------------------------------------------------------------


def _repair_folder(
    path: Path, copy: Path, policy: RepairPolicy | None, *, in_place: bool
) -> Iterator[SavedSession]:
    """Repair the logs in a folder. `copy` gets only the repaired files, or in place the originals.

    So to copy `copy` over the folder makes the repair, or undoes one in place.
    """
    workspace: AbstractContextManager[str] = contextlib.nullcontext(str(copy))
    if not in_place:
        _refuse_existing(copy)
        workspace = tempfile.TemporaryDirectory(prefix=f".{copy.name}.", dir=copy.parent)
    with workspace as name:
        other = Path(name, copy.name) if not in_place else copy
        for file in sessions_in(path):
            destination = other / file.relative_to(path)
            if not in_place:
                destination.parent.mkdir(parents=True, exist_ok=True)
            paths = (file, destination) if in_place else (destination, None)
            for session in sessions_of_file(file, _repair_file(file, paths[0], policy, paths[1])):
                if session.written is not None:
                    session.written = file if in_place else copy / file.relative_to(path)
                yield session
        if not in_place:
            _drop_empty(other)
            if other.exists():
                other.rename(copy)


def _drop_empty(folder: Path) -> None:
    for name, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(name).rmdir()


def _repair_storage(
    path: Path, result: Path, policy: RepairPolicy | None, *, in_place: bool
) -> Iterator[SavedSession]:
    """Repair a copy of opencode's complete folder. In place, the original becomes `result`.

    The repaired storage is written beside it under a temporary name, and renamed at the end.
    """
    named_root = (storage_in(path) or Folder(path)).root
    root = named_root.resolve()  # repair the target of a link, and keep the link
    unchanged = _Unchanged(each for each in root.rglob("*") if each.is_file())
    sessions = list(checked(path, policy=policy))
    changes = _changes(sessions)
    if changes:
        _refuse_existing(result)
        _refuse_full(result.parent, root.rglob("*"))
        with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=result.parent) as workspace:
            copy = Path(workspace, root.name)
            shutil.copytree(root, copy, symlinks=True)
            for key, data in changes.items():
                file = Path(key.where, f"{key.name}.json")
                (copy / file).unlink(missing_ok=True)  # it may be a link to somewhere else
                if data is not None:
                    (copy / file).write_bytes(data)
                    shutil.copymode(root / file, copy / file)
            if os.name == "posix":  # one sync for all files, before the rename
                os.sync()
            if not in_place:
                copy.rename(result)
            else:
                unchanged.refuse_use()
                root.rename(result)
                try:
                    copy.rename(root)
                except BaseException:
                    result.rename(root)
                    raise
    for session in sessions:
        if changes and session.exit_code == 1:
            session.written = named_root if in_place else result
        yield session
