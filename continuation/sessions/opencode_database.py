"""opencode's SQLite database (1.2 and later): a table of messages and one of parts.

A row's JSON is in its column `data`. The ids are in other columns. Reading includes what is
committed in the write-ahead log, and leaves no files behind.
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
    """The key of a stored value."""

    where: str
    """A table, or a folder below the root."""
    name: str
    """The id of the value."""


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database with any content."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Database:
    """An open database, as a store of sessions."""

    named = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._parts: dict[str, list[tuple[ItemKey, bytes]]] = {}
        """All parts of one session, by message. Without an index, one query costs as much."""

    @property
    def is_opencode(self) -> bool:
        """Whether it has opencode's tables."""
        named = "SELECT count(*) FROM sqlite_master WHERE name IN ('session', 'message', 'part')"
        return bool(self.connection.execute(named).fetchone()[0] == 3)

    def sessions(self) -> list[str]:
        """Return the ids of all sessions, the oldest first."""
        rows = self.connection.execute("SELECT id FROM session ORDER BY time_created, id")
        return [str(name) for (name,) in rows]

    def messages(self, session: str) -> list[tuple[ItemKey, bytes]]:
        """Return the messages of a session, in the order in which the agent reads them."""
        self._parts.clear()
        for owner, key, data in self._rows("part", "message_id", session, "id"):
            self._parts.setdefault(owner, []).append((key, data))
        rows = self._rows("message", "id", session, "time_created, id")
        return [(key, data) for _, key, data in rows]

    def parts(self, message: str) -> list[tuple[ItemKey, bytes]]:
        """Return the parts of a message in the session of the last call of `messages`."""
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
        """Set the rows' values, all or none. None deletes the row; a message with its parts."""
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
    """Open a database for reading. `alone`: for writing, and lock all other programs out.

    Raises OSError if it is damaged or locked by another program.
    """
    log = path.with_name(f"{path.name}-wal").exists()
    way = "mode=rw" if alone else "mode=ro" if log else "immutable=1"
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.resolve()))}?{way}", uri=True, timeout=0, isolation_level=None
        )
        with contextlib.closing(connection):
            if alone:
                # The lock is held from the first transaction on. With a write-ahead log, SQLite
                # refuses it even if another program only has the database open.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            yield Database(connection)
    except sqlite3.Error as error:
        if "locked" in str(error):
            msg = f"{path}: another program uses it; end that program first, or repair a copy"
        else:
            msg = f"{path}: SQLite cannot read it ({error})"
        raise OSError(msg) from error
