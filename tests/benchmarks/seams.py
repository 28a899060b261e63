"""Seam figures: real text cut at token boundaries, continued in every manner models have.

    python tests/benchmarks/seams.py [--cases 6000] [--seed 7] [--failures 10] [--ablate]
    python tests/benchmarks/seams.py --set files|made [--failures 10] [--ablate]

The cases are those of `seam_cases.py`, or of one of the two sets that are never changed
(`seam_frozen.py`). Counted are joins that are exact to the byte, characters
lost and characters doubled, for this library, for plain joining and for the longest overlap of
suffix and prefix (from 8 characters on).
"""

from __future__ import annotations

import argparse
import difflib
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from seam_ablation import ablate, own_cases
from seam_cases import PREAMBLES, Case, boundaries, make_cases, paragraph
from seam_frozen import EVERYWHERE, frozen_cases

from continuation.seams.seam import Seam, join
from continuation.seams.text import choose_anchor

# Joining and counting ---------------------------------------------------------------------------


def _plain(case: Case) -> str:
    return case.before + case.after


def _overlap(case: Case) -> str:
    for size in range(min(len(case.before), len(case.after), 4000), 7, -1):
        if case.before.endswith(case.after[:size]):
            return case.before + case.after[size:]
    return _plain(case)


def _ours(case: Case) -> str:
    return join(case.before, case.after, anchor=case.anchor)[0]


_JOINS: dict[str, Callable[[Case], str]] = {"ours": _ours, "plain": _plain, "overlap": _overlap}


@dataclass
class Tally:
    """Counts of one manner and one way of joining."""

    cases: int = 0
    exact: int = 0
    lost: int = 0
    doubled: int = 0
    characters: int = 0

    def add(self, case: Case, joined: str) -> None:
        self.cases += 1
        self.characters += len(case.whole)
        if joined == case.whole:
            self.exact += 1
            return
        lost, doubled = difference(case.whole, joined)
        self.lost += lost
        self.doubled += doubled


def difference(whole: str, joined: str) -> tuple[int, int]:
    """Characters of `whole` missing from `joined`, and characters in it too many."""
    start = 0
    while start < min(len(whole), len(joined)) and whole[start] == joined[start]:
        start += 1
    end = 0
    most = min(len(whole), len(joined)) - start
    while end < most and whole[len(whole) - 1 - end] == joined[len(joined) - 1 - end]:
        end += 1
    ours, theirs = whole[start : len(whole) - end], joined[start : len(joined) - end]
    if not ours or not theirs:
        return len(ours), len(theirs)
    matcher = difflib.SequenceMatcher(None, ours[:2000], theirs[:2000], autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return len(ours) - same, len(theirs) - same


_ASKED_NOTHING = f"{EVERYWHERE}, nothing asked"
#: The manners in which something is repeated or put before going on.
_MENDED = re.compile(r"echo|complet(es|e)|preamble|fence|restart|header")


def report(cases: list[Case], failures: int) -> None:
    tallies: dict[str, dict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
    shown = 0
    for case in cases:
        for name, way in _JOINS.items():
            joined = way(case)
            tallies[case.manner][name].add(case, joined)
            if name == "ours" and joined != case.whole and not case.lossy and shown < failures:
                shown += 1
                _show(case)
    print(
        f"{'':34}{'cases':>6}" + "".join(f"{name:>9}{'lost':>7}{'doubled':>9}" for name in _JOINS)
    )
    for manner, ways in tallies.items():
        _line(manner, list(ways.values()))
    groups = {
        "all exact": lambda manner: manner.startswith("exact"),
        "anchor echoed": lambda manner: manner.endswith("(obedient)"),
        "all echo, fence, restart, preamble": lambda manner: bool(_MENDED.search(manner)),
        "the same, disobedient": lambda manner: (
            bool(_MENDED.search(manner)) and "obedient" not in manner
        ),
        "all but skip": lambda manner: manner not in ("skip", EVERYWHERE, _ASKED_NOTHING),
    }
    print()
    for title, belongs in groups.items():
        _line(title, [_sum(tallies, name, belongs) for name in _JOINS])
    counted = _sum(tallies, "ours", groups["all but skip"])
    lost = _sum(tallies, "ours", lambda manner: manner != "skip").lost
    rate = lost / max(1, counted.characters) * 1e5
    print(f"\ncharacters lost per 100,000 (skip excluded): {rate:.3f}")


def _sum(tallies: dict[str, dict[str, Tally]], name: str, belongs: Callable[[str], bool]) -> Tally:
    total = Tally()
    for manner, ways in tallies.items():
        if belongs(manner):
            part = ways[name]
            total.cases += part.cases
            total.exact += part.exact
            total.lost += part.lost
            total.doubled += part.doubled
            total.characters += part.characters
    return total


def _line(title: str, ways: list[Tally]) -> None:
    if ways and ways[0].cases:
        columns = (
            f"{100 * way.exact / way.cases:>8.2f}%{way.lost:>7}{way.doubled:>9}" for way in ways
        )
        print(f"{title:34}{ways[0].cases:>6}" + "".join(columns))


def _show(case: Case) -> None:
    joined, verdict = join(case.before, case.after, anchor=case.anchor)
    lost, doubled = difference(case.whole, joined)
    print(f"-- {case.manner} [{case.text.kind}] {verdict} lost {lost} doubled {doubled}")
    print(f"   {case.before[-60:]!r} | {case.after[:100]!r}")


def timing() -> None:
    """Milliseconds for one seam after an answer of 400,000 characters."""
    rng = random.Random(1)
    before = "\n\n".join(paragraph(rng) for _ in range(2500))[:400_000]
    anchor = choose_anchor(before)
    rest = paragraph(rng, 40) + paragraph(rng, 40)
    for name, after in (
        ("exact", rest),
        ("anchor", (anchor or "") + rest),
        ("preamble", PREAMBLES[0] + rest),
        ("echo", before[-300:] + rest),
    ):
        times: list[float] = []
        for _ in range(30):
            begin = time.process_time()
            seam = Seam(before, anchor=anchor)
            for at in range(0, len(after), 12):
                seam.feed(after[at : at + 12])
                if seam.verdict is not None:
                    break
            seam.finish()
            times.append(time.process_time() - begin)
        print(f"seam after {len(before):,} characters, {name:9}{sorted(times)[15] * 1e3:7.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--failures", type=int, default=0, help="show so many wrong joins")
    parser.add_argument("--ablate", action="store_true", help="what each rule is worth")
    parser.add_argument("--set", choices=("own", "files", "made"), default="own", dest="kept")
    arguments = parser.parse_args()
    kept = arguments.kept
    if arguments.ablate:
        own = kept == "own"
        parts = own_cases(arguments.cases, arguments.seed) if own else [(kept, frozen_cases(kept))]
        ablate(parts, difference)
        return
    started = time.perf_counter()
    if kept != "own":
        report(frozen_cases(kept), arguments.failures)
        return
    report(make_cases(arguments.cases, arguments.seed), arguments.failures)
    timing()
    print(
        f"token boundaries: {boundaries().__name__}; {time.perf_counter() - started:.0f} s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
