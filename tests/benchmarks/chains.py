"""What the registry of chains costs: a look-up in a large file, and the size of that file.

Nine entries in ten are aliases, one is a joined turn of some 600 characters. Both look-ups take the
same keys from the same file; the bare one has its digests ready and leaves the row as it is.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import Figure, is_quick, report

from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import Alias, Entry, KeptTurn, Key

TARGET = 2.0
"""Times a bare look-up."""
UPSTREAM, CREDENTIAL = "https://api.openai.com", "sk-proj-" + "x" * 148
SAID = "A sentence of the merged answer that is as long as sentences are. " * 9
GET = "SELECT created, entry FROM entries WHERE digest = ?"
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


def main() -> int:
    quick = is_quick(str(__doc__).splitlines()[0])
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
