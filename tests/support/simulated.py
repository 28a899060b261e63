"""Sessions in one process that are killed at random: engine, journal, clock and provider, no I/O.

A schedule is drawn from a seed, and the same seed draws the same schedule: how the bytes are split,
when the writer runs, what time it is, what fails, and when all of it is killed. A kill leaves what
is committed, and nothing else. The journal's store is SQLite in memory; instead of its thread it
has `step`, called when the schedule says so, or when a future is waited for.

    python -m support.simulated 100000 [first seed]
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sqlite3
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import httpx2

from continuation import Fenced, Journal, JournalError, Policy
from continuation.attach.journaled import Interrupted, JournaledStream, begin_turn
from continuation.engine.commands import (
    Attach,
    Emit,
    PassRest,
    PassThrough,
    Raise,
    Read,
    Send,
    StreamBody,
    Wait,
    Work,
)
from continuation.engine.turn import Engine, Turn
from continuation.history import validate
from continuation.journal import forms, tools
from continuation.journal import journal as journals
from continuation.journal import owner as owners
from continuation.journal import sqlite as files
from continuation.journal import store as stores
from continuation.registry import dialects
from continuation.simulator import Scenario, Simulator, ToolUse
from continuation.simulator.wire import Recorded
from continuation.stores import sqlite
from continuation.types import Enough, Head, Outcome, Request
from support.agents import Scripted, Step, lines

T = TypeVar("T")
SAVE_EVERY = 0.05
MOST_KILLS = 5
PATH = Path(__file__)
"""A file that exists; it is never opened."""
FULL = "database or disk is full"


class Killed(BaseException):
    """The simulated process is killed."""


class Partial(Exception):  # noqa: N818 - an outcome
    """The turn ended with half an answer, which is allowed; it ends the schedule."""


class _Waiting(Future[T]):
    """A future that, while it is waited for, makes the writer work."""

    def result(self, timeout: float | None = None) -> T:
        while not self.done():
            if Memory.now.dead:  # only clean-up code of a killed process waits here
                raise Fenced
            Memory.now.step()
        return super().result(timeout)


class _Connection(files.JournalFile):
    """The one connection to the file in memory, which all processes share."""

    def close(self) -> None:
        """Do nothing: it outlives the processes."""


class Memory(files.SqliteJournalStore):
    """The writer of one process: it works when `step` is called."""

    now: Memory

    def __init__(self, world: World) -> None:
        stores.JournalStore.__init__(self, "memory")
        self.path, self._world, self.dead = PATH, world, False
        self._connection = world.file

    def connect(self) -> _Connection:
        return self._world.file

    def _wake(self) -> None:
        """Do nothing: the schedule decides when it works."""

    @property
    def busy(self) -> bool:
        return bool(self._units or self._ending or any(w <= self._world.now for w, _ in self._due))

    def step(self) -> None:
        """Write what is due in one transaction; the process may be killed before it or after it."""
        if self.dead:
            raise Killed
        units = self._wait() if self.busy else []
        self._world.may_kill("before a commit")
        sends = self._world.begun
        try:
            if self._world.full:
                raise sqlite3.OperationalError(FULL)
            self._commit(units)
        except BaseException as error:
            self._world.owing = True
            self._fail(units, error)
        else:
            self._world.committed(sends)
        self._world.may_kill("after a commit")

    def _fail(self, units: Any, error: BaseException) -> None:
        for unit in units:
            unit.done.set_exception(error)


@dataclass
class _Clock:
    """Replaces the module `time`."""

    world: World

    def monotonic(self) -> float:
        return self.world.now

    def sleep(self, seconds: float) -> None:
        self.world.now += seconds

    def localtime(self, seconds: float) -> Any:
        return time.localtime(seconds)

    def strftime(self, form: str, at: Any) -> str:
        return time.strftime(form, at)

    def time(self) -> float:
        return 1e9 + self.world.now + self.world.skew


# --- the formats ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wire:
    """A wire format: its request, and how its events are read."""

    path: str
    turns: str
    first: dict[str, Any]
    body: dict[str, Any]

    def read(self, data: bytes) -> tuple[str, list[Any]]:
        """Return the text and the calls in the whole events of `data`."""
        raw = data.replace(b"\r\n", b"\n")
        whole = raw[: raw.rfind(b"\n\n") + 1].split(b"\n")
        told = [line[5:] for line in whole if line[:5] == b"data:"]
        events = [json.loads(line) for line in told if line.strip() != b"[DONE]"]
        read = getattr(self, self.path.strip("/").split("/")[1])
        text, calls = read(events)
        return text, calls

    def messages(self, events: list[Any]) -> tuple[str, list[Any]]:
        text, calls = "", dict[int, dict[str, Any]]()
        for event in events:
            if event["type"] == "content_block_start":
                if event["content_block"]["type"] == "tool_use":
                    calls[event["index"]] = {**event["content_block"], "input": ""}
            elif event["type"] == "content_block_delta":
                text += event["delta"].get("text", "")
                if (more := event["delta"].get("partial_json")) is not None:
                    calls[event["index"]]["input"] += more
        return text, [{**call, "input": json.loads(call["input"])} for call in calls.values()]

    def chat(self, events: list[Any]) -> tuple[str, list[Any]]:
        text, calls = "", dict[int, dict[str, Any]]()
        for event in events:
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                for said in choice["delta"].get("tool_calls") or []:
                    call = calls.setdefault(said["index"], {"function": {"arguments": ""}})
                    call["id"] = call.get("id") or said.get("id")
                    own = said["function"]
                    call["function"]["name"] = call["function"].get("name") or own.get("name")
                    call["function"]["arguments"] += own.get("arguments") or ""
        return text, list(calls.values())

    def responses(self, events: list[Any]) -> tuple[str, list[Any]]:
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        return text, [item for item in done if item["type"] == "function_call"]

    def models(self, events: list[Any]) -> tuple[str, list[Any]]:
        contents = [c["content"] for e in events for c in e.get("candidates", []) if "content" in c]
        parts = [part for content in contents for part in content.get("parts", [])]
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        return text, [part for part in parts if "functionCall" in part]


_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
_USER = {"role": "user", "content": "Go."}
WIRES = {
    "anthropic": Wire(
        "/v1/messages",
        "messages",
        _USER,
        {
            "model": "claude-opus-5",
            "max_tokens": 4000,
            "tools": [{"name": "Write", "input_schema": _SCHEMA}],
        },
    ),
    "openai-chat": Wire(
        "/v1/chat/completions",
        "messages",
        _USER,
        {
            "model": "gpt-4o",
            "max_completion_tokens": 4000,
            "tools": [{"type": "function", "function": {"name": "Write", "parameters": _SCHEMA}}],
        },
    ),
    "openai-responses": Wire(
        "/v1/responses",
        "input",
        _USER,
        {
            "model": "gpt-5.4",
            "max_output_tokens": 4000,
            "tools": [{"type": "function", "name": "Write", "parameters": _SCHEMA}],
        },
    ),
    "gemini": Wire(
        "/v1beta/models/gemini-3.6-flash:streamGenerateContent",
        "contents",
        {"role": "user", "parts": [{"text": "Go."}]},
        {
            "generationConfig": {"maxOutputTokens": 4000},
            "tools": [{"functionDeclarations": [{"name": "Write"}]}],
        },
    ),
}
STEPS = [
    Step(lines("a", 6), (ToolUse("Write", {"path": "1"}), ToolUse("Write", {"path": "2"}))),
    Step(lines("b", 3), (ToolUse("Write", {"path": "3"}),)),
    Step(lines("c", 4)),
]
HEADERS = {
    "content-type": "application/json",
    "anthropic-version": "2023-06-01",
    "x-api-key": "k",
    "x-goog-api-key": "k",
    "authorization": "Bearer k",
}


class Provider:
    """The simulator, called without a socket."""

    def __init__(self) -> None:
        self.model = Simulator(Scripted(STEPS), Scenario(deltas=24))
        self.kinds = dialects()


# --- one schedule ---------------------------------------------------------------------------------


@dataclass
class World:
    """What outlives the processes of one session, and the random choices of its schedule."""

    seed: int
    provider: Provider
    tally: Counter[str]
    now: float = 0.0
    skew: float = 0.0
    """Seconds by which the wall clock is off."""
    full: bool = False
    """Whether the disk is full."""
    stolen: bool = False
    """Whether another process has taken the session."""
    left: int = 0
    """The number of records when it was taken."""
    kills: int = 0
    life: int = 0
    begun: int = 0
    """How often the open turn was begun, in all lives."""
    counted: int = 0
    """How many of these beginnings are committed."""
    sent: int = 0
    """Upstream calls that were answered for the turn that began last, in all lives."""
    text: str = ""
    """What the caller was shown of the open turn, in this life."""
    shown: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """The lengths of that text over time: (time, characters)."""
    kept: int = 0
    """How many of its characters must outlive a kill."""
    effects: list[str] = field(default_factory=list[str])
    finished: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.name = self.rng.choice(sorted(WIRES))
        self.wire = WIRES[self.name]
        self.deadly = self.rng.choice([0.0, 0.02, 0.05, 0.2])
        self.faulty = self.rng.random() < 0.2
        self.file = sqlite3.connect(
            ":memory:",
            factory=_Connection,
            isolation_level=None,
            check_same_thread=False,  # the garbage collector closes it, in any thread
        )
        weakref.finalize(self, sqlite3.Connection.close, self.file)
        files._migrate(self.file, PATH)
        own = weakref.proxy(self)  # no reference cycle from the file to the world
        self.file.create_function("julianday", 1, lambda _: _Clock(own).time() / 86_400 + 2440587.5)

    # --- chance ---

    def may_kill(self, where: str) -> None:
        if self.kills < MOST_KILLS and self.rng.random() < self.deadly:
            self.kills += 1
            self.tally[f"killed {where}"] += 1
            Memory.now.dead = True
            raise Killed

    def point(self, where: str) -> None:
        """Let time pass; a fault, a step of the writer or a kill may happen."""
        self.now += self.rng.choice([0.0, 0.001, 0.02, 0.06])
        if self.faulty:
            self._fault()
        if self.rng.random() < 0.5 and Memory.now.busy:
            Memory.now.step()
        self.may_kill(where)

    def _fault(self) -> None:
        chance = self.rng.random()
        if chance < 0.03:
            self.full = not self.full
            self.tally["disk full"] += self.full
        elif chance < 0.05:
            self.skew -= self.rng.choice([1.0, 3600.0])
        elif chance < 0.06 and not self.stolen:
            self.stolen = True
            self.file.execute("UPDATE sessions SET epoch = epoch + 1")
            self.left = self.file.execute("SELECT count(*) FROM records").fetchone()[0]
            self.tally["taken by another"] += 1

    # --- what must be true ---

    def committed(self, begun: int) -> None:
        """Note that all that was due is written."""
        if self.stolen or self.owing:
            return
        self.counted = begun
        self.kept = max([n for at, n in self.shown if at <= self.now - SAVE_EVERY], default=0)

    def saved(self) -> str:
        """Return the text that is saved of the open turn."""
        rows = self.file.execute("SELECT content FROM running ORDER BY number").fetchall()
        events = [event for (content,) in rows for event in json.loads(content)]
        return "".join(e.get("delta", {}).get("text", "") for e in events)

    def settle(self) -> None:
        """Assert, at the end of a life, what the journal promises."""
        told = self.file.execute("SELECT number, epoch, kind, content FROM records ORDER BY number")
        rows = told.fetchall()
        epochs = [epoch for _, epoch, *_ in rows]
        assert epochs == sorted(epochs)
        assert not self.stolen or len(rows) == self.left, "an owner wrote behind its successor"
        assert len(self.effects) == len(set(self.effects)), "a tool ran twice"
        begun = [kind for *_, kind, _ in rows if kind in {"turn", "end", "drop"}]
        open_turn = bool(begun) and begun[-1] == "turn"
        if open_turn and not self.finished_now:
            saved = self.saved()
            if not self.full and not self.owing:
                assert len(saved) >= self.kept, "what was given too long ago is lost"
            assert self.text.startswith(saved) or saved.startswith(self.text)
            assert any(step.text.startswith(saved) for step in STEPS)

    finished_now: bool = False
    owing: bool = False

    # --- lives ---

    def run(self) -> None:
        """Run one process after another until the session is over."""
        with _patched(self):
            for self.life in itertools.count(1):
                assert self.life < 40, "it does not come to an end"
                Memory.now = Memory(self)
                if self.life > 12:
                    self.faulty, self.full = False, False
                self.stolen, self.text, self.shown, self.kept = False, "", [], 0
                self.finished_now = self.owing = False
                self.begun = self.counted  # what was not committed is lost
                try:
                    over = self._live()
                except Partial:
                    self.tally["partial"] += 1
                    return
                except Killed:
                    over = False
                except (Fenced, JournalError):
                    if not (self.faulty or Memory.now.dead):
                        raise
                    over = False
                Memory.now.dead = True
                if self.file.in_transaction:
                    self.file.execute("ROLLBACK")
                self.settle()
                if over:
                    self._over()
                    return

    def _over(self) -> None:
        Memory.now = Memory(self)
        self.full, self.deadly = False, 0.0
        with Journal(PATH, "s", readonly=True) as journal:
            history, waiting = journal.history(), journal.resume()
        assert waiting.kind == "nothing", waiting
        told = json.dumps(history)
        for step in STEPS:
            assert told.count(json.dumps(step.text)[1:-1]) == 1, "the text is not what was said"
        assert self.saved() == ""
        assert self.effects or self.kills > 1, "killed before each of them, none need have run"

    def _live(self) -> bool:
        journal = Journal(PATH, "s", save_every=SAVE_EVERY)
        self.point("at its beginning")
        waiting = journal.resume()
        if waiting.kind == "turn":
            # In each life one call that a kill left without an answer may count as well.
            told = self.counted, waiting.attempts, self.sent
            assert self.counted <= waiting.attempts <= self.sent + self.life, told
        for call in waiting.not_started:
            self._use(journal, call)
        turns = journal.history() or [self.wire.first]
        if self.rng.random() < 0.1:
            assert journal.history() in (turns, [])
        while (
            turns[-1].get("role") not in {"assistant", "model"}
            and turns[-1].get("type")
            not in {
                "message",
                "function_call",
            }
        ) or len(turns) == 1:
            text, calls, whole = self._ask(journal, turns)
            said = text in [step.text for step in STEPS]
            if not (said or whole):  # dropped again after a call, where no recovery is allowed
                assert any(step.text.startswith(text) for step in STEPS), "what nobody said"
                raise Partial
            assert said, "the text is not what was said"
            self.finished_now = True
            (step,) = [step for step in STEPS if step.text == text]
            asked = [forms.tool_call(call).arguments for call in calls]
            # A connection dropped after a whole call ends the answer there, without later calls.
            assert asked == [call.arguments for call in step.calls][: len(asked)]
            assert asked or not step.calls, "half a call was delivered"
            for call in calls:
                self.point("before a tool")
                self._use(journal, call)
            self.point("behind the tools")
            if not calls:
                break
            turns = journal.history()
        journal.close()
        # What is not written yet is lost with this process.
        return not (journal._store._leaving or self.stolen)

    def _use(self, journal: Journal, call: Any) -> None:
        def write(given: Any, idempotency_key: str) -> str:
            if not self.stolen:
                query = "SELECT 1 FROM records WHERE kind = 'intent' AND key = ?"
                found = self.file.execute(query, (idempotency_key.removeprefix("s/"),)).fetchone()
                assert found, "it runs without an intent"
            told = forms.tool_call(given)
            self.may_kill("before an effect")
            self.effects.append(told.arguments["path"])
            self.may_kill("behind an effect")
            return "written"

        journal.call(call, write)

    def _ask(self, journal: Journal, turns: list[Any]) -> tuple[str, list[Any], bool]:
        """Request an answer as our clients do; return text, calls, and whether it is whole."""
        journal.check()
        self.finished_now, wire = False, self.wire
        body = {**wire.body, wire.turns: turns}
        if self.name != "gemini":
            body["stream"] = True
        elif self.rng.random() < 0.1:
            assert not validate(body, live=False)
        engine = Engine(self.provider.kinds, _POLICY, None, self._tick)
        dialect = engine.claims("POST", wire.path)
        assert dialect is not None
        asked = Request("host", wire.path, HEADERS, json.dumps(body).encode())
        turn = engine.begin(dialect, asked, None)
        before = journal._state.turn
        kept = begin_turn(journal, turn, wire.path)
        if before is None or journal._state.turn is not before:
            self.begun = self.counted = self.sent = 0
        self.begun += 1
        assert kept is not None
        self.text, self.shown, self.kept = "", [], 0
        shell = _Shell(self, turn, asked.body, kept.replay)
        shell.open()
        raw = bytearray()
        for chunk in JournaledStream(shell, turn, kept):
            raw += chunk
            self.text = wire.read(bytes(raw))[0]
            self.shown.append((self.now, len(self.text)))
            self.owing = self.owing or bool(journal._pending)
            self.point("while it streams")
        if (ended := turn.recorder.finished) is not None and ended.outcome is Outcome.FAILED:
            Memory.now.dead = True
            raise Killed  # no answer began: the SDK's exception ends this life
        text, calls = wire.read(bytes(raw))
        rows = self.file.execute("SELECT kind FROM records ORDER BY number DESC LIMIT 1").fetchone()
        if not (self.full or self.stolen or journal._pending):
            assert rows == ("end",), "the end of the turn is not recorded, and the stream is over"
        self.begun = self.counted = 0
        self.tally["answers"] += 1
        return text, calls, ended is None or ended.outcome is not Outcome.PARTIAL

    def _tick(self) -> float:
        self.now += 0.0001
        return self.now

    def answer(self, body: bytes) -> tuple[Head, list[bytes], Exception | None]:
        """Return the provider's answer: head, chunks, and the error if the connection drops."""
        self.sent += 1
        query = "alt=sse" if self.name == "gemini" else ""
        asked = Recorded("POST", self.wire.path, query, HEADERS, body, json.loads(body))
        told, _ = self.provider.model.respond(asked)
        self.provider.model.requests.clear()
        assert told.status == 200, told.body
        assert told.events is not None
        raw = b"".join(
            (f"event: {e.name}\n" if e.name else "").encode() + f"data: {e.data}\n\n".encode()
            for e in told.events
        )
        cuts = sorted(self.rng.randrange(len(raw)) for _ in range(self.rng.randrange(12)))
        end, broken = len(raw), None
        if self.rng.random() < 0.05 and cuts:
            end, broken = cuts[-1], ConnectionError()
        places = [0, *[cut for cut in cuts if cut < end], end]
        return (
            Head(told.status, dict(told.headers)),
            [raw[a:b] for a, b in itertools.pairwise(places) if b > a],
            broken,
        )


_POLICY = Policy(
    backoff_seconds=0.0, models_endpoint=False, max_drop_recoveries=10, max_attempts=30
)


class _Shell(httpx2.SyncByteStream):
    """Performs the engine's commands; yields the bytes of the answer."""

    def __init__(self, world: World, turn: Turn, body: bytes, played: bytes | None) -> None:
        self._world, self._turn, self._body, self._played = world, turn, body, played
        self._script = turn.run()
        self._reply: Any = None
        self._live: tuple[Head, list[bytes], Exception | None]

    def close(self) -> None:
        self._script.close()

    def _next(self) -> Any:
        reply, self._reply = self._reply, None
        return self._script.send(reply)

    def open(self) -> None:
        while not isinstance(command := self._next(), Attach):
            assert not isinstance(command, (PassThrough, Raise)), command
            self._perform(command)

    def _perform(self, command: Any) -> None:
        match command:
            case Send():
                outgoing, played = command.outgoing, self._played
                self._played = None
                if played is not None:
                    head = Head(200, {"content-type": "text/event-stream"})
                    self._live = head, [played], Interrupted("stopped")
                else:
                    self._world.may_kill("before a request")
                    self._live = self._world.answer(
                        self._body if outgoing is None else outgoing.body
                    )
                self._reply = self._live[0]
            case Read():
                self._reply = b"".join(self._live[1])
            case Wait():
                self._world.now += command.seconds
            case Work():
                command.do()

    def __iter__(self) -> Iterator[bytes]:
        rest: Iterator[bytes] = iter(())
        while True:
            try:
                command = self._next()
            except StopIteration:
                return
            match command:
                case StreamBody():
                    rest, self._reply = iter(self._live[1]), self._live[2]
                    for chunk in rest:
                        if command.replay is not None:
                            command.replay.raw += chunk
                        try:
                            shown = command.feed(chunk)
                        except Enough as enough:
                            self._reply = enough.result
                            yield enough.show
                            break
                        if shown:
                            yield shown
                case PassRest():
                    yield from self._turn.replay.pieces()
                    yield from rest
                    self._reply = self._live[2]
                case Emit():
                    yield command.data
                case _:
                    self._perform(command)


@contextmanager
def _patched(world: World) -> Iterator[None]:
    """Replace threads, clocks, files and processes by those of `world`."""
    clock = _Clock(world)

    def began(pid: int) -> str:
        if pid != world.life:
            raise ProcessLookupError
        return str(pid)

    def this_process() -> dict[str, Any]:
        return {
            "host": "h",
            "pid": world.life,
            "machine": "m",
            "space": "s",
            "began": str(world.life),
        }

    with ExitStack() as stack:
        for module in (journals, stores, sqlite, owners):
            stack.enter_context(patch.object(module, "time", clock))
        for module in (journals, stores):
            stack.enter_context(patch.object(module, "Future", _Waiting))
        stack.enter_context(patch.object(owners, "_began", began))
        stack.enter_context(patch.object(owners, "this_process", this_process))
        stack.enter_context(patch.object(tools.ToolRun, "_started", lambda _: None))
        stack.enter_context(patch.object(stores.JournalStore, "of", lambda *_, **__: Memory.now))
        yield


def run(seed: int, provider: Provider, tally: Counter[str]) -> None:
    """Run one schedule; an exception gets a note with its seed."""
    world = World(seed, provider, tally)
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}, {world.name}, life {world.life}, after {world.kills} kills")
        raise
    tally["schedules"] += 1
    tally["lives"] += world.life
    tally[world.name] += 1


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    provider, tally = Provider(), Counter[str]()
    began = time.monotonic()
    for seed in range(first, first + count):
        run(seed, provider, tally)
    print(dict(sorted(tally.items())), f"{time.monotonic() - began:.0f} s", os.getpid())  # noqa: T201


if __name__ == "__main__":
    import logging

    logging.getLogger("continuation").setLevel(logging.CRITICAL)
    main()
