"""What the simulated Responses API keeps: responses, chains, conversations, background answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from support.responses_helpers import (
    ANSWER,
    GO,
    MODEL,
    OUTPUT,
    PROMPT,
    THOUGHT,
    connect,
    create,
    said,
    seen,
)

from continuation.history import validate
from continuation.simulator import Scenario, Simulator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


def test_a_response_is_kept_until_it_is_deleted(client: openai.OpenAI) -> None:
    made = create(client, limit=50)
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(made.id)


def test_what_was_not_stored_cannot_be_found(client: openai.OpenAI) -> None:
    made = create(client, store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_stream_that_broke_is_not_kept(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(drop={1: 6})
    streamed = create(client, stream=True)
    first = next(streamed)
    with pytest.raises(openai.APIConnectionError):
        list(streamed)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.response.id)


def test_a_chain_tells_the_model_all_that_went_before(client: openai.OpenAI) -> None:
    first = create(client, GO, limit=100)
    second = create(client, PROMPT, limit=100, previous_response_id=first.id)
    third = create(client, PROMPT, limit=4096, previous_response_id=second.id)
    assert first.output_text + second.output_text + third.output_text == ANSWER
    assert third.previous_response_id == second.id
    read = seen(client, third)
    assert [item["role"] for item in read] == ["user", "assistant", "user", "assistant", "user"]
    assert read[3] == said(second)[0]
    assert validate({"input": read}, "openai-responses") == []


def test_input_items_come_in_pages(client: openai.OpenAI) -> None:
    made = create(client, *[{"role": "user", "content": str(n)} for n in range(5)])
    page: Any = client.responses.input_items.list(made.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["4", "3"]
    assert (page.has_more, len([*page])) == (True, 5)


def test_a_history_sent_in_full_reads_like_a_chain(client: openai.OpenAI) -> None:
    first = create(client, GO, limit=100, store=False)
    rest = create(client, GO, *said(first), PROMPT, store=False)
    assert first.output_text + rest.output_text == ANSWER


def test_a_trailing_assistant_message_is_a_finished_turn(client: openai.OpenAI) -> None:
    first = create(client, GO, limit=100)
    again = create(client, GO, {"role": "assistant", "content": first.output_text}, limit=100)
    assert again.output_text == first.output_text


def test_reasoning_without_an_item_does_not_break_the_chain(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(thinking="all:100")
    first = create(client, GO, limit=64)
    second = create(client, PROMPT, previous_response_id=first.id)
    assert second.output_text == ANSWER
    assert [item["type"] for item in seen(client, second)] == ["message", "message"]


def test_an_output_finds_its_call_in_the_chain(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(call=True)
    made = create(client)
    output = {**OUTPUT, "call_id": made.output[1].call_id}
    after = create(client, output, previous_response_id=made.id)
    assert after.output_text == "The file is written."


def test_an_item_can_be_named_instead_of_sent(client: openai.OpenAI) -> None:
    made = create(client, GO, limit=100)
    named = {"type": "item_reference", "id": made.output[0].id}
    assert create(client, GO, named, PROMPT).output_text == ANSWER[400:]


def test_encrypted_reasoning_is_taken_back(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(strict_signatures=True)
    sim.script([THOUGHT] * 2)
    first = create(client, GO, store=False)
    assert create(client, GO, *said(first), PROMPT, store=False).output_text == "done"


def test_an_answer_in_the_background_is_queued_and_fetched_later(client: openai.OpenAI) -> None:
    queued = create(client, background=True)
    assert (queued.status, queued.output, queued.usage) == ("queued", [], None)
    assert client.responses.retrieve(queued.id).output_text == ANSWER


def test_a_background_stream_that_broke_can_be_resumed(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(drop={1: 8})
    streamed = create(client, background=True, stream=True)
    first = [next(streamed) for _ in range(8)]
    assert [event.type for event in first[:2]] == ["response.created", "response.queued"]
    with pytest.raises(openai.APIConnectionError):
        next(streamed)
    name = first[0].response.id
    rest = [*client.responses.retrieve(name, stream=True, starting_after=7)]
    numbers = [event.sequence_number for event in [*first, *rest]]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].type == "response.completed"


def test_a_conversation_grows_with_every_answer(client: openai.OpenAI) -> None:
    name = client.conversations.create().id
    first = create(client, GO, limit=100, conversation=name)
    second = create(client, PROMPT, conversation={"id": name})
    assert first.output_text + second.output_text == ANSWER
    kept = [*client.conversations.items.list(name, order="asc")]
    assert [item.role for item in kept] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert first.conversation.id == name


def test_a_reset_forgets_all_that_was_kept(sim: Simulator, client: openai.OpenAI) -> None:
    made = create(client)
    sim.reset()
    with pytest.raises(openai.BadRequestError, match="Previous response with id"):
        create(client, PROMPT, previous_response_id=made.id)


def test_input_tokens_are_counted_with_the_chain(client: openai.OpenAI) -> None:
    made = create(client, limit=100)
    count = client.responses.input_tokens.count
    alone = count(model=MODEL, input="go on").input_tokens
    chained = count(model=MODEL, input="go on", previous_response_id=made.id).input_tokens
    assert chained > alone + 100
