"""Schedules of engine, journal, clock and provider in one process (`support.simulated`).

More of them: `python -m support.simulated 100000 [first seed]`.
"""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from support.simulated import Provider, run


# A stream that is collected as garbage may meet the kill in its own cleaning up.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_schedules(count: int, caplog: pytest.LogCaptureFixture) -> None:
    provider, tally = Provider(), Counter[str]()
    with caplog.at_level(logging.CRITICAL, "continuation"):
        for seed in range(count):
            run(seed, provider, tally)
    assert tally["schedules"] == count
    assert sum(n for what, n in tally.items() if what.startswith("killed")) > count / 2
