"""A long batch through the command line, killed twice on the way: `continuation run --batch`.

    python tests/benchmarks/bulk.py [--quick] [--count 10000] [--rate 40]

The provider is the simulator in a process of its own. It refuses what comes faster than `--rate` a
second, cuts one answer in twenty at its limit, and drops one stream in fifty. The plain client
beside it is the SDK's, with as many threads and its own retries; it takes what comes, and reads
the bytes of streams without looking at them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import anthropic
from measure import Figure, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.limited import Bucket, Limited

from continuation.simulator import Reply, Scenario
from continuation.simulator.model import Ask
from continuation.simulator.wire import Answer, Recorded

MODEL = "claude-opus-5"
SIZE = 20_000
LINE = "{:05}. A line of an answer that is one of very many, and none of them is short.\n"
TEXT = "".join(map(LINE.format, range(SIZE // len(LINE.format(0)) + 1)))[:SIZE]
WORKERS = 32
KILLS = (0.1, 0.2)
"""After which shares of the answers it is killed."""
WARM = 0.35
"""From which share on it is measured."""


# --- the provider --------------------------------------------------------------------------------


class Provider(Limited):
    """Says what it sent, and keeps nothing of the requests."""

    def __init__(self, rate: float) -> None:
        super().__init__(TEXT, Bucket(rate, int(rate)), Scenario(deltas=200))
        self.taken = self.cut = self.dropped = self.said = 0

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        answer, reply = super().respond(request)
        with self._lock:
            self.requests.clear()
            if answer.status == 200 and request.asks_model:
                self.taken += 1
                share = 1.0 if reply.drop is None else reply.drop / len(answer.events or "1")
                texts = (getattr(block, "text", "") for block in reply.blocks)
                self.said += round(share * sum(map(len, texts)))
        return answer, reply

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        kind = hashlib.sha256(ask.turns[0].text.encode()).digest()[0] * 100 // 256
        if attempt == 1 and kind < 5:
            ask = replace(ask, limit=len(TEXT) // 8)
        reply = super()._reply(ask, scenario, attempt)
        if reply.status != 200:
            with self._lock:
                self._attempts[ask.key] -= 1
            return reply
        self.cut += attempt == 1 and kind < 5
        if attempt == 1 and kind in {5, 6}:
            self.dropped += 1
            reply = replace(reply, drop=40)
        return reply


def provide(rate: float) -> None:
    """Serve, and answer each line of standard input with what was done so far."""
    with Provider(rate) as provider:
        print(provider.url, flush=True)
        for _ in sys.stdin:
            names = ("taken", "cut", "dropped", "said")
            told = {name: getattr(provider, name) for name in names}
            print(json.dumps({**told, "refused": provider.bucket.refused}), flush=True)


@contextlib.contextmanager
def provider(rate: float) -> Generator[tuple[str, Any]]:
    """Run one in a process of its own; yield its URL, and what asks it."""
    command = [sys.executable, __file__, "--provide", str(rate)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask() -> dict[str, int]:
            stdin.write("\n")
            stdin.flush()
            return dict(json.loads(stdout.readline()))

        try:
            yield stdout.readline().strip(), ask
        finally:
            process.terminate()


# --- the plain client ----------------------------------------------------------------------------


def plain(url: str, count: int) -> None:
    """Ask so many times with the SDK alone, and print how many answers came a second."""
    numbers, lock, ends = iter(range(count)), threading.Lock(), list[float]()

    def work(client: anthropic.Anthropic) -> None:
        while True:
            with lock:
                if (number := next(numbers, None)) is None:
                    return
            asked: Any = [{"role": "user", "content": f"Plainly {number}."}]
            with (
                contextlib.suppress(Exception),  # a stream that drops is none of its business
                client.messages.with_streaming_response.create(
                    model=MODEL, max_tokens=16_000, messages=asked, stream=True
                ) as response,
            ):
                for _ in response.iter_bytes():
                    pass
            ends.append(time.perf_counter())

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=100) as client:
        threads = [threading.Thread(target=work, args=(client,)) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ends.sort()
    first = int(len(ends) * WARM)
    print((len(ends) - first) / (ends[-1] - ends[first]))


# --- ours ----------------------------------------------------------------------------------------


class Life:
    """One life of the batch's process."""

    def __init__(self, url: str, folder: Path) -> None:
        self.out, log = folder / "answers.jsonl", folder / "log"
        line = ["run", "--batch", str(folder / "prompts.jsonl"), "--out", str(self.out)]
        line += ["--journal", str(folder / "batch.db"), "--concurrency", str(WORKERS)]
        line += ["--model", MODEL, "--max-tokens", "16000", "--base-url", url]
        self._log: IO[bytes] = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "continuation", *line],
            stderr=self._log,
            env={**os.environ, "ANTHROPIC_API_KEY": "k"},
        )
        self._read, self.count = 0, 0

    def lines(self) -> int:
        """Count the lines of the output, as it grows."""
        with contextlib.suppress(FileNotFoundError), self.out.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            self._read += len(new)
            self.count += new.count(b"\n")
        return self.count

    def until(self, count: int) -> Iterator[tuple[float, int, int]]:
        """Yield the time, the lines and the memory, until there are so many lines."""
        while self.lines() < count:
            assert self.process.poll() is None, "it ended too early"
            yield time.perf_counter(), self.count, self.memory()
            time.sleep(0.1)
        yield time.perf_counter(), self.count, self.memory()

    def memory(self) -> int:
        """Return its resident memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status")
        with contextlib.suppress(OSError, IndexError):
            told = status.read_text().split("VmRSS:")[1].split()
            return int(told[0]) * 1024
        return 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def end(self) -> int:
        status = self.process.wait()
        self._log.close()
        return status


def run(count: int, rate: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name, provider(rate) as (url, ask):
        folder, few = Path(name), max(count // 8, 400)
        alone = [_plainly(url, few)]
        before = ask()
        asked = (json.dumps({"id": f"r{n}", "prompt": f"Write {n}."}) + "\n" for n in range(count))
        (folder / "prompts.jsonl").write_text("".join(asked))
        for share in KILLS:
            life = Life(url, folder)
            for _ in life.until(int(count * share)):
                pass
            life.kill()
        life = Life(url, folder)
        seen = [step for step in life.until(count) if step[1] >= count * WARM and step[2]]
        status, after = life.end(), ask()
        alone.append(_plainly(url, few))
        found = [json.loads(line) for line in life.out.open()]
    (began, first, memory), (ended, last, _) = seen[0], seen[-1]
    ours, own = (last - first) / (ended - began), sum(alone) / len(alone)
    wrong = count - sum(line["text"] == TEXT for line in found)
    twice = len(found) - len({line["id"] for line in found})
    done = {key: after[key] - before[key] for key in after}
    note = f"{done['cut']:,} cut, {done['dropped']:,} dropped, {done['refused']:,} refused"
    yield Figure(f"{count:,} answers of {SIZE // 1000} kB: not whole or lost", wrong, "", 0, note)
    yield Figure("...delivered twice", twice, "", 0, f"exit status {status}")
    note = f"a second: {ours:.1f} against {' and '.join(f'{each:.1f}' for each in alone)}"
    yield Figure("rate of a plain client ÷ ours", own / ours, "", 1 / 0.9, note)
    yield Figure("rate that the provider allows ÷ ours", rate / ours, "")
    most = max(step[2] for step in seen)
    note = f"from {memory / 1e6:.0f} MB after {first:,} answers"
    yield Figure("memory added", (most - memory) / 1e6, "MB", 20, note)
    # A kill loses what was under way and not saved; what a provider wrote into a socket is billed.
    lost = (done["said"] - count * SIZE) / (len(KILLS) * WORKERS * SIZE)
    note = f"{done['said'] / 1e6:.1f} MB said for {count * SIZE / 1e6:.1f} MB"
    yield Figure("generated again ÷ what two kills may lose", lost, "", 1.0, note)


def _plainly(url: str, count: int) -> float:
    command = [sys.executable, __file__, "--plain", url, "--count", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few requests: a look, not a figure")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second")
    parser.add_argument("--provide", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.provide:
        provide(given.provide)
        return 0
    if given.plain:
        plain(given.plain, given.count)
        return 0
    return report("In bulk", list(run(800 if given.quick else given.count, given.rate)))


if __name__ == "__main__":
    sys.exit(main())
