"""Continuation tokens: nothing is generated twice, and the SDK's own loop is left to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google import genai
from google.genai import types
from support.sdks.gemini import LONG, connect, limits, run
from support.sdks.turn import BOTH, FAST, How, body_of
from support.telling import telling

import continuation
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse
from continuation.types import Outcome

TELLING = telling(800)
LONGER = telling(6000)


def healed(ran: Any) -> bool:
    return (ran.text, ran.reasons) == (TELLING, ["STOP"])


@pytest.mark.parametrize("how", BOTH)
def test_a_token_goes_on_with_the_same_request_and_a_raised_limit(how: How) -> None:
    with Simulator(answer=LONGER, scenario=Scenario(deltas=96)) as long:
        ran = run(long, how, model=LONG, limit=300)
        assert (ran.text, ran.reasons) == (LONGER, ["STOP"])
        first, second = (body_of(post) for post in long.posts)
        assert second.pop("continuationToken")
        assert first.pop("generationConfig") == {"maxOutputTokens": 300}
        assert second.pop("generationConfig")["maxOutputTokens"] > 1_000_000
        assert first == second
        assert [a.mode for a in ran.told.attempts] == ["first", "native_continuation"]
        assert [a.discarded for a in ran.told.attempts] == [False, False]
        assert long.posts[1].path.endswith(":streamGenerateContent")


def test_the_text_of_all_hops_is_one_part_and_no_token_is_left() -> None:
    with Simulator(answer=LONGER) as long:
        ran = run(long, "sync", model=LONG, limit=300)
    assert [part.text for part in ran.parts if part.text] == [LONGER]
    candidates = ran.chunks[0].candidates
    assert candidates is not None
    assert candidates[0].continuation_token is None


@pytest.mark.parametrize("checkpoint", [None, 3])
@pytest.mark.parametrize("attempt", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_stream_may_drop_at_any_event_of_any_hop(attempt: int, checkpoint: int | None) -> None:
    """Event 0 is the SDK's own: an error before the first event passes."""
    for drop in range(1, 9):
        faults = {attempt: drop}
        scenario = Scenario(deltas=40, hop=60, drop=faults, checkpoint=checkpoint)
        with Simulator(answer=telling(1500), scenario=scenario) as sim:
            ran = run(sim, "sync-stream", model=LONG, limit=300)
            assert (ran.text, ran.reasons) == (telling(1500), ["STOP"]), drop


@pytest.mark.parametrize("event", range(1, 10))
def test_a_stream_that_drops_behind_a_checkpoint_goes_on_from_it(event: int) -> None:
    """Where text came after it, the model has to be asked: it would say that text again."""
    scenario = Scenario(deltas=40, checkpoint=3, drop={1: event})
    with Simulator(answer=LONGER, scenario=scenario) as sim:
        ran = run(sim, "async-stream", model=LONG, limit=3000)
        assert (ran.text, ran.reasons) == (LONGER, ["STOP"])
        behind = event % 3 == 0
        modes = ["first", "native_continuation" if behind else "recovery"]
        assert [a.mode for a in ran.told.attempts] == modes
        first, second = (body_of(post) for post in sim.posts)
        assert ("continuationToken" in second) is behind
        if behind:
            second.pop("continuationToken")
            assert first == second


@pytest.mark.parametrize("drops", [1, 2, 3, 4])
@pytest.mark.parametrize("how", BOTH)
def test_a_hop_that_brings_nothing_is_asked_for_by_the_same_token(how: How, drops: int) -> None:
    scenario = Scenario(deltas=240, drop={2 + n: 0 for n in range(drops)})
    with Simulator(answer=LONGER, scenario=scenario) as sim:
        ran = run(sim, how, model=LONG, limit=300)
        modes = [attempt.mode for attempt in ran.told.attempts]
        assert modes[1:] == ["native_continuation"] * min(drops + 1, 4)
        assert len({body_of(post).get("continuationToken") for post in sim.posts[1:]}) == 1
        if drops < 4:
            assert (ran.text, ran.reasons) == (LONGER, ["STOP"])
        else:
            assert LONGER.startswith(ran.text)
            assert (ran.told.outcome, ran.reasons) == (Outcome.PARTIAL, ["STOP"])


def test_an_error_inside_a_hop_is_a_drop() -> None:
    for event in range(1, 6):
        scenario = Scenario(deltas=240, error_event={2: event})
        with Simulator(answer=LONGER, scenario=scenario) as sim:
            ran = run(sim, "sync-stream", model=LONG, limit=300)
            assert (ran.text, ran.reasons) == (LONGER, ["STOP"]), event


# --- the SDK's loop above us ------------------------------------------------------------------


@pytest.mark.parametrize("how", BOTH)
def test_the_sdks_own_loop_goes_on_above_us(how: How) -> None:
    with Simulator(answer=TELLING, scenario=Scenario(hop=100)) as hops:
        ran = run(hops, how, model=LONG, limit=600)
        assert healed(ran)
        assert limits(hops) == [600, 600], "each hop is the SDK's"
        assert ran.told.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("how", BOTH)
def test_without_the_sdks_loop_a_pause_is_the_callers_to_see(how: How) -> None:
    with Simulator(answer=TELLING, scenario=Scenario(hop=100)) as hops:
        ran = run(hops, how, model=LONG, limit=600, automatic_continuation=False)
        assert ran.reasons == ["CONTINUATION"]
        assert ran.text == TELLING[:400]
        assert len(hops.posts) == 1


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("how", BOTH)
def test_later_hops_of_ours_are_not_shown_to_the_sdk(how: How, automatic: bool) -> None:
    with Simulator(answer=LONGER, scenario=Scenario(hop=400, deltas=96)) as sim:
        ran = run(sim, how, model=LONG, limit=300, automatic_continuation=automatic)
        assert (ran.text, ran.reasons) == (LONGER, ["STOP"])
        assert [a.mode for a in ran.told.attempts][:1] == ["first"]
        assert {a.mode for a in ran.told.attempts[1:]} == {"native_continuation"}


@pytest.mark.parametrize("how", ["sync-stream", "async-stream"])
def test_the_sdk_never_repeats_what_came_after_a_checkpoint(how: How) -> None:
    """Alone it goes on from its checkpoint, and says twice what it had yielded since."""
    scenario = Scenario(deltas=40, hop=400, checkpoint=3, drop={1: 5})
    with Simulator(answer=TELLING, scenario=scenario) as sim:
        assert healed(run(sim, how, model=LONG, limit=600))


# --- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", BOTH)
def test_a_call_comes_with_the_hop_that_ends_it(how: How) -> None:
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="Write")])
    args = {"path": "a.txt", "content": telling(2400)}
    with Simulator() as sim:
        reply = Reply([Text("I write. "), ToolUse("Write", args)])
        sim.script([reply, reply])
        ran = run(sim, how, model=LONG, limit=300, tools=[tool])
        assert [call.args for call in ran.calls] == [args]
        assert (ran.text, ran.reasons) == ("I write. ", ["STOP"])


# --- event loops ------------------------------------------------------------------------------


@pytest.mark.usefixtures("loops_left_behind")
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_event_loops_in_a_row_share_a_client() -> None:
    async def turn(client: genai.Client) -> str:
        config: Any = {"max_output_tokens": 300}
        answer = await client.aio.models.generate_content(model=LONG, contents="Go.", config=config)
        said = answer.text or ""
        stream = await client.aio.models.generate_content_stream(
            model=LONG, contents="Go.", config=config
        )
        return said + "".join([chunk.text or "" async for chunk in stream])

    with Simulator(LONGER, Scenario(deltas=96)) as sim, connect(sim) as bare:
        client = continuation.wrap(bare, config=FAST)
        for _ in range(2):
            assert asyncio.run(turn(client)) == LONGER * 2
