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
Plug = Callable[[Stage, bool], Asked]
"""Where a call goes, and what it is given so that it goes through ours."""


def sessions(stage: Stage, is_async: bool) -> Asked:
    litellm.client_session = continuation.http_client(client(), config=FAST)
    litellm.aclient_session = continuation.async_http_client(async_client(), config=FAST)
    return {"model": f"openai/{GPT}", "api_base": stage.openai_url}


def clients(stage: Stage, is_async: bool) -> Asked:
    make, http = (openai.AsyncOpenAI, async_client) if is_async else (openai.OpenAI, client)
    bare = make(base_url=stage.openai_url, api_key="k", http_client=http())
    place = {"model": f"openai/{GPT}", "api_base": stage.openai_url}
    return {**place, "client": continuation.wrap(bare, config=FAST)}


def anthropic(stage: Stage, is_async: bool) -> Asked:
    if is_async:
        handler = handlers.AsyncHTTPHandler()
        run(handler.client.aclose())
        handler.client = continuation.async_http_client(async_client(), config=FAST)
    else:
        handler = handlers.HTTPHandler(client=continuation.http_client(client(), config=FAST))
    return {"model": f"anthropic/{CLAUDE}", "api_base": stage.url, "client": handler}


PLUGS: tuple[Plug, ...] = (sessions, clients, anthropic)
every_plug = pytest.mark.parametrize("plug", PLUGS, ids=lambda plug: plug.__name__)
every_way = pytest.mark.parametrize("is_async", [False, True])


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    litellm.client_session = litellm.aclient_session = None
    litellm.in_memory_llm_clients_cache.flush_cache()


def ask(stage: Stage, plug: Plug, what: str = "recite", is_async: bool = False, **more: Any) -> Any:
    usual = {"messages": [{"role": "user", "content": what}], "max_tokens": LIMIT, "api_key": "k"}
    call = litellm.acompletion if is_async else litellm.completion
    return run(call(**usual, **plug(stage, is_async), **more))


@every_plug
@every_way
def test_a_cut_answer_is_whole(stage: Stage, plug: Plug, is_async: bool) -> None:
    (choice,) = ask(stage, plug, is_async=is_async).choices
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    stage.assert_escalated()


@every_plug
@every_way
def test_a_cut_stream_is_whole(stage: Stage, plug: Plug, is_async: bool) -> None:
    chunks = ask(stage, plug, is_async=is_async, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    stage.assert_healed()


@pytest.mark.parametrize("plug", [sessions, clients])
def test_cut_structured_output_is_whole(stage: Stage, plug: Plug) -> None:
    stage.truncated_essay(called=False)
    (choice,) = ask(stage, plug, "an essay", response_format=Essay).choices
    assert Essay.model_validate_json(choice.message.content) == ESSAY
    stage.assert_escalated()


@every_plug
def test_a_cut_call_is_whole(stage: Stage, plug: Plug) -> None:
    stage.truncated_tool_call("weather", WEATHER)
    (choice,) = ask(stage, plug, "the weather", tools=[WEATHER_TOOL]).choices
    (call,) = choice.message.tool_calls
    assert json.loads(call.function.arguments) == WEATHER
    stage.assert_escalated()


@every_plug
def test_a_call_that_stays_cut_is_no_call(stage: Stage, plug: Plug) -> None:
    stage.lose_call("weather", WEATHER)
    (choice,) = ask(stage, plug, "the weather", tools=[WEATHER_TOOL]).choices
    assert not choice.message.tool_calls
    assert choice.finish_reason == "length"


knows_httpx_alone = pytest.mark.xfail(
    reason="its handler knows the errors of httpx alone, not of httpx2", strict=True
)


@pytest.mark.parametrize(
    "plug", [sessions, clients, pytest.param(anthropic, marks=knows_httpx_alone)]
)
def test_an_error_keeps_its_kind(stage: Stage, plug: Plug) -> None:
    stage.sim.script([Reply(status=429, error=("rate_limit_error", "slow down"))])
    with pytest.raises(litellm.RateLimitError):
        ask(stage, plug, max_retries=0)
