"""pydantic-ai: a provider takes an SDK client that was wrapped, or an HTTP client of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import continuation
from frameworks.stage import (
    ANSWER,
    CLAUDE,
    ESSAY,
    FAST,
    GEMINI,
    GPT,
    LIMIT,
    WEATHER,
    Essay,
    Stage,
    async_client,
    module,
    run,
)

pydantic_ai = module("pydantic_ai")

Make = Callable[[Stage], Any]


def ours() -> Any:
    return continuation.async_http_client(async_client(), config=FAST)


def openai(**given: Any) -> Any:
    provider = module("pydantic_ai.providers.openai").OpenAIProvider(**given)
    return module("pydantic_ai.models.openai").OpenAIChatModel(GPT, provider=provider)


def openai_client(stage: Stage) -> Any:
    make = module("openai").AsyncOpenAI
    bare = make(base_url=stage.openai_url, api_key="k", http_client=async_client())
    return openai(openai_client=continuation.wrap(bare, config=FAST))


def openai_http(stage: Stage) -> Any:
    return openai(base_url=stage.openai_url, api_key="k", http_client=ours())


def anthropic(**given: Any) -> Any:
    provider = module("pydantic_ai.providers.anthropic").AnthropicProvider(**given)
    return module("pydantic_ai.models.anthropic").AnthropicModel(CLAUDE, provider=provider)


def anthropic_client(stage: Stage) -> Any:
    make = module("anthropic").AsyncAnthropic
    bare = make(base_url=stage.url, api_key="k", http_client=async_client())
    return anthropic(anthropic_client=continuation.wrap(bare, config=FAST))


def anthropic_http(stage: Stage) -> Any:
    return anthropic(base_url=stage.url, api_key="k", http_client=ours())


def google_client(stage: Stage) -> Any:
    options = {"base_url": stage.url, "httpx_async_client": async_client()}
    bare = module("google.genai").Client(api_key="k", http_options=options)
    client = continuation.wrap(bare, config=FAST)
    provider = module("pydantic_ai.providers.google").GoogleProvider(client=client)
    return module("pydantic_ai.models.google").GoogleModel(GEMINI, provider=provider)


MODELS: tuple[Make, ...] = (
    openai_client,
    openai_http,
    anthropic_client,
    anthropic_http,
    google_client,
)
every_model = pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)


def agent(model: Any, **more: Any) -> Any:
    return pydantic_ai.Agent(model, model_settings={"max_tokens": LIMIT}, retries=0, **more)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """`run_sync` takes the thread's event loop and leaves it open."""
    fresh = asyncio.new_event_loop()
    asyncio.set_event_loop(fresh)
    yield fresh
    asyncio.set_event_loop(None)
    fresh.close()


@every_model
@pytest.mark.usefixtures("loop")
def test_a_cut_answer_is_whole_sync(stage: Stage, make: Make) -> None:
    assert agent(make(stage)).run_sync("recite").output == ANSWER
    stage.assert_escalated()


@every_model
def test_a_cut_answer_is_whole(stage: Stage, make: Make) -> None:
    assert run(agent(make(stage)).run("recite")).output == ANSWER
    stage.assert_escalated()


@every_model
def test_a_cut_stream_is_whole(stage: Stage, make: Make) -> None:
    async def joined() -> str:
        async with agent(make(stage)).run_stream("recite") as answer:
            text = "".join([piece async for piece in answer.stream_text(delta=True)])
            assert await answer.get_output() == text
        return text

    assert run(joined()) == ANSWER
    stage.assert_healed()


@every_model
@pytest.mark.parametrize("native", [False, True])
def test_cut_structured_output_is_whole(stage: Stage, make: Make, native: bool) -> None:
    if native:
        stage.truncated_essay(called=False)
    else:
        stage.truncated_tool_call("final_result", ESSAY.model_dump())
    output = pydantic_ai.NativeOutput(Essay) if native else Essay
    assert run(agent(make(stage), output_type=output).run("an essay")).output == ESSAY
    stage.assert_escalated()


def with_weather(model: Any, ran: list[dict[str, str]]) -> Any:
    asking = agent(model)

    @asking.tool_plain  # type: ignore[untyped-decorator, unused-ignore]
    def weather(city: str, days: str, detail: str) -> str:
        ran.append({"city": city, "days": days, "detail": detail})
        return "fine"

    return asking


@every_model
def test_a_cut_call_runs_once_and_whole(stage: Stage, make: Make) -> None:
    ran: list[dict[str, str]] = []
    stage.truncated_tool_call("weather", WEATHER, then="It will be fine.")
    answer = run(with_weather(make(stage), ran).run("the weather"))
    assert (ran, answer.output) == ([WEATHER], "It will be fine.")
    assert len(stage.sim.posts) == 3


@every_model
def test_a_call_that_stays_cut_never_runs(stage: Stage, make: Make) -> None:
    ran: list[dict[str, str]] = []
    stage.lose_call("weather", WEATHER)
    # Gemini's cut call leaves nothing that could be shown: then it says so itself.
    with suppress(module("pydantic_ai.exceptions").UnexpectedModelBehavior):
        run(with_weather(make(stage), ran).run("the weather"))
    assert ran == []
