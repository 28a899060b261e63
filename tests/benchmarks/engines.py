"""A worker that is killed, in Temporal and in DBOS: bare, and with a journal in each step.

    TEMPORAL=PROGRAM python tests/benchmarks/engines.py [--write]

A model writes 39,000 characters, about 8,000 per second. The first worker is killed after 15,000
characters were delivered, the second one while a tool runs. A third one finishes the workflow. All
workers are real processes, and so is Temporal's server. PROGRAM is the server's program;
`.ci/durable` installs it. `--write` puts the table into the guide.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import missing, no_postgres
from support.engines import PACE, Counted, Lives, TemporalServer, Work, killed_twice
from support.postgres import Postgres

from continuation.simulator import Simulator

PAGE = Path(__file__).parents[2] / "design" / "guide" / "engines.md"
MARKS = "<!-- written by tests/benchmarks/engines.py -->\n", "<!-- end of the table -->\n"
SHOWN = 15_000
AGAIN = 0.05
"""How much of the delivered text may be generated again with a journal."""
HEAD = (
    "",
    "answer",
    "delivered text generated again",
    "tool executed",
    "kill to next text",
    "tool result",
)


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, tuple[str, str]]]:
    """Start what the engines need; yield, for each engine, its server and its journal."""
    temporal = TemporalServer(os.environ["TEMPORAL"])
    try:
        with Postgres() as postgres:
            url, file = postgres.url().rpartition("/")[0], str(folder / "agent.db")
            sqlite, dbos = f"sqlite:///{folder}/NAME.sqlite", f"DBOS {version('dbos')}"
            yield {
                f"Temporal {version('temporalio')}": (temporal.address, file),
                f"{dbos}, SQLite": (sqlite, file),
                f"{dbos}, PostgreSQL": (f"{url}/NAME", postgres.database()),
            }
    finally:
        temporal.close()


def live(engine: str, server: str, folder: Path, name: str, journal: str) -> Lives:
    """Run a workflow whose worker is killed twice."""
    model, effects = Counted(), folder / f"{name}.effects"
    with Simulator(model, PACE) as sim:
        work = Work(
            engine.partition(" ")[0].lower(),
            sim.url,
            server.replace("NAME", name),
            str(effects),
            journal=journal,
            name=name,
        )
        return killed_twice(work, model, sim, SHOWN)


def row(title: str, lives: Lives) -> tuple[str, ...]:
    """Return the cells of one workflow."""
    result = "outcome unknown" if "may have run" in lives.result else f"“{lives.result}”"
    return (
        title,
        "exact" if lives.exact else "not exact",
        f"{100 * lives.again / lives.shown:.1f} %",
        {1: "once", 2: "twice"}.get(lives.runs, f"{lives.runs} times"),
        f"{lives.gap:.1f} s",
        result,
    )


def main() -> int:
    """Print the table; return 1 if a workflow with a journal falls short."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into the guide")
    why = missing("temporalio", "dbos") or no_postgres()
    if why or "TEMPORAL" not in os.environ:
        print(f"engines: {why or 'skipped: TEMPORAL names no program of its server'}")
        return 0
    write, short, rows = parser.parse_args().write, 0, [HEAD, ("---",) * len(HEAD)]
    with tempfile.TemporaryDirectory() as made, servers(Path(made)) as known:
        for number, (engine, (server, place)) in enumerate(known.items()):
            for journal in ("", place):
                name = f"w{number}{'j' if journal else 'b'}"
                lives = live(engine, server, Path(made), name, journal)
                title = f"{engine}, {'with a journal' if journal else 'bare'}"
                rows.append(row(title, lives))
                print("|".join(rows[-1]), flush=True)
                good = lives.exact and lives.runs == 1 and lives.again <= AGAIN * lives.shown
                short += bool(journal) and not good
    if write:
        load = f"{os.getloadavg()[0]:.1f}"
        when = time.strftime("%Y-%m-%d")
        table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
        note = f"\nMeasured {when}, {os.cpu_count()} cores, load {load}.\n"
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        rest = rest.partition(MARKS[1])[2]
        page = "".join([head, MARKS[0], "\n", table, note, "\n", MARKS[1], rest])
        PAGE.write_text(page, encoding="utf-8")
    return int(short > 0)


if __name__ == "__main__":
    sys.exit(main())
