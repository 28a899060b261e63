"""`continuation sessions`: what is in a journal, told while a process has it open, and after."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anthropic
import psycopg
import pytest
from support.killed import execute, killed, rows
from support.sdks.turn import quietly

import continuation
from continuation import Journal, JournalError
from continuation.cli import main
from continuation.journal import look
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse

SECRET = "a line that nobody is to see"
MODEL = "claude-opus-5"
Capture = pytest.CaptureFixture[str]
Store = Path | str


@pytest.fixture
def model() -> Iterator[Simulator]:
    with Simulator(f"{SECRET}\n" * 200, Scenario(deltas=40, slow=0.0002)) as running, quietly():
        running.script(
            [
                Reply(
                    [Text(SECRET), *(ToolUse("Write", {"path": SECRET}) for _ in range(2))],
                    stop="tool_use",
                )
            ]
        )
        yield running


def ask(sim: Simulator, journal: Journal, *, stop_after: int | None = None) -> Any:
    """Ask for an answer, and read it, or so many of its texts."""
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, journal=journal)
        turns: Any = journal.history() or [{"role": "user", "content": SECRET}]
        tools: Any = [{"name": "Write", "input_schema": {"type": "object"}}]
        with client.messages.stream(
            model=MODEL, max_tokens=32_000, messages=turns, tools=tools
        ) as stream:
            for number, _ in enumerate(stream.text_stream):
                if number == stop_after:
                    return None
            return stream.get_final_message()


def told(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """Run the command for its JSON."""
    assert main(["sessions", *map(str, arguments), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_session_from_its_first_call_to_its_end(
    model: Simulator, store: Store, capsys: Capture
) -> None:
    def state() -> list[Any]:
        (one,) = told(capsys, "list", store)["sessions"]
        assert one["session"] == "s"
        return [one["state"], one["owner"], one["waiting"], len(one["calls"])]

    journal = Journal(store, "s")
    reply = ask(model, journal)
    assert state() == ["running", "alive", 2, 0]
    assert "cannot resume" in _text(capsys, "resume", store, "s")
    calls = [block for block in reply.content if block.type == "tool_use"]
    journal.call(calls[0], lambda _: "ok")
    with pytest.raises(KeyboardInterrupt):
        journal.call(calls[1], _interrupted)
    journal = killed(journal)
    journal.close()
    assert state() == ["calls open", None, 0, 1]
    resume = told(capsys, "resume", store, "s")
    assert resume["unknown"] == [{"id": calls[1].id, "name": "Write"}]
    assert resume["unsent"] == [calls[0].id]

    journal = Journal(store, "s")
    journal.result(calls[1], "late")
    ask(model, journal, stop_after=60)
    assert state() == ["running", "alive", 0, 0]
    journal = killed(journal)
    journal.close()
    assert state() == ["interrupted", None, 0, 0]
    resume = told(capsys, "resume", store, "s")
    assert (resume["kind"], resume["resumable"], resume["attempts"]) == ("turn", True, 1)
    assert resume["characters"] > 1_000

    journal = Journal(store, "s")
    ask(model, journal)
    journal.close()
    assert state() == ["idle", None, 0, 0]
    (one,) = told(capsys, "list", store)["sessions"]
    assert (one["turns"], one["dialect"], one["model"]) == (2, "anthropic", MODEL)


@pytest.mark.parametrize("begun", [True, False])
def test_a_finished_conversation_has_no_open_calls_whatever_became_of_them(
    model: Simulator, store: Store, capsys: Capture, begun: bool
) -> None:
    """The request of the later turn told the model that the outcome is unknown."""
    journal = Journal(store, "s")
    reply = ask(model, journal)
    calls = [block for block in reply.content if block.type == "tool_use"]
    journal.call(calls[0], lambda _: "ok")
    if begun:
        with pytest.raises(KeyboardInterrupt):
            journal.call(calls[1], _interrupted)
    journal = killed(journal)
    journal.close()
    (one,) = told(capsys, "list", store)["sessions"]
    assert one["state"] == "calls open"
    journal = Journal(store, "s")
    ask(model, journal)
    journal.close()
    (one,) = told(capsys, "list", store)["sessions"]
    assert (one["state"], one["calls"], one["waiting"]) == ("idle", [], 0)
    assert "calls open" not in _text(capsys, "list", store)


def _interrupted(_: object) -> None:
    raise KeyboardInterrupt


def _text(capsys: Capture, *arguments: object) -> str:
    assert main(["sessions", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_content_is_told_only_where_it_is_asked_for(
    model: Simulator, store: Store, capsys: Capture
) -> None:
    with Journal(store, "s") as journal:
        reply = ask(model, journal)
        journal.call(reply.content[1], lambda _: SECRET)
    for verb in (["list", store], ["show", store, "s"], ["resume", store, "s"]):
        for form in ([], ["--json"]):
            assert SECRET not in _text(capsys, *verb, *form), verb
    line = _text(capsys, "show", store, "s")
    assert all(word in line for word in (MODEL, "Write begins", "turn ends: complete"))
    assert _text(capsys, "show", store, "s", "--content").count(SECRET) == 5
    body = told(capsys, "export", store, "s", "--dialect", "anthropic")
    assert body["model"] == MODEL
    assert continuation.validate(body, live=False) == []
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]


def test_what_a_codec_or_nothing_keeps_is_said(
    model: Simulator, store: Store, capsys: Capture
) -> None:
    class Turned:
        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        decode = encode

    for journal in (Journal(store, "s", codec=Turned()), Journal(store, "none", content="none")):
        with journal, anthropic.Anthropic(base_url=model.url, api_key="k") as bare:
            continuation.wrap(bare, journal=journal).messages.create(
                model=MODEL, max_tokens=1_000, messages=[{"role": "user", "content": "Go."}]
            )
    assert {one["turns"] for one in told(capsys, "list", store)["sessions"]} == {1}
    assert "answer of the model" in _text(capsys, "show", store, "s")
    for arguments in (["show", "--content"], ["export"], ["resume"]):
        assert main(["sessions", *arguments, str(store), "s"]) == 2
        assert "its content is encoded" in capsys.readouterr().err
    assert told(capsys, "resume", store, "none")["resumable"] is False
    assert main(["sessions", "export", str(store), "none"]) == 2
    assert "no conversation is recorded" in capsys.readouterr().err


def test_who_only_looks_changes_nothing(model: Simulator, store: Store, capsys: Capture) -> None:
    with Journal(store, "s") as journal:
        ask(model, journal)
        before = rows(journal, "SELECT * FROM records"), rows(journal, "SELECT epoch FROM sessions")
        for verb in (["list"], ["show", "s"], ["resume", "s"], ["export", "s"], ["prune"]):
            _text(capsys, verb[0], store, *verb[1:])
        after = rows(journal, "SELECT * FROM records"), rows(journal, "SELECT epoch FROM sessions")
        assert after == before
        journal.check()
    refused = pytest.raises((sqlite3.OperationalError, psycopg.Error), match=r"read-?only")
    with suppress(JournalError), look.reading(store) as found, refused:
        found.execute(found.sql.prune_records, ("s",))


def test_wrong_usage_ends_with_2_and_makes_no_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "agent.db"

    def refused(*arguments: str) -> str:
        assert main(["sessions", *arguments]) == 2
        return capsys.readouterr().err

    assert "does not exist" in refused("list", str(file))
    assert not file.exists()
    file.touch()
    assert "the file is empty" in refused("prune", str(file), "--yes")
    assert file.read_bytes() == b""
    file.write_text("no database at all, but long enough" * 40)
    assert "not a database" in refused("list", str(file))
    file.unlink()
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE theirs (a)")
    before = file.read_bytes()
    assert "belongs to another program" in refused("list", str(file))
    with pytest.raises(continuation.JournalError, match="belongs to another program"):
        Journal(file, "s")
    assert file.read_bytes() == before
    file.unlink()
    Journal(file, "s").close()
    assert "session 'x': not found" in refused("show", str(file), "x")
    with closing(sqlite3.connect(file)) as newer:
        newer.execute("PRAGMA user_version = 99")
    assert "use a newer version of continuation" in refused("list", str(file))
    with pytest.raises(SystemExit) as wrong:
        main(["sessions", "prune", str(file), "--older", "long"])
    assert wrong.value.code == 2
    assert "is not an age" in capsys.readouterr().err


def test_prune_removes_what_is_silent_and_nobody_owns(
    model: Simulator, store: Store, capsys: Capture
) -> None:
    with Journal(store, "mine") as mine:
        for name in ("old", "new"):
            with Journal(store, name) as journal:
                ask(model, journal)
        _older(store, "old")
        _older(store, "mine")  # long silent, but its process lives
        assert told(capsys, "prune", store)["sessions"] == ["old"]
        assert len(told(capsys, "list", store)["sessions"]) == 3
        done = told(capsys, "prune", store, "--yes")
        assert (done["sessions"], done["bytes"] > 0) == (["old"], isinstance(store, Path))
        names = {one["session"] for one in told(capsys, "list", store)["sessions"]}
        assert names == {"mine", "new"}
        mine.check()


def test_the_number_of_a_session_that_was_pruned_is_no_other_ones(store: Store) -> None:
    with Journal(store, "s") as zombie:
        _older(store, "s", owner=None)
        assert look.prune(store, 60.0)[0] == ["s"]
        with Journal(store, "other") as other:
            assert other.owner.session != zombie.owner.session
        with pytest.raises(continuation.Fenced):
            zombie.record("intent", "x", {"name": "Write"}).result()
    with look.reading(store) as journal:
        assert [one.session for one in look.sessions(journal)] == ["other"]


def test_an_owner_that_cannot_be_asked_has_an_hour() -> None:
    now = time.time()
    assert look.Listed("s", owner="unknown", seen=now - 7_200).silent(60)
    assert not look.Listed("s", owner="unknown", seen=now - 600).silent(60)
    assert look.Listed("s", owner="gone", seen=now - 600).silent(60)
    assert not look.Listed("s", owner="alive", seen=now - 7_200).silent(60)


def _older(store: Store, name: str, **more: object) -> None:
    """Let a session be silent for a year."""
    year = 365 * 86_400
    number = "(SELECT id FROM sessions WHERE name = ?)"
    execute(store, f"UPDATE records SET at = at - {year} WHERE session = {number}", (name,))
    execute(store, "UPDATE sessions SET beat = beat - ? WHERE name = ?", (year, name))
    for column, value in more.items():
        execute(store, f"UPDATE sessions SET {column} = ? WHERE name = ?", (value, name))
