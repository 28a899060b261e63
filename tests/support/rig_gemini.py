"""Runs one turn of generateContent through the real SDK and tells what became of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials

import continuation
from continuation import Policy, Report
from continuation.simulator import Simulator
from support.rig import FAST as FAST

How = Literal["sync", "sync-stream", "async", "async-stream"]
HOWS: tuple[How, ...] = ("sync", "sync-stream", "async", "async-stream")
Door = Literal["models", "chats"]
DOORS: tuple[Door, ...] = ("models", "chats")

NEW = "gemini-3.6-flash"
"""Takes no prefill and gives no tokens; ceiling 65,536."""
OLD = "gemini-3.1-pro"
"""Takes a prefill; ceiling 65,536."""
LONG = "gemini-4-argon"
"""Answers in hops and gives tokens; 1,048,576 tokens shared with the prompt."""
CEILING = 65_536
ASKED = "Go."


@dataclass
class Ran:
    """One turn as its caller saw it: the chunks, or the one response."""

    chunks: list[types.GenerateContentResponse] = field(
        default_factory=list[types.GenerateContentResponse]
    )
    history: list[types.Content] = field(default_factory=list[types.Content])
    """What a chat would send next time."""
    report: Report | None = None
    error: Exception | None = None

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report

    @property
    def parts(self) -> list[types.Part]:
        assert self.error is None, self.error
        contents = (c.candidates[0].content for c in self.chunks if c.candidates)
        return [part for content in contents if content for part in content.parts or []]

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in self.parts if not part.thought)

    @property
    def calls(self) -> list[types.FunctionCall]:
        return [part.function_call for part in self.parts if part.function_call]

    @property
    def reasons(self) -> list[str]:
        """All finish reasons that were told."""
        candidates = (c.candidates[0] for c in self.chunks if c.candidates)
        return [c.finish_reason.value for c in candidates if c.finish_reason]

    @property
    def usage(self) -> types.GenerateContentResponseUsageMetadata:
        usage = [chunk.usage_metadata for chunk in self.chunks if chunk.usage_metadata][-1]
        assert usage is not None
        return usage


def connect(sim: Simulator, *, vertex: bool = False) -> genai.Client:
    options = types.HttpOptions(base_url=sim.url)
    if not vertex:
        return genai.Client(api_key="key", http_options=options)
    token = Credentials("token")  # type: ignore[no-untyped-call]
    return genai.Client(
        vertexai=True, project="p", location="l", credentials=token, http_options=options
    )


def run(
    sim: Simulator,
    how: How,
    *,
    door: Door = "models",
    policy: Policy = FAST,
    model: str = NEW,
    limit: int | None = 1000,
    contents: Any = ASKED,
    vertex: bool = False,
    **config: Any,
) -> Ran:
    """Run one turn against the simulator."""
    wanted: Any = {"max_output_tokens": limit, **config}
    return (
        asyncio.run(_async(sim, how, door, policy, model, contents, wanted, vertex))
        if (how.startswith("async"))
        else _sync(sim, how, door, policy, model, contents, wanted, vertex)
    )


def _sync(
    sim: Simulator,
    how: How,
    door: Door,
    policy: Policy,
    model: str,
    contents: Any,
    config: Any,
    vertex: bool,
) -> Ran:
    ran = Ran()
    with connect(sim, vertex=vertex) as bare:
        client = continuation.wrap(bare, config=policy)
        chat = client.chats.create(model=model, config=config)
        try:
            if door == "chats" and how == "sync":
                ran.chunks = [chat.send_message(contents)]
            elif door == "chats":
                ran.chunks = [*chat.send_message_stream(contents)]
            elif how == "sync":
                whole = client.models.generate_content
                ran.chunks = [whole(model=model, contents=contents, config=config)]
            else:
                stream = client.models.generate_content_stream
                for chunk in stream(model=model, contents=contents, config=config):
                    ran.chunks.append(chunk)
        except Exception as error:
            ran.error = error
        ran.history = chat.get_history(curated=True)
        ran.report = continuation.last_report()
    return ran


async def _async(
    sim: Simulator,
    how: How,
    door: Door,
    policy: Policy,
    model: str,
    contents: Any,
    config: Any,
    vertex: bool,
) -> Ran:
    ran = Ran()
    with connect(sim, vertex=vertex) as bare:
        client = continuation.wrap(bare, config=policy)
        chat = client.aio.chats.create(model=model, config=config)
        try:
            if door == "chats" and how == "async":
                ran.chunks = [await chat.send_message(contents)]
            elif door == "chats":
                async for chunk in await chat.send_message_stream(contents):
                    ran.chunks.append(chunk)
            elif how == "async":
                whole = client.aio.models.generate_content
                ran.chunks = [await whole(model=model, contents=contents, config=config)]
            else:
                stream = client.aio.models.generate_content_stream
                async for chunk in await stream(model=model, contents=contents, config=config):
                    ran.chunks.append(chunk)
        except Exception as error:
            ran.error = error
        ran.history = chat.get_history(curated=True)
        ran.report = continuation.last_report()
        await client.aio.aclose()
    return ran


def limits(sim: Simulator) -> list[int | None]:
    """Return the limits of the model calls, in order."""
    configs = (body_of(post).get("generationConfig", {}) for post in sim.posts)
    return [config.get("maxOutputTokens") for config in configs]


def body_of(post: Any) -> dict[str, Any]:
    assert post.body is not None
    return dict(post.body)


def speakers(ran: Ran) -> list[str]:
    """Return who speaks in a chat's history, content by content."""
    return [content.role or "" for content in ran.history]
