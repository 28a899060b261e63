"""Runs one turn of Responses through the SDK of OpenAI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import openai

from continuation import Policy
from continuation.simulator import Simulator
from support.sdks.turn import FAST, How, Turn, body_of, play

MODEL = "gpt-5.4"
"""Ceiling 128,000."""
GO = {"type": "message", "role": "user", "content": "Go."}
CITY = {
    "format": {
        "type": "json_schema",
        "name": "city",
        "schema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
}
_LAST = {"response.completed", "response.incomplete", "response.failed"}


@dataclass
class Ran(Turn):
    """A turn of Responses; its streams go through the SDK's own state machine."""

    key: str = "key"

    def connect(self, url: str, *, asynchronous: bool) -> Any:
        make: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        return make(base_url=f"{url}/v1", api_key=self.key, max_retries=self.retries)

    def create(self, client: Any, request: dict[str, Any]) -> Any:
        return client.responses.create(**request)

    def stream(self, client: Any, request: dict[str, Any]) -> Any:
        return client.responses.stream(**request)

    def ended(self, stream: Any) -> Any:
        """Return the response in the one terminal event; None for a stream that broke off."""
        told = [event.response for event in self.pieces if event.type in _LAST]
        assert len(told) <= 1, "two terminal events"
        return told[0] if told else None

    @property
    def raw(self) -> list[Any]:
        return self.pieces

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.pieces]

    @property
    def numbers(self) -> list[int]:
        return [event.sequence_number for event in self.pieces]

    @property
    def streamed(self) -> str:
        deltas = [e.delta for e in self.pieces if e.type == "response.output_text.delta"]
        return "".join(deltas)

    @property
    def text(self) -> str:
        return str(self.said.output_text)

    @property
    def says_cut(self) -> bool:
        return str(self.said.status) == "incomplete"

    @property
    def tool_calls(self) -> list[tuple[str, Any]]:
        made = [item for item in self.said.output if item.type == "function_call"]
        return [(call.name, json.loads(call.arguments)) for call in made]

    def following(self, request: dict[str, Any]) -> dict[str, Any]:
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
            for item in self.output
            if item["type"] == "function_call"
        ]
        asked = results or [{"role": "user", "content": "And then?"}]
        return {**request, "input": [*request["input"], *self.output, *asked]}

    @property
    def items(self) -> list[str]:
        return [item.type for item in self.said.output]

    @property
    def output(self) -> list[dict[str, Any]]:
        """The output as a client sends it back."""
        return [item.to_dict() for item in self.said.output]


def ask(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a plain request; `None` leaves one out."""
    plain = {"model": MODEL, "max_output_tokens": 1000, "input": [GO], **changes}
    return {key: value for key, value in plain.items() if value is not None}


def run(
    sim: Simulator, how: How, *, policy: Policy = FAST, key: str = "key", **changes: Any
) -> Ran:
    """Run one turn against the simulator."""
    return play(Ran(key=key), how, sim, ask(**changes), policy)


def posts(sim: Simulator) -> list[dict[str, Any]]:
    """Return the bodies of the model calls, in order."""
    return [body_of(post) for post in sim.posts]


def limits(sim: Simulator) -> list[int | None]:
    return [body.get("max_output_tokens") for body in posts(sim)]
