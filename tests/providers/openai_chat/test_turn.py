"""Every row of the decision table for Chat Completions, streamed and not, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from support.sdks.chat import CEILING, LIMIT, WRITE, cut, dumps, end, limits, plays, run, written
from support.sdks.turn import FAST, HOWS, How, body_of

from continuation import Policy, Retrying
from continuation.simulator import Raw, Reply, Simulator, Text, Thinking, ToolCall
from continuation.types import Outcome

pytestmark = pytest.mark.parametrize("how", HOWS)

ARGUMENTS = dumps(WRITE)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def streamed(how: How) -> bool:
    return how.endswith("stream")


# --- not ours, not cut ----------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["refusal", "novel", "repetition"])
def test_an_answer_that_is_not_cut_is_returned_as_it_is(
    sim: Simulator, how: How, stop: str
) -> None:
    sim.script([end("All of it.", stop=stop)])
    ran = run(sim, how)
    finish = {"refusal": "content_filter"}.get(stop, stop)
    assert (ran.text, ran.finish) == ("All of it.", finish)
    assert ran.told.outcome is Outcome.COMPLETE
    assert len(sim.posts) == 1


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_small_limit_is_a_budget(sim: Simulator, how: How, name: str) -> None:
    sim.script([cut("Yes")])
    limit: dict[str, Any] = {"max_tokens": None, name: 16}
    ran = run(sim, how, **limit)
    assert (ran.text, ran.finish) == ("Yes", "length")
    assert ran.told.outcome is Outcome.UNTOUCHED
    assert "leave_limits_below" in str(ran.told.reason)
    assert len(sim.posts) == 1


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"n": 2}, "choices"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 3}, "logprobs"),
        (
            {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}},
            "text",
        ),
    ],
)
def test_what_cannot_be_joined_is_left_alone(
    sim: Simulator, how: How, asked: dict[str, Any], reason: str
) -> None:
    sim.script([cut("As far as")])
    ran = run(sim, how, **asked)
    assert ran.finish == "length"
    assert ran.told.outcome is Outcome.UNTOUCHED
    assert reason in str(ran.told.reason)
    assert len(sim.posts) == 1


def test_one_choice_said_aloud_is_one_choice(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), end("three.")])
    ran = run(sim, how, n=1, logprobs=False, max_tokens=CEILING)
    assert ran.text == "One, two, three."


def test_an_error_of_the_first_attempt_is_unchanged(sim: Simulator, how: How) -> None:
    sim.script([Reply(status=400, error=("invalid_request_error", "bad thing"))])
    ran = run(sim, how)
    assert isinstance(ran.error, openai.BadRequestError)
    assert "bad thing" in str(ran.error)
    assert len(sim.posts) == 1


# --- a forced call ----------------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "Write", "parameters": {"type": "object"}}}]
FORCES: list[Any] = [
    "required",
    {"type": "function", "function": {"name": "Write"}},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS}},
]


@pytest.mark.parametrize("choice", FORCES, ids=["required", "function", "allowed"])
def test_a_forced_call_that_was_cut_is_escalated(sim: Simulator, how: How, choice: Any) -> None:
    sim.script([cut(written(30)), end(written(), stop="tool_use")])
    ran = run(sim, how, tools=TOOLS, tool_choice=choice)
    assert ran.calls == [ARGUMENTS]
    assert limits(sim) == [LIMIT, CEILING]


@pytest.mark.parametrize(
    "policy", [FAST, Policy(truncated_tool_call="retry_smaller")], ids=["plain", "retry_smaller"]
)
@pytest.mark.parametrize("said", [written(30), Text("I could also")], ids=["call", "text"])
def test_a_forced_call_at_the_ceiling_is_asked_for_no_more(
    sim: Simulator, how: How, policy: Policy, said: Any
) -> None:
    sim.script([cut(said)])
    ran = run(sim, how, policy=policy, max_tokens=CEILING, tools=TOOLS, tool_choice="required")
    assert (ran.calls, ran.finish) == ([], "length")
    assert len(sim.posts) == 1


# --- at the output limit --------------------------------------------------------------------


def test_below_the_ceiling_an_unshown_answer_is_escalated(sim: Simulator, how: How) -> None:
    if streamed(how):
        plays(sim, "deepseek")  # which shows what it thinks
        sim.script([cut(Thinking("Hm")), end("Whole.")])
    else:
        sim.script([cut("Who"), end("Whole.")])
    ran = run(sim, how)
    assert (ran.text, ran.finish) == ("Whole.", "stop")
    assert limits(sim) == [LIMIT, CEILING]
    assert ran.told.outcome is Outcome.HEALED
    assert [a.discarded for a in ran.told.attempts] == [True, False]


def test_a_regenerated_text_that_differs_gives_only_its_calls(sim: Simulator, how: How) -> None:
    again = end("Let me write.", written(), stop="tool_use")
    sim.script([cut("I write it now. ", written(30)), again])
    ran = run(sim, how)
    assert ran.text == ("I write it now. " if streamed(how) else "Let me write.")
    assert ran.calls == [ARGUMENTS]


def test_several_calls_come_from_one_answer_only(sim: Simulator, how: How) -> None:
    read = ToolCall("Read", {"path": "b.txt"})
    sim.script(
        [
            cut("Two things. ", read, written(30)),
            end("Two things. ", read, written(), stop="tool_use"),
        ]
    )
    ran = run(sim, how)
    assert ran.text == "Two things. "
    assert ran.calls == [dumps({"path": "b.txt"}), ARGUMENTS]
    ids = [call.id for call in ran.message.tool_calls]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (Policy(truncated_tool_call="drop"), 0),
        (Policy(truncated_tool_call="keep"), 1),
    ],
)
def test_a_call_cut_at_the_ceiling_is_never_recovered(
    sim: Simulator, how: How, policy: Policy, calls: int
) -> None:
    sim.script([cut("I write it. ", written(30))])
    ran = run(sim, how, policy=policy, max_tokens=CEILING)
    assert (len(ran.calls), ran.finish) == (calls, "length")
    assert ran.text.startswith("I write it. ")
    assert "Write" not in ran.text
    assert ran.told.outcome is Outcome.TRUNCATED
    assert len(sim.posts) == 1


def test_a_cut_call_alone_leaves_no_empty_message(sim: Simulator, how: How) -> None:
    sim.script([cut(written(30))])
    ran = run(sim, how, policy=Policy(truncated_tool_call="drop"), max_tokens=CEILING)
    assert ran.text
    assert ran.calls == []


def test_guidance_asks_for_smaller_pieces(sim: Simulator, how: How) -> None:
    small = ToolCall("Write", {"path": "a.txt", "content": "hello"})
    sim.script([cut("I write it. ", written(30)), end("In pieces.", small, stop="tool_use")])
    ran = run(sim, how, policy=Policy(truncated_tool_call="retry_smaller"), max_tokens=CEILING)
    assert len(ran.calls) == 1
    assert ran.finish == "tool_calls"
    last = body_of(sim.posts[1])["messages"][-1]
    assert (last["role"], "Write" in last["content"]) == ("user", True)
    assert len(sim.posts) == 2


def test_whole_calls_at_the_ceiling_are_returned(sim: Simulator, how: How) -> None:
    # Argument text comes raw in a JSON body as well: it shows that the last call is whole.
    sim.script([cut(ToolCall("Read", {"path": "b"}), written())])
    ran = run(sim, how, max_tokens=CEILING)
    assert len(ran.calls) == 2
    assert ran.finish == "length"
    assert len(sim.posts) == 1


def test_thinking_that_eats_all_at_the_ceiling_stops(sim: Simulator, how: How) -> None:
    plays(sim, "deepseek")
    sim.script([cut(Thinking("Hm " * 50))])
    ran = run(sim, how, max_tokens=CEILING)
    assert (ran.text, ran.finish) == ("", "length")
    assert "thinking" in str(ran.told.reason)
    assert len(sim.posts) == 1


def test_three_recoveries_and_then_the_real_reason(sim: Simulator, how: How) -> None:
    sim.script([cut(f"Part {n} is here, ") for n in range(9)])
    ran = run(sim, how)
    calls = 4 if streamed(how) else 5
    assert len(sim.posts) == calls
    assert ran.finish == "length"
    assert ran.told.outcome is Outcome.TRUNCATED
    kept = range(calls) if streamed(how) else range(1, calls)
    assert ran.text == "".join(f"Part {n} is here, " for n in kept)


def test_a_cut_call_in_a_recovery_ends_it(sim: Simulator, how: How) -> None:
    sim.script(
        [
            *([] if streamed(how) else [cut("dropped")]),
            cut("One fine day, "),
            cut("two of us "),
            cut("went. ", written(9)),
        ]
    )
    ran = run(sim, how)
    assert ran.text.startswith("One fine day, two of us went. ")
    assert ran.calls == []
    assert len(sim.posts) == (3 if streamed(how) else 4)


# --- what fails -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_recovery_is_a_synthetic_stop(sim: Simulator, how: How, status: int) -> None:
    sim.script([cut("What we hold "), *[Reply(status=status)] * 3])
    ran = run(sim, how, max_tokens=CEILING)
    assert (ran.text, ran.finish) == ("What we hold ", "stop")
    assert (ran.told.outcome, ran.told.reason) == (Outcome.PARTIAL, "recovery failed")
    assert ran.told.synthetic
    assert str(status) in str(ran.told.error)
    assert len(sim.posts) == 4


def test_on_failure_truth_tells_the_truth(sim: Simulator, how: How) -> None:
    sim.script([cut("What we hold "), Reply(status=400)])
    ran = run(sim, how, policy=Policy(on_failure="truncated"), max_tokens=CEILING)
    assert ran.finish == "length"


def test_a_retried_recovery_succeeds(sim: Simulator, how: How) -> None:
    wait = Reply(status=429, headers={"retry-after-ms": "1"})
    sim.script([cut("One, two, "), wait, Reply(status=503), end("three.")])
    ran = run(sim, how, max_tokens=CEILING)
    assert ran.text == "One, two, three."


def test_a_failed_escalation_goes_on_from_the_partial(sim: Simulator, how: How) -> None:
    if streamed(how):
        pytest.skip("shown text is not escalated")
    sim.script([cut("One, two, "), Reply(status=400), end("three.")])
    ran = run(sim, how)
    assert ran.text == "One, two, three."
    assert ran.told.outcome is Outcome.HEALED


def test_a_shorter_escalation_loses(sim: Simulator, how: How) -> None:
    if streamed(how):
        pytest.skip("shown text is not escalated")
    long = "a long and useful text that goes "
    sim.script([cut(long), cut("short "), end("on.")])
    ran = run(sim, how)
    assert ran.text == long + "on."


def test_a_failed_escalation_of_a_call_is_explained(sim: Simulator, how: How) -> None:
    sim.script([cut("I write. ", written(30)), Reply(status=400)])
    ran = run(sim, how)
    assert ran.calls == []
    assert "Write" in ran.text
    assert ran.finish == "length"


def test_a_limit_above_the_ceiling_is_a_lesson(sim: Simulator, how: How) -> None:
    text = (
        "max_tokens is too large: 16384. This model supports at most 4096 completion tokens, "
        "whereas you provided 16384."
    )
    refusal = Reply(status=400, error=("invalid_request_error", text))
    sim.script([cut("One, two, "), refusal, end("three.")])
    ran = run(sim, how)
    assert limits(sim) == [LIMIT, CEILING, 4096]
    assert ran.told.outcome is Outcome.HEALED


# --- dropped streams ------------------------------------------------------------------------


def test_a_dropped_stream_is_resumed(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("a JSON body is whole or an error")
    sim.script([end("The quick brown fox jumps", deltas=4, drop=5), end(" on.")])
    ran = run(sim, how)
    assert ran.text.startswith("The quick")
    assert ran.text.endswith(" on.")
    assert ran.streamed == ran.text
    assert ran.told.outcome is Outcome.HEALED
    first, second = ran.told.attempts
    assert (first.estimated, second.estimated) == (True, False)


def test_an_error_chunk_counts_as_a_drop(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("a JSON body has no events")
    for vendor in ("openai", "vllm", "xai"):
        plays(sim, vendor)
        sim.script([end("The quick brown fox jumps", deltas=4, error_after=5), end(" on.")])
        ran = run(sim, how, like=vendor)
        assert ran.text.endswith(" on."), vendor
        sim.reset()


@pytest.mark.parametrize(
    "reason", ["network_error", "aborted", "insufficient_system_resource", "error"]
)
def test_a_reason_that_tells_of_a_breakdown_is_a_drop(
    sim: Simulator, how: How, reason: str
) -> None:
    sim.script([end("The quick brown fox ", stop=reason), end("jumps.")])
    ran = run(sim, how)
    assert (ran.text, ran.finish) == ("The quick brown fox jumps.", "stop")


def test_a_drop_with_nothing_in_hand_is_sent_again(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("streams only")
    plays(sim, "deepseek")
    sim.script([end(Thinking("Hm"), "Never", drop=2), end("All.")])
    ran = run(sim, how)
    assert ran.text == "All."
    assert limits(sim) == [LIMIT, LIMIT]


def test_a_call_in_a_dropped_recovery_is_forgotten(sim: Simulator, how: How) -> None:
    sim.script(
        [
            cut("One fine day "),
            end(written(), stop="tool_use", deltas=6, drop=6),
            end("all was well."),
        ]
    )
    ran = run(sim, how, max_tokens=CEILING)
    assert (ran.text, ran.calls) == ("One fine day all was well.", [])


# --- budgets, labels, memory ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (Policy(max_attempts=2), 2),
        (Policy(max_turn_output_tokens=1), 1),
        (Policy(max_recoveries=0, escalate=False), 1),
        (Policy(max_recoveries=1, escalate=False), 2),
    ],
)
def test_a_spent_budget_returns_what_we_hold(
    sim: Simulator, how: How, policy: Policy, calls: int
) -> None:
    sim.script([cut(f"Part {n} of it, ") for n in range(9)])
    ran = run(sim, how, policy=policy)
    assert len(sim.posts) == calls
    assert ran.finish == "length"
    assert ran.told.outcome in {Outcome.PARTIAL, Outcome.TRUNCATED}


@pytest.mark.parametrize("label", ["tool_use", "end_turn", "max_tokens"])
@pytest.mark.parametrize("arrived", range(0, len(ARGUMENTS), 5))
def test_a_cut_call_is_seen_whatever_its_label(
    sim: Simulator, how: How, label: str, arrived: int
) -> None:
    if how.startswith("async") and arrived % 2:
        pytest.skip("sync is looked at more closely")
    tool = {"type": "function", "function": {"name": "Write", "parameters": SCHEMA}}
    sim.script([end("I write. ", written(arrived), stop=label), end(written(), stop="tool_use")])
    ran = run(sim, how, tools=[tool])
    assert ran.calls == [ARGUMENTS]
    assert ran.finish == "tool_calls"


SCHEMA = {"type": "object", "properties": {"path": {}, "content": {}}, "required": ["path"]}


def test_a_label_that_lies_about_text_is_seen_through(sim: Simulator, how: How) -> None:
    usage = {"completion_tokens": CEILING}
    sim.script([end("The quick bro", usage=usage), end("wn fox.")])
    ran = run(sim, how, max_tokens=CEILING, **_counted(how))
    assert ran.text == "The quick brown fox."


def test_labels_are_believed_if_policy_says_so(sim: Simulator, how: How) -> None:
    sim.script([end("The quick bro", usage={"completion_tokens": CEILING})])
    believing = Policy(verify_stop_reason=False)
    ran = run(sim, how, policy=believing, max_tokens=CEILING, **_counted(how))
    assert (ran.text, ran.told.outcome) == ("The quick bro", Outcome.COMPLETE)


def test_a_full_limit_that_ends_well_is_left_alone(sim: Simulator, how: How) -> None:
    sim.script([end("The quick brown fox.", usage={"completion_tokens": LIMIT})])
    ran = run(sim, how, **_counted(how))
    assert ran.told.outcome is Outcome.COMPLETE
    assert len(sim.posts) == 1


def _counted(how: How) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}} if streamed(how) else {}


@pytest.mark.parametrize("usage", ["turn", "billed"])
def test_usage_is_the_turns_or_all_that_was_billed(sim: Simulator, how: How, usage: str) -> None:
    policy = Policy(usage=usage)  # type: ignore[arg-type]
    told = {"prompt_tokens_details": None, "completion_tokens_details": None}
    sim.script(
        [
            cut("One, two, ", usage={**told, "prompt_tokens": 100, "completion_tokens": 1000}),
            end("three.", usage={**told, "prompt_tokens": 120, "completion_tokens": 500}),
        ]
    )
    ran = run(sim, how, policy=policy, **_counted(how))
    assert ran.told.billed.output == 1500
    counted = ran.said.usage if not streamed(how) else ran.chunks[-1].usage
    assert counted is not None
    output = 1500 if streamed(how) or usage == "billed" else 500
    prompt = 220 if usage == "billed" else 100
    assert (counted.prompt_tokens, counted.completion_tokens) == (prompt, output)
    assert counted.total_tokens == prompt + output


def test_headers_and_id_are_the_first_attempts(sim: Simulator, how: How) -> None:
    first = cut("One, two, ", headers={"x-request-id": "req_first"})
    sim.script([first, end("three.", headers={"x-request-id": "req_second"})])
    ran = run(sim, how)
    assert getattr(ran.said, "_request_id", "req_first") in {"req_first", None}
    assert [a.request_id for a in ran.told.attempts] == ["req_first", "req_second"]
    assert len({chunk.id for chunk in ran.chunks}) <= 1
    assert len({chunk.created for chunk in ran.chunks}) <= 1


# --- what only Chat has ---------------------------------------------------------------------


def test_an_error_that_means_the_limit_was_spent_is_a_cut(sim: Simulator, how: How) -> None:
    text = (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    )
    spent = Reply(status=400, error=("invalid_request_error", text))
    sim.script([spent, end("All of it.")])
    ran = run(sim, how)
    assert ran.text == "All of it."
    assert limits(sim) == [LIMIT, CEILING]
    sim.reset()
    sim.script([spent])
    ran = run(sim, how, max_tokens=CEILING)
    assert isinstance(ran.error, openai.BadRequestError)
    assert len(sim.posts) == 1


TOO_LARGE = (
    "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 10000, "
    "Requested 16400. The input or output tokens must be reduced in order to run successfully."
)


def test_a_quota_with_room_for_less_is_obeyed_without_waiting(sim: Simulator, how: How) -> None:
    refusal = Reply(status=429, error=("tokens", TOO_LARGE), headers={"retry-after": "50"})
    sim.script([cut("One, two, "), refusal, end("three.")])
    ran = run(sim, how)
    assert ran.text.endswith("three.")
    assert limits(sim) == [LIMIT, CEILING, 9984]
    assert not any(isinstance(event, Retrying) for event in ran.events)


def test_a_quota_below_the_callers_own_limit_is_not(sim: Simulator, how: How) -> None:
    refusal = Reply(status=429, error=("tokens", TOO_LARGE), headers={"retry-after-ms": "1"})
    sim.script([cut("One, two, "), *[refusal] * 4])
    ran = run(sim, how, max_tokens=12_000)
    assert ran.text == "One, two, "
    assert all(limit is not None and limit >= 12_000 for limit in limits(sim))


def test_a_withheld_text_is_escalated(sim: Simulator, how: How) -> None:
    """Some models bill a cut text as reasoning and deliver nothing of it."""
    plays(sim, "openai", quirks="withhold")
    sim.script([cut("Not delivered"), end("All of it.")])
    ran = run(sim, how)
    assert ran.text == "All of it."
    assert limits(sim) == [LIMIT, CEILING]


def test_a_refusal_is_not_gone_on_with(sim: Simulator, how: How) -> None:
    sim.script([cut(Raw({"refusal": "I cannot"}))])
    ran = run(sim, how, max_tokens=CEILING)
    assert ran.message.refusal == "I cannot"
    assert ran.finish == "length"
    assert len(sim.posts) == 1


def test_what_vendors_add_is_kept(sim: Simulator, how: How) -> None:
    plays(sim, "openrouter")
    extras = {"citations": ["https://example.org"], "extra_content": {"k": {"v": 1}}}
    sim.script(
        [
            cut(Thinking("I think."), Text("One, two, "), Raw({"extra_content": {"a": 1}})),
            end(Text("three."), Raw(extras)),
        ]
    )
    ran = run(sim, how, like="openrouter", max_tokens=CEILING, model="openai/gpt-4o")
    assert ran.text == "One, two, three."
    more = ran.message.model_extra
    assert more["reasoning"] == "I think."
    assert more["reasoning_details"][0]["text"] == "I think."
    assert more["citations"] == ["https://example.org"]
    assert more["extra_content"] == {"a": 1, "k": {"v": 1}}
