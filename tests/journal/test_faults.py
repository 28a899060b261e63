"""What a machine does to a journal: full disks, lost permissions, forks, races, stopped owners."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.killed import execute, killed, rows
from support.sdks.formats import MAKES, request
from support.sdks.turn import FAST, end, quietly

import continuation
from continuation import Journal, JournalError, LeaseHeld
from continuation.journal import forms
from continuation.journal.sqlite import SqliteJournalStore
from continuation.journal.store import JournalStore
from continuation.simulator import Simulator

CALL = {"id": "c", "name": "Write", "input": {}}


@contextmanager
def full(journal: Journal) -> Iterator[None]:
    """Let no file of this process grow beyond what the journal's are now."""
    JournalStore.of(journal.target).flush()
    sizes = [path.stat().st_size for path in Path(journal.target).parent.glob("agent.db*")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(filter(None, sizes)), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def ask(client: Any, turns: Any = None) -> Any:
    asked = request("anthropic-messages", 1000, {"messages": turns} if turns else {})
    with quietly(), client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def test_a_full_disk_costs_no_answer_and_starts_no_tool(sim: Simulator, tmp_path: Path) -> None:
    events, ran = list[Any](), list[Any]()
    sim.script([end("One."), end("Two."), end("Three.")])
    with Journal(tmp_path / "agent.db", "s") as journal:
        with MAKES["anthropic-messages"]().connect(sim.url, asynchronous=False) as bare:
            client: Any = continuation.wrap(
                bare, config=FAST, journal=journal, on_event=events.append
            )
            ask(client)
            first = journal.history()
            with full(journal):
                turns = [*first, {"role": "user", "content": "And?"}]
                assert ask(client, turns).content[0].text == "Two."
                assert [e.error for e in events if isinstance(e, continuation.NotDurable)]
                for _ in range(2):  # refused, and not taken for one that began
                    with pytest.raises(JournalError, match="so the tool is refused"):
                        journal.call(CALL, ran.append)
                assert journal.history()[: len(turns)] == turns  # what is owed is known
            events.clear()
            assert journal.call(CALL, lambda _: "written") == "written"
            turns = [*journal.history(), {"role": "user", "content": "And then?"}]
            assert ask(client, turns).content[0].text == "Three."
            assert not [e for e in events if isinstance(e, continuation.NotDurable)]
        told = journal.history()
    with Journal(tmp_path / "agent.db", "s") as later:  # nothing is missing
        assert later.history() == told
        assert [text in str(told) for text in ("One.", "Two.", "Three.")] == [True] * 3
    assert ran == []


def test_a_result_that_cannot_be_recorded_is_given_and_owed(tmp_path: Path) -> None:
    with Journal(tmp_path / "agent.db", "s") as journal:
        limits = list[Any]()

        def write(_: Any) -> str:
            limits.append(full(journal))
            limits[0].__enter__()
            return "written " * 1000

        assert journal.call(CALL, write).startswith("written")
        limits[0].__exit__(None, None, None)
        assert journal.call(CALL, pytest.fail).startswith("written")
    with Journal(tmp_path / "agent.db", "s") as later:
        assert later.call(CALL, pytest.fail).startswith("written")


def test_a_call_that_cannot_be_recorded_has_not_begun(store: Path | str) -> None:
    """Whatever it is refused for: asked again it is refused again, and nobody guesses at it."""
    strange = {**CALL, "id": "half an emoji: \ud83d"}
    with Journal(store, "s") as journal:
        for _ in range(2):
            with pytest.raises(JournalError, match="so the tool is refused"):
                journal.call(strange, pytest.fail)
        assert journal.call(CALL, lambda _: "written") == "written"


@pytest.mark.parametrize("name", ["", "a\0b", "a\ud83db"])
def test_a_name_that_no_store_keeps_is_told(name: str, store: Path | str) -> None:
    with pytest.raises(ValueError, match="session = "):
        Journal(store, name)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("what", ["closed", "codec"])
def test_a_result_in_hand_is_given_whatever_becomes_of_the_journal(
    kind: str, what: str, store: Path | str
) -> None:
    class Gone:
        def encode(self, data: bytes) -> bytes:
            raise ConnectionError

        decode = encode

    journal = Journal(store, "s", codec=Gone() if what == "codec" else None)

    def write(_: Any) -> str:
        if what == "closed":
            journal.close()
        return "written"

    async def write_too(call: Any) -> str:
        return write(call)

    if kind == "sync":
        assert journal.call(CALL, write) == "written"
    else:
        assert asyncio.run(journal.call(CALL, write_too)) == "written"
    journal.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hu/sh@h/d",
        "postgresql://me:12/hush@h/d",
        "postgresql://me:my hush@h/d",
        "postgresql://h/d?user=me&password=my hush%zz",
    ],
)
def test_a_password_that_is_not_escaped_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="is not a PostgreSQL URL") as error:
        Journal(url, "s")
    assert "sh" not in str(error.value).partition(": is not a PostgreSQL URL")[0]


_PERMISSIONS = """
import os, sys
from pathlib import Path
from continuation import Journal, JournalError
import continuation.history, continuation.journal.sqlite, continuation.journal.tools
from continuation.registry import dialects
dialects()  # nothing can be imported later
if os.getuid() == 0:  # permissions do not hold for root
    os.setgid(65534)
    os.setuid(65534)
where = Path(sys.argv[1])
journal = Journal(where / "a.db", "s")
journal.call({"id": "1", "name": "Write"}, lambda call: "written")
for path in where.iterdir():
    path.chmod(0)
where.chmod(0)
try:  # what is open stays open, what is to be opened does not
    journal.call({"id": "2", "name": "Write"}, lambda call: "written")
    journal.history()
except JournalError as error:
    print("refused:", error)
where.chmod(0o700)
for path in where.iterdir():
    path.chmod(0o400)
if os.fork() == 0:
    try:
        Journal(where / "a.db", "other")
    except JournalError as error:
        print("refused:", error, flush=True)
    os._exit(0)
os.wait()
for path in where.iterdir():
    path.chmod(0o600)
print([journal.call({"id": f"{n}", "name": "Write"}, lambda call: "written") for n in range(4)])
"""


def test_permissions_that_are_lost(shm: Path) -> None:
    shm.chmod(0o777)
    where = shm / "lost"
    where.mkdir()
    where.chmod(0o777)
    if os.getuid() == 0:
        os.chown(where, 65534, 65534)
    ran = subprocess.run(
        [sys.executable, "-c", _PERMISSIONS, where], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout.count("refused:") == 1, ran.stdout
    assert "['written', 'written', 'written', 'written']" in ran.stdout


def test_a_journal_does_not_pass_through_fork(tmp_path: Path) -> None:
    """The child is told so at once, ends at once, and may open sessions of its own."""
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from continuation import Fenced, Journal
journal = Journal(sys.argv[1], "s")
journal.call({"id": "1", "name": "Write"}, lambda call: "written")
if os.fork() == 0:
    try:
        journal.call({"id": "2", "name": "Write"}, lambda call: "written")
    except Fenced as error:
        print(error, flush=True)
    journal.close()
    with Journal(sys.argv[1], "child") as own:
        print(own.call({"id": "3", "name": "Write"}, lambda call: "own"), flush=True)
    sys.exit()
os.wait()
print(journal.call({"id": "2", "name": "Write"}, lambda call: "still mine"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.db"],
        check=True,
        capture_output=True,
        text=True,
        timeout=50,  # shorter than a store waits for its thread
    )
    assert ran.stdout.splitlines() == [
        "a journal cannot be used after fork; open one in the new process",
        "own",
        "still mine",
    ]


_OPEN = """
import sys
import time
from continuation import Journal, LeaseHeld
try:
    journal = Journal(sys.argv[1], "s", lease=float(sys.argv[2]))
    journal.call({"id": sys.argv[3], "name": "Write"}, lambda call: "written")
    print("owner", journal.fencing_token, flush=True)
    sys.stdin.read()
except LeaseHeld as error:
    print("held", error, flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def _opener(path: Path, *before: str, lease: float = 30.0, call: str = "c") -> Any:
    return subprocess.Popen(
        [*before, sys.executable, "-c", _OPEN, str(path), str(lease), call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


_RACE = """
import os, sys, warnings
from continuation import Journal, LeaseHeld
warnings.simplefilter("ignore")
for number in range(int(sys.argv[2])):
    # One is new, then its owner is dead.
    place, name = f"{sys.argv[1]}/{number // 3}.db", "s"
    if sys.argv[3:]:
        place = sys.argv[3 + number // 3]
    ready, go = os.pipe()
    stay, end = os.pipe()
    heard, told = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.close(go)
            os.close(end)
            os.read(ready, 1)
            try:
                said = f"owner {Journal(place, name).fencing_token}"
            except LeaseHeld:
                said = "held"
            except BaseException as error:
                said = f"{type(error).__name__} {error}"
            os.write(told, f"{said},".encode())
            os.read(stay, 1)
            os._exit(0)
    os.close(go)
    said = b""
    while said.count(b",") < 8:
        said += os.read(heard, 10_000)
    os.close(end)
    for _ in range(8):
        os.wait()
    print(*sorted(said.decode().strip(",").split(",")), sep=",")
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_eight_race_for_a_session(where: str, shm: Path, databases: Callable[[], str]) -> None:
    """Of a store that is not there yet, then of a dead owner: one wins, and nobody meets a lock."""
    urls = [databases() for _ in range(12)] if where == "postgresql" else []
    command = [sys.executable, "-c", _RACE, str(shm), "36", *urls]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    for number, line in enumerate(ran.stdout.splitlines()):
        assert line.split(",") == ["held"] * 7 + [f"owner {number % 3 + 1}"]


_SPACE = ("unshare", "--pid", "--fork", "--kill-child")
_MAY = shutil.which("unshare") and not subprocess.run([*_SPACE, "--mount-proc", "true"]).returncode


@pytest.mark.skipif(not _MAY, reason="this user may not make PID namespaces")
@pytest.mark.slow
@pytest.mark.parametrize("more", [["--mount-proc"], []])
def test_two_pid_namespaces(more: list[str], tmp_path: Path) -> None:
    """Both are process 1 of their own; nobody can ask for the other, so the lease decides."""
    path = tmp_path / "agent.db"
    first = _opener(path, *_SPACE, *more)
    assert first.stdout.readline().startswith("owner 1")
    second = _opener(path, *_SPACE, *more)
    assert "has been owned by process 1" in second.stdout.readline()
    outside = _opener(path)
    assert outside.stdout.readline().startswith("held")
    first.kill()
    first.wait()
    third = _opener(path, *_SPACE, *more)  # silent, but not for long enough
    assert third.stdout.readline().startswith("held")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET beat = beat - 3600")
    fourth = _opener(path, *_SPACE, *more)
    assert fourth.stdout.readline().startswith("owner 2")
    for each in (first, second, outside, third, fourth):
        each.communicate()


def test_a_stopped_owner_wakes_up_fenced(store: Path | str) -> None:
    """A process is alive while it is stopped; who cannot ask the kernel takes its session over."""
    code = """
import sys
import time
from continuation import Fenced, Journal
journal = Journal(sys.argv[1], "s")
journal.call({"id": "1", "name": "Write"}, lambda call: "written")
print("owner", flush=True)
sys.stdin.readline()
call = {"id": "2", "name": "Write"}
for act, given in ((journal.call, print), (journal.result, "late")):
    try:
        act(call, given)
    except Fenced:
        print("fenced", flush=True)
"""
    zombie = subprocess.Popen(
        [sys.executable, "-c", code, store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == "owner\n"
    zombie.send_signal(signal.SIGSTOP)
    with pytest.raises(LeaseHeld):
        Journal(store, "s", lease=1e-6)
    ((held,),) = execute(store, "SELECT owner FROM sessions")
    elsewhere = json.dumps({**json.loads(str(held)), "machine": "another"})
    execute(store, "UPDATE sessions SET owner = ?", (elsewhere,))
    with pytest.raises(LeaseHeld):
        Journal(store, "s", lease=3600)
    with Journal(store, "s", lease=1e-6) as journal:
        before = rows(journal, "SELECT * FROM records")
        zombie.send_signal(signal.SIGCONT)
        said, _ = zombie.communicate("go\n")
        assert said == "fenced\nfenced\n"
        assert rows(journal, "SELECT * FROM records") == before


def test_a_clock_that_goes_back_fences_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = SqliteJournalStore.connect

    def yesterday(own: SqliteJournalStore) -> sqlite3.Connection:
        connection = connect(own)
        connection.create_function("julianday", 1, lambda _: time.time() / 86_400 + 2440587.5)
        return connection

    with Journal(tmp_path / "a.db", "s") as journal:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 86_400)
        monkeypatch.setattr(SqliteJournalStore, "connect", yesterday)
        spare = JournalStore.of(tmp_path / "a.db")._spare
        while spare:
            spare.pop().close()
        with pytest.raises(LeaseHeld):
            Journal(tmp_path / "a.db", "s")
        assert journal.call(CALL, lambda _: "written") == "written"
        with killed(journal) as later:
            assert later.call(CALL, pytest.fail) == "written"
            assert later.resume().abandoned == ()


def test_alike_calls_without_an_id_each_run_once(tmp_path: Path) -> None:
    """Gemini's calls have no id: two that say the same are two."""
    call = {"functionCall": {"name": "Send", "args": {"to": "all"}}}
    answer = {"role": "model", "parts": [call, call]}
    keys = list[str]()

    def send(_: Any, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return f"sent {len(keys)}"

    with Journal(tmp_path / "a.db", "s") as journal:
        terms = {"form": "gemini", "model": "gemini-3.6-flash"}
        turns = [{"role": "user", "parts": [{"text": "Go."}]}, answer]
        with journal._lock:
            said = [("message", forms.digest(turns[0]), turns[0])]
            journal._append(*said, ("turn", "asked", terms), durable=True).result()
            told = ("answer", forms.digest(answer), answer)
            journal._append(told, ("end", "", {}), durable=True).result()
        assert len({made.id for made in journal.resume().not_started}) == 2
        assert journal.call(call, send) == "sent 1"
        assert len(journal.resume().not_started) == 1
        later = killed(journal)
    with later:
        (left,) = later.resume().not_started
        assert later.call(left, send) == "sent 2"
        assert len(set(keys)) == 2
        assert later.resume().not_started == ()
        assert [later.call(call, pytest.fail) for _ in range(2)] == ["sent 1", "sent 2"]
        assert json.dumps(later.history()).count("sent") == 2


def test_a_missing_folder_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ours" / "agent.db"
    with Journal(path, "one"):
        assert path.parent.stat().st_mode & 0o777 == 0o700
