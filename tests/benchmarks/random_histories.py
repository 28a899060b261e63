"""The nightly run: a million random histories a format, each repaired, and looked at by others."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.notation import DIALECTS
from support.random_histories import Tally, tally

_CHUNK = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="histories of each format")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first one")
    asked = parser.parse_args()
    began, worst = time.monotonic(), 0
    starts = range(asked.seed, asked.seed + asked.count, _CHUNK)
    counts = [min(_CHUNK, asked.seed + asked.count - start) for start in starts]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for dialect in DIALECTS:
            whole = Tally()
            for told in pool.map(tally, [dialect] * len(counts), counts, starts):
                whole.histories += told.histories
                whole.valid += told.valid
                whole.invalid += told.invalid
                whole.lost += told.lost
                whole.changed += told.changed
            spent = time.monotonic() - began
            print(
                f"{dialect}: {whole.histories:,} histories from number {asked.seed:,} on,"
                f" {whole.valid:,} valid as they were; invalid {len(whole.invalid)},"
                f" lost {len(whole.lost)}, changed though valid {len(whole.changed)};"
                f" {spent:.0f} s",
                *(whole.invalid + whole.lost + whole.changed)[:10],
                flush=True,
            )
            worst += whole.failures
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
