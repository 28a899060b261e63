from __future__ import annotations

import pytest
from support.notation import DIALECTS
from support.random_histories import tally


@pytest.mark.parametrize(
    ("dialect", "count"),
    [(dialect, 200) for dialect in DIALECTS]
    + [pytest.param(dialect, 20_000, marks=pytest.mark.slow) for dialect in DIALECTS],
)
def test_random_histories_are_mended_whole_and_left_alone_where_another_validator_finds_nothing(
    dialect: str, count: int
) -> None:
    told = tally(dialect, count)
    assert (told.invalid[:3], told.lost[:3], told.changed[:3]) == ([], [], [])
    assert count * 0.3 < told.valid < count * 0.8  # neither are all of them spoilt, nor none
