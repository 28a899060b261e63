"""Workers of both engines that are killed, or stopped and taken for dead."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.engines import ANSWER, Counted, Work, Worker, killed_twice

from continuation.simulator import Simulator

pytestmark = pytest.mark.slow

ENGINES = ("temporal", "temporal, PostgreSQL", "dbos", "dbos, PostgreSQL")
"""In PostgreSQL is the journal, and what DBOS knows; else in SQLite."""
each_engine = pytest.mark.parametrize(
    ("engine", "server"), [(name, name) for name in ENGINES], indirect=["server"], ids=ENGINES
)


@pytest.fixture
def work(
    engine: str, server: str, provider: Simulator, request: pytest.FixtureRequest, tmp_path: Path
) -> Work:
    engine, _, database = engine.partition(", ")
    pytest.importorskip("temporalio" if engine == "temporal" else "dbos")
    journal = request.getfixturevalue("databases")() if database else str(tmp_path / "agent.db")
    effects = tmp_path / "effects"
    effects.touch()
    return Work(engine, provider.url, server, str(effects), journal, name=tmp_path.name)


@each_engine
@pytest.mark.parametrize("asynchronous", [False, True])
def test_killed_in_mid_turn_and_while_a_tool_runs(
    work: Work, model: Counted, provider: Simulator, asynchronous: bool
) -> None:
    work.asynchronous = asynchronous
    lives = killed_twice(work, model, provider, 15_000)
    assert lives.exact
    assert lives.again <= 0.05 * lives.shown
    assert lives.runs == 1
    assert "may have run" in lives.result


@each_engine
def test_killed_before_the_engine_hears_of_the_answer(work: Work, model: Counted) -> None:
    work.dies = True
    with Worker(work) as first:
        first.until("answered")
        first.ended()
    work.dies = False
    with Worker(work) as second:
        assert second.until("done")["text"] == second.shown == ANSWER
    assert model.said == [len(ANSWER)], "it is not asked again"


@each_engine
def test_stopped_and_taken_for_dead(work: Work, model: Counted) -> None:
    """The next one does not wait for its lease; the one that wakes up writes nothing."""
    with Worker(work) as zombie:
        zombie.until("text", 15_000)
        zombie.send(signal.SIGSTOP)
        with Worker(work) as second:
            begun = second.until("begun")
            second.until("text")
            zombie.send(signal.SIGCONT)
            assert second.until("done")["text"] == ANSWER
        assert begun["token"] > 1
        assert zombie.until("done")["text"] == ANSWER, "it is told the other one's"
    assert model.said[1] <= len(ANSWER) - 0.95 * 15_000
    assert Path(work.effects).read_text() == "sent\n"
