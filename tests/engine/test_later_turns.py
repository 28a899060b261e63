"""What one turn teaches the next on the same client, and what the caller's own bounds mean."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.drive import (
    STREAM,
    Answered,
    body,
    call_block,
    closing,
    drive,
    opening,
    sse,
    text_block,
)
from support.examples import examples
from support.sdks.messages import OLD, ask, limits, run
from support.sdks.turn import BOTH, FAST, How, body_of

import continuation
from continuation import Policy
from continuation.limits import Learned
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome

Client = Callable[..., anthropic.Anthropic]


@pytest.fixture
def client(sim: Simulator) -> Iterator[Client]:
    """Makes wrapped clients, by their policy."""
    with contextlib.ExitStack() as made:

        def make(policy: Policy = FAST) -> anthropic.Anthropic:
            bare = anthropic.Anthropic(base_url=sim.url, api_key="key", max_retries=0)
            return continuation.wrap(made.enter_context(bare), config=policy)

        yield make


CUT = Reply([Text("One, ")], stop="max_tokens")
WHOLE = Reply([Text("One, two.")])
ABOVE = "max_tokens: 128000 > 50000, which is the maximum allowed number of output tokens for m"


def test_after_an_escalation_later_turns_begin_at_the_raised_limit(
    sim: Simulator, client: Client
) -> None:
    wrapped = client()
    sim.script([CUT, WHOLE, WHOLE, WHOLE])
    wrapped.messages.create(**ask())
    with wrapped.messages.stream(**ask()) as stream:
        stream.until_done()
    wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 128_000, 128_000]
    # So long a body is asked for as a stream, so that no timeout ends it.
    assert [body_of(post).get("stream") for post in sim.posts] == [None, True, True, True]


THOUSANDS = st.integers(1, 64)
TURNS = st.lists(
    st.tuples(THOUSANDS, st.sampled_from(["text", "call"]), st.booleans()), min_size=2, max_size=5
)
"""How long an answer is, what it is, and whether it is streamed."""


@given(TURNS, st.integers(1, 30))
@settings(max_examples=examples(25))
def test_remembering_never_costs_more_than_forgetting(
    turns: list[tuple[int, str, bool]], limit: int
) -> None:
    billed = list[int]()
    for remembers in (True, False):
        learned, policy = Learned(), replace(AT_64, remember_limit=remembers)
        total = 0
        for tokens, kind, streamed in turns:
            tools = [{"name": "Write"}] if kind == "call" else []
            asked = ask(max_tokens=limit * 1000, stream=streamed, tools=tools)
            provider = partial(counting, end=tokens)
            driven = drive(provider, asked, policy, learned=learned)
            assert driven.report.outcome in {Outcome.COMPLETE, Outcome.HEALED}
            total += driven.report.billed.output or 0
        billed.append(total)
    assert billed[0] <= billed[1]


AT_64 = replace(FAST, model_max_output_tokens=64_000)


def counting(sent: dict[str, Any], end: int) -> Answered:
    """Count to `end`, or go on counting; each number is a thousand tokens."""
    said = " ".join(json.dumps(m["content"]) for m in sent["messages"] if m["role"] == "assistant")
    begin = max(map(int, re.findall(r"\d+", said)), default=0) + 1
    last = min(end, begin - 1 + sent["max_tokens"] // 1000)
    words = "".join(f"{n} " for n in range(begin, last + 1))
    stop = "max_tokens" if last < end else "tool_use" if sent["tools"] else "end_turn"
    tokens = 1000 * (last + 1 - begin)
    if not sent.get("stream"):
        text = {"type": "text", "text": words}
        call = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"a": words}}
        message = {**opening()["message"], "content": [call if sent["tools"] else text]}
        return body({**message, "stop_reason": stop, "usage": {"output_tokens": tokens}})
    pieces = [f'{{"a": "{words}', '"}' if last == end else ""]
    told = call_block(0, pieces) if sent["tools"] else text_block(0, [words])
    return 200, STREAM, [sse([opening(), *told, *closing(stop, tokens)])], None


def test_what_was_learned_is_of_the_credential_that_leaves(sim: Simulator) -> None:
    asking = {"x-api-key": ""}

    def auth(request: httpx2.Request) -> httpx2.Request:
        request.headers.update(asking)
        return request

    sim.script([CUT, WHOLE, WHOLE, WHOLE])
    with (
        httpx2.Client(auth=auth) as http,
        anthropic.Anthropic(base_url=sim.url, api_key="any", http_client=http) as bare,
    ):
        wrapped = continuation.wrap(bare)
        for who, stream in (("mine", False), ("yours", True), ("mine", True)):
            asking["x-api-key"] = who
            list(wrapped.messages.create(**ask(stream=stream)))
    assert limits(sim) == [1000, 128_000, 1000, 128_000]
    assert [p.headers["x-api-key"] for p in sim.posts] == ["mine", "mine", "yours", "mine"]


@pytest.mark.parametrize("status", [400, 402, 429])
def test_a_raised_limit_that_is_refused_is_forgotten(
    sim: Simulator, client: Client, status: int
) -> None:
    sim.script([CUT, WHOLE, Reply(status=status), WHOLE, WHOLE])
    fresh = client()
    for stream in (False, True, True):
        list(fresh.messages.create(**ask(stream=stream)))
    assert limits(sim) == [1000, 128_000, 128_000, 1000, 1000]


def test_a_first_limit_above_the_ceiling_takes_the_lesson(sim: Simulator, client: Client) -> None:
    refusal = Reply(status=400, error=("invalid_request_error", ABOVE))
    wrapped = client(Policy(initial_limit="ceiling"))
    sim.script([refusal, WHOLE, WHOLE])
    for _ in range(2):
        with wrapped.messages.stream(**ask()) as stream:
            stream.until_done()
    assert limits(sim) == [128_000, 50_000, 50_000]


def test_an_escalation_counts_the_prompt_and_not_the_discarded_output(
    sim: Simulator, client: Client
) -> None:
    spent = {"input_tokens": 120_000, "output_tokens": 32_000}
    sim.script([Reply([Text("One, ")], stop="max_tokens", usage=spent), WHOLE])
    client().messages.create(**ask(model=OLD, max_tokens=8000))
    assert limits(sim) == [8000, 64_000]


def test_a_rate_limit_met_by_an_escalation_steps_down_once(sim: Simulator, client: Client) -> None:
    wrapped = client(Policy(backoff_seconds=0, max_retries=0))
    sim.script([CUT, Reply(status=429), Reply(status=429), Reply([Text("two.")])])
    message = wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 11_313, 11_313]
    assert message.content[0].text == "One, two."


def test_a_rate_limit_met_by_a_raised_recovery_steps_down_once(
    sim: Simulator, client: Client
) -> None:
    wrapped = client(Policy(backoff_seconds=0, max_retries=0))
    sim.script([CUT, Reply(status=429), Reply([Text("two.")])])
    with wrapped.messages.stream(**ask()) as stream:
        assert "".join(stream.text_stream) == "One, two."
    assert limits(sim) == [1000, 128_000, 11_313]


@pytest.mark.parametrize(
    ("text", "left", "later"),
    [
        (ABOVE, 50_000, 50_000),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 128000 > 200000, "
            "decrease input length or `max_tokens` and try again",
            11_760,
            128_000,
        ),
    ],
    ids=["ceiling", "window"],
)
def test_a_ceiling_is_learned_and_what_is_left_of_a_window_is_not(
    sim: Simulator, client: Client, text: str, left: int, later: int
) -> None:
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(Policy(remember_limit=False))
    sim.script([CUT, refusal, WHOLE, CUT, WHOLE])
    for _ in range(2):
        wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, left, 1000, later]


def test_a_refused_prefill_is_remembered(sim: Simulator, client: Client) -> None:
    text = "This model does not support assistant message prefill."
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(Policy(escalate=False))
    cut = Reply([Text("One, two, ")], stop="max_tokens")
    sim.script([cut, refusal, Reply([Text("three.")]), cut, Reply([Text("three.")])])
    for _ in range(2):
        wrapped.messages.create(**ask(model=OLD))
    last = [body_of(post)["messages"][-1]["role"] for post in sim.posts]
    assert last == ["user", "assistant", "user", "user", "user"]


def test_the_callers_timeout_bounds_the_whole_turn(
    sim: Simulator, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.script([Reply([Text(f"Part {n} of it. ")], stop="max_tokens") for n in range(9)])
    # By this clock each call takes half a minute.
    monkeypatch.setattr(
        "continuation.attach.common.monotonic", lambda: time.monotonic() + 30 * len(sim.posts)
    )
    message = client().messages.create(**ask(max_tokens=128_000), timeout=80.0)
    report = continuation.last_report()
    assert report is not None
    assert (report.outcome, report.reason) == (Outcome.PARTIAL, "the caller's timeout is spent")
    assert message.content[0].type == "text"
    assert len(sim.posts) == 3


# --- structured output ----------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int


HALF, REST = '{"name": "Bern', '", "people": 134591}'


@pytest.mark.parametrize("how", BOTH)
def test_structured_output_is_escalated_or_gone_on_with(sim: Simulator, how: How) -> None:
    second = REST if how.endswith("stream") else HALF + REST
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(second)])])
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    ran = run(sim, how, output_config={"format": schema})
    assert ran.text == HALF + REST
    assert ran.told.outcome is Outcome.HEALED
    lifted = "format" not in body_of(sim.posts[1]).get("output_config", {})
    assert lifted == how.endswith("stream")


@pytest.mark.parametrize("how", BOTH)
def test_half_a_document_is_never_a_stop(sim: Simulator, how: How) -> None:
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(", or so I think.")])])
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    ran = run(sim, how, policy=Policy(escalate=False), output_config={"format": schema})
    if how.endswith("stream"):  # shown, so nothing is asked for
        assert len(sim.posts) == 1
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.outcome is Outcome.TRUNCATED


def test_parse_gets_its_document(sim: Simulator, client: Client) -> None:
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(HALF + REST)])])
    parsed = client().messages.parse(**ask(), output_format=City)
    assert parsed.parsed_output == City(name="Bern", people=134591)


def test_a_container_is_named_again(sim: Simulator, client: Client) -> None:
    container = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
    cut = Reply([Text("One, ")], stop="max_tokens", extra={"container": container})
    sim.script([cut, Reply([Text("two.")])])
    client(Policy(escalate=False)).messages.create(**ask())
    assert body_of(sim.posts[1])["container"] == "container_1"
