"""A chain store that is a server: what goes through it, and what becomes of turns without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from support.postgres import Postgres, needs_postgres
from support.sdks.responses import GO, MODEL, posts
from support.sdks.turn import FAST, cut, end

import continuation
from continuation import Report
from continuation.providers.openai_responses import chain as _chain
from continuation.reports.report import ChainStore, Event
from continuation.simulator import Simulator

pytestmark = [pytest.mark.slow, needs_postgres]
NEXT: Any = {"role": "user", "content": "And then?"}
RECOVERED = cut("One fine day, "), end("all was well.")
END = end("The end.")
TOP = 128_000


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    forget()
    yield
    forget()


_callers: list[Caller] = []


def forget() -> None:
    """What a process keeps in memory is gone, its connections with it."""
    while _callers:
        _callers.pop().close()
    for store in _chain._stores.values():
        store.close()
    _chain._stores.clear()


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


class Caller:
    """Someone who chains, synchronously or not; keeps the events of its turns."""

    def __init__(
        self, sim: Simulator, store: str, *, key: str = "key", later: bool = False
    ) -> None:
        self.events: list[Event] = []
        self._runner = asyncio.Runner() if later else None
        _callers.append(self)
        kind: Any = openai.AsyncOpenAI if later else openai.OpenAI
        self._bare = kind(base_url=f"{sim.url}/v1", api_key=key, max_retries=0)
        policy = replace(FAST, chain_store=store, store_seconds=1.0)
        self._client = continuation.wrap(self._bare, config=policy, on_event=self.events.append)

    def ask(self, item: Any, **more: Any) -> tuple[Any, Report]:
        asked: dict[str, Any] = {"model": MODEL, "max_output_tokens": TOP, "input": [item], **more}
        said = self._client.responses.create(**asked)
        if self._runner is not None:
            said = self._runner.run(_answer(said) if more.get("stream") else said)
        elif more.get("stream"):
            said = list(said)[-1].response
        last = self.events[-1]
        assert isinstance(last, continuation.Finished)
        return said, last.report

    def close(self) -> None:
        for client in (self._client, self._bare):
            closed = client.close()
            if self._runner is not None:
                self._runner.run(closed)
        if self._runner is not None:
            self._runner.close()

    @property
    def asked(self) -> list[tuple[str, str | None]]:
        return [(e.operation, e.error) for e in self.events if isinstance(e, ChainStore)]


async def _answer(said: Any) -> Any:
    return [event async for event in await said][-1].response


@pytest.mark.parametrize("stream", [False, True], ids=["create", "stream"])
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_what_one_process_has_joined_another_goes_on_with(
    sim: Simulator, databases: Callable[[], str], later: bool, stream: bool
) -> None:
    url = databases()
    sim.script([*RECOVERED, END])
    first = Caller(sim, url, later=later)
    said, report = first.ask(GO, stream=stream)
    assert report.chain is None
    assert first.asked == [("write", None)] * (2 if stream else 1)
    forget()
    second = Caller(sim, url, later=later)
    second.ask(NEXT, previous_response_id=said.id)
    assert second.asked == [("read", None)]
    told = [as_text(item) for item in posts(sim)[-1]["input"]]
    assert told == ["Go.", "One fine day, all was well.", "And then?"]


def as_text(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_another_tenant_is_told_what_the_server_tells(
    sim: Simulator, databases: Callable[[], str]
) -> None:
    url = databases()
    sim.script([*RECOVERED])
    said, _ = Caller(sim, url).ask(GO, stream=True)
    with pytest.raises(openai.BadRequestError, match="Previous response with id") as caught:
        Caller(sim, url, key="another").ask(NEXT, previous_response_id=said.id)
    assert caught.value.code == "previous_response_not_found"
    assert posts(sim)[-1]["previous_response_id"] == said.id


def test_a_turn_without_a_chain_asks_nobody(sim: Simulator, databases: Callable[[], str]) -> None:
    url = databases()
    caller = Caller(sim, url)
    sim.script([end("Whole."), *RECOVERED])
    caller.ask(GO)
    caller.ask(GO, store=False)
    assert caller.asked == []
    assert _chain._stores == {}


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_without_its_store_only_a_chain_of_ours_is_refused(
    sim: Simulator, server: Postgres, later: bool, how: str
) -> None:
    """One that the server has whole goes on; what is cut comes as it was, for who goes on later."""
    caller = Caller(sim, server.url(), later=later)
    sim.script([*RECOVERED, end("Whole."), END, end("Plain."), cut("Half "), END])
    joined, _ = caller.ask(GO, stream=True)
    whole, _ = caller.ask(GO)
    getattr(server, {"killed": "kill", "frozen": "freeze"}[how])()
    caller = Caller(sim, server.url(), later=later)
    begun = time.monotonic()
    with pytest.raises(openai.BadRequestError, match="send the whole conversation") as caught:
        caller.ask(NEXT, previous_response_id=joined.id)
    assert caught.value.code == "previous_response_not_found"
    assert caller.ask(NEXT, previous_response_id=whole.id)[0].output_text == "The end."
    assert caller.ask(GO)[0].output_text == "Plain."
    half, report = caller.ask(GO, stream=True)
    assert (half.output_text, half.status) == ("Half ", "incomplete")
    assert report.outcome == "partial"
    assert "chain store did not write" in str(report.reason)
    assert time.monotonic() - begun < 10
    getattr(server, {"killed": "start", "frozen": "thaw"}[how])()
    forget()
    caller = Caller(sim, server.url(), later=later)
    caller.ask(NEXT, previous_response_id=half.id)
    assert posts(sim)[-1]["previous_response_id"] == half.id


def test_what_was_begun_and_never_kept_is_refused(sim: Simulator, server: Postgres) -> None:
    """The store goes in the middle of a turn: nobody goes on from half of it afterwards."""
    caller = Caller(sim, server.url())

    def stop(event: Event) -> None:
        caller.events.append(event)
        if isinstance(event, continuation.Recovering):
            server.kill()

    caller._client = continuation.wrap(
        caller._bare, config=replace(FAST, chain_store=server.url()), on_event=stop
    )
    sim.script([*RECOVERED])
    said, report = caller.ask(GO, stream=True)
    assert said.output_text == "One fine day, all was well."
    assert caller.asked[0] == ("write", None)
    assert caller.asked[1][1] is not None
    assert "chain store did not write" in str(report.chain)
    server.start()
    with pytest.raises(openai.BadRequestError, match="its content was not recorded"):
        Caller(sim, server.url()).ask(NEXT, previous_response_id=said.id)


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_a_body_is_healed_without_its_store_and_nobody_continues_from_half(
    sim: Simulator, server: Postgres, later: bool
) -> None:
    server.kill()
    caller = Caller(sim, server.url(), later=later)
    sim.script([*RECOVERED])
    said, report = caller.ask(GO)
    assert said.output_text == "One fine day, all was well."
    assert "chain store did not write" in str(report.chain)
    server.start()
    with pytest.raises(openai.BadRequestError, match="joined it from several answers"):
        Caller(sim, server.url()).ask(NEXT, previous_response_id=said.id)


def test_a_frozen_store_holds_up_nobody_else_on_the_event_loop(
    sim: Simulator, server: Postgres
) -> None:
    bare = openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="key", max_retries=0)
    policy = replace(FAST, chain_store=server.url(), store_seconds=1.0)
    sim.script([end("Whole."), end("Whole.")])
    first: Any = [GO]

    async def main() -> float:
        longest, over = 0.0, asyncio.Event()

        async def watch() -> None:
            nonlocal longest
            while not over.is_set():
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        async with bare, continuation.wrap(bare, config=policy) as client:
            whole = await client.responses.create(model=MODEL, input=first)
            server.freeze()
            watching = asyncio.create_task(watch())
            after = await client.responses.create(
                model=MODEL, input=[NEXT], previous_response_id=whole.id
            )
            over.set()
            await watching
            assert after.output_text == "Whole."
        return longest

    longest = asyncio.run(main())
    server.thaw()
    assert longest < 0.5
