"""What the simulated provider refuses, word for word as the real one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.simulator_helpers import (
    ANSWER,
    BINDING,
    CALL,
    GO,
    HEADERS,
    HM,
    MANUAL,
    MODEL,
    OLD,
    PROMPT,
    RESULT,
    SEARCH,
    TOOLS,
    ask,
    connect,
    create,
    model,
    refusal,
    said,
    text,
    text_of,
    user,
)

from continuation.limits import ModelLimits
from continuation.simulator import Reply, Scenario, Simulator, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as made:
        yield made


# -- by the body alone

UNANSWERED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
    "toolu_1. Each `tool_use` block must have a corresponding `tool_result` block "
    "in the next message."
)
ORPHAN = (
    "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each "
    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
)
FIRST_THINKING = (
    "messages.1.content.0.type: If an assistant message contains any thinking blocks, the first "
    "block must be `thinking` or `redacted_thinking`. Found `text`."
)
NO_BLOCK = "Input tag does not match any of the expected tags"
EMPTY_MESSAGE = (
    "all messages must have non-empty content except for the optional final assistant message"
)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"model": "missing"}, "model: Field required"),
        ({"max_tokens": "missing"}, "max_tokens: Field required"),
        ({"max_tokens": 1.5}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": "hi"}, "messages: Input should be a valid list"),
        ({"messages": [{"role": "user"}]}, f"messages.0: {EMPTY_MESSAGE}"),
        ({"messages": ["hi"]}, "messages.0: Input should be a valid dictionary"),
        ({"messages": [user({})]}, f"messages.0.content.0: {NO_BLOCK}"),
        ({"messages": [user(text(5))]}, f"messages.0.content.0: {NO_BLOCK}"),
        (
            {"messages": [user(CALL)]},
            "messages.0: `tool_use` blocks can only be in `assistant` messages",
        ),
        (
            {"messages": [GO, model(RESULT), GO]},
            "messages.1: `tool_result` blocks can only be in `user` messages",
        ),
    ],
)
def test_a_malformed_body_is_refused(
    client: anthropic.Anthropic, body: dict[str, Any], why: str
) -> None:
    assert why == refusal(client, **body)


@pytest.fixture(scope="module")
def line() -> Iterator[httpx2.Client]:
    with Simulator(ANSWER) as sim, httpx2.Client(base_url=sim.url, headers=HEADERS) as client:
        yield client


JUNK: Any = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.just([1]), st.just({})
)
KINDS = ["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use"]
FIELDS = ["text", "thinking", "signature", "id", "name", "input", "tool_use_id", "cache_control"]
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)}, optional=dict.fromkeys(FIELDS, JUNK | st.just("a"))
)
TURNS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": st.just("hi") | st.lists(BLOCKS, max_size=3) | JUNK,
    }
)


@settings(max_examples=examples(150))
@given(
    model=st.sampled_from([MODEL, OLD, BINDING, "someones-own"]),
    turns=st.lists(TURNS, max_size=3),
    more=st.dictionaries(
        st.sampled_from(["thinking", "system", "tools", "stop_sequences", "stream", "max_tokens"]),
        JUNK | st.just({"type": "enabled", "budget_tokens": "x"}) | st.lists(BLOCKS, max_size=2),
    ),
)
def test_nothing_a_client_sends_makes_the_simulator_fail(
    line: httpx2.Client, model: str, turns: list[Any], more: dict[str, Any]
) -> None:
    body = {"model": model, "max_tokens": 9, "messages": [GO, *turns], **more}
    answer = line.post("/v1/messages", json=body)
    assert answer.status_code in (200, 400), answer.text


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([model(text("hi")), GO], 'messages: first message must use the "user" role'),
        (
            [GO, {"role": "tool", "content": "x"}],
            "messages.1.role: Input should be 'user' or 'assistant'",
        ),
        ([user(text(""))], "messages: text content blocks must be non-empty"),
        ([user(text(" \n"))], "messages: text content blocks must contain non-whitespace text"),
        ([GO, model(text("")), GO], "messages: text content blocks must be non-empty"),
        ([{"role": "user", "content": ""}], f"messages.0: {EMPTY_MESSAGE}"),
        ([GO, model(), GO], f"messages.1: {EMPTY_MESSAGE}"),
        ([GO, model(CALL), GO], UNANSWERED),
        ([GO, model(CALL), user(text("wait"), RESULT)], UNANSWERED),
        ([GO, model(CALL, text("after")), user(RESULT)], UNANSWERED),
        ([GO, model(CALL), GO, model(text("x")), user(RESULT)], UNANSWERED),
        ([GO, model(text("x")), user(RESULT)], ORPHAN),
        (
            [GO, model(CALL), user(RESULT, RESULT)],
            "messages.2.content.1: each tool_use must have a single result. "
            "Found multiple `tool_result` blocks with id: toolu_1",
        ),
        (
            [GO, model(CALL), user(RESULT), model(CALL), user(RESULT)],
            "messages: `tool_use` ids must be unique",
        ),
        (
            [GO, model({**CALL, "id": "call 1"}), GO],
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            [GO, model({**CALL, "input": "{"}), user(RESULT)],
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            [GO, model(text("x"), SEARCH), PROMPT],
            "messages.1.content.1: `web_search` tool use with id `srvtoolu_1` was found without a "
            "corresponding `web_search_tool_result` block",
        ),
        ([GO, model(text("x"), HM, text("y")), GO], FIRST_THINKING),
        ([GO, model(text("x")), model(HM, text("y")), GO], FIRST_THINKING),
        (
            [GO, model(HM), GO],
            "messages.1: The final block in an assistant message cannot be `thinking`.",
        ),
        (
            [GO, model({**HM, "signature": ""}, text("x")), GO],
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            [GO, model({"type": "thinking", "thinking": "hm"}, text("x")), GO],
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            [GO, model({**HM, "thinking": "", "signature": ""}, text("x")), GO],
            "messages.1.content.0.thinking: each thinking block must contain thinking",
        ),
    ],
)
def test_a_history_the_provider_refuses_is_refused(
    client: anthropic.Anthropic, turns: list[Any], why: str
) -> None:
    assert why == refusal(client, messages=turns, tools=TOOLS)


@pytest.mark.parametrize(
    "turns",
    [
        [GO, GO],
        [GO, model(text("a")), model(text("b")), GO],
        [GO, model(text("x"), CALL), user(RESULT, text("go on"))],
        [GO, model(HM, text("x"), CALL), user(RESULT)],
        [GO, model({**HM, "thinking": ""}, text("x")), GO],
        [GO, model(SEARCH, CALL), user(RESULT)],
        [GO, model(text("x"), SEARCH)],
        [GO, {"role": "system", "content": "be brief"}],
    ],
)
def test_an_unusual_history_the_provider_takes_is_taken(
    client: anthropic.Anthropic, turns: list[Any]
) -> None:
    assert create(client, 20, *turns, tools=TOOLS).stop_reason == "max_tokens"


def test_tool_blocks_need_tools(client: anthropic.Anthropic) -> None:
    why = "Requests which include `tool_use` or `tool_result` blocks must define tools."
    assert why == refusal(client, messages=[GO, model(CALL), user(RESULT)])


def test_a_blank_system_prompt_is_refused(client: anthropic.Anthropic) -> None:
    assert refusal(client, system=[text("")]) == "system: text content blocks must be non-empty"


def test_manual_thinking_wants_thinking_before_a_call(client: anthropic.Anthropic) -> None:
    turns = [GO, model(text("x"), CALL), user(RESULT)]
    why = refusal(client, model=OLD, messages=turns, tools=TOOLS, thinking=MANUAL)
    assert why.startswith(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. "
        "When `thinking` is enabled, a final `assistant` message must start with a thinking block "
        "(preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
    )


# -- by model, header and size


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            {"max_tokens": 128_001},
            "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens "
            "for claude-opus-5",
        ),
        (
            {"model": "someones-own", "max_tokens": 64_001},
            "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens "
            "for someones-own",
        ),
        ({"messages": [GO, model(text("x"))]}, PREFILL),
        ({"model": OLD, "messages": [GO, model(text("x"))], "thinking": MANUAL}, PREFILL),
        (
            {"model": OLD, "messages": [GO, model(text("x "))]},
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        (
            {
                "model": OLD,
                "messages": [GO, model(HM, text("x"))],
                "thinking": {"type": "disabled"},
            },
            "When thinking is disabled, an `assistant` message in the final position cannot "
            "contain `thinking`. To use thinking blocks, enable `thinking` in your request.",
        ),
        (
            {"model": OLD, "thinking": {"type": "enabled", "budget_tokens": 1023}},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"model": OLD, "max_tokens": 1024, "thinking": MANUAL},
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            "documentation at https://docs.anthropic.com/en/docs/build-with-claude/"
            "extended-thinking#max-tokens-and-context-window-size",
        ),
        (
            {"model": OLD, "thinking": {"type": "adaptive"}},
            "adaptive thinking is not supported on this model",
        ),
        (
            {"model": "claude-opus-5-5", "thinking": {"type": "disabled"}},
            '"thinking.type.disabled" is not supported for this model.',
        ),
    ],
)
def test_what_the_model_cannot_do_is_refused(
    client: anthropic.Anthropic, body: dict[str, Any], why: str
) -> None:
    assert why == refusal(client, **body)


def test_the_window_is_kept() -> None:
    small = ModelLimits(ceiling=4096, window=1000)
    models = {"new": small, "old": ModelLimits(ceiling=4096, window=1000, window_shared=True)}
    long = {"role": "user", "content": "x" * 4400}
    with Simulator(ANSWER, models=models) as sim, connect(sim) as client:
        used = client.messages.count_tokens(model="new", messages=[long]).input_tokens  # type: ignore[list-item]
        too_long = refusal(client, model="new", messages=[long])
        shared = refusal(client, model="old", max_tokens=1000)
        fits = create(client, 1000, model="new")
    assert f"prompt is too long: {used} tokens > 1000 maximum" == too_long
    asked = f"{fits.usage.input_tokens} + 1000"
    assert shared == (
        f"input length and `max_tokens` exceed context limit: {asked} > 1000, "
        "decrease input length or `max_tokens` and try again"
    )


def test_a_ceiling_can_be_set_for_a_run(sim: Simulator, client: anthropic.Anthropic) -> None:
    sim.scenario = Scenario(ceiling=50)
    assert refusal(client, max_tokens=51).startswith("max_tokens: 51 > 50, ")
    assert client.models.retrieve(MODEL).max_tokens == 50


def test_a_request_without_a_key_is_not_served(sim: Simulator) -> None:
    answer = httpx2.post(f"{sim.url}/v1/messages", json={})
    error = {"type": "authentication_error", "message": "x-api-key header is required"}
    assert (401, error) == (answer.status_code, answer.json()["error"])


def test_a_body_that_is_not_json_is_refused(sim: Simulator) -> None:
    answer = httpx2.post(f"{sim.url}/v1/messages", headers=HEADERS, content=b"{")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_unknown_routes_and_models_are_not_found(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.scenario = Scenario(any_model=False)
    with pytest.raises(anthropic.NotFoundError):
        client.get("/v1/nothing", cast_to=object)
    with pytest.raises(anthropic.NotFoundError) as caught:
        create(client, model="someones-own")
    body: Any = caught.value.body
    assert body["error"] == {"type": "not_found_error", "message": "model: someones-own"}


# -- what else it knows


def test_the_models_endpoint_tells_the_ceiling(sim: Simulator, client: anthropic.Anthropic) -> None:
    info = client.models.retrieve(OLD)
    assert (info.id, info.max_tokens, info.max_input_tokens) == (OLD, 64_000, 200_000)
    sim.scenario = Scenario(models_endpoint=False)
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve(OLD)


def test_the_models_given_are_listed() -> None:
    models = {"mine": ModelLimits(ceiling=10)}
    with Simulator(models=models) as sim, connect(sim) as client:
        assert [(info.id, info.max_tokens) for info in client.models.list()] == [("mine", 10)]


def test_the_prompt_cache_is_written_then_read(client: anthropic.Anthropic) -> None:
    cached = user({**text("x" * 400), "cache_control": {"type": "ephemeral"}})
    first = create(client, 20, cached)
    moved = user({**text("x" * 400)})
    asked = user({**text("go on"), "cache_control": {"type": "ephemeral", "ttl": "1h"}})
    second = create(client, 20, moved, said(first), asked)
    third = create(client, 20, moved, said(first), asked)
    written = first.usage.cache_creation_input_tokens
    assert (
        written > 100,
        first.usage.cache_read_input_tokens,
        first.usage.input_tokens,
    ) == (True, 0, 0)
    assert written == second.usage.cache_read_input_tokens
    assert second.usage.cache_creation.ephemeral_1h_input_tokens > 0
    assert third.usage.cache_creation_input_tokens == 0


def test_automatic_caching_follows_the_conversation(client: anthropic.Anthropic) -> None:
    how = {"cache_control": {"type": "ephemeral"}}
    first = create(client, 20, **how)
    second = create(client, 20, GO, said(first), PROMPT, **how)
    assert first.usage.cache_creation_input_tokens == second.usage.cache_read_input_tokens


def test_a_refused_request_is_recorded_and_spends_no_script(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.script([Reply([Text("x")])])
    refusal(client, max_tokens=999_999)
    assert text_of(create(client)) == "x"
    assert [post.status for post in sim.posts] == [400, 200]


def test_a_plain_look_at_the_bytes_shows_the_same_error(sim: Simulator) -> None:
    answer = ask(sim, max_tokens=999_999)
    assert list(answer.json()) == ["type", "error", "request_id"]
