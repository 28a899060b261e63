"""LiteLLM: its two sessions for what it sends through the OpenAI SDK, or a client for one call.

What it sends to Anthropic goes through its own handler, which takes a client of ours for one call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import continuation
from continuation.simulator import Reply
from frameworks.stage import (
    ANSWER,
    CLAUDE,
    ESSAY,
    FAST,
    GPT,
    LIMIT,
    WEATHER,
    Essay,
    Stage,
    async_client,
    client,
    module,
    run,
)

litellm = module("litellm")
handlers = module("litellm.llms.custom_httpx.http_handler")
openai = module("openai")

# It warns of its own models while it answers.
pytestmark = pytest.mark.filterwarnings("default")

WEATHER_TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}

Asked = dict[str, Any]
Plug = Callable[[Stage], tuple[Asked, Asked]]
"""What a synchronous call and an asynchronous one are given beside the usual."""


def sessions(stage: Stage) -> tuple[Asked, Asked]:
    litellm.client_session = continuation.http_client(client(), config=FAST)
    litellm.aclient_session = continuation.async_http_client(async_client(), config=FAST)
    return {}, {}


def clients(stage: Stage) -> tuple[Asked, Asked]:
    place: Asked = {"base_url": stage.openai_url, "api_key": "k"}
    sync = openai.OpenAI(**place, http_client=client())
    other = openai.AsyncOpenAI(**place, http_client=async_client())
    return (
        {"client": continuation.wrap(sync, config=FAST)},
        {"client": continuation.wrap(other, config=FAST)},
    )


every_plug = pytest.mark.parametrize("plug", [sessions, clients], ids=lambda plug: plug.__name__)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    litellm.client_session = litellm.aclient_session = None
    litellm.in_memory_llm_clients_cache.flush_cache()


def ask(stage: Stage, what: str = "recite", **more: Any) -> Asked:
    return {
        "model": f"openai/{GPT}",
        "messages": [{"role": "user", "content": what}],
        "max_tokens": LIMIT,
        "api_base": stage.openai_url,
        "api_key": "k",
        **more,
    }


def said(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@every_plug
def test_a_cut_answer_is_whole(stage: Stage, plug: Plug) -> None:
    sync, _ = plug(stage)
    choice = litellm.completion(**ask(stage), **sync).choices[0]
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    stage.assert_escalated()


@every_plug
def test_a_cut_answer_is_whole_async(stage: Stage, plug: Plug) -> None:
    _, other = plug(stage)
    answer = run(litellm.acompletion(**ask(stage), **other))
    assert answer.choices[0].message.content == ANSWER
    stage.assert_escalated()


@every_plug
def test_a_cut_stream_is_whole(stage: Stage, plug: Plug) -> None:
    sync, _ = plug(stage)
    assert said(list(litellm.completion(**ask(stage), **sync, stream=True))) == ANSWER
    stage.assert_healed()


@every_plug
def test_a_cut_stream_is_whole_async(stage: Stage, plug: Plug) -> None:
    _, other = plug(stage)

    async def chunks() -> list[Any]:
        return [c async for c in await litellm.acompletion(**ask(stage), **other, stream=True)]

    assert said(run(chunks())) == ANSWER
    stage.assert_healed()


@every_plug
def test_cut_structured_output_is_whole(stage: Stage, plug: Plug) -> None:
    stage.cut_document()
    sync, _ = plug(stage)
    answer = litellm.completion(**ask(stage, "an essay", response_format=Essay), **sync)
    assert Essay.model_validate_json(answer.choices[0].message.content) == ESSAY
    stage.assert_escalated()


@every_plug
def test_a_cut_call_is_whole(stage: Stage, plug: Plug) -> None:
    stage.truncated_tool_call("weather", WEATHER)
    sync, _ = plug(stage)
    answer = litellm.completion(**ask(stage, "the weather", tools=[WEATHER_TOOL]), **sync)
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == WEATHER
    stage.assert_escalated()


@every_plug
def test_a_call_that_stays_cut_is_no_call(stage: Stage, plug: Plug) -> None:
    stage.lose_call("weather", WEATHER)
    sync, _ = plug(stage)
    (choice,) = litellm.completion(
        **ask(stage, "the weather", tools=[WEATHER_TOOL]), **sync
    ).choices
    assert not choice.message.tool_calls
    assert choice.finish_reason == "length"


@every_plug
def test_an_error_keeps_its_kind(stage: Stage, plug: Plug) -> None:
    stage.sim.script([Reply(status=429, error=("rate_limit_error", "slow down"))])
    sync, _ = plug(stage)
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(**ask(stage), **sync, max_retries=0)


# --- Anthropic --------------------------------------------------------------------------------


def ask_claude(stage: Stage, what: str = "recite", **more: Any) -> Asked:
    handler = handlers.HTTPHandler(client=continuation.http_client(client(), config=FAST))
    model, place = f"anthropic/{CLAUDE}", stage.url
    return {**ask(stage, what), "model": model, "api_base": place, "client": handler, **more}


def test_a_cut_answer_of_anthropic_is_whole(stage: Stage) -> None:
    choice = litellm.completion(**ask_claude(stage)).choices[0]
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    stage.assert_escalated()


def test_a_cut_answer_of_anthropic_is_whole_async(stage: Stage) -> None:
    async def asked() -> Any:
        handler = handlers.AsyncHTTPHandler()
        await handler.client.aclose()
        handler.client = continuation.async_http_client(async_client(), config=FAST)
        return await litellm.acompletion(**ask_claude(stage, client=handler))

    assert run(asked()).choices[0].message.content == ANSWER
    stage.assert_escalated()


def test_a_cut_stream_of_anthropic_is_whole(stage: Stage) -> None:
    assert said(list(litellm.completion(**ask_claude(stage, stream=True)))) == ANSWER
    stage.assert_healed()


def test_a_cut_call_of_anthropic_is_whole(stage: Stage) -> None:
    stage.truncated_tool_call("weather", WEATHER)
    answer = litellm.completion(**ask_claude(stage, "the weather", tools=[WEATHER_TOOL]))
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == WEATHER
    stage.assert_escalated()


@pytest.mark.xfail(reason="its handler knows the errors of httpx alone, not of httpx2", strict=True)
def test_an_error_of_anthropic_keeps_its_kind(stage: Stage) -> None:
    stage.sim.script([Reply(status=429, error=("rate_limit_error", "slow down"))])
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(**ask_claude(stage), max_retries=0)
