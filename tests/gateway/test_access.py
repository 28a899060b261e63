"""Who may come in, and what who may not is told, in the shape of the caller's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateways import Raw, Served, ask, request, serving

from continuation.config import ConfigError, read
from continuation.gateway import app
from continuation.gateway.access import Access
from continuation.gateway.errors import GatewayError

MORE = """
[gateway]
token_env = "GATEWAY_TEST_TOKEN"
hosts = ["gateway.example"]
origins = ["http://page.example"]
[upstreams.paid]
base_url = "{url}/base"
dialect = "openai"
key_env = "GATEWAY_TEST_KEY"
headers = {{ x-team = "a" }}
"""
TOKEN = "x-continuation-token: secret/1"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Raw]:
    with Raw() as raw:
        yield raw


@pytest.fixture(scope="module")
def closed(upstream: Raw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that wants a token."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GATEWAY_TEST_TOKEN", "secret/1")
        environment.setenv("GATEWAY_TEST_KEY", "the-real-key")
        folder = tmp_path_factory.mktemp("gateway")
        with serving(folder, upstream.url, MORE.format(url=upstream.url)) as served:
            yield served


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def error(raw: bytes) -> Any:
    return json.loads(raw.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("line", "headers", "wanted"),
    [
        ("GET /openai/x HTTP/1.1", [TOKEN], 200),
        ("GET /t/secret%2F1/openai/x HTTP/1.1", [], 200),
        ("GET /openai/x HTTP/1.1", [], 401),
        ("GET /openai/x HTTP/1.1", ["x-continuation-token: secret/2"], 401),
        ("GET /t/secret/1/openai/x HTTP/1.1", [], 401),
        ("GET /t/%FF/openai/x HTTP/1.1", [], 401),
        ("GET /continuation/turns/x HTTP/1.1", [], 401),
        ("GET /livez HTTP/1.1", [], 200),
        ("GET /readyz HTTP/1.1", [], 200),
        ("GET /openai/x HTTP/1.1", [TOKEN, "origin: http://page.example"], 200),
        ("GET /openai/x HTTP/1.1", [TOKEN, "origin: http://evil.example"], 403),
        ("GET /openai/x HTTP/1.1", [TOKEN, "origin: null"], 403),
        ("GET /openai/x HTTP/1.1", [TOKEN, "sec-fetch-site: cross-site"], 403),
        ("GET /livez HTTP/1.1", ["origin: http://evil.example"], 403),
    ],
)
def test_who_may_come_in(
    closed: Served, upstream: Raw, line: str, headers: list[str], wanted: int
) -> None:
    before = len(upstream.seen)
    assert status(ask(closed.url, request(line, *headers))) == wanted
    sent = upstream.seen[before:]
    assert len(sent) == (wanted == 200 and "openai" in line)
    assert not any(b"secret" in data for data in sent), "the token was passed on"


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost:1", 200),
        ("[::1]:8787", 200),
        ("10.1.2.3", 200),
        ("gateway.example", 200),
        ("rebound.example", 403),
        ("localhost.evil.example", 403),
        ("evil.example@127.0.0.1", 403),
        ("127.0.0.1/x", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_name_that_is_not_known_may_be_a_web_pages(
    closed: Served, host: str, wanted: int
) -> None:
    raw = request("GET /openai/x HTTP/1.1", TOKEN).replace(b"127.0.0.1", host.encode())
    told = ask(closed.url, raw)
    assert status(told) == wanted
    if wanted == 403:
        helps = "add it to hosts" if host else "the header Host is missing; send it"
        assert helps in error(told)["error"]["message"]


def test_an_upstream_with_a_key_gets_that_and_not_the_callers(
    closed: Served, upstream: Raw
) -> None:
    line = "GET /paid/v1/x?key=mine&b=1 HTTP/1.1"
    ask(closed.url, request(line, TOKEN, "authorization: Bearer mine", "x-team: b"))
    head = upstream.seen[-1].decode().split("\r\n")
    assert head[0] == "GET /base/v1/x?b=1 HTTP/1.1"
    assert [h for h in head if h.startswith(("authorization", "x-team"))] == [
        "x-team: a",
        "authorization: Bearer the-real-key",
    ]


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("anthropic/v1/messages", ("error", "type")),
        ("openai/v1/responses", ("error", "type")),
        ("gemini/v1beta/models/m:generateContent", ("error", "status")),
        ("nowhere/x", ("error", "type")),
    ],
)
def test_an_error_of_ours_has_the_shape_of_the_callers_format(
    closed: Served, path: str, where: tuple[str, str]
) -> None:
    told = error(ask(closed.url, request(f"POST /{path} HTTP/1.1", "content-length: 0")))
    assert "x-continuation-token" in told["error"]["message"]
    assert told[where[0]][where[1]] in {
        "authentication_error",
        "invalid_request_error",
        "UNAUTHENTICATED",
    }


@pytest.mark.parametrize(
    ("line", "headers", "wanted", "remedy"),
    [
        ("GET /nowhere/x HTTP/1.1", [], 404, "/nowhere is no upstream: use one of /anthropic, "),
        ("GET /nowhere/x HTTP/1.1", [], 404, "or add [upstreams.nowhere]"),
        ("GET /favicon.ico HTTP/1.1", [], 404, "/openai, /gemini, /paid"),
        ("POST /v1/messages HTTP/1.1", [], 404, "/gemini, /paid, as in /anthropic/v1/messages"),
        ("POST / HTTP/1.1", [], 405, "use GET"),
        ("DELETE /continuation/turns/x HTTP/1.1", [], 405, "use GET"),
        ("GET /openai/v1/responses HTTP/1.1", ["upgrade: websocket"], 426, "use HTTP"),
        ("GET /openai/x HTTP/1.1", ["x-a: " + "a" * 70_000], 431, "send fewer"),
        ("GET /anthropic/x HTTP/1.1", ["x-a: " + "a" * 70_000], 431, "send fewer"),
        ("GET /continuation/turns/nope HTTP/1.1", [], 404, "10,000"),
        ("POST /anthropic/v1/messages HTTP/1.1", ["x-continuaton: off"], 400, "did you mean"),
        (
            "POST /anthropic/v1/messages HTTP/1.1",
            ["x-continuation: max_recoverys=1"],
            400,
            "did you",
        ),
        (
            "POST /openai/v1/responses HTTP/1.1",
            ["x-continuation: on_failure=raise"],
            400,
            "truncated",
        ),
    ],
)
def test_a_bad_request_is_told_what_helps(
    closed: Served, line: str, headers: list[str], wanted: int, remedy: str
) -> None:
    raw = ask(closed.url, request(line, TOKEN, "connection: upgrade", *headers))
    assert status(raw) == wanted
    told = error(raw)["error"]
    assert remedy in told["message"]
    assert told["type"] == "invalid_request_error"


def test_who_comes_from_elsewhere_needs_a_token() -> None:
    """The server says where a caller is; here we do."""
    headers = {b"host": b"127.0.0.1"}
    table = app().table
    Access(table, insecure=True).check("10.0.0.9", headers, b"")
    with pytest.raises(GatewayError, match="CONTINUATION_TOKEN"):
        Access(table, insecure=False).check("10.0.0.9", headers, b"")


# --- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gateway]\nping_secs = 1", "did you mean 'ping_seconds'"),
        ("[gateway]\nping_seconds = 0", "from 0.01 to 300"),
        ("[gateway]\nhosts = [1]", "must be a string"),
        ("gateway = 1", r"must be a table, \[gateway\]"),
        ("[upstreams.x]\ndialect = 'openai'", "base_url is missing"),
        ("[upstreams.x]\nbase_url = 'http://h'", "dialect is missing: choose one of 'anthropic'"),
        ("[upstreams.x]\nbase_url = 'h:1'\ndialect = 'openai'", "https://llm.example.com"),
        ("[upstreams.X]\nbase_url = 'http://h'", "the name is a path"),
        ("[upstreams.t]\nbase_url = 'http://h'", "the name is a path"),
        ("[upstreams.openai]\nvendor = 'nobody'", r"no \[vendors.nobody\]"),
        ("[upstreams.openai]\nheaders = { 'a b' = 'c' }", "is not a valid header"),
        ('[upstreams.openai]\nheaders = { a = "c\\r\\nd: e" }', "is not a valid header"),
        ("[upstreams.openai]\nkey_env = 'NOT_SET'", "set CONTINUATION_TOKEN"),
        ("[models.'gpt-*']\non_failure = 'raise'", "no program behind a gateway"),
    ],
)
def test_a_mistake_in_the_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises((ConfigError, TypeError), match=told):
        app(path)


def test_one_file_serves_library_and_gateway(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        "[defaults]\nmax_recoveries = 1\n[models.'gpt-*']\nclamp = false\n"
        "[upstreams.local]\nbase_url = 'http://127.0.0.1:1/v1/'\n"
        "dialect = 'openai'\nvendor = 'vllm'\n"
    )
    config, gateway = read(path), app(path)
    policies = [config.policy_for("m"), gateway.config.policy_for("m")]
    assert [(p.max_recoveries, p.clamp) for p in policies] == [(1, False), (1, True)]
    assert not gateway.config.policy_for("gpt-5").clamp
    assert [*gateway.table.upstreams] == ["anthropic", "openai", "gemini", "local"]
    assert gateway.table.upstreams["local"].base_url == "http://127.0.0.1:1/v1"
