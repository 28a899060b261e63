"""Runs one turn of Chat Completions through the SDK of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from continuation import Policy
from continuation.config import Config, VendorTable, load
from continuation.simulator import Scenario, Simulator, ToolUse
from support.sdks.turn import FAST, How, Turn, body_of, play

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
class Ran(Turn):
    """A turn of Chat Completions."""

    prefix: str = "/v1"

    def connect(self, url: str, *, asynchronous: bool) -> Any:
        make: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        return make(base_url=url + self.prefix, api_key="k", max_retries=self.retries)

    def create(self, client: Any, request: dict[str, Any]) -> Any:
        return client.chat.completions.create(**request)

    def stream(self, client: Any, request: dict[str, Any]) -> Any:
        return client.chat.completions.create(**request, stream=True)

    def ended(self, stream: Any) -> Any:
        return whole(self.pieces)

    @property
    def chunks(self) -> list[ChatCompletionChunk]:
        return self.pieces

    @property
    def message(self) -> Any:
        return self.said.choices[0].message

    @property
    def text(self) -> str:
        return self.message.content or ""

    @property
    def finish(self) -> str | None:
        reason: str | None = self.said.choices[0].finish_reason
        return reason

    @property
    def calls(self) -> list[str]:
        """The arguments of each call."""
        return [call.function.arguments for call in self.message.tool_calls or []]

    @property
    def says_cut(self) -> bool:
        return self.finish in {"length", "model_context_window_exceeded"}

    @property
    def tool_calls(self) -> list[tuple[str, Any]]:
        made = [call.function for call in self.message.tool_calls or []]
        return [(function.name, json.loads(function.arguments)) for function in made]

    def following(self, request: dict[str, Any]) -> dict[str, Any]:
        said = self.message.model_dump(exclude_none=True, exclude={"parsed"})
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
            for call in said.get("tool_calls", [])
        ]
        filled = [said] if said.get("content") or results else []
        asked = results or [{"role": "user", "content": "And then?"}]
        return {**request, "messages": [*request["messages"], *filled, *asked]}

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
    vendor = VendorTable("simulated", ("127.0.0.1",), {"like": like, **settings})
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
    return play(Ran(prefix=prefix), how, sim, ask(**changes), playing(policy, like))


def limits(sim: Simulator) -> list[int | None]:
    """Return the limits of the model calls, in order, whatever their names."""
    return [next(iter(named(post).values()), None) for post in sim.posts]


def named(post: Any) -> dict[str, int]:
    """Return a request's limits by parameter."""
    body = body_of(post)
    return {k: body[k] for k in ("max_tokens", "max_completion_tokens") if k in body}


dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""As the simulator writes arguments."""


def written(cut: int | None = None) -> ToolUse:
    return ToolUse("Write", WRITE, cut=cut)


def plays(sim: Simulator, vendor: str, **manners: Any) -> None:
    """Have the simulator play a vendor."""
    sim.scenario = Scenario(vendor=vendor, **manners)
