"""Files of SQLite: their formats, and the lock that one process holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from continuation.stores import sqlite

ONE = ("CREATE TABLE a (n INTEGER); CREATE TABLE b (n INTEGER)",)
TWO = (*ONE, "ALTER TABLE a ADD COLUMN more TEXT")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "a ?#%.db"
    file.touch()
    return file


def opened(path: Path) -> sqlite3.Connection:
    return sqlite.connect(path, sqlite3.Connection, patience=0)


def test_a_file_that_is_missing_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError), closing(opened(tmp_path / "a.db")) as db:
        db.execute("PRAGMA schema_version")
    assert not (tmp_path / "a.db").exists()


def test_a_file_is_brought_from_each_version_to_the_last(path: Path) -> None:
    with closing(opened(path)) as db:
        for migrations, before in ((ONE, 0), (TWO, 1), (TWO, 2), (ONE, 2)):
            assert sqlite.version(db) == before
            with sqlite.transaction(db):
                assert sqlite.migrate(db, migrations) == before
        db.execute("INSERT INTO a (n, more) VALUES (1, 'x')")
        assert sqlite.version(db) == 2


def test_a_file_of_another_program_has_no_version(path: Path) -> None:
    with closing(opened(path)) as db:
        assert sqlite.version(db) == 0
        db.execute("CREATE TABLE theirs (n INTEGER)")
        assert sqlite.version(db) is None


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    with closing(opened(path)) as db:
        with pytest.raises(sqlite3.OperationalError), sqlite.transaction(db):
            sqlite.migrate(db, (*ONE, "SELECT nothing"))
        assert not db.in_transaction
        assert sqlite.version(db) == 0


def test_a_lock_is_waited_for_as_long_as_asked(path: Path) -> None:
    with closing(opened(path)) as holder, closing(opened(path)) as other:
        with sqlite.transaction(holder):
            for patience in (0, 0.02):
                refused = pytest.raises(sqlite3.OperationalError, match="locked")
                with refused, sqlite.transaction(other, patience=patience):
                    pytest.fail("it is locked")
        with sqlite.transaction(other, patience=0):
            sqlite.migrate(other, ONE)


def test_a_lock_is_no_damage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with closing(opened(path)) as db, pytest.raises(sqlite3.DatabaseError) as damaged:
        sqlite.version(db)
    assert sqlite.is_damage(damaged.value)
    assert not sqlite.is_damage(sqlite3.OperationalError("database is locked"))
