"""A journal in an SQLite file in WAL mode: one thread appends, and any thread may read.

Commits that are not synced are in the system's cache, which survives a kill of the process.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from continuation.journal.errors import JournalError
from continuation.journal.statements import (
    APPEND,
    BEAT,
    FORGET,
    GATEWAY,
    LEAVE,
    SAVE,
    Statements,
    Write,
)
from continuation.journal.store import JournalStore
from continuation.stores import PATIENCE, sqlite
from continuation.stores.sqlite import NETWORKS, explained, file_system, wait_for_lock

_LOG_PAGES: Final = 256
"""Length of the write-ahead log, in pages, at which SQLite moves it into the file. The log is kept
short, because overwriting it takes half the time of extending it."""

_CLOCK: Final = "(julianday('now') - 2440587.5) * 86400.0"
_STATES: Final = "CASE WHEN kind IN ('turn', 'end', 'intent') THEN content END"
_NAMED: Final = "(SELECT id FROM sessions WHERE name = ?)"
_LAST: Final = "(SELECT max(id) FROM sessions)"
_OWNS: Final = "EXISTS (SELECT 1 FROM sessions WHERE id = ? AND epoch = ?)"
_HALF: Final = f"substr(name, 1, {len(GATEWAY)}) = '{GATEWAY}'"

STATEMENTS: Final = Statements(
    mark="?",
    migrations=(
        """
        CREATE TABLE sessions (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL,
            owner TEXT, since REAL NOT NULL, beat REAL NOT NULL);
        CREATE TABLE records (
            session INTEGER NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL,
            kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, content BLOB,
            PRIMARY KEY (session, number)) WITHOUT ROWID;
        CREATE TABLE running (
            session INTEGER NOT NULL, number INTEGER NOT NULL, characters INTEGER NOT NULL,
            attempts INTEGER NOT NULL, content BLOB,
            PRIMARY KEY (session, number)) WITHOUT ROWID;
        """,
    ),
    writes={
        APPEND: "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, CAST(? AS BLOB))"
        " ON CONFLICT DO NOTHING",
        SAVE: "INSERT INTO running VALUES (?, ?, ?, ?, CAST(? AS BLOB)) ON CONFLICT DO NOTHING",
        FORGET: "DELETE FROM running WHERE session = ?",
        BEAT: f"UPDATE sessions SET beat = {_CLOCK} WHERE id = ? AND epoch = ?",
        LEAVE: "UPDATE sessions SET owner = NULL WHERE id = ? AND epoch = ?",
    },
    guarded={
        APPEND: "INSERT INTO records SELECT ?, ?, ?, ?, ?, ?, CAST(? AS BLOB)"
        f" WHERE {_OWNS} ON CONFLICT DO NOTHING",
        SAVE: "INSERT INTO running SELECT ?, ?, ?, ?, CAST(? AS BLOB)"
        f" WHERE {_OWNS} ON CONFLICT DO NOTHING",
    },
    epochs="SELECT id, epoch FROM sessions WHERE id IN ({}) ORDER BY id",
    session="SELECT id, epoch FROM sessions WHERE name = ?",
    epoch="SELECT epoch FROM sessions WHERE id = ?",
    create="INSERT INTO sessions (name, epoch, since, beat) VALUES (?, 0, 0, 0)"
    " ON CONFLICT DO NOTHING",
    owner=f"SELECT id, epoch, owner, since, beat, {_CLOCK} FROM sessions WHERE name = ?",
    own="UPDATE sessions SET epoch = ?, owner = ?, since = ?, beat = ? WHERE id = ?",
    states=f"SELECT number, kind, key, at, {_STATES} FROM records WHERE session = ?"
    " ORDER BY number",
    contents="SELECT number, kind, content FROM records WHERE session = ?",
    content="SELECT number, kind, content FROM records WHERE session = ? AND number = ?",
    saves="SELECT number, attempts, content FROM running WHERE session = ? ORDER BY number",
    half=f"SELECT 1 FROM running WHERE session IN {_NAMED} LIMIT 1",
    expired=f"""
        SELECT id FROM sessions WHERE {_HALF} AND (
            beat < {_CLOCK} - ? OR (beat < {_CLOCK} - ? AND id <= (
                SELECT id FROM sessions WHERE {_HALF}
                ORDER BY id DESC LIMIT 1 OFFSET ?)))
        ORDER BY id
    """,
    drop_running="DELETE FROM running WHERE session IN ({})",
    drop_records="DELETE FROM records WHERE session IN ({})",
    drop_sessions=f"DELETE FROM sessions WHERE id IN ({{}}) AND id < {_LAST}",
    outdate="UPDATE sessions SET epoch = epoch + 1 WHERE id IN ({})",
    listed=f"SELECT id, name, owner, beat, {_CLOCK} FROM sessions"
    " WHERE name != '' AND name = coalesce(?, name)",
    progress="SELECT count(*), max(characters), max(attempts) FROM running WHERE session = ?",
    answers="SELECT content FROM records WHERE session = ? AND kind = 'answer' AND number >= ?",
    timeline=f"SELECT number, epoch, kind, key, at, {_STATES} FROM records"
    f" WHERE session = {_NAMED} ORDER BY number",
    timeline_with_content="SELECT number, epoch, kind, key, at, content FROM records"
    f" WHERE session = {_NAMED} ORDER BY number",
    first_message=f"SELECT content FROM records WHERE kind = 'message' AND session = {_NAMED}"
    " LIMIT 1",
    prune_records=f"DELETE FROM records WHERE session = {_NAMED}",
    prune_running=f"DELETE FROM running WHERE session = {_NAMED}",
    prune_retired=f"DELETE FROM sessions WHERE name = '' AND id < {_LAST}",
    retire="UPDATE sessions SET name = '', owner = NULL, epoch = epoch + 1"
    f" WHERE name = ? AND id = {_LAST}",
    prune_session="DELETE FROM sessions WHERE name = ?",
)


class JournalFile(sqlite3.Connection):
    """A connection to a journal's file."""

    sql = STATEMENTS


class _Unchanging(JournalFile):
    """A read-only connection to a file in a folder that cannot be written."""


class SqliteJournalStore(JournalStore):
    """The writer of one file in this process."""

    sql = STATEMENTS
    errors = sqlite3.Error
    transient = (sqlite3.OperationalError, OSError)

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises `JournalError`."""
        self.path = path.absolute()  # the process may change its working directory
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
        """Whether the writer's connection syncs its commits; `None`: not set yet."""

    @classmethod
    def opened(cls, target: Any, *, make: bool) -> SqliteJournalStore:
        path = Path(target)
        if not make and not path.exists():
            raise JournalError(f"journal {path}: the file does not exist")
        return cls(path)

    @classmethod
    @contextmanager
    def reading(cls, target: Any) -> Generator[JournalFile]:
        path = Path(target)
        if not path.is_file():
            raise JournalError(f"journal {path}: the file does not exist")
        try:
            # Open the file for writing, but forbid queries to write. Only such a connection removes
            # the files that reading creates or that a killed process has left.
            with closing(_opened(path.absolute())) as db:
                db.execute("PRAGMA query_only=1")
                wait_for_lock(lambda: check_format(db, path))
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    raise JournalError(f"journal {path}: the file is empty")
                db.execute("BEGIN")  # so that all reads see one moment
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

    def connect(self) -> JournalFile:
        # A reader meets a lock too, while another process recovers the file or closes it last.
        connection = _opened(self.path)
        if isinstance(connection, _Unchanging):
            return connection
        try:
            # Switching to WAL can meet a lock too, and SQLite does not call its busy handler then.
            wait_for_lock(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            connection.execute("PRAGMA secure_delete=FAST")
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: JournalFile) -> None:
        if isinstance(connection, _Unchanging):  # it would not see later writes of others
            connection.close()
        else:
            super().give_back(connection)

    def disconnect(self) -> None:
        """Close the connections. The last one of all processes moves the log into the file."""
        writer, self._connection = self._connection, None
        closed = [] if writer is None else [writer]
        with suppress(IndexError):
            while True:
                closed.append(self._spare.pop())
        if closed:
            with suppress(sqlite3.Error):
                # If another process has the file open, the log stays, but it is no longer needed.
                closed[0].execute("PRAGMA wal_checkpoint(PASSIVE)")
        for connection in closed:
            with suppress(sqlite3.Error):
                connection.close()

    def explain(self, error: BaseException) -> str:
        return explained(error, self.path)

    @contextmanager
    def transaction(
        self, *, durable: bool = True, exclusive: bool = False
    ) -> Generator[JournalFile]:
        with self.connection() as connection:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("PRAGMA busy_timeout=0")
            with sqlite.transaction(connection):  # always exclusive: SQLite has one writer
                yield connection
            connection.execute(f"PRAGMA busy_timeout={PATIENCE * 1000:.0f}")

    def size(self) -> int:
        return sum(each.stat().st_size for each in self.path.parent.glob(f"{self.path.name}*"))

    def shrink(self) -> None:
        with closing(self.connect()) as db:
            wait_for_lock(lambda: db.execute("VACUUM"))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- the thread ------------------------------------------------------------------------------

    def _writer(self, *, durable: bool) -> JournalFile:
        if self._connection is None:
            self._connection, self._syncs = self.connect(), None
            self._connection.execute("PRAGMA busy_timeout=0")
        if durable != self._syncs:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._syncs = durable
        connection: JournalFile = self._connection
        return connection

    def append_one(self, write: Write, values: tuple[Any, ...], *, durable: bool) -> bool:
        connection, done = self._writer(durable=durable), list[int]()
        sql = STATEMENTS.guarded[write]
        wait_for_lock(lambda: done.append(connection.execute(sql, values).rowcount))
        return done == [1]

    def writer_transaction(self, *, durable: bool) -> AbstractContextManager[JournalFile]:
        return sqlite.transaction(self._writer(durable=durable))

    def unreachable(self, error: BaseException) -> bool:
        return self._connection is None


def _opened(path: Path) -> JournalFile:
    """Connect to a file that exists.

    If the file's folder cannot be written, the connection is read-only.
    """
    connection = sqlite.connect(path, JournalFile, patience=PATIENCE)
    try:
        wait_for_lock(lambda: connection.execute("PRAGMA schema_version"))
    except sqlite3.OperationalError as error:
        log = path.with_name(f"{path.name}-wal")
        connection.close()
        if sqlite.code(error) not in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
            raise
        if not path.is_file():
            raise
        if log.exists() and log.stat().st_size:
            raise JournalError(
                f"journal {path}: {explained(error, path)}; its last entries are in {log.name}; "
                "copy both files to a writable folder and read them there"
            ) from error
        read_only = "mode=ro&immutable=1"
        return sqlite.connect(path, _Unchanging, patience=PATIENCE, terms=read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path) -> None:
    """Refuse a network file system. Create a missing file and folder, for their owner only."""
    if (kind := file_system(path)) in NETWORKS:
        message = f"journal {path}: locks do not work on a network file system ({kind}); "
        raise JournalError(message + "keep it on a local disk")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device"
        raise JournalError(f"journal {path}: it is {what}; name a file, such as agent.db")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def check_format(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file's format; 0: it is empty. Raises `JournalError`."""
    if (version := sqlite.version(connection)) is None:
        message = f"journal {path}: the file belongs to another program; name another file"
        raise JournalError(message)
    if version > (known := len(STATEMENTS.migrations)):
        message = f"journal {path}: its format {version} is newer than {known}; "
        raise JournalError(message + "use a newer version of continuation")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Upgrade the file to this version of the format, in one transaction."""
    if check_format(connection, path) == len(STATEMENTS.migrations):
        return
    with sqlite.transaction(connection):
        check_format(connection, path)
        sqlite.migrate(connection, STATEMENTS.migrations)
