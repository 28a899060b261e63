"""LangChain: `ChatOpenAI` takes our HTTP clients; `ChatAnthropic` none, so its own are wrapped."""

from __future__ import annotations

from typing import Any

import pytest

import continuation
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


def openai(stage: Stage, **more: Any) -> Any:
    return module("langchain_openai").ChatOpenAI(
        model=GPT,
        max_tokens=LIMIT,
        base_url=stage.openai_url,
        api_key="k",
        http_client=continuation.http_client(client(), config=FAST),
        http_async_client=continuation.async_http_client(async_client(), config=FAST),
        **more,
    )


def anthropic(stage: Stage) -> Any:
    model = module("langchain_anthropic").ChatAnthropic(
        model=CLAUDE, max_tokens=LIMIT, base_url=stage.url, api_key="k", timeout=600.0
    )
    model._client = continuation.wrap(model._client, config=FAST)
    model._async_client = continuation.wrap(model._async_client, config=FAST)
    return model


every_model = pytest.mark.parametrize("chat", [openai, anthropic], ids=lambda chat: chat.__name__)
every_way = pytest.mark.parametrize("method", ["invoke", "ainvoke"])
every_stream = pytest.mark.parametrize("method", ["stream", "astream"])


def weather(city: str, days: str, detail: str) -> str:
    """Tell the weather."""
    raise AssertionError((city, days, detail))


def ended(answer: Any) -> str:
    metadata = answer.response_metadata
    return str(metadata.get("finish_reason") or metadata.get("stop_reason"))


@every_model
@every_way
def test_a_cut_answer_is_whole(stage: Stage, chat: Any, method: str) -> None:
    answer = run(getattr(chat(stage), method)("recite"))
    assert (answer.text, ended(answer)) == (ANSWER, "stop" if chat is openai else "end_turn")
    stage.assert_escalated()


@every_model
@every_stream
def test_a_cut_stream_is_whole(stage: Stage, chat: Any, method: str) -> None:
    assert "".join(chunk.text for chunk in run(getattr(chat(stage), method)("recite"))) == ANSWER
    stage.assert_healed()


def test_a_cut_answer_of_the_responses_api_is_whole(stage: Stage) -> None:
    assert openai(stage, use_responses_api=True).invoke("recite").text == ANSWER
    stage.assert_healed()


def test_a_cut_stream_of_the_responses_api_is_whole(stage: Stage) -> None:
    chunks = openai(stage, use_responses_api=True).stream("recite")
    assert "".join(chunk.text for chunk in chunks) == ANSWER
    stage.assert_healed()


@pytest.mark.parametrize(
    ("chat", "shape"),
    [
        *((openai, shape) for shape in ("json_schema", "json_mode", "function_calling")),
        *((anthropic, shape) for shape in ("json_schema", "function_calling")),
    ],
)
@every_way
def test_cut_structured_output_is_whole(stage: Stage, chat: Any, shape: str, method: str) -> None:
    stage.truncated_essay(called=shape == "function_calling")
    asking = chat(stage).with_structured_output(Essay, method=shape)
    assert run(getattr(asking, method)("an essay as JSON")) == ESSAY
    stage.assert_escalated()


@every_model
def test_a_cut_call_is_whole(stage: Stage, chat: Any) -> None:
    stage.truncated_tool_call("weather", WEATHER)
    answer = chat(stage).bind_tools([weather]).invoke("the weather")
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("weather", WEATHER)]
    stage.assert_escalated()


@every_model
def test_a_call_that_stays_cut_is_no_call(stage: Stage, chat: Any) -> None:
    stage.lose_call("weather", WEATHER)
    answer = chat(stage).bind_tools([weather]).invoke("the weather")
    assert (answer.tool_calls, answer.invalid_tool_calls) == ([], [])
    assert ended(answer) == ("length" if chat is openai else "max_tokens")


@every_model
def test_a_call_that_stays_cut_is_no_call_in_a_stream(stage: Stage, chat: Any) -> None:
    stage.lose_call("weather", WEATHER)
    for chunk in chat(stage).bind_tools([weather]).stream("the weather"):
        assert chunk.tool_call_chunks == []
    assert len(stage.sim.posts) == 2


def test_the_model_that_was_bound_is_the_one_that_was_wrapped(stage: Stage) -> None:
    chain = anthropic(stage).with_config(tags=["t"]).with_retry(stop_after_attempt=1)
    assert chain.invoke("recite").text == ANSWER
