"""How figures are taken: interleaved pairs, medians, one table, one verdict per target."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

Action: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took, in seconds; `cpu` is this process's own, all threads."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One run each way, right after one another."""

    plain: Cost
    ours: Cost

    @property
    def ratio(self) -> float:
        return self.ours.wall / self.plain.wall

    @property
    def added_cpu(self) -> float:
        return self.ours.cpu - self.plain.cpu


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


def cost(action: Action, times: int = 1) -> Cost:
    """Run `action` and return what one run of it took. Garbage of earlier runs is not its own."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        action()
    return Cost((time.perf_counter() - wall) / times, (time.process_time() - cpu) / times)


def pairs(plain: Action, ours: Action, rounds: int, times: int = 1) -> list[Pair]:
    """Measure both ways in turn (AB, BA, AB, ...), so that drift and order cancel out."""
    plain()
    ours()
    found: list[Pair] = []
    for number in range(rounds):
        if number % 2:
            second, first = cost(ours, times), cost(plain, times)
        else:
            first, second = cost(plain, times), cost(ours, times)
        found.append(Pair(first, second))
    return found


def ratio(found: Sequence[Pair]) -> float:
    """Wall time, ours over plain: the median of the pairs."""
    return statistics.median(pair.ratio for pair in found)


def added_cpu(found: Sequence[Pair]) -> float:
    """CPU seconds added per run: the median of the pairs."""
    return statistics.median(pair.added_cpu for pair in found)


def spread(values: Iterable[float]) -> float:
    """Half the distance between the quartiles: how far one pair may be off."""
    low, _, high = statistics.quantiles(list(values), n=4)
    return (high - low) / 2


def peak(action: Action) -> int:
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
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    return bool(parser.parse_args().quick)


def report(title: str, figures: Sequence[Figure]) -> int:
    """Print the figures as a table; return the exit code: 1 when a target was missed."""
    table = Table(title=title, title_justify="left")
    for heading, side in (("what", "left"), ("figure", "right"), ("target", "right"), ("", "left")):
        table.add_column(heading, justify="right" if side == "right" else "left")
    table.add_column("note")
    for figure in figures:
        target = "" if figure.target is None else f"<= {figure.target:g} {figure.unit}".rstrip()
        verdict = "" if figure.target is None else "PASS" if figure.passed else "FAIL"
        shown = f"{figure.value:.3g} {figure.unit}".rstrip()
        table.add_row(figure.what, shown, target, verdict, figure.note)
    Console(width=120).print(table)
    return 0 if all(figure.passed for figure in figures) else 1
