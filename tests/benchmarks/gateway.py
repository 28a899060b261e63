"""What the gateway costs: CPU of its process, against a bare relay of uvicorn and aiohttp.

    python tests/benchmarks/gateway.py [--quick] [--rounds N]
    python tests/benchmarks/gateway.py --litellm ENVIRONMENT
    python tests/benchmarks/gateway.py --soak 20000

Upstream, relay and gateway are processes of their own. Rounds are interleaved, figures are medians.
`--litellm`: beside LiteLLM's proxy, from an environment that `litellm[proxy]` was installed in.
`--soak`: so many turns, a fifth of them cut, a tenth left by their callers; what they leave behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

try:
    import aiohttp
    import uvicorn
except ImportError as error:
    sys.exit(f"the gateway: skipped: {error.name} not installed")

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
BODY = {
    "model": "claude-opus-5",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "a" * 900}],
}


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


USAGE = {"input_tokens": 9, "output_tokens": 9}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5"}
HEAD = event("message_start", message={**MESSAGE, "content": [], "usage": USAGE}) + event(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
DELTA = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "and so on, "})
STAMP = re.compile(rb"at ([0-9.]+);")
TAIL = (
    event("content_block_stop", index=0)
    + event("message_delta", delta={"stop_reason": "end_turn"}, usage=USAGE)
    + event("message_stop")
)
WHOLE = json.dumps(
    {
        **MESSAGE,
        "content": [{"type": "text", "text": "b" * 700}],
        "stop_reason": "end_turn",
        "usage": USAGE,
    }
).encode()


# --- the processes ------------------------------------------------------------------------------


async def upstream(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the query says: so many events, so many seconds between them; 0 events: JSON."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    # LiteLLM passes no query on: its models differ in the path of their base URL.
    query = scope["query_string"].decode() or scope["path"].split("/")[1]
    asked = {k: float(v[0]) for k, v in parse_qs(query).items()}
    events, pause = int(asked.get("events", 0)), "later" if b'"assistant"' in body else "gap"
    gap = asked.get(pause, 0)
    first = json.loads(body)["max_tokens"] == BODY["max_tokens"] and b'"assistant"' not in body
    whole, tail = WHOLE, TAIL
    if asked.get("cut") and first:
        whole, tail = (said.replace(b"end_turn", b"max_tokens") for said in (WHOLE, TAIL))
    stamped = asked.get("stamped", 0)
    if asked.get("delay"):
        await asyncio.wait_for(receive(), asked["delay"])  # the caller leaves
        gone.write_text(repr(time.monotonic()))
        return
    kind = b"text/event-stream" if events else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if not events:
        await send({"type": "http.response.body", "body": whole})
        return
    await send({"type": "http.response.body", "body": HEAD, "more_body": True})
    watcher = asyncio.create_task(receive())
    for _ in range(events):
        if gap:
            done, _ = await asyncio.wait({watcher}, timeout=gap)
            if done:
                gone.write_text(repr(time.monotonic()))
                return
        told = DELTA
        if stamped:
            now = f"at {time.monotonic():.6f};"
            told = event("content_block_delta", index=0, delta={"type": "text_delta", "text": now})
        await send({"type": "http.response.body", "body": told, "more_body": True})
    watcher.cancel()
    await send({"type": "http.response.body", "body": tail})


gone = Path(os.environ.get("GONE", "/dev/null"))


class Relay:
    """The peer: no more than is needed to pass bytes on, and to notice that a caller has left."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self._session = self._session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        )
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        task = asyncio.current_task()
        assert task is not None

        async def watch() -> None:
            await receive()
            task.cancel()

        watcher = asyncio.create_task(watch())
        url = f"{self._base}{scope['path']}?{scope['query_string'].decode()}"
        headers = [(k.decode(), v.decode()) for k, v in scope["headers"] if k != b"host"]
        with contextlib.suppress(asyncio.CancelledError):
            async with self._session.request(
                scope["method"], url, data=body, headers=headers
            ) as got:
                kept = [
                    (k.lower(), v) for k, v in got.raw_headers if k.lower() != b"transfer-encoding"
                ]
                await send({"type": "http.response.start", "status": got.status, "headers": kept})
                async for chunk in got.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                watcher.cancel()
                await send({"type": "http.response.body", "body": b""})


def counted(table: str) -> Any:
    """Return a gateway that tells how many tasks there are."""
    from continuation.gateway import app

    gateway = app(Path(table))

    async def told(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/tasks":
            await gateway(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        count = str(len(asyncio.all_tasks())).encode()
        await send({"type": "http.response.body", "body": count})

    return told


def serve(what: str, base: str, port: int) -> None:
    app: Any = upstream
    if what != "upstream":
        app = Relay(base) if what == "relay" else counted(base)
    uvicorn.run(
        app, port=port, http="httptools", loop="uvloop", ws="none", lifespan="off",
        access_log=False, log_level="error", server_header=False, date_header=False,
    )  # fmt: skip


class Process:
    """One of them; what it has used so far is read from the kernel."""

    def __init__(self, *command: str, program: str = sys.executable, **environment: str) -> None:
        began = time.monotonic()
        self.process = subprocess.Popen(
            [program, *command], env={**os.environ, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.began = began

    @property
    def cpu(self) -> float:
        """Seconds, of all its threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    @property
    def sockets(self) -> int:
        links = [link.readlink() for link in Path(f"/proc/{self.process.pid}/fd").iterdir()]
        return sum(link.name.startswith("socket:") for link in links)

    @property
    def rss(self) -> float:
        """Kilobytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / 1000


@contextlib.contextmanager
def running(*processes: Process) -> Iterator[None]:
    try:
        yield
    finally:
        for each in processes:
            each.process.send_signal(signal.SIGKILL)
            each.process.wait()


# --- what is measured -----------------------------------------------------------------------------


class Bench:
    """One of the two, and how it is asked."""

    def __init__(
        self, name: str, url: str, process: Process, session: aiohttp.ClientSession
    ) -> None:
        self.name, self.url, self.process, self.session = name, url, process, session

    async def ask(self, query: str = "", *, stream: bool = False) -> int:
        """Ask once; return how many bytes came."""
        body, place = {**BODY, "stream": stream}, f"{self.url}/v1/messages?{query}"
        # What is cut once is to be cut each time.
        headers = {"x-continuation": "remember_limit=false"} if "later" in query else {}
        async with self.session.post(place, json=body, headers=headers) as got:
            assert got.status == 200, await got.text()
            return sum([len(chunk) async for chunk in got.content.iter_any()])

    async def paced(self, streams: int, seconds: float) -> float:
        """CPU per event, in microseconds, of streams in which an event comes every 40 ms."""
        events, before = int(seconds * 25), self.process.cpu
        asked = [self.ask(f"events={events}&gap=0.04", stream=True) for _ in range(streams)]
        await asyncio.gather(*asked)
        return (self.process.cpu - before) / (streams * events) * 1e6

    async def late(self, streams: int, seconds: float) -> list[float]:
        """Milliseconds that each event of such streams took from upstream to here."""
        took, query = list[float](), f"events={int(seconds * 25)}&gap=0.04&stamped=1"

        async def read() -> None:
            url, body = f"{self.url}/v1/messages?{query}", {**BODY, "stream": True}
            async with self.session.post(url, json=body) as got:
                async for chunk in got.content.iter_any():
                    now = time.monotonic()
                    took.extend((now - float(at)) * 1000 for at in STAMP.findall(chunk))

        await asyncio.gather(*(read() for _ in range(streams)))
        return took

    async def stalled(self) -> float:
        """Megabytes that the process grows by while a reader of 200 MB reads nothing."""
        await self.ask("events=9", stream=True)
        before, place = self.process.rss, urlsplit(self.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1)
        body = json.dumps({**BODY, "stream": True}).encode()
        path = f"{place.path}/v1/messages?events={200_000_000 // len(DELTA)}"
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readexactly(1)
        now, last = self.process.rss, -1.0
        while now != last:
            await asyncio.sleep(3)
            now, last = self.process.rss, now
        writer.transport.abort()
        return (now - before) / 1000

    async def flood(self, events: int) -> float:
        """Events a second of one stream."""
        began = time.perf_counter()
        assert await self.ask(f"events={events}", stream=True) > events * len("and so on, ")
        return events / (time.perf_counter() - began)

    async def requests(self, count: int) -> float:
        """CPU of a request of 1 kB, in microseconds."""
        before = self.process.cpu
        for _ in range(count):
            await self.ask()
        return (self.process.cpu - before) / count * 1e6

    @contextlib.asynccontextmanager
    async def open(self, streams: int, query: str = "events=9&gap=900") -> AsyncIterator[None]:
        """Have streams open in which nothing happens for long."""
        tasks = [asyncio.create_task(self.ask(query, stream=True)) for _ in range(streams)]
        await asyncio.sleep(2 + streams / 200)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(1)

    async def leave(self, query: str) -> float:
        """Milliseconds until the upstream notices that the caller has left."""
        gone.write_text("")
        task = asyncio.create_task(self.ask(query, stream=True))
        await asyncio.sleep(0.5)
        task.cancel()
        left = time.monotonic()
        await asyncio.gather(task, return_exceptions=True)
        while not (told := gone.read_text()):
            await asyncio.sleep(0.005)
            assert time.monotonic() < left + 10, "never"
        return (float(told) - left) * 1000


class LiteLLM(Bench):
    """LiteLLM's proxy, asked in OpenAI's format; its models stand for what the upstream is asked.

    It can pass bytes on unread too, as a relay does, and costs about as much as one then.
    """

    KEY = "sk-of-litellm"
    QUERIES = ("events=0", "events=50&gap=0.04", "events=20000")

    @classmethod
    def config(cls, base: str) -> str:
        models = [
            {
                "model_name": query,
                "litellm_params": {
                    "model": f"anthropic/{BODY['model']}",
                    "api_base": f"{base}/{query}",
                    "api_key": "k",
                },
            }
            for query in cls.QUERIES
        ]
        return json.dumps({"model_list": models, "general_settings": {"master_key": cls.KEY}})

    async def ask(self, query: str = "", *, stream: bool = False) -> int:
        body = {**BODY, "model": query or "events=0", "stream": stream}
        key = {"authorization": f"Bearer {self.KEY}"}
        async with self.session.post(f"{self.url}/chat/completions", json=body, headers=key) as got:
            assert got.status == 200, await got.text()
            return sum([len(chunk) async for chunk in got.content.iter_any()])


async def beside_litellm(gateway: Process, peer: Process, place: str) -> None:
    """The three figures that LiteLLM is the peer of."""
    with running(peer):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            theirs = LiteLLM("LiteLLM", "http://127.0.0.1:18804", peer, session)
            both = [theirs, Bench("gateway", place, gateway, session)]
            for bench in both:
                await started(bench)
                await bench.requests(50)
            await compare("40 streams, an event each 40 ms: CPU µs an event", 3, both,
                          lambda bench: bench.paced(40, 2))  # fmt: skip
            await compare("one stream of 20,000 events: events a second", 1, both,
                          lambda bench: bench.flood(20_000))  # fmt: skip
            await compare("request of 1 kB: CPU µs", 3, both, lambda bench: bench.requests(100))


async def compare(
    title: str, rounds: int, both: list[Bench], measure: Callable[[Bench], Awaitable[float]]
) -> None:
    found: dict[str, list[float]] = {bench.name: [] for bench in both}
    for _ in range(rounds):
        for bench in both:
            found[bench.name].append(await measure(bench))
    peer, ours = (statistics.median(found[bench.name]) for bench in both)
    print(
        f"{title:<48} {both[0].name} {peer:>10,.1f}   gateway {ours:>10,.1f}   x {ours / peer:.3f}",
        flush=True,
    )


async def soak(process: Process, url: str, turns: int) -> bool:
    """Let many turns pass, and many of them be left; say whether anything of them stays."""
    timeout = aiohttp.ClientTimeout(total=None)
    gate, place = asyncio.Semaphore(16), f"{url}/anthropic"

    async def turn(bench: Bench, number: int) -> None:
        stream = number % 2 == 0
        query = f"events={20 if stream else 0}&cut={int(number % 5 == 0)}"
        async with gate:
            if number % 10 == 3:  # before the first byte, or in the stream
                left = ("delay=9", "events=99&gap=0.01")[number // 10 % 2]
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(bench.ask(left, stream="events" in left), 0.05)
            else:
                await bench.ask(query, stream=stream)

    async def told() -> tuple[float, int, int]:
        async with (
            aiohttp.ClientSession() as fresh,
            fresh.get(f"{url}/tasks", headers={"connection": "close"}) as got,
        ):
            tasks = int(await got.text())
        return process.rss / 1000, process.sockets, tasks

    async def pass_by(first: int, last: int) -> None:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            bench = Bench("gateway", place, process, session)
            for start in range(first, last, 1000):
                numbers = range(start, min(start + 1000, last))
                await asyncio.gather(*(turn(bench, number) for number in numbers))
        await asyncio.sleep(20)  # the pool keeps connections to the upstream for 15

    async with aiohttp.ClientSession() as session:
        await started(Bench("gateway", place, process, session))
    await pass_by(0, 1000)
    before = await told()
    began = time.monotonic()
    await pass_by(1000, 1000 + turns)
    after = await told()
    names = ("RSS in MB", "sockets", "tasks")
    said = (f"{n} {a:.1f} -> {b:.1f}" for n, a, b in zip(names, before, after, strict=True))
    print(f"{turns:,} turns in {time.monotonic() - began:.0f} s: {', '.join(said)}")
    return after[0] - before[0] <= 10 and after[1] <= before[1] and after[2] <= before[2]


async def started(bench: Bench) -> None:
    """Wait until the first answer."""
    while True:
        with contextlib.suppress(aiohttp.ClientConnectionError, AssertionError):
            await bench.ask()
            return
        await asyncio.sleep(0.02)


async def latency(rounds: int, all_three: list[Bench], seconds: float) -> None:
    """Tell how late events come, without a gateway, through the relay, and through ours."""
    found: dict[str, list[float]] = {bench.name: [] for bench in all_three}
    for _ in range(rounds):
        for bench in all_three:
            found[bench.name] += await bench.late(40, seconds)
    for name, took in found.items():
        p50, p99 = (statistics.quantiles(took, n=100)[at] for at in (49, 98))
        print(f"an event of 40 streams, {name:<24} p50 {p50:.2f} ms   p99 {p99:.2f} ms", flush=True)


async def main(
    base: str, processes: list[Process], urls: list[str], *, quick: bool, rounds: int
) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        names = ("relay", "gateway")
        both = [Bench(n, u, p, session) for n, u, p in zip(names, urls, processes[1:], strict=True)]
        for bench in both:
            await started(bench)
            told = time.monotonic() - bench.process.began
            if bench is both[1]:  # the relay was started earlier
                print(f"start to first answer, {bench.name}: {told:.2f} s")
            await bench.requests(50)
        seconds, count = (2, 100) if quick else (8, 400)
        await compare("40 streams, an event each 40 ms: CPU µs an event", rounds, both,
                      lambda bench: bench.paced(40, seconds))  # fmt: skip
        await latency(rounds, [Bench("none", base, processes[0], session), *both], seconds)
        await compare("reader stalls on 200 MB: MB", rounds, both, Bench.stalled)
        await compare("one stream of 20,000 events: events a second", rounds, both,
                      lambda bench: bench.flood(20_000))  # fmt: skip
        await compare("request of 1 kB: CPU µs", rounds, both, lambda bench: bench.requests(count))
        await compare("left before the first byte: ms", rounds, both,
                      lambda bench: bench.leave("delay=30"))  # fmt: skip
        await compare("left in the stream: ms", rounds, both,
                      lambda bench: bench.leave("events=99&gap=5"))  # fmt: skip

        async def crowded(bench: Bench) -> float:
            async with bench.open(500):
                return await bench.requests(count)

        async def memory(bench: Bench) -> float:
            before = bench.process.rss
            async with bench.open(200 if quick else 1000):
                return (bench.process.rss - before) / (200 if quick else 1000)

        await compare("open streams: kB each", 1, both, memory)
        await compare("request with 500 streams open: CPU µs", 1 if quick else 3, both, crowded)
        await watched(both[1], 5 if quick else 30)


async def watched(bench: Bench, seconds: int) -> None:
    """Tell what a page costs that is looked at while 200 turns are in their second attempts."""
    place = bench.url.removesuffix("/anthropic") + "/continuation/live"
    cut = bench.open(200, "events=40&cut=1&later=900")
    async with cut, aiohttp.ClientSession(auto_decompress=False) as session:
        used = list[float]()
        for looks in (False, True):
            before, size = bench.process.cpu, 0
            for _ in range(seconds):
                if looks:
                    async with session.get(place, headers={"accept-encoding": "gzip"}) as got:
                        size += len(await got.read())
                await asyncio.sleep(1)
            used.append((bench.process.cpu - before) / seconds)
    alone, looked_at = (f"{share:.1%}" for share in used)
    rate = size / seconds / 1000
    print(f"200 turns: {alone} of a core; with a page: {looked_at}, {rate:.1f} kB/s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--litellm", type=Path, metavar="ENVIRONMENT")
    parser.add_argument("--soak", type=int, metavar="TURNS")
    parser.add_argument("--serve", nargs=3, metavar=("WHAT", "BASE", "PORT"))
    given = parser.parse_args()
    if given.serve:
        serve(given.serve[0], given.serve[1], int(given.serve[2]))
        sys.exit()
    with tempfile.TemporaryDirectory() as here:
        gone = Path(here, "gone")
        base, ports = "http://127.0.0.1:18801", (18801, 18802, 18803)
        table = Path(here, "c.toml")
        table.write_text(f'[upstreams.anthropic]\nbase_url = "{base}"\n')
        # One after the other: two of them would share what a start takes.
        first = Process(__file__, "--serve", "upstream", "", str(ports[0]), GONE=str(gone))
        if given.soak:
            ours = Process(__file__, "--serve", "gateway", str(table), str(ports[2]))
            with running(first, ours):
                well = asyncio.run(soak(ours, f"http://127.0.0.1:{ports[2]}", given.soak))
            sys.exit(not well)
        relay = Process(__file__, "--serve", "relay", base, str(ports[1]))
        command = ("-m", "continuation", "serve", "--port", str(ports[2]), "--config", str(table))
        time.sleep(3)
        ours = Process(*command)
        urls = [f"http://127.0.0.1:{ports[1]}", f"http://127.0.0.1:{ports[2]}/anthropic"]
        with running(first, relay, ours):
            rounds = 1 if given.quick else given.rounds
            if given.litellm:
                file = Path(here, "litellm.yaml")
                file.write_text(LiteLLM.config(base))
                peer = Process(
                    *("--config", str(file), "--port", "18804"),
                    program=str(given.litellm / "bin" / "litellm"),
                    HOME=here,
                    LITELLM_LOCAL_MODEL_COST_MAP="True",
                    REPEATED_STREAMING_CHUNK_LIMIT="1000000",  # else it gives the stream up
                )
                asyncio.run(beside_litellm(ours, peer, urls[1]))
                sys.exit()
            asyncio.run(main(base, [first, relay, ours], urls, quick=given.quick, rounds=rounds))
