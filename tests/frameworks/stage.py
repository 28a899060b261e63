"""What the tests of all frameworks share: what the model says, and how each answer is cut."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from continuation import Policy, Report
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Reply, Simulator, Text, ToolUse
from continuation.types import Outcome

FAST = Policy(backoff_seconds=0.0, forced_tool_choice="heal")
"""The defaults, without the waiting; frameworks force a call for structured output."""

CLAUDE = "claude-opus-5"
GPT = "gpt-4o"
GEMINI = "gemini-2.5-flash"

LIMIT = 300
"""Of output tokens; `ANSWER` needs more than twice as many."""

ANSWER = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))


class Essay(BaseModel):
    """What structured output is asked for as."""

    title: str
    sections: list[str]


ESSAY = Essay(title="Tides", sections=["What the moon does.", "What the sun does.", "Both."])

WEATHER = {"city": "Zürich", "days": "Monday to Friday", "detail": "hour by hour"}


def module(name: str) -> Any:
    """Return a module; skip the tests where its package is not installed."""
    pytest.importorskip(name.partition(".")[0])
    return importlib.import_module(name)


def run(asked: Any) -> Any:
    """Return an answer; what is asynchronous is awaited, or all its pieces are, in a loop."""

    async def awaited() -> Any:
        answer = await asked if inspect.iscoroutine(asked) else asked
        return [piece async for piece in answer] if hasattr(answer, "__aiter__") else answer

    is_async = inspect.iscoroutine(asked) or inspect.isasyncgen(asked)
    return asyncio.run(awaited()) if is_async else asked


def client() -> httpx2.Client:
    """Return a client that keeps no connection, so that none is left when nobody closes it."""
    return httpx2.Client(timeout=600.0, limits=httpx2.Limits(max_keepalive_connections=0))


def async_client() -> httpx2.AsyncClient:
    """Return its twin; each `run` is an event loop of its own, which a connection would outlive."""
    return httpx2.AsyncClient(timeout=600.0, limits=httpx2.Limits(max_keepalive_connections=0))


@dataclass(frozen=True)
class Stage:
    """A model that is cut off, and the reports of the turns it was asked for."""

    sim: Simulator
    turns: Sequence[Report]

    @property
    def url(self) -> str:
        return self.sim.url

    @property
    def openai_url(self) -> str:
        return self.sim.url + "/v1"

    # --- how an answer is cut; a text is cut by LIMIT ---------------------------------------

    def truncated_tool_call(self, name: str, arguments: Mapping[str, Any], then: str = "") -> None:
        """Cut a call in its arguments, once; `then` is what the model says to its result."""
        cut = Reply([ToolUse(name, arguments, cut=25)], stop="max_tokens")
        whole = Reply([ToolUse(name, arguments)], stop="tool_use")
        self.sim.script([cut, whole, *([Reply([Text(then)])] if then else [])])

    def truncated_essay(self, *, called: bool) -> None:
        """Cut the essay once: the arguments of a call, or JSON text."""
        if called:
            self.truncated_tool_call("Essay", ESSAY.model_dump())
            return
        document = ESSAY.model_dump_json()
        cut = Reply([Text(document[:25])], stop="max_tokens")
        self.sim.script([cut, Reply([Text(document)])])

    def lose_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Cut a call, and cut it again at the ceiling."""
        cut = Reply([ToolUse(name, arguments, cut=25)], stop="max_tokens")
        self.sim.script([cut, cut])

    # --- what became of it ------------------------------------------------------------------

    def assert_healed(self) -> None:
        """One turn was cut, and is whole."""
        (turn,) = self.turns
        assert turn.outcome is Outcome.HEALED, turn.reason
        assert len(self.sim.posts) > 1

    def assert_escalated(self) -> None:
        """It was made whole by the same request with a larger limit, and by nothing else."""
        self.assert_healed()
        first, second = (dict(post.body or {}) for post in self.sim.posts)
        assert _limit(second) > _limit(first)
        turns = "contents" if "contents" in first else "messages"
        assert second[turns] == first[turns]
        said = json.dumps(second[turns], ensure_ascii=False)
        assert not looks_like_recovery_prompt(said)


def _limit(body: dict[str, Any]) -> int:
    body = body.get("generationConfig", body)
    names = ("max_completion_tokens", "max_tokens", "maxOutputTokens")
    return next(int(body[name]) for name in names if name in body)
