"""Labels and what speaks against them: each rule by cases of its own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from continuation.engine.table import (
    Action,
    Again,
    Evidence,
    Situation,
    Stands,
    believed,
    decide,
    standing,
)
from continuation.engine.turn import used_up
from continuation.types import AttemptResult, Stop, ToolCallState, Usage


def goes_out_unread(result: AttemptResult) -> bool:
    """Whether a first answer is let through on the word of its labels."""
    return decide(Situation(result=result, looked=False)).action is not Action.LOOK


@pytest.mark.parametrize(
    ("stop", "call", "passes"),
    [
        (Stop.END, ToolCallState.NONE, True),
        (Stop.END, ToolCallState.WHOLE, True),
        (Stop.END, ToolCallState.CUT, False),
        (Stop.REFUSED, ToolCallState.NONE, True),
        (Stop.LENGTH, ToolCallState.NONE, False),
        (Stop.LENGTH, ToolCallState.WHOLE, False),
        (Stop.DROPPED, ToolCallState.NONE, False),
        (Stop.WINDOW, ToolCallState.NONE, True),
        (Stop.WINDOW, ToolCallState.WHOLE, False),
        (Stop.WINDOW, ToolCallState.CUT, False),
    ],
)
def test_only_a_whole_first_answer_passes_unseen(
    stop: Stop, call: ToolCallState, passes: bool
) -> None:
    assert goes_out_unread(AttemptResult(stop=stop, call=call)) is passes


@pytest.mark.parametrize(
    ("stop", "output", "thinking", "limit", "suspect"),
    [
        (Stop.END, 100, None, 100, True),
        (Stop.END, 100, 90, 100, True),
        (Stop.END, 101, None, 100, True),
        (Stop.END, 101, 90, 100, False),
        (Stop.END, 190, 90, 100, True),
        (Stop.END, 99, None, 100, False),
        (Stop.END, None, None, 100, False),
        (Stop.END, 100, None, None, False),
        (Stop.REFUSED, 100, None, 100, False),
        (Stop.LENGTH, 100, None, 100, False),
    ],
)
def test_a_finished_answer_that_used_its_whole_limit_is_suspect(
    stop: Stop, output: int | None, thinking: int | None, limit: int | None, suspect: bool
) -> None:
    result = AttemptResult(stop=stop, usage=Usage(output=output, thinking=thinking))
    full = used_up(result, limit)
    read = decide(Situation(result=result, looked=False, used_up=full)).action is Action.LOOK
    assert read is (suspect or stop is Stop.LENGTH)


def test_without_usage_nothing_is_suspect() -> None:
    assert not used_up(AttemptResult(stop=Stop.END), 100)


END = AttemptResult(stop=Stop.END, text=True)
FULL = Evidence(used_up=True, at_limit=True, written=True)
OVER = replace(FULL, at_limit=False)
MIDST: dict[str, Any] = {"written": True, "in_word": True}
PARSED = AttemptResult(stop=Stop.END, call=ToolCallState.WHOLE, args_verified=False)
"""A call whose arguments the server has parsed."""
HALF = AttemptResult(stop=Stop.END, call=ToolCallState.CUT)
EMPTY: dict[str, Any] = {"written": False}
JSON: dict[str, Any] = {"written": True, "structured": True}


@pytest.mark.parametrize(
    ("result", "evidence", "cut"),
    [
        pytest.param(END, replace(FULL, in_word=True), True, id="within a sentence"),
        pytest.param(END, replace(OVER, in_word=True), True, id="within a word"),
        pytest.param(END, FULL, False, id="after a full stop"),
        pytest.param(END, replace(FULL, open_end=True), True, id="after a comma"),
        pytest.param(END, replace(OVER, open_end=True), False, id="after a comma, beyond"),
        pytest.param(END, Evidence(**MIDST), False, id="within its limit"),
        pytest.param(replace(END, text=False), replace(FULL, **EMPTY), True, id="no text at all"),
        pytest.param(replace(END, text=False), Evidence(), False, id="no text below"),
        pytest.param(END, replace(FULL, **EMPTY), False, id="nothing to go on from"),
        pytest.param(
            replace(END, text=False, not_resumable="a block of unknown type"),
            replace(FULL, **EMPTY),
            False,
            id="unknown content",
        ),
        pytest.param(END, replace(FULL, **JSON), True, id="half JSON"),
        pytest.param(END, replace(FULL, **JSON, parses=True), False, id="whole JSON"),
        pytest.param(END, Evidence(**JSON), False, id="half JSON below"),
        pytest.param(
            replace(END, call=ToolCallState.WHOLE), replace(FULL, in_word=True), False, id="a call"
        ),
        pytest.param(PARSED, FULL, True, id="a parsed call"),
        pytest.param(PARSED, Evidence(), False, id="a parsed call below"),
        pytest.param(PARSED, OVER, False, id="a parsed call beyond"),
        pytest.param(HALF, Evidence(), True, id="half a call"),
        pytest.param(replace(HALF, stop=Stop.REFUSED), FULL, False, id="refused"),
    ],
)
def test_a_label_holds_until_the_answer_speaks_against_it(
    result: AttemptResult, evidence: Evidence, cut: bool
) -> None:
    found = believed(result, evidence)
    assert found.stop is (Stop.LENGTH if cut else result.stop)
    cut_call = result.call is ToolCallState.CUT or (cut and result.call is ToolCallState.WHOLE)
    assert (found.call is ToolCallState.CUT) is cut_call


def again(new: AttemptResult, held: AttemptResult, **more: Any) -> Again:
    """Return what is known when the same request was answered again."""
    return Again(
        replaces=True,
        held_text=held.text,
        held_closed=held.closed,
        held_dropped=held.stop is Stop.DROPPED,
        longer=new.length > held.length,
        shorter=new.length < held.length,
        **more,
    )


@pytest.mark.parametrize(
    ("new", "held", "better"),
    [
        ({"stop": Stop.END, "text": True}, {"stop": Stop.LENGTH, "text": True}, True),
        (
            {"stop": Stop.END, "call": ToolCallState.WHOLE},
            {"stop": Stop.LENGTH, "text": True},
            True,
        ),
        ({"stop": Stop.END}, {"stop": Stop.LENGTH, "text": True, "length": 9}, False),
        ({"stop": Stop.END}, {"stop": Stop.LENGTH}, True),
        ({"stop": Stop.LENGTH, "length": 9}, {"stop": Stop.LENGTH, "length": 9}, True),
        ({"stop": Stop.LENGTH, "length": 8}, {"stop": Stop.LENGTH, "length": 9}, False),
        (
            {"stop": Stop.LENGTH, "length": 8, "shown": True},
            {"stop": Stop.LENGTH, "length": 9},
            True,
        ),
        ({"stop": Stop.REFUSED}, {"stop": Stop.LENGTH, "text": True, "length": 9}, False),
        ({"stop": Stop.REFUSED}, {"stop": Stop.LENGTH}, True),
        ({"stop": Stop.DROPPED, "length": 9}, {"stop": Stop.LENGTH, "length": 9}, False),
        ({"stop": Stop.DROPPED, "length": 10}, {"stop": Stop.LENGTH, "length": 9}, True),
        (
            {"stop": Stop.DROPPED, "length": 9},
            {"stop": Stop.DROPPED, "length": 9, "closed": False},
            True,
        ),
    ],
)
def test_the_longer_usable_answer_wins(
    new: dict[str, Any], held: dict[str, Any], better: bool
) -> None:
    found = standing(AttemptResult(**new), again(AttemptResult(**new), AttemptResult(**held)))
    assert (found is Stands.NEW) is better


CUT, DROPPED = AttemptResult(stop=Stop.LENGTH, length=1), AttemptResult(stop=Stop.DROPPED, length=1)


@pytest.mark.parametrize(
    ("new", "held", "resendable", "stands"),
    [
        (None, Stop.LENGTH, True, Stands.HELD_CUT),
        (None, Stop.DROPPED, False, Stands.HELD_CUT),
        (None, Stop.DROPPED, True, Stands.HELD_DROPPED),
        (CUT, Stop.LENGTH, True, Stands.HELD_CUT),
        (CUT, Stop.DROPPED, True, Stands.HELD_CUT),
        (DROPPED, Stop.LENGTH, True, Stands.HELD_DROPPED),
        (DROPPED, Stop.LENGTH, False, Stands.HELD_CUT),
        (replace(CUT, stop=Stop.REFUSED), Stop.DROPPED, True, Stands.HELD),
        (replace(CUT, stop=Stop.REFUSED), Stop.DROPPED, False, Stands.HELD_CUT),
    ],
)
def test_a_drop_makes_no_failure_of_an_answer_that_had_arrived(
    new: AttemptResult | None, held: Stop, resendable: bool, stands: Stands
) -> None:
    had = AttemptResult(stop=held, text=True, length=5)
    known = again(new or had, had, resendable=resendable, came=new is not None)
    assert standing(new or had, known) is stands


@pytest.mark.parametrize("stop", [Stop.DROPPED, Stop.REFUSED])
def test_an_answer_that_broke_off_stays_dropped_where_another_one_is_no_better(stop: Stop) -> None:
    had = AttemptResult(stop=Stop.DROPPED, closed=False, text=True, length=5)
    new = AttemptResult(stop=stop, length=1)
    expected = Stands.HELD_DROPPED if stop is Stop.DROPPED else Stands.HELD
    assert standing(new, again(new, had, resendable=False)) is expected


@pytest.mark.parametrize(("stop", "call"), [*itertools.product(Stop, ToolCallState)])
def test_what_passes_unseen_keeps_its_label(stop: Stop, call: ToolCallState) -> None:
    result = AttemptResult(stop=stop, call=call)
    if goes_out_unread(result):
        assert believed(result, Evidence(**MIDST)).stop is stop
