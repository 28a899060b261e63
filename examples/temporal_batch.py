"""Many long answers in a Temporal workflow: a retried activity resumes where it stopped.

pip install temporalio && python examples/temporal_batch.py localhost:7233    # ANTHROPIC_API_KEY
"""

import asyncio
import sys
from datetime import timedelta

from answers import TEXTS, answers
from temporalio import activity, client, worker, workflow

from continuation.durable import temporal

LIMITS = {"start_to_close_timeout": timedelta(hours=1), "heartbeat_timeout": timedelta(seconds=30)}


@activity.defn
async def block(texts: list[str]) -> list[str]:
    with temporal.journal("answers.db") as journal:  # several machines: postgresql://...
        return await asyncio.to_thread(answers, texts, journal)


@workflow.defn(sandboxed=False)
class Answers:
    @workflow.run
    async def run(self, texts: list[str]) -> list[str]:
        blocks = (workflow.execute_activity(block, [text], **LIMITS) for text in texts)
        return [said for (said,) in await asyncio.gather(*blocks)]


async def main(server: str) -> None:
    here = await client.Client.connect(server)
    async with worker.Worker(here, task_queue="q", workflows=[Answers], activities=[block]):
        done = await here.execute_workflow(Answers.run, TEXTS, id="answers", task_queue="q")
    for text, answer in zip(TEXTS, done, strict=True):
        print(text, len(answer))


asyncio.run(main(sys.argv[1]))
