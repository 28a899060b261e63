"""The simulated Responses API, asked by the real SDK over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel
from support.responses_helpers import (
    ANSWER,
    CALL,
    GO,
    MODEL,
    OUTPUT,
    PROMPT,
    THOUGHT,
    connect,
    create,
    stream,
)

from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, Thinking, ToolCall, tokens

SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search"},
}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_c", "name": "patch", "input": "*** Begin"}
CITED = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 2}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


class City(BaseModel):
    name: str


# -- whole and cut answers


def test_a_whole_answer_is_completed(client: openai.OpenAI) -> None:
    response = create(client, limit=4096, instructions="Be brief.", metadata={"a": "b"})
    assert (
        response.output_text,
        response.status,
        response.incomplete_details,
    ) == (ANSWER, "completed", None)
    assert response.output[0].status == "completed"
    assert (response.instructions, response.max_output_tokens) == ("Be brief.", 4096)
    assert response.metadata == {"a": "b"}
    assert response.usage.output_tokens == tokens(ANSWER)
    assert response.usage.total_tokens == tokens(ANSWER) + response.usage.input_tokens


def test_an_answer_without_a_limit_has_the_models_ceiling(client: openai.OpenAI) -> None:
    assert create(client).output_text == ANSWER


def test_a_cut_answer_is_incomplete_and_so_is_its_last_item(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(thinking=20)
    response = create(client, limit=100)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in response.output] == ["completed", "incomplete"]
    assert response.output_text == ANSWER[:320]
    assert (
        response.usage.output_tokens,
        response.usage.output_tokens_details.reasoning_tokens,
    ) == (100, 20)


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


def test_a_mislabelled_cut_says_completed_everywhere(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(mislabel="completed")
    response = create(client, limit=100)
    assert (ANSWER[:400], "completed", "completed") == (
        response.output_text,
        response.status,
        response.output[0].status,
    )
    assert response.usage.output_tokens == 100


def test_structured_output_parses(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([Reply([Text('{"name": "Rome"}')])])
    parsed = client.responses.parse(model=MODEL, input="where", text_format=City)
    assert parsed.output_parsed == City(name="Rome")


def test_reasoning_that_eats_the_limit_leaves_no_text(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(thinking="all")
    response = create(client, limit=64)
    assert [(item.type, item.status) for item in response.output] == [("reasoning", "incomplete")]
    assert response.output[0].encrypted_content is None
    assert (response.usage.output_tokens, response.output_text) == (64, "")


def test_no_effort_means_no_reasoning(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(thinking=20)
    response = create(client, limit=100, reasoning={"effort": "none"})
    assert [item.type for item in response.output] == ["message"]


def test_a_summary_is_shown_only_on_request(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([THOUGHT] * 2)
    assert create(client).output[0].summary == []
    shown = create(client, reasoning={"summary": "auto"}).output[0]
    assert [part.text for part in shown.summary] == ["hm"]


def test_token_probabilities_come_on_request(client: openai.OpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    part = create(client, limit=16, include=include).output[0].content[0]
    assert "".join(entry.token for entry in part.logprobs) == part.text
    last = stream(client, limit=16, include=include)
    deltas = [e for e in last if e.type == "response.output_text.delta"]
    assert "".join(entry.token for e in deltas for entry in e.logprobs) == part.text


def test_a_long_prompt_is_cached_from_the_second_time_on(client: openai.OpenAI) -> None:
    long = "x" * 8000
    first, second = create(client, instructions=long), create(client, instructions=long)
    assert first.usage.input_tokens_details.cached_tokens == 0
    assert 1024 < second.usage.input_tokens_details.cached_tokens <= second.usage.input_tokens


def test_a_call_comes_with_its_arguments(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(call=True)
    preface, call = create(client).output
    assert (preface.type, call.type, call.name) == ("message", "function_call", "Write")
    assert json.loads(call.arguments)["content"] == ANSWER
    cut = create(client, limit=100).output[-1]
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
    assert [item.type for item in output] == [
        "web_search_call",
        "message",
        "custom_tool_call",
        "novel",
    ]
    assert (output[1].phase, output[0].id) == ("commentary", "ws_1")
    kinds = [event.type for event in stream(client)]
    for part in ("web_search_call.searching", "custom_tool_call_input.done"):
        assert f"response.{part}" in kinds
    assert "response.output_text.annotation.added" in kinds


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
    call = ToolCall("Write", {"path": "ä"})
    sim.script([Reply([Thinking("hm"), Text("ab"), Raw(SEARCH), call, Raw(CUSTOM)], deltas=1)])
    with client.responses.stream(
        model=MODEL, input="go", reasoning={"summary": "auto"}
    ) as streamed:
        response = streamed.get_final_response()
    assert response.output_text == "ab"
    assert [item.type for item in response.output][3] == "function_call"


def test_the_encrypted_content_is_whole_only_at_the_items_end(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([THOUGHT])
    started, ended = [e.item for e in stream(client) if e.type.startswith("response.output_item")][
        :2
    ]
    assert ended.encrypted_content.startswith(started.encrypted_content)
    assert len(started.encrypted_content) < len(ended.encrypted_content)


def test_the_sdks_own_stream_has_no_final_response_of_a_cut_answer(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="go", max_output_tokens=20) as streamed:
        assert [*streamed][-1].type == "response.incomplete"
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            streamed.get_final_response()


def test_a_stream_can_end_in_an_error_event(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(error_event={1: 5})
    last = stream(client)[-1]
    assert (last.type, last.sequence_number, last.code) == ("error", 5, "server_error")
    sim.reset()
    with pytest.raises(openai.InternalServerError):
        create(client)


def test_an_error_status_has_openais_form(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(status={1: 429}, retry_after=3)
    with pytest.raises(openai.RateLimitError) as caught:
        create(client)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "3"


# -- the rest


def test_only_calls_of_the_model_count_as_posts(sim: Simulator, client: openai.OpenAI) -> None:
    made = create(client, CALL, OUTPUT, PROMPT)
    client.responses.retrieve(made.id)
    client.responses.input_tokens.count(model=MODEL, input="x")
    assert [request.path for request in sim.posts] == ["/v1/responses"]


async def hear(url: str) -> list[str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as client:
        streamed = client.responses.stream(model=MODEL, input="go", max_output_tokens=20)
        async with streamed as events:
            return [e.delta async for e in events if e.type == "response.output_text.delta"]


def test_the_async_client_hears_the_same(sim: Simulator) -> None:
    assert "".join(asyncio.run(hear(sim.url))) == ANSWER[:80]


def test_a_refusal_part_is_streamed_as_one(sim: Simulator, client: openai.OpenAI) -> None:
    part = {"type": "refusal", "refusal": "I would rather not."}
    sim.script([Reply([Raw({"type": "message", "role": "assistant", "content": [part]})])])
    events = stream(client)
    assert "".join(e.delta for e in events if e.type == "response.refusal.delta") == part["refusal"]
    assert events[-1].response.output[0].content[0].refusal == part["refusal"]


def test_bytes_of_the_scripts_own_are_sent_as_they_stand(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.script([Reply(raw_body={"id": "resp_x"}), Reply(raw_events=[("novel", {"type": "novel"})])])
    assert create(client).id == "resp_x"
    assert [event.type for event in stream(client)] == ["novel"]


def test_a_developer_message_is_read_but_is_no_turn(client: openai.OpenAI) -> None:
    rules = {"role": "developer", "content": "Be brief."}
    made = create(client, rules, GO, limit=100)
    assert create(client, rules, PROMPT, previous_response_id=made.id).output_text == ANSWER[400:]


def test_an_unknown_setting_is_refused_in_openais_form(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="is not a setting"):
        create(client, extra_headers={"x-simulate": "novel=1"})


def test_paths_of_no_endpoint_are_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        client.responses.compact(model=MODEL, input="x")
