"""How much a test tries in the fast part of the tests, and how much in the slow one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

places = pytest.mark.parametrize(
    "step", [61, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
"""Where a stream is split or breaks off: at some places of it, or, slowly, at each byte."""


def splits(raw: bytes, step: int) -> Iterator[int]:
    """Yield where to split a stream in two: at each `step`-th byte.

    Where lines do not end in a bare newline, the inside of a word is left out: it is split in the
    same stream with bare newlines, and how its line will end makes no difference there.
    """
    for at in range(1, len(raw), step):
        if b"\r" not in raw or not raw[at - 1 : at + 1].isalnum():
            yield at


def examples(full: int) -> int:
    """Return this profile's part of what a full run tries (see `conftest.py`), ten at least."""
    return max(10, full * settings().max_examples // 100)
