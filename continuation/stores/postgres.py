"""PostgreSQL servers (extra `postgres`): the only place that connects to one.

No statement is prepared and no setting outlives its transaction, for a pooler may be in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ReadOnlySqlTransaction

from continuation.stores import leave_behind

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
T = TypeVar("T")

SILENT: Final = 6.0
"""Seconds of silence after which a server counts as gone; longer than `FROZEN`, because the locks
of a frozen process are waited for."""
FROZEN: Final = "5s"
"""How long a process may freeze inside `transaction`; after that the server disconnects it."""
RETRIED: Final = 3.0
"""Seconds for which a lost server is retried; after that once per call, until it answers."""
_PAUSE: Final = 0.05

_OPTIONS: Final[dict[str, Any]] = {
    "application_name": "continuation",
    "client_encoding": "utf8",
    "connect_timeout": 2,
    # A connection whose server has vanished fails within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

# --- connections ---------------------------------------------------------------------------------


def address(url: str) -> str:
    """Return a URL as a libpq connection string, with our options where the URL sets none."""
    return make_conninfo("", **{**_OPTIONS, **conninfo_to_dict(url)})


def server_and_database(url: str) -> str:
    """Return a URL's server and database, for messages: without user, password and options."""
    parts = {"host": "", "port": "", "dbname": "", **conninfo_to_dict(url)}
    port = f":{parts['port']}" if parts["port"] else ""
    return f"postgresql://{parts['host'] or parts.get('hostaddr', '')}{port}/{parts['dbname']}"


def connect(known: str, *, silent: float | None = None) -> Connection:
    """Connect to a connection string; each statement commits by itself.

    `silent`: seconds without a byte after which the server counts as gone (`OperationalError`).
    """
    made = _Impatient.connect(known, autocommit=True, prepare_threshold=None)
    made.silent = silent
    return made


class _Impatient(psycopg.Connection[tuple[Any, ...]]):
    """A connection that bounds each wait: a server that hangs or waits for a lock sends nothing."""

    silent: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *more: Any, **options: Any) -> Any:
        if self.silent is not None:
            gen = self._bounded(gen, self.silent)
        return super().wait(gen, *more, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
        """Run `gen` until nothing has come for `seconds`; psycopg resumes it every 0.1 s."""
        try:
            state, until = next(gen), time.monotonic() + seconds
            while True:
                if ready := (yield state):
                    until = time.monotonic() + seconds
                elif time.monotonic() > until:
                    break
                state = gen.send(ready)
        except StopIteration as over:
            return over.value
        gen.close()
        # Without it the statement would keep waiting for its lock after we have disconnected.
        if psycopg.capabilities.has_cancel_safe():
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=1.0)
        self.pgconn.finish()
        message = f"the server said nothing for {seconds:.0f} s"
        raise psycopg.OperationalError(message)


class DatabaseServer:
    """One server and database: a connection that is lost is opened again for a while."""

    def __init__(self, url: str) -> None:
        """Begin; nothing is sent yet."""
        self._address = address(url)
        self.name = server_and_database(url)
        """Its name in messages."""
        self._reachable = False

    def connect(self) -> Connection:
        """Return a new connection. A server that is silent for `SILENT` seconds counts as gone."""
        return connect(self._address, silent=SILENT)

    def retry(self, action: Callable[[], T]) -> T:
        """Run an action that may run twice: repeat it while the server cannot be reached."""
        until: float | None = None
        while True:
            try:
                done = action()
            except Exception as error:
                answered, self._reachable = self._reachable, not unreachable(error)
                if self._reachable:
                    raise
                if until is None:  # counted from now: noticing may have taken long
                    until = time.monotonic() + (RETRIED if answered else 0.0)
                if time.monotonic() >= until:
                    raise
            else:
                self._reachable = True
                return done
            time.sleep(_PAUSE)


class Busy(Exception):  # noqa: N818 - says what happened, like StopIteration
    """All connections of a pool were in use for as long as it waits for one."""


class Pool:
    """A few connections to one database, for any thread; nothing is sent between calls."""

    def __init__(
        self, url: str, prepare: Callable[[Connection], None], *, most: int, patience: float
    ) -> None:
        """Begin; nothing is sent yet. `prepare` is called with each new connection.

        `most`: connections at once; `patience`: seconds for which `run` waits for one.
        """
        self._address = address(url)
        self._prepare = prepare
        self._most, self._patience = most, patience
        self._begin()

    def _begin(self) -> None:
        self.is_open = True
        self._process = os.getpid()
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(self._most)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work`; again on another connection if an idle one turns out to be broken.

        Raises `Busy`, and psycopg.Error for any error of the database.
        """
        if self._process != os.getpid():  # after a fork: they are the parent's
            leave_behind(self._idle)
            self._begin()
        if not self._free.acquire(timeout=self._patience):
            raise Busy
        try:
            done = None
            while done is None:
                done = self._tried(work)
            return done[0]
        finally:
            self._free.release()

    def _tried(self, work: Callable[[Connection], T]) -> tuple[T] | None:
        """Run `work` on one connection, which is kept on success; `None`: it was broken before."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._connect()
        try:
            done = work(connection)
        except BaseException as error:
            broken = connection.broken
            connection.close()
            if idle is not None and broken and isinstance(error, psycopg.Error):
                return None
            raise
        with self._lock:
            reusable = self.is_open
            if reusable:
                self._idle.append(connection)
        if not reusable:
            connection.close()
        return (done,)

    def _connect(self) -> Connection:
        connection = connect(self._address)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connections; one that is in use is closed after its use."""
        with self._lock:
            self.is_open = False
            idle, self._idle = self._idle, []
        if self._process == os.getpid():
            for connection in idle:
                connection.close()


# --- locks and formats ---------------------------------------------------------------------------


@contextmanager
def transaction(connection: Connection, *, durable: bool = True) -> Generator[None]:
    """Commit all that is executed inside, or nothing; who freezes inside loses its connection.

    `durable`: wait until the server's disk has it.
    """
    relaxed = "" if durable else ", set_config('synchronous_commit', 'off', true)"
    freeze_timeout = f"set_config('idle_in_transaction_session_timeout', '{FROZEN}', true)"
    with connection.transaction():
        connection.execute(f"SELECT {freeze_timeout}{relaxed}".encode())
        yield


def lock(connection: Connection, key: int) -> None:
    """Wait until no other transaction has the lock of this key, and keep it until this one ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))


def version(connection: Connection, table: str) -> int:
    """Return the version of tables, which the one named `table` holds; 0: there are none yet."""
    # By the catalogue: `to_regclass` would remember that there was none before the lock.
    there = "SELECT 1 FROM pg_class WHERE relname = %s AND pg_table_is_visible(oid)"
    if connection.execute(there, (table,)).fetchone() is None:
        return 0
    row = connection.execute(f"SELECT version FROM {table}".encode()).fetchone()
    return row[0] if row else 0


def migrate(connection: Connection, table: str, key: int, migrations: Sequence[str]) -> int:
    """Create or upgrade tables, one process at a time; return the version that they had before.

    It must run in a transaction. `migrations` lead from each version to the next, the first to
    version 1. `table` keeps the version, `key` is that of the lock. Tables of a later version are
    left alone.
    """
    lock(connection, key)
    before = version(connection, table)
    if not before:
        create = f"CREATE TABLE IF NOT EXISTS {table} (version integer NOT NULL)"
        connection.execute(create.encode())
    for migration in migrations[before:]:
        connection.execute(migration.encode())
    if before < len(migrations):
        connection.execute(f"DELETE FROM {table}".encode())
        connection.execute(f"INSERT INTO {table} VALUES (%s)".encode(), (len(migrations),))
    return before


# --- errors --------------------------------------------------------------------------------------


def reason(error: BaseException) -> str:
    """Return why the database refused; only the error's name if its text may quote content."""
    safe = isinstance(error, psycopg.NotSupportedError | psycopg.OperationalError)
    return (safe and str(error).strip()) or type(error).__name__


def cause(error: BaseException) -> BaseException | None:
    """Return the database's error: this one, or the one that it was raised from."""
    return error if isinstance(error, psycopg.Error) else error.__cause__


def unreachable(error: BaseException) -> bool:
    """Whether a connection was lost or refused, or the server rolled a transaction back."""
    found = cause(error)
    if isinstance(found, ReadOnlySqlTransaction):  # it is no longer the primary
        return True
    if not isinstance(found, psycopg.OperationalError):
        return False
    return (found.sqlstate or "08")[:2] in {"08", "57", "40"}


_REMEDIES: Final = {
    "08": "it is written when the server answers again",
    "57": "it is written when the server answers again",
    "53100": "free some space on the server's disk",
    "53300": "raise max_connections, or put a pooler between",
    "28": "check the user and the password of the URL",
    "3D": "create the database, or correct the URL",
    "25006": "name the primary, such as by target_session_attrs=read-write",
    "42501": "grant the role the right to read and write the tables continuation_*",
    "42P01": "restore the tables continuation_*, or open the session again",
}
"""What to do about errors, by the beginning of their SQLSTATE."""


def explained(error: BaseException) -> str:
    """Return why the server or the connection failed, and what to do about it.

    Without the contents of rows, which PostgreSQL quotes in the details of an error.
    """
    default = "08" if isinstance(error, psycopg.OperationalError | OSError) else ""
    state: str = getattr(error, "sqlstate", None) or default
    remedy = next((text for key, text in _REMEDIES.items() if state.startswith(key)), "")
    primary: str | None = getattr(getattr(error, "diag", None), "message_primary", None)
    message = primary or str(error).strip() or type(error).__name__
    return "; ".join(filter(None, (message, remedy)))
