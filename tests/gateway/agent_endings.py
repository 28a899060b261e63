"""The agents behind the gateway, with each way in which an answer can end: what they do then.

    python tests/gateway/agent_endings.py FOLDER [NAME…] [--write]

FOLDER is that of `agents.py`. The model writes a file, and its answer ends as a scenario of
`continuation.testing` says. A cell says how much of the file exists at the end, and what the agent
did. `--write` puts the columns of these agents into the table of the guide. The exit status of this
program says whether all files exist that the gateway completes by itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateway.agents import (
    END,
    PAGE,
    TITLES,
    Writer,
    all_agents,
    cell,
    programs,
    text,
    tool_of,
    write_table,
)
from support.gateways import serving

from continuation.testing import Rehearsal

MARK = "<!-- made by tests/gateway/agent_endings.py -->\n"
PATIENCE = 60.0
"""Seconds after which an agent is stopped."""
TOKENS = 1_000
"""The size of the file; the scenarios truncate after 200."""
NEVER_AGAIN = "status=" + "+".join(f"{attempt}:503" for attempt in range(2, 60))


@dataclass(frozen=True)
class Ending:
    """One row of the table: the scenario to play, and the gateway's settings for it."""

    scenario: str
    completed: bool = False
    """The gateway completes it in every format."""
    call: bool = True
    """The model calls a tool to write the file. Else it writes the file as text."""
    settings: str = ""
    """More settings of the simulator."""
    tables: str = ""
    """More lines of the gateway's file."""
    agents: Sequence[str] = tuple(TITLES)
    """Those that can meet it."""


WITH_TOOLS = tuple(name for name in TITLES if name != "aider")
ENDINGS = {
    "`drop`": Ending("drop", True),
    "`torn`": Ending("torn", True),
    "`stalled`": Ending("stalled", True, tables="[gateway]\nidle_seconds = 3\n"),
    "`empty`": Ending("empty", True),
    "`paused`": Ending("paused", True, agents=("claude",)),
    "`dead`": Ending("dead"),
    '`dead`, `on_dead = "stop"`': Ending("dead", tables='on_dead = "stop"\n'),
    "`refused`": Ending("refused"),
    "`aborted`": Ending("aborted"),
    "`unknown-stop`": Ending("unknown-stop"),
    "`window`": Ending("window"),
    "`prompt-too-long`": Ending("prompt-too-long"),
    "`promise`": Ending("promise", agents=WITH_TOOLS),
    '`promise`, `unkept_promise = "ask"`': Ending(
        "promise", True, tables='unkept_promise = "ask"\n', agents=WITH_TOOLS
    ),
    "`repeats`": Ending("repeats"),
    "`repeats`, `stop_repetition = true`": Ending("repeats", tables="stop_repetition = true\n"),
    "`call-stays-cut`": Ending("call-stays-cut", agents=WITH_TOOLS),
    "`always-cut`": Ending("always-cut", call=False),
    "a recovery that fails": Ending("always-cut", call=False, settings=NEVER_AGAIN),
    'a recovery that fails, `on_failure = "truncated"`': Ending(
        "always-cut", call=False, settings=NEVER_AGAIN, tables='on_failure = "truncated"\n'
    ),
}


class Played(Writer, Rehearsal):
    """Plays a scenario by name, with the tool that the agent has."""


def conduct(bodies: Sequence[bytes]) -> list[str]:
    """Say how often an agent repeated a request, and how often it sent another one.

    Requests with the results of tools do not count: an agent sends them after every call.
    """
    histories = [_history(json.loads(body)) for body in bodies]
    retries = continues = 0
    for before, history in itertools.pairwise(histories):
        if len(history) == len(before):
            retries += 1
        elif not any(word in json.dumps(history[-1]) for word in _RESULTS):
            continues += 1
    return [f"{n} × {what}" for n, what in ((retries, "retry"), (continues, "continue")) if n]


_RESULTS = ('"tool_result"', '"role": "tool"', '_call_output"', '"functionResponse"')


def _history(body: dict[str, Any]) -> Sequence[Any]:
    return next(body[key] for key in ("messages", "input", "contents") if key in body)


_IN_A_STREAM = ("drop", "torn", "stall")


def tried(name: str, binary: Path, ending: Ending) -> str:
    """Return what one agent did with an answer that ended so."""
    answer = wanted = text(TOKENS)
    call = ending.call and name != "aider"  # it has no tools: files stand in its texts
    if name == "aider":
        answer = f"out.txt\n```\n{wanted}\n```\n"
    with tempfile.TemporaryDirectory() as here:
        home = Path(here)
        path = home / "work" / "out.txt"
        path.parent.mkdir()
        model = Played(ending.scenario, answer=answer)
        model.path = path
        model.scenario = replace(model.scenario, call=call).but(ending.settings)
        if name == "gemini" and call:  # it gets the whole call in one event, the third
            early: dict[str, Any] = {
                fault: dict.fromkeys(getattr(model.scenario, fault), 2) for fault in _IN_A_STREAM
            }
            model.scenario = replace(model.scenario, **early)
        tables = f"[defaults]\nbackoff_seconds = 0.0\n{ending.tables}"
        with model, serving(home, model.url, tables, vendor="") as gateway:
            places = [f"{gateway.url}/{way}" for way in ("anthropic", "openai", "gemini")]
            agent = next(each for each in all_agents(*places) if each.name == name)
            engine, ends = gateway.gateway.engine, time.monotonic() + PATIENCE
            with patch.object(engine, "begin", wraps=engine.begin) as begun:
                told = cell(
                    agent,
                    binary,
                    home,
                    wanted,
                    file=path if ending.call else None,
                    until=lambda: time.monotonic() > ends,
                )
            bodies = [each.args[1].body for each in begun.call_args_list]
    asked = [body for body in bodies if name == "aider" or tool_of(body.decode())]
    share, _, status = told.partition(", exit ")
    end = {"": "", "0": "stops", "-9": "no end"}.get(status, "error")
    return ", ".join(filter(None, [share, *conduct(asked), end]))


def main(folder: Path, names: list[str], *, write: bool) -> int:
    """Try the agents named, or all, with each ending."""
    logging.getLogger("continuation").setLevel(logging.CRITICAL)
    names = names or [*TITLES]
    binaries, wrong = programs(folder, names), 0
    cells = dict[tuple[str, str], str]()
    for (title, ending), name in itertools.product(ENDINGS.items(), names):
        began = time.monotonic()
        told = tried(name, binaries[name], ending) if name in ending.agents else "-"
        wrong += ending.completed and told not in {"exact", "-"}
        cells[title, TITLES[name]] = told
        line = f"{title:<50} {name:<9} {told:<40}"
        print(f"{line} {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
    if write:
        cells = {**_written(), **cells}
        table = [["", *TITLES.values()], ["---"] * (len(TITLES) + 1)]
        table += [
            [title, *(cells.get((title, agent), "") for agent in TITLES.values())]
            for title in ENDINGS
        ]
        write_table(MARK, [f"| {' | '.join(row)} |" for row in table])
    return wrong


def _written() -> dict[tuple[str, str], str]:
    """Return the cells of the guide's table, by their row and column."""
    lines = PAGE.read_text().partition(MARK)[2].partition(END)[0].strip().splitlines()
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines] or [[], []]
    return {
        (row[0], agent): cell for row in rows for agent, cell in zip(head, row[1:], strict=False)
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="put the table into the guide")
    given = parser.parse_args()
    sys.exit(main(given.folder, given.names, write=given.write) != 0)
