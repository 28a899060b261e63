"""For the tests of engines: a model that is counted, and a server for each engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.engines import PACE, Counted, TemporalServer

from continuation.simulator import Simulator


@pytest.fixture
def model() -> Counted:
    return Counted()


@pytest.fixture
def provider(model: Counted) -> Iterator[Simulator]:
    with Simulator(model, PACE) as running:
        yield running


@pytest.fixture
def quick(model: Counted) -> Iterator[Simulator]:
    """A provider for who needs no time to strike."""
    with Simulator(model, replace(PACE, slow=0.0003)) as running:
        yield running


@pytest.fixture(scope="session")
def temporal() -> Iterator[str]:
    """Return the address of a server. `.ci/durable` says where its program is."""
    if not (binary := os.environ.get("TEMPORAL")):
        pytest.skip("TEMPORAL names no server's program: .ci/durable runs this")
    server = TemporalServer(binary)
    yield server.address
    server.close()


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where the engine keeps what it knows."""
    engine: str = request.param
    if engine.startswith("temporal"):
        address: str = request.getfixturevalue("temporal")
        return address
    if engine == "dbos":
        return f"sqlite:///{tmp_path}/dbos.sqlite"
    make: Callable[[], str] = request.getfixturevalue("databases")
    place, _, schema = make().rpartition("/postgres?options=-csearch_path%3D")
    return f"{place}/dbos_{schema}"  # DBOS makes a database of its own
