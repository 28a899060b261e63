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

DOCUMENTS = {"JSON_SCHEMA", "JSON"}
"""Modes in which the essay is text; in the others it is a call."""


def openai_client(stage: Stage, mode: str = "TOOLS", *, is_async: bool = False) -> Any:
    openai = module("openai")
    place: dict[str, Any] = {"base_url": stage.openai_url, "api_key": "k"}
    bare = (
        openai.AsyncOpenAI(**place, http_client=async_client())
        if is_async
        else openai.OpenAI(**place, http_client=client())
    )
    wrapped = continuation.wrap(bare, config=FAST)
    return instructor.from_openai(wrapped, mode=getattr(instructor.Mode, mode), model=GPT)


def anthropic_client(stage: Stage, mode: str = "TOOLS", *, is_async: bool = False) -> Any:
    anthropic = module("anthropic")
    place: dict[str, Any] = {"base_url": stage.url, "api_key": "k"}
    bare = (
        anthropic.AsyncAnthropic(**place, http_client=async_client())
        if is_async
        else anthropic.Anthropic(**place, http_client=client())
    )
    wrapped = continuation.wrap(bare, config=FAST)
    return instructor.from_anthropic(wrapped, mode=getattr(instructor.Mode, mode), model=CLAUDE)


MADE = [
    *((openai_client, mode) for mode in ("TOOLS", "JSON_SCHEMA", "JSON")),
    *((anthropic_client, mode) for mode in ("TOOLS", "JSON")),  # JSON_SCHEMA it has for 0.x alone
]
every_mode = pytest.mark.parametrize(
    ("make", "mode"), MADE, ids=[f"{make.__name__}-{mode}" for make, mode in MADE]
)


def ask(**more: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": "an essay"}], "max_tokens": LIMIT}
    return {**asked, "response_model": Essay, "max_retries": 0, **more}


def cut(stage: Stage, mode: str) -> None:
    if mode in DOCUMENTS:
        stage.cut_document()
    else:
        stage.truncated_tool_call("Essay", ESSAY.model_dump())


@every_mode
def test_a_cut_response_model_is_whole(stage: Stage, make: Any, mode: str) -> None:
    cut(stage, mode)
    assert make(stage, mode).create(**ask()).model_dump() == ESSAY.model_dump()
    stage.assert_escalated()


@every_mode
def test_a_cut_response_model_is_whole_async(stage: Stage, make: Any, mode: str) -> None:
    cut(stage, mode)
    essay = run(make(stage, mode, is_async=True).create(**ask()))
    assert essay.model_dump() == ESSAY.model_dump()
    stage.assert_escalated()


@every_mode
def test_a_cut_partial_response_model_is_whole(stage: Stage, make: Any, mode: str) -> None:
    cut(stage, mode)
    seen = list(make(stage, mode).create_partial(**ask()))
    assert seen[-1].model_dump() == ESSAY.model_dump()
    stage.assert_healed()


@pytest.mark.parametrize("make", [openai_client, anthropic_client])
def test_a_response_model_that_stays_cut_is_not_made_up(stage: Stage, make: Any) -> None:
    stage.lose_call("Essay", ESSAY.model_dump())
    with pytest.raises(Incomplete):
        make(stage).create(**ask())
    assert len(stage.sim.posts) == 2
