"""What the simulator does alike in all four formats, seen through their SDKs and as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks import gemini
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import BOTH, How, Turn, play
from support.simulator_helpers import ANSWER

from continuation import Policy
from continuation.simulator import Reply, Scenario, Simulator, Text
from continuation.simulator.openai_chat.vendors import vendors

every = pytest.mark.parametrize("dialect", FORMATS)
anyhow = pytest.mark.parametrize("how", BOTH)
BARE = Policy(enabled=False)


def ask(sim: Simulator, dialect: str, how: How = "sync", limit: int = 100, **more: Any) -> Turn:
    """Ask through the SDK, with nobody to heal what comes."""
    return play(MAKES[dialect](), how, sim, request(dialect, limit, more), BARE)


# -- the answer


@every
@anyhow
def test_the_answer_is_whole_or_cut_where_the_limit_is_spent(
    sim: Simulator, dialect: str, how: How
) -> None:
    whole, cut = ask(sim, dialect, how, 4096), ask(sim, dialect, how)
    assert (whole.text, whole.says_cut) == (ANSWER, False)
    assert (cut.text, cut.says_cut) == (ANSWER[:400], True)


@every
@pytest.mark.parametrize("limit", [64, 333])
def test_asked_to_go_on_it_goes_on_until_all_is_said(
    sim: Simulator, dialect: str, limit: int
) -> None:
    asked, pieces, cut = request(dialect, limit, {}), list[str](), True
    while cut:
        ran = play(MAKES[dialect](), "sync", sim, asked, BARE)
        pieces.append(ran.text)
        asked, cut = ran.following(asked), ran.says_cut
    assert "".join(pieces) == ANSWER
    assert max(map(len, pieces)) == 4 * limit


@every
@anyhow
def test_the_answer_can_come_as_a_call(sim: Simulator, dialect: str, how: How) -> None:
    sim.scenario = Scenario(call=True)
    ran = ask(sim, dialect, how, 4096)
    assert ran.tool_calls == [("Write", {"path": "answer.txt", "content": ANSWER})]
    asked = ran.following(request(dialect, 4096, {}))
    after = play(MAKES[dialect](), "sync", sim, asked, BARE)
    assert (after.text, after.says_cut) == ("The file is written.", False)


@every
@anyhow
def test_thinking_is_spent_before_the_text_and_may_eat_the_limit(
    sim: Simulator, dialect: str, how: How
) -> None:
    more: Any = {"model": "deepseek-v4-flash"} if dialect == "openai-chat" else {}
    for thinking, text in ((30, ANSWER[:280]), ("all", ""), ("all:2000", "")):
        sim.scenario = Scenario(vendor="deepseek", thinking=thinking)
        ran = ask(sim, dialect, how, **more)
        assert (ran.text, ran.says_cut) == (text, True)


# -- how it travels


@every
@pytest.mark.parametrize("how", ["sync", "async-stream"])
@pytest.mark.parametrize(
    "shape",
    [
        {"chunk": 1},
        {"gzip": True, "chunk": 3},
        {"deltas": 1, "delay": 0.01},
    ],
    ids=lambda shape: "+".join(shape),
)
def test_the_same_reply_arrives_in_every_legal_shape(
    sim: Simulator, dialect: str, how: How, shape: dict[str, Any]
) -> None:
    sim.script([Reply([Text(ANSWER[:200])], **shape)])
    assert ask(sim, dialect, how).text == ANSWER[:200]


@every
@pytest.mark.parametrize("how", ["sync", "async-stream"])
@pytest.mark.parametrize("status", [429, 503, 529])
def test_an_attempt_can_meet_an_error_status(
    sim: Simulator, dialect: str, how: How, status: int
) -> None:
    sim.scenario = Scenario(status={2: status}, retry_after=3, retry_after_ms=5)
    met: list[Any] = [ask(sim, dialect, how).error for _ in range(3)]
    assert [post.status for post in sim.posts] == [200, status, 200]
    assert (met[0], met[2]) == (None, None)
    assert getattr(met[1], "status_code", None) or met[1].code == status
    headers = met[1].response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("3", "5")


@every
@anyhow
def test_an_attempt_can_be_dropped(sim: Simulator, dialect: str, how: How) -> None:
    sim.scenario = Scenario(drop={1: 3})
    assert ask(sim, dialect, how).error is not None
    if how.endswith("stream"):
        assert sim.posts[0].sent == 3
    assert ask(sim, dialect, how).text == ANSWER[:400]


@every
@anyhow
def test_an_error_can_come_in_the_middle_of_a_stream(
    sim: Simulator, dialect: str, how: How
) -> None:
    sim.scenario = Scenario(error_event={1: 3})
    ran = ask(sim, dialect, how)
    if dialect == "openai-responses" and how.endswith("stream"):
        assert (ran.pieces[-1].type, ran.pieces[-1].code) == ("error", "server_error")
    else:  # which is a status where there is no stream
        assert type(ran.error).__name__ in {"APIStatusError", "APIError", "ServerError"} | {
            "InternalServerError",
            "OverloadedError",
        }
    assert ask(sim, dialect, how).error is None


@every
@pytest.mark.parametrize(
    ("how", "fault"), [("sync", {"torn_body": {1: 50}}), ("async-stream", {"torn": {1: 3}})]
)
def test_half_of_its_json_can_arrive(
    sim: Simulator, dialect: str, how: How, fault: dict[str, Any]
) -> None:
    sim.scenario = Scenario(**fault)
    assert ask(sim, dialect, how).error is not None
    assert sim.posts[0].status == 200
    assert ask(sim, dialect, how).text == ANSWER[:400]


def test_a_torn_body_has_the_length_that_was_announced(sim: Simulator) -> None:
    path, asked = PATHS["openai-chat"], {"model": "m", "messages": [GO]}
    for fault, size in (("torn_body=1:50", 50), ("", None), ("torn_body=3:99999", None)):
        headers = {**KEYS, "x-simulate": fault}
        answer = httpx2.post(sim.url + path, headers=headers, json=asked)
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert size in (None, len(answer.content))


# -- who is served


VERTEX = "/v1beta1/projects/p/locations/l/publishers/google/models"
PATHS = {
    "anthropic-messages": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": f"/v1beta/models/{gemini.NEW}:generateContent",
    "gemini, streamed": f"/v1/models/{gemini.NEW}:streamGenerateContent",
    "vertex": f"{VERTEX}/{gemini.NEW}:generateContent",
}
KEYS = {"x-api-key": "k", "authorization": "Bearer k", "x-goog-api-key": "k"}


@pytest.mark.parametrize(
    ("dialect", "status", "why"),
    [
        ("anthropic-messages", 401, "x-api-key header is required"),
        ("openai-chat", 401, "You didn't provide an API key."),
        ("openai-responses", 401, "You didn't provide an API key."),
        ("gemini", 403, "unregistered callers"),
        ("vertex", 403, "unregistered callers"),
    ],
)
def test_who_has_no_key_is_a_stranger(sim: Simulator, dialect: str, status: int, why: str) -> None:
    path = PATHS[dialect]
    answer = httpx2.post(sim.url + path, json={"contents": [], "model": "m"})
    assert (answer.status_code, why in answer.text) == (status, True)


@pytest.mark.parametrize("dialect", PATHS)
def test_a_body_that_is_not_json_is_refused(sim: Simulator, dialect: str) -> None:
    answer = httpx2.post(sim.url + PATHS[dialect], headers=KEYS, content=b"{")
    assert (answer.status_code, "JSON" in answer.text) == (400, True)


@every
def test_settings_and_models_can_be_refused_by_name(sim: Simulator, dialect: str) -> None:
    how = {"headers": {"x-simulate": "novel=1"}}
    more = {"http_options": how} if dialect == "gemini" else {"extra_headers": how["headers"]}
    assert "'novel=1' is not a setting" in str(ask(sim, dialect, **more).error)
    assert ask(sim, dialect, model="someones-own").text == ANSWER[:400]
    sim.scenario = Scenario(any_model=False)
    assert "someones-own" in str(ask(sim, dialect, model="someones-own").error)


# -- anything at all

JUNK: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.text("aü🙂\\ \n", max_size=5),
    st.just([1]),
    st.just({}),
)
KINDS = ["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use"]
FIELDS = ["text", "thinking", "signature", "id", "name", "input", "tool_use_id", "cache_control"]
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from([*KINDS, "image_url"])},
    optional=dict.fromkeys(FIELDS, JUNK | st.just("a")),
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "Write", "arguments": "{}"}}
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "function"]),
        "content": st.just("hi") | st.lists(BLOCKS, max_size=3) | JUNK,
    },
    optional={
        "tool_calls": JUNK | st.just([CALL]) | st.lists(JUNK, max_size=2),
        "tool_call_id": JUNK | st.just("call_1"),
        **dict.fromkeys(["prefix", "partial", "reasoning_content", "type", "id"], JUNK),
    },
)
PARTS = st.dictionaries(
    st.sampled_from(["text", "thought", "thoughtSignature", "functionCall", "functionResponse"]),
    JUNK | st.just({"name": "Write", "args": {"a": 1}}) | st.just("c2ln"),
    max_size=3,
)
CONTENTS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "model", "tool"]),
        "parts": st.lists(PARTS, max_size=3) | JUNK | st.just([{"text": "hi"}]),
    }
)
MEMBERS = [
    *("max_tokens", "max_completion_tokens", "n", "stop", "stream", "stream_options", "tools"),
    *("tool_choice", "response_format", "thinking", "reasoning", "chat_template_kwargs"),
    *("continue_final_message", "add_generation_prompt", "enable_thinking", "system"),
    *("stop_sequences", "previous_response_id", "conversation", "max_output_tokens", "store"),
    *("systemInstruction", "toolConfig", "continuationToken"),
]
CONFIGS = ["maxOutputTokens", "candidateCount", "stopSequences", "thinkingConfig"]
MODELS = [
    *("claude-opus-5", "claude-haiku-4-5", "claude-haiku-5-5", "gpt-4o", "gpt-5"),
    *("deepseek-reasoner", "gemini-3.6-flash", "gemini-2.5-flash", "gemini-4-argon", "novel"),
]
GO = {"role": "user", "content": "recite"}


@pytest.fixture(scope="module")
def line() -> Iterator[httpx2.Client]:
    with Simulator(ANSWER) as sim, httpx2.Client(base_url=sim.url, headers=KEYS) as client:
        yield client


@settings(max_examples=examples(300))
@given(
    dialect=st.sampled_from([*PATHS]),
    vendor=st.sampled_from(sorted(vendors())),
    model=st.sampled_from(MODELS),
    turns=st.lists(MESSAGES, max_size=3),
    contents=st.lists(CONTENTS | JUNK, max_size=3) | JUNK,
    config=st.dictionaries(st.sampled_from(CONFIGS), JUNK | st.just(50)) | JUNK,
    more=st.dictionaries(
        st.sampled_from(MEMBERS),
        JUNK | st.just({"type": "enabled", "budget_tokens": "x"}) | st.lists(BLOCKS, max_size=2),
        max_size=3,
    ),
)
def test_nothing_a_client_sends_makes_it_fail(
    line: httpx2.Client,
    dialect: str,
    vendor: str,
    model: str,
    turns: list[Any],
    contents: Any,
    config: Any,
    more: dict[str, Any],
) -> None:
    said: dict[str, Any] = {"messages": [GO, *turns], "max_tokens": 9}
    if "models" in PATHS[dialect]:
        said = {"contents": contents, "generationConfig": config}
    elif dialect == "openai-responses":
        said = {"input": [GO, *turns]}
    path = PATHS[dialect].replace(gemini.NEW, model)
    headers = {"x-simulate": f"vendor={vendor}"}
    answer = line.post(path, json={"model": model, **said, **more}, headers=headers)
    assert answer.status_code in (200, 400, 404, 422), answer.text
