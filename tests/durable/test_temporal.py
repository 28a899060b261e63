"""Temporal's adapter in its own environment for activities: sessions, beats, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import engines
from support.agents import Scripted, Step
from support.engines import ANSWER, PACE, STEPS, Counted, Work

from continuation import Fenced, Journal
from continuation.simulator import Scenario, Simulator

activity = pytest.importorskip("temporalio.activity")
testing = pytest.importorskip("temporalio.testing")
CancelledError = pytest.importorskip("temporalio.exceptions").CancelledError
temporal = pytest.importorskip("continuation.durable.temporal")

CALL = {"id": "c", "name": "Send", "input": {}}
RUN = "test/test-run/test"
either = pytest.mark.parametrize("asynchronous", [False, True])


def environment(beats: list[Any] | None = None, **info: Any) -> Any:
    """Return an environment; `info`: what is other than usual about the activity."""
    env = testing.ActivityEnvironment()
    env.info = replace(env.info, **{"heartbeat_timeout": timedelta(seconds=0.15), **info})
    if beats is not None:
        env.on_heartbeat = lambda *details: beats.append(details)
    return env


def write(env: Any, path: Path, url: str, each: Callable[[], object], asynchronous: bool) -> Any:
    """Have the model write in an activity; `each` is called at each piece."""
    work = Work("temporal", url, "", "")

    async def on_a_loop() -> Any:
        return await engines.write_async(work, temporal.journal(path), each)

    if asynchronous:
        return asyncio.run(env.run(on_a_loop))
    return env.run(lambda: engines.write(work, temporal.journal(path), each))


def test_all_attempts_share_a_session_and_the_last_one_owns_it(tmp_path: Path) -> None:
    """Also where the one before still lives, as one does that was silent for too long."""
    path, sent = tmp_path / "a.db", list[str]()

    def second() -> str:
        with temporal.journal(path) as journal:
            assert journal.fencing_token == 2
            return str(journal.call(CALL, pytest.fail))

    def first() -> None:
        with temporal.journal(path) as journal:
            assert journal.session == RUN

            def send(_: object) -> None:
                sent.append(environment(attempt=2).run(second))

            with pytest.raises(Fenced):
                journal.call(CALL, send)

    environment().run(first)
    assert "may have run" in sent[0]


@pytest.mark.parametrize(
    ("info", "session"),
    [
        ({}, RUN),
        ({"attempt": 7}, RUN),
        ({"activity_id": "2"}, "test/test-run/2"),
        ({"workflow_run_id": "other"}, "test/other/test"),
        (
            {"workflow_id": None, "workflow_run_id": None, "activity_run_id": "own"},
            "None/own/test",
        ),
    ],
)
def test_a_session_is_that_of_one_activity_in_one_run(
    info: dict[str, Any], session: str, tmp_path: Path
) -> None:
    """Another run of a workflow begins to count its activities anew, and asks anew."""

    def name() -> str:
        with temporal.journal(tmp_path / "a.db", save_every=0.01) as journal:
            assert journal.save_every == 0.01
            return str(journal.session)

    assert environment(**info).run(name) == session
    with pytest.raises(RuntimeError, match="Not in activity context"):
        name()


@either
def test_beats_point_into_the_journal_while_the_model_writes(
    asynchronous: bool, quick: Simulator, tmp_path: Path
) -> None:
    beats, before = list[Any](), threading.active_count()
    write(environment(beats), tmp_path / "a.db", quick.url, lambda: None, asynchronous)
    assert {frozenset(beat) for (beat,) in beats} == {frozenset({"session", "turn", "characters"})}
    assert {beat["session"] for (beat,) in beats} == {RUN}
    assert {beat["turn"] for (beat,) in beats} <= {0, 1}
    counts = [beat["characters"] for (beat,) in beats if beat["characters"]]
    assert len(counts) >= 5
    assert counts == sorted(counts)
    until = time.monotonic() + 5
    while threading.active_count() > before + 1:  # the journal's own stays
        assert time.monotonic() < until, "a thread outlives its activity"
        time.sleep(0.01)


@either
def test_beats_come_while_the_model_is_silent(asynchronous: bool, tmp_path: Path) -> None:
    """It thinks for longer than the timeout before anything comes."""
    beats, heard = list[Any](), list[int]()
    with Simulator(Scripted([Step("Short.", STEPS[0].calls)]), Scenario(slow=0.2)) as sim:
        ask = lambda: heard.append(len(beats))  # noqa: E731
        write(environment(beats), tmp_path / "a.db", sim.url, ask, asynchronous)
    assert heard[0] >= 3


@either
def test_a_cancelled_activity_ends_and_its_turn_can_be_gone_on_with(
    asynchronous: bool, quick: Simulator, model: Counted, tmp_path: Path
) -> None:
    path, pieces, env = tmp_path / "a.db", list[int](), environment()

    def each() -> None:
        pieces.append(1)
        if len(pieces) == 100:
            env.cancel()

    with pytest.raises(asyncio.CancelledError if asynchronous else CancelledError):
        write(env, path, quick.url, each, asynchronous)
    assert len(pieces) < 1_000, "what has been received already may be read"
    with Journal(path, RUN) as journal:  # nobody owns it
        assert journal.resume().characters >= 100 * PACE.deltas
    said = write(environment(attempt=2), path, quick.url, lambda: None, asynchronous)
    assert said["text"] == ANSWER
    assert model.said[1] <= len(ANSWER) - 100 * PACE.deltas
