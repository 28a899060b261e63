"""Sends a broken history through each SDK, wrapped, and tells what became of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

import continuation
from continuation import Event, Finished, Policy, Report
from continuation.simulator import Simulator
from support.notation import write
from support.sdks.turn import FAST, body_of

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
MODELS = {
    "anthropic": "claude-opus-5",
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-5.4",
    "gemini": "gemini-3.1-pro",
}
TOOLS: Mapping[str, Any] = {"tools": [{"name": "tool", "input_schema": {"type": "object"}}]}


@dataclass
class Ran:
    """One turn as its caller saw it, and what the server saw of it."""

    text: str = ""
    error: Exception | None = None
    report: Report | None = None
    events: list[Event] = field(default_factory=list[Event])
    statuses: list[int] = field(default_factory=list[int])
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report


def history(dialect: str, line: str) -> dict[str, Any]:
    """Write a history in the notation of the vectors; `_` stands for a space."""
    return {**write(dialect, line), **(TOOLS if dialect == "anthropic" else {})}


def send(
    sim: Simulator,
    dialect: str,
    body: dict[str, Any],
    *,
    policy: Policy = FAST,
    limit: int = 1000,
    model: str = "",
    asynchronous: bool = False,
) -> Ran:
    """Send a history and tell what came back."""
    ran = Ran()
    before = len(sim.posts)
    asked = _arguments(dialect, body, model or MODELS[dialect], limit)
    bare = _client(sim, dialect, asynchronous=asynchronous)
    client = continuation.wrap(bare, config=policy, on_event=ran.events.append)
    try:
        if asynchronous:
            ran.text = _text(dialect, asyncio.run(_ask_async(bare, client, dialect, asked)))
        else:
            with contextlib.closing(bare):
                ran.text = _text(dialect, _call(client, dialect, asked))
    except Exception as error:
        ran.error = error
    ran.report = ran.events[-1].report if isinstance(ran.events[-1], Finished) else None
    ran.statuses = [post.status for post in sim.posts[before:]]
    ran.sent = [body_of(post) for post in sim.posts[before:]]
    return ran


def _client(sim: Simulator, dialect: str, *, asynchronous: bool) -> Any:
    options: Any = {"api_key": "key", "max_retries": 0}
    if dialect == "anthropic":
        made = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
        return made(base_url=sim.url, **options)
    if dialect == "gemini":
        return genai.Client(api_key="key", http_options=types.HttpOptions(base_url=sim.url))
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return kind(base_url=f"{sim.url}/v1", **options)


def _arguments(dialect: str, body: dict[str, Any], model: str, limit: int) -> dict[str, Any]:
    if dialect == "gemini":
        return {"model": model, "config": {"max_output_tokens": limit}, **body}
    name = "max_output_tokens" if dialect == "openai-responses" else "max_tokens"
    return {"model": model, name: limit, **body}


def _call(client: Any, dialect: str, asked: dict[str, Any]) -> Any:
    if dialect == "anthropic":
        return client.messages.create(**asked, timeout=600.0)
    if dialect == "gemini":
        return client.models.generate_content(**asked)
    if dialect == "openai-responses":
        return client.responses.create(**asked)
    return client.chat.completions.create(**asked)


async def _ask_async(bare: Any, client: Any, dialect: str, asked: dict[str, Any]) -> Any:
    if dialect == "gemini":
        async with bare.aio:
            return await client.aio.models.generate_content(**asked)
    async with bare:
        return await _call(client, dialect, asked)


def _text(dialect: str, answer: Any) -> str:
    if dialect == "anthropic":
        return "".join(block.text for block in answer.content if block.type == "text")
    if dialect == "gemini":
        return str(answer.text)
    if dialect == "openai-responses":
        return str(answer.output_text)
    return str(answer.choices[0].message.content)
