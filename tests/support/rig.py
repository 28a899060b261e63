"""Runs one turn through the real SDK, in each of the four ways, and tells what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import anthropic
from anthropic.types import Message

import continuation
from continuation import Event, Policy, Report
from continuation.simulator import Recorded, Simulator

How = Literal["sync", "sync-stream", "async", "async-stream"]
HOWS: tuple[How, ...] = ("sync", "sync-stream", "async", "async-stream")

FAST = Policy(backoff_seconds=0.0)
"""The defaults, without the waiting."""

LONG = 600.0
"""The SDK's own default, said aloud: it lifts its guard on large limits without streaming."""

NEW = "claude-opus-5"
"""Takes no prefill; ceiling 128,000."""
OLD = "claude-haiku-4-5"
"""Takes a prefill; ceiling 64,000."""


@dataclass
class Ran:
    """One turn as its caller saw it."""

    message: Message | None
    report: Report | None
    error: Exception | None = None
    streamed: str = ""
    kinds: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report

    @property
    def said(self) -> Message:
        assert self.error is None, self.error
        assert self.message is not None
        return self.message

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.said.content if block.type == "text")

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


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Old models make the SDK warn; that is not what we test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def run(
    sim: Simulator, how: How, *, policy: Policy = FAST, key: str = "key", **changes: Any
) -> Ran:
    """Run one turn against the simulator."""
    with quietly():
        if how.startswith("async"):
            return asyncio.run(_async(sim, how, policy, key, ask(**changes)))
        return _sync(sim, how, policy, key, ask(**changes))


def _sync(sim: Simulator, how: How, policy: Policy, key: str, request: dict[str, Any]) -> Ran:
    ran = Ran(None, None)
    with anthropic.Anthropic(base_url=sim.url, api_key=key, max_retries=0) as bare:
        client = continuation.wrap(bare, config=policy, on_event=ran.events.append)
        try:
            if how == "sync":
                ran.message = client.messages.create(**request, timeout=LONG)
            else:
                with client.messages.stream(**request) as stream:
                    for event in stream:
                        ran.kinds.append(event.type)
                        ran.streamed += event.text if event.type == "text" else ""
                    ran.message = stream.get_final_message()
        except Exception as error:
            ran.error = error
        ran.report = continuation.last_report()
    return ran


async def _async(
    sim: Simulator, how: How, policy: Policy, key: str, request: dict[str, Any]
) -> Ran:
    ran = Ran(None, None)
    async with anthropic.AsyncAnthropic(base_url=sim.url, api_key=key, max_retries=0) as bare:
        client = continuation.wrap(bare, config=policy, on_event=ran.events.append)
        try:
            if how == "async":
                ran.message = await client.messages.create(**request, timeout=LONG)
            else:
                async with client.messages.stream(**request) as stream:
                    async for event in stream:
                        ran.kinds.append(event.type)
                        ran.streamed += event.text if event.type == "text" else ""
                    ran.message = await stream.get_final_message()
        except Exception as error:
            ran.error = error
        ran.report = continuation.last_report()
    return ran


def limits(sim: Simulator) -> list[int]:
    """Return the limits of the model calls, in order."""
    return [body_of(post)["max_tokens"] for post in sim.posts]


def body_of(post: Recorded) -> dict[str, Any]:
    assert post.body is not None
    return dict(post.body)
