"""A journal in an SQLite file in WAL mode: one thread appends, and any may read.

What is committed and not synced is in the system's cache, which survives a kill.
"""

from __future__ import annotations

import errno
import glob
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from continuation.journal.errors import JournalError
from continuation.journal.store import PATIENCE, SCHEMAS, JournalStore, guarded_inserts

_APPLICATION: Final = 0x636F6E74
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
NETWORKS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs", "ceph"})
_LOG_PAGES: Final = 256
"""Length of the write-ahead log, in pages, at which it is moved into the file. Overwriting a log
takes half the time of extending it, so it is kept short."""
_INSERTS: Final = guarded_inserts("EXISTS (SELECT 1 FROM sessions WHERE id = ? AND epoch = ?)")


class SqliteJournalStore(JournalStore):
    """The writer of one file in this process."""

    errors = sqlite3.Error
    transient = (sqlite3.OperationalError, OSError)

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises `JournalError`."""
        self.path = path.absolute()  # the process may change its folder
        super().__init__(str(path))
        try:
            _check(path)
            with closing(_opened(self.path)) as file:  # WAL would change a foreign file
                wait_for_lock(lambda: check_format(file, path))
            with self.connection() as journal_db:
                _migrate(journal_db, path)
            self._file = self.path.stat()
        except (sqlite3.DatabaseError, OSError) as error:
            raise JournalError(self.error_message(error)) from error

    def begin(self) -> None:
        super().begin()
        self._syncs: bool | None = None
        """Whether the writer's connection syncs its commits; `None`: that is not set yet."""

    @classmethod
    def opened(cls, target: Any, *, make: bool) -> SqliteJournalStore:
        path = Path(target)
        if not make and not path.exists():
            raise JournalError(f"journal {path}: the file does not exist")
        return cls(path)

    @classmethod
    @contextmanager
    def reading(cls, target: Any) -> Generator[sqlite3.Connection]:
        path = Path(target)
        if not path.is_file():
            raise JournalError(f"journal {path}: the file does not exist")
        try:
            # A connection that may write, though it is not let: only such a one removes the
            # files that reading makes, or that a process which was killed has left.
            with closing(_opened(path.absolute())) as db:
                db.execute("PRAGMA query_only=1")
                wait_for_lock(lambda: check_format(db, path))
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    raise JournalError(f"journal {path}: the file is empty")
                db.execute("BEGIN")  # all reads are of one moment
                yield db
        except sqlite3.Error as error:
            raise JournalError(f"journal {path}: {explained(error, path)}") from error

    @classmethod
    def copy(cls, source: Any, to: Path) -> None:
        os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            with closing(_opened(to.absolute())) as db:
                source.backup(db)
                db.execute("UPDATE sessions SET owner = NULL")
        except BaseException:
            to.unlink()
            raise

    def is_there(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(self._file, self.path.stat())
        return False

    def connect(self) -> sqlite3.Connection:
        # A reader can meet a lock too: while another process recovers the file, or closes it last.
        connection = _opened(self.path)
        if isinstance(connection, _Unchanging):
            return connection
        try:
            # Switching to WAL can meet a lock too, and SQLite's busy handler is not called then.
            wait_for_lock(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            connection.execute("PRAGMA secure_delete=FAST")
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: sqlite3.Connection) -> None:
        if isinstance(connection, _Unchanging):  # it would not see what others write later
            connection.close()
        else:
            super().give_back(connection)

    def disconnect(self) -> None:
        """Close the connections; the last one of all processes moves the log into the file."""
        writer, self._connection = self._connection, None
        closed = [] if writer is None else [writer]
        with suppress(IndexError):
            while True:
                closed.append(self._spare.pop())
        if closed:
            with suppress(sqlite3.Error):
                # The log stays where another process has the file open, but nothing needs it then.
                closed[0].execute("PRAGMA wal_checkpoint(PASSIVE)")
        for connection in closed:
            with suppress(sqlite3.Error):
                connection.close()

    def explain(self, error: BaseException) -> str:
        return explained(error, self.path)

    @contextmanager
    def transaction(
        self, *, durable: bool = True, exclusive: bool = False
    ) -> Generator[sqlite3.Connection]:
        with self.connection() as connection:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("PRAGMA busy_timeout=0")
            with _transaction(connection):  # exclusive: SQLite has one writer
                yield connection
            connection.execute(f"PRAGMA busy_timeout={PATIENCE * 1000:.0f}")

    def size(self) -> int:
        return sum(each.stat().st_size for each in self.path.parent.glob(f"{self.path.name}*"))

    def shrink(self) -> None:
        with closing(self.connect()) as db:
            wait_for_lock(lambda: db.execute("VACUUM"))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- the thread ------------------------------------------------------------------------------

    def _writer(self, *, durable: bool) -> sqlite3.Connection:
        if self._connection is None:
            self._connection, self._syncs = self.connect(), None
            self._connection.execute("PRAGMA busy_timeout=0")
        if durable != self._syncs:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._syncs = durable
        connection: sqlite3.Connection = self._connection
        return connection

    def append_one(self, sql: str, values: tuple[Any, ...], *, durable: bool) -> bool:
        connection, done = self._writer(durable=durable), list[int]()
        wait_for_lock(lambda: done.append(connection.execute(_INSERTS[sql], values).rowcount))
        return done == [1]

    def writer_transaction(self, *, durable: bool) -> AbstractContextManager[sqlite3.Connection]:
        return _transaction(self._writer(durable=durable))

    def unreachable(self, error: BaseException) -> bool:
        return self._connection is None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """Commit all that is executed inside, or nothing."""
    wait_for_lock(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield connection
        wait_for_lock(lambda: connection.execute("COMMIT"))
    except BaseException:
        with suppress(sqlite3.Error):  # the failure may have ended it
            connection.execute("ROLLBACK")
        raise


class _Unchanging(sqlite3.Connection):
    """A connection to a file that nobody can change: its folder cannot be written."""


def _opened(path: Path) -> sqlite3.Connection:
    """Connect to a file that exists, whatever its name; `path` is absolute.

    Of a file in a folder that cannot be written a connection is returned that only reads.
    """

    def connect(terms: str, kind: type[sqlite3.Connection]) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.as_uri()}?{terms}",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            factory=kind,
        )

    connection = connect("mode=rw", sqlite3.Connection)
    try:
        wait_for_lock(lambda: connection.execute("PRAGMA schema_version"))
    except sqlite3.OperationalError as error:
        log = path.with_name(f"{path.name}-wal")
        connection.close()
        if _primary(error) not in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
            raise
        if not path.is_file():
            raise
        if log.exists() and log.stat().st_size:
            raise JournalError(
                f"journal {path}: {explained(error, path)}; its last entries are in {log.name}; "
                "copy both files to a writable folder and read them there"
            ) from error
        return connect("mode=ro&immutable=1", _Unchanging)
    except BaseException:
        connection.close()
        raise
    return connection


def _primary(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def explained(error: BaseException, path: Path) -> str:
    """Return why SQLite or the system refused a file at `path`, and what to do about it."""
    folder = path.absolute().parent
    if isinstance(error, OSError):
        return _explained(error, folder)
    match _primary(error):
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


def wait_for_lock(action: Callable[[], object]) -> None:
    """Wait for a lock fairly: SQLite's own waiting lets some writers starve for seconds.

    Asking more often the longer one waits was tried: it costs the holder of the lock more time
    than it saves.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            if _primary(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0001, 0.0008))
        else:
            return


def _check(path: Path) -> None:
    """Refuse a network file system; create a missing file and folder, for their owner alone."""
    if (kind := file_system(path)) in NETWORKS:
        message = f"journal {path}: locks do not work on a network file system ({kind}); "
        raise JournalError(message + "keep it on a local disk")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device"
        raise JournalError(f"journal {path}: it is {what}; name a file, such as agent.db")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


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


def check_format(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file's format; 0: it is empty. Raises `JournalError`."""

    def value(name: str) -> int:
        return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

    # In this order: another process may write all three, in one transaction, meanwhile.
    if value("schema_version") and value("application_id") != _APPLICATION:
        message = f"journal {path}: the file belongs to another program; name another file"
        raise JournalError(message)
    if (version := value("user_version")) > len(SCHEMAS):
        message = f"journal {path}: its format {version} is newer than {len(SCHEMAS)}; "
        raise JournalError(message + "use a newer version of continuation")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Upgrade the file to this version of the format, in one transaction."""
    if check_format(connection, path) == len(SCHEMAS):
        return
    wait_for_lock(lambda: connection.execute("BEGIN IMMEDIATE"))
    version = check_format(connection, path)
    for schema in SCHEMAS[version:]:
        for statement in filter(str.strip, schema.split(";")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={len(SCHEMAS)}")
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute("COMMIT")
