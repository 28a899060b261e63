"""What one turn teaches the next on the same client, and what the caller's own bounds mean."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import BaseModel
from support.sdks.messages import OLD, ask, limits, run
from support.sdks.turn import BOTH, FAST, How, body_of

import continuation
from continuation import Policy
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


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
    # Without streaming never above what the SDK itself calls safe.
    assert limits(sim) == [1000, 128_000, 128_000, 21_333]


@pytest.mark.parametrize(
    ("needed", "tools", "then"),
    [(21_333, [], 21_333), (21_334, [], 1000), (5000, [{"name": "Write"}], 1000)],
)
def test_a_call_that_may_not_begin_at_the_ceiling_is_raised_only_to_what_is_enough(
    sim: Simulator, client: Client, needed: int, tools: list[dict[str, Any]], then: int
) -> None:
    """Else the answer is cut again, at the raised limit, and more is paid for in vain."""
    wrapped = client()
    sim.script([CUT, Reply([Text("One, two.")], usage={"output_tokens": needed}), WHOLE, WHOLE])
    tools = [{**tool, "input_schema": {"type": "object"}} for tool in tools]
    wrapped.messages.create(**ask(tools=tools))
    wrapped.messages.create(**ask())
    with wrapped.messages.stream(**ask(tools=tools)) as stream:
        stream.until_done()
    assert limits(sim) == [1000, 128_000, then, 128_000]


@pytest.mark.parametrize(("tokens", "streamed"), [(3000, False), (3000, True), (25_000, False)])
def test_remembering_never_costs_more_than_forgetting(tokens: int, streamed: bool) -> None:
    text = "".join(f"{n}: what is said here is said once.\n" for n in range(4000))[: 4 * tokens]
    billed = dict[bool, int]()
    for remembers in (True, False):
        with (
            Simulator(text) as sim,
            anthropic.Anthropic(base_url=sim.url, api_key="key") as bare,
            continuation.watch() as turns,
        ):
            wrapped = continuation.wrap(bare, remember_limit=remembers)
            for _ in range(3):
                if streamed:
                    with wrapped.messages.stream(**ask()) as stream:
                        stream.until_done()
                else:
                    wrapped.messages.create(**ask())
        billed[remembers] = sum(turn.billed.output or 0 for turn in turns)
    assert billed[True] <= billed[False]


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
        for who in ("mine", "yours", "mine"):
            asking["x-api-key"] = who
            wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 1000, 21_333]
    assert [p.headers["x-api-key"] for p in sim.posts] == ["mine", "mine", "yours", "mine"]


@pytest.mark.parametrize("status", [400, 429])
def test_a_raised_limit_that_is_refused_is_forgotten(
    sim: Simulator, client: Client, status: int
) -> None:
    sim.script([CUT, WHOLE, Reply(status=status), WHOLE, WHOLE])
    fresh = client()
    for _ in range(3):
        fresh.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 21_333, 1000, 1000]


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
    assert limits(sim) == [1000, 128_000, 11_313, 128_000]
    assert message.content[0].text == "One, two."


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
