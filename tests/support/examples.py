"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(full: int) -> int:
    """Return this profile's part of what a full run tries (see `conftest.py`), ten at least."""
    return max(10, full * settings().max_examples // 100)
