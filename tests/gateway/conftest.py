"""A gateway in front of a provider that each test tells what to say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.gateways import Served, serving

from continuation.simulator import Simulator


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


@pytest.fixture(scope="module")
def served(provider: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("gateway"), provider.url, PINGS) as found:
        yield found


PINGS = (
    "[gateway]\nping_seconds = 0.02\n[defaults]\nbackoff_seconds = 0.0\nremember_limit = false\n"
)


@pytest.fixture
def sim(provider: Simulator) -> Iterator[Simulator]:
    yield provider
    provider.reset()
