"""Fit the weights of the seam again: log odds that a repetition is an echo.

    python scripts/fit_seams.py [--seed 1] [--texts 160] [--write]

Two samples are made from the texts of `tests/benchmarks/seam_cases.py`:

- echoes: a text is cut, and what follows repeats its end, in every manner of the benchmark;
- chance: a text is cut, and what follows in the text itself happens to repeat its end. Ordinary
  texts hardly do, so these come from test suites, tables, style sheets and generated code; all such
  cuts at token boundaries count.

The slopes are a logistic regression with a small ridge, by Newton's method, once for cuts inside
a line and once for cuts after one. The constant is then lowered or raised until chance is taken
for an echo at no more than `--wrong` of 100,000 cuts, since a wrong cut loses text. Both the
shipped and the fitted weights are tried on a third sample, of another seed. `--write` puts the
fitted ones into `continuation/seams/evidence.py`; how well they work is then measured by
`tests/benchmarks/seams.py`. Seed, texts and counts go into the file.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import exp, log1p
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))

from seam_cases import Maker, Text, boundaries, corpus, repetitive_texts  # noqa: E402 - found by the line above

from continuation.seams.evidence import AFTER, INSIDE, THRESHOLD, features, foregone  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TABLE: Final = ROOT / "continuation" / "seams" / "evidence.py"
#: The beginning of the line in evidence.py after which the file is replaced.
_WEIGHTS: Final = "# The weights ---"
#: Characters of the attempt that are looked at, and the fewest of the text before a cut.
_HEAD, _BEFORE = 600, 600
#: For repetitions by chance: characters looked at before a cut, and the longest looked for.
_WINDOW, _LONGEST = 9000, 400
#: The penalty that keeps a weight finite if only echoes have its feature.
_RIDGE: Final = 1.0

Measured = dict[str, float]


@dataclass
class Sample:
    """Repetitions at cuts of one kind, without those that `foregone` decides."""

    echoes: list[Measured] = field(default_factory=list[Measured])
    chance: list[Measured] = field(default_factory=list[Measured])
    cuts: int = 0


def sample(seed: int, texts: int) -> dict[str, Sample]:
    """Return the samples of one seed, of cuts "inside" a line and "after" one."""
    rng = random.Random(seed)
    samples = {"inside": Sample(), "after": Sample()}
    bounds = boundaries()
    for text in rng.sample(corpus(rng), texts):
        cuts = [at for at in bounds(text.body) if _BEFORE <= at < len(text.body) - 40]
        for at in rng.sample(cuts, min(40, len(cuts))):
            samples[_kind(text.body, at)].echoes += _echoes(rng, text, at)
    for text in repetitive_texts(rng, 3 * texts):
        cuts = [at for at in bounds(text.body) if _BEFORE <= at < len(text.body) - 40]
        for at in cuts:
            samples[_kind(text.body, at)].cuts += 1
        for at, size in _repetitions(text.body, set(cuts)):
            before, head = text.body[max(0, at - _WINDOW) : at], text.body[at : at + _HEAD]
            if foregone(before, head, size) is None:
                samples[_kind(text.body, at)].chance.append(features(before, head, size))
    return samples


def _kind(body: str, at: int) -> str:
    return "after" if body[at - 1] == "\n" else "inside"


def _repetitions(body: str, cuts: set[int]) -> Iterator[tuple[int, int]]:
    """Yield (cut, size) for each cut after which the `size` characters before it come again.

    The text is compared with itself, shifted by `size` characters: where the two are equal for
    `size` characters or more, their XOR has a run of zero bytes.
    """
    coded = body.encode("utf-32-le", "surrogatepass")
    for size in range(4, _LONGEST):
        width = len(coded) - 4 * size
        one, other = coded[:width], coded[4 * size :]
        apart = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
        for row in re.finditer(rb"\0{%d,}" % (4 * size), apart.to_bytes(width, "big")):
            first, end = -(-row.start() // 4), row.end() // 4
            yield from ((at, size) for at in range(first + size, end + 1) if at in cuts)


def _echoes(rng: random.Random, text: Text, at: int) -> Iterator[Measured]:
    before = text.body[:at]
    sizes = [rng.randint(14, 64), rng.randint(14, 64)]  # from any character on: the hardest
    sizes += [
        len(case.after) - (len(text.body) - at)
        for case in Maker(rng, text, at).cases()
        if case.manner.startswith(("echo", "completes")) and "obedient" not in case.manner
    ]
    for size in sizes:
        head = (before[-size:] + text.body[at:])[:_HEAD]
        if foregone(before, head, size) is None:
            yield features(before, head, size)


# The fit ----------------------------------------------------------------------------------------


def fit(drawn: Sample, names: Sequence[str], wrong: float) -> Measured:
    """Return the weights of `names` for a sample; at most `wrong` of 100,000 cuts go wrong."""
    rows = [[row[name] for name in names] for row in (*drawn.echoes, *drawn.chance)]
    offsets = [row["short"] for row in (*drawn.echoes, *drawn.chance)]
    labels = [1.0] * len(drawn.echoes) + [0.0] * len(drawn.chance)
    beta = [0.0] * len(names)
    loss = float("inf")
    for _ in range(40):
        gradient, hessian, now = _derivatives(rows, offsets, labels, beta)
        beta = [old + step for old, step in zip(beta, _solved(hessian, gradient), strict=True)]
        if abs(loss - now) < 1e-6 * now:
            break
        loss = now
    fitted = {name: round(value, 3) for name, value in zip(names, beta, strict=True)}
    scores = sorted((_log_odds(fitted, row) for row in drawn.chance), reverse=True)
    allowed = int(drawn.cuts * wrong / 1e5)
    if allowed < len(scores):
        fitted["const"] = round(fitted["const"] + THRESHOLD - scores[allowed] - 0.001, 3)
    return fitted


def _derivatives(
    rows: list[list[float]], offsets: list[float], labels: list[float], beta: list[float]
) -> tuple[list[float], list[list[float]], float]:
    """Return gradient, Hessian and loss of the penalised likelihood at `beta`."""
    size = len(beta)
    gradient = [-_RIDGE * value if at else 0.0 for at, value in enumerate(beta)]
    hessian = [[_RIDGE if i == j and i else 0.0 for j in range(size)] for i in range(size)]
    loss = sum(_RIDGE / 2 * value * value for value in beta[1:])
    for row, offset, label in zip(rows, offsets, labels, strict=True):
        present = [(at, value) for at, value in enumerate(row) if value]
        z = max(-30.0, min(30.0, offset + sum(beta[at] * value for at, value in present)))
        likely = 1 / (1 + exp(-z))
        loss += log1p(exp(z)) - label * z
        spread = likely * (1 - likely)
        for at, value in present:
            gradient[at] += (label - likely) * value
            line = hessian[at]
            for other, more in present:
                line[other] += spread * value * more
    return gradient, hessian, loss


def _solved(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Return the solution of a symmetric positive system, by elimination."""
    size = len(vector)
    rows = [[*line, value] for line, value in zip(matrix, vector, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda line: abs(rows[line][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(at + 1, size):
            factor = rows[below][at] / (rows[at][at] or 1e-9)
            if factor:
                for column in range(at, size + 1):
                    rows[below][column] -= factor * rows[at][column]
    solution = [0.0] * size
    for at in reversed(range(size)):
        total = sum(rows[at][column] * solution[column] for column in range(at + 1, size))
        solution[at] = (rows[at][size] - total) / (rows[at][at] or 1e-9)
    return solution


def _log_odds(table: Mapping[str, float], measured: Measured) -> float:
    return measured["short"] + sum(weight * measured[name] for name, weight in table.items())


# What is shown and written ----------------------------------------------------------------------


def compare(kind: str, shipped: Measured, fitted: Measured, fresh: Sample) -> str:
    """Return as text both tables, and what each does on a sample it was not fitted to."""
    lines = [f"cut {kind} a line", f"    {'':16}{'shipped':>9}{'fitted':>9}"]
    lines += [f"    {name:16}{shipped[name]:>9.3f}{fitted[name]:>9.3f}" for name in shipped]
    for title, table in (("shipped", shipped), ("fitted", fitted)):
        seen = sum(_log_odds(table, row) >= THRESHOLD for row in fresh.echoes)
        taken = sum(_log_odds(table, row) >= THRESHOLD for row in fresh.chance)
        lines.append(
            f"    {title}: {seen} of {len(fresh.echoes)} echoes seen "
            f"({100 * seen / len(fresh.echoes):.1f} %), {taken} of {fresh.cuts:,} cuts wrong"
        )
    return "\n".join(lines)


def _render(tables: Mapping[str, Measured], how: str) -> str:
    text = "\n# Written by `scripts/fit_seams.py`: " + how.replace("\n", "\n# ") + ".\n"
    meanings = {
        "inside": "For a cut inside a line.",
        "after": "For a cut after a line, where the step to a line's start is nothing rare.",
    }
    for kind, table in tables.items():
        rows = "".join(f'    "{name}": {value:g},\n' for name, value in table.items())
        text += f"\n#: {meanings[kind]}\n{kind.upper()}: Final = {{\n{rows}}}\n"
    return text


def main() -> None:
    """Fit and compare; write the weights if `--write` is given."""
    parser = argparse.ArgumentParser(description="Fit the weights of the seam again.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=160, help="texts of the sample")
    parser.add_argument("--wrong", type=float, default=10.0, help="wrong cuts of 100,000 allowed")
    parser.add_argument("--write", action="store_true", help="write evidence.py")
    options = parser.parse_args()
    drawn, fresh = (sample(seed, options.texts) for seed in (options.seed, options.seed + 1))
    shipped = {"inside": dict(INSIDE), "after": dict(AFTER)}
    fitted = {kind: fit(drawn[kind], list(table), options.wrong) for kind, table in shipped.items()}
    for kind, table in shipped.items():
        sys.stdout.write(compare(kind, table, fitted[kind], fresh[kind]) + "\n")
    if options.write:
        counts = ",\n".join(
            f"{len(one.echoes)} echoes and {len(one.chance)} repetitions by chance {kind} a line"
            for kind, one in drawn.items()
        )
        how = f"{datetime.now(UTC):%Y-%m-%d}, seed {options.seed}, {options.texts} texts,\n{counts}"
        text = TABLE.read_text(encoding="utf-8")
        head = text[: text.index("\n", text.index(_WEIGHTS)) + 1]
        TABLE.write_text(head + _render(fitted, how), encoding="utf-8")


if __name__ == "__main__":
    main()
