"""A PostgreSQL table that shares what processes learned about limits. No turn waits for it.

A process reads the table when it begins. When it has learned something, it writes and reads the
table. A background thread does that each time, over a connection that is then closed. The table has
numbers by upstream, model and a salted digest of the credential. If it cannot be reached, each
process learns by itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from typing import Any, Final, cast

import psycopg

from continuation.limits import Learned
from continuation.limits.learned_file import LONGEST, MOST, valid_facts
from continuation.stores import postgres

logger = logging.getLogger("continuation")

_LOCK: Final = 0x6C656D6E
"""The key of the advisory lock for creating the tables."""
# If the columns change, the tables get new names. No migration is needed: facts are learned again.
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS continuation_learned_salt_1 (salt bytea NOT NULL);
    CREATE TABLE IF NOT EXISTS continuation_learned_1 (
        upstream text, credential text, model text, facts text NOT NULL,
        learned timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (upstream, credential, model));
"""
_ADD_SALT: Final = """
    INSERT INTO continuation_learned_salt_1
    SELECT %s WHERE NOT EXISTS (SELECT 1 FROM continuation_learned_salt_1)
"""
_SALT: Final = "SELECT salt FROM continuation_learned_salt_1"
_PUT: Final = """
    INSERT INTO continuation_learned_1 VALUES (%s, %s, %s, %s)
    ON CONFLICT (upstream, credential, model) DO UPDATE SET facts = excluded.facts, learned = now()
"""
_READ: Final = """
    SELECT upstream, credential, model, facts FROM continuation_learned_1
    ORDER BY learned DESC LIMIT %s
"""


class LearnedTableSync:
    """Loads what other processes have learned into a `Learned`, and shares its changes."""

    def __init__(self, url: str, learned: Learned) -> None:
        self._address = postgres.address(url)
        self._learned = learned
        self._lock = threading.Lock()
        self._wanted = self._at_work = False
        self._reader: int | None = None
        """The thread that stores the facts of others. Its changes are not shared again."""
        self._sent: dict[Any, dict[str, Any]] = {}

    def attach(self) -> None:
        """Read the table in the background, and share every later change. Never raises or waits."""
        self._learned.on_change = self._exchange_soon
        self._exchange_soon()

    def _exchange_soon(self) -> None:
        with self._lock:
            if self._reader == threading.get_ident():
                return
            self._wanted = True
            if self._at_work:
                return
            self._at_work = True
        threading.Thread(target=self._work, name="continuation-learned", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._at_work, self._wanted = self._wanted, False
                if not self._at_work:
                    return
            try:
                self._exchange()
            except psycopg.Error as error:
                logger.warning('learned facts not shared: reason="%s"', postgres.reason(error))

    def _exchange(self) -> None:
        """Write our changes to the table, and learn the facts of keys that are unknown here.

        Raises `psycopg.Error`.
        """
        with postgres.connect(self._address, silent=postgres.SILENT) as connection:
            with postgres.transaction(connection):
                postgres.lock(connection, _LOCK)
                connection.execute(_TABLES)
                fresh = os.urandom(16)
                connection.execute(_ADD_SALT, (fresh,))
                [salt] = connection.execute(_SALT).fetchone() or [fresh]
            if self._learned.salt != bytes(salt):  # keys made with another salt match nothing
                self._learned.salt = bytes(salt)
                self._sent = cast("dict[Any, dict[str, Any]]", self._learned.facts())
            all_facts = cast("dict[Any, dict[str, Any]]", self._learned.facts())
            # Write that a forgotten key has no facts, so that no process learns them again.
            gone = (key for key in self._sent if key not in all_facts and self._learned.knows(key))
            all_facts |= {key: {} for key in gone}
            with postgres.transaction(connection):
                for key, facts in all_facts.items():
                    if self._sent.get(key) != facts and max(map(len, key)) <= LONGEST:
                        connection.execute(_PUT, (*key, json.dumps(facts)))
            self._sent = all_facts
            for *key, text in connection.execute(_READ, (MOST,)).fetchall():
                if tuple(key) not in all_facts:
                    self._take(tuple(key), text)

    def _take(self, key: tuple[str, ...], text: str) -> None:
        with contextlib.suppress(ValueError, TypeError):
            facts = valid_facts(json.loads(text))
            self._reader = threading.get_ident()
            try:
                self._learned.learn(key, **facts)
            finally:
                self._reader = None
            self._sent[key] = facts
