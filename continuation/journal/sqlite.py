"""A journal in an SQLite file in WAL mode: one thread appends, and any may read.

What is committed and not synced is in the system's cache, which survives a kill.
"""

from __future__ import annotations

import os
import random
import sqlite3
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
        """Open the file, or create it. Raises `JournalError`, `OSError`."""
        self.path = path
        super().__init__(str(path))
        _check(path)
        try:
            with closing(sqlite3.connect(path)) as file:  # WAL would change a foreign file
                wait_for_lock(lambda: check_format(file, path))
            with self.connection() as journal_db:
                _migrate(journal_db, path)
        except sqlite3.DatabaseError as error:
            raise JournalError(self.error_message(error)) from error
        self._file = path.stat()

    def begin(self) -> None:
        super().begin()
        self._syncs: bool | None = None
        """Whether the writer's connection syncs its commits; `None`: that is not set yet."""

    @classmethod
    def opened(cls, target: Any, *, make: bool) -> SqliteJournalStore:
        path = Path(target)
        if not make and not path.exists():
            raise JournalError(f"journal {path}: there is no such file")
        return cls(path)

    @classmethod
    @contextmanager
    def reading(cls, target: Any) -> Generator[sqlite3.Connection]:
        path = Path(target)
        if not path.is_file():
            raise JournalError(f"journal {path}: there is no such file")
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                wait_for_lock(lambda: check_format(db, path))
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    raise JournalError(f"journal {path}: it is empty")
                db.execute("BEGIN")  # all reads are of one moment
                yield db
        except sqlite3.Error as error:
            raise JournalError(f"journal {path}: {error}") from error

    def is_there(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(self._file, self.path.stat())
        return False

    def connect(self) -> sqlite3.Connection:
        # A reader can meet a lock too: while another process recovers the file, or closes it last.
        connection = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            # Switching to WAL can meet a lock too, and SQLite's busy handler is not called then.
            wait_for_lock(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            connection.execute("PRAGMA secure_delete=FAST")
        except BaseException:
            connection.close()
            raise
        return connection

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
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0001, 0.0008))
        else:
            return


def _check(path: Path) -> None:
    """Refuse a network file system; create a missing file, readable by its owner alone."""
    if (kind := file_system(path)) in NETWORKS:
        message = f"journal {path}: on a network file system ({kind}) locks do not hold; "
        raise JournalError(message + "keep it on a local disk")
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
        message = f"journal {path}: it is a database of something else; name another file"
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
