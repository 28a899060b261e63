"""Runs one Chat turn through the real SDK, in each of the four ways; tells what became of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import continuation
from continuation import Event, Policy, Report
from continuation.config import Config, Vendor, load
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolCall
from support.rig import FAST, How, body_of

MODEL = "gpt-4o"
CEILING = 16_384
"""What that model can do."""
LIMIT = 1000
WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "Write",
        "parameters": {"type": "object", "properties": {}, "required": ["path", "content"]},
    },
}


@dataclass
class Ran:
    """One turn as its caller saw it."""

    completion: ChatCompletion | None = None
    report: Report | None = None
    error: Exception | None = None
    chunks: list[ChatCompletionChunk] = field(default_factory=list[ChatCompletionChunk])
    events: list[Event] = field(default_factory=list[Event])

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report

    @property
    def said(self) -> ChatCompletion:
        assert self.error is None, self.error
        assert self.completion is not None
        return self.completion

    @property
    def message(self) -> Any:
        return self.said.choices[0].message

    @property
    def text(self) -> str:
        return self.message.content or ""

    @property
    def finish(self) -> str | None:
        return self.said.choices[0].finish_reason

    @property
    def calls(self) -> list[str]:
        """The arguments of each call."""
        return [call.function.arguments for call in self.message.tool_calls or []]

    @property
    def streamed(self) -> str:
        """All text deltas, joined."""
        said = [chunk.choices[0].delta.content for chunk in self.chunks if chunk.choices]
        return "".join(piece or "" for piece in said)


def ask(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a plain request; `None` leaves one out."""
    plain: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": LIMIT,
        "messages": [{"role": "user", "content": "Go."}],
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def playing(policy: Policy | None = None, like: str = "openai", **settings: Any) -> Config:
    """Return a configuration that takes the loopback server for a vendor's."""
    vendor = Vendor("simulated", ("127.0.0.1",), {"like": like, **settings})
    return Config(load(policy or FAST).layers, (vendor,))


def whole(chunks: Iterable[ChatCompletionChunk]) -> ChatCompletion:
    """Return the completion that the SDK's own accumulation makes of chunks."""
    state: Any = ChatCompletionStreamState()
    for chunk in chunks:
        if chunk.object == "chat.completion.chunk":  # Azure's first is not, and the SDK skips it
            state.handle_chunk(chunk)
    snapshot: ChatCompletion = state.current_completion_snapshot
    return snapshot


def run(
    sim: Simulator,
    how: How,
    *,
    policy: Policy | None = None,
    like: str = "openai",
    prefix: str = "/v1",
    **changes: Any,
) -> Ran:
    """Run one turn against the simulator."""
    request, ran = ask(**changes), Ran()
    config = playing(policy, like)
    options: dict[str, Any] = {"base_url": sim.url + prefix, "api_key": "k", "max_retries": 0}
    if how.startswith("async"):
        asyncio.run(_async(ran, how, config, options, request))
    else:
        _sync(ran, how, config, options, request)
    return ran


def _sync(ran: Ran, how: How, config: Config, options: Any, request: dict[str, Any]) -> None:
    with openai.OpenAI(**options) as bare:
        client = continuation.wrap(bare, config=config, on_event=ran.events.append)
        try:
            if how == "sync":
                ran.completion = client.chat.completions.create(**request)
                return
            with client.chat.completions.create(**request, stream=True) as stream:
                ran.chunks.extend(stream)
            ran.completion = whole(ran.chunks)
        except Exception as error:
            ran.error = error
        finally:
            ran.report = continuation.last_report()  # here: a task has a context of its own


async def _async(ran: Ran, how: How, config: Config, options: Any, request: Any) -> None:
    async with openai.AsyncOpenAI(**options) as bare:
        client = continuation.wrap(bare, config=config, on_event=ran.events.append)
        try:
            if how == "async":
                ran.completion = await client.chat.completions.create(**request)
                return
            async with await client.chat.completions.create(**request, stream=True) as stream:
                async for chunk in stream:
                    ran.chunks.append(chunk)
            ran.completion = whole(ran.chunks)
        except Exception as error:
            ran.error = error
        finally:
            ran.report = continuation.last_report()  # here: a task has a context of its own


def limits(sim: Simulator) -> list[int | None]:
    """Return the limits of the model calls, in order, whatever their names."""
    return [next(iter(named(post).values()), None) for post in sim.posts]


def named(post: Any) -> dict[str, int]:
    """Return a request's limits by parameter."""
    body = body_of(post)
    return {k: body[k] for k in ("max_tokens", "max_completion_tokens") if k in body}


def cut(*blocks: Any, **more: Any) -> Reply:
    return Reply(blocks=[_block(b) for b in blocks], stop="max_tokens", **more)


def end(*blocks: Any, stop: str = "end_turn", **more: Any) -> Reply:
    return Reply(blocks=[_block(b) for b in blocks], stop=stop, **more)


def _block(said: Any) -> Any:
    return Text(said) if isinstance(said, str) else said


dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""As the simulator writes arguments."""


def written(cut: int | None = None) -> ToolCall:
    return ToolCall("Write", WRITE, cut=cut)


def plays(sim: Simulator, vendor: str, **manners: Any) -> None:
    """Have the simulator play a vendor."""
    sim.scenario = Scenario(vendor=vendor, **manners)
