"""How a PostgreSQL server is reached by all that keep something there (extra `postgres`)."""

from __future__ import annotations

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


def place(url: str) -> str:
    """Return a URL's server and database, without what else it says: for messages."""
    told = {"host": "", "port": "", "dbname": "", **conninfo_to_dict(url)}
    port = f":{told['port']}" if told["port"] else ""
    return f"postgresql://{told['host'] or told.get('hostaddr', '')}{port}/{told['dbname']}"


def connect(known: str) -> Connection:
    """Connect to an address. Nothing is prepared: it may be a pooler that answers."""
    return psycopg.connect(known, autocommit=True, prepare_threshold=None)
