"""The SQLite files of this program: the only place that opens one."""

from __future__ import annotations

import errno
import glob
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from continuation.stores import PATIENCE

Kind = TypeVar("Kind", bound=sqlite3.Connection)

APPLICATION: Final = 0x636F6E74
"""SQLite's application id of all files of this program: "cont"."""
NETWORKS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs", "ceph"})
"""Types of file systems on which SQLite's locks do not work."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

# --- connections ---------------------------------------------------------------------------------


def connect(path: Path, kind: type[Kind], *, patience: float, terms: str = "mode=rw") -> Kind:
    """Connect to a file that exists, whatever its name; each statement commits by itself.

    Any thread may use the connection, one at a time. `kind`: its class; `terms`: parameters of
    SQLite's URI; `patience`: seconds for which SQLite itself waits for a lock.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{terms}",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
    )


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the number that a setting is."""
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number


# --- locks ---------------------------------------------------------------------------------------


def wait_for_lock(action: Callable[[], object], patience: float | None = None) -> None:
    """Wait for a lock fairly: SQLite's own waiting lets some writers starve for seconds.

    `patience`: seconds; `None`: `PATIENCE`. Asking more often the longer one waits was tried: it
    costs the holder of the lock more time than it saves.
    """
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            if code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0001, 0.0008))
        else:
            return


@contextmanager
def transaction(connection: Kind, *, patience: float | None = None) -> Generator[Kind]:
    """Commit all that is executed inside, or nothing.

    It may write from its beginning, so that no statement is refused. `patience`: seconds to wait
    for its lock as `wait_for_lock` does; 0: only as the connection itself waits.
    """
    wait_for_lock(lambda: connection.execute("BEGIN IMMEDIATE"), patience)
    try:
        yield connection
        wait_for_lock(lambda: connection.execute("COMMIT"), patience)
    except BaseException:
        with suppress(sqlite3.Error):  # the failure may have ended it
            connection.execute("ROLLBACK")
        raise


# --- formats -------------------------------------------------------------------------------------


def version(connection: sqlite3.Connection) -> int | None:
    """Return the version of a file's format; 0: it is empty; `None`: it is another program's."""
    # In this order: another process may write all three, in one transaction, meanwhile.
    if pragma(connection, "schema_version") and pragma(connection, "application_id") != APPLICATION:
        return None
    return pragma(connection, "user_version")


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> int:
    """Create or upgrade the tables of a file; return the version that it had before.

    It must run in a transaction, on a file that `version` does not call another program's.
    `migrations` lead from each version to the next, the first to version 1. A file of a later
    version is left alone.
    """
    before = pragma(connection, "user_version")
    for migration in migrations[before:]:
        for statement in filter(str.strip, migration.split(";")):
            connection.execute(statement)
    if before < len(migrations):
        connection.execute(f"PRAGMA user_version={len(migrations)}")
        connection.execute(f"PRAGMA application_id={APPLICATION}")
    return before


# --- errors --------------------------------------------------------------------------------------


def code(error: BaseException) -> int:
    """Return the primary code of an error of SQLite; 0: it has none."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF


def is_damage(error: BaseException) -> bool:
    """Whether the file itself is damaged, rather than in use elsewhere or on a full disk."""
    return code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def explained(error: BaseException, path: Path) -> str:
    """Return why SQLite or the system refused a file at `path`, and what to do about it."""
    folder = path.absolute().parent
    if isinstance(error, OSError):
        return _explained(error, folder)
    match code(error):
        case sqlite3.SQLITE_FULL:
            return f"the disk is full; free some space for {folder}"
        case sqlite3.SQLITE_IOERR:
            return _examined(path) or f"the disk failed ({_name(error)}); see the system's log"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM if not path.exists():
            return f"{path.name} was moved or removed; open the session again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return f"it is read-only; {_examined(path) or _rights(path)}"
        case sqlite3.SQLITE_CANTOPEN:
            return f"it cannot be opened; {_examined(path) or _rights(path)}"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another process has kept it locked for {PATIENCE:.0f} s; end that process"
        case sqlite3.SQLITE_CORRUPT:
            return (
                f"it is damaged ({error}); set it aside, with {path.name}-wal, and begin a new one"
            )
        case sqlite3.SQLITE_NOTADB:
            return f"{error}; name another file"
        case _:
            return str(error)


def _rights(path: Path) -> str:
    return f"give this user the right to write {path.name} and its folder {path.absolute().parent}"


def _name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


def _examined(path: Path) -> str:
    """Return what keeps files in a folder from growing, by writing one; `""`: nothing does."""
    folder = path.absolute().parent
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
            probe.flush()
    except OSError as error:
        return _explained(error, folder)
    with suppress(ImportError, OSError):
        import resource  # not on Windows

        most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        sizes = [each.stat().st_size for each in folder.glob(f"{glob.escape(path.name)}*")]
        if 0 < most <= max(sizes, default=0) + 65_536:
            return f"the file may not grow beyond {most} bytes; raise that limit (ulimit -f)"
    return ""


def _explained(error: OSError, folder: Path) -> str:
    remedies = {
        errno.ENOSPC: ("the disk is full", f"free some space for {folder}"),
        errno.EDQUOT: ("the disk quota is used up", f"free some space for {folder}"),
        errno.EFBIG: ("the file is too large", "raise the limit of a file's size (ulimit -f)"),
        errno.EROFS: ("the file system is read-only", "name a file elsewhere"),
        errno.EACCES: ("no permission", f"give this user the right to write the folder {folder}"),
        errno.EPERM: ("no permission", f"give this user the right to write the folder {folder}"),
        errno.ENOENT: (
            ("no file can be created in the folder", "name a file elsewhere")
            if folder.is_dir()
            else ("the folder does not exist", f"create {folder}")
        ),
        errno.ENOTDIR: ("the folder does not exist", f"create {folder}"),
        errno.EMFILE: ("too many files are open", "raise the limit of open files (ulimit -n)"),
    }
    what = error.strerror or type(error).__name__
    return "; ".join(remedies.get(error.errno or 0, (what,)))


def file_system(path: Path) -> str:
    """Return the type of the file system that a path is on; `""`: it is unknown."""
    best, kind = "", ""
    with suppress(OSError):
        where = str(path.absolute().parent.resolve())
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, name, *_ = line.split()
            inside = where == point or where.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, name
    return kind
