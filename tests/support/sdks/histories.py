"""Sends a broken history through each wrapped SDK, and returns what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import continuation
from continuation import Event, Policy, Report
from continuation.simulator import Simulator
from support.notation import write
from support.sdks.formats import MAKES
from support.sdks.turn import FAST, How, Turn, body_of, play

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
MODELS = {
    "anthropic": "claude-opus-5",
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-5.4",
    "gemini": "gemini-3.1-pro",
}
TOOLS: Mapping[str, Any] = {"tools": [{"name": "tool", "input_schema": {"type": "object"}}]}
_TURNS = dict(zip(DIALECTS, MAKES.values(), strict=True))


@dataclass
class Ran:
    """One turn as its caller saw it, and what the server saw of it."""

    turn: Turn
    statuses: list[int]
    sent: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return self.turn.text if self.error is None else ""

    @property
    def error(self) -> Exception | None:
        return self.turn.error

    @property
    def told(self) -> Report:
        return self.turn.told

    @property
    def events(self) -> list[Event]:
        return self.turn.events


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
    how: How = "sync",
) -> Ran:
    """Send a history, and return what came back."""
    before = len(sim.posts)
    turn = play(_TURNS[dialect](), how, sim, _asked(dialect, body, limit, model), policy)
    return _ran(turn, sim, before)


def converse(
    sim: Simulator,
    dialect: str,
    bodies: list[dict[str, Any]],
    policy: Policy = FAST,
    limit: int = 1000,
) -> list[Ran]:
    """Send several histories by one client, which may remember the earlier ones."""
    told: list[Ran] = []
    with _TURNS[dialect]().connect(sim.url, asynchronous=False) as bare:
        client = continuation.wrap(bare, config=policy)
        for body in bodies:
            turn, before = _TURNS[dialect](), len(sim.posts)
            turn.answer = turn.create(client, _asked(dialect, body, limit, ""))
            turn.report = continuation.last_report()
            told.append(_ran(turn, sim, before))
    return told


def _asked(dialect: str, body: dict[str, Any], limit: int, model: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": model or MODELS[dialect], **body}
    if dialect == "gemini":
        asked["config"] = {"max_output_tokens": limit}
    else:
        asked["max_output_tokens" if dialect == "openai-responses" else "max_tokens"] = limit
    return asked


def _ran(turn: Turn, sim: Simulator, before: int) -> Ran:
    posts = sim.posts[before:]
    return Ran(turn, [post.status for post in posts], [body_of(post) for post in posts])
