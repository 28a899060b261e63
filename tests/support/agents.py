"""Agents that are killed: real processes that run the guide's loop, in any format.

They are forked from one process that has imported the SDKs, so that hundreds cost seconds. An agent
writes a line for each thing it does or receives, before it does the next one: what a test has read
has happened.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

from continuation.simulator import Reply, Scenario, Simulator, ToolUse
from continuation.simulator.model import Ask, Reciter

# --- the model ------------------------------------------------------------------------------------


def lines(name: str, count: int) -> str:
    """Return a text in which no line stands twice."""
    return "".join(f"{name}{n}. A line that was being read when all ended.\n" for n in range(count))


@dataclass
class Step:
    """One answer of the model: a text, and then calls."""

    text: str
    calls: tuple[ToolUse, ...] = ()


class Scripted(Reciter):
    """Answers with the step that the conversation has reached, however often it is asked.

    A step is over when the results of its calls have come. Of a step that broke off it answers
    with the rest, as the simulator's own model does.
    """

    def __init__(self, steps: list[Step]) -> None:
        super().__init__("".join(step.text for step in steps))
        self.steps = steps
        self._each = [Reciter(step.text) for step in steps]

    def reply(self, ask: Ask, scenario: Scenario) -> Reply:
        results = [at for at, turn in enumerate(ask.turns) if turn.results]
        number = min(len(results), len(self.steps) - 1)
        begun = [*ask.turns[:1], *ask.turns[results[-1] + 1 :]] if results else ask.turns
        # The conversation of this step alone, after the first question.
        step, each = self.steps[number], self._each[number]
        calls = step.calls
        if each.position(begun) == len(step.text):  # the text is complete: the calls are left
            said = Reply([], deltas=scenario.deltas, slow=scenario.slow)
        else:
            said = each.reply(replace(ask, turns=begun), scenario)
        if said.stop != "end_turn" or not calls:
            return said
        return replace(said, blocks=[*said.blocks, *calls], stop="tool_use")


# --- the test's side ------------------------------------------------------------------------------


@dataclass
class Work:
    """What an agent is to do. `at`: the commit at which it kills itself, from 1."""

    dialect: str
    url: str
    path: str
    effects: str
    save_every: float = 0.05
    at: int = 0
    when: str = "before"
    signal: int = signal.SIGKILL
    settle: bool = False
    """Whether calls of unknown outcome get a late result."""
    asynchronous: bool = False
    thinks: bool = False
    settles: bool = False
    """Whether `Journal.settle` runs the calls, and not the loops over them."""


class Agent:
    """The process of one agent."""

    def __init__(self, pid: int, said: int) -> None:
        self.pid = pid
        self._said = said

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield its lines until it has ended, without one that it died in."""
        with os.fdopen(self._said, "rb") as pipe:
            for line in pipe:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def send(self, number: int = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Agents:
    """Starts agents, each in a process of its own."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = Path(__file__).parents[1]
        code = f"from support.agents import serve; serve({theirs.fileno()})"
        paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
        self._server = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": paths},
        )
        theirs.close()

    def start(self, work: Work) -> Agent:
        ours, theirs = os.pipe()
        socket.send_fds(self._control, [json.dumps(asdict(work)).encode()], [theirs])
        os.close(theirs)
        return Agent(int(self._control.recv(32)), ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._server.wait()


# --- the processes' side --------------------------------------------------------------------------


def serve(control: int) -> None:
    """Fork an agent for each `Work` that is received."""
    _warm()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended agents
    gc.freeze()
    with socket.socket(fileno=control) as asked:
        while True:
            data, held, *_ = socket.recv_fds(asked, 65_536, 1)
            if not data:
                return
            if pid := os.fork():
                os.close(held[0])
                asked.send(str(pid).encode())
                continue
            asked.detach()
            os.close(control)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work = Work(**json.loads(data))
            with suppress(KeyboardInterrupt):
                _Agent(work, held[0]).run()
                os._exit(0)  # all is closed, and an orderly exit takes long
            return  # as an interrupted program exits


def _warm() -> None:
    """Run an agent in each format, so that late imports happen here, once."""
    with suppress(ImportError):
        import psycopg  # noqa: F401

    from support.sdks.formats import FORMATS

    steps = [Step("One.", (ToolUse("Write", {"path": "1"}),)), Step("Two.")]
    with Simulator(Scripted(steps)) as sim, tempfile.TemporaryDirectory() as folder:
        for dialect in FORMATS:
            work = Work(dialect, sim.url, f"{folder}/{dialect}", f"{folder}/effects")
            agent = _Agent(work, os.open(os.devnull, os.O_WRONLY))
            agent.converse()
            agent.work = replace(work, path=f"{work.path}-async", asynchronous=True)
            agent.converse()


class _Agent:
    """One agent: the guide's loop."""

    def __init__(self, work: Work, said: int) -> None:
        self.work, self._said = work, said
        self._lock = threading.Lock()
        self._commits = 0

    def say(self, kind: str, **told: Any) -> None:
        data = json.dumps({"kind": kind, **told}).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._said, data) :]

    def run(self) -> None:
        """Run until the conversation is over, or until it kills itself."""
        self._hook()
        self.converse()

    def converse(self) -> None:
        """Continue the session from where it is; a synchronous agent awaits nothing."""
        if self.work.asynchronous:
            asyncio.run(self._go_on())
            return
        with suppress(StopIteration):
            self._go_on().send(None)
            raise AssertionError("a synchronous agent waits for an event loop")

    async def _go_on(self) -> None:
        from continuation import Journal

        work = self.work
        journal = Journal(work.path, session="s", save_every=work.save_every)
        waiting = journal.resume()
        self.say("ready", what=waiting.kind, characters=waiting.characters, n=waiting.attempts)
        if work.settle:
            for call in waiting.unknown:
                journal.result(call, "it was done, late")
        if work.settles:
            turns = await self._settle(journal)
        else:
            for call in waiting.not_started:
                await self._use(journal, call)
            turns = journal.history()
        self.say("history", turns=turns)
        if not (turns and turns[-1].get("role") in {"assistant", "model"}):  # else it is done
            await self._converse(journal, turns)
        journal.close()
        self.say("done")

    async def _converse(self, journal: Any, turns: Any) -> None:
        import continuation
        from support.sdks.formats import MAKES, THINKS, request
        from support.sdks.turn import FAST, quietly

        work = self.work
        key = {"gemini": "contents", "openai-responses": "input"}.get(work.dialect, "messages")
        bare = MAKES[work.dialect]().connect(work.url, asynchronous=work.asynchronous)
        client: Any = continuation.wrap(bare, config=FAST, journal=journal)
        more = THINKS[work.dialect] if work.thinks else {}
        async with AsyncExitStack() as closing_it:
            closing_it.enter_context(quietly())
            if work.asynchronous:
                await closing_it.enter_async_context(getattr(bare, "aio", bare))
            else:
                closing_it.enter_context(bare)
            while True:
                ran, asked = MAKES[work.dialect](), request(work.dialect, 16_000, more)
                if turns:
                    asked[key] = turns
                self.say("asked")
                if work.asynchronous:
                    await self._read_async(ran, getattr(client, "aio", client), asked)
                else:
                    self._read(ran, client, asked)
                self.say("ended", text=ran.text, report=str(continuation.last_report()))
                made = calls_of(ran)
                if not made:
                    return
                if work.settles:
                    turns = await self._settle(journal)
                    continue
                for call in made:
                    await self._use(journal, call)
                turns = journal.history()

    def _read(self, ran: Any, client: Any, asked: dict[str, Any]) -> None:
        opened = ran.stream(client, asked)
        with opened if hasattr(opened, "__enter__") else closing(opened) as stream:
            for piece in stream:
                self._given(ran, piece)
            ran.answer = ran.ended(stream)

    async def _read_async(self, ran: Any, client: Any, asked: dict[str, Any]) -> None:
        opened = ran.stream(client, asked)
        opened = await opened if hasattr(opened, "__await__") else opened
        async with opened if hasattr(opened, "__aenter__") else aclosing(opened) as stream:
            async for piece in stream:
                self._given(ran, piece)
            ran.answer = ran.ended(stream)

    def _given(self, ran: Any, piece: Any) -> None:
        ran.pieces.append(piece)
        if text := text_of(piece):
            self.say("text", text=text)

    async def _use(self, journal: Any, call: Any) -> None:
        from continuation.journal.forms import tool_call

        told = tool_call(call)
        if told.name == "Ask":  # its result comes from elsewhere
            journal.result(call, "yes")
            return

        if self.work.asynchronous:
            self.say("result", value=await journal.call(call, self._write_async))
        else:
            self.say("result", value=journal.call(call, self._write))

    async def _settle(self, journal: Any) -> Any:
        for call in journal.calls_to_settle():
            if call.name == "Ask":
                journal.result(call, "yes")
        if self.work.asynchronous:
            return await journal.settle(self._write_async)
        return journal.settle(self._write)

    def _write(self, call: Any, idempotency_key: str) -> str:
        from continuation.journal.forms import tool_call

        with Path(self.work.effects).open("a") as file:
            file.write(f"{tool_call(call).arguments['path']} {idempotency_key}\n")
        self.say("tool", key=idempotency_key)
        return "written"

    async def _write_async(self, call: Any, idempotency_key: str) -> str:
        return self._write(call, idempotency_key)

    def _hook(self) -> None:
        """Write a line before and after each commit; die there, if `Work.at` and `when` say so."""
        from continuation.journal import live_turn, sqlite, statements, store

        Store: Any = store.kind_of(self.work.path)  # noqa: N806 - classes
        Kept: Any = live_turn.LiveTurn  # noqa: N806
        commit, transaction = Store._commit, Store.transaction
        where: Any = sqlite if Store is sqlite.SqliteJournalStore else Store
        migrate = where._migrate

        def around(act: Callable[[], Any], characters: int = -1) -> Any:
            self._commits += 1
            number = self._commits
            self.say("begin", number=number)
            self._die(number, "before")
            done = act()
            self.say("end", number=number, characters=characters)
            self._die(number, "after")
            return done

        def committing(own: Any, units: Any) -> None:
            told = [each for unit in units for each in unit.statements]
            saved = [values[2] for write, values in told if write == statements.SAVE]
            if told:
                around(lambda: commit(own, units), max(saved, default=-1))
            else:
                commit(own, units)

        @contextmanager
        def transacting(own: Any, **options: Any) -> Iterator[Any]:
            with closing(cast("Any", transaction(own, **options).gen)) as steps:
                yield next(steps)
                around(lambda: next(steps, None))

        collect = Kept.collect

        def collecting(own: Any) -> Any:
            self.say("save")
            return collect(own)

        Kept.collect = collecting
        Store._commit, Store.transaction = committing, transacting
        where._migrate = lambda *all_, **more: around(lambda: migrate(*all_, **more))

    def _die(self, number: int, when: str) -> None:
        if (number, when) == (self.work.at, self.work.when):
            os.kill(os.getpid(), self.work.signal)


def text_of(piece: Any) -> str:
    """Return the visible text of an SDK's chunk or event, in any format."""
    if getattr(piece, "type", "") in {"text", "response.output_text.delta"}:
        return str(getattr(piece, "text", None) or piece.delta)
    if choices := getattr(piece, "choices", None):
        return choices[0].delta.content or ""
    contents = [each.content for each in getattr(piece, "candidates", None) or [] if each.content]
    parts = [part for content in contents for part in content.parts or []]
    return "".join(part.text or "" for part in parts if not part.thought)


def calls_of(turn: Any) -> list[Any]:
    """Return the calls of an answer as its SDK has them."""
    if turn.answer is None:
        return list(turn.calls)
    said = turn.said
    if hasattr(said, "content"):
        return [block for block in said.content if block.type == "tool_use"]
    if hasattr(said, "output"):
        return [item for item in said.output if item.type == "function_call"]
    return list(said.choices[0].message.tool_calls or [])
