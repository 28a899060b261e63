"""Clients of google-genai: changed in place, so that all model calls go through `send` of ours.

What becomes of a cut answer is told elsewhere; here answers pass, and a watcher in the place of
the dialects tells which requests we saw.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import google.auth.credentials
import httpx2
import pydantic
import pytest
from google import genai
from google.genai import _api_client, errors, types
from support.servers import Answer, Asked, Canned, Watcher
from support.shells import Way, both

import continuation
from continuation.attach.healing_clients import AsyncHealingClient
from continuation.attach.total_timeout import TotalTimeout

MODEL = "gemini-3.8-flash"
TEXT = "a short answer"
ASK: dict[str, Any] = {"model": MODEL, "contents": "say it"}
UNARY = f"POST /v1/models/{MODEL}:generateContent"
STREAM = f"POST /v1/models/{MODEL}:streamGenerateContent"


class Note(pydantic.BaseModel):
    title: str


def answer(*parts: Any, end: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if end is not None:
        candidate["finishReason"] = end
    return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "r1"}


WHOLE = answer({"text": TEXT})
PIECES = [answer({"text": TEXT[:5]}, end=None), answer({"text": TEXT[5:]})]


def rule(asked: Asked) -> Answer:
    headers = {"x-served-by": "us"}
    if "streamGenerateContent" in asked.path:
        return Answer(events=PIECES, headers=headers)
    return Answer(WHOLE, headers=headers)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    return Watcher.installed(monkeypatch)


@pytest.fixture
def with_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK take aiohttp for installed: a client not wrapped would now fail."""
    monkeypatch.setattr(_api_client, "has_aiohttp", True)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_HTTP_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_api_client, "has_aiohttp", False)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Open sockets tell themselves when they are collected."""
    yield
    gc.collect()


def bare(url: str, **options: Any) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, **options))


def wrapped(url: str, **options: Any) -> genai.Client:
    return continuation.wrap(bare(url, **options))


class Asking:
    """The models and chats of one kind, in the same words for both. Closed with the way."""

    def __init__(self, way: Way, client: genai.Client) -> None:
        self.way = way
        self.client = client
        self.side: Any = way.pick(client, client.aio)
        way._made.append(self.side)

    def say(self, **config: Any) -> str | None:
        options = {"config": config} if config else {}
        return str(self.way.do(self.side.models.generate_content(**ASK, **options)).text)

    def stream(self) -> str:
        pieces = self.way.do(self.side.models.generate_content_stream(**ASK))
        return "".join(piece.text or "" for piece in self.way.each(pieces))


# --- every way of asking goes through ours ------------------------------------------------------


@both
def test_the_same_client_is_returned_and_sends_through_ours(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way, bare(server.url) as client:
        asking = Asking(way, client)
        assert asking.say() == TEXT
        assert watcher.seen == []
        assert continuation.wrap(client) is client
        assert isinstance(client, genai.Client)
        assert type(client).__qualname__ == "Client"
        assert asking.say() == asking.stream() == TEXT
        assert watcher.seen == [UNARY, STREAM]
        first, second, _ = server.asked
        assert first.headers == second.headers
        assert first.body == second.body
        way.do(asking.side.models.list())
        assert watcher.seen[2] == "GET /v1/models"


@both
def test_chats_go_through_ours_also_one_begun_before(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way, bare(server.url) as client:
        side = Asking(way, client).side
        before = side.chats.create(model=MODEL)
        continuation.wrap(client)
        for chat in (before, side.chats.create(model=MODEL)):
            assert way.do(chat.send_message("one")).text == TEXT
            pieces = list(way.each(way.do(chat.send_message_stream("two"))))
            assert "".join(piece.text for piece in pieces) == TEXT
            assert len(chat.get_history()) >= 4
        assert watcher.seen == [UNARY, STREAM] * 2


@both
def test_each_step_of_automatic_function_calling_goes_through_ours(
    kind: Any, watcher: Watcher
) -> None:
    saved: list[str] = []

    def save(text: str) -> str:
        """Save a text."""
        saved.append(text)
        return "saved"

    call = answer({"functionCall": {"name": "save", "args": {"text": TEXT}}})
    steps = [call, WHOLE]
    with Canned(lambda _: Answer(steps.pop(0))) as server, Way(kind) as way:
        side = Asking(way, wrapped(server.url)).side
        answered = way.do(side.models.generate_content(**ASK, config={"tools": [save]}))
        assert answered.text == TEXT
        assert saved == [TEXT]
        assert len(answered.automatic_function_calling_history) == 3
        assert watcher.seen == [UNARY] * 2


@both
def test_parsed_answers_headers_and_raw_responses_survive(kind: Any) -> None:
    with (
        Canned(
            lambda _: Answer(answer({"text": '{"title": "t"}'}), headers={"x-a": "b"})
        ) as server,
        Way(kind) as way,
    ):
        models = Asking(way, wrapped(server.url)).side.models
        config = {"response_mime_type": "application/json", "response_schema": Note}
        answered = way.do(models.generate_content(**ASK, config=config))
        assert answered.parsed == Note(title="t")
        assert answered.sdk_http_response.headers["x-a"] == "b"
        raw = types.GenerateContentConfig(should_return_http_response=True)
        answered = way.do(models.generate_content(**ASK, config=raw))
        assert "title" in answered.sdk_http_response.body


@both
def test_http_options_of_the_client_and_of_a_call_hold(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        args = {"params": {"tenant": "t"}}
        options = {"headers": {"x-who": "client"}, "client_args": args, "async_client_args": args}
        asking = Asking(way, wrapped(server.url, **options))
        per_call = types.HttpOptions(headers={"x-who": "call"}, extra_body={"labels": {"a": "b"}})
        assert asking.say() == asking.say(http_options=per_call) == TEXT
        assert [asked.headers["x-who"] for asked in server.asked] == ["client", "call"]
        assert server.asked[1].body["labels"] == {"a": "b"}
        assert all(asked.path.endswith("?tenant=t") for asked in server.asked)
        assert watcher.seen == [UNARY] * 2


@both
def test_errors_are_the_sdks_own_to_retry(kind: Any, watcher: Watcher) -> None:
    failed = Answer(
        {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, status=503
    )
    answers = [failed, failed]
    with (
        Canned(lambda asked: answers.pop() if answers else rule(asked)) as server,
        Way(kind) as way,
    ):
        retry = types.HttpRetryOptions(attempts=2, initial_delay=0.001, jitter=0.0)
        with pytest.raises(errors.ServerError, match="busy"):
            Asking(way, wrapped(server.url)).say()
        assert Asking(way, wrapped(server.url, retry_options=retry)).say() == TEXT
        assert watcher.seen == [UNARY] * 3


@both
@pytest.mark.parametrize("milliseconds", [None, 30_000])
def test_our_clients_see_seconds_or_no_timeout_at_all(
    kind: Any, milliseconds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def later(request: httpx2.Request) -> None:
        seen.append(request.extensions["timeout"])

    with Canned(rule) as server, Way(kind) as way:
        hooks: Any = way.pick(lambda request: seen.append(request.extensions["timeout"]), later)
        args = way.pick("client_args", "async_client_args")
        given = {args: {"event_hooks": {"request": [hooks]}}}
        client = wrapped(server.url, timeout=milliseconds, **given)
        assert Asking(way, client).say() == TEXT
        seconds = milliseconds and milliseconds / 1000
        assert seen == [dict.fromkeys(("connect", "read", "write", "pool"), seconds)]


@both
def test_vertex_clients_go_through_ours(kind: Any, watcher: Watcher) -> None:
    token = google.auth.credentials.AnonymousCredentials()  # type: ignore[no-untyped-call]
    token.token = "t"
    with Canned(rule) as server, Way(kind) as way:
        place: dict[str, Any] = {"vertexai": True, "project": "p", "location": "l"}
        options = types.HttpOptions(base_url=server.url)
        client = genai.Client(**place, credentials=token, http_options=options)
        assert Asking(way, continuation.wrap(client)).say() == TEXT
        path = f"/v1beta1/projects/p/locations/l/publishers/google/models/{MODEL}:generateContent"
        assert watcher.seen == [f"POST {path}"]
        assert server.asked[0].headers["authorization"] == "Bearer t"


@both
def test_interactions_made_before_wrapping_go_through_ours(kind: Any, watcher: Watcher) -> None:
    said = {"id": "i1", "status": "completed", "model": MODEL, "outputs": []}
    with Canned(lambda _: Answer(said)) as server, Way(kind) as way, bare(server.url) as client:
        interactions = Asking(way, client).side.interactions
        continuation.wrap(client)
        way.do(interactions.create(model=MODEL, input="say it"))
        assert watcher.seen == ["POST /v1/interactions"]


# --- event loops --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("aiohttp", [False, True])
def test_one_client_serves_event_loops_one_after_the_other(
    aiohttp: bool, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_api_client, "has_aiohttp", aiohttp)

    async def turn(client: genai.Client) -> str:
        answered = await client.aio.models.generate_content(**ASK)
        pieces = await client.aio.models.generate_content_stream(**ASK)
        streamed = "".join([piece.text or "" async for piece in pieces])
        assert streamed == answered.text
        return streamed

    with Canned(rule) as server, wrapped(server.url) as client:
        for _ in range(3):
            assert asyncio.run(turn(client)) == TEXT
        assert watcher.seen == [UNARY, STREAM] * 3


@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_of_ones_own_serves_one_event_loop_or_keeps_no_connections() -> None:
    """The SDK keeps a pool for each loop in clients that it makes itself, and only there."""

    async def turn(client: genai.Client) -> str | None:
        return (await client.aio.models.generate_content(**ASK)).text

    with Canned(rule) as server:
        http = continuation.async_http_client()
        client = bare(server.url, httpx_async_client=http)
        assert asyncio.run(turn(client)) == TEXT
        with pytest.raises(RuntimeError, match="loop is closed"):
            asyncio.run(turn(client))
        limits = httpx2.Limits(max_keepalive_connections=0)
        http = continuation.async_http_client(httpx2.AsyncClient(limits=limits))
        client = bare(server.url, httpx_async_client=http)
        assert asyncio.run(turn(client)) == asyncio.run(turn(client)) == TEXT


# --- aiohttp ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_aiohttp")
def test_asynchronous_requests_leave_aiohttp_for_ours(watcher: Watcher) -> None:
    with Canned(rule) as server, Way("async") as way:
        client = bare(server.url)
        assert client._api_client._use_aiohttp()
        asking = Asking(way, continuation.wrap(client))
        assert asking.say() == asking.stream() == TEXT
        assert watcher.seen == [UNARY, STREAM]
        outer: Any = client._api_client._async_httpx_client
        assert isinstance(outer.origin, TotalTimeout)
        again = way.wrap(client)
        assert again._api_client._async_httpx_client.origin is outer.origin
        assert asking.say() == TEXT
        way.do(client.aio.aclose())
        assert outer.is_closed
        assert outer.origin.is_closed


@pytest.mark.usefixtures("with_aiohttp")
def test_as_many_connections_are_allowed_as_aiohttp_has() -> None:
    with Canned(rule) as server, Way("async") as way:
        for given, most in (({}, sys.maxsize), ({"limits": httpx2.Limits(max_connections=7)}, 7)):
            client = wrapped(server.url, async_client_args=given)
            assert Asking(way, client).say() == TEXT
            outer: Any = client._api_client._async_httpx_client
            (inner,) = outer._loop_clients.values()
            pool = inner._transport._pool
            assert pool._max_connections == most
            way.do(client.aio.aclose())


@pytest.mark.usefixtures("with_aiohttp")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_timeout_still_bounds_the_call_from_beginning_to_end(streamed: bool) -> None:
    slow = Answer(events=PIECES * 400, gap=0.05)
    with Canned(lambda _: slow) as server, Way("async") as way:
        unhealed = continuation.Policy(enabled=False)  # else a cut answer would be in hand
        asking = Asking(way, continuation.wrap(bare(server.url, timeout=1500), config=unhealed))
        with pytest.raises(TimeoutError):
            _ = asking.stream() if streamed else asking.say()
        pool = asking.side._api_client._async_httpx_client
        (inner,) = pool._loop_clients.values()
        assert not inner._transport._pool._requests
        server.rule = rule
        assert asking.say() == asking.stream() == TEXT
        way.do(asking.side.aclose())


@pytest.mark.usefixtures("with_aiohttp")
def test_later_attempts_share_the_deadline_of_the_first_and_other_requests_have_none() -> None:
    with Canned(lambda _: Answer(events=PIECES * 40, gap=0.05)) as server, Way("async") as way:
        client = TotalTimeout(way.http())
        url = f"{server.url}/v1/models/m:generateContent"
        first = client.build_request("POST", url, timeout=0.2)
        with pytest.raises(TimeoutError):
            way.do(client.send(first))
        server.rule = rule
        after = {**first.extensions, "timeout": {"read": 60.0}}
        for extensions in (first.extensions, after):
            with pytest.raises(TimeoutError):
                way.do(client.send(httpx2.Request("POST", url, extensions=extensions)))
        # Uploads never went through aiohttp.
        upload = httpx2.Request("POST", f"{server.url}/upload/v1/files", extensions=after)
        assert way.do(client.send(upload)).is_success
        assert way.do(client.send(client.build_request("POST", url, timeout=60.0))).is_success


# --- who owns what ------------------------------------------------------------------------------


@both
def test_closing_the_client_closes_what_the_sdk_made(kind: Any) -> None:
    with Canned(rule) as server, Way(kind) as way:
        client = wrapped(server.url)
        asking = Asking(way, client)
        assert asking.say() == TEXT
        api = client._api_client
        ours: Any = way.pick(api._httpx_client, api._async_httpx_client)
        with way.within(asking.side):
            assert not ours.is_closed
        assert ours.is_closed
        assert ours.origin.is_closed
        with pytest.raises(RuntimeError, match="client has been closed"):
            asking.say()
        other: Any = way.pick(api._async_httpx_client, api._httpx_client)
        assert not other.is_closed


@both
def test_closing_the_client_leaves_an_http_client_of_ones_own_open(kind: Any) -> None:
    with Canned(rule) as server, Way(kind) as way:
        http = way.http()
        place = way.pick("httpx_client", "httpx_async_client")
        asking = Asking(way, wrapped(server.url, **{place: http}))
        assert asking.say() == TEXT
        with way.within(asking.side):
            pass
        assert not http.is_closed


def test_a_client_that_is_dropped_closes_what_the_sdk_made() -> None:
    client = wrapped("http://127.0.0.1:1")
    ours: Any = client._api_client._httpx_client
    origin = ours.origin
    del ours
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert origin.is_closed


@both
def test_wrapping_again_takes_the_new_listener_or_nothing(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way, wrapped(server.url) as client:
        api: Any = client._api_client
        before = api._httpx_client, api._async_httpx_client
        assert continuation.wrap(client) is client
        assert (api._httpx_client, api._async_httpx_client) == before
        assert way.wrap(client) is client
        for now, then in zip((api._httpx_client, api._async_httpx_client), before, strict=True):
            assert now is not then
            assert now.origin is then.origin
        assert Asking(way, client).say() == TEXT
        assert watcher.seen == [UNARY]


@both
def test_http_clients_of_ours_can_be_given_to_the_sdk(kind: Any, watcher: Watcher) -> None:
    with Canned(rule) as server, Way(kind) as way:
        sync, other = continuation.http_client(), continuation.async_http_client()
        client = bare(server.url, httpx_client=sync, httpx_async_client=other)
        assert continuation.wrap(client) is client
        assert client._api_client._httpx_client is sync
        asking = Asking(way, client)
        assert asking.say() == asking.stream() == TEXT
        assert watcher.seen == [UNARY, STREAM]
        way._made.append(way.pick(sync, other))
    with continuation.http_client() as sync, wrapped(server.url, httpx_client=sync) as client:
        assert client._api_client._httpx_client is sync
        assert isinstance(client._api_client._async_httpx_client, AsyncHealingClient)


# --- tracers ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("first", ["the tracer", "we"])
def test_a_patched_method_stays_patched_whoever_came_first(
    kind: Any, first: str, watcher: Watcher
) -> None:
    spans: list[str] = []
    with Canned(rule) as server, Way(kind) as way, bare(server.url) as client:
        asking = Asking(way, client)
        if first == "we":
            continuation.wrap(client)
        plain = asking.side.models.generate_content

        def traced(**options: Any) -> Any:
            spans.append("call")
            return plain(**options)

        asking.side.models.generate_content = traced
        if first == "the tracer":
            continuation.wrap(client)
        assert asking.say() == TEXT
        assert spans == ["call"]
        assert watcher.seen == [UNARY]
        assert not hasattr(plain, "__wrapped__")


# --- a class of ones own ------------------------------------------------------------------------


class Friendly(genai.Client):
    nickname = "mine"


def test_a_subclass_of_ones_own_is_served(watcher: Watcher) -> None:
    with Canned(rule) as server, Way("sync") as way:
        options = types.HttpOptions(base_url=server.url)
        client = continuation.wrap(Friendly(api_key="k", http_options=options))
        with client:
            assert client.nickname == "mine"
            assert Asking(way, client).say() == TEXT
            assert watcher.seen == [UNARY]
