"""What was learned of limits, in a table that processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from support.postgres import Postgres, needs_postgres
from support.sdks.messages import limits, run
from support.sdks.turn import FAST, cut, end

from continuation.limits import Learned, LearnedFacts
from continuation.limits.learned_postgres import _LOCK, LearnedTableSync
from continuation.policy import Policy
from continuation.simulator import Simulator
from continuation.stores import postgres

pytestmark = [pytest.mark.slow, needs_postgres]
KEY = ("api.example.com", "digest", "model-1")


def until(holds: Callable[[], object]) -> None:
    end_of_patience = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end_of_patience
        time.sleep(0.01)


def begun(url: str) -> Learned:
    """Return what a process knows once it has read the table."""
    learned = Learned()
    before = learned.salt
    LearnedTableSync(url, learned).attach()
    until(lambda: learned.salt != before)
    return learned


def rows(url: str) -> list[Any]:
    with psycopg.connect(url) as other:
        return other.execute(
            "SELECT upstream, credential, model, facts FROM continuation_learned_1"
        ).fetchall()


def test_what_one_has_learned_another_begins_with(databases: Callable[[], str]) -> None:
    url = databases()
    first = begun(url)
    first.learn(KEY, ceiling=64_000)
    until(lambda: rows(url))
    first.learn(KEY, no_prefill=True)
    until(lambda: "no_prefill" in rows(url)[0][3])
    second = begun(url)
    until(lambda: second.knows(KEY))
    assert second.get(KEY) == LearnedFacts(ceiling=64_000, no_prefill=True)
    assert first.salt == second.salt
    assert first.digest("sk-secret") == second.digest("sk-secret")


def test_who_has_learned_something_reads_what_others_have(databases: Callable[[], str]) -> None:
    url = databases()
    first, second = begun(url), begun(url)
    first.learn(KEY, ceiling=64_000)
    until(lambda: rows(url))
    assert not second.knows(KEY)
    second.learn(("api.example.com", "digest", "model-2"), ceiling=32_000)
    until(lambda: second.knows(KEY))
    until(lambda: len(rows(url)) == 2)


def test_what_was_forgotten_is_not_learned_again(databases: Callable[[], str]) -> None:
    url = databases()
    first = begun(url)
    first.learn(KEY, needed=9_000)
    until(lambda: rows(url))
    first.learn(KEY, needed=None)
    until(lambda: rows(url)[0][3] == "{}")
    assert first.get(KEY).needed is None
    assert begun(url).get(KEY).needed is None


def test_what_cannot_be_true_is_passed_over(databases: Callable[[], str]) -> None:
    url = databases()
    begun(url)
    with psycopg.connect(url) as other:
        for model, facts in (("a", "{"), ("b", '{"ceiling": "many"}'), ("c", '{"ceiling": 5000}')):
            statement = "INSERT INTO continuation_learned_1 VALUES ('x', 'y', %s, %s)"
            other.execute(statement, (model, facts))
    learned = begun(url)
    until(lambda: learned.knows(("x", "y", "c")))
    assert learned.get(("x", "y", "b")) == LearnedFacts()
    assert not learned.knows(("x", "y", "a"))


def test_a_server_that_is_silent_is_not_waited_for(
    databases: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = databases()
    monkeypatch.setattr(postgres, "SILENT", 0.3)
    with psycopg.connect(url) as holder:
        postgres.lock(holder, _LOCK)
        LearnedTableSync(url, learned := Learned()).attach()
        until(lambda: "learned facts not shared" in caplog.text)
        assert "said nothing" in caplog.text
    before = learned.salt
    learned.learn(KEY, ceiling=64_000)
    until(lambda: learned.salt != before)


def test_a_turn_waits_for_no_table(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    """The server hangs, and is gone: whole answers all the same."""
    with Postgres() as server:
        server.freeze()
        policy = Policy(learned_file=server.url(), backoff_seconds=0)
        begin = time.monotonic()
        sim.script([cut("One, "), end("One, two.")])
        assert run(sim, "sync", policy=policy).said.content[0].text == "One, two."
        assert time.monotonic() - begin < 5
        assert len(limits(sim)) == 2
        server.thaw()
    assert FAST.learned_file == ""
