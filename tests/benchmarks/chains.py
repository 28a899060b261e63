"""What the registry of chains costs: a look-up in a large store, and the size of that store.

Nine entries in ten are aliases, one is a joined turn of some 600 characters. Both look-ups take the
same keys from the same file; the bare one has its digests ready and leaves the row as it is.

`--store postgresql` does it on a PostgreSQL server of its own, `--store postgresql://...` on that
one, in tables that it makes and drops.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import Figure, missing, no_postgres, report
from support.postgres import Postgres

from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import OVERHEAD, Alias, Entry, KeptTurn, Key, encode

TARGET = 2.0
"""Times a bare look-up; of PostgreSQL, times one among few entries."""
SLOWEST = 5.0
"""Milliseconds."""
UPSTREAM, CREDENTIAL = "https://api.openai.com", "sk-proj-" + "x" * 148
SAID = "A sentence of the merged answer that is as long as sentences are. " * 9
GET = "SELECT created, entry FROM entries WHERE digest = ?"
IN_TABLE = "SELECT created, entry FROM continuation_chains WHERE digest = %s"
BLOCK = 500
"""Look-ups in a row, before it is the other's turn."""


def key(number: int) -> Key:
    return Key(UPSTREAM, CREDENTIAL, f"resp_{number:048x}")


def entry(number: int) -> Entry:
    if number % 10:
        return Alias(f"resp_{number:048x}")
    content = [{"type": "output_text", "text": SAID, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return KeptTurn(f"resp_{number:048x}", [{"role": "user", "content": "Go on."}, message])


def fill(store: SqliteStore, count: int, batch: int = 20_000) -> None:
    for start in range(0, count, batch):
        numbers = range(start, min(start + batch, count))
        assert store.put({key(n): entry(n) for n in numbers})


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def look_up(path: Path, store: SqliteStore, count: int, rounds: int) -> tuple[float, float]:
    """Return the medians, in seconds: our look-up, a bare one."""
    bare = sqlite3.connect(path)
    salt: bytes = bare.execute("SELECT salt FROM salt").fetchone()[0]
    ours, theirs = list[float](), list[float]()
    chosen = random.Random(1)
    for number in range(rounds):
        keys = [key(chosen.randrange(count)) for _ in range(BLOCK)]
        digests = [(k.digest(salt),) for k in keys]
        lanes: list[tuple[list[float], Callable[[], object]]] = [
            (ours, partial(_ours, store, keys)),
            (theirs, partial(_bare, bare, digests)),
        ]
        # Whoever comes first finds the pages cold.
        for taken, work in reversed(lanes) if number % 2 else lanes:
            taken.append(seconds(work) / BLOCK)
    assert all(store.get(key(n)) == entry(n) for n in range(0, count, count // 100))
    bare.close()
    return statistics.median(ours), statistics.median(theirs)


def _ours(store: SqliteStore, keys: list[Key]) -> None:
    for one in keys:
        assert store.get(one)


def _bare(connection: sqlite3.Connection, digests: list[tuple[bytes]]) -> None:
    for digest in digests:
        assert connection.execute(GET, digest).fetchone()


def bounded(folder: Path) -> Figure:
    """Put four times as much as there is room for."""
    path, most = folder / "bounded.db", 4 * 1024 * 1024
    store = SqliteStore(path, max_bytes=most)
    fill(store, 4 * most // 350, batch=100)
    wal = path.with_name(path.name + "-wal").stat().st_size
    store.close()
    note = f"WAL beside it {wal / 1e6:.1f} MB"
    return Figure("file / max_bytes, four times too much", path.stat().st_size / most, "x", 1, note)


# --- PostgreSQL ---------------------------------------------------------------------------------


def times(work: Callable[[Key], object], keys: list[Key]) -> tuple[float, float]:
    """Return the median and the 99th percentile, in seconds."""
    taken = sorted(seconds(partial(work, one)) for one in keys)
    return taken[len(taken) // 2], taken[len(taken) * 99 // 100]


def pour(url: str, salt: bytes, numbers: range) -> None:
    """Put rows into the table, all at once: one by one they would take a quarter of an hour."""
    import psycopg

    kept = [encode(entry(number)) for number in range(10)]
    rows = "continuation_chains (digest, created, entry, upto)"
    with psycopg.connect(url) as other, other.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(upto), 0) FROM continuation_chains")
        [upto] = cursor.fetchone() or [0]
        with cursor.copy(f"COPY {rows} FROM STDIN".encode()) as table:
            for number in numbers:
                upto += len(kept[number % 10]) + OVERHEAD
                row = (key(number).digest(salt), time.time(), kept[number % 10], upto)
                table.write_row(row)
        cursor.execute("ANALYZE continuation_chains")


def bare_look_up(url: str, digests: list[tuple[bytes]]) -> float:
    """Return the 99th percentile, in seconds, of psycopg alone."""
    import psycopg

    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as bare:
        look = partial(bare.execute, IN_TABLE)
        taken = sorted(seconds(partial(_fetch, look, digest)) for digest in digests)
    return taken[len(taken) * 99 // 100]


def _fetch(look: Callable[[tuple[bytes]], Any], digest: tuple[bytes]) -> None:
    assert look(digest).fetchone()


def in_postgres(url: str, *, quick: bool) -> list[Figure]:
    import psycopg

    from continuation.chains.postgres import PostgresStore

    few, many, asked = (1000, 20_000, 500) if quick else (1000, 1_000_000, 5000)
    store, chosen, figures = PostgresStore(url, patience=60), random.Random(1), list[Figure]()
    medians, filled = list[float](), 0
    for count in (few, many):
        assert store.get(key(count)) is None
        pour(url, store._salt, range(filled, count))
        filled = count
        asked_for = [key(chosen.randrange(count)) for _ in range(asked)]
        half, most = times(store.get, asked_for)
        missed, _ = times(store.get, [key(many + n) for n in range(asked)])
        medians.append(half)
        least = bare_look_up(url, [(one.digest(store._salt),) for one in asked_for])
        note = f"bare {least * 1e3:.2f} ms; median {half * 1e3:.2f}, of nothing {missed * 1e3:.2f}"
        figures.append(Figure(f"look-up, p99, {count:,} entries", most * 1e3, "ms", SLOWEST, note))
    put, worst = times(lambda one: store.put({one: entry(10)}), [key(n) for n in range(few // 2)])
    figures.append(Figure("look-up, many entries / few", medians[1] / medians[0], "x", TARGET))
    figures.append(Figure("put one joined turn", put * 1e3, "ms", note=f"p99 {worst * 1e3:.1f} ms"))
    with psycopg.connect(url, autocommit=True) as other:

        def told(statement: str) -> int:
            row = other.execute(statement.encode()).fetchone()
            return int(row[0]) if row else 0

        size = told("SELECT pg_total_relation_size('continuation_chains')")
        note = f"{size / many:.0f} bytes an entry, indexes included"
        figures.append(Figure("tables", size / 1e6, "MB", note=note))
        held = "SELECT sum(length(entry) + 200) FROM continuation_chains"
        most_bytes = told(held) - told(held) // 20
        narrow, puts = PostgresStore(url, patience=60, max_bytes=most_bytes), 0
        while told(held) > most_bytes and puts < 1000:
            narrow.put({key(2 * many + puts): entry(1)})
            puts += 1
        note = f"a twentieth too much, gone after {puts} puts"
        figures.append(Figure("entries / max_bytes", told(held) / most_bytes, "x", 1, note))
        narrow.close()
        store.close()
        for name in ("chains", "salt", "schema"):
            other.execute(f"DROP TABLE continuation_{name}".encode())
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer entries")
    parser.add_argument("--store", metavar="URL", help="a PostgreSQL server, or `postgresql`")
    given = parser.parse_args()
    quick: bool = given.quick
    why = no_postgres() if given.store == "postgresql" else missing("psycopg")
    if given.store and why:
        print(f"registry of chains in PostgreSQL: {why}")
        return 0
    if given.store == "postgresql":
        with Postgres() as server:
            return report(
                "registry of chains in PostgreSQL", in_postgres(server.url(), quick=quick)
            )
    if given.store:
        return report("registry of chains in PostgreSQL", in_postgres(given.store, quick=quick))
    count, rounds = (20_000, 41) if quick else (1_000_000, 201)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "chains.db"
        store = SqliteStore(path)
        built = seconds(lambda: fill(store, count))
        ours, theirs = look_up(path, store, count, rounds)
        one = statistics.median(
            seconds(partial(store.put, {key(n): entry(10)})) for n in range(count, count + 200)
        )
        store.close()
        size = path.stat().st_size
        figures = [
            Figure("look-up / bare sqlite3", ours / theirs, "x", TARGET, f"{count:,} entries"),
            Figure("look-up", ours * 1e6, "us", note=f"bare {theirs * 1e6:.1f} us"),
            Figure("put one joined turn", one * 1e6, "us"),
            Figure("file", size / 1e6, "MB", note=f"{size / count:.0f} bytes an entry"),
            Figure("filling it", built, "s"),
            bounded(Path(name)),
        ]
    return report("registry of chains in SQLite", figures)


if __name__ == "__main__":
    sys.exit(main())
