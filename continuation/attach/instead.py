"""Error messages of `wrap(thing)`: what to write instead if the object cannot be wrapped.

An object is recognized by the names of its class and module, so that nothing is imported. The lines
for frameworks are those that `.ci/frameworks` runs. If no line of Python helps, the message
suggests the gateway.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple


class Instead(NamedTuple):
    """Why an object cannot be wrapped, and lines of Python that do what the caller wanted."""

    why: str
    lines: tuple[str, ...] = ()


_HTTP = "http_client=continuation.http_client()"
_ASYNC = "continuation.async_http_client()"
_MADE = "continuation.wrap(anthropic.Anthropic())"
_PYDANTIC = (
    (
        "Anthropic",
        "AnthropicModel",
        "anthropic_client=continuation.wrap(anthropic.AsyncAnthropic())",
    ),
    ("OpenAI", "OpenAIChatModel", "openai_client=continuation.wrap(openai.AsyncOpenAI())"),
    ("Google", "GoogleModel", "client=continuation.wrap(google.genai.Client())"),
)
"""For pydantic-ai: the name of a provider, a model's class, the argument for the provider."""
_SERVERS = {
    "mistralai": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "cohere": "https://api.cohere.ai/compatibility/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "together": "https://api.together.xyz/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "xai_sdk": "https://api.x.ai/v1",
    "zhipuai": "https://open.bigmodel.cn/api/paas/v4",
    "dashscope": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "huggingface_hub": "https://router.huggingface.co/v1",
}
"""The package of a vendor's SDK -> the base URL of its OpenAI-compatible server."""
_GATEWAY = "run `continuation serve` and give it that address as its base URL"


def _lines(*lines: str) -> tuple[str, ...]:
    return lines


def _pydantic() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield patterns for objects of pydantic-ai, each with its lines."""
    lines = list[str]()
    for name, model, given in _PYDANTIC:
        lines.append(f"{model}(..., provider={name}Provider({given}))")
        yield rf"pydantic_ai\b.*{name}", (lines[-1],)
    yield r"pydantic_ai\b", tuple(lines)


_KNOWN: tuple[tuple[str, Instead], ...] = (
    # -- frameworks
    (
        r"litellm\b|dspy\b|crewai\.llm",
        Instead(
            "LiteLLM sends through its own HTTP clients; give it one of continuation's",
            _lines(
                "litellm.client_session = continuation.http_client()",
                f"litellm.aclient_session = {_ASYNC}",
                "litellm.completion(..., client=HTTPHandler(client=continuation.http_client()))"
                "  # anthropic/ models; HTTPHandler is in litellm.llms.custom_httpx.http_handler",
            ),
        ),
    ),
    (
        r"langchain_anthropic\b",
        Instead(
            "LangChain's model takes no HTTP client; wrap the SDK clients in it",
            _lines(
                "llm._client = continuation.wrap(llm._client)",
                "llm._async_client = continuation.wrap(llm._async_client)",
            ),
        ),
    ),
    (
        r"langchain_google_genai\b",
        Instead(
            "LangChain's model contains the SDK client; wrap that",
            _lines("llm.client = continuation.wrap(llm.client)"),
        ),
    ),
    (
        r"langchain_openai\b.*\.(?P<name>\w+)$|langchain\w*\b|langgraph\b",
        Instead(
            "it is a LangChain object; give the model continuation's HTTP clients",
            _lines(f"{{name}}(..., {_HTTP}, http_async_client={_ASYNC})"),
        ),
    ),
    *(
        (
            pattern,
            Instead("it is a pydantic-ai object; give its provider a wrapped client", lines),
        )
        for pattern, lines in _pydantic()
    ),
    (
        r"instructor\b",
        Instead(
            "instructor has patched the client already; wrap the client first",
            _lines(
                "instructor.from_openai(continuation.wrap(openai.OpenAI()))",
                f"instructor.from_anthropic({_MADE})",
            ),
        ),
    ),
    (
        r"agents\.[\w.]*\b(Agent|Runner|RunConfig|OpenAI\w+)$",
        Instead(
            "it is an Agents SDK object; give the SDK a wrapped client",
            _lines("agents.set_default_openai_client(continuation.wrap(openai.AsyncOpenAI()))"),
        ),
    ),
    # -- other SDKs
    (
        r"google\.generativeai\b",
        Instead(
            "google-generativeai is the old SDK, and sends through gRPC; use google-genai",
            _lines("continuation.wrap(google.genai.Client())"),
        ),
    ),
    (
        r"vertexai\b|google\.cloud\.aiplatform\b",
        Instead(
            "it sends through gRPC; use google-genai, which also supports Vertex",
            _lines(
                "continuation.wrap(google.genai.Client(vertexai=True, project=..., location=...))"
            ),
        ),
    ),
    (
        r"(botocore|boto3|aiobotocore)\b",
        Instead(
            "a botocore client sends through urllib3, which cannot be wrapped",
            _lines(
                "continuation.wrap(anthropic.AnthropicBedrock())",
                "continuation.wrap(openai.BedrockOpenAI())",
            ),
        ),
    ),
    (
        rf"(?P<name>{'|'.join(_SERVERS)})\b",
        Instead(
            "it is another vendor's SDK, but the server also accepts OpenAI's format",
            _lines('continuation.wrap(openai.OpenAI(base_url="{server}", api_key=...))'),
        ),
    ),
    # -- HTTP clients
    (
        r"httpx2\..*\.AsyncClient$|httpx2\.AsyncClient$|continuation\.attach\.http\.AsyncHealing",
        Instead(
            "instead of an HTTP client, use continuation.http_client or async_http_client",
            _lines("continuation.async_http_client(client)"),
        ),
    ),
    (
        r"httpx2\..*Client$|continuation\.attach\.http\.Healing",
        Instead(
            "instead of an HTTP client, use continuation.http_client or async_http_client",
            _lines("continuation.http_client(client)"),
        ),
    ),
    (
        r"(httpx|requests|aiohttp|urllib3)\b",
        Instead(
            f"it is an HTTP client, but not from httpx2; {_GATEWAY}, or use continuation's",
            _lines(f"openai.OpenAI({_HTTP})"),
        ),
    ),
    # -- parts of clients that can be wrapped
    (
        r"(anthropic|openai|google\.genai)\.(resources|_client|lib|models|chats|live|batches|files)\b",
        Instead(
            "it is not a client; wrap the client that it belongs to",
            _lines("client = continuation.wrap(client)"),
        ),
    ),
)
_MODULES = {
    "anthropic": _MADE,
    "openai": "continuation.wrap(openai.OpenAI())",
    "google.genai": "continuation.wrap(google.genai.Client())",
}
"""A module that a caller may pass instead of a client -> the line that works."""


def instead_of(thing: object) -> Instead:
    """Return why an object cannot be wrapped, and what to write instead."""
    if isinstance(thing, ModuleType):
        why = "its functions use a client of the module; make a client and wrap that"
        line = _MODULES.get(thing.__name__)
        known = _known([f"{thing.__name__}."])
        return known or Instead(why, (line,) if line else tuple(_MODULES.values()))
    kind = thing if isinstance(thing, type) else type(thing)
    known = _known([f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__])
    if isinstance(thing, type):
        package = next((name for name in _MODULES if kind.__module__.startswith(name)), None)
        if issubclass(kind, BaseException):
            package = None
        made = f"continuation.wrap({package}.{kind.__name__}(...))"
        why = "it is a class; make a client and wrap that"
        return known or Instead(why, (made,) if package else tuple(_MODULES.values()))
    if known is not None:
        return known
    why = "it is not a client of a supported SDK"
    if inspect.ismethod(thing) or inspect.isfunction(thing):
        why = f"{why}, but a function; wrap the client that it is called on"
    elif inspect.iscoroutine(thing):
        thing.close()  # else Python warns that it was never awaited
        why = f"{why}, but a coroutine; await it first"
    elif thing is not None and not isinstance(thing, (str, int, float, bytes)):
        why = f"{why}; if it takes a base URL, {_GATEWAY}"
    return Instead(why, tuple(_MODULES.values()))


def _known(names: list[str]) -> Instead | None:
    """Return the entry of `_KNOWN` for the first name that matches, or `None`."""
    for pattern, (why, lines) in _KNOWN:
        for name in names:
            if found := re.match(pattern, name):
                named = found.groupdict().get("name") or "ChatOpenAI"
                server = _SERVERS.get(named, "")
                return Instead(why, tuple(_filled(line, named, server) for line in lines))
    return None


def _filled(line: str, name: str, server: str) -> str:
    return line.replace("{name}", name).replace("{server}", server)
