"""`wrap(framework's object)`: each line that the refusal offers does what was wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import continuation
from continuation.attach.healing_clients import AsyncHealingClient, HealingClient
from frameworks.stage import CLAUDE, GPT, module

HEALING = HealingClient, AsyncHealingClient


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "k")


def offered(thing: object) -> list[str]:
    with pytest.raises(TypeError, match="cannot wrap") as caught:
        continuation.wrap(thing)
    return [line.strip() for line in str(caught.value).splitlines()[1:-1]]


def names(**more: Any) -> dict[str, Any]:
    sdks = {name: importlib.import_module(name) for name in ("anthropic", "openai")}
    return {"continuation": continuation, **sdks, **more}


def test_langchain_openai() -> None:
    kind = module("langchain_openai").ChatOpenAI
    for thing in (kind(model=GPT), kind(model=GPT).bind(stop=["x"]), kind):
        [line] = offered(thing)
        made = eval(line.replace("(...", f"(model={GPT!r}"), names(ChatOpenAI=kind))
        assert isinstance(made.root_client._client, HEALING)
        assert isinstance(made.root_async_client._client, HEALING)


def test_langchain_anthropic() -> None:
    llm = module("langchain_anthropic").ChatAnthropic(model=CLAUDE)
    exec("\n".join(offered(llm)), names(llm=llm))
    assert isinstance(llm._client._client, HEALING)
    assert isinstance(llm._async_client._client, HEALING)


def _anthropic() -> Any:
    return module("pydantic_ai.models.anthropic").AnthropicModel(CLAUDE)


def _openai() -> Any:
    return module("pydantic_ai.models.openai").OpenAIChatModel(GPT)


def _agent() -> Any:
    return module("pydantic_ai").Agent(f"anthropic:{CLAUDE}")


@pytest.mark.parametrize(
    ("make", "name"),
    [(_anthropic, "anthropic"), (_openai, "openai"), (_agent, "anthropic")],
)
def test_pydantic_ai(make: Callable[[], Any], name: str) -> None:
    models = module(f"pydantic_ai.models.{name}")
    providers = module(f"pydantic_ai.providers.{name}")
    line = offered(make())[0]
    made = eval(
        line.replace("(...", f"({CLAUDE!r}", 1), names(**{**vars(models), **vars(providers)})
    )
    assert isinstance(made.client._client, HEALING)


def test_litellm() -> None:
    litellm = module("litellm")
    sync, asynchronous, _ = offered(litellm)
    try:
        exec(f"{sync}\n{asynchronous}", names(litellm=litellm))
        assert isinstance(litellm.client_session, HEALING)
        assert isinstance(litellm.aclient_session, HEALING)
    finally:
        litellm.client_session = litellm.aclient_session = None


def test_instructor() -> None:
    instructor = module("instructor")
    openai = importlib.import_module("openai")
    for line in offered(instructor.from_openai(openai.OpenAI()))[:1]:
        made = eval(line, names(instructor=instructor))
        assert isinstance(made.client._client, HEALING)
