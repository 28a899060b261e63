"""Thinking blocks, which some models bind to the conversation before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import pytest
from support.simulator_helpers import (
    ANSWER,
    BINDING,
    CACHED,
    GO,
    HM,
    MODEL,
    PROMPT,
    RESULT,
    TOOLS,
    connect,
    create,
    model,
    refusal,
    said,
    text,
    text_of,
    user,
)

from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as made:
        yield made


# -- thinking that is bound to its conversation


def _thought(client: anthropic.Anthropic, *turns: Any, **more: Any) -> Any:
    how = {"extra_headers": {"x-simulate": "thinking=5"}, "model": BINDING, **more}
    return create(client, 20, *turns, **how)


def test_thinking_may_be_sent_back_as_the_conversation_grows(client: anthropic.Anthropic) -> None:
    turns: list[Any] = [GO]
    for _ in range(4):
        turns += [said(_thought(client, *turns)), PROMPT]
    assert _thought(client, *turns).stop_reason == "max_tokens"


def test_moving_cache_control_or_changing_the_limit_keeps_thinking_valid(
    client: anthropic.Anthropic,
) -> None:
    first = _thought(client, user(CACHED), system=[CACHED])
    plain = {"type": "text", "text": "hi"}
    again = [{"role": "user", "content": "hi"}, said(first), user(CACHED)]
    assert create(client, 50, *again, system=[plain], model=BINDING).content


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
    first = _thought(client, system="one")
    turns = [*before, said(first), PROMPT]
    why = refusal(client, **{"model": BINDING, "system": "one", "messages": turns, **changed})
    assert BOUND.replace("messages.1", f"messages.{len(before)}") == why


def test_a_merged_turn_may_not_carry_the_thinking_of_its_recoveries(
    client: anthropic.Anthropic,
) -> None:
    first = _thought(client)
    second = _thought(client, GO, said(first), PROMPT)
    both = [*said(first)["content"], *said(second)["content"]]
    why = refusal(client, model=BINDING, messages=[GO, model(*both), PROMPT])
    assert BOUND.replace("content.0", "content.2") == why
    merged = model(first.content[0].to_dict(), text(text_of(first) + text_of(second)))
    assert _thought(client, GO, merged, PROMPT).content


def test_the_oldest_thinking_may_be_left_out_but_none_in_the_middle(
    client: anthropic.Anthropic,
) -> None:
    turns: list[Any] = [GO]
    for _ in range(3):
        turns += [said(_thought(client, *turns)), PROMPT]

    def bare(place: int) -> dict[str, Any]:
        return model(*turns[place]["content"][1:])

    assert _thought(client, GO, bare(1), *turns[2:]).content
    why = refusal(client, model=BINDING, messages=[*turns[:3], bare(3), *turns[4:]])
    assert BOUND.replace("messages.1", "messages.5") == why


def test_a_model_that_does_not_bind_takes_thinking_from_elsewhere(
    client: anthropic.Anthropic,
) -> None:
    first = _thought(client, model=MODEL)
    assert create(client, 20, {"role": "user", "content": "other"}, said(first), PROMPT).content


def test_thinking_that_was_changed_is_refused(client: anthropic.Anthropic) -> None:
    first = _thought(client)
    changed = model({**first.content[0].to_dict(), "thinking": "changed"}, text("x"))
    latest = refusal(client, messages=[GO, changed, PROMPT])
    earlier = refusal(client, messages=[GO, changed, PROMPT, model(text("y")), PROMPT])
    assert latest == (
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
        "message cannot be modified. These blocks must remain as they were in the original "
        "response."
    )
    assert earlier == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_mismatch_can_be_dropped_by_those_who_may(client: anthropic.Anthropic) -> None:
    thinking = {
        "type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    turns = [{"role": "user", "content": "other"}, said(_thought(client)), PROMPT]
    why = refusal(client, model=BINDING, messages=turns, thinking=thinking)
    needed = "thinking-binding-controls-2026-08-01"
    assert (
        f"{BOUND} That setting requires the `{needed}` value in the `anthropic-beta` header." == why
    )
    head = {"anthropic-beta": needed}
    taken = create(client, 20, *turns, model=BINDING, thinking=thinking, extra_headers=head)
    assert taken.content


def test_signatures_from_elsewhere_are_refused_only_by_the_strict(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    turns = [GO, model(HM, text("x")), PROMPT]
    assert create(client, 20, *turns, model=BINDING).content
    sim.scenario = Scenario(strict_signatures=True)
    why = refusal(client, model=BINDING, messages=turns)
    assert why == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_scripted_reply_is_signed_too(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.script(
        [Reply([Thinking("hm"), Text("x"), ToolCall("Write", {}, id="toolu_1")], "tool_use")]
    )
    first = create(client, 20, model=BINDING, tools=TOOLS)
    turns = [said(first), user(RESULT)]
    assert create(client, 20, GO, *turns, model=BINDING, tools=TOOLS).content
    other = {"role": "user", "content": "other"}
    assert refusal(client, model=BINDING, messages=[other, *turns], tools=TOOLS) == BOUND
