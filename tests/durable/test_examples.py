"""The function of `examples/answers.py` in a Ray cluster, and in a Temporal workflow."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from test_examples import run

from continuation.testing import ANSWER, Rehearsal

pytestmark = pytest.mark.slow
WHOLE = sorted(f"Write a guide to river {number}. {len(ANSWER)}" for number in range(8))


def test_in_ray_data(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: .ci/durable runs this")
    with Rehearsal("cut-text") as sim:
        out = run("ray_batch", sim, tmp_path)
    assert sorted(line for line in out.splitlines() if line.startswith("Write")) == WHOLE


def test_in_a_temporal_workflow(temporal: str, tmp_path: Path) -> None:
    pytest.importorskip("temporalio")
    with Rehearsal("cut-text") as sim:
        assert sorted(run("temporal_batch", sim, tmp_path, temporal).splitlines()) == WHOLE
