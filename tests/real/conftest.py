"""A real `llama-server` for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.llama import llama, missing


@pytest.fixture(scope="session")
def recites() -> Iterator[str]:
    """The URL of a server whose model knows some documents by heart."""
    yield from _serving("recites")


@pytest.fixture(scope="session")
def tasked() -> Iterator[str]:
    """The URL of a server whose model solves small tasks, and was taught to continue."""
    yield from _serving("tasks")


def _serving(model: str) -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    with llama(model) as url:
        yield url
