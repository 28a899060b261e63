"""How long others wait while one caller sends the gateway large bodies: `/livez`, asked all along.

    python tests/benchmarks/others.py

Each body is sent four times at once, to an upstream that cuts its answers, so that each turn has
later attempts. Wanted: the longest answer of `/livez` below 250 ms on a machine at rest.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep

import httpx2

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.gateways import KEYS, Raw, process, toml

MB = 1 << 20
HEAD = b'{"model":"claude-opus-5","max_tokens":300,"messages":[{"role":"user","content":"go"}],"x":'
BODIES = {
    "nothing": b"",
    "60 MB of small values": b"[" + b"[],1," * (12 * MB) + b"0]",
    "60 MB of one text with commas": json.dumps("a, b: [c] " * (6 * MB)).encode(),
    "the most values: numbers": b"[" + b"1," * 900_000 + b"0]",
    "the most values: objects": b"[" + b'{"a":1},' * 220_000 + b"0]",
    "the most values: keys": json.dumps({f"k{n}": n for n in range(300_000)}).encode(),
    "8 MB, as an agent's": json.dumps(
        [{"role": "user", "content": "word, " * 40}] * 30_000
    ).encode(),
}


SAID = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [{"type": "text", "text": "Some of it, and then. "}],
        "stop_reason": "max_tokens",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 300},
    }
).encode()
CUT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def watch(url: str, waits: list[float], over: threading.Event) -> None:
    """Ask `/livez` until it is over, and note how long each answer took."""
    with httpx2.Client(timeout=60) as client:
        while not over.is_set():
            begun = perf_counter()
            client.get(f"{url}/livez")
            waits.append(perf_counter() - begun)
            sleep(0.005)


def measure(url: str, body: bytes) -> tuple[list[int], float, float]:
    """Send a body four times at once; return statuses, seconds and the longest wait of others."""
    waits, over = list[float](), threading.Event()
    watching = threading.Thread(target=watch, args=(url, waits, over))
    watching.start()
    begun, place = perf_counter(), f"{url}/anthropic/v1/messages"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        sent = [
            pool.submit(httpx2.post, place, content=body, headers=KEYS, timeout=600)
            for _ in range(4 if body else 0)
        ]
        statuses = [one.result().status_code for one in sent]
    if not body:  # for comparison: nothing else is asked
        sleep(3)
    seconds = perf_counter() - begun
    over.set()
    watching.join()
    return statuses, seconds, max(waits)


def main() -> None:
    more = "\n[defaults]\nbackoff_seconds = 0\nremember_limit = false\n"
    with (
        Raw(CUT % (len(SAID), SAID)) as upstream,
        tempfile.TemporaryDirectory() as folder,
        process(Path(folder), toml(upstream.url, more)) as (url, running),
    ):
        for name, value in BODIES.items():
            body = HEAD + value + b"}" if value else b""
            statuses, seconds, longest = measure(url, body)
            memory = Path(f"/proc/{running.pid}/status").read_text()
            peak = int(memory.partition("VmHWM:")[2].split()[0]) // 1024
            print(
                f"{name:30} {len(body) / MB:5.1f} MB, {statuses}, {len(upstream.seen)} attempts, "
                f"{seconds:5.1f} s, /livez at most {longest * 1000:4.0f} ms, peak {peak:,} MB",
                flush=True,
            )
            upstream.seen.clear()


if __name__ == "__main__":
    main()
