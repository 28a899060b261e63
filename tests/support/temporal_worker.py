"""A Temporal worker: `python -m support.temporal_worker WORK`."""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from continuation.durable import temporal
from support import engines

TURN: Any = {"heartbeat_timeout": timedelta(seconds=5), "start_to_close_timeout": timedelta(1)}
TOOL: Any = {"start_to_close_timeout": timedelta(seconds=3)}
AT_ONCE = RetryPolicy(initial_interval=timedelta(seconds=0.1))


@workflow.defn
class Agent:
    @workflow.run
    async def run(self) -> dict[str, Any]:
        said = await workflow.execute_activity("write", retry_policy=AT_ONCE, **TURN)
        call = said["call"]
        result = await workflow.execute_activity("use", call, retry_policy=AT_ONCE, **TOOL)
        return {"text": said["text"], "result": result}


class Steps:
    """The two activities. One without a journal beats at each piece, as Temporal's pages show."""

    def __init__(self, work: engines.Work) -> None:
        self._work = work
        self._beat = (lambda: None) if work.journal else activity.heartbeat

    def _journal(self) -> Any:
        return engines.opened(temporal, self._work)

    @activity.defn(name="write")
    def write(self) -> dict[str, Any]:
        return engines.write(self._work, self._journal(), self._beat)

    @activity.defn(name="use")
    def use(self, call: dict[str, Any]) -> str:
        return engines.use(self._work, call, self._journal())

    @activity.defn(name="write")
    async def write_async(self) -> dict[str, Any]:
        return await engines.write_async(self._work, self._journal(), self._beat)

    @activity.defn(name="use")
    async def use_async(self, call: dict[str, Any]) -> str:
        return await engines.use_async(self._work, call, self._journal())

    @property
    def wanted(self) -> list[Any]:
        if self._work.asynchronous:
            return [self.write_async, self.use_async]
        return [self.write, self.use]


async def main(work: engines.Work) -> None:
    """Work until the workflow is done; who comes first starts it."""
    client = await Client.connect(work.server)
    worker = Worker(
        client,
        task_queue=work.name,
        workflows=[Agent],
        activities=Steps(work).wanted,
        activity_executor=ThreadPoolExecutor(1),
        max_concurrent_activities=1,  # a worker that dies then takes no second activity with it
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        handle = await client.start_workflow(
            Agent.run,
            id=work.name,
            task_queue=work.name,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        engines.say("done", **await handle.result())


if __name__ == "__main__":
    asyncio.run(main(engines.Work(**json.loads(sys.argv[1]))))
