"""Tools run at most once, whatever is killed when; and what cannot be known is said so."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.agents import calls_of
from support.killed import execute, killed, rows
from support.sdks.formats import FORMATS, request
from support.sdks.turn import end

from continuation import Fenced, Journal, JournalError, LeaseHeld, OutcomeUnknown
from continuation.history import validate
from continuation.journal import ParsedCall, ToolRun
from continuation.journal.store import JournalStore
from continuation.simulator import Simulator, ToolUse

from .test_resume import TURNS, ask

Place = Path | str
CALLS = [ToolUse("Write", {"path": f"{n}.txt", "content": "x"}) for n in range(2)]


@pytest.fixture
def calling(sim: Simulator) -> Simulator:
    """A model that makes two calls, and then says that it is done."""
    sim.script([end(*CALLS, stop="tool_use"), end("Done.")])
    return sim


@pytest.mark.parametrize("dialect", FORMATS)
def test_each_state_of_a_call_is_told_for_what_it_is(
    dialect: str, calling: Simulator, store: Place
) -> None:
    journal, ran = Journal(store, "s"), list[str]()
    turn, _ = ask(calling, journal, dialect, "sync-stream")
    first, second = calls_of(turn)

    def write(call: Any, idempotency_key: str) -> dict[str, str]:
        ran.append(idempotency_key)
        return {"written": idempotency_key}

    done = journal.call(first, write)
    with pytest.raises(KeyboardInterrupt), journal.tool(second):
        raise KeyboardInterrupt  # the process dies while it runs
    with killed(journal) as later:
        waiting = later.resume()
        assert waiting.kind == "calls"
        assert [call.name for call in waiting.unknown] == ["Write"]
        assert not waiting.not_started
        assert later.call(first, write) == done
        assert "may have run" in later.call(second, write)
        assert len(ran) == 1
        turns = later.history()
        key = TURNS.get(dialect, "messages")
        assert validate({key: turns, "model": request(dialect, 9, {})["model"]}, live=False) == []
        assert str(turns).count("may have run") == 1
        assert done["written"] in str(turns)
        assert later.history() == turns
        # A result that becomes known late takes the place of the one that was made up.
        later.result(second, "written after all")
        assert "may have run" not in str(later.history())
        ask(calling, later, dialect, "sync-stream", turns=later.history())
        assert "Done." in str(later.history()[-1])
        assert later.resume().unsent == ()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_the_caller_declared_decides_on_a_call_of_unknown_outcome(
    asynchronous: bool, store: Place
) -> None:
    journal = Journal(store, "s")

    def call(number: int, run: Any, **terms: Any) -> Any:
        made = ParsedCall(f"c{number}", "Send", {})
        if not asynchronous:
            return journal.call(made, run, **terms)

        async def later(*_: Any) -> Any:
            return run()

        return asyncio.run(journal.call(made, later, **terms))

    for number in range(4):
        with pytest.raises(KeyboardInterrupt):
            call(number, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    journal = killed(journal)

    def unsure() -> str:
        raise OutcomeUnknown

    assert call(0, lambda: "again", idempotent=True) == "again"
    assert call(1, lambda: "again", verify=lambda: "was done") == "was done"
    assert call(2, lambda: "again", verify=lambda: None) == "again"
    assert "may have run" in call(3, lambda: "again", verify=unsure)
    assert [call(n, lambda: "twice") for n in range(3)] == ["again", "was done", "again"]


def test_what_a_tool_raises_is_its_result(store: Place) -> None:
    with Journal(store, "s") as journal:
        made = ParsedCall("c", "Send", {})
        with pytest.raises(ZeroDivisionError):
            journal.call(made, lambda: 1 / 0)
        assert journal.call(made, lambda: "again") == "ZeroDivisionError: division by zero"
        with pytest.raises(TypeError, match="a tool call as the SDK gave it"):
            journal.call(object(), print)


def test_one_process_owns_a_session(store: Place) -> None:
    journal = Journal(store, "s")
    with pytest.raises(LeaseHeld, match="session 's' has been owned by process"):
        Journal(store, "s")
    with Journal(store, "s", readonly=True) as reader, pytest.raises(JournalError):
        reader.call({"id": "c", "name": "Send"}, print)
    with pytest.raises(JournalError, match=r"session 'x': not found in"):
        Journal(store, "x", readonly=True)
    with killed(journal) as later:
        assert later.fencing_token > journal.fencing_token
        with pytest.raises(Fenced):
            journal.call({"id": "c", "name": "Send"}, pytest.fail)
        assert rows(later, "SELECT kind FROM records") == []
    with later.child("b") as other:
        assert other.session == "s/b"


def test_who_is_told_to_run_takes_a_session_from_an_owner_that_lives(store: Place) -> None:
    """A tool that the owner before it has begun is not run again, and the owner writes no more."""
    called = {"id": "c", "name": "Send"}
    journal = Journal(store, "s")
    run = journal.tool(called).__enter__()
    with Journal(store, "s", take_over=True) as later:
        assert later.fencing_token == journal.fencing_token + 1
        assert "may have run" in str(later.call(called, pytest.fail))
        with later.child("b"), later.child("b") as again:
            assert again.fencing_token == 2
        with pytest.raises(LeaseHeld):
            Journal(store, "s")
    run.result = "sent"
    with pytest.raises(Fenced):
        run.__exit__(None, None, None)
    with pytest.raises(Fenced):
        journal.call({"id": "d", "name": "Send"}, pytest.fail)


def test_who_only_looks_makes_nothing(tmp_path: Path, databases: Callable[[], str]) -> None:
    with pytest.raises(JournalError, match="the file does not exist"):
        Journal(tmp_path / "b.db", "s", readonly=True)
    assert not (tmp_path / "b.db").exists()
    with pytest.raises(JournalError, match="this database has no journal"):
        Journal(url := databases(), "s", readonly=True)
    assert execute(url, "SELECT to_regclass('continuation_journal')") == [(None,)]


def test_without_an_intent_nothing_runs(store: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(store, "s") as journal:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(type(JournalStore.of(store)), "_commit", full)
        with pytest.raises(JournalError, match="so the tool is refused"):
            journal.call({"id": "c", "name": "Send"}, pytest.fail)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (b"no database at all, but long enough to be looked at" * 20, "not a database"),
        ("PRAGMA user_version=99; PRAGMA application_id=1668247156", "newer than"),
        ("CREATE TABLE mine (x)", "belongs to another program"),
    ],
)
def test_a_file_that_is_none_is_refused(write: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    if isinstance(write, bytes):
        path.write_bytes(write)
    else:
        with closing(sqlite3.connect(path)) as db:
            db.executescript(write)
    with pytest.raises(JournalError, match=text):
        Journal(path, "s")


_SUSPENDED = """
import logging
import sys
import time
from pathlib import Path
from continuation import Fenced, Journal
logging.basicConfig(stream=sys.stdout, format="%(message)s")
target, go, effects, kind, checks = sys.argv[1:]
journal = Journal(target, "s")
call = {"id": "c", "name": "Send", "input": {}}


def effect(run):
    print("in the tool", flush=True)
    while not Path(go).exists():
        time.sleep(0.01)
    if checks == "check":
        run.check()
    with open(effects, "a") as file:
        file.write("A ")
    return "sent by A"


try:
    if kind == "call":
        journal.call(call, lambda _, tool_run: effect(tool_run))
    else:
        with journal.tool(call) as run:
            run.result = effect(run)
except Fenced as error:
    print("Fenced:", error, flush=True)
"""


@pytest.mark.parametrize("kind", ["call", "tool"])
@pytest.mark.parametrize("checks", ["check", "no check"])
def test_a_process_that_is_suspended_in_its_tool(
    checks: str, kind: str, store: Place, tmp_path: Path
) -> None:
    """It is taken for dead, and the effect made by another; awake again, it asks before its own."""
    go, effects = tmp_path / "go", tmp_path / "effects"
    command = [sys.executable, "-c", _SUSPENDED, str(store), str(go), str(effects), kind, checks]
    suspended = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert suspended.stdout is not None
    assert suspended.stdout.readline() == "in the tool\n"
    suspended.send_signal(signal.SIGSTOP)

    def send(_: Any, tool_run: ToolRun) -> str:
        tool_run.check()
        with effects.open("a") as file:
            file.write("B ")
        return "sent by B"

    with Journal(store, "s", take_over=True) as journal:
        call = {"id": "c", "name": "Send", "input": {}}
        assert journal.call(call, send, verify=lambda: None) == "sent by B"
        go.touch()
        suspended.send_signal(signal.SIGCONT)
        told, _ = suspended.communicate()
        assert effects.read_text() == ("B " if checks == "check" else "B A ")
        assert "Fenced: another process owns this session now" in told
        assert "not durable" not in told
        assert journal.call(call, pytest.fail) == "sent by B"
