"""What the simulated Responses API refuses, in the provider's own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from support.responses_helpers import (
    CALL,
    GO,
    OLD,
    OUTPUT,
    PROMPT,
    THOUGHT,
    connect,
    create,
    refusal,
    said,
    stream,
)

from continuation.history import RepairPolicy, repair
from continuation.history.classify import classify
from continuation.limits import ModelLimits
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolCall

NOT_PERSISTED = "not found. Items are not persisted when `store` is set to false. Try again with"


@pytest.fixture
def sim() -> Iterator[Simulator]:
    models = {"tiny": ModelLimits(ceiling=100, window=200, thinking="adaptive")}
    with Simulator(answer="word " * 400, models=models) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


def assistant(kind: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": kind, "text": text}],
        **more,
    }


# -- form and model


def test_a_request_needs_a_key(sim: Simulator) -> None:
    answer = httpx2.post(f"{sim.url}/v1/responses", json={"model": "m", "input": "x"})
    assert answer.status_code == 401
    assert answer.json()["error"]["message"].startswith("You didn't provide an API key.")


def test_a_request_needs_json(sim: Simulator) -> None:
    headers = {"api-key": "azure"}
    answer = httpx2.post(f"{sim.url}/v1/responses", headers=headers, content=b"{")
    assert answer.json()["error"]["message"].startswith("We could not parse the JSON body")


@pytest.mark.parametrize(
    ("body", "text", "code"),
    [
        (
            {"max_output_tokens": 1},
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but "
            "got 1 instead.",
            "integer_below_min_value",
        ),
        (
            {"max_output_tokens": 200_000},
            "max_output_tokens is too large: 200000. This model supports at most 128000 output "
            "tokens, whereas you provided 200000.",
            "invalid_value",
        ),
        (
            {"max_output_tokens": "many"},
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but "
            "got many instead.",
            "integer_below_min_value",
        ),
        ({"model": "missing"}, "Missing required parameter: 'model'.", None),
        ({"input": "missing"}, 'One of "input" or "previous_response_id"', None),
        (
            {"model": OLD, "reasoning": {"effort": "low"}},
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "unsupported_parameter",
        ),
        (
            {"previous_response_id": "resp_1", "conversation": "conv_1"},
            "Mutually exclusive parameters: 'previous_response_id' or 'conversation'.",
            "mutually_exclusive_parameters",
        ),
        ({"conversation": "conv_1"}, "Conversation with id 'conv_1' not found.", None),
        (
            {"model": "tiny", "input": "x" * 1000},
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again.",
            "context_length_exceeded",
        ),
    ],
)
def test_a_body_is_refused(
    client: openai.OpenAI, body: dict[str, Any], text: str, code: str | None
) -> None:
    error = refusal(client, **body)
    assert text in error["message"]
    assert code in (None, error["code"])


def test_an_unknown_model_is_served_unless_told_otherwise(
    sim: Simulator, client: openai.OpenAI
) -> None:
    assert create(client, model="novel").status == "completed"
    sim.scenario = Scenario(any_model=False)
    assert refusal(client, model="novel")["code"] == "model_not_found"


def test_a_scenario_can_lower_the_ceiling(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(ceiling=50)
    assert "at most 50 output tokens" in refusal(client, max_output_tokens=64)["message"]
    assert create(client).usage.output_tokens == 50


# -- history


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([GO, CALL], "No tool output found for function call call_1."),
        ([OUTPUT], "No tool call found for function call output with call_id call_1."),
        (
            [GO, assistant("input_text")],
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ),
        (
            [assistant("output_text", id="msg_1"), GO, assistant("output_text", "b", id="msg_1")],
            "Duplicate item found with id msg_1.",
        ),
        (
            [GO, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}],
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        (
            [GO, {**CALL, "id": "call_1"}, OUTPUT],
            "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
        ),
        ([{"type": "reasoning", "id": "rs_9", "summary": []}, GO], f"'rs_9' {NOT_PERSISTED}"),
        ([{"type": "item_reference", "id": "msg_9"}], f"'msg_9' {NOT_PERSISTED}"),
        ([GO, {**CALL, "arguments": '{"a'}, OUTPUT], "Invalid 'input[1].arguments'"),
        ([GO, 3], "Invalid type for 'input[1]': expected an object"),
    ],
)
def test_a_history_is_refused(client: openai.OpenAI, items: list[Any], text: str) -> None:
    assert text in refusal(client, *items)["message"]


@pytest.mark.parametrize("store", [True, False])
def test_reasoning_that_was_not_stored_cannot_be_named(client: openai.OpenAI, store: bool) -> None:
    bare = {"type": "reasoning", "id": "rs_9", "summary": []}
    error = refusal(client, GO, bare, assistant("output_text"), GO, store=store)
    assert (error["status"], NOT_PERSISTED in error["message"]) == (404, True)


def test_a_kept_item_needs_its_reasoning(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([THOUGHT] * 4)
    thought, message = said(create(client))
    text = f"Item '{message['id']}' of type 'message' was provided without its required "
    error = refusal(client, GO, message, PROMPT)
    assert error["message"] == f"{text}'reasoning' item: '{thought['id']}'."
    error = refusal(client, GO, thought, PROMPT)
    assert "without its required following item" in error["message"]
    assert create(client, GO, thought, message, PROMPT).output_text == "done"
    unnamed = {name: value for name, value in message.items() if name != "id"}
    assert create(client, GO, unnamed, PROMPT).output_text == "done"


def test_a_message_that_was_not_stored_does_without_its_reasoning(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([THOUGHT] * 2)
    _, message = said(create(client, store=False))
    assert create(client, GO, message, PROMPT, store=False).output_text == "done"


# -- encrypted content


def test_encrypted_content_that_was_changed_is_refused(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([THOUGHT])
    thought, message = said(create(client, store=False))
    sealed = thought["encrypted_content"]
    for changed in (sealed[:-8], sealed[:-8] + "AAAAAAAA", sealed + "?"):
        broken = {**thought, "encrypted_content": changed}
        error = refusal(client, GO, broken, message, PROMPT, store=False)
        assert error["code"] == "invalid_encrypted_content"
        assert f"content for item {thought['id']} could not be verified." in error["message"]


def test_encrypted_content_belongs_to_its_item_and_to_its_owner(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([THOUGHT] * 2)
    thought, message = said(create(client, store=False))
    moved = {**thought, "id": "rs_other"}
    error = refusal(client, GO, moved, message, PROMPT, store=False)
    assert "item_id did not match" in error["message"]
    with connect(sim, "another") as other:
        error = refusal(other, GO, thought, message, PROMPT, store=False)
        assert "organization_id did not match" in error["message"]
    del thought["id"]
    assert create(client, GO, thought, message, PROMPT, store=False).output_text == "done"


def test_foreign_encrypted_content_is_refused_where_asked_for(
    sim: Simulator, client: openai.OpenAI
) -> None:
    foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
    items = [GO, foreign, assistant("output_text"), PROMPT]
    assert create(client, *items, store=False).status == "completed"
    sim.scenario = Scenario(strict_signatures=True)
    assert refusal(client, *items, store=False)["code"] == "invalid_encrypted_content"


# -- chains


def test_a_chain_needs_what_it_hangs_on(client: openai.OpenAI) -> None:
    error = refusal(client, PROMPT, previous_response_id="resp_1")
    assert error["message"] == "Previous response with id 'resp_1' not found."
    assert (
        error["status"],
        error["code"],
        error["param"],
    ) == (400, "previous_response_not_found", "previous_response_id")


def test_a_response_that_was_not_stored_starts_no_chain(client: openai.OpenAI) -> None:
    made = create(client, store=False)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert error["code"] == "previous_response_not_found"


def test_another_tenants_response_is_not_found(sim: Simulator, client: openai.OpenAI) -> None:
    made = create(client)
    with connect(sim, "another") as other:
        error = refusal(other, PROMPT, previous_response_id=made.id)
        assert error["code"] == "previous_response_not_found"
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(made.id)


def test_a_forgetful_server_finds_nothing(sim: Simulator, client: openai.OpenAI) -> None:
    made = create(client)
    sim.scenario = Scenario(forgets=True)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert error["code"] == "previous_response_not_found"


def test_a_server_without_chains_says_so(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = sim.scenario.but("chain=false")
    made = create(client)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert (error["code"], error["param"]) == ("unsupported_parameter", "previous_response_id")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


@pytest.mark.parametrize("cut", [None, 4])
def test_a_chain_with_an_open_call_wants_its_output(
    sim: Simulator, client: openai.OpenAI, cut: int | None
) -> None:
    call = ToolCall("Write", {"path": "a"}, id="call_7", cut=cut)
    sim.script([Reply([call], stop="tool_use" if cut is None else "max_tokens")])
    made = create(client)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert error["message"] == "No tool output found for function call call_7."
    output = {**OUTPUT, "call_id": "call_7"}
    assert create(client, output, previous_response_id=made.id).status == "completed"


def test_an_output_needs_a_call_of_its_own_chain(client: openai.OpenAI) -> None:
    made = create(client)
    error = refusal(client, OUTPUT, previous_response_id=made.id)
    assert error["message"].startswith("No tool call found for function call output with call_id")


def test_items_of_the_chain_must_not_be_sent_again(client: openai.OpenAI) -> None:
    made = create(client)
    again = said(made)[0]
    error = refusal(client, again, PROMPT, previous_response_id=made.id)
    assert error["message"] == f"Duplicate item found with id {again['id']}."


def test_places_in_a_refusal_count_the_requests_own_items(client: openai.OpenAI) -> None:
    made = create(client)
    wrong = {**CALL, "id": "wrong"}
    error = refusal(client, PROMPT, wrong, OUTPUT, previous_response_id=made.id)
    assert error["message"].startswith("Invalid 'input[1].id': 'wrong'.")
    assert error["param"] == "input[1]"


def test_a_deleted_response_takes_its_items_along(client: openai.OpenAI) -> None:
    made = create(client)
    named = {"type": "item_reference", "id": made.output[0].id}
    assert create(client, GO, named, PROMPT, store=False).status == "completed"
    client.responses.delete(made.id)
    assert NOT_PERSISTED in refusal(client, GO, named, PROMPT)["message"]


def test_counting_refuses_what_asking_refuses(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="No tool call found"):
        client.responses.input_tokens.count(model=OLD, input=[OUTPUT])  # type: ignore[list-item]


def test_a_refusal_is_no_stream(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="No tool output found"):
        stream(client, GO, CALL)


def test_a_background_answer_without_a_stream_has_none_to_resume(client: openai.OpenAI) -> None:
    made = create(client)
    with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
        client.responses.retrieve(made.id, stream=True)


def test_what_is_refused_is_what_a_repair_understands(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([Reply([Thinking("hm"), Text("done")])])
    _, message = said(create(client))
    for items, code in (
        ([GO, message, PROMPT], "reasoning_missing"),
        ([GO, CALL], "tool_result_missing"),
        ([OUTPUT], "tool_result_orphan"),
        ([{"type": "item_reference", "id": "msg_9"}], "item_not_stored"),
    ):
        error = refusal(client, *items)
        understood = classify(error["status"], error["message"])
        assert understood is not None
        assert understood.code == code


@pytest.mark.parametrize(
    "items",
    [
        [GO, CALL],
        [GO, OUTPUT, PROMPT],
        [GO, {**CALL, "id": "wrong"}, OUTPUT],
        [GO, assistant("input_text"), PROMPT],
        [GO, {**CALL, "arguments": '{"a', "status": "incomplete"}, PROMPT],
        [GO, assistant("output_text", id="msg_1"), GO, assistant("output_text", "b", id="msg_1")],
        [GO, {"type": "reasoning", "id": "rs_9", "summary": []}, assistant("output_text"), PROMPT],
    ],
)
def test_a_repaired_history_is_accepted(client: openai.OpenAI, items: list[Any]) -> None:
    refusal(client, *items, store=False)
    policy = RepairPolicy(live=False)
    mended = repair({"input": items, "store": False}, "openai-responses", policy=policy).body
    assert create(client, *mended["input"], store=False).status == "completed"
