"""How figures are taken: step by step in turn, medians, one table, one verdict per target."""

from __future__ import annotations

import argparse
import gc
import importlib
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

Lane: TypeAlias = Callable[[], Iterator[object]]
"""Begins one run of what is measured, and goes on by one step at each `next`."""


def missing(*modules: str) -> str:
    """Return which modules are not installed, as the reason why something is skipped."""
    absent = list[str]()
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            absent.append(module)
    return f"skipped: {', '.join(absent)} not installed" if absent else ""


def no_postgres() -> str:
    """Return why what needs a PostgreSQL server is skipped; `""`: it can run."""
    from support.postgres import BINARIES

    server = "" if (BINARIES / "pg_ctl").exists() else "skipped: PostgreSQL not installed"
    return missing("psycopg") or server


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took, in seconds; `cpu` is this process's own, all threads."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Race:
    """Two lanes run side by side: what each step took, round by round."""

    plain: list[list[Cost]]
    ours: list[list[Cost]]

    @property
    def ratio(self) -> float:
        """Wall time, ours over plain."""
        return _wall(self.ours) / _wall(self.plain)

    @property
    def wall(self) -> float:
        """Seconds of wall time that one plain run takes."""
        return _wall(self.plain)

    @property
    def added_cpu(self) -> float:
        """CPU seconds that one run of ours takes beyond a plain one, each step at its best.

        The same work is done in each round: what a step takes beyond its best round was the
        machine's doing, and on a busy one that is far more than what is looked for here.
        """
        return _best_cpu(self.ours) - _best_cpu(self.plain)


def _steps(rounds: list[list[Cost]]) -> Iterator[tuple[Cost, ...]]:
    """Return step by step what the rounds took."""
    return zip(*rounds, strict=True)


def _best_cpu(rounds: list[list[Cost]]) -> float:
    return sum(min(cost.cpu for cost in step) for step in _steps(rounds))


def _wall(rounds: list[list[Cost]]) -> float:
    return sum(statistics.median(cost.wall for cost in step) for step in _steps(rounds))


def race(plain: Lane, ours: Lane, rounds: int) -> Race:
    """Run both lanes at once, step for step in turn (AB, BA, AB, ...), several times over.

    Both are a few milliseconds apart at any time, so that what else the machine does hits both;
    for each step the rounds are boiled down to one value, and the steps add up to a run. So a
    cost that comes once, at the beginning or the end of a run, is in the sum like any other.
    """
    found = Race([], [])
    for number in range(rounds + 1):
        gc.collect()
        a, b = _round(plain(), ours(), swap=bool(number % 2))
        if number:  # the first round warms up
            found.plain.append(a)
            found.ours.append(b)
    return found


def _round(
    plain: Iterator[object], ours: Iterator[object], *, swap: bool
) -> tuple[list[Cost], list[Cost]]:
    a, b = list[Cost](), list[Cost]()
    lanes = [(plain, a), (ours, b)]
    going = True
    while going:
        going = [_step(*lane) for lane in (reversed(lanes) if swap else lanes)] == [True, True]
        swap = not swap
    assert len(a) == len(b), "both lanes go the same way"
    return a, b


def _step(lane: Iterator[object], costs: list[Cost]) -> bool:
    wall, cpu = time.perf_counter(), time.process_time()
    going = next(lane, _END) is not _END
    costs.append(Cost(time.perf_counter() - wall, time.process_time() - cpu))
    return going


_END = object()


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. Without a target it is told, not judged."""

    what: str
    value: float
    unit: str
    target: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.target is None or self.value <= self.target


def peak(action: Callable[[], object]) -> int:
    """Return the most bytes of Python memory that one run holds on top of what was there."""
    action()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def is_quick(about: str) -> bool:
    """Read the command line: whether a short run will do."""
    return bool(_parser(about).parse_args().quick)


def options(about: str, dialects: Iterable[str]) -> tuple[bool, str]:
    """Read the command line: whether a short run will do, and of which wire format."""
    parser, names = _parser(about), list(dialects)
    parser.add_argument("--dialect", choices=names, default=names[0], help="the wire format")
    given = parser.parse_args()
    return bool(given.quick), str(given.dialect)


def _parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    return parser


def report(title: str, figures: Sequence[Figure]) -> int:
    """Print the figures as a table; return the exit code: 1 when a target was missed."""
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    table.add_column("note")
    for figure in figures:
        target = "" if figure.target is None else f"<= {figure.target:g} {figure.unit}".rstrip()
        verdict = "" if figure.target is None else "PASS" if figure.passed else "FAIL"
        shown = f"{figure.value:.3g} {figure.unit}".rstrip()
        table.add_row(figure.what, shown, target, verdict, figure.note)
    Console(width=120).print(table)
    return 0 if all(figure.passed for figure in figures) else 1
