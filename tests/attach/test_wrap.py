"""`wrap`: the same client, with whole answers, whichever method is called."""

from __future__ import annotations

import datetime
from typing import Any

import anthropic
import httpx2
import pydantic
import pytest
from anthropic import beta_async_tool, beta_tool
from support.sdks.turn import quietly
from support.servers import Relay, vertex
from support.shells import LIMIT, LONG, Way, ask, asked, both, create, gone, stream, text_of, told

import continuation
from continuation import Policy
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse


class Note(pydantic.BaseModel):
    title: str
    lines: list[str]


NOTE = Note(title="A note", lines=[f"line {n}, with some words in it" for n in range(80)])


# --- what wrap returns --------------------------------------------------------------------------


@both
def test_the_wrapped_client_is_of_the_same_type_and_the_original_is_not_healed(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        client = way.wrap(bare)
        assert type(client) is type(bare)
        assert create(way, client) == LONG
        assert len(create(way, bare)) < len(LONG)
        assert len(stream(way, bare)) < len(LONG)


@both
def test_wrapping_does_not_change_the_original(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url, default_headers={"x-mine": "1"}, timeout=17.0, max_retries=3)
        before, inner = dict(vars(bare)), bare._client
        settings = dict(vars(inner))
        client = way.wrap(bare)
        assert vars(bare) == before
        assert bare._client is inner
        assert vars(inner) == settings
        assert (client.timeout, client.max_retries) == (17.0, 3)
        assert client.default_headers["x-mine"] == "1"


@both
def test_wrapping_twice_is_wrapping_once(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        once = way.healing(sim.url)
        assert continuation.wrap(once) is once
        twice = way.wrap(way.wrap(once))
        assert create(way, twice) == LONG
        assert len(sim.posts) == 2


@both
def test_wrapping_again_takes_the_new_config(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        once = way.healing(sim.url)
        calm = continuation.wrap(once, config=Policy(escalate=False, max_recoveries=0))
        assert len(create(way, calm)) < len(LONG)
        assert create(way, once) == LONG


# --- every method -------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("beta", [False, True])
def test_every_helper_of_a_stream_sees_the_whole_text(kind: Any, beta: bool) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        client = way.healing(sim.url)
        messages = client.beta.messages if beta else client.messages
        assert text_of(way.do(messages.create(**ask()))) == LONG
        with way.within(messages.stream(**ask())) as helper:
            assert "".join(way.each(helper.text_stream)) == LONG
        with way.within(messages.stream(**ask())) as helper:
            assert text_of(way.do(helper.get_final_message())) == LONG
        with way.within(messages.stream(**ask())) as helper:
            assert way.do(helper.get_final_text()) == LONG
        with way.within(messages.stream(**ask())) as helper:
            way.do(helper.until_done())
            assert helper.current_message_snapshot.stop_reason == "end_turn"
        with way.within(messages.stream(**ask())) as helper:
            events = list(way.each(helper))
            assert told([e for e in events if e.type == "content_block_delta"]) == LONG
            assert [e.type for e in events].count("message_stop") == 1


@both
@pytest.mark.parametrize("beta", [False, True])
def test_a_cut_document_is_parsed_whole(kind: Any, beta: bool) -> None:
    with Simulator(NOTE.model_dump_json()) as sim, Way(kind) as way:
        client = way.healing(sim.url)
        messages = client.beta.messages if beta else client.messages
        message = way.do(messages.parse(**ask(output_format=Note)))
        assert message.parsed_output == NOTE
        assert message.stop_reason == "end_turn"


def _saving(way: Way, written: list[str]) -> Any:
    def save(content: str) -> str:
        """Save a text."""
        written.append(content)
        return "saved"

    async def asave(content: str) -> str:
        """Save a text."""
        return save(content)

    return way.pick(beta_tool(save, name="save"), beta_async_tool(asave, name="save"))


CUT = Reply([Text("Now."), ToolUse("save", {"content": LONG}, cut=60)], stop="max_tokens")
WHOLE = Reply([Text("Now."), ToolUse("save", {"content": LONG})], stop="tool_use")


@both
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_runner_goes_on_after_a_cut_call_was_made_whole(kind: Any, streamed: bool) -> None:
    written: list[str] = []
    with Simulator() as sim, Way(kind) as way:
        sim.script([CUT, WHOLE, Reply([Text("Done.")])])
        runner = way.healing(sim.url).beta.messages.tool_runner(
            **ask(), tools=[_saving(way, written)], thread=False, stream=streamed
        )
        assert text_of(way.do(runner.until_done())) == "Done."
        assert written == [LONG]


@both
def test_a_tool_runner_on_a_server_side_thread_runs_no_cut_call(kind: Any) -> None:
    written: list[str] = []
    with Simulator() as sim, Way(kind) as way:
        sim.script([CUT])
        runner = way.healing(sim.url).beta.messages.tool_runner(
            **ask(), tools=[_saving(way, written)]
        )
        assert way.do(runner.until_done()).stop_reason == "max_tokens"
        assert written == []
        assert [report.outcome for report in way.reports] == ["untouched"]


@both
def test_streaming_responses_carry_the_whole_answer(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        client = way.healing(sim.url)
        with way.within(client.messages.with_streaming_response.create(**ask())) as raw:
            assert text_of(way.do(raw.parse())) == LONG
        call = client.messages.with_streaming_response.create(**ask(), stream=True)
        with way.within(call) as raw:
            lines = list(way.each(raw.iter_lines()))
        assert lines.count("event: message_stop") == 1
        assert lines.count("event: message_start") == 1


@both
def test_options_set_before_and_after_wrapping_hold(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        before = way.wrap(way.bare(sim.url).with_options(default_headers={"x-who": "before"}))
        after = way.healing(sim.url).with_options(default_headers={"x-who": "after"}, timeout=50)
        assert create(way, before) == create(way, after) == LONG
        assert stream(way, after) == LONG
        names = [request.headers["x-who"] for request in sim.requests]
        assert set(names) == {"before", "after"}


@both
def test_extra_headers_query_and_body_go_along_with_every_attempt(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        extra = {
            "extra_headers": {"x-trace": "t1"},
            "extra_query": {"tag": "q1"},
            "extra_body": {"metadata": {"user_id": "u1"}},
        }
        assert create(way, way.healing(sim.url), **extra) == LONG
        assert [p.headers["x-trace"] for p in sim.posts] == ["t1", "t1"]
        assert [p.query for p in sim.posts] == ["tag=q1", "tag=q1"]
        assert all(p.body and p.body["metadata"] == {"user_id": "u1"} for p in sim.posts)


@both
def test_a_timeout_of_one_call_bounds_the_whole_turn(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        sim.scenario = Scenario(slow=0.01, deltas=4)
        sim.script([Reply([Text(LONG[:5])], stop="max_tokens")])
        text = create(way, way.healing(sim.url), timeout=1.5)
        assert 5 < len(text) < len(LONG)
        assert LONG.startswith(text)
        assert way.reports[0].outcome == "partial"
        assert [gone(post) for post in sim.posts] == [False, True]


@both
def test_errors_before_the_first_event_are_the_sdks_own_to_retry(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        busy = Reply(status=529, headers={"retry-after-ms": "1"})
        sim.script([busy, busy])
        assert create(way, way.healing(sim.url, max_retries=2)) == LONG
        assert asked(sim)[:3] == [LIMIT] * 3
        sim.reset()
        sim.script([busy])
        with pytest.raises(anthropic.APIStatusError) as caught:
            create(way, way.healing(sim.url))
        assert caught.value.status_code == 529
        assert len(sim.posts) == 1
    with Way(kind) as way, pytest.raises(anthropic.APIConnectionError):
        create(way, way.healing(sim.url))


# --- the response -------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_response_is_the_first_attempts_own(kind: Any, streamed: bool, gzip: bool) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        headers = {"x-first": "yes", "anthropic-ratelimit-tokens-remaining": "9"}
        sim.script([Reply([Text(LONG[:900])], stop="max_tokens", headers=headers, gzip=gzip)])
        client = way.healing(sim.url)
        raw = way.do(client.messages.with_raw_response.create(**ask(), stream=streamed))
        parsed = way.do(raw.parse())
        text = told(list(way.each(parsed))) if streamed else text_of(parsed)
        assert text == LONG
        response: httpx2.Response = raw.http_response
        assert response.headers["x-first"] == "yes"
        assert "content-encoding" not in response.headers
        assert response.http_version == "HTTP/1.1"
        assert response.extensions["network_stream"] is not None
        assert datetime.timedelta(0) < response.elapsed < datetime.timedelta(seconds=20)
        assert response.num_bytes_downloaded > len(LONG)
        assert response.request.url.path == "/v1/messages"
        assert response.is_closed
        first = way.reports[0].attempts[0]
        assert raw.request_id == first.request_id


@both
def test_compressed_answers_are_healed_attempt_by_attempt(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        client = way.healing(sim.url)
        for ask_for in (create, stream):
            sim.script(
                [
                    Reply([Text(LONG[:900])], stop="max_tokens", gzip=True, chunk=50),
                    Reply([Text(LONG if ask_for is create else LONG[900:])], gzip=True, chunk=50),
                ]
            )
            assert ask_for(way, client) == LONG


@both
def test_an_uncut_compressed_answer_is_the_same_without_us(kind: Any) -> None:
    with Simulator("A short answer.") as sim, Way(kind) as way:
        sim.script([Reply([Text("Short.")], gzip=True)] * 2)
        bare = way.bare(sim.url)
        plain = way.do(bare.messages.with_raw_response.create(**ask()))
        healed = way.do(way.wrap(bare).messages.with_raw_response.create(**ask()))
        theirs, ours = way.do(plain.json()), way.do(healed.json())
        assert {**theirs, "id": None} == {**ours, "id": None}


# --- platforms ----------------------------------------------------------------------------------


@both
def test_a_foundry_client_comes_back_whole(kind: Any) -> None:
    make = {"sync": anthropic.AnthropicFoundry, "async": anthropic.AsyncAnthropicFoundry}[kind]
    with Simulator(LONG) as sim, Way(kind) as way:
        bare: Any = make(base_url=f"{sim.url}/anthropic/", api_key="key")
        with way.within(bare):
            client = way.wrap(bare)
            assert type(client) is make
            assert create(way, client) == stream(way, client) == LONG
            assert {post.path for post in sim.posts} == {"/anthropic/v1/messages"}
            assert {post.headers["x-api-key"] for post in sim.posts} == {"key"}


@both
@pytest.mark.parametrize("model", ["claude-opus-5", "claude-haiku-4-5@20251001"])
def test_a_vertex_client_comes_back_whole(kind: Any, model: str) -> None:
    make = {"sync": anthropic.AnthropicVertex, "async": anthropic.AsyncAnthropicVertex}[kind]
    with Simulator(LONG) as sim, Relay(sim.url, vertex) as cloud, Way(kind) as way, quietly():
        where: dict[str, Any] = {"project_id": "P", "region": "L"}
        bare: Any = make(base_url=f"{cloud.url}/v1", **where, access_token="token")
        with way.within(bare):
            client = way.wrap(bare)
            assert type(client) is make
            assert create(way, client, model=model) == LONG
            assert stream(way, client, model=model) == LONG
        path = f"/v1/projects/P/locations/L/publishers/anthropic/models/{model}:"
        assert [passed.path.removeprefix(path) for passed in cloud.seen] == [
            "rawPredict",
            "streamRawPredict",
            "streamRawPredict",
            *["streamRawPredict"] * (len(cloud.seen) - 3),
        ]


# --- a class of ones own ------------------------------------------------------------------------


class Friendly(anthropic.Anthropic):
    nickname = "mine"


def test_a_subclass_of_ones_own_is_served() -> None:
    with Simulator(LONG) as sim, Friendly(base_url=sim.url, api_key="key") as bare:
        client = continuation.wrap(bare)
        assert type(client) is Friendly
        assert client.nickname == "mine"
        assert create(Way("sync"), client) == LONG


# --- policies as keywords -----------------------------------------------------------------------


@both
def test_a_policy_may_be_said_in_keywords(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        client = continuation.wrap(bare, escalate=False, max_recoveries=0)
        assert len(create(way, client)) < len(LONG)
        assert len(sim.posts) == 1
        # Wrapping again with keywords alone is something new, as with a config.
        assert create(way, continuation.wrap(client, max_recoveries=1)) == LONG


@both
def test_keywords_go_before_the_config_and_the_rest_of_it_stays(kind: Any) -> None:
    config = Policy(max_recoveries=0, escalate=False, model_max_output_tokens=2_000)
    with Simulator(LONG) as sim, Way(kind) as way:
        client = continuation.wrap(way.bare(sim.url), config=config, escalate=True)
        create(way, client)
        assert asked(sim) == [LIMIT, 2_000]


def test_an_http_client_takes_keywords_too() -> None:
    body = ask(model="claude-opus-5")
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    with Simulator(LONG) as sim:
        with continuation.http_client(enabled=False) as client:
            client.post(f"{sim.url}/v1/messages", json=body, headers=headers)
        assert len(sim.posts) == 1
        with continuation.http_client(client, max_recoveries=0, initial_limit="ceiling") as other:
            assert other is not client
