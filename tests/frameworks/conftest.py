"""A stage for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import continuation
from continuation.simulator import Simulator
from frameworks.stage import ANSWER, Stage

# LiteLLM would fetch its table of prices when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Simulator(ANSWER) as sim, continuation.watch() as turns:
        yield Stage(sim, turns)
