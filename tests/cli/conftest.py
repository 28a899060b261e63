"""For every command: an environment that says nothing, a model that recites, its text as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli_helpers import TEXT, clean

from continuation.simulator import Scenario, Simulator


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch, tmp_path / "home")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(TEXT, Scenario(manner="anchor", ceiling=2_000, deltas=96)) as simulator:
        yield simulator


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    path = tmp_path / "antwort.txt"
    path.write_bytes(TEXT.encode())
    return path
