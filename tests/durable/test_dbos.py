"""DBOS's adapter in workflows of this process: a step that is tried again goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import engines
from support.engines import ANSWER, PACE, Counted, Work

from continuation import JournalError
from continuation.simulator import Simulator

DBOS: Any = pytest.importorskip("dbos").DBOS
dbos: Any = pytest.importorskip("continuation.durable.dbos")

TRIES = {"retries_allowed": True, "interval_seconds": 0.01}


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[None]:
    url = f"sqlite:///{tmp_path}/dbos.sqlite"
    DBOS(config={"name": "agent", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    yield
    DBOS.destroy()


def test_it_is_for_steps(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="open it in a DBOS step"):
        dbos.journal(tmp_path / "a.db")


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_step_that_is_tried_again_goes_on(
    asynchronous: bool, quick: Simulator, model: Counted, tmp_path: Path
) -> None:
    work, opened, pieces = Work("dbos", quick.url, "", ""), list[Any](), list[int]()

    def journal() -> Any:
        opened.append(dbos.journal(tmp_path / "a.db", save_every=0.01))
        return opened[-1]

    def fails() -> None:
        pieces.append(len(opened))
        if pieces.count(1) == 200 and len(opened) == 1:
            raise ConnectionError

    def write() -> Any:
        return engines.write(work, journal(), fails)

    async def write_async() -> Any:
        return await engines.write_async(work, journal(), fails)

    step = DBOS.step(**TRIES)(write_async if asynchronous else write)

    def agent() -> Any:
        return step()

    async def agent_async() -> Any:
        return await step()

    flow = DBOS.workflow()(agent_async if asynchronous else agent)
    said = asyncio.run(flow()) if asynchronous else flow()
    assert said["text"] == ANSWER
    assert model.said[1] <= len(ANSWER) - 199 * PACE.deltas
    sessions = {each.session for each in opened}
    assert len(sessions) == 1
    assert sessions.pop().endswith("/1")
    assert [each.fencing_token for each in opened] == [1, 2]
