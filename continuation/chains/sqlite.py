"""Entries in a file, so that a chain outlives the process. Threads and processes share it.

SQLite itself enforces the file's largest size. The oldest entries are deleted to make room for new
ones. Deleted data is overwritten. Reading never writes, because age counts from `put`.
"""

from __future__ import annotations

import atexit
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from continuation.chains.stores import MONTH, Entry, Key, StoreDown, check_bounds, decode, rows
from continuation.stores import leave_behind, sqlite

logger = logging.getLogger("continuation")
T = TypeVar("T")
EntryRow: TypeAlias = "tuple[bytes, bytes | None]"

_PAGE: Final = 4096
_SPARE: Final = 16
"""Pages that stay free for the growth of a tree."""
_PER_ENTRY: Final = 120
"""Approximate bytes of an entry in table and index, without its content."""
_SMALLEST: Final = 64 * _PAGE
_AT_ONCE: Final = 1000
"""The most expired entries that one `put` deletes. The number keeps each `put` short."""
_ALL: Final = 2**62

_MIGRATIONS: Final = (
    """
    CREATE TABLE entries (n INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
        created REAL NOT NULL, entry BLOB NOT NULL);
    CREATE TABLE salt (salt BLOB NOT NULL);
    """,
)
"""Statements that upgrade each version of the tables to the next; the first makes version 1."""
_GET: Final = "SELECT created, entry FROM entries WHERE digest = ?"
# One query without subqueries would read the complete table.
_ENDS: Final = "SELECT (SELECT min(n) FROM entries), (SELECT max(n) FROM entries)"
_EXPIRE: Final = (  # entries are nearly in order of age, so stop at the first young one
    "DELETE FROM entries WHERE n <= (SELECT min(n) FROM entries) + :most AND n < ifnull("
    f"(SELECT n FROM entries WHERE created >= :oldest ORDER BY n LIMIT 1), {_ALL})"
)

_HEADER = b"SQLite format 3\0"


class NotOursError(Exception):
    """The file belongs to another program, or to another version of this one."""


class SqliteStore:
    """Entries in an SQLite file that only its owner can read.

    A damaged file is renamed to `NAME.damaged`, and a new one is created. A file of another program
    is not changed, and the store keeps nothing. Both are logged.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_entries: int = 1_000_000,
        max_bytes: int = 512 * 1024 * 1024,
        max_age: float = MONTH,
        patience: float = 1.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open the file, or create it; its folder must exist.

        `max_bytes` limits the file. Its `-wal` file adds a few MB at most, or one entry. `max_age`
        is in seconds, and `now` is a clock in seconds. `patience`: how many seconds to wait for
        another process that writes. Raises ValueError for a limit that is too small.
        """
        check_bounds(max_entries=max_entries, max_age=max_age)
        if max_bytes < _SMALLEST:
            raise ValueError(f"max_bytes: {max_bytes!r} is too small; use {_SMALLEST} or more")
        self._path = Path(path)
        self._most, self._age, self._now = max_entries, max_age, now
        self._pages = max_bytes // _PAGE
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._salt = b""
        self._inode = 0
        self._usable = True
        self._warned = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        atexit.register(self.close)  # so that no `-wal` file remains
        with self._lock:
            self._open()

    def get(self, key: Key) -> Entry | None:
        row: tuple[float, bytes] | None
        try:
            row = self._run(
                lambda connection: connection.execute(_GET, (key.digest(self._salt),)).fetchone()
            )
        except sqlite3.Error as error:
            raise StoreDown(str(error)) from error
        return decode(row[1]) if row and row[0] >= self._now() - self._age else None

    def put(self, entries: Mapping[Key, Entry | None]) -> bool:
        def keep(connection: sqlite3.Connection) -> bool:
            entry_rows = rows(entries, self._salt, self._pages * _PAGE)
            now = self._now()
            with sqlite.transaction(connection, patience=0):
                connection.executemany(
                    "DELETE FROM entries WHERE digest = ?", ((d,) for d, _ in entry_rows)
                )
                connection.execute(_EXPIRE, {"most": _AT_ONCE, "oldest": now - self._age})
                self._make_room(connection, entry_rows)
                connection.executemany(
                    "INSERT INTO entries (digest, created, entry) VALUES (?, ?, ?)",
                    ((digest, now, data) for digest, data in entry_rows if data is not None),
                )
            return True

        try:
            return self._run(keep) or False
        except sqlite3.Error:
            return False

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._process != os.getpid():
            self._leave_behind()
        with self._lock:
            self._usable = False
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None

    # -- room ------------------------------------------------------------------------------------

    def _make_room(self, connection: sqlite3.Connection, entry_rows: list[EntryRow]) -> None:
        """Delete the oldest until these rows fit, in number and in pages."""
        first, last = connection.execute(_ENDS).fetchone()
        if first is None:
            return
        # Entries that were put again leave gaps, so this may count a few too many, never too few.
        excess = last - first + 1 + len(entry_rows) - self._most
        if excess > 0:
            first += excess
            connection.execute("DELETE FROM entries WHERE n < ?", (first,))
        size = sum(len(data or b"") + _PER_ENTRY for _, data in entry_rows)
        needed, batch = size * 5 // 4 // _PAGE + _SPARE, 16
        while first <= last:
            free = self._pages - sqlite.pragma(connection, "page_count")
            if free + sqlite.pragma(connection, "freelist_count") >= needed:
                return
            first += batch
            batch *= 2
            connection.execute("DELETE FROM entries WHERE n < ?", (first,))

    # -- opening ---------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file, or a new one if it is damaged. `_run` retries after temporary errors."""
        for _ in range(2):
            try:
                self._connection = self._connected()
                return
            except (OSError, NotOursError) as error:
                self._give_up(error)
                return
            except sqlite3.Error as error:
                if not sqlite.is_damage(error):
                    self._warn(error)
                    return
                self._set_aside()

    def _connected(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._inode = os.fstat(file).st_ino
        head = os.read(file, len(_HEADER))
        os.close(file)
        if head.strip(b"\0") and head != _HEADER:  # a mistyped name must not destroy a file
            raise NotOursError("it is not an SQLite database")
        connection = sqlite.connect(self._path, sqlite3.Connection, patience=self._patience)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check that the file is one of this store before anything in it is changed."""
        with sqlite.transaction(connection, patience=0):
            version = sqlite.version(connection)
            if version is None:
                raise NotOursError("it belongs to another program")
            if version not in {0, len(_MIGRATIONS)}:
                message = "it belongs to another version of this program; delete it to start again"
                raise NotOursError(message)
            if not sqlite.migrate(connection, _MIGRATIONS):
                connection.execute("INSERT INTO salt VALUES (?)", (os.urandom(16),))
        self._path.chmod(0o600)
        for setting in (
            "synchronous = NORMAL",
            "secure_delete = ON",
            "journal_size_limit = 4194304",
            f"max_page_count = {self._pages}",
        ):
            connection.execute(f"PRAGMA {setting}")
        with suppress(sqlite3.OperationalError):  # another process uses it, so it is WAL already
            connection.execute("PRAGMA journal_mode = WAL")
        with sqlite.transaction(connection, patience=0):
            connection.execute(_EXPIRE, {"most": _ALL, "oldest": self._now() - self._age})
            self._make_room(connection, [])
        if sqlite.pragma(connection, "page_count") > self._pages:  # the limit was larger before
            connection.execute("VACUUM")
            connection.execute(f"PRAGMA max_page_count = {self._pages}")
        self._salt = connection.execute("SELECT salt FROM salt").fetchone()[0]

    # -- errors ----------------------------------------------------------------------------------

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `work`; run it again if the file was damaged and replaced. `None`: not run.

        It does not run if the file is not used. Raises sqlite3.Error for temporary errors.
        """
        if self._process != os.getpid():
            self._leave_behind()
        with self._lock:
            for _ in range(2):
                if self._connection is None and self._usable:
                    self._open()
                if self._connection is None:
                    if self._usable:
                        raise sqlite3.OperationalError("it could not be opened")
                    return None
                try:
                    return work(self._connection)
                except sqlite3.Error as error:
                    if not sqlite.is_damage(error):
                        self._warn(error)
                        raise
                    self._set_aside()
        return None

    def _leave_behind(self) -> None:
        """After a fork, give up connection and lock, because they belong to the parent process."""
        leave_behind(self._connection)
        self._connection = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _set_aside(self) -> None:
        """Rename a damaged file, so that its content can still be examined."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        aside = self._path.with_name(f"{self._path.name}.damaged")
        try:
            if self._path.stat().st_ino != self._inode:
                return  # another process has done it
            self._path.replace(aside)
            for companion in ("-wal", "-shm"):
                self._path.with_name(self._path.name + companion).unlink(missing_ok=True)
        except OSError as error:
            self._give_up(error)
            return
        logger.warning("chain store damaged: store=%s renamed=%s", self._path, aside.name)

    def _give_up(self, error: Exception) -> None:
        self._usable = False
        reason = error.strerror if isinstance(error, OSError) else error
        logger.warning('chain store unavailable: store=%s reason="%s"', self._path, reason)

    def _warn(self, error: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        logger.log(level, 'chain store unavailable: store=%s reason="%s"', self._path, error)
