"""Closing and cancelling a Chat stream, at any event: the live attempt ends, no other begins."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from support.sdks.chat import ask, playing, written
from support.sdks.turn import cut, end
from support.shells import LONG, gone

import continuation
from continuation import Policy
from continuation.simulator import Reply, Simulator, Text

HALF = LONG[:60]
SOME = 12
"""How many events arrive before silence."""
SCRIPTS: dict[str, list[Reply]] = {
    "the first attempt": [Reply([Text(LONG)], deltas=10, stall=SOME)],
    "a recovery": [cut(HALF, deltas=10), Reply([Text(LONG[60:])], deltas=100, stall=SOME)],
    "an escalation behind shown text": [
        cut(HALF, written(30), deltas=10),
        end(HALF, written(), stop="tool_use", deltas=10, stall=SOME),
    ],
}
"""Where it is silent in the end."""
scripts = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
FORGETFUL = Policy(remember_limit=False)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Un-awaited coroutines and open sockets tell themselves when they are collected."""
    yield
    gc.collect()


@scripts
def test_a_stream_is_closed_by_its_reader_at_any_event(script: list[Reply]) -> None:
    with (
        Simulator() as sim,
        openai.OpenAI(base_url=f"{sim.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=playing(FORGETFUL))
        for at in range(1, 8):
            sim.script(script)
            with client.chat.completions.create(**ask(), stream=True) as stream:
                for number, _ in enumerate(stream, 1):
                    if number == at:
                        break
            attempts = len(sim.posts)
            assert gone(sim.posts[-1]) is (attempts == len(script))
            assert len(sim.posts) == attempts
            pool: Any = client._client.origin._transport._pool  # type: ignore[attr-defined]
            assert not pool._requests
            sim.reset()


@scripts
def test_a_task_is_cancelled_at_any_event(script: list[Reply]) -> None:
    async def cancel_at(sim: Simulator, client: openai.AsyncOpenAI, at: int) -> None:
        reached = asyncio.Event()

        async def read() -> None:
            number = 0
            async with await client.chat.completions.create(**ask(), stream=True) as stream:
                async for _ in stream:
                    number += 1
                    if number == at:
                        reached.set()

        reader = asyncio.create_task(read())
        await reached.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    async def run(sim: Simulator) -> None:
        async with openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="k", max_retries=0) as bare:
            client = continuation.wrap(bare, config=playing(FORGETFUL))
            for at in range(1, 7):
                sim.script(script)
                await cancel_at(sim, client, at)
                last = sim.posts[-1]
                assert await asyncio.to_thread(gone, last) is (len(sim.posts) == len(script))
                pool: Any = client._client.origin._transport._pool  # type: ignore[attr-defined]
                assert not pool._requests
                sim.reset()

    with Simulator() as sim:
        asyncio.run(run(sim))


def test_a_closed_stream_has_no_more_to_say() -> None:
    with (
        Simulator() as sim,
        openai.OpenAI(base_url=f"{sim.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=playing(FORGETFUL))
        sim.script(SCRIPTS["a recovery"])
        with client.chat.completions.stream(**ask()) as stream:
            next(iter(stream))
        report = continuation.last_report()
        assert report is None or report.outcome.value != "complete"
