"""How much a test tries in the fast part of the tests, and how much in the slow one."""

from __future__ import annotations

import pytest
from hypothesis import settings

places = pytest.mark.parametrize(
    "step", [61, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
"""Where a stream is split or breaks off: at some places of it, or, slowly, at each byte."""


def examples(full: int) -> int:
    """Return this profile's part of what a full run tries (see `conftest.py`), ten at least."""
    return max(10, full * settings().max_examples // 100)
