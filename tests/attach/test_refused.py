"""What cannot be wrapped, of any SDK: refused at once, with the reason and with what can be."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import google.auth.credentials
import httpx2
import openai
import pytest
from google import genai
from google.auth.transport import mtls
from google.genai import _api_client
from support.shells import Way, both

import continuation
from continuation.attach.clients import SUPPORTED
from continuation.attach.healing_clients import HealingClient

NOWHERE = "http://127.0.0.1:1"
Make = Callable[[Way, pytest.MonkeyPatch], Any]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_HTTP_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_api_client, "has_aiohttp", False)


def refused(thing: object, why: str) -> str:
    with pytest.raises(TypeError, match=f"cannot wrap .*{why}") as caught:
        continuation.wrap(thing)
    assert SUPPORTED in str(caught.value)
    return str(caught.value)


# --- clients that go other ways than ours -------------------------------------------------------


def detour(_: object, request: httpx2.Request, **options: Any) -> httpx2.Response:
    return httpx2.Client().send(request, **options)


def own(self: Any) -> None:
    super(type(self), self).__init__(base_url=NOWHERE, api_key="key")


def subclass(base: type, **methods: Any) -> Make:
    """Return who makes a client of a class of one's own."""
    made = type("Own", (base,), methods)
    options = {} if "__init__" in methods else {"api_key": "k"}
    return lambda way, patch: made(**options)


def client_of(sdk: Any, name: str, **options: Any) -> Make:
    """Return who makes a client of either kind, by the name of its class."""
    return lambda way, patch: getattr(sdk, way.pick(name, f"Async{name}"))(**options)


def on_legacy_httpx(client: Any, owner: Any, place: str) -> Any:
    setattr(owner, place, type("Client", (), {"__module__": "httpx", "close": lambda _: None})())
    return client


def gemini(**options: Any) -> genai.Client:
    return genai.Client(**{"api_key": "k", "http_options": {"base_url": NOWHERE}, **options})


def replaying(way: Way, patch: pytest.MonkeyPatch) -> Any:
    where = {"replays_directory": "nowhere", "replay_id": "r"}
    return gemini(debug_config=genai.client.DebugConfig(client_mode="replay", **where))


def lacking(place: str) -> Make:
    def make(way: Way, patch: pytest.MonkeyPatch) -> Any:
        client = gemini()
        patch.delattr(client._api_client, place)
        return client

    return make


def over_aiohttp(**settings: Any) -> Make:
    def make(way: Way, patch: pytest.MonkeyPatch) -> Any:
        patch.setattr(_api_client, "has_aiohttp", True)
        client = gemini()
        for name, value in settings.items():
            setattr(client._api_client._http_options, name, value)
        return client

    return make


def with_certificate(**http: Any) -> Make:
    def make(way: Way, patch: pytest.MonkeyPatch) -> Any:
        token = google.auth.credentials.AnonymousCredentials()  # type: ignore[no-untyped-call]
        patch.setattr(mtls, "should_use_client_cert", lambda: True)
        patch.setattr(mtls, "has_default_client_cert_source", lambda: True)
        place: dict[str, Any] = {"vertexai": True, "project": "p", "location": "l"}
        options: Any = http or None
        return genai.Client(**place, credentials=token, http_options=options)

    return make


CLIENTS: dict[str, tuple[Make, str]] = {
    "anthropic, no copy": (
        subclass(anthropic.Anthropic, __init__=own),
        r"cannot be copied .* make it with http_client = continuation\.http_client\(\)",
    ),
    "openai, detour": (
        subclass(openai.OpenAI, _send_request=detour),
        "overrides how requests are sent",
    ),
    "openai, no copy": (subclass(openai.OpenAI, __init__=own), "cannot be copied"),
    "openai, the module's own": (
        lambda way, patch: openai._ModuleClient(api_key="k", base_url=NOWHERE),
        r"make a separate client with openai\.OpenAI\(\)",
    ),
    "openai, legacy httpx": (
        lambda way, patch: on_legacy_httpx(it := openai.OpenAI(api_key="k"), it, "_client"),
        r"it sends through httpx\.Client, not through an httpx2 client",
    ),
    "google, legacy httpx": (
        lambda way, patch: on_legacy_httpx(it := gemini(), it._api_client, "_httpx_client"),
        r"it sends through httpx\.Client, not through an httpx2\.Client",
    ),
    "google, replaying": (replaying, "ReplayApiClient overrides how requests are sent"),
    "google, mTLS": (
        with_certificate(),
        r"with a client certificate \(mTLS\) it sends through google-auth",
    ),
    "google, ssl of aiohttp": (
        over_aiohttp(async_client_args={"ssl": object()}),
        "only aiohttp understands 'ssl' .* set verify, too",
    ),
    "google, a buffer of aiohttp": (
        over_aiohttp(async_client_args={"read_bufsize": 9}),
        "only aiohttp understands 'read_bufsize'",
    ),
    "google, a session of aiohttp": (
        over_aiohttp(aiohttp_client=object()),
        "it has an aiohttp session",
    ),
    **{
        f"google without {place}": (
            lacking(place),
            f"its inner client has no {place}, which wrap needs",
        )
        for place in ("_httpx_client", "_async_httpx_client", "_http_options")
    },
}


@both
@pytest.mark.parametrize(("make", "why"), CLIENTS.values(), ids=CLIENTS)
def test_a_client_that_does_not_send_through_ours_alone_is_refused(
    make: Make, why: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Way(kind) as way, monkeypatch.context() as patch:
        client = make(way, patch)
        assert type(client).__qualname__ in refused(client, why)
        api = getattr(client, "_api_client", None)
        assert not isinstance(getattr(api, "_httpx_client", None), HealingClient)


def test_a_client_certificate_is_served_by_http_clients_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with httpx2.Client() as http:
        make = with_certificate(httpx_client=http, httpx_async_client=httpx2.AsyncClient())
        client = make(Way("sync"), monkeypatch)
        assert continuation.wrap(client) is client


@pytest.mark.parametrize(
    ("sdk", "make", "versions"),
    [
        (anthropic, anthropic.Anthropic, ["0.105.2", "1.17.0"]),
        (openai, openai.OpenAI, ["2.54.0", "1.109.1"]),
        (genai, genai.Client, ["2.30.0", "1.60.0"]),
    ],
)
def test_an_sdk_that_is_too_old_is_refused(
    sdk: Any, make: Any, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(api_key="k") as client:
        for version in (*versions, "", "unknown"):
            monkeypatch.setattr(sdk, "__version__", version)
            refused(client, "too old")


# --- what is no client --------------------------------------------------------------------------


MADE = (
    "continuation.wrap(anthropic.Anthropic())",
    "continuation.wrap(openai.OpenAI())",
    "continuation.wrap(google.genai.Client())",
)


def offered(thing: object, why: str) -> list[str]:
    """Return the lines that a refusal offers; each of them is Python."""
    lines = [line.strip() for line in refused(thing, why).splitlines()[1:-1]]
    for line in lines:
        compile(line, "offered", "exec")
    return lines


def of(module: str, name: str) -> Any:
    """Return an object of a class of that name, as of a package that is not installed."""
    return type(name, (), {"__module__": module})()


def at(url: str) -> str:
    return f'continuation.wrap(openai.OpenAI(base_url="{url}", api_key=...))'


def test_botocores_own_client_is_told_what_to_wrap_instead() -> None:
    client: Any = boto3.client(
        "bedrock-runtime", "eu-west-3", aws_access_key_id="a", aws_secret_access_key="s"
    )
    lines = offered(client, "botocore.*sends through urllib3")
    assert "continuation.wrap(anthropic.AnthropicBedrock())" in lines
    client.close()


@pytest.mark.parametrize("thing", [None, 7, "client", object(), types.SimpleNamespace(), print])
def test_what_is_no_client_is_refused_with_lines_that_work(thing: object) -> None:
    assert offered(thing, "not a client of a supported SDK") == [*MADE]


async def _factory() -> object: ...


def test_what_leads_to_a_client_is_named() -> None:
    offered(_factory(), "but a coroutine; await it first")
    with anthropic.Anthropic(api_key="k") as client:
        offered(client.messages.create, "but a function; wrap the client that it is called on")


@pytest.mark.parametrize("kind", [anthropic.Anthropic, openai.OpenAI, genai.Client])
def test_modules_classes_and_parts_of_a_client_are_told_what_to_wrap_instead(kind: type) -> None:
    sdk = {anthropic.Anthropic: anthropic, openai.OpenAI: openai}.get(kind, genai)
    [line] = offered(sdk, f"the module {sdk.__name__}: .*make a client and wrap that")
    assert line in MADE
    [line] = offered(kind, f"the class {kind.__module__}.{kind.__qualname__}: it is a class")
    assert line == f"continuation.wrap({sdk.__name__}.{kind.__name__}(...))"
    assert offered(openai.BadRequestError, "it is a class") == [*MADE]
    with gemini() as client:
        refused(client.aio, "wrap the Client that it belongs to")
    with httpx2.Client() as http, continuation.http_client(http) as healing:
        for one in (http, healing):
            [line] = offered(one, r"continuation\.http_client or async_http_client")
            assert isinstance(
                eval(line, {"continuation": continuation, "client": one}), HealingClient
            )


def test_a_part_of_a_client_is_told_to_wrap_the_client() -> None:
    with (
        gemini() as google,
        openai.OpenAI(api_key="k") as gpt,
        anthropic.Anthropic(api_key="k") as claude,
    ):
        for part in (
            google.models, google.chats, gpt.chat, gpt.chat.completions, gpt.responses,
            gpt.with_raw_response, claude.messages, claude.beta.messages,
            claude.with_streaming_response,
        ):  # fmt: skip
            assert offered(part, "not a client; wrap the client that it belongs to") == [
                "client = continuation.wrap(client)"
            ]


CHAT = (
    "{}(..., http_client=continuation.http_client(), "
    "http_async_client=continuation.async_http_client())"
)
PYDANTIC = (
    "AnthropicModel(..., provider=AnthropicProvider("
    "anthropic_client=continuation.wrap(anthropic.AsyncAnthropic())))",
    "OpenAIChatModel(..., provider=OpenAIProvider("
    "openai_client=continuation.wrap(openai.AsyncOpenAI())))",
    "GoogleModel(..., provider=GoogleProvider(client=continuation.wrap(google.genai.Client())))",
)
OTHERS: dict[str, tuple[object, list[str]]] = {
    "litellm": (
        types.ModuleType("litellm"),
        [
            "litellm.client_session = continuation.http_client()",
            "litellm.aclient_session = continuation.async_http_client()",
        ],
    ),
    "litellm, router": (
        of("litellm.router", "Router"),
        ["litellm.client_session = continuation.http_client()"],
    ),
    "langchain, openai": (
        of("langchain_openai.chat_models.base", "ChatOpenAI"), [CHAT.format("ChatOpenAI")],
    ),
    "langchain, azure": (
        of("langchain_openai.chat_models.azure", "AzureChatOpenAI"),
        [CHAT.format("AzureChatOpenAI")],
    ),
    "langchain, own class": (
        type("Own", (type(of("langchain_openai.chat_models.base", "ChatOpenAI")),), {})(),
        [CHAT.format("ChatOpenAI")],
    ),
    "langchain, bound": (
        of("langchain_core.runnables.base", "RunnableBinding"), [CHAT.format("ChatOpenAI")],
    ),
    "langchain, anthropic": (
        of("langchain_anthropic.chat_models", "ChatAnthropic"),
        [
            "llm._client = continuation.wrap(llm._client)",
            "llm._async_client = continuation.wrap(llm._async_client)",
        ],
    ),
    "pydantic-ai, anthropic": (
        of("pydantic_ai.models.anthropic", "AnthropicModel"), [*PYDANTIC[:1]],
    ),
    "pydantic-ai, openai": (of("pydantic_ai.models.openai", "OpenAIChatModel"), [PYDANTIC[1]]),
    "pydantic-ai, provider": (of("pydantic_ai.providers.google", "GoogleProvider"), [PYDANTIC[2]]),
    "pydantic-ai, agent": (of("pydantic_ai.agent", "Agent"), [*PYDANTIC]),
    "instructor": (
        of("instructor.core.client", "Instructor"),
        ["instructor.from_openai(continuation.wrap(openai.OpenAI()))"],
    ),
    "google, legacy": (types.ModuleType("google.generativeai"), [MADE[2]]),
    "google, legacy model": (
        of("google.generativeai.generative_models", "GenerativeModel"), [MADE[2]],
    ),
    "mistral": (of("mistralai.sdk", "Mistral"), [at("https://api.mistral.ai/v1")]),
    "groq": (of("groq._client", "AsyncGroq"), [at("https://api.groq.com/openai/v1")]),
    "cohere": (
        of("cohere.client_v2", "ClientV2"), [at("https://api.cohere.ai/compatibility/v1")],
    ),
    "ollama": (of("ollama._client", "Client"), [at("http://127.0.0.1:11434/v1")]),
    "httpx": (
        of("httpx", "Client"), ["openai.OpenAI(http_client=continuation.http_client())"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("thing", "lines"), OTHERS.values(), ids=OTHERS)
def test_objects_of_others_are_told_the_line_that_works(thing: object, lines: list[str]) -> None:
    said = offered(thing, "")
    assert said[: len(lines)] == lines
    if not isinstance(thing, types.ModuleType):
        assert offered(type(thing), "the class ") == said


# --- settings -----------------------------------------------------------------------------------


class Listener:
    """Would have to be awaited."""

    async def __call__(self, event: continuation.Event) -> None: ...


@pytest.mark.parametrize(
    ("keys", "kind", "said"),
    [
        ({"config": 3}, TypeError, "config must be"),
        ({"config": "no-such-file.toml"}, OSError, "no-such-file"),
        ({"on_event": 3}, TypeError, "on_event = 3: must be callable with one event"),
        ({"on_event": Listener()}, TypeError, "must be a plain function, because a turn"),
        ({"on_event": Listener().__call__}, TypeError, "asyncio.Queue().put_nowait to pass"),
        ({"max_recoverys": 2}, ValueError, "did you mean 'max_recoveries'?"),
        ({"clamp_limit": True}, ValueError, "did you mean 'clamp'?"),
        ({"on_evnt": print}, ValueError, "did you mean 'on_event'?"),
        ({"confg": None}, ValueError, "did you mean 'config'?"),
        ({"chain_store": "memroy"}, ValueError, "did you mean 'memory'?"),
        ({"base_uri": "http://x"}, ValueError, "is a setting of the client"),
        ({"base_url": "http://x"}, ValueError, "is a setting of the client"),
        ({"max_recoveries": 11}, ValueError, "max_recoveries = 11: must be from 0 to 10"),
        ({"max_recoveries": "2"}, TypeError, "max_recoveries = '2': must be int, from 0 to 10"),
        ({"ceiling": 9}, ValueError, "'ceiling' is 'model_max_output_tokens' now"),
        ({"max_tokens": 9}, ValueError, "max_tokens = 9: set a request's limit in"),
        ({"complete_tools": "Write"}, TypeError, "must be a list of names, not str"),
        ({"complete_tools": ["a", 1]}, TypeError, "must be a list of names, each a string"),
        ({"journal": "agent.db"}, TypeError, "journal = 'agent.db': must be a continuation.Journ"),
    ],
)
def test_a_setting_that_cannot_be_is_told_with_value_and_remedy(
    keys: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with anthropic.Anthropic(api_key="key") as client:
        doors: list[Callable[[], object]] = [
            lambda: continuation.wrap(client, **keys),
            lambda: continuation.http_client(**keys),
            lambda: continuation.async_http_client(**keys),
        ]
        for door in doors:
            with pytest.raises(kind) as caught:
                door()
            assert said in str(caught.value)
