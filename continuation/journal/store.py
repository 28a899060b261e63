"""One file of a project, SQLite in WAL mode: appended to by one thread, read by anybody.

All journals of a process that share a file share its writer, so that what comes together is
committed together, and no event loop ever waits for a disk. A commit is synced if anything in it
has to survive a power loss (intents, results, ends of turns, owners); running text only has to
survive a kill, and what the system has in its cache does.

Whoever appends says as which owner. The epoch is compared in the same transaction, so a process
that was thought dead and woke up writes nothing (`Fenced`).
"""

from __future__ import annotations

import atexit
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from continuation.journal.errors import Fenced, JournalError

_APPLICATION: Final = 0x636F6E74
_PATIENCE: Final = 60.0
"""Seconds that a lock is waited for; nothing of ours holds one for more than milliseconds."""
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
NETWORKS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs", "ceph"})

SCHEMAS: Final = (
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
)
"""What each version of the format adds to the one before."""

# Written again when it failed: what is there after all, under its number, is not repeated.
APPEND: Final = "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"
SAVE: Final = "INSERT OR IGNORE INTO running VALUES (?, ?, ?, ?, ?)"
FORGET: Final = "DELETE FROM running WHERE session = ?"
BEAT: Final = "UPDATE sessions SET beat = ? WHERE id = ? AND epoch = ?"

_OWNED: Final = " WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ? AND epoch = ?)"
_ALONE: Final = {
    sql: sql.replace("VALUES (", "SELECT ").removesuffix(")") + _OWNED for sql in (APPEND, SAVE)
}
"""What is committed alone compares the epoch itself. A transaction of four statements would let
another thread have the interpreter four times, and wait for it as often."""
_LOG: Final = 256
"""Pages of the write-ahead log that are moved into the file at once. Writing over a log is half as
slow as making it longer, so it is to be short."""


FORKED: Final = "a journal does not pass through fork: open one in the new process"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who may append to a session."""

    session: int
    epoch: int


Statement = tuple[str, tuple[Any, ...]]


@dataclass(slots=True)
class _Unit:
    """What is committed whole or not at all."""

    owner: Ownership
    statements: Sequence[Statement]
    durable: bool
    done: Future[None] = field(default_factory=lambda: Future[None]())


class Saving(Protocol):
    """A turn that runs, whose text is to be saved when it is due."""

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what is to be saved now, and whether it is to be synced."""
        ...

    def finish(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what records its end."""
        ...

    def saved(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """What was collected is saved, or cannot be."""
        ...


class Store:
    """The writer of one file in this process."""

    _open: dict[str, Store] = {}  # noqa: RUF012 - of the class, on purpose
    _left: list[object] = []  # noqa: RUF012
    """Connections of the process that this was forked from: SQLite wants them neither used..."""
    _opening = threading.Lock()

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises `JournalError`, `OSError`."""
        self.path = path
        self._spare: list[sqlite3.Connection] = []
        _check(path)
        try:
            with closing(sqlite3.connect(path)) as found:  # WAL would change what is not ours
                patiently(lambda: check_format(found, path))
            with self.connection() as connection:
                _migrate(connection, path)
        except sqlite3.DatabaseError as error:
            message = f"journal {path}: {error}"
            raise JournalError(message) from error
        self._file = path.stat()
        self._connection: sqlite3.Connection | None = None
        self.lost = False
        """It is of the process that this one was forked from."""
        self.begin()

    def begin(self) -> None:
        """Begin with nothing to write."""
        self._wanted = threading.Condition()
        self._units: list[_Unit] = []
        self._due: list[tuple[float, Saving]] = []
        self._ending: list[tuple[Saving, Future[None]]] = []
        self._beats: dict[Ownership, float] = {}
        self._beaten = time.monotonic()
        self._thread: threading.Thread | None = None
        self._syncs: bool | None = None
        """Whether the thread's connection syncs what it commits; `None`: that is not set yet."""

    @classmethod
    def of(cls, path: Path) -> Store:
        """Return this process's writer of a file."""
        key = str(path.absolute())
        with cls._opening:
            store = cls._open.get(key)
            if store is None or not store.is_there():
                store = cls._open[key] = cls(path)
                atexit.register(store.flush)
        return store

    def is_there(self) -> bool:
        """Whether the path still names the file that this writes."""
        with suppress(OSError):
            return os.path.samestat(self._file, self.path.stat())
        return False

    @classmethod
    def forked(cls) -> None:
        """Begin anew in a forked process: what ran in the other's thread does not run here."""
        cls._opening = threading.Lock()
        for store in cls._open.values():
            store.lose()
        cls._open = {}

    def lose(self) -> None:
        """Write nothing any more: the file's owners are those of another process."""
        self.lost = True
        self._left.append((self._spare, self._connection))  # ...nor closed
        self._spare, self._connection = [], None
        self.begin()

    # --- connections -----------------------------------------------------------------------------

    def connect(self) -> sqlite3.Connection:
        """Return a connection of its own; any thread may use it, one at a time.

        Who reads can meet a lock too: while another process recovers the file, or closes it last.
        """
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        # Switching to WAL can meet a lock too, and its own busy handler is not asked.
        patiently(lambda: connection.execute("PRAGMA journal_mode=WAL"))
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG}")
        return connection

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Lend a connection to one thread; opening one takes as long as ten queries.

        Raises `JournalError` for what SQLite cannot do.
        """
        try:
            try:
                connection = self._spare.pop()
            except IndexError:
                connection = self.connect()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            message = f"journal {self.path}: {error}"
            raise JournalError(message) from error
        self._spare.append(connection)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        """Run a transaction of the caller's own, in the caller's thread."""
        with self.connection() as connection:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("PRAGMA busy_timeout=0")
            patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
                patiently(lambda: connection.execute("COMMIT"))
            except BaseException:
                with suppress(sqlite3.Error):  # what failed may have ended it
                    connection.execute("ROLLBACK")
                raise
            connection.execute(f"PRAGMA busy_timeout={_PATIENCE * 1000:.0f}")

    # --- appending -------------------------------------------------------------------------------

    def append(
        self, owner: Ownership, statements: Sequence[Statement], *, durable: bool
    ) -> Future[None]:
        """Append at once; the future fails with `Fenced`, or with what the file failed with."""
        unit = _Unit(owner, statements, durable)
        with self._wanted:
            self._units.append(unit)
            self._wake()
        return unit.done

    def save_at(self, when: float, turn: Saving) -> None:
        """Have a turn's text saved, by `time.monotonic`."""
        with self._wanted:
            self._due.append((when, turn))
            self._wake()

    def finish(self, turn: Saving) -> Future[None] | None:
        """Have a turn's end recorded. `None`: who asks must not wait for it.

        Streams are closed by the garbage collector too, in whatever thread and at whatever line.
        """
        done = Future[None]()
        mine = self._wanted._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        with self._wanted:
            self._ending.append((turn, done))
            self._wake()
        return None if mine or threading.current_thread() is self._thread else done

    def keep(self, owner: Ownership, every: float) -> None:
        """Beat for a session until it is released."""
        with self._wanted:
            self._beats[owner] = every
            self._wake()

    def release(self, owner: Ownership) -> None:
        """Beat no longer for a session."""
        with self._wanted:
            self._beats.pop(owner, None)

    def flush(self) -> None:
        """Save all that runs, and wait until all is committed."""
        with self._wanted:
            self._due = [(0.0, turn) for _, turn in self._due]
            marks = [_Unit(Ownership(0, 0), (), durable=False)]
            self._units += marks
            self._wake()
        with suppress(Exception):
            marks[0].done.result(_PATIENCE)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        self._wanted.notify()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            units = self._wait()
            try:
                if self.lost:
                    raise Fenced(FORKED)
                if self._connection is None:
                    self._connection, self._syncs = self.connect(), None
                    self._connection.execute("PRAGMA busy_timeout=0")
                self._commit(self._connection, units)
            except BaseException as error:
                self._fail(units, error)

    def _fail(self, units: Sequence[_Unit], error: BaseException) -> None:
        """Tell who asked; where several did, each is tried alone, for one may spoil it for all."""
        for unit in units:
            try:
                if len(units) == 1 or self._connection is None:
                    raise error
                self._commit(self._connection, [unit])
            except BaseException as own:
                unit.done.set_exception(own)

    def _wait(self) -> list[_Unit]:
        """Wait until something is to be written; return all that is."""
        with self._wanted:
            while not (self._units or self._ending):
                now = time.monotonic()
                waits = [when - now for when, _ in self._due]
                waits += [self._beaten + every - now for every in self._beats.values()]
                if waits and min(waits) <= 0:
                    break
                self._wanted.wait(min(waits) if waits else None)
            units, self._units = self._units, []
            ending, self._ending = self._ending, []
            now = time.monotonic()
            due = [turn for when, turn in self._due if when <= now]
            self._due = [(when, turn) for when, turn in self._due if when > now]
            beats = list(self._beats.items())
        units += [unit for turn in due if (unit := _collected(turn, turn.collect)) is not None]
        for turn, done in ending:
            if (unit := _collected(turn, turn.finish)) is None:
                done.set_result(None)
            else:
                unit.done.add_done_callback(partial(follow, done))
                units.append(unit)
        if beats and now >= self._beaten + min(every for _, every in beats):
            self._beaten = now
            for owner, _ in beats:
                beat = BEAT, (time.time(), owner.session, owner.epoch)
                units.append(_Unit(owner, [beat], durable=False))
        return units

    def _commit(self, connection: sqlite3.Connection, units: Sequence[_Unit]) -> None:
        """Commit all that came together."""
        durable = any(unit.durable for unit in units)
        if durable != self._syncs:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._syncs = durable
        if len(units) == 1 and _alone(connection, units[0]):
            units[0].done.set_result(None)
            return
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        fenced = list[_Unit]()
        try:
            for unit in units:
                if not unit.statements:
                    continue
                row = connection.execute(
                    "SELECT epoch FROM sessions WHERE id = ?", (unit.owner.session,)
                ).fetchone()
                if row is None or row[0] != unit.owner.epoch:
                    fenced.append(unit)
                    continue
                for sql, values in unit.statements:
                    connection.execute(sql, values)
            patiently(lambda: connection.execute("COMMIT"))
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        for unit in units:
            if unit in fenced:
                self.release(unit.owner)
                unit.done.set_exception(Fenced("another process owns this session by now"))
            else:
                unit.done.set_result(None)


def _alone(connection: sqlite3.Connection, unit: _Unit) -> bool:
    """Commit a single row; `False`: nothing was, for it is there, not ours to write, or more."""
    if len(unit.statements) != 1:
        return False
    sql, values = unit.statements[0]
    if (sql := _ALONE.get(sql, "")) == "":
        return False
    mine = (*values, unit.owner.session, unit.owner.epoch)
    done = list[int]()
    patiently(lambda: done.append(connection.execute(sql, mine).rowcount))
    return done == [1]


def _collected(
    turn: Saving, collect: Callable[[], tuple[Ownership, Sequence[Statement], bool] | None]
) -> _Unit | None:
    """Return what a turn wants written, if anything; what it cannot say is lost, and told."""
    try:
        saved = collect()
    except Exception as error:
        failed = Future[None]()
        failed.set_exception(error)
        turn.saved((), failed)
        return None
    if saved is None:
        return None
    unit = _Unit(*saved)
    unit.done.add_done_callback(partial(turn.saved, unit.statements))
    return unit


def follow(done: Future[None], unit: Future[None]) -> None:
    """Let a future end as another one did."""
    error = unit.exception()
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def patiently(act: Callable[[], object]) -> None:
    """Wait for a lock fairly: SQLite's own waiting lets some writers starve for seconds.

    To ask more often the longer one waits was tried: it takes more time from who has the lock than
    it gives.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            act()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0001, 0.0008))
        else:
            return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Store.forked)


def _check(path: Path) -> None:
    """Refuse a file that cannot be one, and make it readable to its owner alone."""
    if (kind := file_system(path)) in NETWORKS:
        message = f"journal {path}: on a network file system ({kind}) locks do not hold; "
        raise JournalError(message + "keep it on a local disk")
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def file_system(path: Path) -> str:
    """Return the type of the file system a file is on, or would be; `""`: it cannot be told."""
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
    """Return the version of a file's format; 0: nothing is in it yet. Raises `JournalError`."""

    def value(name: str) -> int:
        return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

    # In this order: all three are written in one transaction, perhaps just now.
    if value("schema_version") and value("application_id") != _APPLICATION:
        message = f"journal {path}: it is a database of something else; name another file"
        raise JournalError(message)
    if (version := value("user_version")) > len(SCHEMAS):
        message = f"journal {path}: its format {version} is newer than {len(SCHEMAS)}; "
        raise JournalError(message + "use a newer version of continuation")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version of the format, in one transaction."""
    if check_format(connection, path) == len(SCHEMAS):
        return
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    version = check_format(connection, path)
    for schema in SCHEMAS[version:]:
        for statement in filter(str.strip, schema.split(";")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={len(SCHEMAS)}")
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute("COMMIT")
