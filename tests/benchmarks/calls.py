"""Figures of completed calls whose model writes the rest in any manner: no wrong call is delivered.

    python tests/benchmarks/calls.py [--cases 20000] [--seed 39] [--first 0] [--show 5]

What a case is, `tests/support/call_fuzz.py` says. "in one way only" counts the manners that obey
the request, or whose rest can be read in one way only; signed: the model wrote the sign of the end.
Half of the texts are made so that few signs tell plain text from JSON.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.call_fuzz import MANNERS, SAFE, Case, run, run_case
from support.call_wires import FORMATS

CASES, SEED = 20_000, 39
NOT_ASKED = "(truncated outside of a text)"


def _print(name: str, ran: Sequence[Case]) -> None:
    delivered = sum(case.delivered for case in ran) / max(1, len(ran))
    kinds = ("text", "members", "raised")
    text, members, raised = (sum(case.wrong == kind for case in ran) for kind in kinds)
    print(f"{name:33} {len(ran):6} {delivered:10.1%} {text:11} {members:8} {raised:7}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--show", type=int, default=0, help="so many wrong cases, with their seeds")
    parser.add_argument("--case", help="the seed of one case, such as 39:17")
    options = parser.parse_args()
    if options.case:
        print(run_case(options.case))
        return 0
    logging.disable()
    began, tallies = time.monotonic(), defaultdict[str, list[Case]](list)
    for case in run(options.cases, options.seed, options.first):
        if case.asked:
            tallies[case.manner].append(case)
        else:
            tallies[NOT_ASKED].append(case)
    print(f"{'':33} {'cases':>6} {'delivered':>10} {'wrong text':>11} {'members':>8} {'raised':>7}")
    every = [case for ran in tallies.values() for case in ran]
    asked = [case for case in every if case.manner in SAFE and case.asked]
    for name in (*MANNERS, NOT_ASKED):
        _print(name, tallies[name])
    print()
    for name in FORMATS:
        _print(name, [case for case in every if case.wire == name])
    _print("live", [case for case in every if case.live])
    _print("in one way only, signed", [case for case in asked if case.signed])
    _print("in one way only, unsigned", [case for case in asked if not case.signed])
    _print("all", every)
    wrong = [case for case in every if case.wrong]
    for case in wrong[: options.show]:
        print(case)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
