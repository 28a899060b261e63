"""Every way the SDK has to ask for a response, on a healed, an unhealable and an uncut answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from support.sdks.responses import GO, MODEL
from support.sdks.turn import FAST

import continuation
from continuation.simulator import Reply, Simulator, Text, Thinking, ToolCall


class City(BaseModel):
    name: str


TOP = 128_000
POLICY = replace(FAST, remember_limit=False)
DOCUMENT = '{"name": "Rome"}'
ANSWERS: dict[str, tuple[list[Reply], int]] = {
    "healed": (
        [
            Reply([Thinking("Hm", None)], stop="max_tokens"),
            Reply([Thinking("Hm."), Text(DOCUMENT)]),
        ],
        1000,
    ),
    "unhealable": (
        [Reply([Text("I write. "), ToolCall("W", "{}", cut=1)], stop="max_tokens")],
        TOP,
    ),
    "uncut": ([Reply([Text(DOCUMENT)])], 1000),
}
KINDS = tuple(ANSWERS)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def status(kind: str) -> str:
    return "incomplete" if kind == "unhealable" else "completed"


def text(kind: str) -> str:
    return DOCUMENT if kind != "unhealable" else "I write. "


def asked(sim: Simulator, kind: str) -> dict[str, Any]:
    answers, limit = ANSWERS[kind]
    sim.script(answers)
    return {"model": MODEL, "input": [GO], "max_output_tokens": limit}


@contextlib.contextmanager
def sync_client(sim: Simulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key", max_retries=0) as bare:
        yield continuation.wrap(bare, config=POLICY)


def check(response: Any, kind: str) -> None:
    assert response.status == status(kind)
    assert response.output_text.startswith(text(kind))
    assert (response.incomplete_details is None) == (kind != "unhealable")
    assert not any(item.type == "function_call" for item in response.output)


# --- synchronous ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_create(sim: Simulator, kind: str) -> None:
    with sync_client(sim) as client:
        response = client.responses.create(**asked(sim, kind))
        check(response, kind)
        assert response._request_id is not None
        check([*client.responses.create(**asked(sim, kind), stream=True)][-1].response, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_stream(sim: Simulator, kind: str) -> None:
    with sync_client(sim) as client, client.responses.stream(**asked(sim, kind)) as stream:
        check([*stream][-1].response, kind)
        if kind != "unhealable":
            check(stream.get_final_response(), kind)
            return
        with pytest.raises(RuntimeError, match="Didn't receive"):
            stream.get_final_response()


@pytest.mark.parametrize("kind", ["healed", "uncut"])
def test_stream_and_parse_give_the_object(sim: Simulator, kind: str) -> None:
    with sync_client(sim) as client:
        with client.responses.stream(**asked(sim, kind), text_format=City) as stream:
            assert stream.get_final_response().output_parsed == City(name="Rome")
        parsed = client.responses.parse(**asked(sim, kind), text_format=City)
        assert parsed.output_parsed == City(name="Rome")


def test_parse_without_a_format_takes_what_cannot_be_healed(sim: Simulator) -> None:
    with sync_client(sim) as client:
        check(client.responses.parse(**asked(sim, "unhealable")), "unhealable")


@pytest.mark.parametrize("kind", KINDS)
def test_raw_and_streaming_responses(sim: Simulator, kind: str) -> None:
    with sync_client(sim) as client:
        raw = client.responses.with_raw_response.create(**asked(sim, kind))
        check(raw.parse(), kind)
        assert raw.request_id == raw.headers["x-request-id"]
        with client.responses.with_streaming_response.create(**asked(sim, kind)) as streamed:
            check(streamed.parse(), kind)
        with client.responses.with_streaming_response.create(
            **asked(sim, kind), stream=True
        ) as events:
            check([*events.parse()][-1].response, kind)


# --- asynchronous ---------------------------------------------------------------------------


async def _create(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    return await client.responses.create(**request)


async def _create_streamed(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    return [event async for event in await client.responses.create(**request, stream=True)][-1]


async def _stream(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    async with client.responses.stream(**request) as stream:
        return [event async for event in stream][-1]


async def _parse(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    return await client.responses.parse(**request)


async def _raw(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    return (await client.responses.with_raw_response.create(**request)).parse()


async def _streaming(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
    async with client.responses.with_streaming_response.create(**request) as streamed:
        return await streamed.parse()


_Helper = Callable[[openai.AsyncOpenAI, dict[str, Any]], Awaitable[Any]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "helper",
    [_create, _create_streamed, _stream, _parse, _raw, _streaming],
    ids=lambda h: h.__name__,
)
def test_asynchronous_helpers(sim: Simulator, helper: _Helper, kind: str) -> None:
    async def go() -> Any:
        url = f"{sim.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as bare:
            return await helper(continuation.wrap(bare, config=POLICY), asked(sim, kind))

    answer = asyncio.run(go())
    check(getattr(answer, "response", answer), kind)
