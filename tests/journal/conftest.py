"""For all tests of journals: a folder in memory, where thousands of files cost little."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.killed import let_go


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    let_go()


@pytest.fixture
def shm() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
