"""Histories of thousands of parts: what they cost, and that a program's event loop goes on.

What is held here is the shape, with four or five times as many parts: neither a slow machine nor a
tracer that looks on makes a difference. What it costs, `tests/benchmarks/histories.py` says.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest
from support.golden import LOGS, as_bytes, opencode
from support.notation import DIALECTS, write
from support.sessions import check

import continuation
from continuation.history import classify, repair_refused, validate

pytestmark = pytest.mark.slow
SHAPES: dict[str, Callable[[int], str]] = {
    "calls": lambda n: f"U:x A[{','.join(f'c:k{i}' for i in range(n))}] U:y",
    "turns": lambda n: f"U:x {' '.join(f'A[c:k{i}]' for i in range(n))} U:y",
}
SHAPE = pytest.mark.parametrize("shape", SHAPES)
PARTS = 4_000
OPEN = "No tool output found for function call k0."
PATHS: dict[str, str] = dict(
    zip(
        DIALECTS,
        ("messages", "chat/completions", "responses", "models/gemini-x:generateContent"),
        strict=True,
    )
)


def _spent(work: Callable[[], object]) -> float:
    """The seconds of this process that it takes, at its best.

    The collector would look at all that the other tests have left behind, now and then.
    """
    spent: list[float] = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
        gc.enable()
    return min(spent)


@pytest.mark.parametrize(
    ("dialect", "shape"), [*((each, "turns") for each in DIALECTS), ("anthropic", "calls")]
)
def test_open_calls_by_the_thousands_are_mended_while_the_event_loop_goes_on(
    dialect: str, shape: str
) -> None:
    """The loop turns on while a worker's thread mends: more than a few times, for it takes long."""
    body = write(dialect, SHAPES[shape](PARTS), max_tokens=1000)
    sent, turned = list[bytes](), list[int]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        turned.append(0)
        return httpx2.Response(400 if len(sent) == 1 else 418, json={"error": {"message": OPEN}})

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.001)
            if len(sent) == 1:
                turned[0] += 1

    async def mend(data: bytes) -> None:
        bare = httpx2.AsyncClient(
            transport=httpx2.MockTransport(answer), base_url="http://here/v1/"
        )
        async with continuation.async_http_client(bare, log_repairs=False) as client:
            beating = asyncio.create_task(beat())
            await client.post(PATHS[dialect], content=data)
            beating.cancel()

    error = classify(400, OPEN)
    assert error is not None
    quarter = write(dialect, SHAPES[shape](PARTS // 4), max_tokens=1000)
    costs = [_spent(partial(repair_refused, each, error, dialect)) for each in (quarter, body)]
    assert costs[1] < 4 * 2.5 * costs[0]
    asyncio.run(mend(json.dumps(body).encode()))
    assert len(sent) == 2
    assert validate(json.loads(sent[1]), dialect, live=False) == []
    assert turned[0] > 3


def test_a_large_request_is_read_while_the_event_loop_goes_on() -> None:
    turned, reached = 0, list[int]()

    def answer(_: httpx2.Request) -> httpx2.Response:
        reached.append(turned)
        return httpx2.Response(418)

    async def send(size: int) -> None:
        nonlocal turned

        async def beat() -> None:
            nonlocal turned
            while True:
                await asyncio.sleep(0)
                turned += 1

        bare = httpx2.AsyncClient(
            transport=httpx2.MockTransport(answer), base_url="http://here/v1/"
        )
        async with continuation.async_http_client(bare) as client:
            beating = asyncio.create_task(beat())
            await asyncio.sleep(0)
            turned = 0
            body = {"messages": [{"role": "user", "content": "x" * size}]}
            await client.post("messages", json={"model": "claude-x", "max_tokens": 9, **body})
            beating.cancel()

    for size in (100, 1_100_000):
        asyncio.run(send(size))
    assert reached[0] < reached[1]


@SHAPE
@pytest.mark.parametrize("store", [*LOGS, "opencode.db"])
def test_a_session_of_many_parts_costs_by_their_number(
    store: str, shape: str, tmp_path: Path
) -> None:
    costs: list[float] = []
    for parts in (400, 2_000):
        path, line = tmp_path / f"{parts}" / store, SHAPES[shape](parts)
        path.parent.mkdir()
        if store in LOGS:
            path.write_bytes(as_bytes(LOGS[store](line)))
        else:
            opencode(path, line)
        assert [session.exit_code for session in check(path)] == [1]
        costs.append(_spent(partial(check, path)))
    assert costs[1] < 5 * 2 * costs[0]


@pytest.mark.parametrize(
    "torn",
    [
        json.dumps(
            {"type": "user", "message": {"content": [{"n": {"n": n}} for n in range(50_000)]}}
        ),
        json.dumps({"type": "user", "message": {"content": 'a "quoted" line\n' * 100_000}}),
        '{"type":' * 100_000,
    ],
    ids=["objects", "text", "depth"],
)
def test_a_long_line_that_is_torn_is_not_read_over_and_over(torn: str, tmp_path: Path) -> None:
    path, costs = tmp_path / "s.jsonl", list[float]()
    for part in (len(torn) // 4, len(torn)):
        whole = as_bytes(LOGS["claude-code"]("U:go A[t:x] U:y"))
        path.write_bytes(whole + torn[: part - 3].encode())
        (session,) = check(path)
        assert [problem.code for problem in session.problems] == ["torn_tail"]
        costs.append(_spent(partial(check, path)))
    assert costs[1] < 4 * 2.5 * costs[0]
