"""LangChain's `ChatOpenAI`: give it `http_client` and `http_async_client`."""

from __future__ import annotations

from typing import Any

import pytest

import continuation
from frameworks.stage import (
    ANSWER,
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

langchain = module("langchain_openai")


def chat(stage: Stage, **more: Any) -> Any:
    return langchain.ChatOpenAI(
        model=GPT,
        max_tokens=LIMIT,
        base_url=stage.openai_url,
        api_key="k",
        http_client=continuation.http_client(client(), config=FAST),
        http_async_client=continuation.async_http_client(async_client(), config=FAST),
        **more,
    )


def weather(city: str, days: str, detail: str) -> str:
    """Tell the weather."""
    raise AssertionError((city, days, detail))


def test_a_cut_answer_is_whole(stage: Stage) -> None:
    answer = chat(stage).invoke("recite")
    assert answer.content == ANSWER
    assert answer.response_metadata["finish_reason"] == "stop"
    stage.assert_escalated()


def test_a_cut_answer_is_whole_async(stage: Stage) -> None:
    assert run(chat(stage).ainvoke("recite")).content == ANSWER
    stage.assert_escalated()


def test_a_cut_stream_is_whole(stage: Stage) -> None:
    assert "".join(str(chunk.content) for chunk in chat(stage).stream("recite")) == ANSWER
    stage.assert_healed()


def test_a_cut_stream_is_whole_async(stage: Stage) -> None:
    async def joined() -> str:
        return "".join([str(chunk.content) async for chunk in chat(stage).astream("recite")])

    assert run(joined()) == ANSWER
    stage.assert_healed()


def test_a_cut_answer_of_the_responses_api_is_whole(stage: Stage) -> None:
    assert chat(stage, use_responses_api=True).invoke("recite").text == ANSWER
    stage.assert_healed()


def test_a_cut_stream_of_the_responses_api_is_whole(stage: Stage) -> None:
    chunks = chat(stage, use_responses_api=True).stream("recite")
    assert "".join(chunk.text for chunk in chunks) == ANSWER
    stage.assert_healed()


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
def test_cut_structured_output_is_whole(stage: Stage, method: str) -> None:
    if method == "function_calling":
        stage.truncated_tool_call("Essay", ESSAY.model_dump())
    else:
        stage.cut_document()
    asking = chat(stage).with_structured_output(Essay, method=method)
    assert asking.invoke("an essay as JSON") == ESSAY
    stage.assert_escalated()


def test_cut_structured_output_is_whole_async(stage: Stage) -> None:
    stage.cut_document()
    asking = chat(stage).with_structured_output(Essay)
    assert run(asking.ainvoke("an essay")) == ESSAY
    stage.assert_escalated()


def test_a_cut_call_is_whole(stage: Stage) -> None:
    stage.truncated_tool_call("weather", WEATHER)
    answer = chat(stage).bind_tools([weather]).invoke("the weather")
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("weather", WEATHER)]
    stage.assert_escalated()


def test_a_call_that_stays_cut_is_no_call(stage: Stage) -> None:
    stage.lose_call("weather", WEATHER)
    answer = chat(stage).bind_tools([weather]).invoke("the weather")
    assert (answer.tool_calls, answer.invalid_tool_calls) == ([], [])
    assert answer.response_metadata["finish_reason"] == "length"


def test_a_call_that_stays_cut_is_no_call_in_a_stream(stage: Stage) -> None:
    stage.lose_call("weather", WEATHER)
    for chunk in chat(stage).bind_tools([weather]).stream("the weather"):
        assert chunk.tool_call_chunks == []
    assert len(stage.sim.posts) == 2
