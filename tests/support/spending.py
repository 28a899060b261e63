"""What a turn spends of calls, tokens and time on a provider that behaves badly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from continuation import Policy, Report
from support.drive import (
    JSON,
    STREAM,
    Answered,
    Clock,
    Driven,
    call_block,
    closing,
    drive,
    opening,
    sse,
    text_block,
)
from support.sdks.messages import ask

LIMIT = 1000


@dataclass
class Spent:
    """What a turn took: the times at which its calls began, their limits, and its waits."""

    begun: list[float] = field(default_factory=list[float])
    limits: list[int] = field(default_factory=list[int])
    waits: list[float] = field(default_factory=list[float])
    generated: int = 0
    report: Report | None = None

    @property
    def told(self) -> Report:
        assert self.report is not None
        return self.report


def spend(
    moves: Iterator[str],
    policy: Policy,
    *,
    stream: bool = True,
    seconds: float = 0.0,
    limit: int = LIMIT,
    timeout: float | None = None,
) -> Spent:
    """Run a turn; each call takes `seconds` of a clock that only calls and waits move."""
    spent, clock = Spent(), Clock()

    def provider(body: dict[str, Any]) -> Answered:
        answered = _answer(body, moves, spent, clock.now)
        clock.now += seconds
        return answered

    asked = ask(max_tokens=limit, stream=stream, model="claude-haiku-4-5")
    driven = drive(provider, asked, policy, timeout=timeout, clock=clock)
    spent.waits, spent.report = driven.waits, driven.report
    return spent


def _answer(body: dict[str, Any], moves: Iterator[str], spent: Spent, now: float) -> Answered:
    move = next(moves)
    spent.begun.append(now)
    spent.limits.append(body["max_tokens"])
    if move in ERRORS:
        status, headers, message = ERRORS[move]
        error = {"type": "error", "error": {"type": "e", "message": message}}
        return status, {**JSON, **headers}, [json.dumps(error).encode()], None
    if move == "lost":
        return 0, {}, [], ConnectionError()
    spent.generated += body["max_tokens"]
    opened = [opening(), *_blocks(move, len(spent.begun))]
    stop = "end_turn" if move == "end" else "max_tokens"
    events = [*opened, *closing(stop, body["max_tokens"])]
    if not body.get("stream"):
        return _whole(events, move)
    if move == "drop":
        return 200, STREAM, [sse(opened[:-1])], ConnectionResetError()
    return 200, STREAM, [sse(events)], None


ERRORS: dict[str, tuple[int, dict[str, str], str]] = {
    "429": (429, {}, "slow down"),
    "429 later": (429, {"retry-after": "50"}, "slow down"),
    "529": (529, {}, "overloaded"),
    "400": (400, {}, "no"),
    "ceiling": (400, {}, "max_tokens: 9 > 2000, which is the maximum allowed number"),
    "prefill": (400, {}, "This model does not support assistant message prefill."),
}


def _blocks(move: str, number: int) -> list[dict[str, Any]]:
    said = f"{number}: something new, and more of it, {number * 7919}."
    if move == "call":
        return [*text_block(0, [said]), *call_block(1, ['{"path": "a'])]
    if move == "empty":
        return []
    return text_block(0, [said])


def _whole(events: list[dict[str, Any]], move: str) -> Answered:
    raw = Driven(pieces=[sse(events)]).message.model_dump_json().encode()
    if move == "drop":
        return 200, JSON, [raw[: len(raw) // 2]], ConnectionResetError()
    return 200, JSON, [raw], None


def repeat(*moves: str) -> Iterator[str]:
    """Play these moves, the last one for ever."""
    yield from moves
    while True:
        yield moves[-1]
