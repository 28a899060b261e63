"""The simulated Responses API: its answers and streams, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel
from support.simulator_helpers import ANSWER, GO, PROMPT

from continuation.history import RepairPolicy, repair, validate
from continuation.limits import ModelLimits
from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, Thinking, ToolUse, tokens

MODEL = "gpt-5.4"
OLD = "gpt-4o"
CALL = {"type": "function_call", "call_id": "call_1", "name": "Write", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
THOUGHT = Reply([Thinking("hm"), Text("done")])
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search"},
}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_c", "name": "patch", "input": "*** Begin"}
CITED = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 2}
TINY = {"tiny": ModelLimits(ceiling=100, window=200, thinking="adaptive")}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER, models=TINY) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


def connect(sim: Simulator, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{sim.url}/v1", api_key=key, max_retries=0)


def create(client: openai.OpenAI, *items: Any, limit: int | None = None, **more: Any) -> Any:
    body = {"model": MODEL, "input": [*items] or [GO], **more}
    return client.responses.create(**body, max_output_tokens=limit)


def stream(client: openai.OpenAI, *items: Any, **more: Any) -> list[Any]:
    return list(create(client, *items, stream=True, **more))


def said(response: Any) -> list[dict[str, Any]]:
    """The output as a client sends it back."""
    return [item.to_dict() for item in response.output]


def seen(client: openai.OpenAI, response: Any) -> list[Any]:
    """What the model read before it gave this response, oldest first."""
    return [item.to_dict() for item in client.responses.input_items.list(response.id, order="asc")]


def refusal(client: openai.OpenAI, *items: Any, **body: Any) -> dict[str, Any]:
    """Send a body as it stands; return the error and its status."""
    whole = {"model": MODEL, "input": [*items] or [GO], **body}
    sent = {name: value for name, value in whole.items() if value != "missing"}
    with pytest.raises(openai.APIStatusError) as caught:
        client.post("/responses", body=sent, cast_to=object)
    answer: Any = caught.value.body
    assert answer["type"] == "invalid_request_error"
    assert caught.value.request_id is not None
    return {**answer, "status": caught.value.status_code}


def assistant(kind: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    content = [{"type": kind, "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


class City(BaseModel):
    name: str


# -- whole and cut answers


def test_a_whole_answer_is_completed(client: openai.OpenAI) -> None:
    response = create(client, instructions="Be brief.", metadata={"a": "b"})
    assert (response.output_text, response.status) == (ANSWER, "completed")
    assert (response.incomplete_details, response.output[0].status) == (None, "completed")
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert response.usage.output_tokens == tokens(ANSWER)
    assert response.usage.total_tokens == tokens(ANSWER) + response.usage.input_tokens


def test_a_cut_answer_is_incomplete_and_so_is_its_last_item(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(thinking=20)
    response = create(client, limit=100)
    assert (response.status, response.max_output_tokens) == ("incomplete", 100)
    assert response.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in response.output] == ["completed", "incomplete"]
    assert response.output_text == ANSWER[:320]
    usage = response.usage
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (100, 20)


@pytest.mark.parametrize(
    ("stop", "status", "reason"),
    [
        ("end_turn", "completed", None),
        ("tool_use", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("refusal", "incomplete", "content_filter"),
        ("steered", "incomplete", "steered"),
        ("failed", "failed", None),
    ],
)
def test_stop_words_are_translated(
    sim: Simulator, client: openai.OpenAI, stop: str, status: str, reason: str | None
) -> None:
    sim.script([Reply([Text("half")], stop=stop)] * 2)
    response, last = create(client), stream(client)[-1]
    details = response.incomplete_details
    assert (status, reason) == (response.status, details and details.reason)
    assert (f"response.{status}", status) == (last.type, last.response.status)


def test_reasoning_that_eats_the_limit_leaves_no_text(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(thinking="all")
    response = create(client, limit=64)
    assert [(item.type, item.status) for item in response.output] == [("reasoning", "incomplete")]
    assert response.output[0].encrypted_content is None
    assert response.usage.output_tokens == 64
    unthinking = create(client, limit=64, reasoning={"effort": "none"})
    assert [item.type for item in unthinking.output] == ["message"]


def test_a_summary_is_shown_only_on_request(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([THOUGHT] * 2)
    assert create(client).output[0].summary == []
    shown = create(client, reasoning={"summary": "auto"}).output[0]
    assert [part.text for part in shown.summary] == ["hm"]


def test_a_call_that_was_cut_comes_with_what_there_is(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(call=True)
    preface, call = create(client).output
    cut = create(client, limit=100).output[-1]
    assert (preface.type, call.name) == ("message", "Write")
    assert (cut.status, call.arguments.startswith(cut.arguments)) == ("incomplete", True)


def test_items_of_any_kind_can_be_scripted(sim: Simulator, client: openai.OpenAI) -> None:
    phased = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "hi", "annotations": [CITED]}],
    }
    sim.script([Reply([Raw(SEARCH), Raw(phased), Raw(CUSTOM), Raw({"type": "novel"})])] * 2)
    output = create(client).output
    kinds = ["web_search_call", "message", "custom_tool_call", "novel"]
    assert [item.type for item in output] == kinds
    assert (output[1].phase, output[0].id) == ("commentary", "ws_1")
    told = {event.type for event in stream(client)}
    assert "response.web_search_call.searching" in told
    assert "response.custom_tool_call_input.done" in told
    assert "response.output_text.annotation.added" in told


# -- streams


def test_a_stream_is_numbered_without_gaps_and_ends_without_done(sim: Simulator) -> None:
    sim.scenario = Scenario(thinking=10)
    body = {"model": MODEL, "input": "x", "stream": True, "reasoning": {"summary": "auto"}}
    headers = {"authorization": "Bearer k"}
    text = httpx2.post(f"{sim.url}/v1/responses?beta=true", headers=headers, json=body).text
    events = [line.split("\n") for line in text.strip().split("\n\n")]
    data = [json.loads(line.removeprefix("data: ")) for _, line in events]
    assert [event["sequence_number"] for event in data] == list(range(len(data)))
    assert [name for name, _ in events] == [f"event: {event['type']}" for event in data]
    assert data[-1]["type"] == "response.completed"


def test_a_cut_stream_tells_it_at_the_item_and_at_the_end(client: openai.OpenAI) -> None:
    events = stream(client, limit=20)
    assert [event.type for event in events if "delta" not in event.type] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert ("incomplete", ANSWER[:80]) == (events[-2].item.status, events[-4].text)
    assert events[-1].response.output_text == ANSWER[:80]
    assert events[0].response.usage is None
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1


def test_the_sdks_own_stream_accepts_every_kind_of_item(
    sim: Simulator, client: openai.OpenAI
) -> None:
    call = ToolUse("Write", {"path": "ä"})
    sim.script([Reply([Thinking("hm"), Text("ab"), Raw(SEARCH), call, Raw(CUSTOM)], deltas=1)])
    how: Any = {"model": MODEL, "input": "go", "reasoning": {"summary": "auto"}}
    with client.responses.stream(**how) as streamed:
        response = streamed.get_final_response()
    assert response.output_text == "ab"
    assert [item.type for item in response.output][3] == "function_call"


def test_the_encrypted_content_is_whole_only_at_the_items_end(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([THOUGHT])
    items = [e.item for e in stream(client) if e.type.startswith("response.output_item")]
    started, ended = [item.encrypted_content for item in items[:2]]
    assert ended.startswith(started)
    assert len(started) < len(ended)


def test_an_error_event_has_its_number(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(error_event={1: 5})
    last = stream(client)[-1]
    assert (last.type, last.sequence_number, last.code) == ("error", 5, "server_error")


def test_an_error_status_has_openais_form(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(status={1: 429})
    with pytest.raises(openai.RateLimitError) as caught:
        create(client)
    assert caught.value.code == "rate_limit_exceeded"


def test_a_refusal_part_is_streamed_as_one(sim: Simulator, client: openai.OpenAI) -> None:
    part = {"type": "refusal", "refusal": "I would rather not."}
    sim.script([Reply([Raw({"type": "message", "role": "assistant", "content": [part]})])])
    events = stream(client)
    assert "".join(e.delta for e in events if e.type == "response.refusal.delta") == part["refusal"]
    assert events[-1].response.output[0].content[0].refusal == part["refusal"]


# -- what is kept


def test_a_response_is_kept_until_a_reset(sim: Simulator, client: openai.OpenAI) -> None:
    made = create(client, limit=50)
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    named = {"type": "item_reference", "id": made.output[0].id}
    assert create(client, GO, named, PROMPT, store=False).output_text == ANSWER[200:]
    sim.reset()
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(made.id)
    assert NOT_PERSISTED in refusal(client, GO, named, PROMPT)["message"]
    assert {post.path for post in sim.posts} == {"/v1/responses"}, "only calls of the model"


def test_a_stream_that_broke_is_not_kept(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(drop={1: 6})
    streamed = create(client, stream=True)
    first = next(streamed)
    with pytest.raises(openai.APIConnectionError):
        list(streamed)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.response.id)


def test_a_chain_tells_the_model_all_that_went_before(client: openai.OpenAI) -> None:
    rules = {"role": "developer", "content": "Be brief."}
    first = create(client, rules, GO, limit=100)
    second = create(client, PROMPT, limit=100, previous_response_id=first.id)
    third = create(client, PROMPT, limit=4096, previous_response_id=second.id)
    assert first.output_text + second.output_text + third.output_text == ANSWER
    assert third.previous_response_id == second.id
    read = seen(client, third)
    turns = ["user", "assistant", "user", "assistant", "user"]
    assert [item["role"] for item in read] == ["developer", *turns]
    assert read[4] == said(second)[0]
    assert validate({"input": read}, "openai-responses") == []


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


def test_encrypted_reasoning_is_taken_back(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(strict_signatures=True)
    sim.script([THOUGHT] * 2)
    first = create(client, GO, store=False)
    assert create(client, GO, *said(first), PROMPT, store=False).output_text == "done"


# -- what is refused: form and model


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
        ({"max_output_tokens": "many"}, ">= 16, but got many", "integer_below_min_value"),
        (
            {"model": OLD, "reasoning": {"effort": "low"}},
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "unsupported_parameter",
        ),
        (
            {"previous_response_id": "resp_1"},
            "Previous response with id 'resp_1' not found.",
            "previous_response_not_found",
        ),
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


def test_a_scenario_can_lower_the_ceiling(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(ceiling=50)
    assert "at most 50 output tokens" in refusal(client, max_output_tokens=64)["message"]
    assert create(client).usage.output_tokens == 50


def test_paths_of_no_endpoint_are_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        client.responses.compact(model=MODEL, input="x")


# -- history

NOT_PERSISTED = "not found. Items are not persisted when `store` is set to false. Try again with"
BARE = {"type": "reasoning", "id": "rs_9", "summary": []}


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
            [GO, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}],
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        ([BARE, GO], f"'rs_9' {NOT_PERSISTED}"),
        ([{"type": "item_reference", "id": "msg_9"}], f"'msg_9' {NOT_PERSISTED}"),
    ],
)
def test_a_history_is_refused(client: openai.OpenAI, items: list[Any], text: str) -> None:
    assert text in refusal(client, *items)["message"]


@pytest.mark.parametrize("store", [True, False])
def test_reasoning_that_was_not_stored_cannot_be_named(client: openai.OpenAI, store: bool) -> None:
    error = refusal(client, GO, BARE, assistant("output_text"), GO, store=store)
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
    _, unstored = said(create(client, store=False))
    assert create(client, GO, unstored, PROMPT, store=False).output_text == ANSWER


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


def test_a_chain_needs_what_it_hangs_on(sim: Simulator, client: openai.OpenAI) -> None:
    made, unstored = create(client), create(client, store=False)
    assert unstored.store is False
    with connect(sim, "another") as other:
        lost = [(client, "resp_1"), (client, unstored.id), (other, made.id)]
        for asker, name in lost:
            error = refusal(asker, PROMPT, previous_response_id=name)
            told = (error["status"], error["code"], error["param"])
            assert told == (400, "previous_response_not_found", "previous_response_id")
            with pytest.raises(openai.NotFoundError):
                asker.responses.retrieve(name)
    assert create(client, PROMPT, previous_response_id=made.id).status == "completed"
    sim.scenario = Scenario(forgets=True)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert error["code"] == "previous_response_not_found"
    sim.scenario = Scenario()
    sim.reset()
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
    call = ToolUse("Write", {"path": "a"}, id="call_7", cut=cut)
    sim.script([Reply([call], stop="tool_use" if cut is None else "max_tokens")])
    made = create(client)
    error = refusal(client, PROMPT, previous_response_id=made.id)
    assert error["message"] == "No tool output found for function call call_7."
    error = refusal(client, OUTPUT, previous_response_id=made.id)
    assert error["message"].startswith("No tool call found for function call output with call_id")
    output = {**OUTPUT, "call_id": "call_7"}
    assert create(client, output, previous_response_id=made.id).status == "completed"


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


@pytest.mark.parametrize(
    "items",
    [
        [GO, CALL],
        [GO, OUTPUT, PROMPT],
        [GO, {**CALL, "id": "wrong"}, OUTPUT],
        [GO, assistant("input_text"), PROMPT],
        [GO, {**CALL, "arguments": '{"a', "status": "incomplete"}, PROMPT],
        [GO, assistant("output_text", id="msg_1"), GO, assistant("output_text", "b", id="msg_1")],
        [GO, BARE, assistant("output_text"), PROMPT],
    ],
)
def test_a_repaired_history_is_accepted(client: openai.OpenAI, items: list[Any]) -> None:
    refusal(client, *items, store=False)
    policy = RepairPolicy(live=False)
    mended = repair({"input": items, "store": False}, "openai-responses", policy=policy).body
    assert create(client, *mended["input"], store=False).status == "completed"
