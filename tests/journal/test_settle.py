"""`Journal.settle`: the call that begins an agent's loop, whatever became of the last answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agents import calls_of
from support.killed import killed
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import HOWS, How, end, quietly

import continuation
from continuation import Fenced, Journal, JournalError, OutcomeUnknown, Policy
from continuation.history import validate
from continuation.journal import ParsedCall
from continuation.simulator import Simulator, ToolUse

from .test_resume import TURNS, ask

Place = Path | str
Run = Callable[..., Any]
CALLS = [ToolUse("Write", {"path": f"{n}"}) for n in range(3)]

every_format = pytest.mark.parametrize("dialect", FORMATS)
either = pytest.mark.parametrize("asynchronous", [False, True])


@pytest.fixture
def calling(sim: Simulator) -> Simulator:
    sim.script([end(*CALLS, stop="tool_use"), end("Done.")])
    return sim


def settle(journal: Journal, run: Run, **how: Any) -> list[Any]:
    """Settle synchronously."""
    turns: list[Any] = journal.settle(run, **how)
    return turns


async def settle_async(journal: Journal, run: Run, **how: Any) -> list[Any]:
    async def run_later(call: ParsedCall) -> Any:
        await asyncio.sleep(0)
        return run(call)

    turns: list[Any] = await journal.settle(run_later, **how)
    return turns


def either_way(
    asynchronous: bool,
    journal: Journal,
    run: Run,
    **how: Any,
) -> list[Any]:
    if asynchronous:
        return asyncio.run(settle_async(journal, run, **how))
    return settle(journal, run, **how)


def valid(dialect: str, turns: list[Any]) -> bool:
    asked = request(dialect, 9, {})
    return not validate(
        {"model": asked["model"], TURNS.get(dialect, "messages"): turns}, live=False
    )


@every_format
@either
def test_each_call_runs_once_and_the_turns_go_on(
    dialect: str, asynchronous: bool, calling: Simulator, store: Place
) -> None:
    ran = list[str]()

    def run(call: ParsedCall) -> str:
        assert call.name == "Write"
        ran.append(call.arguments["path"])
        return f"written {call.arguments['path']}"

    how: How = "async-stream" if asynchronous else "sync-stream"
    with Journal(store, "s") as journal:
        assert either_way(asynchronous, journal, pytest.fail) == []
        ask(calling, journal, dialect, how)
        turns = either_way(asynchronous, journal, run)
        assert ran == ["0", "1", "2"]
        assert all(f"written {n}" in str(turns) for n in range(3))
        assert valid(dialect, turns)
        assert either_way(asynchronous, journal, pytest.fail) == turns == journal.history()
        ask(calling, journal, dialect, how, turns=turns)
        assert "Done." in str(either_way(asynchronous, journal, pytest.fail)[-1])
    with Journal(store, "s") as later:
        assert "Done." in str(either_way(asynchronous, later, pytest.fail)[-1])


class Killed(BaseException):
    """The process ends here."""


@either
@pytest.mark.parametrize("when", ["before", "in", "after"])
@pytest.mark.parametrize("at", range(3))
@every_format
def test_killed_at_each_step(
    dialect: str,
    at: int,
    when: str,
    asynchronous: bool,
    calling: Simulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a call's intent, inside its tool, behind its result: the next life does the rest."""
    effects = list[str]()
    journal = Journal(tmp_path / "agent.db", "s")
    ask(calling, journal, dialect, "sync-stream")
    kinds = {"before": "intent", "after": "result"}
    record, counted = Journal.record, list[str]()

    def recording(own: Journal, kind: str, call_id: str, content: object) -> Any:
        if kind == kinds.get(when):
            counted.append(kind)
            if len(counted) == at + 1:
                if when == "after":
                    record(own, kind, call_id, content).result()
                raise Killed
        return record(own, kind, call_id, content)

    def run(call: ParsedCall) -> str:
        if when == "in" and len(effects) == at:
            effects.append(call.arguments["path"])
            raise Killed
        effects.append(call.arguments["path"])
        return f"written {call.arguments['path']}"

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "record", recording)
        with pytest.raises(Killed):
            either_way(asynchronous, journal, run)
    later = killed(journal)

    def run_again(call: ParsedCall) -> str:
        effects.append(call.arguments["path"])
        return f"written {call.arguments['path']}"

    turns = either_way(asynchronous, later, run_again)
    assert effects == ["0", "1", "2"], "each exactly once, in order"
    assert str(turns).count("may have run") == (when == "in")
    assert valid(dialect, turns)
    assert either_way(asynchronous, later, pytest.fail) == turns
    later.close()


@every_format
def test_results_out_of_order_stay_with_their_calls(
    dialect: str, calling: Simulator, store: Place
) -> None:
    """Gemini's calls have no id: their place says which result is whose."""
    ran = list[str]()
    with Journal(store, "s") as journal:
        turn, _ = ask(calling, journal, dialect, "sync-stream")
        calls = calls_of(turn)
        journal.call(calls[2], lambda _: "written 2")
        with pytest.raises(KeyboardInterrupt), journal.tool(calls[0]):
            raise KeyboardInterrupt
        assert [call.arguments["path"] for call in journal.resume().not_started] == ["1"]
        assert [call.arguments["path"] for call in journal.resume().unknown] == ["0"]
        told = str(journal.history())
        assert valid(dialect, journal.history())
        if dialect == "gemini":
            order = ["may have run", "never started", "written 2"]
            assert [told.index(words) for words in order] == sorted(map(told.index, order))

        def run(call: ParsedCall) -> str:
            ran.append(call.arguments["path"])
            return "written 1"

        turns = journal.settle(run)
        assert ran == ["1"]
        assert valid(dialect, turns)
        told = str(turns)
        assert "never started" not in told
        if dialect == "gemini":
            order = ["may have run", "written 1", "written 2"]
            assert [told.index(words) for words in order] == sorted(map(told.index, order))


@every_format
@either
def test_what_a_tool_raises_is_told_to_the_model_and_the_others_run(
    dialect: str,
    asynchronous: bool,
    calling: Simulator,
    store: Place,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran = list[str]()

    def run(call: ParsedCall) -> str:
        ran.append(call.arguments["path"])
        if call.arguments["path"] == "1":
            message = "no such secret"
            raise LookupError(message)
        return "written"

    with Journal(store, "s") as journal:
        ask(calling, journal, dialect, "sync-stream")
        with caplog.at_level(logging.WARNING, "continuation"):
            turns = either_way(asynchronous, journal, run)
        assert ran == ["0", "1", "2"]
        assert "LookupError: no such secret" in str(turns)
        if dialect == "anthropic-messages":
            failed = [part.get("is_error", False) for part in turns[-1]["content"]]
            assert failed == [False, True, False]
        assert either_way(asynchronous, journal, pytest.fail) == turns
        assert "tool=Write error=LookupError" in caplog.text
        assert "secret" not in caplog.text


@either
def test_an_unknown_outcome(asynchronous: bool, calling: Simulator, store: Place) -> None:
    """It is not run again unless the caller says so; `verify` decides call by call."""
    journal = Journal(store, "s")
    turn, _ = ask(calling, journal, "anthropic-messages", "sync-stream")
    for call in calls_of(turn):
        with pytest.raises(KeyboardInterrupt), journal.tool(call):
            raise KeyboardInterrupt
    journal = killed(journal)
    turns = either_way(asynchronous, journal, pytest.fail)
    assert str(turns).count("may have run") == 3

    def verify(call: ParsedCall) -> str | None:
        match call.arguments["path"]:
            case "0":
                return "it was written"
            case "1":
                return None
        raise OutcomeUnknown

    turns = either_way(asynchronous, journal, lambda _: "written now", verify=verify)
    said = [str(part["content"]) for part in turns[-1]["content"]]
    assert said[:2] == ["it was written", "written now"]
    assert "may have run" in said[2]
    turns = either_way(asynchronous, journal, lambda _: "again", idempotent={"Read"})
    assert "may have run" in str(turns)
    turns = either_way(asynchronous, journal, lambda _: "again", idempotent={"Read", "Write"})
    assert [part["content"] for part in turns[-1]["content"]][2] == "again"
    journal.close()


@either
def test_what_verify_raises_is_raised(asynchronous: bool, calling: Simulator, store: Place) -> None:
    journal = Journal(store, "s")
    turn, _ = ask(calling, journal, "anthropic-messages", "sync-stream")
    with pytest.raises(KeyboardInterrupt), journal.tool(calls_of(turn)[0]):
        raise KeyboardInterrupt
    with killed(journal) as later:

        def verify(_: ParsedCall) -> None:
            raise ConnectionError

        with pytest.raises(ConnectionError):
            either_way(asynchronous, later, pytest.fail, verify=verify)


@either
def test_another_owner_ends_it(asynchronous: bool, calling: Simulator, store: Place) -> None:
    """Also when the tool notices it itself: nothing runs after that."""
    journal, ran = Journal(store, "s"), list[str]()
    ask(calling, journal, "anthropic-messages", "sync-stream")
    taken = list[Journal]()

    def run(call: ParsedCall) -> str:
        taken.append(Journal(store, "s", take_over=True))
        ran.append(call.name)
        return "written"

    with pytest.raises(Fenced):
        either_way(asynchronous, journal, run)
    assert len(ran) == 1
    taken[0].close()


@every_format
@pytest.mark.parametrize("enabled", [True, False])
def test_a_call_of_a_truncated_answer_is_never_run(
    dialect: str,
    enabled: bool,
    sim: Simulator,
    store: Place,
) -> None:
    """Also where the policy keeps what there is of it, or leaves the request alone."""
    cut = ToolUse("Write", {"path": "x" * 9_000})
    sim.script([end(cut, stop="max_tokens")] * 2)
    policy = Policy(
        backoff_seconds=0.0, truncated_tool_call="keep", max_recoveries=0, enabled=enabled
    )
    with Journal(store, "s") as journal, quietly():
        ran = MAKES[dialect]()
        bare = ran.connect(sim.url, asynchronous=False)
        client: Any = continuation.wrap(bare, config=policy, journal=journal)
        with bare:
            ran.create(client, request(dialect, 16_000, {}))
        assert "xxx" in str(journal.history()), "the call is in the history"
        assert journal.resume().not_started == ()
        assert valid(dialect, journal.settle(pytest.fail))


@every_format
@pytest.mark.parametrize("how", HOWS)
def test_an_answer_that_is_left_alone_does_not_loop_for_ever(
    dialect: str, how: How, sim: Simulator, store: Place
) -> None:
    """As a body it is recorded; a stream is not, and `settle` says so."""
    sim.script([end(CALLS[0], stop="tool_use")])
    ran = MAKES[dialect]()
    bare = ran.connect(sim.url, asynchronous=how.startswith("async"))
    off = Policy(enabled=False)

    async def go(client: Any, asked: Any) -> None:
        async with getattr(bare, "aio", bare):
            if how == "async":
                await ran.create(client, asked)
                return
            opened = ran.stream(client, asked)
            opened = await opened if hasattr(opened, "__await__") else opened
            source = await opened.__aenter__() if hasattr(opened, "__aenter__") else opened
            async for _ in source:
                pass

    with Journal(store, "s") as journal, quietly():
        client: Any = continuation.wrap(bare, config=off, journal=journal)
        asked = request(dialect, 1_000, {})
        if how.startswith("async"):
            asyncio.run(go(getattr(client, "aio", client), asked))
        else:
            with bare:
                if how == "sync":
                    ran.create(client, asked)
                else:
                    opened = ran.stream(client, asked)
                    source = opened.__enter__() if hasattr(opened, "__enter__") else opened
                    for _ in source:
                        pass
        if how.endswith("stream"):
            with pytest.raises(JournalError, match="the last answer is not recorded"):
                journal.settle(pytest.fail)
        else:
            assert "written" in json.dumps(journal.settle(lambda _: "written"))


def test_what_cannot_be_settled_is_refused(store: Place) -> None:
    with Journal(store, "s") as journal:
        with pytest.raises(TypeError, match="idempotent = 'Read'"):
            journal.settle(print, idempotent="Read")
        with Journal(store, "s", readonly=True) as reader, pytest.raises(JournalError):
            reader.settle(print)
    with pytest.raises(JournalError, match="is closed"):
        journal.settle(print)


def test_a_callable_object_may_be_asynchronous(calling: Simulator, tmp_path: Path) -> None:
    class Tools:
        async def __call__(self, call: ParsedCall) -> str:
            await asyncio.sleep(0)
            return "written"

    with Journal(tmp_path / "a.db", "s") as journal:
        ask(calling, journal, "anthropic-messages", "sync-stream")

        async def go() -> Any:
            return await journal.settle(Tools())

        assert str(asyncio.run(go())).count("written") == 3


def test_the_loop_of_the_guide_goes_on_after_a_pause(sim: Simulator, store: Place) -> None:
    """A pause sends the same turns again, and runs no tool."""
    sim.script(
        [
            end("I look it up.", stop="pause_turn"),
            end(CALLS[0], stop="tool_use"),
            end("Done."),
        ]
    )
    ran, stops = list[str](), list[str]()

    def run(call: ParsedCall) -> str:
        ran.append(call.name)
        return "written"

    with Journal(store, "s") as journal:
        while True:
            turns = journal.settle(run)
            turn, _ = ask(sim, journal, "anthropic-messages", "sync-stream", turns=turns)
            stops.append(turn.said.stop_reason)
            if stops[-1] not in {"tool_use", "pause_turn"}:
                break
        assert (stops, ran) == (["pause_turn", "tool_use", "end_turn"], ["Write"])
        assert sim.posts[1].body is not None
        assert sim.posts[1].body["messages"][-1]["role"] == "assistant", "sent again as it was"
