"""What is raced, by wire format: its answers, its path, and how its SDK asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anthropic
import httpx2
import openai
from answers import LIMIT, MODEL, TOKENS, Answers
from google import genai
from google.genai import types

from continuation.wire.eventstream import encode


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format."""

    what: str
    path: str
    base: str
    """What the SDK's base URL has behind the server's."""
    client: Callable[..., Any]
    async_client: Callable[..., Any]
    create: Callable[[Any], Callable[..., Any]]
    """The method that asks, of a client."""
    said: Callable[[int], Mapping[str, object]]
    """The body of a request for so many tokens at most."""
    counted: str
    """What its counts call the tokens of an answer."""
    ping: bytes
    """An event that says nothing, a comment or a blank line: what keeps a connection open."""
    asynchronous: Callable[[Any], Any] = lambda client: client
    """Where an asynchronous client has its methods."""
    kind: str = "text/event-stream"
    """The content type of its streams."""

    @property
    def answers(self) -> Answers:
        return Answers(self.path, self.said(LIMIT), {self.counted: TOKENS})


_SAID = "Write it."


def _chat(limit: int) -> Mapping[str, object]:
    said = [{"role": "user", "content": _SAID}]
    return {"model": MODEL, "max_tokens": limit, "messages": said}


def _response(create: Callable[..., Any], **asked: Any) -> Any:
    """Ask in the words that the other two have in common."""
    limit, items = asked.pop("max_tokens"), asked.pop("messages")
    return create(max_output_tokens=limit, input=items, **asked)


def _gemini(**given: Any) -> genai.Client:
    return _genai(given, httpx_client=given["http_client"] or httpx2.Client())


def _async_gemini(**given: Any) -> genai.Client:
    """Never through aiohttp: then two HTTP clients would be compared."""
    return _genai(given, httpx_async_client=given["http_client"] or httpx2.AsyncClient())


def _genai(given: Mapping[str, Any], **http: Any) -> genai.Client:
    options = types.HttpOptions(base_url=given["base_url"], **http)
    return genai.Client(api_key=given["api_key"], http_options=options)


def _generate(models: Any, **asked: Any) -> Any:
    """Ask in the words that the others have in common."""
    options = types.HttpOptions(headers=asked["extra_headers"])
    limit, said = asked["max_tokens"], asked["messages"][0]["content"]
    config = types.GenerateContentConfig(max_output_tokens=limit, http_options=options)
    streamed = asked.get("stream", False)
    ask = models.generate_content_stream if streamed else models.generate_content
    return ask(model=asked["model"], contents=said, config=config)


WIRES: Mapping[str, Wire] = {
    "anthropic": Wire(
        "client.messages.create of the anthropic SDK",
        "/v1/messages",
        "",
        anthropic.Anthropic,
        anthropic.AsyncAnthropic,
        lambda client: client.messages.create,
        _chat,
        "output_tokens",
        b'event: ping\ndata: {"type":"ping"}\n\n',
    ),
    "bedrock": Wire(
        "client.messages.create of the anthropic SDK, AWS event streams",
        f"/model/{MODEL}/invoke-with-response-stream",
        "",
        partial(anthropic.AnthropicBedrock, aws_region="us-east-1"),
        partial(anthropic.AsyncAnthropicBedrock, aws_region="us-east-1"),
        lambda client: client.messages.create,
        lambda limit: {**_chat(limit), "anthropic_version": "2026-10-21"},
        "output_tokens",
        encode("", b'{"type":"ping"}'),
        kind="application/vnd.amazon.eventstream",
    ),
    "openai-chat": Wire(
        "client.chat.completions.create of the openai SDK",
        "/v1/chat/completions",
        "/v1",
        openai.OpenAI,
        openai.AsyncOpenAI,
        lambda client: client.chat.completions.create,
        _chat,
        "completion_tokens",
        b": OPENROUTER PROCESSING\n\n",
    ),
    "openai-responses": Wire(
        "client.responses.create of the openai SDK",
        "/v1/responses",
        "/v1",
        openai.OpenAI,
        openai.AsyncOpenAI,
        lambda client: partial(_response, client.responses.create),
        lambda limit: {"model": MODEL, "max_output_tokens": limit, "input": _SAID},
        "output_tokens",
        b'event: keepalive\ndata: {"type":"keepalive","sequence_number":9}\n\n',
    ),
    "gemini": Wire(
        "client.models.generate_content of google-genai",
        f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
        "",
        _gemini,
        _async_gemini,
        lambda client: partial(_generate, client.models),
        lambda limit: {
            "contents": [{"role": "user", "parts": [{"text": _SAID}]}],
            "generationConfig": {"maxOutputTokens": limit},
        },
        "candidatesTokenCount",
        b"\r\n",
        lambda client: client.aio,
    ),
}
