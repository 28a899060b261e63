"""Where the registry of chains keeps its entries: in memory, in a file shared by processes."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from support.chains_helpers import items, request, said, turn
from support.postgres import needs_postgres

from continuation.chains.postgres import PostgresStore
from continuation.chains.replay import ChainLost
from continuation.chains.rules import Tenant, after_not_found, rewrite
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import Alias, Entry, KeptTurn, Key, Lost, MemoryStore, Store, encode

DAY = 24 * 3600.0
KEY = Key("https://api.openai.com", "sk-secret", "resp_1")

# -- stores --------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


MakeStore = Callable[..., Store]
MakeSqlite = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chains.db"


@pytest.fixture
def opened(path: Path) -> Iterator[MakeSqlite]:
    """Opens the file, as another process would, any number of times."""
    with ExitStack() as stack:

        def build(where: Path = path, **bounds: Any) -> SqliteStore:
            return stack.enter_context(closing(SqliteStore(where, **bounds)))

        yield build


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.slow, needs_postgres]),
    ]
)
def make(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    if request.param == "postgresql":
        url = request.getfixturevalue("databases")()
        with ExitStack() as stack:
            yield lambda **more: stack.enter_context(
                closing(PostgresStore(url, **{"patience": 10, **more}))
            )
    else:
        yield MemoryStore if request.param == "memory" else request.getfixturevalue("opened")


def key(number: int) -> Key:
    return Key("https://api.openai.com", "sk-secret", f"resp_{number}")


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


ENTRIES: list[Entry] = [
    Alias("resp_2"),
    Lost("because"),
    turn("U:x A[t:whole,c:a] R:a", "resp_0"),
    KeptTurn(None, [{"n": 2**70, "f": 0.1, "s": "é\ud800 \u2028"}]),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_store_gives_back_what_was_put(make: MakeStore, entry: Entry) -> None:
    store = make()
    assert store.get(KEY) is None
    assert store.put({KEY: entry})
    assert store.get(KEY) == entry
    assert store.put({KEY: Alias("other")})
    assert store.get(KEY) == Alias("other")


def test_what_was_kept_can_be_forgotten(make: MakeStore) -> None:
    store = make()
    assert store.put({key(2): Lost("because"), key(3): Alias("a")})
    assert store.put({key(2): None, key(4): None})
    assert store.get(key(2)) is None
    assert store.get(key(3)) == Alias("a")


def test_an_alias_is_json_of_the_least_size() -> None:
    assert encode(Alias("resp_2")) == b'{"to":"resp_2"}'


def test_another_tenants_id_finds_nothing(make: MakeStore) -> None:
    store = make()
    store.put({KEY: turn("U:secret")})
    for other in (
        Key(KEY.upstream, "sk-other", KEY.id),
        Key("https://other.example", KEY.credential, KEY.id),
        Key(KEY.upstream + "s", KEY.credential[1:], KEY.id),
        Key(KEY.upstream, KEY.credential + "r", KEY.id[1:]),
    ):
        assert store.get(other) is None
    tenant = Tenant(store, KEY.upstream, "sk-other")
    assert rewrite(request("U:y"), tenant.find) is None
    with pytest.raises(ChainLost):
        after_not_found(request("U:y"), tenant.find)


def test_an_entry_is_found_until_it_is_too_old(make: MakeStore) -> None:
    clock = Clock()
    store = make(max_age=DAY, now=clock)
    store.put({KEY: Alias("resp_2")})
    clock.time += DAY
    assert store.get(KEY) is not None
    clock.time += 1
    assert store.get(KEY) is None


def test_the_oldest_make_room_when_there_are_too_many(make: MakeStore) -> None:
    store = make(max_entries=10)
    for number in range(25):
        assert store.put({key(number): Alias("a")})
    assert [n for n in range(25) if store.get(key(n))] == list(range(15, 25))


def test_an_entry_put_again_is_new_again(make: MakeStore) -> None:
    store = make(max_entries=10)
    for number in [*range(10), 0, 10, 11]:
        assert store.put({key(number): Alias("a")})
    assert store.get(key(0)) is not None
    assert store.get(key(1)) is None


def test_the_oldest_make_room_when_there_are_too_many_bytes(make: MakeStore) -> None:
    store = make(max_bytes=512 * 1024)
    long = KeptTurn(None, [{"role": "user", "content": "x" * 20_000}])
    for number in range(100):
        assert store.put({key(number): long})
    kept = [n for n in range(100) if store.get(key(n))]
    assert kept == list(range(100 - len(kept), 100))
    assert 8 <= len(kept) <= 26


def test_one_entry_cannot_push_out_the_others(make: MakeStore) -> None:
    store = make(max_bytes=512 * 1024)
    store.put({key(0): Alias("a")})
    giant = [{"role": "user", "content": "x" * 100_000}]
    store.put({key(1): KeptTurn(None, giant)})
    assert store.get(key(0)) == Alias("a")
    assert isinstance(store.get(key(1)), Lost)


def test_a_closed_store_keeps_and_finds_nothing(make: MakeStore) -> None:
    store = make()
    store.put({KEY: Alias("a")})
    store.close()
    store.close()
    assert store.get(KEY) is None
    assert store.put({KEY: Alias("a")}) is False


def test_what_is_given_back_can_be_changed_without_harm(make: MakeStore) -> None:
    store = make()
    store.put({KEY: turn("U:x")})
    found = store.get(KEY)
    assert isinstance(found, KeptTurn)
    found.items.clear()
    assert store.get(KEY) == turn("U:x")


@pytest.mark.parametrize("bound", ["max_entries", "max_bytes", "max_age"])
def test_a_bound_that_leaves_no_room_is_refused(make: MakeStore, bound: str) -> None:
    with pytest.raises(ValueError, match=f"{bound}: 0 is too small; use"):
        make(**{bound: 0})


def test_threads_share_a_store(make: MakeStore) -> None:
    store = make()

    def work(start: int) -> None:
        for number in range(start, start + 50):
            assert store.put({key(number): Alias(f"to_{number}")})
            assert store.get(key(number)) == Alias(f"to_{number}")

    threads = [threading.Thread(target=work, args=(50 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(store.get(key(n)) == Alias(f"to_{n}") for n in range(400))


# -- the file ------------------------------------------------------------------------------------


def test_a_chain_outlives_the_process(path: Path, opened: MakeSqlite) -> None:
    first = Tenant(opened(), "api", "key")
    assert first.keep(request("U:x", None), items("A[t:a]"), given="resp_1", held=None)
    first.store.close()
    again = rewrite(request("U:y"), Tenant(opened(), "api", "key").find)
    assert again is not None
    assert said(again.body) == "U:x A[t:a] U:y"


def test_the_file_is_for_its_owner_only_and_holds_no_key(path: Path, opened: MakeSqlite) -> None:
    store = opened()
    store.put({KEY: Alias("resp_2")})
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for word in (KEY.credential, KEY.upstream, KEY.id):
        assert word.encode() not in bytes_on_disk(path)
    store.close()
    assert "sk-secret" not in repr(KEY)
    assert "sk-secret" not in repr(Tenant(MemoryStore(), "api", "sk-secret"))


def test_what_was_pushed_out_or_grew_too_old_is_gone_from_the_file(
    path: Path, opened: MakeSqlite
) -> None:
    clock = Clock()
    store = opened(max_entries=2, max_age=DAY, now=clock)
    store.put({key(0): turn("U:oldest")})
    store.put({key(1): turn("U:older"), key(2): Alias("a")})
    store.close()
    assert b"oldest" not in bytes_on_disk(path)
    assert b"older" in bytes_on_disk(path)
    clock.time += 2 * DAY
    opened(max_age=DAY, now=clock).close()
    assert b"older" not in bytes_on_disk(path)


def test_the_file_never_grows_beyond_its_bound(path: Path, opened: MakeSqlite) -> None:
    most = 256 * 1024
    store = opened(max_bytes=most)
    for number in range(2000):
        text = "x" * (number * 37 % 3000)
        assert store.put({key(number): KeptTurn(None, [{"role": "user", "content": text}])})
    store.close()
    assert path.stat().st_size <= most
    store = opened(max_bytes=most)
    assert store.get(key(1999)) is not None


def test_a_lower_bound_shrinks_the_file(path: Path, opened: MakeSqlite) -> None:
    store = opened()
    for number in range(300):
        store.put({key(number): KeptTurn(None, [{"role": "user", "content": "x" * 3000}])})
    store.close()
    assert path.stat().st_size > 900_000
    store = opened(max_bytes=512 * 1024)
    assert store.get(key(299)) is not None
    assert store.put({key(300): Alias("a")})
    store.close()
    assert path.stat().st_size <= 512 * 1024


GARBAGE = {
    "a torn header": lambda whole: b"\0" * 100 + whole[100:],
    "torn pages": lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096),
}


@pytest.mark.parametrize("damage", GARBAGE.values(), ids=GARBAGE)
def test_a_damaged_file_is_set_aside_and_never_raises(
    path: Path,
    opened: MakeSqlite,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
) -> None:
    store = opened()
    for number in range(100):
        store.put({key(number): turn("U:x A[t:whole]")})
    store.close()
    path.write_bytes(damage(path.read_bytes()))
    broken = path.read_bytes()
    again = opened()
    assert [again.get(key(n)) for n in range(100)] == [None] * 100
    assert again.put({KEY: Alias("a")})
    assert again.get(KEY) == Alias("a")
    again.close()
    assert path.with_name("chains.db.damaged").read_bytes()[-4000:] == broken[-4000:]
    assert "renamed=chains.db.damaged" in caplog.text


def notes(path: Path) -> None:
    path.write_text("# Somebody's notes\n" * 50)


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as theirs, theirs:
        theirs.execute("CREATE TABLE entries (precious TEXT)")


def other_version(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as later, later:
        later.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make_file", "why"),
    [
        (notes, "it is not an SQLite database"),
        (other_program, "belongs to another program"),
        (other_version, "another version"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(
    path: Path,
    opened: MakeSqlite,
    caplog: pytest.LogCaptureFixture,
    make_file: Callable[[Path], None],
    why: str,
) -> None:
    make_file(path)
    before = path.read_bytes()
    for where in (path, path / "in" / "nowhere.db"):
        store = opened(where)
        assert store.put({KEY: Alias("a")}) is False
        assert store.get(KEY) is None
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["chains.db"]
    assert caplog.text.count(why) == 1
    assert "chain store unavailable" in caplog.text


def test_a_file_that_breaks_while_it_is_used_is_replaced(
    path: Path, opened: MakeSqlite, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    store.put({key(n): turn("U:x A[t:whole]") for n in range(100)})
    opened().close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    assert store.get(key(5)) is None
    assert store.put({KEY: Alias("a")})
    assert store.get(KEY) == Alias("a")
    store.close()
    assert "chain store damaged" in caplog.text


def test_a_file_that_somebody_holds_is_used_again_when_it_is_free(
    path: Path, opened: MakeSqlite, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(patience=0)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    late = opened(patience=0)
    for waiting in (store, late):
        assert waiting.put({KEY: Alias("a")}) is False
    assert caplog.text.count("chain store unavailable") == 2
    holder.execute("ROLLBACK")
    holder.close()
    for free in (store, late):
        assert free.put({KEY: Alias("b")})
        free.close()


def test_a_record_that_cannot_be_read_fails_closed(path: Path, opened: MakeSqlite) -> None:
    store = opened()
    store.put({KEY: Alias("a")})
    with sqlite3.connect(path) as other:
        other.execute("UPDATE entries SET entry = x'7b'")
    other.close()
    found = store.get(KEY)
    store.close()
    assert isinstance(found, Lost)


_WRITER = """
import sys
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import Alias, Key
store = SqliteStore(sys.argv[1], patience=30)
for number in range(100):
    name = f"{sys.argv[2]}_{number}"
    assert store.put({Key("api", "key", name): Alias(name)})
"""


_ENDS = """
import sys
import threading
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import Alias, Key
store = SqliteStore(sys.argv[1])
assert store.put({Key("https://api.openai.com", "sk-secret", "resp_1"): Alias("r")})
# A thread that still knows the store, as those of an event loop do.
threading.Thread(target=lambda _: threading.Event().wait(), args=(store,), daemon=True).start()
"""


@pytest.mark.parametrize("ends", ["store.close()", "pass", "raise SystemExit(3)"])
def test_a_process_that_ends_leaves_one_file(ends: str, path: Path, opened: MakeSqlite) -> None:
    """A copy of the file alone has all that was kept."""
    subprocess.run([sys.executable, "-c", _ENDS + ends, path], check=False)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert opened().get(KEY) == Alias("r")


def test_processes_share_a_file(path: Path, opened: MakeSqlite) -> None:
    command = [sys.executable, "-c", _WRITER, str(path)]
    writers = [subprocess.Popen([*command, name]) for name in ("a", "b", "c")]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    store = opened()
    for name in (f"{who}_{n}" for who in "abc" for n in range(100)):
        assert store.get(Key("api", "key", name)) == Alias(name)
    store.close()


_FORKER = """
import os, sys
from continuation.chains.sqlite import SqliteStore
from continuation.chains.stores import Alias, Key
store = SqliteStore(sys.argv[1])
key = lambda name: Key("api", "key", name)
store.put({key("before"): Alias("a")})
child = os.fork()
if not child:
    store.put({key("child"): Alias("a")})
    os._exit(0 if store.get(key("before")) else 1)
assert os.waitpid(child, 0)[1] == 0
assert store.put({key("parent"): Alias("a")})
assert all(map(store.get, map(key, ("before", "child", "parent"))))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_opens_the_file_anew(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FORKER, str(path)], check=True)


def test_nothing_of_the_content_is_logged(
    path: Path, opened: MakeSqlite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = opened(patience=0)
    store.put({KEY: turn("U:confidential")})
    store.close()
    path.write_bytes(path.read_bytes()[:5000])
    opened().put({KEY: turn("U:confidential")})
    assert "confidential" not in caplog.text
    assert "sk-secret" not in caplog.text


def test_a_missing_folder_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ours" / "chains.db"
    with closing(SqliteStore(path)) as store:
        store.get(Key("", "", ""))
    assert path.is_file()
    assert path.parent.stat().st_mode & 0o777 == 0o700
