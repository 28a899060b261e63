"""A long answer in four attempts: the engine's CPU, without any I/O, as the answer grows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import pairwise

from answers import CUT, END, text_of
from measure import Figure, options, report
from sansio import drive
from wires import WIRES, Wire

SIZES = (500_000, 1_000_000, 2_000_000)
"""Characters of the whole answer."""
ATTEMPTS = 4
PER_DOUBLING = 2.3


def main() -> int:
    quick, dialect = options(str(__doc__), WIRES)
    rounds, wire = 2 if quick else 7, WIRES[dialect]
    figures: list[Figure] = []
    for how, streamed in (("streamed", True), ("not streamed", False)):
        answered = [_attempts(wire, size, streamed=streamed) for size in SIZES]
        figures += _figures(wire, how, answered, rounds, streamed=streamed)
    return report(f"an answer in four attempts, {dialect}: engine time, no I/O", figures)


def _attempts(wire: Wire, size: int, *, streamed: bool) -> list[list[bytes]]:
    """Return the answer cut in four; without `streamed` the first part is a JSON body."""
    text, each = text_of(size), -(-size // ATTEMPTS)
    parts = [text[at : at + each] for at in range(0, size, each)]
    reasons, answers = [CUT] * (ATTEMPTS - 1) + [END], wire.answers
    attempts = [answers.text_stream(*part) for part in zip(parts, reasons, strict=True)]
    return attempts if streamed else [[answers.body(parts[0], CUT)], *attempts[1:]]


def _figures(
    wire: Wire, how: str, answered: Sequence[list[list[bytes]]], rounds: int, *, streamed: bool
) -> list[Figure]:
    """Take the sizes in turn, so that what else the machine does hits all of them."""
    taken = [
        [_seconds(wire, attempts, streamed=streamed) for attempts in answered]
        for _ in range(rounds)
    ]
    best = [min(column) for column in zip(*taken, strict=True)]
    figures = [
        Figure(f"{how}, {size / 1e6:g} MB", seconds * 1e3, "ms", note=f"best of {rounds}")
        for size, seconds in zip(SIZES, best, strict=True)
    ]
    for (size, less), (larger, more) in pairwise(zip(SIZES, best, strict=True)):
        what = f"{how}, {size / 1e6:g} -> {larger / 1e6:g} MB"
        figures.append(Figure(what, more / less, "times", PER_DOUBLING))
    return figures


def _seconds(wire: Wire, attempts: list[list[bytes]], *, streamed: bool) -> float:
    gc.collect()
    driven = drive(wire, attempts, streamed=streamed)
    assert len(driven.seconds) == ATTEMPTS, "three cuts, three recoveries"
    assert driven.report is not None
    assert driven.report.outcome == "healed"
    return sum(driven.seconds)


if __name__ == "__main__":
    sys.exit(main())
