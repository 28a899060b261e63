"""Chat Completions as the simulator speaks it, asked by the real SDK over a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from support.chat_helpers import (
    ANSWER,
    GO,
    MODEL,
    PROMPT,
    REASONING,
    RESULT,
    WRITE,
    chunks,
    connect,
    create,
    data,
    finish_of,
    post,
    said,
    text_of,
)

from continuation.simulator import Reply, Scenario, Simulator, Text, ToolCall, tokens

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


# -- recitation


def test_a_roomy_limit_lets_the_whole_answer_through(client: openai.OpenAI) -> None:
    completion = create(client, 4096)
    assert (text_of(completion), finish_of(completion)) == (ANSWER, "stop")
    usage = completion.usage
    assert usage.completion_tokens == tokens(ANSWER)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_the_answer_is_cut_where_the_limit_is_spent(client: openai.OpenAI) -> None:
    completion = create(client, 100)
    assert (text_of(completion), finish_of(completion)) == (ANSWER[:400], "length")
    assert completion.usage.completion_tokens == 100


def test_a_body_has_every_member_of_the_real_one(sim: Simulator) -> None:
    body = post(sim).json()
    choice = body["choices"][0]
    assert choice["message"].keys() == {"role", "content", "refusal", "annotations"}
    assert (choice["index"], choice["logprobs"]) == (0, None)
    assert body["object"] == "chat.completion"
    assert body["system_fingerprint"].startswith("fp_")
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_pairs_give_the_whole_answer(client: openai.OpenAI) -> None:
    turns, pieces = [GO], [""]
    while True:
        completion = create(client, 64, *turns)
        pieces.append(text_of(completion))
        if finish_of(completion) == "stop":
            break
        turns += [said(pieces[-1]), PROMPT]
    assert "".join(pieces) == ANSWER


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


def test_several_choices_are_all_told_and_paid_for(sim: Simulator, client: openai.OpenAI) -> None:
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
    sim.script([Reply([Text("x")], stop), Reply([Text("x")], stop)])
    assert finish_of(create(client)) == finish
    assert chunks(client)[-1].choices[0].finish_reason == finish


def test_a_cut_can_be_mislabelled(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(mislabel="stop")
    completion = create(client, 50)
    assert (finish_of(completion), completion.usage.completion_tokens) == ("stop", 50)


def test_every_prefix_of_the_path_is_served(sim: Simulator) -> None:
    for prefix in ("/v1", "/beta", "/api/v1", "/v1beta/openai", "/openai/deployments/gpt-4o", ""):
        assert post(sim, prefix).status_code == 200
    assert post(sim, "/openai/deployments/gpt-4o", model="missing").json()["model"] == MODEL


# -- streams


def test_a_stream_has_the_shape_of_the_real_one(sim: Simulator) -> None:
    first, *middle, last, done = data(sim)
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "", "refusal": None},
            "logprobs": None,
            "finish_reason": None,
        }
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


def test_the_sdks_own_stream_helper_reads_it(client: openai.OpenAI) -> None:
    turns: Any = [GO]
    with client.chat.completions.stream(model=MODEL, messages=turns, max_tokens=4096) as events:
        assert "".join(e.delta for e in events if e.type == "content.delta") == ANSWER
        final = events.get_final_completion()
    assert final.choices[0].finish_reason == "stop"


def test_the_sdks_helpers_find_the_truncation(client: openai.OpenAI) -> None:
    turns: Any = [GO]
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        client.chat.completions.parse(model=MODEL, messages=turns, max_tokens=100)
    assert caught.value.completion.choices[0].message.content == ANSWER[:400]
    with (
        client.chat.completions.stream(model=MODEL, messages=turns, max_tokens=100) as events,
        pytest.raises(openai.LengthFinishReasonError),
    ):
        events.get_final_completion()


async def _stream(url: str, count: int) -> list[str]:
    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        turns: Any = [{"role": "user", "content": f"recite {number}"}]
        stream = await client.chat.completions.create(
            model=MODEL, messages=turns, max_tokens=4096, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


def test_many_async_streams_at_once(sim: Simulator) -> None:
    assert asyncio.run(_stream(sim.url, 50)) == [ANSWER] * 50


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


# -- tool calls


def test_the_answer_can_come_as_a_call(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(call=True)
    whole = create(client, 4096, tools=[WRITE])
    (call,) = whole.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"path": "answer.txt", "content": ANSWER}
    assert finish_of(whole) == "tool_calls"
    turns = [GO, whole.choices[0].message, {**RESULT, "tool_call_id": call.id}]
    assert finish_of(create(client, 4096, *turns, tools=[WRITE])) == "stop"


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
    calls = [ToolCall("A", {"x": 1}, id="call_a"), ToolCall("B", '{"y": ', cut=4)]
    sim.script([Reply(calls, "max_tokens", deltas=3)])
    deltas = [chunk["choices"][0]["delta"] for chunk in data(sim)[:-1]]
    told = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert deltas[0]["content"] is None
    assert told[0] == {
        "index": 0,
        "id": "call_a",
        "type": "function",
        "function": {"name": "A", "arguments": ""},
    }
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
    assert tokens(streamed) == (30 if member else 0)


def test_thinking_can_eat_the_limit(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(thinking="all")
    completion = create(client, None, model=REASONING, max_completion_tokens=50)
    assert (text_of(completion), finish_of(completion)) == ("", "length")


def test_a_model_told_not_to_think_does_not(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(vendor="deepseek", thinking=30)
    off = {"thinking": {"type": "disabled"}}
    completion = create(client, 100, model="deepseek-v4-flash", extra_body=off)
    assert text_of(completion) == ANSWER[:400]


def test_a_cut_text_can_be_withheld(sim: Simulator, client: openai.OpenAI) -> None:
    sim.scenario = Scenario(quirks="withhold")
    completion = create(client, 100)
    assert (text_of(completion), completion.usage.completion_tokens) == ("", 100)
    assert completion.usage.completion_tokens_details.reasoning_tokens == 100
