"""`refused = "fallback"`: Anthropic sends a refused request to another model by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.sdks import messages
from support.sdks.turn import FAST, HOWS, How, body_of, cut, end, play

from continuation.simulator import Raw, Reply, Simulator
from continuation.types import Outcome

FALLBACK = replace(FAST, refused="fallback")
BETA = "server-side-fallback-2026-07-01"
SEAM = Raw({"type": "fallback", "from": {"model": "claude-opus-5"}, "to": {"model": "other"}})


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as started:
        yield started


@pytest.mark.parametrize("how", HOWS)
class TestARefusedRequest:
    def test_the_server_is_asked_to_fall_back(self, simulator: Simulator, how: How) -> None:
        simulator.script([end("One, ", SEAM, "two.")])
        ran = play(messages.Ran(), how, simulator, messages.ask(), FALLBACK)
        (post,) = simulator.posts
        assert body_of(post)["fallbacks"] == "default"
        assert BETA in post.headers["anthropic-beta"]
        assert (ran.text, ran.told.outcome) == ("One, two.", Outcome.COMPLETE)

    def test_a_recovery_asks_for_it_too(self, simulator: Simulator, how: How) -> None:
        simulator.script([cut("One, "), cut("One, two, "), end("three.")])
        ran = play(messages.Ran(), how, simulator, messages.ask(), FALLBACK)
        assert ran.told.outcome is Outcome.HEALED
        assert [body_of(post).get("fallbacks") for post in simulator.posts] == ["default"] * len(
            simulator.posts
        )
        assert all(BETA in post.headers["anthropic-beta"] for post in simulator.posts)

    def test_a_server_that_does_not_know_it_gets_the_callers_request(
        self, simulator: Simulator, how: How
    ) -> None:
        words = "fallbacks: Extra inputs are not permitted"
        simulator.script([Reply(status=400, error=("invalid_request_error", words)), end("One.")])
        ran = play(messages.Ran(), how, simulator, messages.ask(), FALLBACK)
        assert ran.text == "One."
        first, second = simulator.posts
        assert "fallbacks" in body_of(first)
        assert "fallbacks" not in body_of(second)
        assert BETA not in second.headers.get("anthropic-beta", "")

    def test_the_callers_own_choice_stays(self, simulator: Simulator, how: How) -> None:
        own = [{"model": "claude-sonnet-5"}]
        asked = messages.ask(extra_body={"fallbacks": own}, extra_headers={"anthropic-beta": "a-1"})
        simulator.script([end("One.")])
        play(messages.Ran(), how, simulator, asked, FALLBACK)
        (post,) = simulator.posts
        assert body_of(post)["fallbacks"] == own
        assert post.headers["anthropic-beta"] == "a-1"

    def test_if_the_other_model_refuses_too_it_is_reported(
        self, simulator: Simulator, how: How
    ) -> None:
        simulator.script([end("One, ", stop="refusal")])
        ran = play(messages.Ran(), how, simulator, messages.ask(), FALLBACK)
        assert (ran.text, ran.told.ending) == ("One, ", "refused")
        assert ran.told.outcome is Outcome.INCOMPLETE
        assert len(simulator.posts) == 1


def test_other_betas_of_the_caller_stay(simulator: Simulator) -> None:
    simulator.script([end("One.")])
    asked = messages.ask(extra_headers={"anthropic-beta": "a-1,b-2"})
    play(messages.Ran(), "sync", simulator, asked, FALLBACK)
    assert simulator.posts[0].headers["anthropic-beta"] == f"a-1,b-2,{BETA}"
