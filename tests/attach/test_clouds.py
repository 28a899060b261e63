"""Clients of clouds: each attempt is signed, or given a token, by the SDK's own hook."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import google.auth.credentials
import httpx2
import openai
import pytest
from anthropic.lib.bedrock import _client as bedrock_client
from botocore import auth, credentials  # type: ignore[import-untyped]
from google import genai
from google.genai import _api_client, types
from openai.auth import WorkloadIdentityAuth, x509_workload_identity
from openai.auth._x509 import AsyncX509WorkloadIdentityAuth, SyncX509WorkloadIdentityAuth
from openai.providers.bedrock import bedrock
from support.sdks.turn import quietly
from support.servers import Answer, Canned, Relay
from support.shells import GO, LIMIT, LONG, NEW, Way, ask, both, create, stream

import continuation
from continuation.simulator import Scenario, Simulator

KEY, SECRET = "AKIDEXAMPLE", "the/secret+of.the.key"
KEYS = {KEY: SECRET}
STATIC: dict[str, Any] = {"aws_access_key": KEY, "aws_secret_key": SECRET}
REGION: dict[str, Any] = {"aws_region": "eu-west-3"}
OPENAI: dict[str, Any] = {"region": "eu-west-3", "access_key_id": KEY, "secret_access_key": SECRET}
PROFILE = "us.anthropic.claude-opus-5-v1:0"
GPT = "gpt-5.4"
X509 = x509_workload_identity(identity_provider_id="i", service_account_id="s")
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Minting(google.auth.credentials.Credentials):
    """Credentials whose token has always just run out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.minted = 0

    def refresh(self, request: object) -> None:
        self.minted += 1
        self.token = f"minted-{self.minted}"
        self.expiry = LONG_AGO.replace(tzinfo=None)


class Tokens:
    """A provider of tokens, another one each time; from `until` on it has none left."""

    def __init__(self, until: int = 99) -> None:
        self.given, self.until = 0, until

    def __call__(self) -> str:
        self.given += 1
        if self.given > self.until:
            message = "no more secret-tokens"
            raise RuntimeError(message)
        return f"secret-token-{self.given}"

    async def later(self) -> str:
        return self()


KUBERNETES: Any = {
    "provider": {"token_type": "jwt", "get_token": Tokens()},
    "identity_provider_id": "i",
    "service_account_id": "s",
}


def exchanged(identity: WorkloadIdentityAuth) -> dict[str, Any]:
    return {"access_token": identity._get_subject_token(), "expires_in": 3600}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "ANTHROPIC_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(_api_client, "has_aiohttp", False)
    # A token is always about to run out, and no real server is asked for it.
    monkeypatch.setattr(WorkloadIdentityAuth, "_fetch_token_from_exchange", exchanged)
    monkeypatch.setattr(WorkloadIdentityAuth, "_needs_refresh", lambda _: True)
    for kind in (SyncX509WorkloadIdentityAuth, AsyncX509WorkloadIdentityAuth):
        monkeypatch.setattr(kind, "_needs_refresh", lambda _: True)


# --- the clients, and one way to ask each of them -------------------------------------------------

Make = Callable[[Way, str], Any]


class Elsewhere(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """The way to a private network: brings to `url` what is meant for any other host."""

    def __init__(self, url: str) -> None:
        self._url, self._sync = url, httpx2.HTTPTransport()
        self._async = httpx2.AsyncHTTPTransport()
        self.hosts: list[str] = []

    def _moved(self, request: httpx2.Request) -> httpx2.Request | None:
        """Return what to send; `None`: the client exchanges a certificate for a token."""
        self.hosts.append(request.url.host)
        if request.url.path == "/oauth/token":
            return None
        url = self._url + request.url.raw_path.decode()
        moved = httpx2.Request(request.method, url, headers=request.headers, stream=request.stream)
        moved.extensions = request.extensions
        return moved

    def _exchanged(self) -> httpx2.Response:
        token = f"secret-token-{len(self.hosts)}"
        told = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        return httpx2.Response(200, json=told)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        moved = self._moved(request)
        return self._exchanged() if moved is None else self._sync.handle_request(moved)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        moved = self._moved(request)
        return self._exchanged() if moved is None else await self._async.handle_async_request(moved)

    def close(self) -> None:
        self._sync.close()

    async def aclose(self) -> None:
        await self._async.aclose()


def of_anthropic(name: str, **options: Any) -> Make:
    def make(way: Way, url: str) -> Any:
        kind = getattr(anthropic, way.pick(name, f"Async{name}"))
        given = {key: value() if callable(value) else value for key, value in options.items()}
        return kind(base_url=url, max_retries=0, **given)

    return make


def of_openai(name: str, prefix: str = "/openai/v1", **options: Any) -> Make:
    def make(way: Way, url: str) -> Any:
        kind = getattr(openai, way.pick(name, f"Async{name}"))
        tokens = Tokens()
        given = {
            key: way.pick(tokens, tokens.later) if value is Tokens else value
            for key, value in options.items()
        }
        where = "azure_endpoint" if name == "AzureOpenAI" else "base_url"
        if "provider" in given:
            given["provider"] = bedrock(endpoint="mantle", base_url=url + prefix, **OPENAI)
        elif given.get("workload_identity") is X509:
            given["http_client"] = way.http(transport=Elsewhere(url))
        else:
            given[where] = url + prefix
        return kind(max_retries=0, **given)

    return make


def on_vertex(way: Way, url: str) -> Any:
    http = types.HttpOptions(base_url=url)
    place: dict[str, Any] = {"vertexai": True, "project": "P", "location": "europe-west4"}
    return genai.Client(**place, credentials=Minting(), http_options=http)


def express(way: Way, url: str) -> Any:
    http = types.HttpOptions(base_url=url)
    return genai.Client(vertexai=True, api_key="key", http_options=http)


CLOUD: dict[str, tuple[Make, str]] = {
    "AnthropicBedrock": (of_anthropic("AnthropicBedrock", **STATIC, **REGION), PROFILE),
    "AnthropicBedrock, a token": (of_anthropic("AnthropicBedrock", api_key="k", **REGION), PROFILE),
    "AnthropicBedrockMantle": (of_anthropic("AnthropicBedrockMantle", **STATIC, **REGION), NEW),
    "AnthropicAWS": (of_anthropic("AnthropicAWS", **STATIC, **REGION, workspace_id="w"), NEW),
    "AnthropicGoogleCloud": (of_anthropic("AnthropicGoogleCloud", credentials=Minting), NEW),
    "AnthropicVertex": (
        of_anthropic("AnthropicVertex", project_id="P", region="L", credentials=Minting),
        NEW,
    ),
    "AnthropicFoundry": (of_anthropic("AnthropicFoundry", azure_ad_token_provider=Tokens), NEW),
    "AzureOpenAI": (
        of_openai("AzureOpenAI", "", azure_ad_token_provider=Tokens, api_version="2026-02-01"),
        GPT,
    ),
    "OpenAI, Azure v1": (of_openai("OpenAI", api_key=Tokens), GPT),
    "BedrockOpenAI": (
        of_openai("BedrockOpenAI", **REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET),
        GPT,
    ),
    "OpenAI, Bedrock": (of_openai("OpenAI", provider=...), GPT),
    "OpenAI, workload identity": (of_openai("OpenAI", workload_identity=KUBERNETES), GPT),
    "OpenAI, X.509 identity": (of_openai("OpenAI", workload_identity=X509), GPT),
    "Gemini on Vertex": (on_vertex, "gemini-3.1-pro"),
    "Gemini, express": (express, "gemini-3.1-pro"),
}
FIXED = {"AnthropicBedrock, a token", "Gemini, express"}
"""They say the same in each request."""


def opened(name: str, way: Way, url: str) -> Any:
    """Make a client, which is closed when `way` is."""
    client = CLOUD[name][0](way, url)
    way._made.append(way.pick(client, getattr(client, "aio", client)))
    return client


def said(way: Way, client: Any, model: str, streamed: bool) -> str:
    """Ask for an answer that is going to be cut, in the words of the client's SDK."""
    if isinstance(client, genai.Client):
        models: Any = way.pick(client, client.aio).models
        config = types.GenerateContentConfig(max_output_tokens=LIMIT)
        how: dict[str, Any] = {"model": model, "contents": "recite", "config": config}
        if streamed:
            return "".join(
                c.text or "" for c in way.each(way.do(models.generate_content_stream(**how)))
            )
        return str(way.do(models.generate_content(**how)).text)
    if hasattr(client, "chat"):
        body: dict[str, Any] = {"model": model, "max_completion_tokens": LIMIT, "messages": GO}
        if not streamed:
            return str(way.do(client.chat.completions.create(**body)).choices[0].message.content)
        chunks = list(way.each(way.do(client.chat.completions.create(**body, stream=True))))
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    return (stream if streamed else create)(way, client, model=model)


@both
@pytest.mark.parametrize("name", CLOUD)
def test_every_attempt_of_a_clouds_client_is_signed_for_itself(kind: Any, name: str) -> None:
    model = CLOUD[name][1]
    with Simulator(LONG, keys=KEYS) as sim, Way(kind) as way, quietly():
        client = way.wrap(opened(name, way, sim.url), remember_limit=False)
        for streamed in (False, True):
            assert said(way, client, model, streamed) == LONG
        assert [report.outcome for report in way.reports] == ["healed", "healed"]
        sent = [post.headers.get("authorization") for post in sim.posts]
        assert name in FIXED or len(set(sent)) == len(sent) == 4
        assert {post.status for post in sim.posts} == {200}
        told = "".join(f"{report}{report.as_dict()}" for report in way.reports)
        assert not any(word in told for word in (SECRET, KEY, "minted", "secret-token"))


@both
@pytest.mark.parametrize("name", CLOUD)
def test_a_remembered_limit_is_signed_for_as_well(kind: Any, name: str) -> None:
    """A body that begins as a stream has another path in some clouds."""
    model = CLOUD[name][1]
    with Simulator(LONG, keys=KEYS) as sim, Way(kind) as way, quietly():
        client = way.wrap(opened(name, way, sim.url))
        for streamed in (False, False, True):
            assert said(way, client, model, streamed) == LONG
        assert {post.status for post in sim.posts} == {200}
        known = sum(report.outcome == "complete" for report in way.reports)
        # A credential that is another one in each request is nobody whom we know.
        assert known == 2 or "AWS4" not in str(sim.posts[0].headers)
        assert len(sim.posts) == 6 - known


@both
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", [name for name in CLOUD if name.startswith("AnthropicBedrock")])
def test_an_uncut_answer_is_sent_and_given_as_without_us(
    kind: Any, name: str, streamed: bool
) -> None:
    with Simulator("A short answer.", keys=KEYS) as sim, Way(kind) as way:
        bare = opened(name, way, sim.url)
        for client in (bare, way.wrap(bare)):
            assert said(way, client, CLOUD[name][1], streamed) == "A short answer."
        theirs, ours = sim.posts
        assert (theirs.raw, theirs.path) == (ours.raw, ours.path)
        assert theirs.headers.keys() == ours.headers.keys()
        assert way.reports[0].outcome == "complete"


@both
@pytest.mark.parametrize("streamed", [False, True])
def test_an_option_of_a_copy_and_a_header_of_ours_are_signed_right(
    kind: Any, streamed: bool
) -> None:
    """What says what is to be healed does not leave, so it must not be signed over."""
    with Simulator(LONG, keys={KEY: SECRET, "OTHER": "other"}) as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        other = client.with_options(aws_access_key="OTHER", aws_secret_key="other")
        ours = {"x-continuation": "max_recoveries=1", "x-mine": "a   b"}
        for each in (client, other.with_options(timeout=30)):
            ask_for = stream if streamed else create
            assert ask_for(way, each, model=PROFILE, extra_headers=ours) == LONG
        keys = [post.headers["authorization"].split("=")[1].split("/")[0] for post in sim.posts]
        assert keys == [KEY, KEY, "OTHER", "OTHER"][: len(keys)]
        assert not any("x-continuation" in post.headers for post in sim.posts)


@both
@pytest.mark.parametrize("base", ["Anthropic", "OpenAI"])
def test_a_hook_of_ones_own_prepares_each_attempt(kind: Any, base: str) -> None:
    """It signs as such hooks do: what is there already is refused."""

    def sign(_: object, request: Any) -> None:
        assert "x-signature" not in request.headers
        request.headers["x-signature"] = hashlib.sha256(request.content).hexdigest()

    async def later(_: object, request: Any) -> None:
        sign(_, request)

    with Simulator(LONG) as sim, Way(kind) as way:
        parent = getattr(
            anthropic if base == "Anthropic" else openai, way.pick(base, f"Async{base}")
        )
        own = type("Own", (parent,), {"_prepare_request": way.pick(sign, later)})
        bare = own(base_url=sim.url + ("" if base == "Anthropic" else "/v1"), api_key="k")
        way._made.append(bare)
        assert said(way, way.wrap(bare), NEW if base == "Anthropic" else GPT, True) == LONG
        sent = [post.headers["x-signature"] for post in sim.posts]
        assert sent == [hashlib.sha256(post.raw).hexdigest() for post in sim.posts]
        assert len(sent) == 2


@pytest.mark.parametrize("base", ["Anthropic", "OpenAI"])
@pytest.mark.parametrize("hook", ["_prepare_options", "_prepare_request"])
def test_the_error_of_a_hook_of_ones_own_arrives_as_it_was(base: str, hook: str) -> None:
    error = StopIteration("own")

    def refuse(*_: object) -> None:
        raise error

    with Way("sync") as way:
        parent = getattr(anthropic if base == "Anthropic" else openai, base)
        bare = type("Own", (parent,), {hook: refuse})(base_url="http://localhost", api_key="k")
        way._made.append(bare)
        with pytest.raises(StopIteration) as raised:
            said(way, way.wrap(bare), NEW if base == "Anthropic" else GPT, True)
        assert raised.value is error


# --- what is no answer of a model's, and where it goes --------------------------------------------

BATCH: dict[str, Any] = {"requests": [{"custom_id": "1", "params": ask()}]}
ASIDE: dict[str, Callable[[Any], Any]] = {
    "messages.count_tokens": lambda it: it(model=NEW, messages=GO),
    "messages.batches.create": lambda it: it(**BATCH),
    "beta.messages.count_tokens": lambda it: it(model=NEW, messages=GO),
    "beta.messages.batches.create": lambda it: it(**BATCH),
    "beta.files.list": lambda it: it(),
    "beta.files.upload": lambda it: it(file=("name", b"content")),
    "models.list": lambda it: it(),
    "models.count_tokens": lambda it: it(model="gemini-3.1-pro", contents="recite"),
    "files.list": lambda it: it(),
    "files.create": lambda it: it(file=("name", b"content"), purpose="batch"),
    "batches.create": lambda it: (
        it(input_file_id="f", endpoint="/v1/chat/completions", completion_window="24h")
        if "openai" in type(it.__self__).__module__
        else it(
            model="gemini-3.1-pro", src="gs://from", config={"dest": "gs://to", "display_name": "b"}
        )
    ),
}


def came(way: Way, client: Any, endpoint: str) -> str:
    """Call a method of a client; return what came of it."""
    method = way.pick(client, getattr(client, "aio", client))
    try:
        for part in endpoint.split("."):
            method = getattr(method, part)
        return re.sub(" at 0x[0-9a-f]+", "", str(way.do(ASIDE[endpoint](method))))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CLOUD)
def test_counts_batches_and_files_pass_untouched(kind: Any, name: str) -> None:
    """What an SDK does not offer on a cloud, it refuses as it does without us."""
    with Canned(lambda _: Answer({"id": "b", "input_tokens": 1})) as server, Way(kind) as way:
        bare = opened(name, way, server.url)
        before = [came(way, bare, endpoint) for endpoint in ASIDE]
        theirs = list(server.asked)
        client = way.wrap(bare)
        assert [came(way, client, endpoint) for endpoint in ASIDE] == before
        ours = server.asked[len(theirs) :]
        assert theirs or name.startswith("AnthropicBedrock")
        for one, other in zip(theirs, ours, strict=True):
            assert (one.method, one.path, one.body) == (other.method, other.path, other.body)
            assert one.headers.keys() == other.headers.keys()
        assert way.reports == []


PLACES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bedrock-runtime.eu-west-3.amazonaws.com": ("AnthropicBedrock", PROFILE, {**STATIC, **REGION}),
    "vpce-0a.bedrock-runtime.eu-west-3.vpce.amazonaws.com": (
        "AnthropicBedrock",
        PROFILE,
        {**STATIC, **REGION},
    ),
    "bedrock-mantle.eu-west-3.api.aws": ("AnthropicBedrockMantle", NEW, {**STATIC, **REGION}),
    "aws-external-anthropic.eu-west-3.api.aws": (
        "AnthropicAWS",
        NEW,
        {**STATIC, **REGION, "workspace_id": "w"},
    ),
    "europe-west4-aiplatform.googleapis.com": (
        "AnthropicVertex",
        NEW,
        {"project_id": "P", "region": "europe-west4", "access_token": "t"},
    ),
    "mine.services.ai.azure.com": ("AnthropicFoundry", NEW, {"resource": "mine", "api_key": "k"}),
    "mine.openai.azure.com": ("AzureOpenAI", GPT, {"api_key": "k", "api_version": "2026-02-01"}),
    "mine.privatelink.openai.azure.com": (
        "AzureOpenAI",
        GPT,
        {"api_key": "k", "api_version": "2026-02-01"},
    ),
}


@both
@pytest.mark.parametrize("host", PLACES)
def test_regional_and_private_hosts_are_healed_where_they_are(kind: Any, host: str) -> None:
    name, model, options = PLACES[host]
    sdk = openai if name.endswith("OpenAI") else anthropic
    if "vpce" in host:
        options = {**options, "base_url": f"https://{host}"}
    if sdk is openai:
        options = {**options, "azure_endpoint": f"https://{host}"}
    with Simulator(LONG, keys=KEYS) as sim, Way(kind) as way:
        network = Elsewhere(sim.url)
        make = getattr(sdk, way.pick(name, f"Async{name}"))
        bare = make(http_client=way.http(transport=network), max_retries=0, **options)
        assert said(way, way.wrap(bare), model, True) == LONG
        assert [report.outcome for report in way.reports] == ["healed"]
        assert set(network.hosts) == {host}


# --- a later attempt that cannot be signed, or is refused -----------------------------------------


@both
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["AnthropicBedrock", "AnthropicAWS", "BedrockOpenAI"])
def test_a_refused_signature_never_costs_the_answer_in_hand(
    kind: Any, name: str, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Simulator(LONG, keys=KEYS) as sim, Way(kind) as way:

        def revoke(event: continuation.Event) -> None:
            way._told(event)
            sim.keys = {"ANOTHER": "key"}

        client = continuation.wrap(opened(name, way, sim.url), on_event=revoke)
        caplog.set_level(logging.DEBUG, "continuation")
        text = said(way, client, CLOUD[name][1], streamed)
        (report,) = way.reports
        assert (report.outcome, LONG.startswith(text)) == ("partial", True)
        assert len(text) > LIMIT
        assert "403" in str(report)
        leaked = [str(report), json.dumps(report.as_dict()), caplog.text]
        assert not any(word in line for word in (SECRET, KEY, "Signature") for line in leaked)


@both
@pytest.mark.parametrize("streamed", [False, True])
def test_a_token_that_cannot_be_had_any_more_costs_no_answer(
    kind: Any, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "continuation")
    with Simulator(LONG) as sim, Way(kind) as way:
        tokens = Tokens(until=1)
        make = way.pick(openai.AzureOpenAI, openai.AsyncAzureOpenAI)
        provider: Any = way.pick(tokens, tokens.later)
        bare = make(azure_endpoint=sim.url, azure_ad_token_provider=provider, api_version="v")
        way._made.append(bare)
        text = said(way, way.wrap(bare, max_attempts=2), GPT, streamed)
        assert LONG.startswith(text)
        assert len(text) > LIMIT
        assert [report.outcome for report in way.reports] == ["partial"]
        assert "secret-token" not in caplog.text + str(way.reports[0])


@both
def test_a_first_attempt_whose_clock_is_wrong_fails_as_without_us(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: LONG_AGO)
    with Simulator(LONG, keys=KEYS) as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        with pytest.raises(anthropic.PermissionDeniedError, match="Signature expired"):
            create(way, client, model=PROFILE)
        assert len(sim.posts) <= 1


@both
def test_keys_that_run_out_in_mid_turn_are_replaced_by_the_sdks_own_chain(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile's process gives another key each time; the first is good for an hour."""
    kind_of, passed = credentials.RefreshableCredentials, [0]
    left = kind_of._seconds_remaining
    monkeypatch.setattr(kind_of, "_seconds_remaining", lambda self: left(self) - passed[0])
    hour = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    told = {
        "Version": 1,
        "AccessKeyId": "KEY$n",
        "SecretAccessKey": "s$n",
        "SessionToken": "session-$n",
        "Expiration": "$until",
    }
    asked, script = tmp_path / "asked", tmp_path / "keys.sh"
    count = f'echo x >> {asked}\nn=$(wc -l < {asked} | tr -d " ")\n'
    count += f"until={hour.isoformat()}\n[ $n -gt 1 ] && until=2100-01-01T00:00:00Z\n"
    script.write_text(f"{count}cat << END\n{json.dumps(told)}\nEND\n")
    config = tmp_path / "config"
    config.write_text(f"[profile {kind}]\ncredential_process = /bin/sh {script}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    keys = {f"KEY{n}": f"s{n}" for n in range(1, 30)}
    with Simulator(LONG, keys=keys) as sim, Way(kind) as way:
        make = of_anthropic("AnthropicBedrock", aws_profile=kind, **REGION)

        def run_out(event: continuation.Event) -> None:
            way._told(event)
            passed[0] = 59 * 60

        bare = make(way, sim.url)
        way._made.append(bare)
        client = continuation.wrap(bare, on_event=run_out)
        assert stream(way, client, model=PROFILE) == LONG
        tokens = [post.headers["x-amz-security-token"] for post in sim.posts]
        assert tokens == ["session-1", "session-2"]
        assert "session" not in str(way.reports[0].as_dict())


# --- event streams through the SDK ----------------------------------------------------------------


@both
@pytest.mark.parametrize(
    "faults",
    [
        "manner=anchor, ceiling=600",
        "manner=echo:40, ceiling=600",
        "drop=1:9",
        pytest.param("error_event=1:9", marks=pytest.mark.slow),
    ],
)
def test_a_cut_event_stream_comes_back_whole(kind: Any, faults: str) -> None:
    """The SDK's decoder, which checks each CRC, takes all that we deliver."""
    with (
        Simulator(LONG, Scenario().but(faults), keys=KEYS) as sim,
        Way(kind) as way,
    ):
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        with way.within(client.messages.stream(**ask(model=PROFILE))) as helper:
            assert "".join(way.each(helper.text_stream)) == LONG
            assert way.do(helper.get_final_message()).stop_reason == "end_turn"
        assert way.reports[0].outcome == "healed"


def test_an_error_of_bedrocks_that_cannot_be_healed_is_the_callers() -> None:
    with Simulator(LONG, Scenario().but("error_event=1:0"), keys=KEYS) as sim:
        way = Way("sync")
        client = way.wrap(opened("AnthropicBedrock", way, sim.url), max_drop_recoveries=0)
        with pytest.raises(anthropic.APIStatusError, match="serviceUnavailableException"):
            stream(way, client, model=PROFILE)


@both
def test_a_ceiling_that_bedrock_names_is_learned(kind: Any) -> None:
    scenario = Scenario().but("ceiling=5000")
    with Simulator(LONG, scenario, keys=KEYS) as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        assert create(way, client, model=PROFILE) == LONG
        assert [post.status for post in sim.posts] == [200, 400, 200]
        assert [(post.body or {})["max_tokens"] for post in sim.posts][2] == 5000


@both
def test_a_cut_call_over_an_event_stream_is_healed(kind: Any) -> None:
    from continuation.testing import simulate

    with simulate("cut-call") as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        tool = {"name": "write", "input_schema": {"type": "object"}}
        with way.within(client.messages.stream(**ask(model=PROFILE, tools=[tool]))) as helper:
            message = way.do(helper.get_final_message())
        assert [report.outcome for report in way.reports] == ["healed"]
        assert message.content[-1].input["content"] == sim.answer


@both
@pytest.mark.parametrize("streamed", [False, True])
def test_a_history_that_bedrock_refuses_is_repaired(kind: Any, streamed: bool) -> None:
    """It is refused before the stream begins, by a `ValidationException`."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}}
    killed = [*GO, {"role": "assistant", "content": [call]}, *GO]
    tools = [{"name": "write", "input_schema": {"type": "object"}}]
    with Simulator("A short answer.", keys=KEYS) as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        how = stream if streamed else create
        assert how(way, client, model=PROFILE, messages=killed, tools=tools) == "A short answer."
        assert [post.status for post in sim.posts] == [400, 200]
        assert way.reports[0].repairs[0].what == "synthesize_result"


@both
def test_through_a_proxy_signatures_hold(kind: Any) -> None:
    with Simulator(LONG, keys=KEYS) as sim, Relay() as proxy, Way(kind) as way:
        make = getattr(anthropic, way.pick("AnthropicBedrock", "AsyncAnthropicBedrock"))
        http = way.http(proxy=proxy.url)
        bare = make(base_url=sim.url, http_client=http, **STATIC, **REGION)
        assert stream(way, continuation.wrap(bare), model=PROFILE) == LONG
        assert len(proxy.seen) == 2


@pytest.mark.slow
@both
def test_a_body_of_20_mb_is_signed_once_per_attempt(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[int] = []
    sign: Any = vars(bedrock_client)["get_auth_headers"]

    def counted(**given: Any) -> Any:
        signed.append(len(given["data"]))
        return sign(**given)

    monkeypatch.setattr(bedrock_client, "get_auth_headers", counted)
    with Simulator(LONG, Scenario().but("any_model=true"), keys=KEYS) as sim, Way(kind) as way:
        client = way.wrap(opened("AnthropicBedrock", way, sim.url))
        long = [{"role": "user", "content": "x" * 20_000_000}]
        assert stream(way, client, model="of-no-known-window", messages=long) == LONG
        assert len(signed) == len(sim.posts) == 2
        assert min(signed) > 20_000_000
