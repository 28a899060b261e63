"""Runs one turn of Messages through the SDK of Anthropic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anthropic

from continuation import Policy
from continuation.simulator import Simulator
from support.sdks.turn import FAST, How, Turn, body_of, play

LONG = 600.0
"""The SDK's own default; set explicitly, it allows large limits without streaming."""
NEW = "claude-opus-5"
"""Takes no prefill; ceiling 128,000."""
OLD = "claude-haiku-4-5"
"""Takes a prefill; ceiling 64,000."""


@dataclass
class Ran(Turn):
    """A turn of Messages."""

    key: str = "key"

    def connect(self, url: str, *, asynchronous: bool) -> Any:
        make: Any = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
        return make(base_url=url, api_key=self.key, max_retries=self.retries)

    def create(self, client: Any, request: dict[str, Any]) -> Any:
        return client.messages.create(**{"timeout": LONG, **request})

    def stream(self, client: Any, request: dict[str, Any]) -> Any:
        return client.messages.stream(**request)

    def ended(self, stream: Any) -> Any:
        return stream.current_message_snapshot

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.said.content if block.type == "text")

    @property
    def says_cut(self) -> bool:
        return self.said.stop_reason in {"max_tokens", "model_context_window_exceeded"}

    @property
    def tool_calls(self) -> list[tuple[str, Any]]:
        return [(b.name, b.input) for b in self.said.content if b.type == "tool_use"]

    def following(self, request: dict[str, Any]) -> dict[str, Any]:
        content = [
            block.model_dump(exclude_none=True, exclude={"parsed_output"})
            for block in self.said.content
        ]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
            for block in content
            if block["type"] == "tool_use"
        ]
        said = [{"role": "assistant", "content": content}] if content else []
        asked = [{"role": "user", "content": results or "And then?"}]
        return {**request, "messages": [*request["messages"], *said, *asked]}

    @property
    def streamed(self) -> str:
        """The texts of the stream helper's text events."""
        return "".join(event.text for event in self.pieces if event.type == "text")

    @property
    def kinds(self) -> list[str]:
        """The types of all events of the stream."""
        return [event.type for event in self.pieces]

    @property
    def blocks(self) -> list[str]:
        return [block.type for block in self.said.content]


def ask(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a plain request."""
    plain: dict[str, Any] = {
        "model": NEW,
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "Go."}],
    }
    return {**plain, **changes}


def run(
    sim: Simulator, how: How, *, policy: Policy = FAST, key: str = "key", **changes: Any
) -> Ran:
    """Run one turn against the simulator."""
    return play(Ran(key=key), how, sim, ask(**changes), policy)


def limits(sim: Simulator) -> list[int]:
    """Return the limits of the model calls, in order."""
    return [body_of(post)["max_tokens"] for post in sim.posts]
