"""Where we attach: every attempt goes out the way the caller's HTTP client sends."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import weakref
from collections.abc import Callable, Generator
from typing import Any
from unittest.mock import patch

import anthropic
import httpx2
import pytest
from support.servers import Relay
from support.shells import GO, LIMIT, LONG, NEW, Way, ask, both, create, last, stream, told

import continuation
from continuation.simulator import Reply, Simulator, Text

ASK_FOR = pytest.mark.parametrize("ask_for", [create, stream])


def wrapped(way: Way, sim: Simulator, **options: Any) -> Any:
    """Wrap an SDK client that sends through an HTTP client with these options."""
    return way.healing(sim.url, http_client=way.http(**options))


# --- proxies and transports ---------------------------------------------------------------------


def mount(way: Way, proxy: str) -> dict[str, Any]:
    transport = way.pick(httpx2.HTTPTransport, httpx2.AsyncHTTPTransport)
    return {"mounts": {"http://127.0.0.1": transport(proxy=proxy)}}


PROXIES: dict[str, Callable[[Way, str], dict[str, Any]]] = {
    "named": lambda way, proxy: {"proxy": proxy},
    "mounted": mount,
    "of the environment": lambda way, proxy: {"trust_env": True},
    "not trusted": lambda way, proxy: {"trust_env": False},
}


@both
@ASK_FOR
@pytest.mark.parametrize("name", PROXIES)
def test_every_attempt_goes_through_the_proxy(
    kind: Any, ask_for: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Simulator(LONG) as sim, Relay() as proxy, Way(kind) as way:
        if name in ("of the environment", "not trusted"):
            for variable in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.delenv(variable, raising=False)
            monkeypatch.setenv("http_proxy", proxy.url)
        assert ask_for(way, wrapped(way, sim, **PROXIES[name](way, proxy.url))) == LONG
        assert len(sim.requests) > 1
        passed = [sim.url + request.path for request in sim.requests]
        assert [p.path for p in proxy.seen] == ([] if name == "not trusted" else passed)


@both
def test_every_attempt_goes_through_a_transport_of_ones_own(kind: Any) -> None:
    sent: list[str] = []

    class Counting(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            sent.append(request.url.path)
            return super().handle_request(request)

    class AsyncCounting(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            sent.append(request.url.path)
            return await super().handle_async_request(request)

    with Simulator(LONG) as sim, Way(kind) as way:
        transport = way.pick(Counting, AsyncCounting)()
        assert create(way, wrapped(way, sim, transport=transport)) == LONG
        assert sent == [request.path for request in sim.requests]


@ASK_FOR
def test_a_client_over_aiohttp_is_served(ask_for: Any) -> None:
    async def http() -> Any:
        return anthropic.DefaultAioHttpClient()

    with Simulator(LONG) as sim, Way("async") as way:
        way._made.append(client := way.do(http()))
        assert ask_for(way, way.healing(sim.url, http_client=client)) == LONG


@both
def test_an_http_client_with_ways_of_its_own_keeps_them(kind: Any) -> None:
    class Own(httpx2.Client):
        region = "eu"

        def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
            request = super().build_request(*arguments, **options)
            request.headers["x-built"] = self.region
            return request

    class AsyncOwn(httpx2.AsyncClient):
        region = "eu"

        def build_request(self, *arguments: Any, **options: Any) -> httpx2.Request:
            request = super().build_request(*arguments, **options)
            request.headers["x-built"] = self.region
            return request

    with Simulator(LONG) as sim, Way(kind) as way:
        http = way.pick(Own, AsyncOwn)()
        way._made.append(http)
        client = way.healing(sim.url, http_client=http)
        assert client._client.region == "eu"
        assert create(way, client) == LONG
        assert {request.headers["x-built"] for request in sim.requests} == {"eu"}


@both
def test_a_send_that_was_patched_sends_each_attempt(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http, sent = way.http(), list[str]()
        plain = http.send

        def noted(request: httpx2.Request, **options: Any) -> Any:
            sent.append(request.url.path)
            return plain(request, **options)

        http.send = noted
        client = way.healing(sim.url, http_client=http)
        assert create(way, client) == LONG
        assert sent == [request.path for request in sim.requests]


def _of_a_generator(error: BaseException) -> BaseException:
    """Return the error that a generator raises in which `error` was raised."""

    def raising() -> Generator[None]:
        yield
        raise error

    raised: BaseException = error
    try:
        list(raising())
    except RuntimeError as other:
        raised = other
    return raised


@both
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/models"])
@pytest.mark.parametrize(
    "error",
    [StopIteration("own"), StopAsyncIteration("own"), _of_a_generator(StopIteration("own"))],
    ids=lambda error: type(error).__name__,
)
def test_the_error_of_a_clients_own_send_arrives_as_it_was(
    kind: Any, path: str, error: Exception
) -> None:
    if kind == "async" and isinstance(error, StopIteration):
        pytest.skip("no coroutine can raise it")

    class Own(httpx2.Client):
        def send(self, *_: Any, **__: Any) -> httpx2.Response:
            raise error

    class AsyncOwn(httpx2.AsyncClient):
        async def send(self, *_: Any, **__: Any) -> httpx2.Response:
            raise error

    with Way(kind) as way:
        way._made.append(http := way.pick(Own, AsyncOwn)())
        client = way.pick(continuation.http_client, continuation.async_http_client)(http)
        way._made.append(client)
        before = error.__cause__, error.__traceback__
        with pytest.raises(type(error)) as raised:
            way.do(client.post(f"http://localhost{path}", json=ask()))
        assert raised.value is error
        assert error.__cause__ is before[0]
        error.__traceback__ = before[1]


@both
def test_our_send_may_be_patched_for_a_while(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        client = way.healing(sim.url)
        with patch.object(client._client, "send", wraps=client._client.send) as seen:
            assert create(way, client) == LONG
        assert seen.call_count == 1
        assert create(way, client) == LONG
        assert seen.call_count == 1


@both
def test_settings_are_shared_and_what_is_patched_is_not(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = way.http()
        client = way.healing(sim.url, http_client=http)
        ours = client._client
        http.headers["x-theirs"] = "a"
        ours.headers["x-ours"] = "b"
        ours.max_redirects, http.timeout = 3, 7
        assert (http.max_redirects, ours.timeout) == (3, httpx2.Timeout(7))
        with (
            patch.object(http, "send", wraps=http.send) as theirs,
            patch.object(ours, "build_request", wraps=ours.build_request) as built,
        ):
            assert create(way, client) == LONG
        assert theirs.call_count == len(sim.requests) > built.call_count == 1
        assert {(r.headers["x-theirs"], r.headers["x-ours"]) for r in sim.posts} == {("a", "b")}


# --- auth, hooks, cookies, redirects ------------------------------------------------------------


class Signature(httpx2.Auth):
    """Signs each body. A header that was signed before would show in the signature."""

    requires_request_body = True

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        before = request.headers.get("x-signature", "")
        request.headers["x-signature"] = before + hashlib.sha256(request.content).hexdigest()
        yield request


class Challenge(Signature):
    """Signs only when told to, by the answer to the same request without a signature."""

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        response = yield request
        if response.status_code == 401:
            yield from super().auth_flow(request)


@both
@ASK_FOR
def test_auth_signs_each_attempt_over_its_own_body(kind: Any, ask_for: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        assert ask_for(way, wrapped(way, sim, auth=Signature())) == LONG
        assert len(sim.requests) > 1
        for request in sim.requests:
            assert request.headers["x-signature"] == hashlib.sha256(request.raw).hexdigest()


@both
def test_auth_that_answers_a_challenge_does_so_on_each_attempt(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        told_to = Reply(status=401)
        cut = Reply([Text(LONG[:500])], stop="max_tokens")
        sim.script([told_to, cut, told_to, Reply([Text(LONG)])])
        assert create(way, wrapped(way, sim, auth=Challenge())) == LONG
        signed = [post for post in sim.posts if "x-signature" in post.headers]
        assert signed == sim.posts[1::2]
        for request in signed:
            assert request.headers["x-signature"] == hashlib.sha256(request.raw).hexdigest()


@both
@ASK_FOR
@pytest.mark.parametrize(("reads", "gzip"), [(False, False), (True, False), (True, True)])
def test_event_hooks_run_once_for_each_request_and_may_read_the_body(
    kind: Any, ask_for: Any, reads: bool, gzip: bool
) -> None:
    requests: list[bytes] = []
    statuses: list[int] = []

    def before(request: httpx2.Request) -> None:
        requests.append(request.content)
        request.headers["x-hook"] = request.headers.get("x-hook", "") + "once"

    def after(response: httpx2.Response) -> None:
        statuses.append(response.status_code)
        if reads:
            response.read()

    async def abefore(request: httpx2.Request) -> None:
        before(request)

    async def aafter(response: httpx2.Response) -> None:
        statuses.append(response.status_code)
        if reads:
            await response.aread()

    with Simulator(LONG) as sim, Way(kind) as way:
        sim.script([Reply([Text(LONG[:900])], stop="max_tokens", gzip=gzip)])
        hooks = way.pick(
            {"request": [before], "response": [after]},
            {"request": [abefore], "response": [aafter]},
        )
        assert ask_for(way, wrapped(way, sim, event_hooks=hooks)) == LONG
        assert requests == [request.raw for request in sim.requests]
        assert statuses == [request.status for request in sim.requests]
        assert {request.headers["x-hook"] for request in sim.requests} == {"once"}


@both
def test_cookies_of_the_jar_go_along_as_they_are_at_the_time(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        cut = Reply([Text("x")], stop="max_tokens", headers={"set-cookie": "node=7; Path=/"})
        sim.script([cut, Reply([Text(LONG)]), cut, Reply([Text(LONG)])])
        client = wrapped(way, sim, cookies={"who": "me"})
        with continuation.override(remember_limit=False):
            assert create(way, client) == LONG
            # The call's own cookie goes before the jar's, on each attempt.
            assert create(way, client, extra_headers={"cookie": "a=b"}) == LONG
        sent = [set(post.headers["cookie"].split("; ")) for post in sim.posts]
        assert sent == [{"who=me"}, {"who=me", "node=7"}, {"a=b"}, {"a=b"}]


@both
def test_redirects_are_followed_on_each_attempt(kind: Any) -> None:
    with Simulator(LONG) as sim, Relay(sim.url) as host, Way(kind) as way:
        http = way.http(follow_redirects=True)
        client = way.healing(f"{host.url}/old", http_client=http)
        assert stream(way, client) == LONG
        assert [passed.path.startswith("/old") for passed in host.seen] == [True, False] * 3
        assert len(sim.posts) == 2


@both
def test_headers_of_the_http_client_and_a_prefix_hold_for_each_attempt(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = way.http(headers={"x-client": "1"}, params={"tenant": "t"})
        client = way.healing(f"{sim.url}/gateway/eu", http_client=http)
        http.headers["x-set-after-wrapping"] = "2"
        assert stream(way, client) == LONG
        assert {p.path for p in sim.posts} == {"/gateway/eu/v1/messages"}
        for request in sim.requests:
            assert request.headers["x-client"] == "1"
            assert request.headers["x-set-after-wrapping"] == "2"
            assert request.query == "tenant=t"


@both
def test_what_speaks_of_one_body_does_not_go_along_with_another(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        extra = {"idempotency-key": "i1", "content-digest": "sha-256=:x:", "x-other": "o"}
        assert create(way, way.healing(sim.url), extra_headers=extra) == LONG
        first, *later = sim.posts
        assert {name: first.headers[name] for name in extra} == extra
        for post in later:
            assert [name for name in extra if name in post.headers] == ["x-other"]
            assert int(post.headers["content-length"]) == len(post.raw)


# --- who shares the HTTP client -----------------------------------------------------------------


@both
def test_bystanders_on_a_shared_http_client_are_not_healed(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = way.http()
        client = way.healing(sim.url, http_client=http)
        bystander = way.bare(sim.url, http_client=http)
        assert create(way, client) == LONG
        assert len(create(way, bystander)) == 4 * LIMIT
        way.do(client.close())
        assert not http.is_closed
        assert len(create(way, bystander)) == 4 * LIMIT


@both
@ASK_FOR
def test_one_connection_is_enough_turn_after_turn(kind: Any, ask_for: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        limits = httpx2.Limits(max_connections=1)
        client = wrapped(way, sim, limits=limits, timeout=httpx2.Timeout(5.0, pool=0.5))
        for _ in range(3):
            assert ask_for(way, client) == LONG
            sim.script([Reply([Text("Short.")])])
            assert ask_for(way, client) == "Short."
        for events in (1, 3, 8, 20):
            half = way.do(client.messages.create(**ask(), stream=True))
            for _, _event in zip(range(events), way.each(half), strict=False):
                pass
            way.do(half.close())
        assert ask_for(way, client) == LONG
        pool = client._client.origin._transport._pool
        assert not pool._requests
        assert all(connection.is_idle() for connection in pool.connections)


# --- who lives longer ---------------------------------------------------------------------------


@both
def test_the_wrapped_client_outlives_the_original(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        way._made.clear()
        client = way.wrap(bare)
        http = bare._client
        gone = weakref.ref(bare)
        events = way.do(client.messages.create(**ask(), stream=True))
        first = next(way.each(events))
        del bare
        gc.collect()
        assert gone() is None
        assert told([first, *way.each(events)]) == LONG
        assert create(way, client) == LONG
        way._made.append(http)


@both
def test_the_original_outlives_the_wrapped_client_and_so_does_a_stream(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        client = way.wrap(bare)
        gone = weakref.ref(client._client)
        events = way.do(client.messages.create(**ask(), stream=True))
        iterator = way.each(events)
        first = next(iterator)
        del client
        gc.collect()
        assert len(create(way, bare)) == 4 * LIMIT
        assert told([first, *iterator]) == LONG
        del events, iterator
        gc.collect()
        assert gone() is None
        assert len(create(way, bare)) == 4 * LIMIT


def test_one_client_serves_two_event_loops_one_after_the_other() -> None:
    async def turn(client: Any) -> str:
        events = await client.messages.create(**ask(), stream=True)
        return told([event async for event in events])

    with Simulator(LONG) as sim:
        limits = httpx2.Limits(max_keepalive_connections=0)
        http = httpx2.AsyncClient(limits=limits)
        bare = anthropic.AsyncAnthropic(base_url=sim.url, api_key="k", http_client=http)
        client = continuation.wrap(bare)
        assert asyncio.run(turn(client)) == LONG
        assert asyncio.run(turn(client)) == LONG
        assert len(asyncio.run(turn(bare))) < len(LONG)
        asyncio.run(http.aclose())


# --- HTTP clients of ours -----------------------------------------------------------------------

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
BODY = {"model": NEW, "max_tokens": LIMIT, "messages": GO}


def ours(way: Way, client: Any = None, **options: Any) -> Any:
    make = way.pick(continuation.http_client, continuation.async_http_client)
    made = make(client, **options)
    way._made.append(made)
    return made


@both
def test_an_http_client_of_ours_heals_by_itself(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = ours(way)
        url = f"{sim.url}/v1/messages"
        answer = way.do(http.post(url, headers=HEADERS, json=BODY))
        assert answer.json()["content"][0]["text"] == LONG
        assert answer.json()["stop_reason"] == "end_turn"
        call = http.stream("POST", url, headers=HEADERS, json={**BODY, "stream": True})
        with way.within(call) as response:
            lines = list(way.each(way.pick(response.iter_lines, response.aiter_lines)()))
        assert lines.count("event: message_stop") == 1
        with way.within(
            http.sse(url, method="POST", headers=HEADERS, json={**BODY, "stream": True})
        ) as source:
            names = [event.event for event in way.each(source)]
        assert names[0] == "message_start"
        assert names[-1] == "message_stop"


@both
def test_an_http_client_of_ours_serves_an_sdk_and_is_not_wrapped_again(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = ours(way)
        client = way.bare(sim.url, http_client=http)
        assert create(way, client) == LONG
        assert len(sim.posts) == 2
        assert continuation.wrap(client) is client
        assert way.pick(continuation.http_client, continuation.async_http_client)(http) is http
        sim.reset()
        again = ours(way, http, on_event=way._told)
        assert create(way, way.bare(sim.url, http_client=again)) == LONG
        assert len(way.reports) == 1


@both
def test_ours_closes_the_client_it_made_and_no_other(kind: Any) -> None:
    with Way(kind) as way:
        for given in (None, way.http()):
            http = ours(way, given)
            origin = http.origin
            with way.within(http):
                assert not origin.is_closed
            assert http.is_closed
            assert origin.is_closed is (given is None)
            with pytest.raises(RuntimeError, match="closed"):
                way.do(http.get("http://127.0.0.1:1/"))
            with pytest.raises(RuntimeError, match="reopen"), way.within(http):
                pass


@both
def test_a_request_signed_over_its_body_passes_as_it_is(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        signed = {"authorization": "AWS4-HMAC-SHA256 Credential=a/b/c", **HEADERS}
        answer = way.do(ours(way).post(f"{sim.url}/v1/messages", headers=signed, json=BODY))
        assert answer.json()["stop_reason"] == "max_tokens"
        assert len(sim.requests) == 1
        assert last(sim).headers["authorization"].startswith("AWS4-")


@both
def test_other_traffic_passes_as_it_is(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        http = ours(way)
        models = way.do(http.get(f"{sim.url}/v1/models/{NEW}", headers=HEADERS))
        assert models.json()["id"] == NEW
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        asked = way.do(http.get(f"{sim.url}/v1/messages", headers={**HEADERS, **upgrade}))
        assert asked.status_code == 404
        assert sim.requests[-1].headers["upgrade"] == "websocket"
        client = way.bare(sim.url, http_client=http)
        counted = way.do(client.messages.count_tokens(model=NEW, messages=GO))
        assert counted.input_tokens > 0
        assert len(sim.requests) == 3


@both
def test_a_body_that_cannot_be_read_twice_passes_as_it_is(kind: Any) -> None:
    def pieces() -> Any:
        yield json.dumps(BODY).encode()

    async def apieces() -> Any:
        yield json.dumps(BODY).encode()

    with Simulator(LONG) as sim, Way(kind) as way:
        content = way.pick(pieces, apieces)()
        url = f"{sim.url}/v1/messages"
        headers = {**HEADERS, "content-type": "application/json"}
        answer = way.do(ours(way).post(url, headers=headers, content=content))
        assert answer.json()["stop_reason"] == "max_tokens"
        assert len(sim.requests) == 1


@both
def test_what_is_no_http_client_is_refused(kind: Any) -> None:
    with Way(kind) as way:
        make = way.pick(continuation.http_client, continuation.async_http_client)
        other = Way("async" if kind == "sync" else "sync")
        with other:
            for wrong in ("client", 7, way.bare("http://127.0.0.1:1"), other.http()):
                with pytest.raises(TypeError, match="client must be an httpx2"):
                    make(wrong)
