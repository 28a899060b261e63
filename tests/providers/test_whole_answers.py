"""Whole answers of every shape: no remedy fires, and they pass as they came."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from support import recorded_chat as chat
from support import recorded_gemini as gemini
from support import recorded_messages as messages
from support import recorded_responses as responses
from support.drive import JSON, STREAM, Answered, drive
from support.drive_chat import accumulate
from support.examples import examples
from support.recorded import POLICY, Events, Json, Wire

from continuation.types import Outcome

WORDS = [
    "The",
    "quick",
    "brown",
    "fox.",
    "Then:",
    "0",
    "null",
    "{}",
    "[]",
    "-",
    "*",
    "#",
    "|",
    "文字",
    "größer",
    "🙂",
    "nothing",
    "…",
    "end",
]


def line(rng: random.Random) -> str:
    """Return an answer that has thinking or not, texts, and calls or not."""
    said: list[str] = []
    if rng.random() < 0.3:
        said.append("th:" + "_".join(rng.choices(WORDS[:4], k=rng.randint(1, 9))))
    for _ in range(rng.randint(1, 3)):
        words = [word for word in rng.choices(WORDS, k=rng.randint(1, 30)) if word.isalnum()]
        said.append("t:" + "|".join(f"{word}_" for word in words or ["x"]))
    if rng.random() < 0.4:
        said.append(f'c:read|{{"a":|{rng.randint(0, 9)}}}')
    return " ".join(said)


def of_chat(rng: random.Random) -> Events:
    return chat.stream(line(rng))


def of_messages(rng: random.Random) -> Events:
    told = line(rng)
    return messages.stream(told, stop="tool_use" if "c:" in told else "end_turn")


def of_responses(rng: random.Random) -> Events:
    return responses.stream(line(rng).replace("t:", "m:"))


def of_gemini(rng: random.Random) -> Events:
    told = [part.partition("|")[0] for part in line(rng).split() if not part.startswith("c:")]
    call = ' c:read|{"a":1}' if rng.random() < 0.4 else ""
    return gemini.stream(" ".join(told) + call + " =STOP")


MAKES: dict[str, tuple[Wire, Callable[[random.Random], Events]]] = {
    "messages": (messages.WIRE, of_messages),
    "chat": (chat.WIRE, of_chat),
    "responses": (responses.WIRE, of_responses),
    "gemini": (gemini.WIRE, of_gemini),
}
BODIES: dict[str, Callable[[Events], Json]] = {
    "messages": messages.message_of,
    "chat": lambda events: accumulate([e for e in events if e != chat.DONE]).model_dump(
        mode="json"
    ),
    "responses": lambda events: events[-1]["response"],
}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", MAKES)
def test_no_remedy_fires_for_a_whole_answer(dialect: str) -> None:
    wire, make = MAKES[dialect]
    for number in range(examples(5_000)):
        events = make(random.Random(f"whole {dialect} {number}"))
        streamed = number % 2 == 0 or dialect not in BODIES
        raw = wire.encode(events) if streamed else json.dumps(BODIES[dialect](events)).encode()
        answer: Answered = (200, STREAM if streamed else JSON, [raw], None)
        asked = wire.request if dialect == "gemini" else {**wire.request, "stream": streamed}
        driven = drive(lambda _, answer=answer: answer, asked, POLICY, path=wire.path)  # type: ignore[misc]
        assert driven.report is not None
        assert driven.report.outcome is Outcome.COMPLETE, (number, events)
        assert len(driven.requests) == 1
        assert b"".join(driven.pieces) == raw
