"""Schedules of engine, journal, clock and provider in one process (`support.simulated`)."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from support.simulated import Provider, run

EACH = 400
"""Of a hundred thousand: `python -m support.simulated 100000`."""


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))]
)
def test_schedules(part: int, caplog: pytest.LogCaptureFixture) -> None:
    provider, tally = Provider(), Counter[str]()
    count = EACH if part else 40
    with caplog.at_level(logging.CRITICAL, "continuation"):
        for seed in range(part * EACH, part * EACH + count):
            run(seed, provider, tally)
    assert tally["schedules"] == count
    assert sum(n for what, n in tally.items() if what.startswith("killed")) > count / 2
