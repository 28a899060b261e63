"""Every row of the decision table, through the real SDK, streamed and not, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from support.sdks.messages import OLD, limits, run
from support.sdks.turn import FAST, HOWS, How, body_of, cut, end

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Reply, Simulator, Thinking, ToolCall
from continuation.types import Outcome

pytestmark = pytest.mark.parametrize("how", HOWS)

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE, HALF = ToolCall("Write", WRITE), ToolCall("Write", WRITE, cut=30)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def calling(*said: Any, **more: Any) -> Reply:
    return end(*said, stop="tool_use", **more)


def streamed(how: How) -> bool:
    return how.endswith("stream")


def prompts(sim: Simulator) -> list[str]:
    """Return our own prompts in the last request."""
    texts: list[str] = []
    for message in body_of(sim.posts[-1])["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts += [b["text"] for b in blocks if b["type"] == "text"]
    return [text for text in texts if looks_like_recovery_prompt(text)]


# --- not ours, not cut ----------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["stop_sequence", "pause_turn", "refusal", "novel"])
def test_an_answer_that_is_not_cut_is_returned_as_it_is(
    sim: Simulator, how: How, stop: str
) -> None:
    sim.script([end("All of it.", stop=stop)])
    ran = run(sim, how)
    assert (ran.text, ran.said.stop_reason) == ("All of it.", stop)
    assert ran.told.outcome is Outcome.COMPLETE
    assert len(sim.posts) == 1


def test_a_small_limit_is_a_budget(sim: Simulator, how: How) -> None:
    sim.script([cut("Yes")])
    ran = run(sim, how, max_tokens=16)
    assert (ran.text, ran.said.stop_reason) == ("Yes", "max_tokens")
    assert ran.told.outcome is Outcome.UNTOUCHED
    assert "leave_limits_below" in str(ran.told.reason)
    assert len(sim.posts) == 1


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


def test_an_error_of_the_first_attempt_is_unchanged(sim: Simulator, how: How) -> None:
    sim.script([Reply(status=400, error=("invalid_request_error", "bad thing"))])
    ran = run(sim, how)
    assert isinstance(ran.error, anthropic.BadRequestError)
    assert "bad thing" in str(ran.error)
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


def test_a_regenerated_text_that_differs_gives_only_its_calls(sim: Simulator, how: How) -> None:
    sim.script([cut("I write it now. ", HALF), calling("Let me write.", WHOLE)])
    ran = run(sim, how)
    assert ran.text == ("I write it now. " if streamed(how) else "Let me write.")
    assert ran.said.content[-1].input == WRITE


def test_several_calls_come_from_one_answer_only(sim: Simulator, how: How) -> None:
    read = {"path": "b.txt"}
    sim.script(
        [
            cut("Two things. ", ToolCall("Read", read), HALF),
            calling("Two things. ", ToolCall("Read", read), WHOLE),
        ]
    )
    ran = run(sim, how)
    assert ran.blocks == ["text", "tool_use", "tool_use"]
    assert [b.input for b in ran.said.content[1:]] == [read, WRITE]


@pytest.mark.parametrize(
    ("policy", "blocks"),
    [
        (Policy(truncated_tool_call="drop"), ["text"]),
        (Policy(truncated_tool_call="keep"), ["text", "tool_use"]),
    ],
)
def test_a_call_cut_at_the_ceiling_is_never_recovered(
    sim: Simulator, how: How, policy: Policy, blocks: list[str]
) -> None:
    sim.script([cut("I write it. ", HALF)])
    ran = run(sim, how, policy=policy, max_tokens=128_000)
    assert ran.blocks == blocks
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.outcome is Outcome.TRUNCATED
    assert len(sim.posts) == 1


def test_a_cut_call_alone_leaves_no_empty_message(sim: Simulator, how: How) -> None:
    sim.script([cut(HALF)])
    ran = run(sim, how, policy=Policy(truncated_tool_call="drop"), max_tokens=128_000)
    assert ran.blocks == ["text"]


@pytest.mark.parametrize("at", [0, 1, 12, 30])
def test_a_call_shown_live_that_was_cut_goes_on_in_its_own_block(
    sim: Simulator, how: How, at: int
) -> None:
    said = ("I write two. ", WHOLE)
    other = {**WRITE, "path": "second.txt"}
    sim.script(
        [cut(*said, ToolCall("Write", other, cut=at)), calling(*said, ToolCall("Write", other))]
    )
    ran = run(sim, how, policy=replace(FAST, stream_tool_calls="live"))
    assert (ran.blocks, ran.said.stop_reason) == (["text", "tool_use", "tool_use"], "tool_use")
    inputs = [block.input for block in ran.said.content if block.type == "tool_use"]
    assert inputs == [WRITE, other]
    assert ran.told.outcome is Outcome.HEALED
    assert limits(sim) == [1000, 128_000]


def test_guidance_asks_for_smaller_pieces(sim: Simulator, how: How) -> None:
    small = {"path": "a.txt", "content": "hello"}
    sim.script([cut("I write it. ", HALF), calling("In pieces.", ToolCall("Write", small))])
    ran = run(sim, how, policy=Policy(truncated_tool_call="retry_smaller"), max_tokens=128_000)
    assert ran.blocks == ["text", "text", "tool_use"]
    assert ran.said.content[-1].input == small
    assert "Write" in body_of(sim.posts[1])["messages"][-1]["content"][-1]["text"]
    assert len(sim.posts) == 2


def test_guidance_that_fails_ends_as_explained(sim: Simulator, how: How) -> None:
    sim.script([cut("I write it. ", HALF), Reply(status=400)])
    ran = run(sim, how, policy=Policy(truncated_tool_call="retry_smaller"), max_tokens=128_000)
    assert ran.blocks == ["text", "text"]
    assert ran.said.stop_reason == "max_tokens"


def test_whole_calls_at_the_ceiling_are_returned(sim: Simulator, how: How) -> None:
    # In a JSON body the last call is never proven whole.
    sim.script([cut(ToolCall("Read", {"path": "b"}), WHOLE)])
    ran = run(sim, how, max_tokens=128_000)
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


def test_three_recoveries_and_then_the_real_reason(sim: Simulator, how: How) -> None:
    sim.script([cut(f"Part {n} is here, ") for n in range(9)])
    ran = run(sim, how)
    calls = 4 if streamed(how) else 5
    assert len(sim.posts) == calls
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.outcome is Outcome.TRUNCATED
    kept = range(calls) if streamed(how) else range(1, calls)
    assert ran.text == "".join(f"Part {n} is here, " for n in kept)


def test_a_text_then_a_call_in_a_recovery_ends_it(sim: Simulator, how: How) -> None:
    sim.script(
        [
            *([] if streamed(how) else [cut("dropped")]),
            cut("One fine day, "),
            cut("two of us "),
            cut("went. ", HALF),
        ]
    )
    ran = run(sim, how)
    assert ran.text.startswith("One fine day, two of us went. ")
    assert "tool_use" not in ran.blocks
    assert len(sim.posts) == (3 if streamed(how) else 4)


# --- what fails -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 529])
def test_a_failed_recovery_is_a_synthetic_stop(sim: Simulator, how: How, status: int) -> None:
    sim.script([cut("What we hold "), *[Reply(status=status)] * 3])
    ran = run(sim, how, max_tokens=128_000)
    assert (ran.text, ran.said.stop_reason) == ("What we hold ", "end_turn")
    assert (ran.told.outcome, ran.told.reason) == (Outcome.PARTIAL, "recovery failed")
    assert ran.told.synthetic
    assert str(status) in str(ran.told.error)
    assert len(sim.posts) == 4
    sim.script([cut("What we hold "), Reply(status=400)])
    truthful = run(sim, how, policy=Policy(on_failure="truncated"), max_tokens=128_000)
    assert truthful.said.stop_reason == "max_tokens"


def test_a_retried_recovery_succeeds(sim: Simulator, how: How) -> None:
    wait = Reply(status=429, headers={"retry-after-ms": "1"})
    sim.script([cut("One, two, "), wait, Reply(status=529), end("three.")])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.text == "One, two, three."
    assert [e.__class__.__name__ for e in ran.events] == [
        "Truncated",
        "Recovering",
        "Retrying",
        "Retrying",
        "Finished",
    ]


def test_a_long_retry_after_is_not_waited_for(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), Reply(status=429, headers={"retry-after": "3600"})])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.told.outcome is Outcome.PARTIAL
    assert len(sim.posts) == 2


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
    sim.script([cut("I write. ", HALF), Reply(status=400)])
    ran = run(sim, how)
    assert ran.blocks == ["text", "text"]
    assert ran.said.stop_reason == "max_tokens"


def test_a_limit_above_the_ceiling_is_a_lesson(sim: Simulator, how: How) -> None:
    text = "max_tokens: 128000 > 50000, which is the maximum allowed number of output tokens for m"
    refusal = Reply(status=400, error=("invalid_request_error", text))
    sim.script([cut("One, two, "), refusal, end("three.")])
    ran = run(sim, how)
    assert limits(sim) == [1000, 128_000, 50_000]
    assert ran.told.outcome is Outcome.HEALED


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


def test_an_error_event_counts_as_a_drop(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("a JSON body has no events")
    first = end("The quick brown fox jumps", deltas=4, error_after=6)
    sim.script([first, end(" on.")])
    ran = run(sim, how)
    assert ran.text.endswith(" on.")


def test_a_drop_with_nothing_in_hand_is_sent_again(sim: Simulator, how: How) -> None:
    if not streamed(how):
        pytest.skip("streams only")
    sim.script([end(Thinking("Hm"), "Never", drop=2), end("All.")])
    ran = run(sim, how)
    assert ran.text == "All."
    assert limits(sim) == [1000, 1000]


def test_a_call_in_a_dropped_recovery_is_forgotten(sim: Simulator, how: How) -> None:
    sim.script([cut("One fine day "), calling(WHOLE, deltas=6, drop=6), end("all was well.")])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.blocks == ["text"]
    assert ran.text == "One fine day all was well."


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
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.outcome in {Outcome.PARTIAL, Outcome.TRUNCATED}
    assert ran.told.reason


def test_a_label_that_lies_about_text_is_seen_through(sim: Simulator, how: How) -> None:
    sim.script([end("The quick bro", usage={"output_tokens": 128_000}), end("wn fox.")])
    ran = run(sim, how, max_tokens=128_000)
    assert ran.text == "The quick brown fox."


def test_a_full_limit_that_ends_well_is_left_alone(sim: Simulator, how: How) -> None:
    sim.script([end("The quick brown fox.", usage={"output_tokens": 1000})])
    ran = run(sim, how)
    assert ran.told.outcome is Outcome.COMPLETE
    assert len(sim.posts) == 1


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
