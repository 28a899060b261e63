"""The pytest fixtures of `continuation.testing`: pytest finds this module by its entry point.

It is imported whenever pytest runs where we are installed, so it imports nothing of ours itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from continuation.testing import Rehearsal


@pytest.fixture(name="simulator")
def simulator(request: pytest.FixtureRequest) -> Iterator[Rehearsal]:
    """A `Rehearsal` of `cut-text`, or of the scenario in its parameter."""
    from continuation.testing import simulate

    with simulate(getattr(request, "param", "cut-text")) as rehearsal:
        yield rehearsal
