"""What the tests of the simulator share: one that recites, and the SDK of Messages beside it."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest
from support.simulator_helpers import ANSWER, connect

from continuation.simulator import Simulator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(answer=ANSWER) as simulator:
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as made:
        yield made
