"""Connects to a PostgreSQL server, for all stores that use one (extra `postgres`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

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


def address(url: str) -> str:
    """Return a URL as a libpq connection string, with our options where the URL sets none."""
    return make_conninfo("", **{**_OPTIONS, **conninfo_to_dict(url)})


def server_and_database(url: str) -> str:
    """Return a URL's server and database, for messages: without user, password and options."""
    parts = {"host": "", "port": "", "dbname": "", **conninfo_to_dict(url)}
    port = f":{parts['port']}" if parts["port"] else ""
    return f"postgresql://{parts['host'] or parts.get('hostaddr', '')}{port}/{parts['dbname']}"


def connect(known: str, *, silent: float | None = None) -> Connection:
    """Connect to a connection string. No statement is prepared: the server may be a pooler.

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
            state, until = next(gen), monotonic() + seconds
            while True:
                if ready := (yield state):
                    until = monotonic() + seconds
                elif monotonic() > until:
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
