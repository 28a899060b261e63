"""Chat Completions as the simulator speaks it, asked by the real SDK over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from support.chat_helpers import (
    ANSWER,
    GO,
    HEADERS,
    MODEL,
    REASONING,
    WRITE,
    chunks,
    connect,
    create,
    data,
    finish_of,
    post,
    refused,
    said,
    text_of,
)

from continuation.limits import ModelLimits
from continuation.simulator import Block, Raw, Reply, Scenario, Simulator, Text, Thinking, ToolUse
from continuation.simulator import tokens as tokens_of


@pytest.fixture
def client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with connect(sim) as made:
        yield made


# -- recitation


def test_a_body_has_every_member_of_the_real_one(sim: Simulator) -> None:
    body = post(sim).json()
    choice, usage = body["choices"][0], body["usage"]
    assert choice["message"].keys() == {"role", "content", "refusal", "annotations"}
    assert (choice["index"], choice["logprobs"]) == (0, None)
    assert body["object"] == "chat.completion"
    assert body["system_fingerprint"].startswith("fp_")
    assert usage["completion_tokens"] == 100
    assert usage["total_tokens"] == usage["prompt_tokens"] + 100
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_content_parts_say_the_same_as_a_string(client: openai.OpenAI) -> None:
    partial = {"role": "assistant", "content": [{"type": "text", "text": ANSWER[:777]}]}
    asked = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
    assert text_of(create(client, 4096, GO, partial, asked)) == ANSWER[777:]


def test_without_a_limit_openai_goes_to_the_ceiling_and_others_do_not() -> None:
    with Simulator(ANSWER * 10, Scenario(ceiling=3000)) as sim, connect(sim) as client:
        assert create(client, None).usage.completion_tokens == 3000
        sim.scenario = Scenario(vendor="moonshot")
        assert create(client, None, model="kimi-k3").usage.completion_tokens == 1024


@pytest.mark.parametrize("stop", ["Line 3", ["Line 3", "Line 9"]])
def test_a_stop_sequence_ends_the_answer(client: openai.OpenAI, stop: Any) -> None:
    completion = create(client, 4096, stop=stop)
    assert text_of(completion) == ANSWER[: ANSWER.index("Line 3")]
    assert finish_of(completion) == "stop"


def test_several_choices_are_all_told_and_paid_for(client: openai.OpenAI) -> None:
    completion = create(client, 10, n=3)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert completion.usage.completion_tokens == 30
    ends = [c.choices[0] for c in chunks(client, 10, n=2) if c.choices[0].finish_reason]
    assert [(end.index, end.finish_reason) for end in ends] == [(0, "length"), (1, "length")]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("max_tokens", "length"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("model_context_window_exceeded", "length"),
        ("insufficient_system_resource", "insufficient_system_resource"),
    ],
)
def test_stop_reasons_are_translated(
    sim: Simulator, client: openai.OpenAI, stop: str, finish: str
) -> None:
    sim.script([Reply([Text("x")], stop)] * 2)
    assert finish_of(create(client)) == finish
    assert chunks(client)[-1].choices[0].finish_reason == finish


def test_every_prefix_of_the_path_is_served(sim: Simulator) -> None:
    for prefix in ("/v1", "/beta", "/api/v1", "/v1beta/openai", "/openai/deployments/gpt-4o", ""):
        assert post(sim, prefix).status_code == 200
    assert post(sim, "/openai/deployments/gpt-4o", model="missing").json()["model"] == MODEL


# -- streams


def test_a_stream_has_the_shape_of_the_real_one(sim: Simulator) -> None:
    first, *middle, last, done = data(sim)
    delta = {"role": "assistant", "content": "", "refusal": None}
    assert first["choices"] == [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    ]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == ANSWER[:400]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in [first, *middle, last]} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in [first, *middle, last]}) == 1
    assert all("obfuscation" in chunk and "usage" not in chunk for chunk in middle)


def test_usage_is_streamed_only_if_asked_for(sim: Simulator) -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    *before, last, _ = data(sim, stream_options=options)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 100
    assert all(chunk["usage"] is None and "obfuscation" not in chunk for chunk in before)
    assert not any("usage" in chunk for chunk in data(sim)[:-1])


def test_the_sdks_helpers_read_it_and_find_the_truncation(client: openai.OpenAI) -> None:
    how: Any = {"model": MODEL, "messages": [GO]}
    with client.chat.completions.stream(**how, max_tokens=4096) as events:
        assert "".join(e.delta for e in events if e.type == "content.delta") == ANSWER
        assert events.get_final_completion().choices[0].finish_reason == "stop"
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        client.chat.completions.parse(**how, max_tokens=100)
    assert caught.value.completion.choices[0].message.content == ANSWER[:400]
    with (
        client.chat.completions.stream(**how, max_tokens=100) as events,
        pytest.raises(openai.LengthFinishReasonError),
    ):
        events.get_final_completion()


def test_azure_begins_with_its_filter_results(sim: Simulator) -> None:
    sim.scenario = Scenario(vendor="azure")
    with openai.AzureOpenAI(
        azure_endpoint=sim.url, api_key="k", api_version="2024-10-21", max_retries=0
    ) as client:
        first, second, *_ = chunks(client)
        completion = create(client)
    assert sim.posts[0].path == f"/openai/deployments/{MODEL}/chat/completions"
    assert "api-key" in sim.posts[0].headers
    assert (first.choices, first.id) == ([], "")
    assert first.model_extra["prompt_filter_results"][0]["prompt_index"] == 0
    assert second.choices[0].delta.role == "assistant"
    assert completion.choices[0].model_extra["content_filter_results"]["hate"]["filtered"] is False


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
    how: Any = {"model": "mistral-large-latest", "max_tokens": 4096, "tools": [WRITE]}
    *_, last, _ = data(sim, **how)
    assert last["usage"]["completion_tokens"] > 100
    body = post(sim, **how).json()
    assert len(body["choices"][0]["message"]["tool_calls"][0]["id"]) == 9


def test_an_error_can_come_in_the_middle(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(error_event={1: 3})
    with pytest.raises(openai.APIError, match="The server had an error") as caught:
        chunks(client)
    assert caught.value.type == "server_error"


# -- tool calls


def test_a_call_that_was_cut_comes_with_what_there_is(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(call=True)
    cut = create(client, 100, tools=[WRITE])
    arguments = cut.choices[0].message.tool_calls[0].function.arguments
    assert finish_of(cut) == "length"
    assert arguments.startswith('{"path": "answer.txt", "content": "Line 0')
    streamed = [
        call.function.arguments
        for chunk in chunks(client, 100, tools=[WRITE])
        for call in chunk.choices[0].delta.tool_calls or []
    ]
    assert "".join(streamed) == arguments


def test_calls_are_streamed_by_index(sim: Simulator) -> None:
    calls = [ToolUse("A", {"x": 1}, id="call_a"), ToolUse("B", '{"y": ', cut=4)]
    sim.script([Reply(calls, "max_tokens", deltas=3)])
    deltas = [chunk["choices"][0]["delta"] for chunk in data(sim)[:-1]]
    told = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert deltas[0]["content"] is None
    function = {"name": "A", "arguments": ""}
    assert told[0] == {"index": 0, "id": "call_a", "type": "function", "function": function}
    assert told[1] == {"index": 0, "function": {"arguments": '{"x'}}
    assert "".join(c["function"]["arguments"] for c in told if c["index"] == 1) == '{"y"'


@pytest.mark.parametrize(
    ("vendor", "quirks", "finish"),
    [
        ("openai", "", "length"),
        ("vllm", "", "tool_calls"),
        ("vllm", "cut-call-stop", "stop"),
        ("ollama", "", "length"),
    ],
)
def test_what_is_said_of_a_cut_call_depends_on_the_vendor(
    sim: Simulator, client: openai.OpenAI, vendor: str, quirks: str, finish: str
) -> None:
    sim.scenario = Scenario(vendor=vendor, quirks=quirks, call=True)
    assert finish_of(create(client, 100, tools=[WRITE])) == finish
    assert chunks(client, 100, tools=[WRITE])[-1].choices[0].finish_reason == "length"


# -- thinking


@pytest.mark.parametrize(
    ("vendor", "model", "member"),
    [
        ("deepseek", "deepseek-v4-flash", "reasoning_content"),
        ("moonshot", "kimi-k3", "reasoning_content"),
        ("openrouter", "qwen/qwen3.7-plus", "reasoning"),
        ("groq", "openai/gpt-oss-120b", "reasoning"),
        ("openai", REASONING, None),
    ],
)
def test_thinking_is_shown_where_the_vendor_shows_it(
    sim: Simulator, client: openai.OpenAI, vendor: str, model: str, member: str | None
) -> None:
    sim.scenario = Scenario(vendor=vendor, thinking=30)
    limit: Any = {"max_tokens": openai.omit, "max_completion_tokens": 100, "model": model}
    if vendor == "deepseek":
        limit = {"max_tokens": 100, "model": model}
    completion = create(client, 100, **limit)
    message = completion.choices[0].message
    assert (message.content, completion.usage.completion_tokens) == (ANSWER[:280], 100)
    assert completion.usage.completion_tokens_details.reasoning_tokens == 30
    shown = (message.model_extra or {}).keys() & {"reasoning", "reasoning_content"}
    assert shown == ({member} if member else set())
    deltas = [chunk.choices[0].delta.model_extra for chunk in chunks(client, 100, **limit)]
    streamed = "".join(delta[member] for delta in deltas if member in delta) if member else ""
    assert tokens_of(streamed) == (30 if member else 0)


def test_a_model_told_not_to_think_does_not(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(vendor="deepseek", thinking=30)
    off = {"thinking": {"type": "disabled"}}
    completion = create(client, 100, model="deepseek-v4-flash", extra_body=off)
    assert text_of(completion) == ANSWER[:400]


def test_a_cut_can_be_mislabelled_and_its_text_withheld(
    sim: Simulator, client: openai.OpenAI
) -> None:
    sim.scenario = Scenario(mislabel="stop")
    completion = create(client, 50)
    assert (finish_of(completion), completion.usage.completion_tokens) == ("stop", 50)
    sim.scenario = Scenario(quirks="withhold")
    completion = create(client, 100)
    assert (text_of(completion), completion.usage.completion_tokens) == ("", 100)
    assert completion.usage.completion_tokens_details.reasoning_tokens == 100


# -- what a script can do


def test_raw_blocks_and_usage_are_merged_as_they_stand(
    sim: Simulator, client: openai.OpenAI
) -> None:
    refusal = Raw({"refusal": "no", "annotations": [{"type": "url_citation"}]})
    blocks: list[Block] = [Text("x"), refusal]
    usage = {"prompt_cache_hit_tokens": 7, "completion_tokens_details": None}
    sim.script([Reply(blocks, extra={"provider": "P"}, usage=usage), Reply(blocks)])
    completion = create(client)
    assert completion.choices[0].message.refusal == "no"
    assert completion.model_extra == {"provider": "P"}
    assert completion.usage.model_extra == {"prompt_cache_hit_tokens": 7}
    assert completion.usage.completion_tokens_details is None
    assert [c.choices[0].delta.refusal for c in chunks(client)] == [None, None, "no", None]


def test_hidden_thinking_is_scripted_as_well(sim: Simulator, client: openai.OpenAI) -> None:
    sim.script([Reply([Thinking("hm", tokens=9), Text("x")])])
    completion = create(client)
    assert (text_of(completion), completion.usage.completion_tokens) == ("x", 10)


# -- models, settings


def test_models_are_described_in_the_vendors_way(sim: Simulator, client: openai.OpenAI) -> None:
    assert client.models.retrieve("gpt-4o").id == "gpt-4o"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("nobody")
    assert httpx2.get(f"{sim.url}/v1/models").status_code == 401
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    url = f"{sim.url}/v1/models/claude-opus-5"
    assert httpx2.get(url, headers=headers).json()["type"] == "model"
    assert httpx2.get(url, headers=HEADERS).json()["object"] == "model"


def test_some_vendors_tell_their_limits() -> None:
    models = {"a/b": ModelLimits(ceiling=4096, window=9000)}
    with (
        Simulator(ANSWER, Scenario(vendor="openrouter"), models=models) as sim,
        connect(sim, "/api/v1") as client,
    ):
        told = client.models.retrieve("a/b").model_extra
    assert told is not None
    assert (told["context_length"], told["top_provider"]["max_completion_tokens"]) == (9000, 4096)


def test_vendor_and_quirks_are_named_in_the_header_or_refused(client: openai.OpenAI) -> None:
    how = {"x-simulate": "vendor=moonshot, quirks=no-finish"}
    assert chunks(client, extra_headers=how)[-1].choices[0].finish_reason is None
    for setting, why in (
        ("vendor=acme", "vendor: 'acme' is none of openai, azure, deepseek"),
        ("quirks=no-finish+no-sense", "quirks: 'no-sense' is none of max-tokens-only"),
    ):
        with pytest.raises(openai.BadRequestError, match=why):
            create(client, extra_headers={"x-simulate": setting})


# -- what is refused by the form of a request alone


@pytest.mark.parametrize(
    ("body", "text", "code", "param"),
    [
        (
            {"messages": [GO, said(None)]},  # type: ignore[arg-type]
            "Invalid value for 'content': expected a string, got null.",
            None,
            "messages.[1].content",
        ),
        (
            {"max_tokens": 0},
            "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 "
            "instead.",
            "integer_below_min_value",
            "max_tokens",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            None,
            "stream_options",
        ),
        (
            {"continue_final_message": True},
            "Unrecognized request argument supplied: continue_final_message",
            None,
            None,
        ),
        (
            {"max_completion_tokens": 5},
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "invalid_parameter_combination",
            None,
        ),
    ],
)
def test_openai_refuses_what_others_take(
    sim: Simulator, body: dict[str, Any], text: str, code: str | None, param: str | None
) -> None:
    assert refused(sim, **body)["error"] == {
        "message": text,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }
