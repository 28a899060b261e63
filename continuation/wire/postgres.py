"""How a PostgreSQL server is reached by all that keep something there (extra `postgres`)."""

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
    # A server that is gone without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def address(url: str) -> str:
    """Return what a URL says, as libpq reads it, and what it leaves to us."""
    return make_conninfo("", **{**_OPTIONS, **conninfo_to_dict(url)})


def server_and_database(url: str) -> str:
    """Return a URL's server and database, without what else it says: for messages."""
    parts = {"host": "", "port": "", "dbname": "", **conninfo_to_dict(url)}
    port = f":{parts['port']}" if parts["port"] else ""
    return f"postgresql://{parts['host'] or parts.get('hostaddr', '')}{port}/{parts['dbname']}"


def connect(known: str, *, silent: float | None = None) -> Connection:
    """Connect to an address. Nothing is prepared: it may be a pooler that answers.

    `silent`: a server that says nothing for so many seconds is gone (`OperationalError`).
    """
    made = _Impatient.connect(known, autocommit=True, prepare_threshold=None)
    made.silent = silent
    return made


class _Impatient(psycopg.Connection[tuple[Any, ...]]):
    """Does not wait for ever: a server that is frozen, or waits for a lock, says nothing."""

    silent: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *more: Any, **options: Any) -> Any:
        if self.silent is not None:
            gen = self._bounded(gen, self.silent)
        return super().wait(gen, *more, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
        """Do what `gen` does, as long as something comes; who waits looks every 0.1 s."""
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
        # It would wait for its lock also when we have gone.
        if psycopg.capabilities.has_cancel_safe():
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=1.0)
        self.pgconn.finish()
        message = f"the server said nothing for {seconds:.0f} s"
        raise psycopg.OperationalError(message)
