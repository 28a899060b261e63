"""What one turn teaches the next on the same client, and what the caller's own bounds mean."""

from __future__ import annotations

import time
from collections.abc import Iterator

import anthropic
import pytest
from pydantic import BaseModel
from support.sdks.messages import NEW, OLD, ask, limits, run
from support.sdks.turn import FAST, HOWS, How, body_of

import continuation
from continuation import Policy
from continuation.simulator import Reply, Simulator, Text, ToolCall
from continuation.types import Outcome


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


class Clients:
    """Makes wrapped clients, and closes what it made."""

    def __init__(self) -> None:
        self.made: list[anthropic.Anthropic] = []

    def __call__(self, sim: Simulator, policy: Policy = FAST) -> anthropic.Anthropic:
        bare = anthropic.Anthropic(base_url=sim.url, api_key="key", max_retries=0)
        self.made.append(bare)
        return continuation.wrap(bare, config=policy)


@pytest.fixture
def client() -> Iterator[Clients]:
    clients = Clients()
    yield clients
    for bare in clients.made:
        bare.close()


CUT = Reply([Text("One, ")], stop="max_tokens")
WHOLE = Reply([Text("One, two.")])


def test_after_an_escalation_later_turns_begin_at_the_raised_limit(
    sim: Simulator, client: Clients
) -> None:
    wrapped = client(sim)
    sim.script([CUT, WHOLE, WHOLE, WHOLE])
    wrapped.messages.create(**ask())
    with wrapped.messages.stream(**ask()) as stream:
        stream.until_done()
    wrapped.messages.create(**ask())
    # Without streaming never above what the SDK itself calls safe.
    assert limits(sim) == [1000, 128_000, 128_000, 21_333]


def test_remember_limit_off_leaves_each_first_request_alone(
    sim: Simulator, client: Clients
) -> None:
    wrapped = client(sim, Policy(remember_limit=False))
    sim.script([CUT, WHOLE, WHOLE])
    wrapped.messages.create(**ask())
    wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 1000]


@pytest.mark.parametrize("status", [400, 429])
def test_a_raised_limit_that_is_refused_is_forgotten(
    sim: Simulator, client: Clients, status: int
) -> None:
    sim.script([CUT, WHOLE, Reply(status=status), WHOLE, WHOLE])
    fresh = client(sim)
    for _ in range(3):
        fresh.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 21_333, 1000, 1000]


def test_first_limit_ceiling_asks_for_it_at_once(sim: Simulator, client: Clients) -> None:
    wrapped = client(sim, Policy(initial_limit="ceiling"))
    sim.script([WHOLE])
    with wrapped.messages.stream(**ask()) as stream:
        stream.until_done()
    assert limits(sim) == [128_000]


def test_a_first_limit_above_the_ceiling_takes_the_lesson(sim: Simulator, client: Clients) -> None:
    text = "max_tokens: 128000 > 50000, which is the maximum allowed number of output tokens for m"
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(sim, Policy(initial_limit="ceiling"))
    sim.script([refusal, WHOLE, WHOLE])
    for _ in range(2):
        with wrapped.messages.stream(**ask()) as stream:
            stream.until_done()
    assert limits(sim) == [128_000, 50_000, 50_000]


def test_an_escalation_counts_the_prompt_and_not_the_discarded_output(
    sim: Simulator, client: Clients
) -> None:
    spent = {"input_tokens": 120_000, "output_tokens": 32_000}
    sim.script([Reply([Text("One, ")], stop="max_tokens", usage=spent), WHOLE])
    client(sim).messages.create(**ask(model=OLD, max_tokens=8000))
    assert limits(sim) == [8000, 64_000]


def test_a_rate_limit_met_by_an_escalation_steps_down_once(sim: Simulator, client: Clients) -> None:
    wrapped = client(sim, Policy(backoff_seconds=0, max_retries=0))
    sim.script([CUT, Reply(status=429), WHOLE])
    wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 11_313]
    report = continuation.last_report()
    assert report is not None
    assert report.outcome is Outcome.HEALED


def test_a_learned_ceiling_is_kept(sim: Simulator, client: Clients) -> None:
    text = "max_tokens: 128000 > 50000, which is the maximum allowed number of output tokens for m"
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(sim, Policy(remember_limit=False))
    sim.script([CUT, refusal, WHOLE, CUT, WHOLE])
    wrapped.messages.create(**ask())
    wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 50_000, 1000, 50_000]


def test_what_is_left_of_the_window_is_not_a_lesson(sim: Simulator, client: Clients) -> None:
    text = (
        "input length and `max_tokens` exceed context limit: 188240 + 128000 > 200000, "
        "decrease input length or `max_tokens` and try again"
    )
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(sim, Policy(remember_limit=False))
    sim.script([CUT, refusal, WHOLE, CUT, WHOLE])
    wrapped.messages.create(**ask())
    wrapped.messages.create(**ask())
    assert limits(sim) == [1000, 128_000, 11_760, 1000, 128_000]


def test_a_refused_prefill_is_remembered(sim: Simulator, client: Clients) -> None:
    text = "This model does not support assistant message prefill."
    refusal = Reply(status=400, error=("invalid_request_error", text))
    wrapped = client(sim, Policy(escalate=False))
    cut = Reply([Text("One, two, ")], stop="max_tokens")
    sim.script([cut, refusal, Reply([Text("three.")]), cut, Reply([Text("three.")])])
    for _ in range(2):
        wrapped.messages.create(**ask(model=OLD))
    last = [body_of(post)["messages"][-1]["role"] for post in sim.posts]
    assert last == ["user", "assistant", "user", "user", "user"]


def test_the_callers_timeout_bounds_the_whole_turn(
    sim: Simulator, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.script([Reply([Text(f"Part {n} of it. ")], stop="max_tokens") for n in range(9)])
    # By this clock each call takes half a minute.
    monkeypatch.setattr(
        "continuation.attach.common.monotonic", lambda: time.monotonic() + 30 * len(sim.posts)
    )
    message = client(sim).messages.create(**ask(max_tokens=128_000), timeout=80.0)
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


@pytest.mark.parametrize("how", HOWS)
def test_structured_output_is_escalated_or_gone_on_with(sim: Simulator, how: How) -> None:
    second = REST if how.endswith("stream") else HALF + REST
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(second)])])
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    ran = run(sim, how, output_config={"format": schema})
    assert ran.text == HALF + REST
    assert ran.told.outcome is Outcome.HEALED
    lifted = "format" not in body_of(sim.posts[1]).get("output_config", {})
    assert lifted == how.endswith("stream")


@pytest.mark.parametrize("how", HOWS)
def test_half_a_document_is_never_a_stop(sim: Simulator, how: How) -> None:
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(", or so I think.")])])
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    ran = run(sim, how, policy=Policy(escalate=False), output_config={"format": schema})
    if how.endswith("stream"):  # shown, so nothing is asked for
        assert len(sim.posts) == 1
    assert ran.said.stop_reason == "max_tokens"
    assert ran.told.outcome is Outcome.TRUNCATED


def test_parse_gets_its_document(sim: Simulator, client: Clients) -> None:
    sim.script([Reply([Text(HALF)], stop="max_tokens"), Reply([Text(HALF + REST)])])
    parsed = client(sim).messages.parse(**ask(), output_format=City)
    assert parsed.parsed_output == City(name="Bern", people=134591)


def test_a_container_is_named_again(sim: Simulator, client: Clients) -> None:
    container = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
    cut = Reply([Text("One, ")], stop="max_tokens", extra={"container": container})
    sim.script([cut, Reply([Text("two.")])])
    client(sim, Policy(escalate=False)).messages.create(**ask())
    assert body_of(sim.posts[1])["container"] == "container_1"


def test_a_cut_call_is_no_ones_to_run(sim: Simulator, client: Clients) -> None:
    """The agent loop that only looks for tool blocks finds none."""
    sim.script(
        [Reply([ToolCall("Write", {"path": "a", "content": "b"}, cut=14)], stop="max_tokens")]
    )
    message = client(sim).messages.create(**ask(max_tokens=128_000, model=NEW), timeout=600.0)
    assert [block for block in message.content if block.type == "tool_use"] == []
