"""What every store of a journal does: one thread per process appends, in the order of calls.

All journals of a process that use one store share its writer. So writes that arrive together are
committed together, and no event loop waits for a disk or a server. A commit is synced if anything
in it has to survive a power loss: intents, results, ends of turns, owners. Running text only has to
survive a kill.

Each append names its owner, and the same transaction compares the owner's epoch. So a process that
lost the session while it was suspended writes nothing (`Fenced`).

`statements.py` names the statements; `sqlite.py` and `postgres.py` have their SQL.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from continuation.journal.errors import Fenced, JournalError
from continuation.journal.statements import APPEND, BEAT, LEAVE, SAVE, Statement, Statements, Write
from continuation.policy import is_url, store_error, without_password
from continuation.stores import PATIENCE, leave_behind

T = TypeVar("T")
TAKEN: Final = (
    "another process owns this session now; stop this one, because it records nothing any more"
)
FORKED: Final = "a journal cannot be used after fork; open one in the new process"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right to append to a session."""

    session: int
    epoch: int
    opening: str = field(default="", compare=False)
    """Id of the opening that took ownership; empty for a read-only journal."""


@dataclass(slots=True)
class Unit:
    """Statements that are committed together or not at all."""

    owner: Ownership
    statements: Sequence[Statement]
    durable: bool
    done: Future[None] = field(default_factory=lambda: Future[None]())


class Saving(Protocol):
    """A running turn. The writer saves its text when a save is due."""

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return owner, statements and whether to sync them; `None`: there is nothing to save."""
        ...

    def finish(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what records the turn's end, in the same form."""
        ...

    def saved(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """Receive the result of writing the collected statements: `done` has ended."""
        ...


class Rows(Protocol):
    """The result of a query."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Any: ...


class Connection(Protocol):
    """A connection to a store, with the methods that a journal uses."""

    @property
    def sql(self) -> Statements: ...
    def execute(self, sql: str, values: Any = ..., /) -> Rows: ...
    def close(self) -> None: ...


class JournalStore(ABC):
    """The writer of one file or database in this process."""

    _open: dict[str, JournalStore] = {}  # noqa: RUF012 - of the class, on purpose
    _opening = threading.Lock()

    sql: ClassVar[Statements]
    """Its statements."""
    errors: ClassVar[type[Exception]]
    """The base class of what its database library raises."""
    remote: ClassVar[bool] = False
    """Whether it can crash while the process runs, and then lose what was not synced."""
    transient: ClassVar[tuple[type[BaseException], ...]]
    """Errors that may be temporary, such as a full disk or an unreachable server."""

    def __init__(self, name: str) -> None:
        """Begin. `name`: the store's name in messages."""
        self.name = name
        self._spare: list[Any] = []
        self._connection: Any = None
        """The writer's connection; `None`: not open."""
        self.lost = False
        """Whether the store belongs to the process from which this one was forked."""
        self.begin()

    def begin(self) -> None:
        """Begin with empty queues."""
        self._condition = threading.Condition()
        self._units: list[Unit] = []
        self._due: list[tuple[float, Saving]] = []
        self._ending: list[tuple[Saving, Future[None]]] = []
        self._beats: dict[Ownership, float] = {}
        self._leaving: dict[Ownership, Sequence[Statement]] = {}
        """Owners that are giving up their session, with the statements still to write for them."""
        self._rests: list[Future[None]] = []
        """Futures of `rest`: completed when the connections are closed, or cannot be closed yet."""
        self._is_ending = False
        self.closed_openings: set[str] = set()
        """Ids of openings that have ended here. The store may still record them as owners."""
        self._last_beat = time.monotonic()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, target: str | os.PathLike[str], *, make: bool = True) -> JournalStore:
        """Return this process's writer of a file, or of the database that a URL names.

        `make`: create a journal if there is none. Raises `JournalError`, and `ValueError` for a
        target that is neither a file's path nor a URL.
        """
        kind = kind_of(target)
        key = str(target) if is_url(str(target)) else os.path.abspath(target)  # noqa: PTH100
        with cls._opening:
            store = cls._open.get(key)
            if store is None or not store.is_there():
                store = cls._open[key] = kind.opened(target, make=make)
                atexit.register(store.end)
        return store

    @classmethod
    @abstractmethod
    def opened(cls, target: Any, *, make: bool) -> JournalStore:
        """Open a store. `make`: create it if there is none."""

    @classmethod
    @abstractmethod
    def reading(cls, target: Any) -> AbstractContextManager[Connection]:
        """Open a store to read its state at one moment. Raises `JournalError` for other files."""

    @classmethod
    def copy(cls, source: Connection, to: Path) -> None:
        """Copy what a connection reads to a new file. Raises `JournalError` for a server."""
        message = "copy: use pg_dump --table 'continuation_*' to copy a journal in PostgreSQL"
        raise JournalError(message)

    def is_there(self) -> bool:
        """Whether the store's name still refers to what was opened."""
        return True

    @classmethod
    def forked(cls) -> None:
        """Begin anew in a forked process, which does not have the parent's writer thread."""
        cls._opening = threading.Lock()
        for store in cls._open.values():
            store.lose()
        cls._open = {}

    def lose(self) -> None:
        """Stop writing: the store's owners belong to the parent process."""
        self.lost = True
        leave_behind(self._spare, self._connection)
        self._spare, self._connection = [], None
        self.begin()

    # --- connections -----------------------------------------------------------------------------

    @abstractmethod
    def connect(self) -> Any:
        """Return a new connection. Any thread may use it, but only one at a time."""

    def borrow(self) -> Any:
        """Return a spare connection, or a new one. Opening one takes as long as ten queries."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.connect()

    @contextmanager
    def connection(self) -> Generator[Any]:
        """Lend a connection to one thread. Raises `JournalError` in place of the store's errors."""
        try:
            connection = self.borrow()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        except self.errors as error:
            raise JournalError(self.error_message(error)) from error
        self.give_back(connection)

    def give_back(self, connection: Any) -> None:
        """Keep a connection that was lent, for the next borrower."""
        self._spare.append(connection)

    def find(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a query. Raises `JournalError`."""

        def query_rows() -> list[Any]:
            with self.connection() as connection:
                rows: list[Any] = connection.execute(query, values).fetchall()
            return rows

        return self.retry(query_rows)

    def error_message(self, error: BaseException) -> str:
        """Return the message for an error, with the store's name."""
        return f"journal {self.name}: {self.reason(error)}"

    def reason(self, error: BaseException) -> str:
        """Return why something failed and what to do about it, without any content."""
        if isinstance(error, JournalError):
            return str(error)
        if isinstance(error, self.errors | OSError):
            return self.explain(error)
        return f"its content could not be encoded ({type(error).__name__})"

    @abstractmethod
    def explain(self, error: BaseException) -> str:
        """Return why the store raised an error and what to do about it, without any content."""

    @abstractmethod
    def transaction(
        self, *, durable: bool = True, exclusive: bool = False
    ) -> AbstractContextManager[Connection]:
        """Run a transaction in the caller's thread, separate from the writer's.

        `durable`: sync its commit. `exclusive`: prevent all other writes to sessions meanwhile.
        """

    def retry(self, action: Callable[[], T]) -> T:
        """Run a repeatable action. A server's store repeats it if the connection is lost."""
        return action()

    def time(self) -> float:
        """Return the store's time in seconds since 1970, estimated without a query."""
        return time.time()

    def size(self) -> int:
        """Return how many bytes its files take; 0 for a server."""
        return 0

    def shrink(self) -> None:  # noqa: B027 - a server does so by itself
        """Free the space of removed rows."""

    # --- appending -------------------------------------------------------------------------------

    def append(
        self, owner: Ownership, statements: Sequence[Statement], *, durable: bool
    ) -> Future[None]:
        """Commit statements soon. The future fails with `Fenced` or the store's error."""
        unit = Unit(owner, statements, durable)
        with self._condition:
            self._units.append(unit)
            self._wake()
        return unit.done

    def save_at(self, when: float, turn: Saving) -> None:
        """Make the writer save a turn's text at a time of `time.monotonic`."""
        with self._condition:
            self._due.append((when, turn))
            self._wake()

    def finish(self, turn: Saving) -> Future[None] | None:
        """Make the writer record a turn's end. `None`: do not wait, because that would deadlock.

        It would if the garbage collector closes a stream in the writer's thread, or in a thread
        that holds the lock.
        """
        done = Future[None]()
        held = self._condition._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        with self._condition:
            self._ending.append((turn, done))
            self._wake()
        return None if held or threading.current_thread() is self._thread else done

    def start_beats(self, owner: Ownership, every: float) -> None:
        """Record every `every` seconds that an owner is alive, until its session is released."""
        with self._condition:
            self._beats[owner] = every
            self._wake()

    def leave(self, owner: Ownership, every: float, last: Sequence[Statement] = ()) -> Future[None]:
        """Give up a session. If that cannot be written, try again every `every` seconds.

        Otherwise no other process could own it while this one runs. `last`: statements to write
        with it.
        """
        with self._condition:
            self._beats[owner] = every
            self._leaving[owner] = last
            self.closed_openings.add(owner.opening)
            unit = self._beat(owner)
            self._units.append(unit)
            self._wake()
        return unit.done

    def _beat(self, owner: Ownership) -> Unit:
        """Return the unit that records an owner's beat, or that it gives up its session."""
        last, key = self._leaving.get(owner), (owner.session, owner.epoch)
        if last is None:
            return Unit(owner, [(BEAT, key)], durable=False)
        # In a file it is not synced: after a power loss, the owner's process is gone anyway.
        unit = Unit(owner, [*last, (LEAVE, key)], durable=self.remote or bool(last))
        unit.done.add_done_callback(partial(self._after_leave, owner))
        return unit

    def _after_leave(self, owner: Ownership, done: Future[None]) -> None:
        error = done.exception()
        if error is None or isinstance(error, Fenced):
            self.release(owner)
        elif not isinstance(error, self.transient):
            with self._condition:  # leave without `last`, so that others can own it
                if owner in self._leaving:
                    self._leaving[owner] = ()

    def release(self, owner: Ownership) -> None:
        """Stop recording beats for a session that has another owner now, or none."""
        with self._condition:
            self._beats.pop(owner, None)
            self._leaving.pop(owner, None)
            self.closed_openings.discard(owner.opening)

    def flush(self) -> None:
        """Save the text of all running turns. Wait up to `PATIENCE` until all is committed."""
        with self._condition:
            self._due = [(0.0, turn) for _, turn in self._due]
            markers = [Unit(Ownership(0, 0), (), durable=False)]
            self._units += markers
            self._wake()
        with suppress(Exception):
            markers[0].done.result(PATIENCE)

    def rest(self) -> None:
        """Close the connections, unless this process has a session open. Wait for that.

        A file then has no `-wal` and `-shm` beside it, if no other process has it open.
        """
        done = Future[None]()
        with self._condition:
            open_here = self._beats.keys() - self._leaving.keys()
            if self.remote or (open_here and not self._is_ending):
                return
            if self._thread is not None:
                self._rests.append(done)
                self._wake()
        if self._thread is None:  # this process wrote nothing
            self.disconnect()
        else:
            with suppress(Exception):
                done.result(PATIENCE)

    def end(self) -> None:
        """Write what is pending and close the connections, because the process ends."""
        if self.lost:
            return
        self.flush()
        self._is_ending = True
        self.rest()

    def disconnect(self) -> None:  # noqa: B027 - a server does not wait for it
        """Close the connections that are not lent. They are opened again when needed."""

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        self._condition.notify()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            units = self._wait()
            try:
                if self.lost:
                    raise Fenced(FORKED)
                self._commit(units)
            except BaseException as error:
                self._fail(units, error)
            self._rest_if_asked()

    def _rest_if_asked(self) -> None:
        with self._condition:
            rests, self._rests = self._rests, []
            idle = not (self._beats or self._units or self._ending)
        if rests and not self.lost and (idle or self._is_ending):
            with suppress(Exception):
                self.disconnect()
        for done in rests:
            done.set_result(None)

    def _fail(self, units: Sequence[Unit], error: BaseException) -> None:
        """Fail the units. First try several one by one, because only one may be at fault."""
        for unit in units:
            try:
                if len(units) == 1 or self.unreachable(error):
                    raise error
                self._commit([unit])
            except BaseException as unit_error:
                unit.done.set_exception(unit_error)

    def _wait(self) -> list[Unit]:
        """Wait until there is something to write; return all of it."""
        with self._condition:
            while not (self._units or self._ending or self._rests):
                now = time.monotonic()
                waits = [when - now for when, _ in self._due]
                waits += [self._last_beat + every - now for every in self._beats.values()]
                if waits and min(waits) <= 0:
                    break
                self._condition.wait(min(waits) if waits else None)
            units, self._units = self._units, []
            ending, self._ending = self._ending, []
            now = time.monotonic()
            due = [turn for when, turn in self._due if when <= now]
            self._due = [(when, turn) for when, turn in self._due if when > now]
            beats = list[Unit]()
            if self._beats and now >= self._last_beat + min(self._beats.values()):
                self._last_beat = now
                beats = [self._beat(owner) for owner in self._beats]
        units += [unit for turn in due if (unit := _collect(turn, turn.collect)) is not None]
        for turn, done in ending:
            if (unit := _collect(turn, turn.finish)) is None:
                done.set_result(None)
            else:
                unit.done.add_done_callback(partial(follow, done))
                units.append(unit)
        # Put the markers of flushes last. When they complete, failed writes are pending again.
        return sorted(units + beats, key=lambda unit: not unit.statements)

    def _commit(self, units: Sequence[Unit]) -> None:
        """Commit units in one transaction. A unit fails with `Fenced` if its owner has changed."""
        durable = any(unit.durable for unit in units)
        if len(units) == 1 and self._commit_one(units[0], durable=durable):
            units[0].done.set_result(None)
            return
        fenced, statements = list[Unit](), list[Statement]()
        if sessions := list({unit.owner.session: None for unit in units if unit.statements}):
            query = self.sql.of_many(self.sql.epochs, len(sessions))
            with self.writer_transaction(durable=durable) as connection:
                epochs = dict(connection.execute(query, sessions).fetchall())
                for unit in units:
                    if not unit.statements:
                        continue
                    if epochs.get(unit.owner.session) != unit.owner.epoch:
                        fenced.append(unit)
                        continue
                    statements += unit.statements
                self.perform(connection, statements)
        for unit in units:
            if unit in fenced:
                self.release(unit.owner)
                unit.done.set_exception(Fenced(TAKEN))
            else:
                unit.done.set_result(None)

    def _commit_one(self, unit: Unit, *, durable: bool) -> bool:
        """Commit a unit of one row. `False`: not done.

        Then the unit has several rows, its row exists already, or the owner has changed.
        """
        if len(unit.statements) != 1:
            return False
        write, values = unit.statements[0]
        arguments = (*values, unit.owner.session, unit.owner.epoch)
        return write in (APPEND, SAVE) and self.append_one(write, arguments, durable=durable)

    @abstractmethod
    def append_one(self, write: Write, values: tuple[Any, ...], *, durable: bool) -> bool:
        """Append a row by one of `Statements.guarded`; return whether it was inserted."""

    @abstractmethod
    def writer_transaction(self, *, durable: bool) -> AbstractContextManager[Connection]:
        """Run a transaction on the writer's connection."""

    def perform(self, connection: Connection, statements: Sequence[Statement]) -> None:
        """Execute statements in order."""
        for write, values in statements:
            connection.execute(self.sql.writes[write], values)

    @abstractmethod
    def unreachable(self, error: BaseException) -> bool:
        """Whether an error means that all other units would fail too."""


def kind_of(target: str | os.PathLike[str]) -> type[JournalStore]:
    """Return the class of store for a path or a URL. Raises `ValueError` if it is neither."""
    url = str(target)
    problem = store_error(url) if url and "\0" not in url else "must be the path of a file"
    if problem:
        message = f"target = {without_password(url)!r}: {problem}"
        raise ValueError(message)
    if not is_url(url):
        from continuation.journal.sqlite import SqliteJournalStore

        return SqliteJournalStore
    from continuation.journal.postgres import PostgresJournalStore

    return PostgresJournalStore


def _collect(
    turn: Saving, collect: Callable[[], tuple[Ownership, Sequence[Statement], bool] | None]
) -> Unit | None:
    """Return what a turn has to write, if anything. Report an error of its encoding to the turn."""
    try:
        collected = collect()
    except Exception as error:
        failed = Future[None]()
        failed.set_exception(error)
        turn.saved((), failed)
        return None
    if collected is None:
        return None
    unit = Unit(*collected)
    unit.done.add_done_callback(partial(turn.saved, unit.statements))
    return unit


def follow(follower: Future[None], followed: Future[None]) -> None:
    """Complete a future with the result of another one."""
    error = followed.exception()
    if error is None:
        follower.set_result(None)
    else:
        follower.set_exception(error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=JournalStore.forked)
