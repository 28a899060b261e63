"""LangChain's `ChatAnthropic`: it takes no HTTP client, so the SDK's clients in it are wrapped."""

from __future__ import annotations

from typing import Any

import pytest

import continuation
from frameworks.stage import ANSWER, CLAUDE, ESSAY, FAST, LIMIT, WEATHER, Essay, Stage, module, run

langchain = module("langchain_anthropic")


def chat(stage: Stage, **more: Any) -> Any:
    model = langchain.ChatAnthropic(
        model=CLAUDE, max_tokens=LIMIT, base_url=stage.url, api_key="k", timeout=600.0, **more
    )
    model._client = continuation.wrap(model._client, config=FAST)
    model._async_client = continuation.wrap(model._async_client, config=FAST)
    return model


def weather(city: str, days: str, detail: str) -> str:
    """Tell the weather."""
    raise AssertionError((city, days, detail))


def said(content: Any) -> str:
    blocks = content if isinstance(content, list) else [{"text": content}]
    return "".join(block.get("text", "") for block in blocks)


def test_a_cut_answer_is_whole(stage: Stage) -> None:
    answer = chat(stage).invoke("recite")
    assert said(answer.content) == ANSWER
    assert answer.response_metadata["stop_reason"] == "end_turn"
    stage.assert_escalated()


def test_a_cut_answer_is_whole_async(stage: Stage) -> None:
    assert said(run(chat(stage).ainvoke("recite")).content) == ANSWER
    stage.assert_escalated()


def test_a_cut_stream_is_whole(stage: Stage) -> None:
    assert "".join(said(chunk.content) for chunk in chat(stage).stream("recite")) == ANSWER
    stage.assert_healed()


def test_a_cut_stream_is_whole_async(stage: Stage) -> None:
    async def joined() -> str:
        return "".join([said(chunk.content) async for chunk in chat(stage).astream("recite")])

    assert run(joined()) == ANSWER
    stage.assert_healed()


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_cut_structured_output_is_whole(stage: Stage, method: str) -> None:
    if method == "function_calling":
        stage.truncated_tool_call("Essay", ESSAY.model_dump())
    else:
        stage.cut_document()
    asking = chat(stage).with_structured_output(Essay, method=method)
    assert asking.invoke("an essay") == ESSAY
    stage.assert_escalated()


def test_cut_structured_output_is_whole_async(stage: Stage) -> None:
    stage.truncated_tool_call("Essay", ESSAY.model_dump())
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
    assert answer.response_metadata["stop_reason"] == "max_tokens"


def test_a_call_that_stays_cut_is_no_call_in_a_stream(stage: Stage) -> None:
    stage.lose_call("weather", WEATHER)
    for chunk in chat(stage).bind_tools([weather]).stream("the weather"):
        assert chunk.tool_call_chunks == []
    assert len(stage.sim.posts) == 2


def test_the_model_that_was_bound_is_the_one_that_was_wrapped(stage: Stage) -> None:
    chain = chat(stage).with_config(tags=["t"]).with_retry(stop_after_attempt=1)
    assert said(chain.invoke("recite").content) == ANSWER
