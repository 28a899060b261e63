"""instructor: `from_openai` and `from_anthropic` take an SDK client that was wrapped."""

from __future__ import annotations

from typing import Any

import pytest

import continuation
from frameworks.stage import (
    CLAUDE,
    ESSAY,
    FAST,
    GPT,
    LIMIT,
    Essay,
    Stage,
    async_client,
    client,
    module,
    run,
)

instructor = module("instructor")
Incomplete = module("instructor.core").IncompleteOutputException

SDKS = {"openai": ("OpenAI", GPT), "anthropic": ("Anthropic", CLAUDE)}
MODES = [
    *(("openai", mode) for mode in ("TOOLS", "JSON_SCHEMA", "JSON")),
    *(("anthropic", mode) for mode in ("TOOLS", "JSON")),  # JSON_SCHEMA it has for 0.x alone
]
every_mode = pytest.mark.parametrize(("sdk", "mode"), MODES)
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "an essay"}],
    "max_tokens": LIMIT,
    "response_model": Essay,
    "max_retries": 0,
}


def made(stage: Stage, sdk: str, mode: str = "TOOLS", *, is_async: bool = False) -> Any:
    name, model = SDKS[sdk]
    make = getattr(module(sdk), f"Async{name}" if is_async else name)
    url = stage.openai_url if sdk == "openai" else stage.url
    http = async_client() if is_async else client()
    wrapped = continuation.wrap(make(base_url=url, api_key="k", http_client=http), config=FAST)
    patch = getattr(instructor, f"from_{sdk}")
    return patch(wrapped, mode=getattr(instructor.Mode, mode), model=model)


@every_mode
@pytest.mark.parametrize("is_async", [False, True])
def test_a_cut_response_model_is_whole(stage: Stage, sdk: str, mode: str, is_async: bool) -> None:
    stage.truncated_essay(called=mode == "TOOLS")
    essay = run(made(stage, sdk, mode, is_async=is_async).create(**ASK))
    assert essay.model_dump() == ESSAY.model_dump()
    stage.assert_escalated()


@every_mode
def test_a_cut_partial_response_model_is_whole(stage: Stage, sdk: str, mode: str) -> None:
    stage.truncated_essay(called=mode == "TOOLS")
    seen = list(made(stage, sdk, mode).create_partial(**ASK))
    assert seen[-1].model_dump() == ESSAY.model_dump()
    stage.assert_healed()


@pytest.mark.parametrize("sdk", SDKS)
def test_a_response_model_that_stays_cut_is_not_made_up(stage: Stage, sdk: str) -> None:
    stage.lose_call("Essay", ESSAY.model_dump())
    with pytest.raises(Incomplete):
        made(stage, sdk).create(**ASK)
    assert len(stage.sim.posts) == 2
