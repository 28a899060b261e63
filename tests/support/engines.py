"""Workers of durable engines that are killed: what both engines have in common.

An agent has two steps. In the first its model writes a long answer that ends in a call, in the
second the tool of that call runs. A worker is a process (`temporal_worker.py`, `dbos_worker.py`);
it writes a line for each thing it receives or does: what a test has read has happened.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import anthropic
import anyio

import continuation
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse
from continuation.simulator.model import Ask
from support.agents import Scripted, Step, lines, text_of
from support.postgres import free_port

ANSWER = lines("w", 800)
STEPS = [Step(ANSWER, (ToolUse("Send", {"to": "all"}),)), Step("Sent.")]
PACE = Scenario(deltas=24, slow=0.003)
"""A fast model: some 8,000 characters a second."""
PATIENCE = 90.0
"""Seconds that a worker may take; then it is ended, and its test fails."""


class Counted(Scripted):
    """A model that counts the characters of each answer in `said`."""

    def __init__(self) -> None:
        super().__init__(STEPS)
        self.said: list[int] = []

    def reply(self, ask: Ask, scenario: Scenario) -> Reply:
        made = super().reply(ask, scenario)
        self.said.append(sum(len(block.text) for block in made.blocks if isinstance(block, Text)))
        return made


@dataclass
class Work:
    """What a worker is to do."""

    engine: str
    url: str
    """The address of the provider."""
    server: str
    """Temporal's address, or DBOS's database."""
    effects: str
    """The file to which each run of the tool adds a line."""
    journal: str = ""
    """The path or URL of the journal; "" for an engine without one."""
    name: str = "w"
    """The name of the workflow."""
    asynchronous: bool = False
    hangs: bool = False
    """Whether the tool takes longer than the worker lives."""
    dies: bool = False
    """Whether the worker kills itself after the answer, before it returns that to the engine."""


# --- the worker's side ----------------------------------------------------------------------------

_lock = threading.Lock()


def say(kind: str, **told: Any) -> None:
    data = json.dumps({"kind": kind, **told}).encode() + b"\n"
    with _lock:
        while data:
            data = data[os.write(1, data) :]


def request(journal: Any) -> dict[str, Any]:
    """Report that the first step begins, and return its request."""
    say("begun", token=journal.fencing_token if journal else 0)
    tools = [{"name": "Send", "input_schema": {"type": "object"}}]
    messages = [{"role": "user", "content": "Write."}]
    return {"model": "claude-opus-5", "max_tokens": 64_000, "messages": messages, "tools": tools}


def wrapped(client: Any, journal: Any) -> Any:
    """Return a client as this worker uses it: with a journal, or bare."""
    return continuation.wrap(client, journal=journal, backoff_seconds=0.0) if journal else client


def answered(message: Any, work: Work) -> dict[str, Any]:
    """Return the result of the first step: the text and the call."""
    say("answered")
    if work.dies:
        os.kill(os.getpid(), signal.SIGKILL)
    call = next(block for block in message.content if block.type == "tool_use")
    text = "".join(block.text for block in message.content if block.type == "text")
    return {"text": text, "call": call.model_dump(mode="json")}


def write(work: Work, opened: AbstractContextManager[Any], beat: Any) -> dict[str, Any]:
    """The first step: stream the model's answer and report each text; call `beat` at each."""
    bare = anthropic.Anthropic(base_url=work.url, api_key="k", max_retries=0)
    with (
        opened as journal,
        bare,
        wrapped(bare, journal).messages.stream(**request(journal)) as stream,
    ):
        for event in stream:
            if text := text_of(event):
                say("text", text=text)
                beat()
        return answered(stream.get_final_message(), work)


async def write_async(work: Work, opened: AbstractContextManager[Any], beat: Any) -> dict[str, Any]:
    with opened as journal:
        async with (
            anthropic.AsyncAnthropic(base_url=work.url, api_key="k", max_retries=0) as bare,
            wrapped(bare, journal).messages.stream(**request(journal)) as stream,
        ):
            async for event in stream:
                if text := text_of(event):
                    say("text", text=text)
                    beat()
            return answered(await stream.get_final_message(), work)


def _send(work: Work) -> None:
    with Path(work.effects).open("a") as file:
        file.write("sent\n")
    say("tool")


def use(work: Work, call: Any, opened: AbstractContextManager[Any]) -> str:
    """The second step: run the tool."""

    def send(_: Any) -> str:
        _send(work)
        threading.Event().wait(PATIENCE if work.hangs else 0)
        return "sent"

    with opened as journal:
        told: str = journal.call(call, send) if journal else send(call)
        return told


async def use_async(work: Work, call: Any, opened: AbstractContextManager[Any]) -> str:
    async def send(_: Any) -> str:
        _send(work)
        await anyio.sleep(PATIENCE if work.hangs else 0)
        return "sent"

    with opened as journal:
        told: str = await (journal.call(call, send) if journal else send(call))
        return told


def opened(module: Any, work: Work) -> AbstractContextManager[Any]:
    """Return the step's journal by the engine's adapter, or a context of None without one."""
    return module.journal(work.journal) if work.journal else nullcontext()


# --- the test's side ------------------------------------------------------------------------------


class Worker:
    """A worker's process."""

    def __init__(self, work: Work) -> None:
        here = Path(__file__).parents[1]
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"support.{work.engine}_worker", json.dumps(asdict(work))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if "QUIET" not in os.environ else None,
            env={**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"},
        )
        self.shown = ""
        """The text that it was given by its model."""
        self.told: dict[str, Any] = {}
        """The last line that it wrote."""
        self.first = 0.0
        """When it was given the first text, by `time.monotonic`."""
        self._until = threading.Timer(PATIENCE, self.send)
        self._until.start()

    def _lines(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self.told = json.loads(line)
                if self.told["kind"] == "text":
                    self.first = self.first or time.monotonic()
                    self.shown += self.told["text"]
                yield self.told

    def until(self, kind: str, characters: int = 0) -> dict[str, Any]:
        """Read until a line of this kind, with at least so many characters received; return it."""
        for told in self._lines():
            if told["kind"] == kind and len(self.shown) >= characters:
                return told
        raise AssertionError(f"it ended before {kind!r}, behind {self.told.get('kind')!r}")

    def send(self, number: int = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> float:
        """Kill it, read its last lines, and return the time of the kill."""
        self.send()
        when = time.monotonic()
        self.ended()
        return when

    def ended(self) -> None:
        """Wait for its end."""
        for _ in self._lines():
            pass
        self._process.wait()
        self._until.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGCONT)
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


class TemporalServer:
    """Temporal's own server, for development: everything in memory."""

    def __init__(self, binary: str) -> None:
        self.address = f"127.0.0.1:{(port := free_port())}"
        command = [binary, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
        self._process = subprocess.Popen(
            [*command, "--port", str(port), "--log-level", "error"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
                return
            assert self._process.poll() is None, "it ended"
            assert time.monotonic() < until, "it does not begin"
            time.sleep(0.05)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Lives:
    """The outcome of a workflow whose worker was killed twice."""

    exact: bool
    shown: int
    """Characters that were given before the first kill."""
    again: int
    """How many of these the model wrote again."""
    runs: int
    """How often the tool ran."""
    result: str
    """The result of the tool, as the workflow has it."""
    gap: float
    """Seconds from the first kill until more text was given."""


def killed_twice(work: Work, model: Counted, sim: Simulator, at: int) -> Lives:
    """Kill a worker in mid-turn, the next one while the tool runs, and let a third one end it."""
    with Worker(work) as first:
        first.until("text", at)
        killed, asked = first.kill(), len(model.said)
    with Worker(replace(work, hangs=True)) as second:
        second.until("tool")
        second.kill()
    with Worker(work) as third:
        done = third.until("done")
    shown, later = len(first.shown), zip(sim.posts[asked:], model.said[asked:], strict=True)
    written = sum(min(said, post.sent * PACE.deltas) for post, said in later)
    return Lives(
        exact=done["text"] == ANSWER,
        shown=shown,
        again=written - (len(ANSWER) - shown),
        runs=len(Path(work.effects).read_text().splitlines()),
        result=done["result"],
        gap=second.first - killed,
    )
