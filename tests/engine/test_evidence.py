"""Labels and what speaks against them: each rule by cases of its own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, cast

import pytest

from continuation.dialect import MessageBuilder
from continuation.engine.table import Action, Again, Situation, Stands, decide, standing
from continuation.engine.turn import judged as judge
from continuation.engine.turn import used_up
from continuation.types import AttemptResult, Stop, ToolCallState, Usage


class Holds:
    """As much of an answer as evidence looks at."""

    def __init__(self, text: str = "", *, parses: bool = False) -> None:
        self.open_text = text
        self._parses = parses

    def parses(self) -> bool:
        return self._parses


def judged(
    result: AttemptResult,
    text: str = "",
    *,
    limit: int | None = 100,
    structured: bool = False,
    parses: bool = False,
) -> AttemptResult:
    holds = cast("MessageBuilder", Holds(text, parses=parses))
    return judge(result, holds, limit, structured=structured)


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
    ("stop", "output", "limit", "suspect"),
    [
        (Stop.END, 100, 100, True),
        (Stop.END, 101, 100, True),
        (Stop.END, 99, 100, False),
        (Stop.END, None, 100, False),
        (Stop.END, 100, None, False),
        (Stop.REFUSED, 100, 100, False),
        (Stop.LENGTH, 100, 100, False),
    ],
)
def test_a_finished_answer_that_used_its_whole_limit_is_suspect(
    stop: Stop, output: int | None, limit: int | None, suspect: bool
) -> None:
    result = AttemptResult(stop=stop, usage=Usage(output=output))
    full = used_up(result, limit)
    read = decide(Situation(result=result, looked=False, used_up=full)).action is Action.LOOK
    assert read is (suspect or stop is Stop.LENGTH)


def test_without_usage_nothing_is_suspect() -> None:
    assert not used_up(AttemptResult(stop=Stop.END), 100)


END = AttemptResult(stop=Stop.END, text=True, usage=Usage(output=99))
FULL = replace(END, usage=Usage(output=100))
OVER = replace(END, usage=Usage(output=101))
PARSED: dict[str, Any] = {"call": ToolCallState.WHOLE, "args_verified": False}
"""A call whose arguments the server has parsed."""


@pytest.mark.parametrize(
    ("result", "text", "how", "stop"),
    [
        pytest.param(FULL, "and the", {}, Stop.LENGTH, id="within a sentence"),
        pytest.param(OVER, "und die Straß", {}, Stop.LENGTH, id="within a word"),
        pytest.param(FULL, "and the end.", {}, Stop.END, id="after a full stop"),
        pytest.param(END, "and the", {}, Stop.END, id="within its limit"),
        pytest.param(FULL, "and the", {"limit": None}, Stop.END, id="labels trusted"),
        pytest.param(replace(FULL, text=False), "", {}, Stop.LENGTH, id="no text at all"),
        pytest.param(replace(END, text=False), "", {}, Stop.END, id="no text below"),
        pytest.param(FULL, '{"a": "b."', {"structured": True}, Stop.LENGTH, id="half JSON"),
        pytest.param(FULL, "[1]", {"structured": True, "parses": True}, Stop.END, id="whole JSON"),
        pytest.param(replace(FULL, call=ToolCallState.WHOLE), "and the", {}, Stop.END, id="a call"),
        pytest.param(replace(FULL, **PARSED), "", {}, Stop.LENGTH, id="a parsed call"),
        pytest.param(replace(END, **PARSED), "", {}, Stop.END, id="a parsed call below"),
        pytest.param(replace(OVER, **PARSED), "", {}, Stop.END, id="a parsed call beyond"),
        pytest.param(
            replace(FULL, **PARSED), "", {"limit": None}, Stop.END, id="a parsed call, trusted"
        ),
        pytest.param(replace(END, call=ToolCallState.CUT), "", {}, Stop.LENGTH, id="half a call"),
        pytest.param(
            replace(END, stop=Stop.REFUSED, call=ToolCallState.CUT),
            "",
            {},
            Stop.REFUSED,
            id="refused",
        ),
    ],
)
def test_a_label_holds_until_the_answer_speaks_against_it(
    result: AttemptResult, text: str, how: dict[str, Any], stop: Stop
) -> None:
    assert judged(result, text, **how).stop is stop


def test_a_cut_answer_that_goes_round_in_circles_is_stalled() -> None:
    cut = AttemptResult(stop=Stop.LENGTH)
    assert judged(cut, "Again and again. " * 400).stalled
    assert not judged(cut, "Once upon a time").stalled
    assert not judged(END, "Again and again. " * 400).stalled


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
        assert judged(result, "and the").stop is stop
