"""Whatever a model answers when it is asked for the rest of a call, no wrong call is delivered."""

from __future__ import annotations

import pytest
from support.call_fuzz import SAFE, Case, run
from support.call_wires import FORMATS

SEED = 39


def tried(cases: int) -> list[Case]:
    ran = list(run(cases, SEED))
    assert [case for case in ran if case.wrong] == []
    return ran


def test_no_wrong_call_is_delivered() -> None:
    ran = [case for case in tried(800) if case.asked]
    for wire in FORMATS:
        here = [case for case in ran if case.wire == wire]
        assert {case.live for case in here if case.delivered} == {True, False}, wire
    obeying = [case for case in ran if case.manner in SAFE and case.signed]
    assert sum(case.delivered for case in obeying) > 0.8 * len(obeying)


@pytest.mark.slow
def test_no_wrong_call_is_delivered_of_many() -> None:
    tried(2_000)  # `tests/benchmarks/calls.py` tries 20,000
