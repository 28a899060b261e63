"""What a journal costs, and what a kill costs: against the same without one, or a bare disk.

    python tests/benchmarks/journal.py [--quick] [--only WORD]

Processes that are killed are real ones, killed by SIGKILL. Run it where the journal would lie:
`TMPDIR` names the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import answers
import httpx2
from lanes import Direct
from measure import Cost, Figure, no_postgres, report
from support.postgres import Postgres
from wires import WIRES

import continuation
from continuation import Journal
from continuation.journal.statements import SAVE
from continuation.journal.store import JournalStore, Unit
from continuation.simulator import Scenario, Simulator

EVENTS = 20_000
RATE = 2_000
"""Events a second of a stream that is as fast as a model may ever be."""


class Paced(Direct):
    """Hands events over at a rate, as a provider does, however late its reader is."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        response.stream = _Paced(response.stream)
        return response


class _Paced(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, events: Any) -> None:
        self._events = list(events)

    def __iter__(self) -> Iterator[bytes]:
        begin = time.perf_counter()
        for number, event in enumerate(self._events):
            if (early := begin + number / RATE - time.perf_counter()) > 0:
                time.sleep(early)
            yield event

    async def __aiter__(self) -> Any:
        begin = time.perf_counter()
        for number, event in enumerate(self._events):
            if (early := begin + number / RATE - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            yield event


def _client(transport: Direct, journal: Journal | None) -> Any:
    wire = WIRES["anthropic"]
    http = httpx2.Client(transport=transport)
    sdk = wire.client(base_url="http://x", api_key="k", max_retries=0, http_client=http)
    return continuation.wrap(sdk, journal=journal)


def _ask(name: str) -> dict[str, Any]:
    return {
        "model": answers.MODEL,
        "max_tokens": answers.LIMIT,
        "messages": [{"role": "user", "content": "Go."}],
        "extra_headers": {"x-answer": name},
        "stream": True,
    }


# --- streams ------------------------------------------------------------------------------------


def streams(folder: Path, rounds: int) -> Iterator[Figure]:
    """The same stream through a wrapped client, without a journal and with one.

    Whole runs in turn: a save may fall on any event, and is not to be boiled away.
    """
    for what, transport, events, times, bound in (
        ("as fast as they come", Direct("anthropic"), EVENTS, rounds, 1.08),
        (f"{RATE:,} a second", Paced("anthropic"), EVENTS // 4, max(1, rounds // 4), 1.02),
    ):
        with Journal(folder / "streams.db", what) as journal:
            pairs = list(_pairs(transport, journal, events, times))
        ratio = statistics.median(ours.wall / plain.wall for plain, ours in pairs)
        yield Figure(f"{events:,} events, {what}: wall ratio", ratio, "", bound)
        added = statistics.median(ours.cpu - plain.cpu for plain, ours in pairs) / events * 1e6
        alone = statistics.median(plain.cpu for plain, _ in pairs) / events * 1e6
        target, note = 1.0 if events == EVENTS else None, f"without: {alone:.1f} µs/event"
        yield Figure(f"{events:,} events, {what}: CPU added", added, "µs/event", target, note)


def _pairs(
    transport: Direct, journal: Journal, events: int, rounds: int
) -> Iterator[tuple[Cost, Cost]]:
    """Yield what a stream took without the journal, and with it."""
    clients = {ours: _client(transport, journal if ours else None) for ours in (False, True)}
    for number in range(rounds + 1):
        took: dict[bool, Cost] = {}
        for ours in (False, True) if number % 2 else (True, False):
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in clients[ours].messages.create(**_ask(f"stream/{events}")):
                pass
            took[ours] = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        if number:  # the first round warms up
            yield took[False], took[True]


def loop_delay(folder: Path) -> Iterator[Figure]:
    """How late an event loop is while it reads streams, without a journal and with one."""

    async def late(journal: Journal | None) -> float:
        wire = WIRES["anthropic"]
        http = httpx2.AsyncClient(transport=Paced("anthropic"))
        sdk = wire.async_client(base_url="http://x", api_key="k", http_client=http)
        client, delays, going = continuation.wrap(sdk, journal=journal), list[float](), True

        async def tick() -> None:
            while going:
                due = time.perf_counter() + 0.002
                await asyncio.sleep(0.002)
                delays.append(time.perf_counter() - due)

        ticking = asyncio.create_task(tick())
        async for _ in await client.messages.create(**_ask(f"stream/{EVENTS // 2}")):
            pass
        going = False
        await ticking
        return statistics.quantiles(delays, n=100)[98] * 1000

    with Journal(folder / "loop.db", "s") as journal:
        without, ours = (asyncio.run(late(each)) for each in (None, journal))
    note = f"without: {without:.2f} ms"
    yield Figure("event-loop delay, p99", ours, "ms", 5.0, note)


# --- the file -------------------------------------------------------------------------------------


def appends(folder: Path, count: int) -> Iterator[Figure]:
    """Synced appends, one after the other, beside as many writes and syncs of a bare file."""
    bare, ours = list[float](), list[float]()
    call = {"id": "c", "name": "t", "input": {}}
    bare_file = (folder / "bare").open("wb", buffering=0)
    with bare_file as file, Journal(folder / "a.db", "s") as journal:
        for number in range(count):
            began = time.perf_counter()
            file.write(b"x" * 200)
            os.fdatasync(file.fileno())
            bare.append(time.perf_counter() - began)
            began = time.perf_counter()
            journal.record("intent", f"c{number}", call).result()
            ours.append(time.perf_counter() - began)
    disk, took = statistics.median(bare), statistics.median(ours)
    note = f"fdatasync: {disk * 1000:.2f} ms"
    yield Figure("synced append, p50 ÷ bare fdatasync", took / disk, "", 1.5, note)


def history(place: Path | str, messages: int, bound: float = 150.0) -> Iterator[Figure]:
    """A long conversation: how long it takes to read."""
    text = "So we went on, and on. " * 36
    turns: list[dict[str, Any]] = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} {text}"}
        for number in range(messages + 1)
    ]
    with Journal(place, "s") as journal:
        client = _client(Direct("anthropic"), journal)
        ask = _ask("stream/1") | {"messages": turns}
        for _ in client.messages.create(**ask):
            pass
        sizes = sum(len(json.dumps(turn)) for turn in turns)
        took = list[float]()
        for _ in range(5):
            began = time.perf_counter()
            told = journal.history()
            took.append(time.perf_counter() - began)
        assert len(told) == messages + 2
        began = time.perf_counter()
        loaded = json.loads(json.dumps(turns))
        note = (
            f"{sizes / 1e6:.1f} MB; its JSON alone: {(time.perf_counter() - began) * 1000:.0f} ms"
        )
        assert len(loaded) == messages + 1
    yield Figure(f"history(), {messages:,} messages", min(took) * 1000, "ms", bound, note)


def size(folder: Path, turns: int) -> Iterator[Figure]:
    """Turns that are saved often while they stream; then a half-written one that is resumed."""
    path = folder / "size.db"
    with Journal(path, "s", save_every=0.001) as journal:
        transport = Paced("anthropic")
        client, said = _client(transport, journal), list[dict[str, Any]]()
        for number in range(turns):
            said.append({"role": "user", "content": f"Go {number}."})
            ask = _ask("stream/1000") | {"messages": said}
            text = "".join(
                event.delta.text
                for event in client.messages.create(**ask)
                if event.type == "content_block_delta"
            )
            said.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
        content = sum(len(json.dumps(turn)) for turn in said)
    largest = sum(each.stat().st_size for each in folder.glob("size.db*"))
    bound = (1.1 * content + 8e6) / 1e6
    note = f"{content / 1e6:.2f} MB of content, {turns} turns saved 500 times"
    yield Figure("size of the journal", largest / 1e6, "MB", bound, note)


# --- processes ------------------------------------------------------------------------------------

AGENT = """
import os, struct, sys, time
sys.path.insert(0, sys.argv[4])
import journal
from continuation import Journal
import continuation
path, session, url = sys.argv[1:4]
kept = Journal(path, session)
print("open", time.time(), flush=True)
client = continuation.wrap(
    journal.WIRES["anthropic"].client(base_url=url, api_key="k", max_retries=0), journal=kept
)
messages = kept.history() or [{"role": "user", "content": "Go."}]
shown = 0
with client.messages.stream(model="claude-sonnet-4-5", max_tokens=64000, messages=messages) as got:
    for text in got.text_stream:
        shown += len(text)
        os.write(1, struct.pack("<dq", time.time(), shown))
os.write(1, struct.pack("<dq", time.time(), -1))
"""


def _agent(path: Path | str, session: str, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", AGENT, str(path), session, url, str(Path(__file__).parent)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert agent.stdout is not None
    agent.stdout.readline()  # open
    return agent


@dataclass
class Killed:
    """One answer whose process was killed three times."""

    lost: list[float]
    """Milliseconds of text, by kill..."""
    opened: list[float]
    """...until the session was another's..."""
    added: list[int]
    """...and bytes of records that the resume added."""
    billed: float
    """Of the output delivered."""


def _killed(path: Path, session: str, sim: Simulator, text: str, last: int) -> Killed:
    """Kill an agent three times while it reads, each time after at most `last` pieces."""
    sim.reset()
    found, rng = Killed([], [], [], 0), random.Random(session)
    for _ in range(3):
        agent, steps = _agent(path, session, sim.url), list[tuple[float, int]]()
        assert agent.stdout is not None
        stop = rng.randint(last // 2, last)
        while len(steps) < stop:
            steps.append(struct.unpack("<dq", agent.stdout.read(16)))
        agent.kill()
        steps += struct.iter_unpack("<dq", agent.stdout.read())
        agent.wait()
        before, began = _bytes(path), time.perf_counter()
        with Journal(path, session) as journal:
            found.opened.append((time.perf_counter() - began) * 1000)
            saved = journal.resume().characters
        found.added.append(_bytes(path) - before)
        late = [at for at, count in steps if count > saved]
        found.lost.append((steps[-1][0] - late[0]) * 1000 if late else 0.0)
    agent = _agent(path, session, sim.url)
    assert agent.stdout is not None
    assert agent.stdout.read()[-8:] == struct.pack("<q", -1)
    agent.wait()
    with Journal(path, session) as journal:
        assert journal.history()[-1]["content"][0]["text"] == text, "not exact"
    found.billed = sum(post.sent for post in sim.posts) * sim.scenario.deltas / len(text)
    return found


def kills(folder: Path, rounds: int) -> Iterator[Figure]:
    path, line = folder / "kills.db", "A line that was being read when its reader died.\n"
    text = "".join(f"{n}. {line}" for n in range(1_500))
    with Simulator(text, Scenario(deltas=24, slow=0.0004)) as sim:
        found = [_killed(path, f"s{n}", sim, text, 700) for n in range(rounds)]
    lost = [ms for each in found for ms in each.lost]
    note = f"{len(lost)} kills, p50 {statistics.median(lost):.0f} ms"
    yield Figure("text lost by a kill, worst", max(lost), "ms", 75.0, note)
    opened = max(ms for each in found for ms in each.opened)
    yield Figure("taken over after a kill, worst", opened, "ms", 100.0)
    yield Figure("added by a resume, worst", max(max(each.added) for each in found), "B", 2_000)
    # What is lost is a part of a second: it counts for as much as the answer takes long.
    text = "".join(f"{n}. {line}" for n in range(2_800))
    with Simulator(text, Scenario(deltas=24, slow=0.002)) as sim:
        slow = _killed(path, "long", sim, text, 1_500)
    note = f"an answer of {len(text) * 0.002 / 24:.0f} s, killed three times"
    yield Figure("output billed ÷ delivered", slow.billed, "", 1.02, note)


def crowd(
    place: Path | str, processes: int, sessions: int, bound: float, note: str = ""
) -> Iterator[Figure]:
    """Processes run sessions in one store, each of four intents."""
    told = _people(CROWD, place, processes, sessions)
    took = [each for person in told for each in person["took"]]
    waits = max(each for person in told for each in person["waits"])
    what = f"{processes} processes, {len(took):,} sessions: a session, p99"
    yield Figure(what, _p99(took), "ms", bound, note)
    yield Figure("...the longest wait for an append", waits * 1000, "ms", 1_000.0)
    yield Figure("...errors", sum(person["errors"] for person in told), "", 0)


def crowd_in_a_file(folder: Path, sessions: int) -> Iterator[Figure]:
    """The same beside as many synced writes of the bare disk."""
    bare = folder / "bare"
    bare.write_bytes(b"y" * _PIECE * 257)
    alone = _people(BARE, bare, 8, sessions)
    note = f"bare disk: {_p99(each for person in alone for each in person['took']):.0f} ms"
    yield from crowd(folder / "crowd.db", 8, sessions, 50.0, note)


def _people(script: str, place: Path | str, processes: int, sessions: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", script, str(place), str(Path(__file__).parent)]
    people = [
        subprocess.Popen([*command, str(n), str(sessions // processes)], stdout=subprocess.PIPE)
        for n in range(processes)
    ]
    return [json.loads(each.communicate()[0]) for each in people]


def _p99(seconds: Iterable[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1000


_PIECE = 4_120
"""Bytes of a page in a write-ahead log."""

BARE = f"""
import fcntl, json, os, sys, time
path, _, number, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
disk, took = os.open(path, os.O_RDWR), []
for n in range(count):
    began = time.perf_counter()
    for sync in range(5):
        fcntl.lockf(disk, fcntl.LOCK_EX)
        os.pwrite(disk, b"x" * {_PIECE}, {_PIECE} * ((n * 40 + sync * 8 + number) % 256))
        os.fdatasync(disk)
        fcntl.lockf(disk, fcntl.LOCK_UN)
    took.append(time.perf_counter() - began)
print(json.dumps({{"took": took}}))
"""
"""As many synced writes under one lock, and nothing else: what the disk itself would take."""

CROWD = """
import json, sys, time
path, folder, number, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, folder)
import journal
from continuation import Journal
took, waits, errors = [], [], 0
for n in range(count):
    began = time.perf_counter()
    try:
        with Journal(path, f"{number}/{n}") as kept:
            for tool in range(4):
                at = time.perf_counter()
                kept.record("intent", f"c{tool}", {"name": "t"}).result()
                waits.append(time.perf_counter() - at)
    except Exception as error:
        errors += 1
    took.append(time.perf_counter() - began)
print(json.dumps({"took": took, "waits": waits, "errors": errors}))
"""


def server(*, few: bool) -> Iterator[Figure]:
    """The same against PostgreSQL, on a server of its own that syncs."""
    with Postgres(fsync="on") as running:
        yield from saves(running.database(), 500 if few else 5_000)
        yield from history(running.database(), 10_000, 250.0)
        yield from takeovers(running.database(), 5 if few else 20)
        yield from crowd(running.database(), 2, 200 if few else 1_000, 250.0)


def saves(url: str, count: int) -> Iterator[Figure]:
    """Commits of the writer's thread: half a second of a model's text each; bare rows beside."""
    with Journal(url, "s") as journal:
        store: Any = JournalStore.of(url)
        store.flush()
        writer, took = store._connection or store.connect(), dict[str, list[float]]()
        store._connection, content = writer, b"x" * 200
        mine, bare = journal.owner.session, "INSERT INTO bare VALUES (%s, %s)"
        writer.execute("CREATE TABLE bare (number bigint PRIMARY KEY, content bytea)")
        hasty: Any = store.connect()
        hasty.execute("SET synchronous_commit = off")

        def save(number: int) -> None:
            unit = Unit(journal.owner, [(SAVE, (mine, number, 200, 1, content))], durable=False)
            store._commit([unit])
            unit.done.result()

        def intent(number: int) -> None:
            journal.record("intent", f"c{number}", {"name": "t"}).result()

        acts: dict[str, Callable[[int], object]] = {
            "SELECT 1": lambda _: writer.execute("SELECT 1"),
            "synced": lambda number: writer.execute(bare, (number, content)),
            "unsynced": lambda number: hasty.execute(bare, (-1 - number, content)),
            "save": save,
            "intent": intent,
        }
        for number in range(count):
            for name, act in acts.items():
                if name in {"synced", "intent"} and number % 10:
                    continue
                began = time.perf_counter()
                act(number)
                took.setdefault(name, []).append(time.perf_counter() - began)
        hasty.close()
    p50 = {name: statistics.median(each) * 1e6 for name, each in took.items()}
    note = f"a bare row: {p50['unsynced']:.0f} µs; SELECT 1: {p50['SELECT 1']:.0f} µs"
    yield Figure("a save, p50", p50["save"], "µs", 100.0, note)
    note = f"a bare row and its sync: {p50['synced'] / 1000:.2f} ms"
    yield Figure("a synced append, p50", p50["intent"] / 1000, "ms", None, note)


def takeovers(url: str, rounds: int) -> Iterator[Figure]:
    """Processes that are killed, and replaced at once: until the session is another's."""
    took = list[float]()
    for number in range(rounds):
        with Simulator("A line.\n" * 1_000, Scenario(deltas=24, slow=0.002)) as sim:
            agent = _agent(url, f"s{number}", sim.url)
            assert agent.stdout is not None
            agent.stdout.read(160)
            agent.kill()
            agent.communicate()
        began = time.perf_counter()
        with Journal(url, f"s{number}") as journal:
            took.append((time.perf_counter() - began) * 1000)
            assert journal.fencing_token == 2
    yield Figure("taken over after a kill, worst", max(took), "ms", 100.0, f"{rounds} kills")


def seams(folder: Path, cases: int) -> Iterator[Figure]:
    """Answers left at some place and gone on with by a model with manners of its own."""
    source = Path(continuation.__file__).with_name("policy.py").read_text()
    exact = dict.fromkeys(("exact", "anchor", "echo:40", "echo-word", "echo-line", "fence"), 0)
    for manner in exact:
        with Simulator(source, Scenario(deltas=7, manner=manner)) as sim:
            for case in range(cases):
                exact[manner] += _resumed(folder, f"{manner}/{case}", sim) == source
    for name, found in exact.items():
        share = 100 - 100 * found / cases
        bound = 0.0 if name in {"exact", "anchor"} else None
        yield Figure(f"resumed seams not exact, {name}", share, "%", bound, f"{cases} cases")
    total = 100 - 100 * sum(exact.values()) / cases / len(exact)
    yield Figure("resumed seams not exact, all", total, "%", 1.0)


def _resumed(folder: Path, session: str, sim: Simulator) -> str:
    """Leave an answer somewhere, and go on with it in a journal that is opened anew."""
    sim.reset()
    make, rng = WIRES["anthropic"].client, random.Random(session)
    pieces, stop = list[str](), rng.randint(20, 1_000)
    for kept in ("left", "whole"):
        with Journal(folder / "seams.db", session) as journal:
            client = continuation.wrap(make(base_url=sim.url, api_key="k"), journal=journal)
            asked = [{"role": "user", "content": "Go."}]
            with client.messages.stream(
                model="claude-sonnet-4-5", max_tokens=64_000, messages=asked
            ) as got:
                pieces = []
                for text in got.text_stream:
                    pieces.append(text)
                    if kept == "left" and len(pieces) == stop:
                        break
    return "".join(pieces)


def _bytes(path: Path) -> int:
    """Return how many bytes the records of a journal's file hold."""
    with closing(sqlite3.connect(path, timeout=10)) as db:
        query = "SELECT coalesce(sum(40 + length(key) + coalesce(length(content), 0)), 0)"
        return int(db.execute(f"{query} FROM records").fetchone()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    few = bool(given.quick)
    parts: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "streams": lambda folder: streams(folder, 4 if few else 20),
        "loop": loop_delay,
        "appends": lambda folder: appends(folder, 100 if few else 1_000),
        "history": lambda folder: history(folder / "history.db", 10_000),
        "size": lambda folder: size(folder, 10 if few else 100),
        "kills": lambda folder: kills(folder, 2 if few else 10),
        "crowd": lambda folder: crowd_in_a_file(folder, 200 if few else 1_000),
        "postgresql": lambda _: server(few=few),
        "seams": lambda folder: seams(folder, 20 if few else 100),
    }
    failed = 0
    for part, measure in parts.items():
        if part.startswith(given.only):
            if part == "postgresql" and (why := no_postgres()):
                print(f"the journal: {part}: {why}")
                continue
            with tempfile.TemporaryDirectory() as name:
                failed |= report(f"the journal: {part}", list(measure(Path(name))))
    return failed


if __name__ == "__main__":
    sys.exit(main())
