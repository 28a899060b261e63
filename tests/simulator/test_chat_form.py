"""What Chat Completions refuse by the form of a request alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_helpers import (
    ANSWER,
    CALL,
    GO,
    HEADERS,
    MODEL,
    REASONING,
    RESULT,
    post,
    refused,
    said,
)
from support.examples import examples

from continuation.simulator import Scenario, Simulator
from continuation.simulator.openai_chat.vendors import vendors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


# -- form


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


def calls(tool_calls: Any) -> list[Any]:
    return [said("x", tool_calls=tool_calls)]


@pytest.mark.parametrize(
    ("body", "text", "code", "param"),
    [
        ({"model": "missing"}, "you must provide a model parameter", None, None),
        (
            {"messages": "hi"},
            "Invalid type for 'messages': expected an array of objects.",
            "invalid_type",
            "messages",
        ),
        (
            {"messages": [GO, said(None)]},  # type: ignore[arg-type]
            "Invalid value for 'content': expected a string, got null.",
            None,
            "messages.[1].content",
        ),
        (
            {"max_tokens": 0},
            "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 "
            "instead.",
            "integer_below_min_value",
            "max_tokens",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            None,
            "stream_options",
        ),
        (
            {"continue_final_message": True},
            "Unrecognized request argument supplied: continue_final_message",
            None,
            None,
        ),
        (
            {"max_completion_tokens": 5},
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "invalid_parameter_combination",
            None,
        ),
    ],
)
def test_openai_refuses_what_is_malformed(
    sim: Simulator, body: dict[str, Any], text: str, code: str | None, param: str | None
) -> None:
    assert refused(sim, **body)["error"] == {
        "message": text,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([{"role": "model", "content": "x"}], "Invalid value for 'messages[0].role'."),
        ([{"role": "tool", "content": "x"}], "messages with role 'tool' must be a response"),
        (user([{"type": "tool_use"}]), "a block of another dialect"),
        (
            [*calls([{**CALL, "function": {"name": "x"}}]), RESULT],
            "arguments must be a valid JSON object",
        ),
        (calls([{"type": "function"}]), "tool_call_id  is not found"),
    ],
)
def test_messages_that_are_none_are_told_by_the_rules_of_histories(
    sim: Simulator, turns: list[Any], why: str
) -> None:
    assert why in refused(sim, messages=turns)["error"]["message"]


def test_a_key_is_required(sim: Simulator) -> None:
    url = f"{sim.url}/v1/chat/completions"
    answer = httpx2.post(url, json={"model": MODEL, "messages": [GO]})
    assert answer.status_code == 401
    assert answer.json()["error"]["message"].startswith("You didn't provide an API key.")
    assert httpx2.get(f"{sim.url}/v1/models").status_code == 401


def test_a_body_that_is_no_json_is_refused(sim: Simulator) -> None:
    answer = httpx2.post(f"{sim.url}/v1/chat/completions", headers=HEADERS, content=b"{")
    assert answer.json()["error"]["message"].startswith("We could not parse the JSON body")


def test_an_unknown_model_may_be_refused(sim: Simulator) -> None:
    sim.scenario = Scenario(any_model=False)
    answer = post(sim, model="nobody")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


JUNK: Any = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.just([1]), st.just({})
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "tool_use"])},
    optional={"text": JUNK | st.just("a")},
)
TURNS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "function"]),
        "content": st.just("hi") | st.lists(PARTS, max_size=2) | JUNK,
    },
    optional={
        "tool_calls": JUNK | st.just([CALL]) | st.lists(JUNK, max_size=2),
        "tool_call_id": JUNK | st.just("call_1"),
        "prefix": JUNK,
        "partial": JUNK,
        "reasoning_content": JUNK,
    },
)
MEMBERS = [
    *("max_tokens", "max_completion_tokens", "n", "stop", "stream", "stream_options", "tools"),
    *("tool_choice", "response_format", "thinking", "reasoning", "chat_template_kwargs"),
    *("continue_final_message", "add_generation_prompt", "enable_thinking", "temperature"),
]


@pytest.fixture(scope="module")
def line() -> Iterator[httpx2.Client]:
    with Simulator(ANSWER) as sim, httpx2.Client(base_url=sim.url, headers=HEADERS) as client:
        yield client


@settings(max_examples=examples(150))
@given(
    vendor=st.sampled_from(sorted(vendors())),
    model=st.sampled_from([MODEL, REASONING, "deepseek-reasoner", "someones-own"]),
    turns=st.lists(TURNS, max_size=3),
    more=st.dictionaries(st.sampled_from(MEMBERS), JUNK, max_size=3),
)
def test_nothing_a_client_sends_makes_the_simulator_fail(
    line: httpx2.Client, vendor: str, model: str, turns: list[Any], more: dict[str, Any]
) -> None:
    body = {"model": model, "max_tokens": 9, "messages": [GO, *turns], **more}
    headers = {"x-simulate": f"vendor={vendor}"}
    answer = line.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code in (200, 400, 422), answer.text
