"""The agents themselves, unmodified, with and without the gateway: a table of what a user gets.

    python tests/gateway/agents.py FOLDER [NAME…] [--write]

FOLDER is where `npm install` has put them, and beside its `node_modules` an environment `aider`
with that one; `.ci/gateway` does both. The model recites a text, or writes a file; it goes on
exactly where it stopped, and its provider has limits that no agent knows. The stream that is
dropped is slow as well, with something to keep it alive in every gap. A cell says how much came
out, and with which exit status; "exact": all of it, once. `--write` puts the table into the guide.
The exit status of this program says whether all is exact with the gateway.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sessions.agents import Agent, agents, run
from support.gateways import serving

from continuation.simulator import Recorded, Reply, Scenario, Simulator, Text, ToolUse
from continuation.simulator.model import Ask
from continuation.simulator.wire import Answer

PAGE = Path(__file__).parents[2] / "design" / "guide" / "any-agent.md"
MARK, END = "<!-- made by tests/gateway/agents.py -->\n", "<!-- end of the table -->"
CEILING = 3000
"""Tokens of four characters; also what a provider allows who is not asked for a limit."""
GO = "Recite it all, please."
TABLES = (
    "[defaults]\nbackoff_seconds = 0.0\nmax_recoveries = 10\nmax_attempts = 30\n"
    "[gateway]\nping_seconds = 0.015\n"  # in every gap of a slow answer
)


SMALL = Scenario(ceiling=CEILING)


@dataclass(frozen=True)
class Situation:
    """What the model has to say, in tokens, and what happens to that."""

    size: int
    scenario: Scenario = SMALL
    thinks: bool = False
    """It spends all it may on thinking, until it may spend more."""
    unended: bool = False
    """The first answer just ends, in its middle."""


ROOM = 100_000
SITUATIONS = {
    "truncated text": Situation(7_500),
    "8 times the limit": Situation(24_000),
    "truncated file": Situation(48_000, Scenario(ceiling=ROOM, call=True)),
    "only thinking": Situation(2_000, Scenario(ceiling=ROOM), thinks=True),
    "dropped stream": Situation(2_400, Scenario(ceiling=CEILING, drop={1: 120}, slow=0.03)),
    "no end event": Situation(2_400, unended=True),
}
TITLES = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "qwen": "qwen-code",
    "opencode": "opencode",
    "aider": "aider",
}
WRITES = {"Write": "file_path", "write_file": "file_path", "write": "filePath", "apply_patch": ""}
"""The tools that write a file, and what they call its path; the last wants a patch."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")


def text(tokens: int) -> str:
    """Return a text of lines that are all different."""
    lines = (f"{n}: this is line {n} of what is recited here, and no other.\n" for n in range(9999))
    return "".join(lines)[: tokens * 4].rpartition("\n")[0]


class Writer(Simulator):
    """A model that calls the tool with which an agent writes files, if the scenario has a call."""

    path = Path()
    """The file to write."""
    _now = threading.local()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        self._now.tool = tool_of(request.raw.decode(errors="replace"))
        return super().respond(request)

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        if scenario.call and not self._now.tool:
            return Reply([Text("A title")])
        reply = super()._reply(ask, scenario, attempt)
        blocks = [
            self._as(b, self._now.tool) if isinstance(b, ToolUse) else b for b in reply.blocks
        ]
        return replace(reply, blocks=blocks)

    def _as(self, call: ToolUse, tool: str) -> ToolUse:
        """Return a call of the same size, of the tool that the agent has."""
        content = json.loads(str(call.arguments))["content"]
        if WRITES[tool]:
            arguments = json.dumps({WRITES[tool]: str(self.path), "content": content})
        else:
            lines = "".join(f"+{line}\n" for line in content.splitlines())
            arguments = f"*** Begin Patch\n*** Add File: {self.path.name}\n{lines}*** End Patch\n"
        return replace(call, name=tool, arguments=arguments)


def tool_of(request: str) -> str:
    """Return the tool that writes files, of those that a request declares; "": it has none."""
    return next((name for name in WRITES if f'"name":"{name}"' in request), "")


class Model(Writer):
    """Recites, or writes a file, in one of the `SITUATIONS`."""

    def __init__(self, answer: str, situation: Situation, path: Path) -> None:
        super().__init__(answer, situation.scenario)
        self._situation, self.path = situation, path
        self._first = dict[str, int]()
        """The limit that each conversation began with."""

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        asked = request.body or {}
        asked = asked.get("generationConfig", asked)
        self._now.attempt = 0
        self._now.limited = any(name in asked for name in LIMITS)
        answer, reply = super().respond(request)
        if self._situation.unended and self._now.attempt == 1 and answer.events:
            answer = replace(answer, events=answer.events[: len(answer.events) // 2])
        return answer, reply

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        self._now.attempt = attempt
        if not self._now.limited:
            ask = replace(ask, limit=CEILING)
        first = self._first.setdefault(ask.key, ask.limit)
        if self._situation.thinks and ask.limit <= first:
            ask, scenario = replace(ask, thinks=True), replace(scenario, thinking="all")
        return super()._reply(ask, scenario, attempt)


def all_agents(*places: str) -> list[Agent]:
    """Return them, told to talk to servers at these URLs, by the format they speak."""
    off = (
        "git",
        "check-update",
        "show-model-warnings",
        "analytics",
        "pretty",
        "show-release-notes",
    )
    aider = Agent(
        "aider",
        (
            *(f"--no-{name}" for name in off),
            *("--yes-always", "--model", "openai/gpt-4o", "--edit-format", "whole"),
            *("out.txt", "--message"),
        ),
        (),
        "",
        {"OPENAI_API_BASE": f"{places[1]}/v1", "OPENAI_API_KEY": "any"}
        | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    return [*agents(*places), aider]


def cell(
    agent: Agent,
    binary: Path,
    home: Path,
    wanted: str,
    *,
    file: Path | None,
    until: Callable[[], bool] = lambda: False,
) -> str:
    """Run it once, until it ends or something holds; say what came of it."""
    for name, content in agent.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content if isinstance(content, str) else json.dumps(content))
    told = run(agent, binary, home, [*agent.start, GO], until, errors=False)
    status = told.partition("\n")[0].removeprefix("exit status ")
    if file is not None:
        told = file.read_text() if file.exists() else ""
    lines = wanted.splitlines()
    seen = [line.strip() for line in told.splitlines()]
    found = [line for line in lines if line in seen]
    if len(found) == len(lines) and all(seen.count(line) == 1 for line in lines):
        return "exact" if status == "0" else f"exact, exit {status}"
    twice = ", doubled" if any(seen.count(line) > 1 for line in lines) else ""
    return f"{100 * len(found) // len(lines)} %{twice}, exit {status}"


def tried(name: str, binary: Path, situation: Situation, *, served: bool) -> tuple[str, int]:
    """Return what came of one agent in one situation, and how many requests it took."""
    answer = wanted = text(situation.size)
    scenario = situation.scenario
    if scenario.call and name == "aider":  # it has no tools: files stand in its texts
        situation = replace(situation, scenario=replace(scenario, call=False))
        answer = f"out.txt\n```\n{wanted}\n```\n"
    with tempfile.TemporaryDirectory() as here:
        home = Path(here)
        path = home / "work" / "out.txt"
        path.parent.mkdir()
        # OpenAI itself has no limit below the ceiling; others have.
        with (
            Model(answer, situation, path) as model,
            serving(home, model.url, TABLES, vendor="") as gateway,
        ):
            formats = ("anthropic", "openai", "gemini")
            places = [f"{gateway.url}/{p}" if served else model.url for p in formats]
            agent = next(a for a in all_agents(*places) if a.name == name)
            told = cell(agent, binary, home, wanted, file=path if scenario.call else None)
            return told, len(model.posts)


def main(folder: Path, names: list[str], *, write: bool) -> int:
    """Try the agents named, or all."""
    logging.getLogger("continuation").setLevel(logging.ERROR)
    names = names or [*TITLES]
    binaries = programs(folder, names)
    rows, wrong = [f"| | {' | '.join(SITUATIONS)} |", "|---" * (len(SITUATIONS) + 1) + "|"], 0
    for name in names:
        for served in (False, True):
            way, cells = "with" if served else "without", list[str]()
            for title, situation in SITUATIONS.items():
                began = time.monotonic()
                told, asked = tried(name, binaries[name], situation, served=served)
                wrong += served and told != "exact"
                cells.append(told)
                line = f"{title:<17} {name:<9} {way:<8} {told:<24} {asked} requests"
                print(f"{line}, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
            rows.append(f"| {TITLES[name]}, {way} | {' | '.join(cells)} |")
    if write:
        write_table(MARK, rows)
    return wrong


def programs(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the program of each agent named; exit if one is missing."""
    binaries = {name: folder / "node_modules" / ".bin" / name for name in names}
    if "aider" in binaries:
        binaries["aider"] = folder / "aider" / "bin" / "aider"
    if absent := [str(path) for path in binaries.values() if not path.exists()]:
        sys.exit(f"there is no {', no '.join(absent)}")
    return binaries


def write_table(mark: str, rows: Sequence[str]) -> None:
    """Put the rows of a table into the guide, between its mark and the next end of a table."""
    head, _, rest = PAGE.read_text().partition(mark)
    rest = rest.partition(END)[2]
    PAGE.write_text("".join([head, mark, "\n", "\n".join(rows), "\n\n", END, rest]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="put the table into the guide")
    given = parser.parse_args()
    sys.exit(main(given.folder, given.names, write=given.write) != 0)
