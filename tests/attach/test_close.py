"""Closing: what ends with a stream or a client, at any moment, and what does not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest
from anthropic.lib.credentials import AccessToken
from support.shells import LONG, PATIENCE, Way, ask, both, create, gone, last, told

import continuation
from continuation import Event, Policy, Recovering, Retrying, Truncated
from continuation.attach.healing_clients import AsyncHealingClient, HealingClient
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse

HALF = LONG[:60]
SOME = 12
"""How many events arrive before silence."""

CUT = Reply([Text(HALF)], stop="max_tokens", deltas=10)
SILENT = Reply([Text(LONG[60:])], deltas=100, stall=SOME)
CALL = Reply([Text(HALF), ToolUse("save", {"x": LONG}, cut=40)], stop="max_tokens", deltas=10)
AGAIN = Reply([Text(HALF), ToolUse("save", {"x": LONG})], stop="tool_use", deltas=10, stall=SOME)

SCRIPTS: dict[str, list[Reply]] = {
    "the first attempt": [Reply([Text(LONG)], deltas=10, stall=SOME)],
    "a recovery": [CUT, SILENT],
    "an escalation behind shown text": [CALL, AGAIN],
}
"""Where it is silent in the end; until it is closed, an attempt is live at any event."""
scripts = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)

FORGETFUL = Policy(remember_limit=False)
"""Turn after turn begins like the first."""

QUIET = (httpx2.ReadError,)
"""What the bare SDK raises for who reads on after a close."""


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Un-awaited coroutines and open sockets tell themselves when they are collected."""
    yield
    gc.collect()


def pool_of(client: Any) -> Any:
    return client._client.origin._transport._pool


def assert_ended(sim: Simulator, client: Any, script: list[Reply], attempts: int) -> None:
    """The live attempt was hung up on, nothing more was sent, no connection is taken."""
    assert gone(sim.posts[attempts - 1]) is (attempts == len(script))
    assert len(sim.posts) == attempts
    assert not pool_of(client)._requests


COUNTED: dict[int, int] = {}
"""What `shown` found, by the identity of a script."""


def shown(sim: Simulator, script: list[Reply]) -> int:
    """Return how many events a caller sees before it is silent."""
    if id(script) in COUNTED:
        return COUNTED[id(script)]
    seen: list[int] = [0]

    def note(event: Event) -> None:
        if isinstance(event, Truncated) and event.reason == "dropped":
            seen.append(0)

    with Way("sync") as way:
        sim.script(script)
        bare = way.bare(sim.url, timeout=2.0)  # so long is nothing else silent
        client = continuation.wrap(
            bare, config=Policy(max_drop_recoveries=0, on_dead="stop"), on_event=note
        )
        for _ in client.messages.create(**ask(), stream=True):
            seen[-1] += 1
    sim.reset()
    return COUNTED.setdefault(id(script), seen[0])


# --- closing a stream ---------------------------------------------------------------------------


@scripts
def test_a_stream_is_closed_by_its_reader_at_any_event(script: list[Reply]) -> None:
    with Simulator() as sim, Way("sync") as way:
        client = way.healing(sim.url, config=FORGETFUL)
        for at in range(shown(sim, script) + 1):
            sim.script(script)
            events = client.messages.create(**ask(), stream=True)
            for number, _ in enumerate(events, 1):
                if number >= at:
                    break
            events.close()
            assert_ended(sim, client, script, len(sim.posts))
            sim.reset()


@scripts
def test_a_stream_is_closed_by_another_thread_at_any_event(script: list[Reply]) -> None:
    with Simulator() as sim, Way("sync") as way:
        client = way.healing(sim.url, config=FORGETFUL)
        for at in range(1, shown(sim, script) + 1):
            sim.script(script)
            events = client.messages.create(**ask(), stream=True)
            reached, closed = threading.Event(), threading.Event()

            def read(events: Any, at: int, reached: Any, closed: Any) -> None:
                with contextlib.suppress(*QUIET):
                    for number, _ in enumerate(events, 1):
                        if number == at:
                            reached.set()
                            closed.wait()

            reader = threading.Thread(target=read, args=(events, at, reached, closed))
            reader.start()
            reached.wait()
            events.close()
            closed.set()
            reader.join(PATIENCE)
            assert not reader.is_alive()
            assert_ended(sim, client, script, len(sim.posts))
            sim.reset()


@scripts
def test_another_threads_close_ends_a_wait_for_bytes(script: list[Reply]) -> None:
    with Simulator() as sim, Way("sync") as way:
        total = shown(sim, script)
        client = way.healing(sim.url)
        sim.script(script)
        events = client.messages.create(**ask(), stream=True)
        silent = threading.Event()

        def read() -> None:
            with contextlib.suppress(*QUIET):
                for number, _ in enumerate(events, 1):
                    if number == total:
                        silent.set()

        reader = threading.Thread(target=read)
        reader.start()
        silent.wait()
        while len(sim.posts) < len(script) or last(sim).sent < SOME:
            time.sleep(0.01)
        events.close()
        reader.join(PATIENCE)
        assert not reader.is_alive()
        assert_ended(sim, client, script, len(script))


@scripts
def test_a_stream_is_closed_by_another_task_at_any_event(script: list[Reply]) -> None:
    async def close_at(sim: Simulator, client: Any, at: int) -> None:
        events = await client.messages.create(**ask(), stream=True)
        reached = asyncio.Event()

        async def read() -> None:
            number = 0
            with contextlib.suppress(*QUIET):
                async for _ in events:
                    number += 1
                    if number == at:
                        reached.set()
                        await asyncio.sleep(0)

        reader = asyncio.create_task(read())
        await reached.wait()
        await events.close()
        await asyncio.wait_for(reader, PATIENCE)

    _at_any_event(script, close_at)


@scripts
def test_a_task_is_cancelled_at_any_event(script: list[Reply]) -> None:
    async def cancel_at(sim: Simulator, client: Any, at: int) -> None:
        reached = asyncio.Event()

        async def read() -> None:
            number = 0
            async with client.messages.stream(**ask()) as events:
                async for event in events:
                    number += event.type != "text"
                    if number == at:
                        reached.set()

        reader = asyncio.create_task(read())
        await reached.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    _at_any_event(script, cancel_at)


@scripts
def test_a_cancel_scope_ends_a_stream(script: list[Reply]) -> None:
    async def time_out(sim: Simulator, client: Any, at: int) -> None:
        number = 0
        with anyio.CancelScope() as scope:
            async for _ in await client.messages.create(**ask(), stream=True):
                number += 1
                if number == at:
                    scope.cancel()

    _at_any_event(script, time_out)


def _at_any_event(script: list[Reply], act: Callable[[Simulator, Any, int], Any]) -> None:
    async def every(sim: Simulator, total: int) -> None:
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k") as bare:
            client = continuation.wrap(bare, config=FORGETFUL)
            for at in range(1, total + 1):
                sim.script(script)
                await asyncio.wait_for(act(sim, client, at), PATIENCE)
                await asyncio.to_thread(assert_ended, sim, client, script, len(sim.posts))
                sim.reset()

    with Simulator() as sim:
        asyncio.run(every(sim, shown(sim, script)))


async def _turns() -> None:
    """Let the event loop finalise what was dropped."""
    for _ in range(20):
        await asyncio.sleep(0)


@both
def test_a_stream_that_is_dropped_is_closed(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        client = way.healing(sim.url)
        sim.script(SCRIPTS["a recovery"])
        events = way.do(client.messages.create(**ask(), stream=True))
        iterator = way.each(events)
        while len(sim.posts) < 2:
            next(iterator)
        del events, iterator
        gc.collect()
        way.do(way.pick(lambda: None, _turns)())
        assert gone(last(sim))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task that closes begins too late there")
def test_a_loop_that_is_left_by_a_break_is_not_told_of_in_the_log() -> None:
    """The SDK's own iterators form a cycle; each is closed by the event loop when collected."""
    told_of: list[Any] = []

    async def leave(client: Any) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: told_of.append(found))
        asked: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "say it"}]}
        for _ in range(5):
            async for _chunk in await client.chat.completions.create(**asked, stream=True):
                break
            await _turns()
            gc.collect()
            await _turns()
            assert not pool_of(client)._requests

    with Simulator(LONG, Scenario(slow=0.001)) as sim:
        bare = openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="k", max_retries=0)
        asyncio.run(leave(continuation.wrap(bare)))
    assert told_of == []


@both
def test_a_closed_stream_is_reported(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        sim.script(SCRIPTS["a recovery"])
        events = way.do(way.healing(sim.url).messages.create(**ask(), stream=True))
        next(way.each(events))
        way.do(events.close())
        assert [(r.outcome, r.reason) for r in way.reports] == [("partial", "closed by the caller")]


# --- while nothing flows ------------------------------------------------------------------------

BUSY = Reply(status=429, headers={"retry-after": "30"})


@pytest.mark.parametrize("waiting", [BUSY, Reply(delay=30.0)], ids=["a retry", "an answer"])
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_wait_of_a_task_ends_at_once(waiting: Reply, how: str) -> None:
    async def turn(sim: Simulator) -> None:
        about_to = asyncio.Event()

        def note(event: Event) -> None:
            if isinstance(event, Retrying if waiting is BUSY else Recovering):
                about_to.set()

        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k") as bare:
            client = continuation.wrap(bare, on_event=note)
            events = await client.messages.create(**ask(), stream=True)

            async def read() -> str:
                return told([event async for event in events])

            reader = asyncio.create_task(read())
            await about_to.wait()
            while len(sim.posts) < 2:  # noqa: ASYNC110 - the server is a thread, it has no event
                await asyncio.sleep(0.01)
            started = time.monotonic()
            if how == "close":
                await events.close()
                assert HALF.startswith(await reader)
            else:
                reader.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reader
            assert time.monotonic() - started < 20
            assert await asyncio.to_thread(gone, last(sim)) is (waiting is not BUSY)
            assert len(sim.posts) == 2

    with Simulator() as sim:
        sim.script([CUT, waiting])
        asyncio.run(turn(sim))


def test_a_wait_of_a_thread_for_a_retry_ends_at_once() -> None:
    waiting = threading.Event()

    def note(event: Event) -> None:
        if isinstance(event, Retrying):
            waiting.set()

    with Simulator() as sim, Way("sync") as way:
        sim.script([CUT, BUSY])
        client = continuation.wrap(way.bare(sim.url), on_event=note)
        events = client.messages.create(**ask(), stream=True)
        read: list[str] = []
        reader = threading.Thread(target=lambda: read.append(told(list(events))))
        reader.start()
        waiting.wait()
        started = time.monotonic()
        events.close()
        reader.join(PATIENCE)
        assert time.monotonic() - started < 20
        assert HALF.startswith(read[0])
        assert len(sim.posts) == 2


def test_a_close_while_an_answer_is_awaited_takes_effect_when_it_comes() -> None:
    coming = threading.Event()

    def note(event: Event) -> None:
        if isinstance(event, Recovering):
            coming.set()

    with Simulator() as sim, Way("sync") as way:
        sim.script([CUT, Reply([Text(LONG)], delay=0.3, stall=SOME)])
        client = continuation.wrap(way.bare(sim.url), on_event=note)
        events = client.messages.create(**ask(), stream=True)
        reader = threading.Thread(target=lambda: list(events))
        reader.start()
        coming.wait()
        events.close()
        reader.join(PATIENCE)
        assert not reader.is_alive()
        assert len(sim.posts) <= 2
        assert all(request.done.wait(PATIENCE) for request in sim.posts)
        assert not pool_of(client)._requests


def test_cancelling_a_call_that_is_not_streamed_ends_its_attempt() -> None:
    async def turn(sim: Simulator) -> None:
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k") as bare:
            client = continuation.wrap(bare)
            task = asyncio.create_task(client.messages.create(**ask()))
            while not sim.posts or sim.posts[-1].sent < SOME:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(gone, last(sim))
            assert len(sim.posts) == 2
            assert not pool_of(client)._requests

    with Simulator() as sim:
        sim.script([CUT, SILENT])
        asyncio.run(turn(sim))


# --- closing a client ---------------------------------------------------------------------------


@both
def test_a_wrapped_client_closes_alone_and_with_its_original(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        client, third = way.wrap(bare), way.wrap(bare)
        assert create(way, client) == LONG
        way.do(client.close())
        with way.within(way.wrap(bare)) as second:
            assert create(way, second) == LONG
        assert (client.is_closed(), second.is_closed(), bare.is_closed()) == (True, True, False)
        assert create(way, bare)
        way.do(bare.close())
        assert third.is_closed()
        with pytest.raises(anthropic.APIConnectionError):
            create(way, third)


@both
def test_a_closed_wrapped_client_fails_as_a_closed_client_does(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        bare, client = way.bare(sim.url), way.healing(sim.url)
        failures = []
        for closed in (bare, client, client.with_options(timeout=5)):
            way.do(closed.close())
            with pytest.raises(anthropic.APIConnectionError) as caught:
                create(way, closed)
            failures.append(str(caught.value.__cause__))
        assert len(set(failures)) == 1
        assert sim.requests == []


@both
@pytest.mark.parametrize("live", ["the first attempt", "a recovery"])
def test_closing_the_client_ends_its_streams(kind: Any, live: str) -> None:
    script = SCRIPTS[live]
    with Simulator() as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        client = way.wrap(bare)
        sim.script(script)
        events = way.do(client.messages.create(**ask(), stream=True))
        iterator = way.each(events)
        next(iterator)
        while len(sim.posts) < len(script):
            next(iterator)
        way.do(client.close())
        assert gone(last(sim))
        with contextlib.suppress(*QUIET):
            list(iterator)
        assert len(sim.posts) == len(script)


def test_closing_the_client_ends_a_call_whose_answer_is_awaited() -> None:
    async def turn(sim: Simulator) -> None:
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
            client = continuation.wrap(bare)
            call = asyncio.create_task(client.messages.create(**ask()))
            while not sim.posts:  # noqa: ASYNC110 - the server is a thread, it has no event
                await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(anthropic.APIConnectionError):
                await asyncio.wait_for(call, PATIENCE)
            assert await asyncio.to_thread(gone, last(sim))
            assert len(sim.posts) == 1

    with Simulator() as sim:
        sim.script([Reply(delay=30)])
        asyncio.run(turn(sim))


def test_a_call_whose_client_is_closed_by_another_thread_fails_when_its_answer_comes() -> None:
    with Simulator() as sim, Way("sync") as way:
        sim.script([Reply([Text("late")], delay=0.3)])
        client = way.healing(sim.url)
        failures: list[Exception] = []

        def call() -> None:
            try:
                create(way, client)
            except anthropic.APIConnectionError as error:
                failures.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        while not sim.posts:
            time.sleep(0.01)
        client.close()
        caller.join(PATIENCE)
        assert len(failures) == 1
        assert len(sim.posts) == 1
        assert not pool_of(client)._requests


class Provider:
    """Credentials that are asked for and closed like any."""

    def __init__(self) -> None:
        self.asked = self.closed = 0

    def __call__(self, *, force_refresh: bool = False) -> AccessToken:
        self.asked += 1
        return AccessToken(f"token-{self.asked}")

    def close(self) -> None:
        self.closed += 1


class AsyncProvider(Provider):
    async def aclose(self) -> None:
        self.closed += 1


@both
def test_credentials_are_the_originals_to_close(kind: Any) -> None:
    with Simulator(LONG) as sim, Way(kind) as way:
        theirs, own = (way.pick(Provider, AsyncProvider)() for _ in range(2))
        bare = way.bare(sim.url, api_key=None, credentials=theirs)
        client = way.wrap(bare)
        assert create(way, client) == LONG
        assert {post.headers["authorization"] for post in sim.posts} == {"Bearer token-1"}
        assert create(way, client.with_options(timeout=60)) == LONG
        assert theirs.asked == 1
        way.do(client.with_options(timeout=60).close())
        way.do(client.with_middleware().close())
        way.do(client.close())
        assert theirs.closed == 0
        assert create(way, bare)
        way.do(way.wrap(bare).with_options(credentials=own).close())
        assert (theirs.closed, own.closed) == (0, 1)
        way.do(bare.close())
        assert theirs.closed == 1


@both
def test_a_token_that_is_renewed_during_a_turn_is_used_from_then_on(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        provider = Provider()
        bare = way.bare(sim.url, api_key=None, credentials=provider)
        client = way.wrap(bare, config=Policy(models_endpoint=False))
        sim.script([CUT, Reply([Text(LONG)], stop="end_turn")])

        def renew(event: Event) -> None:
            bare._token_cache.invalidate()

        client = continuation.wrap(client, on_event=renew, config=Policy(models_endpoint=False))
        assert create(way, client) == LONG
        assert [post.headers["authorization"] for post in sim.posts] == [
            "Bearer token-1",
            "Bearer token-2",
        ]


@both
def test_a_stream_that_fails_to_close_leaves_nothing_else_open(kind: Any) -> None:
    """A transport of somebody else's may raise when its response is closed."""

    class Stubborn(httpx2.SyncByteStream, httpx2.AsyncByteStream):
        closed = 0

        def __iter__(self) -> Iterator[bytes]:
            yield b"event: ping\ndata: {}\n\n"

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"event: ping\ndata: {}\n\n"

        def close(self) -> None:
            Stubborn.closed += 1
            message = "it stays open"
            raise RuntimeError(message)

        async def aclose(self) -> None:
            self.close()

    def answer(_: httpx2.Request) -> httpx2.Response:
        head = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=head, stream=Stubborn())

    with Way(kind) as way:
        origin = way.http(transport=httpx2.MockTransport(answer))
        make = way.pick(HealingClient, AsyncHealingClient)
        client = make(origin, continuation.wrap(way.bare("http://x"))._client.engine, owned=True)
        request = client.build_request("POST", "http://x/v1/messages", json=ask())
        opened = [way.do(client.send(request, stream=True)) for _ in range(3)]
        with pytest.raises(RuntimeError, match="it stays open"):
            way.do((client.close if kind == "sync" else client.aclose)())
        assert len(opened) == 3
        assert Stubborn.closed == 3
        assert origin.is_closed
