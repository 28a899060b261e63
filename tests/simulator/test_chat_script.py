"""What scripts, faults and vendors do to Chat Completions on their way, and the models page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from support.chat_helpers import (
    ANSWER,
    CALLED,
    GO,
    HEADERS,
    RESULT,
    WRITE,
    chunks,
    connect,
    create,
    data,
    finish_of,
    post,
    text_of,
)

from continuation.limits import ModelLimits
from continuation.simulator import Block, Raw, Reply, Scenario, Simulator, Text, Thinking

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


# -- what a script can do


def test_raw_blocks_are_merged_as_they_stand(sim: Simulator, client: openai.OpenAI) -> None:
    blocks: list[Block] = [
        Text("x"),
        Raw({"refusal": "no", "annotations": [{"type": "url_citation"}]}),
    ]
    sim.script([Reply(blocks, extra={"provider": "P"}), Reply(blocks)])
    completion = create(client)
    assert completion.choices[0].message.refusal == "no"
    assert completion.model_extra == {"provider": "P"}
    assert [c.choices[0].delta.refusal for c in chunks(client)] == [None, None, "no", None]


def test_usage_can_be_overlaid(sim: Simulator, client: openai.OpenAI) -> None:
    extra = {"prompt_cache_hit_tokens": 7, "completion_tokens_details": None}
    sim.script([Reply([Text("x")], usage=extra)])
    usage = create(client).usage
    assert usage.model_extra == {"prompt_cache_hit_tokens": 7}
    assert usage.completion_tokens_details is None


def test_raw_events_and_bodies_are_sent_verbatim(sim: Simulator) -> None:
    sim.script([Reply(raw_events=[(None, {"x": 1}), (None, "[DONE]")]), Reply(raw_body={"y": 2})])
    assert data(sim) == [{"x": 1}, "[DONE]"]
    assert post(sim).json() == {"y": 2}


@pytest.mark.parametrize(
    "how", [{"gzip": True}, {"newline": "\r\n"}, {"comments": True}, {"chunk": 7}]
)
def test_a_stream_may_travel_in_any_legal_shape(
    sim: Simulator, client: openai.OpenAI, how: dict[str, Any]
) -> None:
    sim.script([Reply([Text(ANSWER)], **how)])
    got = "".join(chunk.choices[0].delta.content or "" for chunk in chunks(client))
    assert got == ANSWER


def test_a_stream_can_be_dropped(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(drop={1: 3})
    with pytest.raises(openai.APIConnectionError):
        chunks(client)


def test_an_error_can_come_in_the_middle(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(error_event={1: 3, 2: 3})
    with pytest.raises(openai.APIError, match="The server had an error") as caught:
        chunks(client)
    assert caught.value.type == "server_error"
    with pytest.raises(openai.InternalServerError):
        create(client)


@pytest.mark.parametrize(
    ("status", "kind"), [(429, openai.RateLimitError), (503, openai.InternalServerError)]
)
def test_a_status_comes_by_attempt(
    sim: Simulator, client: openai.OpenAI, status: int, kind: type[openai.APIStatusError]
) -> None:
    sim.scenario = Scenario(status={1: status}, retry_after=1)
    with pytest.raises(kind) as caught:
        create(client)
    assert caught.value.response.headers["retry-after"] == "1"
    assert text_of(create(client)) == ANSWER[:400]


def test_a_truncation_can_come_as_a_refusal(sim: Simulator, client: openai.OpenAI) -> None:
    why = (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    )
    sim.script([Reply(status=400, error=("invalid_request_error", why))])
    with pytest.raises(openai.BadRequestError) as caught:
        create(client)
    assert caught.value.body == {
        "message": why,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize(
    ("scenario", "finishes", "done"),
    [
        (Scenario(), True, True),
        (Scenario(quirks="no-finish"), False, True),
        (Scenario(quirks="no-finish+no-done"), False, False),
        (Scenario(vendor="lmstudio"), True, True),
    ],
)
def test_a_cut_stream_may_end_without_saying_so(
    sim: Simulator, scenario: Scenario, finishes: bool, done: bool
) -> None:
    sim.scenario = scenario
    got = data(sim)
    reasons = [c["choices"][0]["finish_reason"] for c in got if c != "[DONE]"]
    assert (("length" in reasons), got[-1] == "[DONE]") == (finishes, done)


def test_lm_studio_says_nothing_at_the_end_of_the_window() -> None:
    models = {"mine": ModelLimits(ceiling=4096, window=100)}
    with Simulator(ANSWER, Scenario(vendor="lmstudio"), models=models) as sim:
        got = data(sim, model="mine", max_tokens="missing")
    assert all(c == "[DONE]" or c["choices"][0]["finish_reason"] is None for c in got)


def test_mistral_tells_usage_unasked_and_its_ids_are_short(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="mistral", call=True)
    *_, last, _ = data(sim, model="mistral-large-latest", max_tokens=4096, tools=[WRITE])
    assert last["usage"]["completion_tokens"] > 100
    body = post(sim, model="mistral-large-latest", max_tokens=4096, tools=[WRITE]).json()
    assert len(body["choices"][0]["message"]["tool_calls"][0]["id"]) == 9


# -- models, settings


def test_models_are_described_in_the_vendors_way(client: openai.OpenAI) -> None:
    assert client.models.retrieve("gpt-4o").id == "gpt-4o"
    assert client.models.list().data == []
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("nobody")


def test_some_vendors_tell_their_limits() -> None:
    models = {"a/b": ModelLimits(ceiling=4096, window=9000)}
    with (
        Simulator(ANSWER, Scenario(vendor="openrouter"), models=models) as sim,
        connect(sim, "/api/v1") as client,
    ):
        told = client.models.retrieve("a/b").model_extra
        assert [model.id for model in client.models.list()] == ["a/b"]
    assert told is not None
    assert (told["context_length"], told["top_provider"]["max_completion_tokens"]) == (9000, 4096)


def test_anthropics_models_are_still_anthropics(sim: Simulator) -> None:
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    url = f"{sim.url}/v1/models/claude-opus-5"
    assert httpx2.get(url, headers=headers).json()["type"] == "model"
    assert httpx2.get(url, headers=HEADERS).json()["object"] == "model"


def test_a_vendor_can_be_set_for_one_request(client: openai.OpenAI) -> None:
    how = {"x-simulate": "vendor=moonshot, quirks=no-finish"}
    assert chunks(client, extra_headers=how)[-1].choices[0].finish_reason is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"vendor": "acme"}, "vendor: 'acme' is none of openai, azure, deepseek"),
        ({"quirks": "no-finish+no-sense"}, "quirks: 'no-sense' is none of max-tokens-only"),
    ],
)
def test_an_unknown_vendor_is_named(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("+", "\\+")):
        Scenario(**settings)


def test_the_header_names_what_is_unknown(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'acme' is none of openai"):
        create(client, extra_headers={"x-simulate": "vendor=acme"})


def test_a_tool_loop_goes_on(client: openai.OpenAI) -> None:
    assert finish_of(create(client, 4096, GO, CALLED, RESULT, tools=[WRITE])) == "stop"


def test_hidden_thinking_is_scripted_as_well(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([Reply([Thinking("hm", tokens=9), Text("x")])])
    completion = create(client)
    assert (text_of(completion), completion.usage.completion_tokens) == ("x", 10)
