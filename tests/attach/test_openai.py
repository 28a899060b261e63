"""Clients of openai: a copy of the same type, whose requests all go through `send` of ours.

What becomes of a cut answer is told elsewhere; here answers pass, and a watcher in the place of
the dialects tells which requests we saw.
"""

from __future__ import annotations

import gc
import json
from typing import Any

import openai
import pydantic
import pytest
from openai.providers.vertex import vertex
from support.servers import Answer, Asked, Canned, Watcher
from support.shells import Way, both

import continuation
from continuation.attach.healing_clients import AsyncHealingClient, HealingClient
from continuation.simulator import Simulator

TEXT = "a short answer"
ASK: dict[str, Any] = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "say it"}]}
RESPOND: dict[str, Any] = {"model": "gpt-5.5", "input": "say it"}
CHAT = "POST /v1/chat/completions"


class Note(pydantic.BaseModel):
    title: str


def completion(**message: Any) -> dict[str, Any]:
    told = {"role": "assistant", "content": TEXT, **message}
    choice = {"index": 0, "finish_reason": "stop", "message": told}
    top = {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-5.5"}
    return {**top, "choices": [choice]}


def chunks() -> list[Any]:
    top = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.5"}
    deltas = [{"role": "assistant", "content": TEXT[:5]}, {"content": TEXT[5:]}]
    told = [{**top, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {**top, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [*told, end, "[DONE]"]


def response() -> dict[str, Any]:
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    said = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    top = {"id": "r1", "object": "response", "created_at": 1, "model": "gpt-5.5", "tools": []}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "status": "completed"}
    return {**top, **rest, "output": [{**said, "content": [part]}]}


def rule(asked: Asked) -> Answer:
    headers = {"x-request-id": "req_1"}
    if asked.path.partition("?")[0].endswith("/responses"):
        if asked.body.get("stream"):
            whole = response()
            opening = {**whole, "status": "in_progress", "output": []}
            events = [
                {"type": "response.created", "sequence_number": 0, "response": opening},
                {"type": "response.completed", "sequence_number": 1, "response": whole},
            ]
            return Answer(events=events, headers=headers)
        return Answer(response(), headers=headers)
    if "completions" in asked.path:
        if asked.body.get("stream"):
            return Answer(events=chunks(), headers=headers)
        wanted = asked.body.get("response_format") is not None
        content = json.dumps({"title": TEXT}) if wanted else TEXT
        return Answer(completion(content=content), headers=headers)
    return Answer({"object": "list", "data": []}, headers=headers)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    return Watcher.installed(monkeypatch)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def bare(way: Way, url: str, **options: Any) -> Any:
    make = way.pick(openai.OpenAI, openai.AsyncOpenAI)
    client = make(**{"base_url": f"{url}/v1", "api_key": "k", "max_retries": 0, **options})
    way._made.append(client)
    return client


def azure(way: Way, url: str, **options: Any) -> Any:
    make = way.pick(openai.AzureOpenAI, openai.AsyncAzureOpenAI)
    given = {"azure_endpoint": url, "api_version": "2026-10-01", "max_retries": 0, **options}
    client = make(**given)
    way._made.append(client)
    return client


def say(way: Way, client: Any, **options: Any) -> str:
    answer = way.do(client.chat.completions.create(**ASK, **options))
    return str(answer.choices[0].message.content)


def told(way: Way, stream: Any) -> str:
    deltas = [chunk.choices[0].delta.content for chunk in way.each(stream) if chunk.choices]
    return "".join(delta or "" for delta in deltas)


# --- every way of asking goes through ours ------------------------------------------------------


@both
def test_a_copy_of_the_same_type_is_returned_and_the_original_stays(
    kind: Any, watcher: Watcher
) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = bare(way, server.url)
        inner = client._client
        wrapped = continuation.wrap(client)
        assert wrapped is not client
        assert type(wrapped) is type(client)
        assert client._client is inner
        assert wrapped._client.origin is inner
        assert isinstance(wrapped._client, way.pick(HealingClient, AsyncHealingClient))
        assert say(way, client) == TEXT
        assert watcher.seen == []
        assert say(way, wrapped) == TEXT
        assert watcher.seen == [CHAT]
        first, second = server.asked
        assert first.headers == second.headers
        assert first.body == second.body


@both
def test_streams_and_helpers_go_through_ours(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        chat = continuation.wrap(bare(way, server.url)).chat.completions
        assert told(way, way.do(chat.create(**ASK, stream=True))) == TEXT
        parsed = way.do(chat.parse(**ASK, response_format=Note))
        assert parsed.choices[0].message.parsed == Note(title=TEXT)
        with way.within(chat.stream(**ASK)) as stream:
            last = list(way.each(stream))[-1]
            assert last.type == "content.done"
            final = way.do(stream.get_final_completion())
        assert final.choices[0].message.content == TEXT
        assert watcher.seen == [CHAT] * 3


def test_an_asynchronous_stream_leaves_its_connection_to_the_next() -> None:
    """As without us: behind `[DONE]` the SDK reads on to the end of the body."""
    with Simulator(TEXT) as sim, Way("async") as way:
        client = continuation.wrap(bare(way, sim.url))
        pool, used = client._client.origin._transport._pool, list[Any]()
        for _ in range(3):
            assert told(way, way.do(client.chat.completions.create(**ASK, stream=True))) == TEXT
            used += pool.connections
        assert len(used) == 3
        assert used[0] is used[2]


@both
def test_responses_and_their_helpers_go_through_ours(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        responses = continuation.wrap(bare(way, server.url)).responses
        answer = way.do(responses.create(**RESPOND))
        assert answer.output_text == TEXT
        assert answer._request_id == "req_1"
        events = list(way.each(way.do(responses.create(**RESPOND, stream=True))))
        assert [event.type for event in events] == ["response.created", "response.completed"]
        with way.within(responses.stream(**RESPOND)) as stream:
            list(way.each(stream))
            assert way.do(stream.get_final_response()).output_text == TEXT
        assert watcher.seen == ["POST /v1/responses"] * 3


@both
def test_raw_and_streaming_responses_go_through_ours(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        chat = continuation.wrap(bare(way, server.url)).chat.completions
        raw = way.do(chat.with_raw_response.create(**ASK))
        assert raw.request_id == "req_1"
        assert raw.parse().choices[0].message.content == TEXT
        raw = way.do(chat.with_raw_response.create(**ASK, stream=True))
        assert told(way, raw.parse()) == TEXT
        with way.within(chat.with_streaming_response.create(**ASK, stream=True)) as raw:
            lines = [line for line in way.each(raw.iter_lines()) if line]
        assert lines[-1] == "data: [DONE]"
        assert watcher.seen == [CHAT] * 3


@both
def test_options_set_before_and_after_wrapping_hold(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = bare(
            way,
            server.url,
            organization="org",
            project="proj",
            timeout=40.0,
            max_retries=3,
            default_headers={"x-who": "before"},
            default_query={"tag": "q"},
        )
        wrapped = continuation.wrap(client)
        for name in ("base_url", "api_key", "organization", "project", "timeout", "max_retries"):
            assert getattr(wrapped, name) == getattr(client, name)
        again = wrapped.with_options(timeout=50.0).copy(default_headers={"x-who": "after"})
        assert again._client is wrapped._client
        assert again.timeout == 50.0
        assert say(way, wrapped) == say(way, again) == TEXT
        assert [asked.headers["x-who"] for asked in server.asked] == ["before", "after"]
        for asked in server.asked:
            assert asked.path == "/v1/chat/completions?tag=q"
            assert asked.headers["openai-organization"] == "org"
            assert asked.headers["openai-project"] == "proj"
        assert watcher.seen == [CHAT] * 2


@both
def test_a_client_that_checks_its_answers_strictly_still_does(kind: Any) -> None:
    with Canned(lambda _: Answer({"id": 7})) as server, Way(kind) as way:
        client = bare(way, server.url, _strict_response_validation=True)
        for either in (client, continuation.wrap(client)):
            with pytest.raises(openai.APIResponseValidationError):
                say(way, either)


@both
def test_errors_are_the_sdks_own_to_retry(kind: Any, watcher: Watcher) -> None:
    busy = [Answer({"error": {"message": "busy"}}, status=503, headers={"retry-after-ms": "1"})]
    with Canned(lambda asked: busy.pop() if busy else rule(asked)) as server, Way(kind) as way:
        client = continuation.wrap(bare(way, server.url, max_retries=2))
        assert say(way, client) == TEXT
        assert watcher.seen == [CHAT] * 2
        busy.append(Answer({"error": {"message": "no"}}, status=400))
        with pytest.raises(openai.BadRequestError, match="no"):
            say(way, client)
    with Way(kind) as way, pytest.raises(openai.APIConnectionError):
        say(way, continuation.wrap(bare(way, "http://127.0.0.1:1")))


# --- credentials --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("make", [bare, azure])
def test_a_key_or_token_that_is_asked_for_anew_is_asked_for_anew(kind: Any, make: Any) -> None:
    keys = iter(["one", "two"])

    async def later() -> str:
        return next(keys)

    with Canned(rule) as server, Way(kind) as way:
        given = {bare: "api_key", azure: "azure_ad_token_provider"}[make]
        key = way.pick(lambda: next(keys), later)
        wrapped = continuation.wrap(make(way, server.url, **{given: key}))
        assert say(way, wrapped) == say(way, wrapped) == TEXT
        sent = [asked.headers["authorization"] for asked in server.asked]
        assert sent == ["Bearer one", "Bearer two"]


@both
def test_a_provider_that_only_adds_a_token_is_served(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        provider = vertex(base_url=f"{server.url}/v1", token_provider=lambda: "token")
        client = bare(way, server.url, base_url=None, api_key=None, provider=provider)
        answer = way.do(continuation.wrap(client).responses.create(**RESPOND))
        assert answer.output_text == TEXT
        assert watcher.seen == ["POST /v1/responses"]
        assert server.asked[0].headers["authorization"] == "Bearer token"


@both
def test_a_workload_identity_whose_token_is_in_a_header_is_served(
    kind: Any, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(asked: Asked) -> Answer:
        if asked.path == "/token":
            return Answer({"access_token": "exchanged", "expires_in": 3600})
        return rule(asked)

    identity = {
        "provider": {"token_type": "jwt", "get_token": lambda: "subject"},
        "identity_provider_id": "i",
        "service_account_id": "s",
    }
    with Canned(exchange) as server, Way(kind) as way:
        client = bare(way, server.url, api_key=None, workload_identity=identity)
        wrapped = continuation.wrap(client)
        wrapped._workload_identity_auth.token_exchange_url = f"{server.url}/token"
        assert say(way, wrapped) == TEXT
        assert watcher.seen == [CHAT]
        assert server.asked[-1].headers["authorization"] == "Bearer exchanged"


@both
@pytest.mark.parametrize("deployment", [None, "mine"])
def test_azure_keeps_its_paths_and_keys(
    kind: Any, deployment: str | None, watcher: Watcher
) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = azure(way, server.url, api_key="secret", azure_deployment=deployment)
        wrapped = continuation.wrap(client)
        assert type(wrapped) is type(client)
        assert say(way, wrapped) == TEXT
        assert way.do(wrapped.with_options(max_retries=1).models.list()).data == []
        name = deployment or ASK["model"]
        version = "?api-version=2026-10-01"
        assert [asked.path for asked in server.asked] == [
            f"/openai/deployments/{name}/chat/completions{version}",
            f"/openai/models{version}",
        ]
        assert {asked.headers["api-key"] for asked in server.asked} == {"secret"}
        assert len(watcher.seen) == 2


@both
def test_azures_hook_against_leaking_its_key_is_there_once(kind: Any) -> None:
    with Way(kind) as way:
        client = azure(way, "http://127.0.0.1:1", api_key="secret")
        hooks = list(client._client.event_hooks["request"])
        wrapped = continuation.wrap(client).with_options(timeout=1)
        assert wrapped._client.event_hooks["request"] == hooks
        assert len(hooks) == 1


# --- who owns what ------------------------------------------------------------------------------


@both
def test_copy_and_original_close_and_end_apart(kind: Any) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = bare(way, server.url)
        wrapped, other = continuation.wrap(client), continuation.wrap(client)
        way.do(wrapped.close())
        assert wrapped.is_closed()
        assert not client.is_closed()
        assert say(way, client) == TEXT
        with pytest.raises(RuntimeError, match="client has been closed"):
            say(way, wrapped)
        way._made.clear()
        way._made.append(other._client.origin)
        del client, wrapped
        gc.collect()
        assert say(way, other) == TEXT


@both
def test_wrapping_again_takes_the_new_listener_or_nothing(kind: Any) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = bare(way, server.url)
        wrapped = continuation.wrap(client)
        assert continuation.wrap(wrapped) is wrapped
        again = way.wrap(wrapped)
        assert again is not wrapped
        assert again._client.origin is client._client
        assert say(way, again) == TEXT


@both
def test_an_http_client_of_ours_serves_the_sdk(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        make = way.pick(continuation.http_client, continuation.async_http_client)
        http = make()
        way._made.append(http)
        client = bare(way, server.url, http_client=http)
        assert continuation.wrap(client) is client
        assert say(way, client) == TEXT
        assert watcher.seen == [CHAT]


# --- tracers ------------------------------------------------------------------------------------


def trace(resource: Any, name: str, spans: list[str]) -> None:
    """Put a method in the place of another, on the instance, as tracers do."""
    plain = getattr(resource, name)

    def traced(*arguments: Any, **options: Any) -> Any:
        spans.append(name)
        return plain(*arguments, **options)

    setattr(resource, name, traced)


@both
@pytest.mark.parametrize("first", ["we", "the tracer"])
def test_a_patched_method_stays_with_the_client_it_was_patched_on(
    kind: Any, first: str, watcher: Watcher
) -> None:
    spans: list[str] = []
    with Canned(rule) as server, Way(kind) as way:
        client = bare(way, server.url)
        if first == "the tracer":
            trace(client.chat.completions, "create", spans)
        wrapped = continuation.wrap(client)
        if first == "we":
            trace(wrapped.chat.completions, "create", spans)
        assert say(way, wrapped) == TEXT
        assert spans == (["create"] if first == "we" else [])
        assert say(way, client) == TEXT
        assert spans == ["create"]
        assert watcher.seen == [CHAT]


# --- a class of ones own ------------------------------------------------------------------------


class Friendly(openai.AzureOpenAI):
    nickname = "mine"


def test_a_subclass_of_ones_own_is_served(watcher: Watcher) -> None:
    with Canned(rule) as server, Way("sync") as way:
        options: dict[str, Any] = {"api_key": "k", "api_version": "v"}
        with Friendly(azure_endpoint=server.url, **options) as client:
            wrapped = continuation.wrap(client)
            assert type(wrapped) is Friendly
            assert say(way, wrapped) == TEXT
            assert len(watcher.seen) == 1
