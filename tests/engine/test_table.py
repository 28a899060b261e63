"""The decision table itself: each row by a situation of its own, and the document that shows it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from continuation.engine.table import ROWS, Action, Situation, decide
from continuation.types import Outcome, Stop, ToolCallState

CASES: list[tuple[str, dict[str, Any], Action, Outcome | None]] = [
    (
        "a recovery failed for good",
        {"stop": Stop.LENGTH, "recovering": True, "failed": True, "text": True},
        Action.STOP,
        Outcome.PARTIAL,
    ),
    (
        "a recovery was refused",
        {"stop": Stop.REFUSED, "recovering": True, "later": True, "text": True},
        Action.STOP,
        Outcome.PARTIAL,
    ),
    (
        "the text repeats itself",
        {"stop": Stop.LENGTH, "stalled": True, "text": True},
        Action.STOP,
        Outcome.STALLED,
    ),
    (
        "a recovery was empty",
        {"stop": Stop.END, "recovering": True, "later": True, "made_progress": False, "text": True},
        Action.STOP,
        Outcome.PARTIAL,
    ),
    (
        "ended normally after a later attempt",
        {"stop": Stop.END, "later": True, "text": True},
        Action.FINISH,
        Outcome.HEALED,
    ),
    ("ended normally", {"stop": Stop.END, "text": True}, Action.FINISH, Outcome.COMPLETE),
    (
        "the context window is full, a call was cut",
        {"stop": Stop.WINDOW, "call": ToolCallState.CUT},
        Action.CUT_CALL,
        Outcome.TRUNCATED,
    ),
    (
        "the context window is full",
        {"stop": Stop.WINDOW, "text": True, "below": True},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    (
        "dropped before the first event",
        {"stop": Stop.DROPPED, "opened": False},
        Action.RAISE,
        Outcome.FAILED,
    ),
    (
        "dropped, nothing in hand, none left",
        {"stop": Stop.DROPPED, "drops": False},
        Action.RAISE,
        Outcome.FAILED,
    ),
    (
        "a budget is spent, a call was cut",
        {"stop": Stop.LENGTH, "spent": "s", "call": ToolCallState.CUT, "text": True, "below": True},
        Action.CUT_CALL,
        Outcome.PARTIAL,
    ),
    (
        "a budget is spent, a stream dropped",
        {"stop": Stop.DROPPED, "spent": "s", "text": True},
        Action.STOP,
        Outcome.PARTIAL,
    ),
    (
        "a budget is spent",
        {"stop": Stop.LENGTH, "spent": "s", "text": True, "below": True},
        Action.FINISH,
        Outcome.PARTIAL,
    ),
    (
        "dropped behind a checkpoint",
        {"stop": Stop.DROPPED, "token": True, "text": True, "shown": True},
        Action.CHECKPOINT,
        None,
    ),
    ("dropped, nothing shown, no text to go on from", {"stop": Stop.DROPPED}, Action.RESEND, None),
    (
        "dropped, text shown, then a call",
        {"stop": Stop.DROPPED, "text": True, "shown": True, "call": ToolCallState.CUT},
        Action.RESEND_BEHIND,
        None,
    ),
    (
        "dropped, visible text, no call",
        {"stop": Stop.DROPPED, "text": True, "shown": True},
        Action.RESUME,
        None,
    ),
    (
        "dropped, a call stays cut",
        {"stop": Stop.DROPPED, "text": True, "call": ToolCallState.CUT, "drops": False},
        Action.CUT_CALL,
        Outcome.PARTIAL,
    ),
    (
        "dropped for good",
        {"stop": Stop.DROPPED, "text": True, "drops": False},
        Action.STOP,
        Outcome.PARTIAL,
    ),
    ("a hop ended with a token", {"stop": Stop.PAUSED, "token": True}, Action.TOKEN, None),
    (
        "a hop ended without a new token",
        {"stop": Stop.PAUSED, "text": True},
        Action.FINISH,
        Outcome.PARTIAL,
    ),
    (
        "cut, the provider gave a token",
        {"stop": Stop.LENGTH, "token": True, "below": True},
        Action.TOKEN,
        None,
    ),
    (
        "cut below the ceiling, nothing shown",
        {"stop": Stop.LENGTH, "below": True, "text": True},
        Action.ESCALATE,
        None,
    ),
    (
        "cut below the ceiling, text shown, then a call",
        {
            "stop": Stop.LENGTH,
            "below": True,
            "shown": True,
            "text": True,
            "call": ToolCallState.CUT,
        },
        Action.ESCALATE_BEHIND,
        None,
    ),
    (
        "cut below the ceiling, text shown",
        {"stop": Stop.LENGTH, "below": True, "shown": True, "text": True},
        Action.RECOVER,
        None,
    ),
    (
        "cut at the ceiling, a call cut, guidance asked for",
        {"stop": Stop.LENGTH, "call": ToolCallState.CUT, "retry_smaller": True},
        Action.RETRY_SMALLER,
        None,
    ),
    (
        "cut at the ceiling, a call cut",
        {"stop": Stop.LENGTH, "call": ToolCallState.CUT, "text": True},
        Action.CUT_CALL,
        Outcome.TRUNCATED,
    ),
    (
        "cut at the ceiling, calls whole",
        {"stop": Stop.LENGTH, "call": ToolCallState.WHOLE, "text": True},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    (
        "cut at the ceiling, the turn cannot be gone on from",
        {"stop": Stop.LENGTH, "text": True, "not_resumable": "s"},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    (
        "cut at the ceiling, no visible text, less thinking asked for",
        {"stop": Stop.LENGTH, "think_less": True},
        Action.THINK_LESS,
        None,
    ),
    (
        "cut at the ceiling, no visible text",
        {"stop": Stop.LENGTH},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    (
        "cut at the ceiling, structured output",
        {"stop": Stop.LENGTH, "text": True, "structured": True, "shown": True, "liftable": True},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
    ("cut at the ceiling, visible text", {"stop": Stop.LENGTH, "text": True}, Action.RECOVER, None),
    (
        "cut, all recoveries used",
        {"stop": Stop.LENGTH, "text": True, "recoveries": False},
        Action.FINISH,
        Outcome.TRUNCATED,
    ),
]


@pytest.mark.parametrize(("row", "situation", "action", "outcome"), CASES, ids=lambda c: str(c))
def test_each_row(
    row: str, situation: dict[str, Any], action: Action, outcome: Outcome | None
) -> None:
    decision = decide(Situation(**situation))
    assert (decision.row, decision.action, decision.outcome) == (row, action, outcome)


def test_every_row_has_a_case_in_its_order() -> None:
    assert [row.name for row in ROWS] == [case[0] for case in CASES]


def test_every_situation_has_a_row_and_every_ending_a_reason() -> None:
    flags = (
        "text",
        "shown",
        "below",
        "recovering",
        "made_progress",
        "recoveries",
        "drops",
        "structured",
    )
    for stop, call in itertools.product(Stop, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            chosen = dict(zip(flags, values, strict=True))
            decision = decide(Situation(stop=stop, call=call, **chosen))  # type: ignore[arg-type]
            whole = decision.outcome in {None, Outcome.COMPLETE, Outcome.HEALED}
            assert whole or decision.reason


def test_a_call_is_never_answered_with_a_recovery_turn() -> None:
    for call in (ToolCallState.WHOLE, ToolCallState.CUT):
        for shown, below in itertools.product((False, True), repeat=2):
            situation = Situation(stop=Stop.LENGTH, text=True, call=call, shown=shown, below=below)
            assert decide(situation).action is not Action.RECOVER


def test_where_a_call_is_forced_nothing_is_sent_but_the_same_again() -> None:
    flags = ("text", "shown", "below", "recovering", "later", "retry_smaller", "drops")
    again = {Action.ESCALATE, Action.ESCALATE_BEHIND, Action.RESEND, Action.RESEND_BEHIND}
    over = {Action.FINISH, Action.STOP, Action.CUT_CALL, Action.RAISE}
    for stop, call in itertools.product(set(Stop) - {Stop.PAUSED}, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            chosen = dict(zip(flags, values, strict=True))
            situation = Situation(stop=stop, call=call, structured=True, **chosen)  # type: ignore[arg-type]
            assert decide(situation).action in again | over


def test_the_document_shows_the_table_row_by_row() -> None:
    page = Path(__file__).parents[2] / "design" / "decision-table.md"
    text = page.read_text(encoding="utf-8")
    shown = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert [row for row in shown if row in {r.name for r in ROWS}] == [r.name for r in ROWS]


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_is_whole_needs_no_reason(later: bool) -> None:
    whole = Situation(
        stop=Stop.END, text=True, later=later, not_resumable="an odd block", spent="tokens"
    )
    assert decide(whole).reason is None
    assert (
        decide(Situation(stop=Stop.LENGTH, not_resumable="an odd block")).reason == "an odd block"
    )
