"""Histories of 20,000 parts: what mending one costs in a turn, and in a saved session.

    python tests/benchmarks/large.py [--quick]

In a turn: CPU, and how long the event loop stands still meanwhile, in the process's own CPU time,
for what other programs take of the machine is not ours; beside it what the bare client does to the
loop that writes the same request. A saved session is the command's, from its start to its end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx2
from measure import Figure, is_quick, report

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.golden import LOGS, as_bytes, opencode
from support.notation import DIALECTS, write

import continuation

SHAPES: dict[str, Callable[[int], str]] = {
    "calls in one message": lambda n: f"U:x A[{','.join(f'c:k{i}' for i in range(n))}] U:y",
    "call turns in a row": lambda n: f"U:x {' '.join(f'A[c:k{i}]' for i in range(n))} U:y",
}
PATHS: dict[str, str] = dict(
    zip(
        DIALECTS,
        ("messages", "chat/completions", "responses", "models/gemini-x:generateContent"),
        strict=True,
    )
)
OPEN = "No tool output found for function call k0."
SECONDS = 1.0
"""For 10,000 parts."""


def turns(parts: int) -> Iterator[Figure]:
    """A history that is refused, mended by a worker, and sent again; the best of three."""
    for dialect in DIALECTS:
        for name, shape in SHAPES.items():
            body = write(dialect, shape(parts), max_tokens=1000)
            runs = [asyncio.run(_mended(dialect, json.dumps(body).encode())) for _ in range(3)]
            bare = min(asyncio.run(_sent(dialect, body)) for _ in range(3))
            cpu, gap = (min(each) for each in zip(*runs, strict=True))
            what, note = f"{dialect}, {name}", f"the bare client: {bare * 1000:.0f} ms"
            yield Figure(f"{what}: CPU for 10,000", cpu / parts * 10_000, "s", SECONDS)
            bound = max(50.0, bare * 1000)
            yield Figure(f"{what}: the loop stood still", gap * 1000, "ms", bound, note)


async def _mended(dialect: str, data: bytes) -> tuple[float, float]:
    asked = 0

    def answer(_: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        return httpx2.Response(400 if asked == 1 else 418, json={"error": {"message": OPEN}})

    bare = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://here/v1/")
    async with continuation.async_http_client(bare, log_repairs=False) as client:
        cost = await _watched(lambda: client.post(PATHS[dialect], content=data))
    assert asked == 2, "not mended"
    return cost


async def _sent(dialect: str, body: object) -> float:
    answer = httpx2.MockTransport(lambda _: httpx2.Response(418))
    async with httpx2.AsyncClient(transport=answer, base_url="http://here/v1/") as bare:
        _, gap = await _watched(lambda: bare.post(PATHS[dialect], json=body))
    return gap


async def _watched(act: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """What it costs, and of that the most between two turns of the event loop."""
    gaps = list[float]()

    async def beat() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            gaps.append(time.process_time() - began)

    gc.collect()
    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    gaps.clear()
    began = time.process_time()
    await act()
    cpu = time.process_time() - began
    await asyncio.sleep(0.01)
    beating.cancel()
    return cpu, max(gaps)


def sessions(parts: int, folder: Path) -> Iterator[Figure]:
    """The same in the stores of agents."""
    for store in (*LOGS, "opencode.db"):
        for number, (name, shape) in enumerate(SHAPES.items()):
            path = folder / f"{number}" / store
            path.parent.mkdir(exist_ok=True)
            if store in LOGS:
                path.write_bytes(as_bytes(LOGS[store](shape(parts))))
            else:
                opencode(path, shape(parts))
            for verb, status, copy in (("check", 1, []), ("repair", 0, ["--out"])):
                runs = [copy and [*copy, str(path.with_name(f"{n}-{store}"))] for n in range(2)]
                spent = min(_spent([verb, str(path), *more], status) for more in runs)
                took = spent / parts * 10_000
                yield Figure(f"{verb} {store}, {name}: for 10,000", took, "s", SECONDS)


def _spent(command: list[str], status: int) -> float:
    """The CPU seconds of a command of ours."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-m", "continuation", *command], capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == status, ran.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def torn(megabytes: int, folder: Path) -> Iterator[Figure]:
    """A log whose last line was cut."""
    whole = as_bytes(LOGS["claude-code"]("U:go A[t:x] U:y"))
    small = json.dumps([{"n": {"n": n}} for n in range(45_000 * megabytes)])
    lines = {
        "text": (json.dumps({"content": 'a "quoted" line\n' * 55_000 * megabytes}), 1),
        "small objects": ('{"type":"user","message":{"content":' + small, 45_000 * megabytes),
    }
    for name, (line, parts) in lines.items():
        path = folder / f"{name}.jsonl"
        path.write_bytes(whole + line[:-3].encode())
        took = _spent(["check", str(path)], 1)
        note = f"{len(line) / 1e6:.0f} MB, {parts:,} parts"
        yield Figure(f"check, a torn line of {name}", took, "s", max(2.0, parts / 10_000), note)


def main() -> int:
    quick = is_quick(str(__doc__))
    figures = list(turns(2_000 if quick else 20_000))
    with tempfile.TemporaryDirectory() as name:
        figures += sessions(1_000 if quick else 20_000, Path(name))
        figures += torn(1 if quick else 45, Path(name))
    return report("histories of many parts", figures)


if __name__ == "__main__":
    sys.exit(main())
