"""The agents themselves, unmodified, with and without the gateway: a table of what a user gets.

    python tests/gateway/agents.py FOLDER [NAME…]

FOLDER is where `npm install` has put them, as `.ci/agents` does. The model recites a text that is
longer than it can say at once and goes on exactly, its provider has a ceiling that no agent knows.
A cell says how much of the text came out, and with which exit status; "exact": all of it, once.
The exit status of this program says whether all is exact with the gateway.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sessions.agents import Agent, agents, run
from support.gateways import serving

from continuation.simulator import Reply, Scenario, Simulator, ToolCall
from continuation.simulator.model import Ask
from continuation.simulator.scenario import Block

CEILING = 3000
"""Tokens of four characters."""
GO = "Recite it all, please."
TABLES = "[defaults]\nbackoff_seconds = 0.0\nmax_recoveries = 10\nmax_attempts = 30\n"


def text(tokens: int) -> str:
    """Return a text of lines that are all different."""
    lines = (f"{n}: this is line {n} of what is recited here, and no other.\n" for n in range(9999))
    return "".join(lines)[: tokens * 4].rpartition("\n")[0]


SITUATIONS = {
    "text cut": (2.5, Scenario(ceiling=CEILING)),
    "long text": (8, Scenario(ceiling=CEILING)),
    "dropped": (0.8, Scenario(ceiling=CEILING, drop={1: 120})),
    "call cut": (16, Scenario(ceiling=100_000, call=True)),
}
CALLERS = {"claude", "opencode"}
"""Those whose own limit lies below their model's ceiling, so that a whole call fits."""
WRITES = {"Write": "file_path", "write_file": "file_path", "write": "filePath"}
"""The tools that write a file, and what they call its path."""


class Model(Simulator):
    """Recites, or calls the tool that an agent writes files with."""

    def __init__(self, answer: str, scenario: Scenario, path: str) -> None:
        super().__init__(answer, scenario)
        self._path = path

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        reply = super()._reply(ask, scenario, attempt)
        raw = self.requests[-1].raw.decode(errors="replace")
        for name, key in WRITES.items():
            if f'"name":"{name}"' in raw:
                blocks = [self._as(block, name, key) for block in reply.blocks]
                return replace(reply, blocks=blocks)
        return reply

    def _as(self, block: Block, name: str, key: str) -> Block:
        if not isinstance(block, ToolCall):
            return block
        given = block.arguments
        content = (json.loads(given) if isinstance(given, str) else given)["content"]
        return replace(block, name=name, arguments={key: self._path, "content": content})


def cell(agent: Agent, binary: Path, home: Path, wanted: str, *, call: bool) -> str:
    """Run it once; say what came of it."""
    (home / "work").mkdir(parents=True)
    for name, content in agent.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content if isinstance(content, str) else json.dumps(content))
    told = run(agent, binary, home, [*agent.start, GO], home / "never", errors=False)
    status = told.partition("\n")[0].removeprefix("exit status ")
    if call:
        file = home / "work" / "out.txt"
        told = file.read_text() if file.exists() else ""
    lines = wanted.splitlines()
    seen = [line.strip() for line in told.splitlines()]
    found = [line for line in lines if line in seen]
    if len(found) == len(lines) and all(seen.count(line) == 1 for line in lines):
        return "exact" if status == "0" else f"exact, exit {status}"
    twice = ", doubled" if any(seen.count(line) > 1 for line in lines) else ""
    return f"{100 * len(found) // len(lines)} %{twice}, exit {status}"


def main(folder: Path, names: Sequence[str]) -> int:
    """Try the agents named, or all."""
    wrong = 0
    logging.getLogger("continuation").setLevel(logging.ERROR)
    for title, (length, scenario) in SITUATIONS.items():
        wanted = text(int(CEILING * length))
        for way in ("without", "with"):
            with tempfile.TemporaryDirectory() as here:
                for name in names:
                    if scenario.call and name not in CALLERS:
                        continue
                    home = Path(here, name)
                    path = str(home / "work" / "out.txt")
                    home.mkdir()
                    model = Model(wanted, scenario, path)
                    with model, serving(home, model.url, TABLES) as served:
                        places = [model.url] * 3
                        if way == "with":
                            places = [
                                f"{served.url}/{p}" for p in ("anthropic", "openai", "gemini")
                            ]
                        agent = next(a for a in agents(*places) if a.name == name)
                        binary = folder / "node_modules" / ".bin" / name
                        began = time.monotonic()
                        told = cell(agent, binary, home, wanted, call=scenario.call)
                        wrong += way == "with" and told != "exact"
                        spent, asked = time.monotonic() - began, len(model.posts)
                        line = f"{title:<10} {name:<9} {way:<8} {told:<24} {asked} requests"
                        print(f"{line}, {spent:.0f} s", flush=True)  # noqa: T201
    return wrong


if __name__ == "__main__":
    found = main(
        Path(sys.argv[1]), sys.argv[2:] or ["claude", "codex", "gemini", "qwen", "opencode"]
    )
    sys.exit(found != 0)
