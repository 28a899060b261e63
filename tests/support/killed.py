"""Sessions of a killed process, without a process: their owner's row names an ended one."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from continuation import Journal
from continuation.journal.owner import this_process
from continuation.journal.store import JournalStore


@cache
def _dead() -> str:
    """Return the owner's row of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return json.dumps({**this_process(), "pid": ended.pid, "began": "1"})


def killed(journal: Journal) -> Journal:
    """Return the session as another process finds it if this one is killed now."""
    JournalStore.of(journal._target).flush()
    change = "UPDATE sessions SET owner = ? WHERE name = ?"
    execute(journal._target, change, (_dead(), journal.session))
    return Journal(journal._target, journal.session, interrupted=journal.interrupted)


def let_go() -> None:
    """Close the databases that this process has open, so that the next test has its own."""
    for key, store in [*JournalStore._open.items()]:
        if "://" in key:
            store.flush()
            store._beats.clear()
            links, store._connection = [*store._spare, store._connection], None
            for link in filter(None, links):
                link.close()
            del JournalStore._open[key]


def rows(journal: Journal, query: str) -> list[tuple[object, ...]]:
    """Return what a query finds in a journal's store."""
    JournalStore.of(journal._target).flush()
    return execute(journal._target, query)


def execute(target: Any, sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Execute a statement, as for SQLite, over its own connection; return the rows it finds."""
    if "://" not in str(target):
        with closing(sqlite3.connect(Path(target), timeout=10)) as db, db:
            return db.execute(sql, values).fetchall()
    import psycopg

    named = re.sub(r"\b(sessions|records|running)\b", r"continuation_\1", sql)
    with psycopg.connect(target) as server:
        found = server.execute(named.replace("?", "%s").encode(), values)
        return found.fetchall() if found.description else []
