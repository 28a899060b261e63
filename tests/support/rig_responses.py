"""Runs one Responses turn through the real SDK, in each of the four ways."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import openai

import continuation
from continuation import Event, Policy, Report
from continuation.simulator import Simulator
from support.rig import FAST, HOWS, How, body_of

__all__ = ["CITY", "FAST", "GO", "HOWS", "MODEL", "How", "Ran", "ask", "body_of", "posts", "run"]

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


@dataclass
class Ran:
    """One turn as its caller saw it."""

    response: Any = None
    report: Report | None = None
    error: Exception | None = None
    streamed: str = ""
    kinds: list[str] = field(default_factory=list[str])
    numbers: list[int] = field(default_factory=list[int])
    raw: list[Any] = field(default_factory=list[Any])
    events: list[Event] = field(default_factory=list[Event])

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report

    @property
    def said(self) -> Any:
        assert self.error is None, self.error
        assert self.response is not None
        return self.response

    @property
    def text(self) -> str:
        return str(self.said.output_text)

    @property
    def items(self) -> list[str]:
        return [item.type for item in self.said.output]

    @property
    def output(self) -> list[dict[str, Any]]:
        """The output as a client sends it back."""
        return [item.to_dict() for item in self.said.output]

    def take(self, event: Any) -> None:
        """Take in an event of the stream; the last one carries the response."""
        self.raw.append(event)
        self.kinds.append(event.type)
        self.numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            self.streamed += event.delta
        if event.type in {"response.completed", "response.incomplete", "response.failed"}:
            assert self.response is None, "two terminal events"
            self.response = event.response


def ask(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a plain request; `None` leaves one out."""
    plain = {"model": MODEL, "max_output_tokens": 1000, "input": [GO], **changes}
    return {key: value for key, value in plain.items() if value is not None}


def run(
    sim: Simulator, how: How, *, policy: Policy = FAST, key: str = "key", **changes: Any
) -> Ran:
    """Run one turn against the simulator; streams go through the SDK's own state machine."""
    if how.startswith("async"):
        return asyncio.run(_async(sim, how, policy, key, ask(**changes)))
    return _sync(sim, how, policy, key, ask(**changes))


def _sync(sim: Simulator, how: How, policy: Policy, key: str, request: dict[str, Any]) -> Ran:
    ran = Ran()
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key=key, max_retries=0) as bare:
        client = continuation.wrap(bare, config=policy, on_event=ran.events.append)
        try:
            if how == "sync":
                ran.response = client.responses.create(**request)
            else:
                with client.responses.stream(**request) as stream:
                    for event in stream:
                        ran.take(event)
        except Exception as error:
            ran.error = error
        ran.report = continuation.last_report()
    return ran


async def _async(
    sim: Simulator, how: How, policy: Policy, key: str, request: dict[str, Any]
) -> Ran:
    ran = Ran()
    async with openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key=key, max_retries=0) as bare:
        client = continuation.wrap(bare, config=policy, on_event=ran.events.append)
        try:
            if how == "async":
                ran.response = await client.responses.create(**request)
            else:
                async with client.responses.stream(**request) as stream:
                    async for event in stream:
                        ran.take(event)
        except Exception as error:
            ran.error = error
        ran.report = continuation.last_report()
    return ran


def posts(sim: Simulator) -> list[dict[str, Any]]:
    """Return the bodies of the model calls, in order."""
    return [body_of(post) for post in sim.posts]


def limits(sim: Simulator) -> list[int | None]:
    return [body.get("max_output_tokens") for body in posts(sim)]
