"""Every way the SDK has to ask for a response, on a healed, an unhealable and an uncut answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from support.sdks.responses import GO, MODEL
from support.sdks.turn import FAST, cut, end
from support.shells import Kind, Way, both

from continuation.simulator import Reply, Simulator, Thinking, ToolUse


class City(BaseModel):
    name: str


DOCUMENT = '{"name": "Rome"}'
ANSWERS: dict[str, tuple[list[Reply], int]] = {
    "healed": ([cut(Thinking("Hm", None)), end(Thinking("Hm."), DOCUMENT)], 1000),
    "unhealable": ([cut("I write. ", ToolUse("W", "{}", cut=1))], 128_000),
    "uncut": ([end(DOCUMENT)], 1000),
}
Ask = Callable[[Way, Any, dict[str, Any]], Any]
"""Asks for a response, and returns it."""


def create(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    response = way.do(client.create(**asked))
    assert response._request_id is not None
    return response


def create_streamed(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    return [*way.each(way.do(client.create(**asked, stream=True)))][-1].response


def stream(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    with way.within(client.stream(**asked)) as events:
        last = [*way.each(events)][-1].response
        if last.status == "incomplete":
            with pytest.raises(RuntimeError, match="Didn't receive"):
                way.do(events.get_final_response())
        else:
            assert way.do(events.get_final_response()).output_text == last.output_text
    return last


def parse(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    return way.do(client.parse(**asked))


def raw(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    response = way.do(client.with_raw_response.create(**asked))
    assert response.request_id == response.headers["x-request-id"]
    return response.parse()


def streaming(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    with way.within(client.with_streaming_response.create(**asked)) as response:
        return way.do(response.parse()) if way.kind == "async" else response.parse()


def streaming_events(way: Way, client: Any, asked: dict[str, Any]) -> Any:
    with way.within(client.with_streaming_response.create(**asked, stream=True)) as response:
        events = way.do(response.parse()) if way.kind == "async" else response.parse()
        return [*way.each(events)][-1].response


ASKS = [create, create_streamed, stream, parse, raw, streaming, streaming_events]


def healing(way: Way, sim: Simulator) -> Any:
    make = way.pick(openai.OpenAI, openai.AsyncOpenAI)
    bare = make(base_url=f"{sim.url}/v1", api_key="key", max_retries=0)
    way._made.append(bare)
    return way.wrap(bare, config=replace(FAST, remember_limit=False)).responses


def scripted(sim: Simulator, story: str) -> dict[str, Any]:
    answers, limit = ANSWERS[story]
    sim.script(answers)
    return {"model": MODEL, "input": [GO], "max_output_tokens": limit}


@both
@pytest.mark.parametrize("story", ANSWERS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_each_way_to_ask(sim: Simulator, kind: Kind, story: str, ask: Ask) -> None:
    with Way(kind) as way:
        response = ask(way, healing(way, sim), scripted(sim, story))
    cut_short = story == "unhealable"
    assert response.status == ("incomplete" if cut_short else "completed")
    assert response.output_text.startswith("I write. " if cut_short else DOCUMENT)
    assert (response.incomplete_details is not None) == cut_short
    assert not any(item.type == "function_call" for item in response.output)


@both
@pytest.mark.parametrize("story", ["healed", "uncut"])
def test_stream_and_parse_give_the_object(sim: Simulator, kind: Kind, story: str) -> None:
    with Way(kind) as way:
        client = healing(way, sim)
        with way.within(client.stream(**scripted(sim, story), text_format=City)) as events:
            assert way.do(events.get_final_response()).output_parsed == City(name="Rome")
        parsed = way.do(client.parse(**scripted(sim, story), text_format=City))
        assert parsed.output_parsed == City(name="Rome")
