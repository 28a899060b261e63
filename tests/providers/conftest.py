"""For the tests of all wire formats: a simulator to script, and event loops that come and go."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def loops_left_behind() -> Iterator[None]:
    """Connections of a loop that is no more are nobody's to close; they go with the test."""
    yield
    gc.collect()
