"""Many turns at once on one client: each gets its own text, and its own report."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anthropic
import httpx2
import pytest
from support.shells import NEW, ask, told

import continuation
from continuation import Report
from continuation.simulator import Recorded, Reply, Simulator, Text

THREADS = 20
CUT = 900


def text_for(who: int) -> str:
    """Return a long text that belongs to one asker only."""
    return "".join(f"{who}/{n}: this line is for number {who}, line {n}.\n" for n in range(60))


class Crowd(Simulator):
    """Answers each asker with a text of its own, in two halves."""

    def respond(self, request: Recorded) -> Any:
        body = request.body or {}
        if "messages" in body:
            who = int(body["messages"][0]["content"])
            text = text_for(who)
            first = len(body["messages"]) == 1 and body["max_tokens"] == ask()["max_tokens"]
            if first:
                reply = Reply([Text(text[:CUT])], stop="max_tokens", deltas=160)
            else:
                reply = Reply([Text(text[CUT:] if body["stream"] else text)], deltas=160)
            request.asks_model = True
            with self._lock:
                self.requests.append(request)
            messages = self._formats[0]
            return messages.answer(messages.context(request), reply), reply
        return super().respond(request)


def question(who: int) -> dict[str, Any]:
    return {"model": NEW, "messages": [{"role": "user", "content": str(who)}]}


def check(text: str, who: int, report: Report | None) -> None:
    assert text == text_for(who)
    assert report is not None
    assert report.outcome == "healed"
    assert [attempt.number for attempt in report.attempts] == [1, 2]
    assert report.seams[0].at == CUT


@pytest.mark.parametrize("tasks", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_streams_of_one_client_are_not_mixed(tasks: int) -> None:
    async def turn(client: Any, who: int) -> None:
        await asyncio.sleep(who % 7 / 100)
        events = await client.messages.create(**ask(**question(who)), stream=True)
        check(told([event async for event in events]), who, continuation.last_report())

    async def crowd(url: str) -> None:
        limits = httpx2.Limits(max_connections=tasks)
        http = httpx2.AsyncClient(limits=limits, timeout=60)
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k", http_client=http) as bare:
            policy = continuation.Policy(models_endpoint=False, remember_limit=False)
            client = continuation.wrap(bare, config=policy)
            await asyncio.gather(*(turn(client, who) for who in range(tasks)))
            inner: Any = client._client
            assert not inner.origin._transport._pool._requests

    with Crowd() as sim:
        asyncio.run(crowd(sim.url))
        assert len(sim.posts) == 2 * tasks


def test_twenty_threads_on_one_client_are_not_mixed() -> None:
    failed: list[BaseException] = []

    def turns(client: Any, who: int) -> None:
        try:
            for number in (who, who + THREADS):
                events = client.messages.create(**ask(**question(number)), stream=True)
                check(told(list(events)), number, continuation.last_report())
        except BaseException as error:
            failed.append(error)

    with Crowd() as sim, anthropic.Anthropic(base_url=sim.url, api_key="k") as bare:
        policy = continuation.Policy(models_endpoint=False, remember_limit=False)
        client = continuation.wrap(bare, config=policy)
        threads = [threading.Thread(target=turns, args=(client, who)) for who in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert len(sim.posts) == 4 * THREADS
