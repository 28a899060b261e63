"""What only Chat Completions has, through the real SDK, streamed and not."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support.sdks.chat import CEILING, LIMIT, WRITE, dumps, limits, plays, run, written
from support.sdks.turn import BOTH, FAST, How, cut, end, streamed

from continuation import Policy, Retrying
from continuation.simulator import Raw, Reply, Simulator, Thinking, ToolUse
from continuation.types import Outcome

pytestmark = pytest.mark.parametrize("how", BOTH)

ARGUMENTS = dumps(WRITE)


# --- not ours, not cut ----------------------------------------------------------------------


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
@pytest.mark.parametrize("said", [written(30), "I could also"], ids=["call", "text"])
def test_a_forced_call_at_the_ceiling_is_asked_for_no_more(
    sim: Simulator, how: How, policy: Policy, said: Any
) -> None:
    sim.script([cut(said)])
    ran = run(sim, how, policy=policy, max_tokens=CEILING, tools=TOOLS, tool_choice="required")
    assert (ran.calls, ran.finish) == ([], "length")
    assert len(sim.posts) == 1


# --- at the output limit --------------------------------------------------------------------


def test_whole_calls_at_the_ceiling_are_returned(sim: Simulator, how: How) -> None:
    # In a body nothing follows the last call, whose arguments the server may have repaired.
    sim.script([cut(ToolUse("Read", {"path": "b"}), written())])
    ran = run(sim, how, max_tokens=CEILING)
    assert len(ran.calls) == (2 if streamed(how) else 1)
    assert ran.finish == "length"
    assert len(sim.posts) == 1


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
            cut(Thinking("I think."), "One, two, ", Raw({"extra_content": {"a": 1}})),
            end("three.", Raw(extras)),
        ]
    )
    ran = run(sim, how, like="openrouter", max_tokens=CEILING, model="openai/gpt-4o")
    assert ran.text == "One, two, three."
    more = ran.message.model_extra
    assert more["reasoning"] == "I think."
    assert more["reasoning_details"][0]["text"] == "I think."
    assert more["citations"] == ["https://example.org"]
    assert more["extra_content"] == {"a": 1, "k": {"v": 1}}
