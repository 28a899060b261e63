"""A program with DBOS in it: `python -m support.dbos_worker WORK`."""

from __future__ import annotations

import json
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

from continuation.durable import dbos
from support import engines

WORK = engines.Work(**json.loads(sys.argv[1]))


def nothing() -> None:
    """A step of DBOS does not beat."""


@DBOS.step()
def write() -> dict[str, Any]:
    return engines.write(WORK, engines.opened(dbos, WORK), nothing)


@DBOS.step()
def use(call: dict[str, Any]) -> str:
    return engines.use(WORK, call, engines.opened(dbos, WORK))


@DBOS.workflow()
def agent() -> dict[str, Any]:
    said = write()
    return {"text": said["text"], "result": use(said["call"])}


@DBOS.step()
async def write_async() -> dict[str, Any]:
    return await engines.write_async(WORK, engines.opened(dbos, WORK), nothing)


@DBOS.step()
async def use_async(call: dict[str, Any]) -> str:
    return await engines.use_async(WORK, call, engines.opened(dbos, WORK))


@DBOS.workflow()
async def agent_async() -> dict[str, Any]:
    said = await write_async()
    return {"text": said["text"], "result": await use_async(said["call"])}


if __name__ == "__main__":
    DBOS(config={"name": "agent", "system_database_url": WORK.server})
    DBOS.launch()
    with SetWorkflowID(WORK.name):
        handle: Any = DBOS.start_workflow(agent_async if WORK.asynchronous else agent)
    engines.say("done", **handle.get_result())
    DBOS.destroy()
