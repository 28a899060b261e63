"""Real processes that are killed: before and after each of their commits, and anywhere.

What is promised stands in design/internals/journal.md; `Session.check` holds it after each kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.agents import Agents, Scripted, Step, Work, lines
from support.killed import execute
from support.postgres import needs_postgres
from support.sdks.formats import FORMATS, request

from continuation import Journal, JournalError
from continuation.history import validate
from continuation.simulator import Scenario, Simulator, ToolUse

STEPS = [
    Step(lines("a", 12), (ToolUse("Write", {"path": "1"}), ToolUse("Write", {"path": "2"}))),
    Step(lines("b", 6), (ToolUse("Ask", {"path": "3"}),)),
    Step(lines("c", 6)),
]
Stores = Callable[[], str | None]
AGENT = "agent"
TURNS = {"gemini": "contents", "openai-responses": "input"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
def stores(request: pytest.FixtureRequest) -> Stores:
    """Returns where the next journal lies: `None`, in a file."""
    if request.param == "sqlite":
        return lambda: None
    databases: Stores = request.getfixturevalue("databases")
    return databases


@pytest.fixture
def scripted() -> Iterator[Simulator]:
    with Simulator(Scripted(STEPS), Scenario(deltas=80, slow=0.002)) as running:
        yield running


@dataclass
class Session:
    """A session over its lives."""

    agents: Agents
    work: Work
    steps: list[Step]
    lives: int = 0
    kills: int = 0
    given: list[str] = field(default_factory=list[str])
    """What the life at hand was given, answer by answer."""

    @classmethod
    def begin(
        cls,
        agents: Agents,
        sim: Simulator,
        folder: Path,
        dialect: str,
        steps: list[Step],
        store: str | None = None,
        **more: Any,
    ) -> Session:
        path = f"{store}&application_name={AGENT}" if store else str(folder / "agent.db")
        effects = folder / "effects"
        effects.touch()
        return cls(agents, Work(dialect, sim.url, path, str(effects), **more), steps)

    def live(self, *, kill_at: int = 0, **changes: Any) -> bool:
        """Let an agent live, or until it has said so many lines; whether it came to its end."""
        told, saved = list[dict[str, Any]](), -1
        agent = self.agents.start(replace(self.work, **changes))
        self.lives += 1
        self.given, shown, due = [], 0, 0
        for line in agent:
            told.append(line)
            match line["kind"]:
                case "asked":
                    self.given.append("")
                    saved, due, shown = -1, 0, 0
                case "text":
                    self.given[-1] += line["text"]
                case "save":
                    shown = len(self.given[-1]) if self.given else 0
                case "end" if line["characters"] >= 0:
                    saved, due = line["characters"], shown
                    assert saved >= due, "what was given before a save is in it"
                case "ended":
                    assert self.given[-1] == line["text"]
            if len(told) == kill_at:
                agent.send()
        assert told, "it did not begin"
        done: bool = told[-1]["kind"] == "done"
        self.kills += not done
        self.check(told)
        return done

    def check(self, told: list[dict[str, Any]]) -> None:
        """After a life: it opens, its history is valid, no tool ran twice or without an intent."""
        for given in self.given:  # nothing is said twice, and nothing is lost between
            assert any(step.text.startswith(given) for step in self.steps)
        ran = [line.split() for line in Path(self.work.effects).read_text().splitlines()]
        paths = [path for path, _ in ran]
        assert len(paths) == len(set(paths)), "a tool ran twice"
        _settled(self.work.path)
        try:
            once = Journal(self.work.path.partition("&")[0], "s", readonly=True)
        except JournalError:
            assert not ran, "a tool ran in a session that is not there"
            return
        turns, waiting = once.history(), once.resume()
        again = Journal(once._target, "s", readonly=True)
        assert (again.history(), again.resume()) == (turns, waiting)
        begun = {key for key, call in once._state.calls.items() if call.number}
        assert {key.removeprefix("s/") for _, key in ran} <= begun, "an effect without an intent"
        key, model = TURNS.get(self.work.dialect, "messages"), request(self.work.dialect, 9, {})
        if turns:
            asked = [*turns, *([] if _ends_asking(turns) else [_question(self.work.dialect)])]
            assert validate({"model": model["model"], key: asked}, live=False) == []
        if told[-1]["kind"] == "done":
            assert waiting.kind == "nothing"
            for step in self.steps:
                assert json.dumps(turns, ensure_ascii=False).count(json.dumps(step.text)[1:-1]) == 1


def _settled(path: str) -> None:
    """Wait until a server has done what its dead client had asked for."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"
    while "://" in path and execute(path.partition("&")[0], query, (AGENT,)) != [(0,)]:
        time.sleep(0.01)


def _ends_asking(turns: list[Any]) -> bool:
    last = turns[-1]
    return last.get("role") in {"user", "tool"} or str(last.get("type")).endswith("_output")


def _question(dialect: str) -> dict[str, Any]:
    told = "And then?"
    return {
        "role": "user",
        **({"parts": [{"text": told}]} if dialect == "gemini" else {"content": told}),
    }


EACH = [
    *zip(["before", "after"] * 2, FORMATS, [False] * 4, strict=True),
    ("after", "anthropic-messages", True),
    ("before", "gemini", True),
]


@pytest.mark.parametrize(("when", "dialect", "settles"), EACH)
def test_killed_at_each_commit(
    when: str,
    dialect: str,
    settles: bool,
    stores: Stores,
    agents: Agents,
    scripted: Simulator,
    tmp_path: Path,
) -> None:
    at, dead = 0, True
    while dead:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        how: Any = {"store": stores(), "save_every": 0.01, "settles": settles}
        session = Session.begin(agents, scripted, folder, dialect, STEPS, **how)
        dead = not session.live(at=at, when=when)
        if dead:  # then it ends where it would have; a second death on the way changes nothing
            session.live(at=at // 2 + 3, when=when)
            assert session.live() or session.live()
    assert at > 15, "there are more commits than these"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end(number: int, agents: Agents, scripted: Simulator, tmp_path: Path) -> None:
    for at in range(4, 16, 2):
        folder = tmp_path / str(at)
        folder.mkdir()
        session = Session.begin(agents, scripted, folder, FORMATS[at % 4], STEPS, save_every=0.01)
        session.live(at=at, signal=number)
        assert session.live()


KILLS = int(os.environ.get("KILLS_EACH", "12"))
"""In each test; with a server a third. `.ci/durable` sets 35, which is more than 500 together."""
LONG = [Step(lines("a", 150), STEPS[0].calls), *STEPS[1:]]


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("dialect", FORMATS)
def test_killed_anywhere(
    dialect: str, asynchronous: bool, thinks: bool, stores: Stores, agents: Agents, tmp_path: Path
) -> None:
    """Up to five times in one answer; then it goes on as if nothing had been."""
    how: dict[str, Any] = {"asynchronous": asynchronous, "thinks": thinks, "settles": thinks}
    rng, kills = random.Random(f"{dialect} {how}"), 0
    most = KILLS // 3 if (first := stores()) else KILLS
    thinking = 60 if thinks else "none"
    with Simulator(Scripted(LONG), Scenario(deltas=60, slow=0.0002, thinking=thinking)) as sim:
        for number in range(10 * most):  # some answers are over before their process is killed
            folder = tmp_path / str(number)
            folder.mkdir()
            session = Session.begin(agents, sim, folder, dialect, LONG, first, **how)
            first = stores()
            for _ in range(5):
                if session.live(kill_at=rng.choice([2, 20, 60, 120, 180, 260])):
                    break
            while not session.live():
                pass
            kills += session.kills
            if kills >= most:
                break
    assert kills >= most
