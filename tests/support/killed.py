"""Sessions whose process is gone, without a process: the owner's row names one that has ended."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

from continuation import Journal
from continuation.journal.owner import myself
from continuation.journal.store import Store


@cache
def _dead() -> str:
    """Return what the row of a process says that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return json.dumps({**myself(), "pid": ended.pid, "began": "1"})


def killed(journal: Journal) -> Journal:
    """Return the session as another process finds it when this one was killed just now."""
    Store.of(Path(journal.target)).flush()
    with closing(sqlite3.connect(journal.target, timeout=10)) as db, db:
        db.execute("UPDATE sessions SET owner = ? WHERE name = ?", (_dead(), journal.session))
    return Journal(journal.target, journal.session, interrupted=journal.interrupted)


def rows(journal: Journal, query: str) -> list[tuple[object, ...]]:
    """Return what a query finds in a journal's file."""
    Store.of(Path(journal.target)).flush()
    with closing(sqlite3.connect(journal.target, timeout=10)) as db:
        return db.execute(query).fetchall()
