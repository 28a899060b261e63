"""The rules of repairs against the simulator's own, which share no code: on random histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.notation import DIALECTS, Json
from support.random_histories import made

from continuation.history import RepairPolicy, repair, validate
from continuation.limits import ModelLimits
from continuation.simulator.anthropic import rules as anthropic
from continuation.simulator.gemini import rules as gemini
from continuation.simulator.openai_chat import rules as openai_chat
from continuation.simulator.openai_responses import rules as openai_responses

_MODEL = ModelLimits(ceiling=64_000, thinking="adaptive")
_CHECKS: dict[str, Callable[[Json], list[str]]] = {
    "anthropic": lambda body: [fault.code for fault in anthropic.faults(body, _MODEL)],
    "openai-chat": lambda body: [fault.code for fault in openai_chat.faults(body, "openai")],
    "openai-responses": lambda body: [fault.code for fault in openai_responses.faults(body)],
    "gemini": lambda body: [fault.code for fault in gemini.faults(body, "", _MODEL)],
}
_FIELDS = {"anthropic": {"max_tokens": 100, "tools": [{"name": "t"}]}}


@pytest.mark.parametrize(
    ("dialect", "count"),
    [(dialect, 400) for dialect in DIALECTS]
    + [pytest.param(dialect, 6_000, marks=pytest.mark.slow) for dialect in DIALECTS],
)
def test_the_simulator_accepts_what_is_valid_and_refuses_what_is_not(
    dialect: str, count: int
) -> None:
    # The simulator refuses the end of a Chat history elsewhere: what it refuses depends on vendors.
    facts = None if dialect == "openai-chat" else _MODEL
    disagreed: list[tuple[int, list[str], list[str]]] = []
    unrepaired: list[tuple[int, list[str]]] = []
    for seed in range(count):
        _, history = made(dialect, seed)
        body = {**history, **_FIELDS.get(dialect, {})}
        ours = [each.code for each in validate(body, dialect, facts=facts, live=False)]
        theirs = _CHECKS[dialect](body)
        if bool(ours) != bool(theirs):
            disagreed.append((seed, ours, theirs))
        done = repair(body, dialect, policy=RepairPolicy(live=False), facts=facts)
        if left := _CHECKS[dialect](dict(done.body)):
            unrepaired.append((seed, left))
    assert (disagreed[:3], unrepaired[:3]) == ([], [])
