"""How much a test tries in the fast part of the tests, and how much in the slow part."""

from __future__ import annotations

import pytest
from hypothesis import settings

places = pytest.mark.parametrize(
    "step", [61, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
"""Where a stream breaks off: at some places, or in the slow part at each byte."""


pieces = pytest.mark.parametrize("size", [1, 7, pytest.param(97, marks=pytest.mark.slow)])
"""How long the pieces are in which a stream comes: by one, by a few, or, slowly, as from a network.

See `drive.combs`: of each length, some piece ends at each byte.
"""


def examples(full: int) -> int:
    """Return this profile's part of what a full run tries (see `conftest.py`), ten at least."""
    return max(10, full * settings().max_examples // 100)
