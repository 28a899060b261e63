"""A long answer in four attempts: the engine's CPU, without any I/O, as the answer grows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import pairwise

import answers
from measure import Figure, is_quick, report
from sansio import drive

SIZES = (500_000, 1_000_000, 2_000_000)
"""Characters of the whole answer."""
ATTEMPTS = 4
PER_DOUBLING = 2.3


def main() -> int:
    rounds = 3 if is_quick(str(__doc__)) else 7
    streamed = [_attempts(size, streamed=True) for size in SIZES]
    whole = [_attempts(size, streamed=False) for size in SIZES]
    figures = _figures("streamed", streamed, rounds, streamed=True)
    figures += _figures("not streamed", whole, rounds, streamed=False)
    return report("an answer in four attempts: engine time, no I/O", figures)


def _attempts(size: int, *, streamed: bool) -> list[list[bytes]]:
    """Return the answer cut in four; without `streamed` the first part is a JSON body."""
    texts = answers.pieces(size)
    each = -(-len(texts) // ATTEMPTS)
    parts = [texts[at : at + each] for at in range(0, len(texts), each)]
    reasons = ["max_tokens"] * (ATTEMPTS - 1) + ["end_turn"]
    attempts = [answers.text_stream(*part) for part in zip(parts, reasons, strict=True)]
    return attempts if streamed else [[answers.body(parts[0], "max_tokens")], *attempts[1:]]


def _figures(
    how: str, answered: Sequence[list[list[bytes]]], rounds: int, *, streamed: bool
) -> list[Figure]:
    """Take the sizes in turn, so that what else the machine does hits all of them."""
    taken = [
        [_seconds(attempts, streamed=streamed) for attempts in answered] for _ in range(rounds)
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


def _seconds(attempts: list[list[bytes]], *, streamed: bool) -> float:
    gc.collect()
    driven = drive(attempts, streamed=streamed)
    assert len(driven.seconds) == ATTEMPTS, "three cuts, three recoveries"
    assert driven.report is not None
    assert driven.report.outcome == "healed"
    return sum(driven.seconds)


if __name__ == "__main__":
    sys.exit(main())
