"""What is left of a file whose end is missing or wrong: a beginning of what was written, always."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from continuation import Journal
from continuation.journal import ParsedCall

ROWS = "SELECT number, kind, key, content FROM records ORDER BY number"
SAVED = "SELECT number, content FROM running ORDER BY number"

pytestmark = pytest.mark.slow
Told = tuple[list[tuple[object, ...]], list[tuple[object, ...]]]


def told(path: Path) -> Told:
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("PRAGMA user_version").fetchone()[0]:
            return [], []
        return db.execute(ROWS).fetchall(), db.execute(SAVED).fetchall()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Told]]:
    """A small session, all of it in the WAL, and what it held after each of its commits."""
    path = tmp_path_factory.mktemp("golden") / "agent.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA page_size=512")  # so that each byte can be tried
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        states: list[Told] = [([], [])]
        journal = Journal(path, "s")
        for number in range(4):
            states.append(told(path))
            call = ParsedCall(f"c{number}", "Write", {})
            journal.record("intent", call.id, {"name": "Write"}).result()
            states.append(told(path))
            journal.record("result", call.id, {"value": "x" * 100, "turn": {}}).result()
            states.append(told(path))
            with journal._lock:
                message = ("message", f"d{number}", {"role": "user", "content": "Go. " * 20})
                journal._append(message, durable=False).result()
        states = [*states, told(path)]
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.with_name(name), path.with_name(f"golden{name}"))
        journal.close()
    return path.with_name(f"golden{path.name}"), states


def cut(golden: Path, where: Path, wal: bytes) -> Path:
    for stale in where.parent.glob(f"{where.name}*"):
        stale.unlink()
    shutil.copy(golden, where)
    where.with_name(f"{where.name}-wal").write_bytes(wal)
    return where


def wal_of(golden: tuple[Path, list[Told]]) -> bytes:
    path, _ = golden
    return path.with_name(f"{path.name}-wal").read_bytes()


def test_cut_at_every_byte(golden: tuple[Path, list[Told]], shm: Path) -> None:
    path, states = golden
    wal, seen = wal_of(golden), set[int]()
    assert len(wal) < 100_000
    for size in range(len(wal) + 1):
        where = cut(path, shm / "cut.db", wal[:size])
        place = states.index(told(where))
        if place not in seen:  # it opens as a journal too, and goes on
            seen.add(place)
            goes_on(where)
    assert len(seen) == len(states) - 1, "each commit was cut behind"  # two are empty


def goes_on(path: Path) -> None:
    before = told(path)
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET owner = NULL")  # who wrote it is this process
    with Journal(path, "s") as journal:
        assert len(before[0]) == journal._state.number
        journal.result({"id": "late", "name": "Write"}, "written")
        assert journal.recorded(journal._state.number)["value"] == "written"
    assert told(path)[0][: len(before[0])] == before[0]
    assert len(told(path)[0]) == len(before[0]) + 1


def test_bits_that_flip(golden: tuple[Path, list[Told]], shm: Path) -> None:
    path, states = golden
    wal, rng = wal_of(golden), random.Random(0)
    for _ in range(400):
        flipped = bytearray(wal)
        flipped[rng.randrange(len(wal))] ^= 1 << rng.randrange(8)
        where = cut(path, shm / "flipped.db", bytes(flipped))
        assert told(where) in states
        goes_on(where)
