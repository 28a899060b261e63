"""The decision table itself: each row by a situation of its own, and the document that shows it."""

from __future__ import annotations

import itertools
from typing import Any

import draw_tables
import pytest

from continuation.engine.table import (
    ANSWERS,
    ENDINGS,
    OPENINGS,
    ROWS,
    Action,
    Again,
    Closing,
    Ending,
    Held,
    OpeningFacts,
    Row,
    Situation,
    decide,
    ending,
    first_fit,
)
from continuation.types import AttemptResult, Outcome, Stop, StopWord, ToolCallState

RESULT = frozenset(AttemptResult.__slots__)


def situation(**facts: Any) -> Situation:
    """Return a situation, its attempt's result told among the other facts."""
    result = AttemptResult(**{name: fact for name, fact in facts.items() if name in RESULT})
    rest = {name: fact for name, fact in facts.items() if name not in RESULT}
    return Situation(result=result, **rest)


# --- what happens after an attempt ----------------------------------------------------------------

CASES: list[tuple[str, dict[str, Any], Action, Outcome | None]] = [
    (
        "known by its labels only, and they do not settle it",
        {"stop": Stop.END, "used_up": True, "looked": False},
        Action.LOOK,
        None,
    ),
    (
        "a recovery failed, and a budget is spent",
        {
            "stop": Stop.LENGTH,
            "recovering": True,
            "failed": True,
            "text": True,
            "spent": "max_turn_seconds spent",
        },
        Action.STOP,
        Outcome.PARTIAL,
    ),
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
        "a recovery only said the same again",
        {"stop": Stop.LENGTH, "recovering": True, "stalled": True, "text": True},
        Action.FINISH,
        Outcome.STALLED,
    ),
    (
        "a recovery had nothing to add",
        {"stop": Stop.END, "recovering": True, "made_progress": False, "at_end": True},
        Action.FINISH,
        Outcome.HEALED,
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
    (
        "dropped behind calls that are whole",
        {"stop": Stop.DROPPED, "call": ToolCallState.WHOLE},
        Action.STOP,
        Outcome.PARTIAL,
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
        "cut behind calls that are whole",
        {"stop": Stop.LENGTH, "call": ToolCallState.WHOLE, "below": True},
        Action.FINISH,
        Outcome.TRUNCATED,
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


@pytest.mark.parametrize(("row", "facts", "action", "outcome"), CASES, ids=lambda c: str(c))
def test_each_row(row: str, facts: dict[str, Any], action: Action, outcome: Outcome | None) -> None:
    decision = decide(situation(**facts))
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
            decision = decide(
                situation(stop=stop, call=call, **dict(zip(flags, values, strict=True)))
            )
            whole = decision.outcome in {None, Outcome.COMPLETE, Outcome.HEALED}
            assert whole or decision.reason


def test_a_call_is_never_answered_with_a_recovery_turn() -> None:
    for call in (ToolCallState.WHOLE, ToolCallState.CUT):
        for shown, below in itertools.product((False, True), repeat=2):
            facts = situation(stop=Stop.LENGTH, text=True, call=call, shown=shown, below=below)
            assert decide(facts).action is not Action.RECOVER


def test_what_cannot_be_lifted_is_only_asked_for_again() -> None:
    flags = ("text", "shown", "below", "later", "drops")
    again = {Action.ESCALATE, Action.ESCALATE_BEHIND, Action.RESEND, Action.RESEND_BEHIND}
    over = {Action.FINISH, Action.STOP, Action.CUT_CALL, Action.RAISE}
    for stop, call in itertools.product(set(Stop) - {Stop.PAUSED}, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            chosen = dict(zip(flags, values, strict=True))
            assert decide(situation(stop=stop, call=call, structured=True, **chosen)).action in (
                again | over
            )


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_is_whole_needs_no_reason(later: bool) -> None:
    whole = situation(
        stop=Stop.END, text=True, later=later, not_resumable="an odd block", spent="tokens"
    )
    assert decide(whole).reason is None
    cut = situation(stop=Stop.LENGTH, not_resumable="an odd block")
    assert decide(cut).reason == "an odd block"


def test_a_condition_on_no_fact_at_all_is_a_mistake_that_shows() -> None:
    rows = (Row("misspelt", Action.FINISH, when={"stopp": Stop.END}),)
    with pytest.raises(KeyError, match="stopp"):
        first_fit(rows, AttemptResult(stop=Stop.END))
    with pytest.raises(LookupError):
        first_fit((), AttemptResult(stop=Stop.END))


# --- which of two answers stands --------------------------------------------------------------

ANSWER_CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("brought what follows", {"stop": Stop.LENGTH}, {"replaces": False}),
    ("was shown", {"stop": Stop.LENGTH, "shown": True}, {"shorter": True}),
    (
        "is whole, or its calls are",
        {"stop": Stop.LENGTH, "call": ToolCallState.WHOLE},
        {"shorter": True},
    ),
    ("says as little as the one in hand", {"stop": Stop.REFUSED}, {}),
    ("broke off, and is longer all the same", {"stop": Stop.DROPPED}, {"longer": True}),
    ("is no shorter", {"stop": Stop.LENGTH}, {"held_text": True}),
    ("was cut: there is no room at this limit", {"stop": Stop.LENGTH}, {"shorter": True}),
    ("broke off, the one in hand did not", {"stop": Stop.DROPPED}, {"resendable": False}),
    ("broke off", {"stop": Stop.DROPPED}, {}),
    ("is no better", {"stop": Stop.END}, {"held_text": True}),
]


@pytest.mark.parametrize(("row", "result", "known"), ANSWER_CASES)
def test_each_row_of_what_stands(row: str, result: dict[str, Any], known: dict[str, Any]) -> None:
    again = Again(**{"replaces": True, **known})
    found, _ = first_fit(ANSWERS, AttemptResult(**result), again)
    assert found.name == row


def test_no_row_of_what_stands_is_without_a_case() -> None:
    assert [row.name for row in ANSWERS] == [row for row, _, _ in ANSWER_CASES]


# --- is the turn ours? ----------------------------------------------------------------------------

OPENING_CASES: list[tuple[str, dict[str, Any], Action, Outcome | None, str | None]] = [
    ("no answer came", {"failed": True}, Action.RAISE, Outcome.FAILED, "the request failed"),
    (
        "refused: the limit was spent without a word",
        {"ok": False, "status": 400, "consumed": True},
        Action.ESCALATE,
        None,
        None,
    ),
    (
        "an error answer to a repaired request",
        {"ok": False, "status": 400, "repaired": True},
        Action.PASS_ON,
        Outcome.FAILED,
        "status 400 after the history was repaired",
    ),
    (
        "an error answer",
        {"ok": False, "status": 529, "enabled": False},
        Action.PASS_ON,
        Outcome.FAILED,
        "status 529",
    ),
    (
        "the request cannot be read",
        {"unreadable": "no JSON"},
        Action.PASS_ON,
        Outcome.UNTOUCHED,
        "no JSON",
    ),
    (
        "the request is of a kind we leave alone",
        {"reserved": "a forced call", "small": True},
        Action.PASS_ON,
        Outcome.UNTOUCHED,
        "a forced call",
    ),
    (
        "switched off",
        {"enabled": False, "small": True},
        Action.PASS_ON,
        Outcome.UNTOUCHED,
        "switched off by policy",
    ),
    (
        "the limit is small",
        {"small": True, "limit": 100, "leave_limits_below": 256},
        Action.PASS_ON,
        Outcome.UNTOUCHED,
        "limit 100 is below leave_limits_below 256",
    ),
    (
        "the answer is of another type",
        {"known_kind": False, "kind": "text/html"},
        Action.PASS_ON,
        Outcome.UNTOUCHED,
        "the answer is of type 'text/html'",
    ),
    ("ours to heal", {}, Action.READ, None, None),
]


@pytest.mark.parametrize(("row", "facts", "action", "outcome", "reason"), OPENING_CASES)
def test_each_opening(
    row: str, facts: dict[str, Any], action: Action, outcome: Outcome | None, reason: str | None
) -> None:
    decision = decide(OpeningFacts(**facts))
    assert (decision.row, decision.action) == (row, action)
    assert (decision.outcome, decision.reason) == (outcome, reason)


def test_every_opening_has_a_case_in_its_order() -> None:
    assert [row.name for row in OPENINGS] == [case[0] for case in OPENING_CASES]


# --- how an answer ends ---------------------------------------------------------------------------

HEALED: dict[str, Any] = {"action": Action.FINISH, "outcome": Outcome.HEALED}
COMPLETE: dict[str, Any] = {"action": Action.FINISH, "outcome": Outcome.COMPLETE}
CUT: dict[str, Any] = {"action": Action.FINISH, "outcome": Outcome.TRUNCATED}
STOPPED: dict[str, Any] = {"action": Action.STOP, "outcome": Outcome.PARTIAL}
CUT_CALL: dict[str, Any] = {"action": Action.CUT_CALL, "outcome": Outcome.TRUNCATED}
AS_IT_CAME: tuple[StopWord | None, Held] = (None, Held.ALL)

ENDING_CASES: list[
    tuple[str, dict[str, Any], dict[str, Any], tuple[StopWord | None, Held], Outcome | None]
] = [
    (
        "the first answer could not be read",
        COMPLETE,
        {"stop": Stop.END, "opened": False},
        AS_IT_CAME,
        Outcome.UNTOUCHED,
    ),
    ("the first answer is whole", COMPLETE, {"stop": Stop.END}, AS_IT_CAME, None),
    (
        "not whole, and an exception is wanted",
        {**STOPPED, "on_failure": "raise"},
        {"stop": Stop.DROPPED},
        (StopWord.RAISED, Held.FIT),
        None,
    ),
    (
        "the joined text is not whole JSON, and an exception is wanted",
        {**HEALED, "on_failure": "raise", "half_document": True},
        {"stop": Stop.END, "later": True},
        (StopWord.RAISED, Held.FIT),
        Outcome.TRUNCATED,
    ),
    (
        "half a call is out, and an exception is wanted",
        {**HEALED, "on_failure": "raise", "half_call": True},
        {"stop": Stop.END, "later": True},
        (StopWord.RAISED, Held.FIT),
        Outcome.TRUNCATED,
    ),
    (
        "the first answer holds calls that are whole",
        CUT,
        {"stop": Stop.LENGTH, "call": ToolCallState.WHOLE},
        AS_IT_CAME,
        None,
    ),
    (
        "a call was cut by a full window",
        CUT_CALL,
        {"stop": Stop.WINDOW, "call": ToolCallState.CUT},
        (StopWord.OWN, Held.BY_POLICY),
        None,
    ),
    (
        "a call was cut",
        CUT_CALL,
        {"stop": Stop.LENGTH, "call": ToolCallState.CUT},
        (StopWord.TRUNCATED, Held.BY_POLICY),
        None,
    ),
    (
        "stopped, and a synthetic end would be wrong or unwanted",
        {**STOPPED, "half_call": True},
        {"stop": Stop.DROPPED},
        (StopWord.TRUNCATED, Held.FIT),
        None,
    ),
    ("stopped", STOPPED, {"stop": Stop.DROPPED}, (StopWord.ENDED, Held.ALL), None),
    (
        "the joined text is not whole JSON",
        {**HEALED, "half_document": True},
        {"stop": Stop.END, "later": True, "structured": True},
        (StopWord.TRUNCATED, Held.FIT),
        Outcome.TRUNCATED,
    ),
    (
        "half a call is out",
        {**HEALED, "half_call": True},
        {"stop": Stop.END, "later": True},
        (StopWord.TRUNCATED, Held.ALL),
        Outcome.TRUNCATED,
    ),
    (
        "half a call is out, refused",
        {**HEALED, "half_call": True},
        {"stop": Stop.REFUSED, "later": True},
        (StopWord.OWN, Held.ALL),
        Outcome.TRUNCATED,
    ),
    ("cut", CUT, {"stop": Stop.LENGTH}, (StopWord.TRUNCATED, Held.FIT), None),
    (
        "no reason ever came",
        {**CUT, "outcome": Outcome.PARTIAL},
        {"stop": Stop.PAUSED, "raw": None, "closed": False},
        (StopWord.TRUNCATED, Held.FIT),
        None,
    ),
    (
        "ended",
        HEALED,
        {"stop": Stop.END, "raw": "end_turn", "later": True},
        (StopWord.OWN, Held.ALL),
        None,
    ),
]


@pytest.mark.parametrize(("row", "closing", "facts", "end", "outcome"), ENDING_CASES)
def test_each_ending(
    row: str,
    closing: dict[str, Any],
    facts: dict[str, Any],
    end: tuple[StopWord | None, Held],
    outcome: Outcome | None,
) -> None:
    found = ending(Closing(**closing), situation(**facts))
    assert (found.name, (found.stop, found.held), found.outcome) == (row, end, outcome)


def test_every_ending_has_a_case_in_its_order() -> None:
    assert [row.name for row in ENDINGS] == [case[0] for case in ENDING_CASES]


@pytest.mark.parametrize("reason", ["structured", "half_call", "on_failure"])
def test_a_synthetic_end_never_stands_behind_half_a_document_or_half_a_call(reason: str) -> None:
    more: dict[str, Any] = {
        "half_call": {"half_call": True},
        "on_failure": {"on_failure": "truncated"},
    }
    closing = Closing(**STOPPED, **more.get(reason, {}))
    found = ending(closing, situation(stop=Stop.DROPPED, structured=reason == "structured"))
    assert found.stop is StopWord.TRUNCATED


@pytest.mark.parametrize("policy", ["explain", "drop", "keep", "retry_smaller"])
def test_half_a_call_that_a_filter_cut_is_kept_only_by_policy(policy: str) -> None:
    refused = situation(stop=Stop.REFUSED, call=ToolCallState.CUT, raw="refusal")
    found = ending(Closing(**COMPLETE, truncated_tool_call=policy), refused)
    assert (found.stop is None) is (policy == "keep")


def test_every_decision_that_ends_a_turn_has_an_ending() -> None:
    """Whatever the table decides, and whatever the answer holds."""
    flags = ("later", "closed", "structured", "half_call", "half_document")
    over = [row for row in ROWS if row.outcome is not None and row.action is not Action.RAISE]
    for row, stop, call in itertools.product(over, Stop, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            later, closed, structured, half_call, half_document = values
            assert row.outcome is not None
            found = ending(
                Closing(
                    action=row.action,
                    outcome=row.outcome,
                    half_call=half_call,
                    half_document=half_document,
                ),
                situation(stop=stop, call=call, later=later, closed=closed, structured=structured),
            )
            runnable = found.stop in {StopWord.OWN, StopWord.ENDED} and stop is Stop.END
            assert not (runnable and half_call and later)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_shows_the_tables() -> None:
    page = draw_tables.PAGE.read_text(encoding="utf-8")
    assert draw_tables.with_drawings(page) == page, "run: python scripts/draw_tables.py --write"
    rows: list[Row | Ending] = [*OPENINGS, *ROWS, *ENDINGS]
    for row in rows:
        assert f"| {row.name} | {draw_tables.condition(row)} |" in page
