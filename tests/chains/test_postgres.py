"""Entries in PostgreSQL: what other stores have no need of (what all share: `test_stores.py`)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from support.postgres import Postgres, needs_postgres

from continuation.chains import postgres
from continuation.chains.postgres import MIGRATIONS, MOST_CONNECTIONS, PostgresStore
from continuation.chains.stores import Alias, KeptTurn, Key, StoreDown

pytestmark = [pytest.mark.slow, needs_postgres]
Open = Callable[..., PostgresStore]


def key(number: int | str) -> Key:
    return Key("https://api.openai.com", "sk-secret", f"resp_{number}")


@pytest.fixture
def url(databases: Callable[[], str]) -> str:
    return databases()


@pytest.fixture
def opened(url: str) -> Iterator[Open]:
    """Opens the database, as another process would, any number of times."""
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(
            closing(PostgresStore(url, **{"patience": 10, **more}))
        )


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as other:
        return other.execute(statement.encode()).fetchall()


def test_another_process_finds_what_one_has_kept(opened: Open) -> None:
    assert opened().put({key(1): Alias("a")})
    assert opened().get(key(1)) == Alias("a")


def test_the_tables_hold_no_credential_and_no_id(opened: Open, url: str) -> None:
    opened().put({key(1): Alias("resp_2")})
    held = str(rows(url, "SELECT * FROM continuation_chains")).encode().lower()
    for word in ("sk-secret", "api.openai.com", "resp_1"):
        assert word.encode() not in held
        assert word.encode().hex().encode() not in held


def test_replicas_that_start_at_once_make_the_tables_once(url: str) -> None:
    stores = [PostgresStore(url, patience=10) for _ in range(8)]
    together, kept = threading.Barrier(8), list[bool]()

    def begin(number: int) -> None:
        together.wait()
        kept.append(stores[number].put({key(number): Alias("a")}))

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept == [True] * 8
    assert all(store.get(key(n)) for store in stores for n in range(8))
    for store in stores:
        store.close()
    assert len(rows(url, "SELECT * FROM continuation_salt")) == 1


def of_version(url: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tables as an earlier version of this program would have, with an entry in them."""
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "MIGRATIONS", MIGRATIONS[:version])
        with closing(PostgresStore(url, patience=10)) as early:
            assert early.get(key(1)) is None
            digest = key(1).digest(early._salt)
    with psycopg.connect(url) as other:
        statement = "INSERT INTO continuation_chains (digest, created, entry) VALUES (%s, %s, %s)"
        other.execute(statement, (digest, time.time(), b'{"to":"a"}'))


def test_older_tables_are_brought_up_to_date_with_what_they_hold(
    opened: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_version(url, 1, monkeypatch)
    assert opened().get(key(1)) == Alias("a")
    assert rows(url, "SELECT version FROM continuation_schema") == [(len(MIGRATIONS),)]
    assert rows(url, "SELECT upto FROM continuation_chains") == [(210,)]


def test_a_step_that_fails_changes_nothing(
    opened: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_version(url, 1, monkeypatch)
    with monkeypatch.context() as patch:
        broken = (*MIGRATIONS, "SELECT 1 / 0")
        patch.setattr(postgres, "MIGRATIONS", broken)
        with pytest.raises(StoreDown):
            opened().get(key(1))
    assert rows(url, "SELECT version FROM continuation_schema") == [(1,)]
    columns = "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema()"
    assert rows(url, f"{columns} AND column_name = 'upto'") == []
    assert opened().get(key(1)) == Alias("a")


def test_tables_of_a_later_version_are_left_alone(
    opened: Open, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened().put({key(1): Alias("a")})
    with psycopg.connect(url) as other:
        other.execute("UPDATE continuation_schema SET version = 99")
    late = opened()
    with pytest.raises(StoreDown):
        late.get(key(1))
    assert late.put({key(1): Alias("b")}) is False
    assert caplog.text.count("of version 99") == 1
    assert "update it, or name another database" in caplog.text
    assert rows(url, "SELECT convert_from(entry, 'UTF8') FROM continuation_chains") == [
        ('{"to":"a"}',)
    ]


def test_what_is_too_old_or_too_much_goes(opened: Open, url: str) -> None:
    clock = [1e9]
    store = opened(max_age=3600, max_entries=50, max_bytes=20_000, now=lambda: clock[0])
    for number in range(200):
        assert store.put({key(number): KeptTurn(None, ["x" * (number % 7 * 100)])})
        clock[0] += 1
    held = "SELECT count(*), sum(length(entry) + 200) FROM continuation_chains"
    [(count, size)] = rows(url, held)
    assert count <= 50
    assert 15_000 < size <= 20_000
    clock[0] += 7200
    assert store.put({key("new"): Alias("a")})
    assert rows(url, "SELECT count(*) FROM continuation_chains") == [(1,)]


def test_four_connections_are_enough_and_idle_ones_say_nothing(server: Postgres) -> None:
    store = PostgresStore(server.url(), patience=30)

    def work(start: int) -> None:
        for number in range(start, start + 20):
            assert store.put({key(number): Alias("a")})
            assert store.get(key(number)) == Alias("a")

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    assert all(thread.is_alive() for thread in threads[-1:])
    for thread in threads:
        thread.join()
    assert 1 < server.connections() <= MOST_CONNECTIONS
    asked = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = 'continuation'"
    before = rows(server.url(), asked)
    time.sleep(0.3)
    assert rows(server.url(), asked) == before
    store.close()


def test_a_server_that_was_killed_is_used_again(
    server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(server.url(), patience=10)
    assert store.put({key(1): Alias("a")})
    server.kill()
    for _ in range(2):
        with pytest.raises(StoreDown):
            store.get(key(1))
        assert store.put({key(2): Alias("b")}) is False
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    server.start()
    assert store.get(key(1)) == Alias("a")
    assert store.put({key(2): Alias("b")})
    store.close()


def test_what_nobody_waits_for_any_more_is_not_kept(server: Postgres) -> None:
    """Whoever was told that it was not kept must be right, whatever the server does later."""
    store = PostgresStore(server.url(), patience=0.2)
    assert store.put({key(1): Alias("a")})
    told = list[bool]()
    server.freeze()
    hung = [
        threading.Thread(target=lambda: told.append(store.put({key(1): Alias("late")})))
        for _ in range(6)
    ]
    for thread in hung:
        thread.start()
    hung[-1].join(0.5)
    server.thaw()
    for thread in hung:
        thread.join(10)
    assert told == [False] * 6
    assert store.get(key(1)) == Alias("a")
    store.close()


_FORKER = """
import os, sys
from continuation.chains.postgres import PostgresStore
from continuation.chains.stores import Alias, Key
store = PostgresStore(sys.argv[1], patience=10)
key = lambda name: Key("api", "key", name)
assert store.put({key("before"): Alias("a")})
child = os.fork()
if not child:
    assert store.put({key("child"): Alias("a")})
    os._exit(0 if store.get(key("before")) else 1)
assert os.waitpid(child, 0)[1] == 0
assert store.put({key("parent"): Alias("a")})
assert all(map(store.get, map(key, ("before", "child", "parent"))))
store.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_opens_connections_of_its_own(url: str) -> None:
    subprocess.run([sys.executable, "-c", _FORKER, url], check=True)
