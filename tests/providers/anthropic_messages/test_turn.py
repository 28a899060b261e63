"""What only the Messages format has, through the real SDK, streamed and not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.sdks.messages import OLD, limits, run
from support.sdks.turn import BOTH, FAST, How, body_of, cut, end, streamed

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Reply, Simulator, Thinking, ToolUse
from continuation.types import Outcome

pytestmark = pytest.mark.parametrize("how", BOTH)

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE, HALF = ToolUse("Write", WRITE), ToolUse("Write", WRITE, cut=30)


def calling(*said: Any, **more: Any) -> Reply:
    return end(*said, stop="tool_use", **more)


def prompts(sim: Simulator) -> list[str]:
    """Return our own prompts in the last request."""
    texts: list[str] = []
    for message in body_of(sim.posts[-1])["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts += [b["text"] for b in blocks if b["type"] == "text"]
    return [text for text in texts if looks_like_recovery_prompt(text)]


# --- not ours, not cut ----------------------------------------------------------------------


def test_a_cache_warmer_passes(sim: Simulator, how: How) -> None:
    sim.script([cut()])
    ran = run(sim, how, max_tokens=0)
    assert ran.said.content == []
    assert len(sim.requests) == 1


@pytest.mark.parametrize("choice", ["any", "tool"])
def test_a_forced_call_passes(sim: Simulator, how: How, choice: str) -> None:
    tools = [{"name": "Write", "input_schema": {"type": "object"}}]
    forced = {"type": choice, "name": "Write"} if choice == "tool" else {"type": choice}
    sim.script([cut(HALF)])
    ran = run(sim, how, tools=tools, tool_choice=forced)
    assert ran.said.stop_reason == "max_tokens"
    assert len(sim.posts) == 1


# --- a forced call, where policy wants it healed ------------------------------------------------

HEAL = replace(FAST, forced_tool_choice="heal")

FORCED: dict[str, Any] = {
    "tools": [{"name": "Write", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "Write"},
}


@pytest.mark.parametrize("choice", [{"type": "any"}, FORCED["tool_choice"]])
def test_a_forced_call_that_was_cut_is_escalated(
    sim: Simulator, how: How, choice: dict[str, Any]
) -> None:
    sim.script([cut(HALF), calling(WHOLE)])
    ran = run(sim, how, policy=HEAL, **{**FORCED, "tool_choice": choice})
    assert (ran.blocks, ran.said.stop_reason) == (["tool_use"], "tool_use")
    assert ran.said.content[0].input == WRITE
    assert ran.told.outcome is Outcome.HEALED
    assert limits(sim) == [1000, 128_000]
    assert prompts(sim) == []


@pytest.mark.parametrize(
    "policy",
    [HEAL, replace(HEAL, truncated_tool_call="retry_smaller")],
    ids=["default", "retry_smaller"],
)
def test_a_forced_call_cut_at_the_ceiling_is_asked_for_no_more(
    sim: Simulator, how: How, policy: Policy
) -> None:
    sim.script([cut(HALF)])
    ran = run(sim, how, policy=policy, **FORCED, max_tokens=128_000)
    assert (ran.blocks, ran.said.stop_reason) == (["text"], "max_tokens")
    assert ran.told.outcome is Outcome.TRUNCATED
    assert len(sim.posts) == 1


def test_text_cut_where_a_call_is_forced_is_never_gone_on_with(sim: Simulator, how: How) -> None:
    sim.script([cut("I could also say that")])
    ran = run(sim, how, policy=HEAL, **FORCED, max_tokens=128_000)
    assert (ran.text, ran.said.stop_reason) == ("I could also say that", "max_tokens")
    assert ran.told.outcome is Outcome.TRUNCATED
    assert len(sim.posts) == 1


def test_a_stream_that_drops_where_a_call_is_forced_is_asked_for_again(
    sim: Simulator, how: How
) -> None:
    if not streamed(how):
        pytest.skip("a JSON body that breaks off is the caller's error")
    whole = ("I could. ", WHOLE)
    sim.script([calling(*whole, drop=6), calling(*whole)])
    ran = run(sim, how, policy=HEAL, **FORCED)
    assert ran.said.content[-1].input == WRITE
    assert (ran.text, ran.told.outcome) == ("I could. ", Outcome.HEALED)
    assert prompts(sim) == []


# --- at the output limit --------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 12, 30])
def test_a_call_shown_live_that_was_cut_goes_on_in_its_own_block(
    sim: Simulator, how: How, at: int
) -> None:
    said = ("I write two. ", WHOLE)
    other = {**WRITE, "path": "second.txt"}
    sim.script(
        [cut(*said, ToolUse("Write", other, cut=at)), calling(*said, ToolUse("Write", other))]
    )
    ran = run(sim, how, policy=replace(FAST, stream_tool_calls="live"))
    assert (ran.blocks, ran.said.stop_reason) == (["text", "tool_use", "tool_use"], "tool_use")
    inputs = [block.input for block in ran.said.content if block.type == "tool_use"]
    assert inputs == [WRITE, other]
    assert ran.told.outcome is Outcome.HEALED
    assert limits(sim) == [1000, 128_000]


def test_guidance_that_fails_ends_as_explained(sim: Simulator, how: How) -> None:
    sim.script([cut("I write it. ", HALF), Reply(status=400)])
    ran = run(sim, how, policy=Policy(truncated_tool_call="retry_smaller"), max_tokens=128_000)
    assert ran.blocks == ["text", "text"]
    assert ran.said.stop_reason == "max_tokens"


def test_whole_calls_at_the_ceiling_are_returned(sim: Simulator, how: How) -> None:
    # In a JSON body the last call is never proven whole.
    sim.script([cut(ToolUse("Read", {"path": "b"}), WHOLE)])
    policy = replace(FAST, stream_bodies="never")
    ran = run(sim, how, policy=policy, max_tokens=128_000)
    assert ran.blocks == (["tool_use", "tool_use"] if streamed(how) else ["text", "tool_use"])
    assert ran.said.stop_reason == "max_tokens"
    assert len(sim.posts) == 1


def test_signed_thinking_before_the_cut_stays_byte_for_byte(sim: Simulator, how: How) -> None:
    signed = Thinking("I think.", signature="c2lnbmF0dXJl")
    sim.script([cut(signed, "One, "), end(Thinking("More.", "eA=="), "two.")])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.blocks == ["thinking", "text"]
    assert ran.said.content[0].signature == "c2lnbmF0dXJl"
    assert ran.text == "One, two."


# --- what fails -----------------------------------------------------------------------------


def test_a_long_retry_after_is_not_waited_for(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), Reply(status=429, headers={"retry-after": "3600"})])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.told.outcome is Outcome.PARTIAL
    assert len(sim.posts) == 2


def test_a_refused_prefill_falls_back_once(sim: Simulator, how: How) -> None:
    text = "This model does not support assistant message prefill. The conversation must end ..."
    refusal = Reply(status=400, error=("invalid_request_error", text))
    sim.script([cut("One, two, "), refusal, end("three.")])
    ran = run(sim, how, model=OLD, max_tokens=64_000)
    assert ran.text == "One, two, three."
    assert body_of(sim.posts[1])["messages"][-1]["role"] == "assistant"
    assert body_of(sim.posts[2])["messages"][-1]["role"] == "user"


def test_prefill_restores_the_whitespace_it_strips(sim: Simulator, how: How) -> None:
    sim.script([cut("One,\n\n"), end("two.")])
    ran = run(sim, how, model=OLD, max_tokens=64_000)
    assert body_of(sim.posts[1])["messages"][-1]["content"][-1]["text"] == "One,"
    assert ran.text == "One,\n\ntwo."


# --- dropped streams ------------------------------------------------------------------------


def test_what_a_dropped_stream_cost_is_estimated(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("a JSON body is whole or an error")
    sim.script([end("The quick brown fox jumps", deltas=4, drop=6), end(" on.")])
    first, second = run(sim, how).told.attempts
    assert first.estimated
    assert first.usage is not None
    assert first.usage.output is not None
    assert first.usage.output > 1, "what message_start says is no count"
    assert not second.estimated


# --- budgets, labels, memory ----------------------------------------------------------------


@pytest.mark.parametrize("usage", ["turn", "billed"])
def test_usage_is_the_turns_or_all_that_was_billed(sim: Simulator, how: How, usage: str) -> None:
    policy = Policy(usage=usage)  # type: ignore[arg-type]
    replies = [(100, 1000), (120, 500)]
    sim.script(
        [
            cut("One, two, ", usage={"input_tokens": 100, "output_tokens": 1000}),
            end("three.", usage={"input_tokens": 120, "output_tokens": 500}),
        ]
    )
    ran = run(sim, how, policy=policy)
    told = ran.said.usage
    if usage == "billed":
        assert (told.input_tokens, told.output_tokens) == (220, 1500)
    else:
        output = 1500 if streamed(how) else 500
        assert (told.input_tokens, told.output_tokens) == (100, output)
    assert ran.told.billed.output == sum(output for _, output in replies)


def test_headers_and_id_are_the_first_attempts(sim: Simulator, how: How) -> None:
    first = cut("One, two, ", headers={"request-id": "req_first"})
    sim.script([first, end("three.", headers={"request-id": "req_second"})])
    ran = run(sim, how)
    assert getattr(ran.said, "_request_id", "req_first") == "req_first"
    assert [a.request_id for a in ran.told.attempts] == ["req_first", "req_second"]
