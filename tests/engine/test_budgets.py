"""What a turn may spend, and that no policy and no provider can make it spend more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks.messages import NEW, Ran, ask, limits, run
from support.sdks.turn import BOTH, FAST, How, play_all
from support.spending import ERRORS, LIMIT, repeat, spend

import continuation
from continuation import Policy
from continuation.simulator import Reply as Said
from continuation.simulator import Scenario, Simulator, Text, Thinking, ToolUse
from continuation.types import Outcome

CEILING = 4000


# --- the bounds, whatever the policy ------------------------------------------------------------

MOVES = ["cut", "cut", "cut", "call", "empty", "drop", "end", "lost", *ERRORS]
POLICIES = st.builds(
    Policy,
    max_recoveries=st.integers(0, 10),
    max_drop_recoveries=st.integers(0, 10),
    max_attempts=st.integers(1, 50),
    max_retries=st.integers(0, 10),
    max_turn_seconds=st.floats(1, 600),
    max_turn_output_tokens=st.integers(1, 30_000),
    model_max_output_tokens=st.sampled_from([0, 0, 1200, 4000, 64_000]),
    initial_limit=st.sampled_from(["caller", "ceiling"]),
    truncated_tool_call=st.sampled_from(["explain", "drop", "keep", "retry_smaller"]),
    on_failure=st.sampled_from(["stop", "truncated"]),
    escalate=st.booleans(),
    models_endpoint=st.booleans(),
    prefill=st.booleans(),
)


@given(
    policy=POLICIES,
    moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=30),
    stream=st.booleans(),
    seconds=st.floats(0, 300),
)
@settings(max_examples=examples(400))
def test_no_policy_and_no_provider_makes_a_turn_pass_its_bounds(
    policy: Policy, moves: Sequence[str], stream: bool, seconds: float
) -> None:
    spent = spend(repeat(*moves), policy, stream=stream, seconds=seconds)
    assert len(spent.begun) <= policy.max_attempts
    assert spent.generated <= max(LIMIT, policy.max_turn_output_tokens)
    raised = int(policy.initial_limit == "ceiling") * 2
    late = [at for at in spent.begun[1 + raised :] if at >= policy.max_turn_seconds]
    assert late == []
    assert spent.told.outcome is not None


@given(moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=30), stream=st.booleans())
@settings(max_examples=examples(300))
def test_the_defaults_are_bounded_as_the_page_on_tuning_says(
    moves: Sequence[str], stream: bool
) -> None:
    spent = spend(repeat(*moves), Policy(model_max_output_tokens=CEILING), stream=stream)
    assert len(spent.begun) <= 12
    assert spent.generated <= LIMIT + 7 * CEILING


def test_the_bound_on_tokens_of_the_defaults_is_reached() -> None:
    moves = repeat("cut", "cut", "drop", "cut", "drop", "cut", "drop", "cut")
    spent = spend(moves, Policy(model_max_output_tokens=CEILING), stream=False)
    assert spent.generated == LIMIT + 7 * CEILING
    assert spent.told.outcome is Outcome.TRUNCATED


# --- against the simulator ----------------------------------------------------------------------

ASKING = 350
"""Tokens of a recovery prompt, its anchor included, at most."""
ENDLESS = "".join(f"{n}: der Text geht weiter, und weiter, und weiter.\n" for n in range(9000))


@pytest.mark.parametrize("how", BOTH)
def test_the_worst_case_without_drops_is_what_the_page_on_tuning_says(how: How) -> None:
    with Simulator(ENDLESS, Scenario(ceiling=CEILING)) as sim:
        ran = run(sim, how, policy=Policy(model_max_output_tokens=CEILING))
    streamed = how.endswith("stream")
    onward = 3
    assert [a.limit for a in ran.told.attempts] == [LIMIT, *[CEILING] * (onward + (not streamed))]
    billed, first = ran.told.billed, ran.told.attempts[0].usage
    assert first is not None
    assert first.prompt is not None
    assert billed.prompt is not None
    worst = LIMIT + onward * CEILING if streamed else LIMIT + (1 + onward) * CEILING
    assert billed.output == worst
    held = [LIMIT + n * CEILING if streamed else (n + 1) * CEILING for n in range(onward)]
    attempts = len(ran.told.attempts)
    asking = ASKING * (1 + 2 + 3)  # the recovery prompts: each attempt repeats those before it
    assert billed.prompt <= attempts * first.prompt + sum(held) + asking
    assert ran.said.stop_reason == "max_tokens"


@pytest.mark.parametrize("how", BOTH)
def test_the_worst_case_of_a_remembered_limit_is_what_the_page_on_tuning_says(how: How) -> None:
    with Simulator(ENDLESS, Scenario(ceiling=CEILING)) as sim:
        runs = [Ran(), Ran()]
        play_all(runs, how, sim, [ask()] * 2, Policy(model_max_output_tokens=CEILING))
    assert [a.limit for a in runs[1].told.attempts] == [CEILING] * 4
    assert runs[1].told.billed.output == 4 * CEILING


def test_an_answer_in_hand_costs_what_it_cost() -> None:
    """The strictest budget: the caller's own attempt, and nothing else."""
    with Simulator(ENDLESS, Scenario(ceiling=CEILING)) as sim:
        ran = run(sim, "sync", policy=Policy(max_turn_output_tokens=LIMIT))
    assert ran.told.billed.output == LIMIT
    assert (ran.told.outcome, ran.told.reason) == (Outcome.PARTIAL, "max_turn_output_tokens spent")


# --- key by key ---------------------------------------------------------------------------------


def cut(*blocks: Any, **more: Any) -> Said:
    return Said(blocks=blocks or [Text("One, ")], stop="max_tokens", **more)


def used(output: int, *blocks: Any) -> Said:
    return cut(*blocks, usage={"output_tokens": output})


def test_the_last_limit_shrinks_to_what_the_token_budget_leaves(sim: Simulator) -> None:
    sim.script([used(1000), used(4000), Said([Text("two.")])])
    ran = run(sim, "sync", policy=Policy(model_max_output_tokens=4000, max_turn_output_tokens=6500))
    assert limits(sim) == [1000, 4000, 1500]
    assert ran.told.outcome is Outcome.HEALED


def test_an_attempt_that_could_not_say_more_than_the_first_is_not_begun(sim: Simulator) -> None:
    sim.script([used(1000), used(4000), Said([Text("two.")])])
    ran = run(sim, "sync", policy=Policy(model_max_output_tokens=4000, max_turn_output_tokens=5999))
    assert limits(sim) == [1000, 4000]
    assert ran.told.reason == "max_turn_output_tokens spent"


def test_an_escalation_that_the_token_budget_makes_pointless_is_a_recovery(sim: Simulator) -> None:
    sim.script([used(1000), Said([Text("two.")])])
    ran = run(sim, "sync", policy=Policy(max_turn_output_tokens=2100))
    assert limits(sim) == [1000, 1100]
    assert ran.text == "One, two."


def test_a_dropped_stream_counts_with_all_its_limit_allowed(sim: Simulator) -> None:
    dropped = Said([Text("One, two, three, four.")], drop=4, deltas=4)
    sim.script([dropped, Said([Text("five.")])])
    ran = run(sim, "sync-stream", policy=Policy(max_turn_output_tokens=1999))
    assert (limits(sim), ran.told.reason) == ([1000], "max_turn_output_tokens spent")


def test_a_remembered_limit_is_never_above_the_token_budget() -> None:
    policy = Policy(initial_limit="ceiling", max_turn_output_tokens=1500)
    assert spend(repeat("end"), policy).limits == [1500]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_refused_first_limit_counts_as_an_attempt(most: int) -> None:
    sent = spend(repeat("ceiling"), Policy(initial_limit="ceiling", max_attempts=most)).limits
    assert len(sent) == most
    assert (sent == [LIMIT]) is (most == 1), "a single attempt is the caller's own"


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        ({"policy": {"max_turn_seconds": 100}}, "max_turn_seconds spent"),
        ({"stream": False, "timeout": 100}, "the caller's timeout is spent"),
    ],
    ids=["max_turn_seconds", "the timeout of a call that is not streamed"],
)
def test_no_attempt_begins_and_no_wait_ends_after_the_last_second(
    bound: dict[str, Any], reason: str
) -> None:
    policy = Policy(model_max_output_tokens=CEILING, **bound.get("policy", {}))
    how = {name: value for name, value in bound.items() if name != "policy"}
    spent = spend(repeat("cut"), policy, seconds=40, **how)
    assert spent.begun == [0, 40, 80]
    assert (spent.told.outcome, spent.told.reason) == (Outcome.PARTIAL, reason)
    spent = spend(repeat("cut", "429 later"), policy, seconds=20, **how)
    # 20 s + 20 s, a wait of 50 s, 20 s: another wait would end too late.
    assert (spent.begun, spent.waits) == ([0, 20, 90], [50])


@pytest.mark.parametrize(("stream", "timeout"), [(True, 100.0), (False, 600.0), (False, None)])
def test_a_timeout_that_nobody_chose_bounds_nothing(stream: bool, timeout: float | None) -> None:
    policy = Policy(model_max_output_tokens=CEILING)
    spent = spend(repeat("cut"), policy, stream=stream, seconds=250, timeout=timeout)
    assert len(spent.begun) == (4 if stream else 5)


def test_max_attempts_counts_whatever_is_sent() -> None:
    policy = Policy(max_attempts=4, model_max_output_tokens=CEILING, max_retries=10)
    spent = spend(repeat("cut", "429"), policy)
    assert len(spent.begun) == 4
    assert spent.told.outcome is Outcome.PARTIAL


def test_the_models_endpoint_is_asked_after_a_cut_once_and_not_for_a_spent_turn(
    sim: Simulator,
) -> None:
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        client = continuation.wrap(bare, config=FAST)
        sim.script([Said([Text("All.")]), cut(), cut()])
        client.messages.create(**ask())
        with continuation.override(max_attempts=1):
            client.messages.create(**ask())
        gets = [r for r in sim.requests if r.method == "GET"]
        assert gets == []
        sim.reset()
        sim.script([cut(), Said([Text("All.")]), cut(), Said([Text("All.")])])
        client.messages.create(**ask())
        client.messages.create(**ask())
        assert [r.path for r in sim.requests if r.method == "GET"] == [f"/v1/models/{NEW}"]


@pytest.mark.parametrize(
    ("blocks", "what"),
    [
        ([Thinking("Hm", signature=None)], "thinking"),
        ([Text("I write. "), ToolUse("Write", {"a": "b" * 60}, cut=10)], "call"),
    ],
)
def test_what_cannot_be_recovered_is_bounded_too(
    sim: Simulator, blocks: list[Any], what: str
) -> None:
    sim.script([cut(*blocks)] * 20)
    ran = run(sim, "sync-stream", policy=FAST)
    assert len(sim.posts) == 2, what
    assert ran.told.outcome is Outcome.TRUNCATED
