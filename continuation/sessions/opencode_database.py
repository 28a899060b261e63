"""opencode's SQLite database (1.2 and later): a table of messages and one of parts.

A row's JSON is in its column `data`, without the ids, which are columns of their own. A reader
takes what is committed, be it in the write-ahead log, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

_MAGIC: Final = b"SQLite format 3\0"


class ItemKey(NamedTuple):
    """Where a value is."""

    where: str
    """A table, or a folder below the root."""
    name: str
    """Its id."""


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database, whatever is in it."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Database:
    """An open database, as a store of sessions."""

    named = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._parts: dict[str, list[tuple[ItemKey, bytes]]] = {}
        """Those of one session, by message: each by itself would cost as much without an index."""

    @property
    def is_opencode(self) -> bool:
        """Whether it has the tables that are read here."""
        named = "SELECT count(*) FROM sqlite_master WHERE name IN ('session', 'message', 'part')"
        return bool(self.connection.execute(named).fetchone()[0] == 3)

    def sessions(self) -> list[str]:
        """The ids of all sessions, in the order in which they began."""
        rows = self.connection.execute("SELECT id FROM session ORDER BY time_created, id")
        return [str(name) for (name,) in rows]

    def messages(self, session: str) -> list[tuple[ItemKey, bytes]]:
        """The messages of a session, in the order in which the agent reads them."""
        self._parts.clear()
        for owner, key, data in self._rows("part", "message_id", session, "id"):
            self._parts.setdefault(owner, []).append((key, data))
        rows = self._rows("message", "id", session, "time_created, id")
        return [(key, data) for _, key, data in rows]

    def parts(self, message: str) -> list[tuple[ItemKey, bytes]]:
        """The parts of a message, of the session whose messages were asked for last."""
        return self._parts.get(message, [])

    def _rows(
        self, table: str, owner: str, session: str, order: str
    ) -> Iterator[tuple[str, ItemKey, bytes]]:
        rows = self.connection.execute(
            f"SELECT {owner}, id, CAST(data AS BLOB) FROM {table} WHERE session_id = ?"
            f" ORDER BY {order}",
            (session,),
        )
        return ((str(own), ItemKey(table, str(row)), data or b"") for own, row, data in rows)

    def change(self, keys: Mapping[ItemKey, bytes | None]) -> None:
        """Give rows new contents, all or none; those without go, a message with its parts."""
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("BEGIN IMMEDIATE")
        for (table, row), data in keys.items():
            if data is None:
                self.connection.execute(f"DELETE FROM {table} WHERE id = ?", (row,))
            else:
                values = (data.decode(), row)
                self.connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", values)
        self.connection.execute("COMMIT")


@contextlib.contextmanager
def opened(path: Path, *, alone: bool = False) -> Generator[Database]:
    """Open a database to read, or with no other program in it until we leave it.

    Raises OSError where it is damaged or held by another program.
    """
    log = path.with_name(f"{path.name}-wal").exists()
    way = "mode=rw" if alone else "mode=ro" if log else "immutable=1"
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.resolve()))}?{way}", uri=True, timeout=0, isolation_level=None
        )
        with contextlib.closing(connection):
            if alone:
                # Kept from the first transaction on; with a write-ahead log it is refused also
                # where another program is idle in there.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            yield Database(connection)
    except sqlite3.Error as error:
        if "locked" in str(error):
            msg = f"{path}: another program has it open; end that first, or repair a copy"
        else:
            msg = f"{path}: SQLite cannot read it ({error})"
        raise OSError(msg) from error
