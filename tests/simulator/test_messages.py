"""The simulator as Anthropic's Messages API: what it recites, thinks and refuses."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.simulator_helpers import (
    ANSWER,
    BINDING,
    CACHED,
    CALL,
    GO,
    HM,
    MANUAL,
    MODEL,
    OLD,
    PROMPT,
    RESULT,
    SEARCH,
    TOOLS,
    ask,
    connect,
    create,
    model,
    refusal,
    said,
    stream,
    text,
    text_of,
    user,
)

from continuation.limits import ModelLimits
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolUse, tokens

# -- recitation


def test_events_come_in_the_documented_order(sim: Simulator) -> None:
    names = [line[7:] for line in ask(sim, stream=True).text.splitlines() if line[:6] == "event:"]
    deltas = ["content_block_delta"] * (names.count("content_block_delta"))
    opening = ["message_start", "ping", "content_block_start"]
    assert [*opening, *deltas, "content_block_stop", "message_delta", "message_stop"] == names


def test_an_answer_that_spends_its_limit_exactly_has_nothing_left_to_say(
    client: anthropic.Anthropic,
) -> None:
    first = create(client, tokens(ANSWER))
    assert (text_of(first), first.stop_reason) == (ANSWER, "max_tokens")
    assert first.usage.output_tokens == tokens(ANSWER)
    rest = create(client, 100, GO, said(first), PROMPT)
    assert (rest.content, rest.stop_reason) == ([], "end_turn")


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([GO, model(text(ANSWER[:777])), PROMPT], ANSWER[777:]),
        ([GO, model(text(f"[earlier text left out]\n{ANSWER[500:777]}")), PROMPT], ANSWER[777:]),
        ([user(text("hi")), model(text("Hello!")), GO], ANSWER),
        ([GO, model(text(ANSWER)), user(text("once more"))], ANSWER),
    ],
    ids=["merged turn", "head lost", "something else before", "whole before"],
)
def test_it_goes_on_where_the_conversation_stopped(
    client: anthropic.Anthropic, turns: list[Any], told: str
) -> None:
    assert text_of(create(client, 4096, *turns)) == told


def test_memory_knows_where_a_restart_ended(client: anthropic.Anthropic) -> None:
    how = {"extra_headers": {"x-simulate": "manner=restart"}}
    first = create(client, 20)
    again = create(client, 15, GO, said(first), PROMPT, **how)
    third = create(client, 5, GO, said(first), PROMPT, said(again), PROMPT)
    assert (ANSWER[:60], ANSWER[60:80]) == (text_of(again), text_of(third))


def test_prefilled_attempts_give_the_whole_answer(client: anthropic.Anthropic) -> None:
    text, stop = "", "max_tokens"
    while stop == "max_tokens":
        partial = [{"role": "assistant", "content": text}] if text.rstrip() else []
        message = create(client, 99, GO, *partial, model=OLD)
        text, stop = (text + text_of(message)).rstrip(), message.stop_reason
    assert ANSWER.rstrip() == text


def test_a_stop_sequence_ends_the_answer(client: anthropic.Anthropic) -> None:
    message = create(client, 4096, stop_sequences=["Line 3"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Line 3")
    assert ANSWER[: ANSWER.index("Line 3")] == text_of(message)


def test_a_limit_of_nothing_gives_nothing(client: anthropic.Anthropic) -> None:
    message = create(client, 0)
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    assert message.usage.output_tokens == 0


def test_a_cut_can_be_mislabelled(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(mislabel="end_turn")
    message = create(client)
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 100)


@settings(max_examples=examples(30))
@given(
    answer=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300),
    limit=st.integers(20, 60),
)
def test_any_answer_is_recited_whole(answer: str, limit: int) -> None:
    answer, told, stop = f"<{answer}>", "", ""  # never blank, or it could not be sent back
    with Simulator(answer) as sim, connect(sim) as client:
        while stop != "end_turn":
            turns = [GO, {"role": "assistant", "content": told}, PROMPT] if told else [GO]
            message = create(client, limit, *turns)
            told, stop = told + text_of(message), message.stop_reason
    assert answer == told


# -- thinking and calls


def test_thinking_that_was_cut_is_never_signed(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(thinking="all")
    deltas = [e.delta.type for e in stream(client, 10) if e.type == "content_block_delta"]
    assert {"thinking_delta"} == set(deltas)
    assert create(client, 10).content[0].signature == ""


def test_omitted_thinking_is_signed_and_counted(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(thinking=30)
    message = create(client, 100, thinking={"type": "adaptive", "display": "omitted"})
    assert message.content[0].thinking == ""
    assert message.content[0].signature
    assert message.usage.output_tokens_details.thinking_tokens == 30


def test_a_model_told_not_to_think_does_not(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(thinking=30)
    message = create(client, 100, thinking={"type": "disabled"})
    assert [block.type for block in message.content] == ["text"]


def test_a_call_that_was_cut_streams_what_there_is(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(call=True)
    deltas = [e.delta for e in stream(client, 100) if e.type == "content_block_delta"]
    raw = "".join(delta.partial_json for delta in deltas if delta.type == "input_json_delta")
    assert raw.startswith('{"path": "answer.txt", "content": "Line 0')


@pytest.mark.parametrize(
    ("raw", "arrived"),
    [
        ("", {}),
        ('{"a": "b', {}),
        ('{"a": 12', {}),
        ('{"a": 12, "b": tr', {"a": 12}),
        ('{"a": {"b": 1}, "c": {"d": 2', {"a": {"b": 1}}),
        ('{"a": "\\"", "b', {"a": '"'}),
        ('{"a": [1, {"x": 2}]}', {"a": [1, {"x": 2}]}),
        ('{"a": null}', {"a": None}),
    ],
)
def test_only_members_that_arrived_whole_are_told(
    sim: Simulator, client: anthropic.Anthropic, raw: str, arrived: dict[str, Any]
) -> None:
    sim.script([Reply([ToolUse("Write", raw)], stop="max_tokens")])
    assert arrived == create(client).content[0].input


# -- what is refused; the rules of histories themselves are tested with `validate`

PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)
FIRST_THINKING = (
    "messages.1.content.0.type: If an assistant message contains any thinking blocks, the first "
    "block must be `thinking` or `redacted_thinking`. Found `text`."
)


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        (
            [GO, model(CALL), GO, model(text("x")), user(RESULT)],
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
            "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block "
            "in the next message.",
        ),
        (
            [GO, model(CALL), user(RESULT), model(CALL), user(RESULT)],
            "messages: `tool_use` ids must be unique",
        ),
        ([GO, model(text("x"), HM, text("y")), GO], FIRST_THINKING),
        ([GO, model(text("x")), model(HM, text("y")), GO], FIRST_THINKING),
        (
            [GO, model({"type": "thinking", "thinking": "hm"}, text("x")), GO],
            "messages.1.content.0.thinking.signature: Field required",
        ),
    ],
)
def test_a_history_the_provider_refuses_is_refused(
    client: anthropic.Anthropic, turns: list[Any], why: str
) -> None:
    assert why == refusal(client, messages=turns, tools=TOOLS)


@pytest.mark.parametrize(
    "turns",
    [
        [GO, GO],
        [GO, model(text("a")), model(text("b")), GO],
        [GO, model(text("x"), CALL), user(RESULT, text("go on"))],
        [GO, model(HM, text("x"), CALL), user(RESULT)],
        [GO, model({**HM, "thinking": ""}, text("x")), GO],
        [GO, model(SEARCH, CALL), user(RESULT)],
        [GO, model(text("x"), SEARCH)],
        [GO, {"role": "system", "content": "be brief"}],
    ],
)
def test_an_unusual_history_the_provider_takes_is_taken(
    client: anthropic.Anthropic, turns: list[Any]
) -> None:
    assert create(client, 20, *turns, tools=TOOLS).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"max_tokens": 1.5}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"messages": []}, "messages: at least one message is required"),
        (
            {"max_tokens": 128_001},
            "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens "
            "for claude-opus-5",
        ),
        (
            {"model": "someones-own", "max_tokens": 64_001},
            "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens "
            "for someones-own",
        ),
        ({"messages": [GO, model(text("x"))]}, PREFILL),
        ({"model": OLD, "messages": [GO, model(text("x"))], "thinking": MANUAL}, PREFILL),
        (
            {"model": OLD, "messages": [GO, model(text("x "))]},
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        (
            {
                "model": OLD,
                "messages": [GO, model(HM, text("x"))],
                "thinking": {"type": "disabled"},
            },
            "messages.1: When thinking is disabled, an `assistant` message in the final position "
            "cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request.",
        ),
        (
            {"model": OLD, "thinking": {"type": "enabled", "budget_tokens": 1023}},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"model": OLD, "max_tokens": 1024, "thinking": MANUAL},
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            "documentation at https://docs.anthropic.com/en/docs/build-with-claude/"
            "extended-thinking#max-tokens-and-context-window-size",
        ),
        (
            {"model": OLD, "thinking": {"type": "adaptive"}},
            "adaptive thinking is not supported on this model",
        ),
        (
            {"model": "claude-opus-5-5", "thinking": {"type": "disabled"}},
            '"thinking.type.disabled" is not supported for this model.',
        ),
    ],
)
def test_what_the_model_cannot_do_is_refused(
    client: anthropic.Anthropic, body: dict[str, Any], why: str
) -> None:
    assert why == refusal(client, **body)


def test_a_refused_request_is_recorded_and_spends_no_script(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("x")])])
    refusal(client, max_tokens=999_999)
    assert text_of(create(client)) == "x"
    assert [post.status for post in sim.posts] == [400, 200]


def test_the_window_is_kept() -> None:
    small = ModelLimits(ceiling=4096, window=1000)
    models = {"new": small, "old": ModelLimits(ceiling=4096, window=1000, window_shared=True)}
    long = {"role": "user", "content": "x" * 4400}
    with Simulator(ANSWER, models=models) as sim, connect(sim) as client:
        used = client.messages.count_tokens(model="new", messages=[long]).input_tokens  # type: ignore[list-item]
        too_long = refusal(client, model="new", messages=[long])
        shared = refusal(client, model="old", max_tokens=1000)
        fits = create(client, 1000, model="new")
    assert f"prompt is too long: {used} tokens > 1000 maximum" == too_long
    asked = f"{fits.usage.input_tokens} + 1000"
    assert shared == (
        f"input length and `max_tokens` exceed context limit: {asked} > 1000, "
        "decrease input length or `max_tokens` and try again"
    )


def test_the_window_ends_an_answer_for_its_own_reason() -> None:
    models = {MODEL: ModelLimits(ceiling=4096, window=100)}
    with Simulator(ANSWER, models=models) as sim, connect(sim) as client:
        message = create(client, 4096)
    assert message.stop_reason == "model_context_window_exceeded"
    assert message.usage.input_tokens + message.usage.output_tokens == 100


# -- models


def test_the_models_endpoint_tells_the_ceiling(sim: Simulator, client: anthropic.Anthropic) -> None:
    info = client.models.retrieve(OLD)
    assert (info.id, info.max_tokens, info.max_input_tokens) == (OLD, 64_000, 200_000)
    sim.scenario = Scenario(ceiling=50)
    assert refusal(client, max_tokens=51).startswith("max_tokens: 51 > 50, ")
    assert client.models.retrieve(MODEL).max_tokens == 50
    sim.scenario = Scenario(models_endpoint=False)
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve(OLD)
    with pytest.raises(anthropic.NotFoundError):
        client.get("/v1/nothing", cast_to=object)


# -- thinking that is bound to its conversation

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


def thought(client: anthropic.Anthropic, *turns: Any, **more: Any) -> Any:
    how = {"extra_headers": {"x-simulate": "thinking=5"}, "model": BINDING, **more}
    return create(client, 20, *turns, **how)


def test_moving_cache_control_or_changing_the_limit_keeps_thinking_valid(
    client: anthropic.Anthropic,
) -> None:
    first = thought(client, user(CACHED), system=[CACHED])
    again = [user(text("hi")), said(first), user(CACHED)]
    assert create(client, 50, *again, system=[text("hi")], model=BINDING).content


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        ([{"role": "user", "content": "recite!"}], {}),
        ([GO], {"system": "another"}),
        ([GO], {"tools": TOOLS}),
        ([GO, model(text("x")), GO], {}),
    ],
)
def test_thinking_is_refused_after_another_conversation(
    client: anthropic.Anthropic, before: list[Any], changed: dict[str, Any]
) -> None:
    first = thought(client, system="one")
    turns = [*before, said(first), PROMPT]
    why = refusal(client, **{"model": BINDING, "system": "one", "messages": turns, **changed})
    assert BOUND.replace("messages.1", f"messages.{len(before)}") == why


def test_a_merged_turn_may_not_carry_the_thinking_of_its_recoveries(
    client: anthropic.Anthropic,
) -> None:
    first = thought(client)
    second = thought(client, GO, said(first), PROMPT)
    both = [*said(first)["content"], *said(second)["content"]]
    why = refusal(client, model=BINDING, messages=[GO, model(*both), PROMPT])
    assert BOUND.replace("content.0", "content.2") == why
    merged = model(first.content[0].to_dict(), text(text_of(first) + text_of(second)))
    assert thought(client, GO, merged, PROMPT).content


def test_the_oldest_thinking_may_be_left_out_but_none_in_the_middle(
    client: anthropic.Anthropic,
) -> None:
    turns: list[Any] = [GO]
    for _ in range(3):
        turns += [said(thought(client, *turns)), PROMPT]

    def bare(place: int) -> dict[str, Any]:
        return model(*turns[place]["content"][1:])

    assert thought(client, *turns).content
    assert thought(client, GO, bare(1), *turns[2:]).content
    why = refusal(client, model=BINDING, messages=[*turns[:3], bare(3), *turns[4:]])
    assert BOUND.replace("messages.1", "messages.5") == why


def test_a_model_that_does_not_bind_takes_thinking_from_elsewhere(
    client: anthropic.Anthropic,
) -> None:
    first = thought(client, model=MODEL)
    assert create(client, 20, user(text("other")), said(first), PROMPT).content


def test_thinking_that_was_changed_is_refused(client: anthropic.Anthropic) -> None:
    changed = model({**thought(client).content[0].to_dict(), "thinking": "changed"}, text("x"))
    latest = refusal(client, messages=[GO, changed, PROMPT])
    earlier = refusal(client, messages=[GO, changed, PROMPT, model(text("y")), PROMPT])
    assert latest == (
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
        "message cannot be modified. These blocks must remain as they were in the original "
        "response."
    )
    assert earlier == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_mismatch_can_be_dropped_by_those_who_may(client: anthropic.Anthropic) -> None:
    binding = {"prefix_mismatch_behavior": "drop_block"}
    how = {"model": BINDING, "thinking": {"type": "adaptive", "block_binding": binding}}
    turns = [user(text("other")), said(thought(client)), PROMPT]
    needed = "thinking-binding-controls-2026-08-01"
    assert refusal(client, messages=turns, **how) == (
        f"{BOUND} That setting requires the `{needed}` value in the `anthropic-beta` header."
    )
    assert create(client, 20, *turns, **how, extra_headers={"anthropic-beta": needed}).content


def test_signatures_from_elsewhere_are_refused_only_by_the_strict(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    turns = [GO, model(HM, text("x")), PROMPT]
    assert create(client, 20, *turns, model=BINDING).content
    sim.scenario = Scenario(strict_signatures=True)
    why = refusal(client, model=BINDING, messages=turns)
    assert why == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_scripted_reply_is_signed_too(sim: Simulator, client: anthropic.Anthropic) -> None:
    call = ToolUse("Write", {}, id="toolu_1")
    sim.script([Reply([Thinking("hm"), Text("x"), call], "tool_use")])
    how = {"model": BINDING, "tools": TOOLS}
    turns = [said(create(client, 20, **how)), user(RESULT)]
    assert create(client, 20, GO, *turns, **how).content
    assert refusal(client, messages=[user(text("other")), *turns], **how) == BOUND
