"""The SDKs for Node, unmodified, behind a gateway that keeps a slow stream alive in every gap.

    python tests/gateway/node.py FOLDER

FOLDER is where `npm install` has put them; `.ci/gateway` does both. A client that is not there is a
failure, and so is one that gets anything but the whole text and the whole call.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.gateways import CALL, serving
from support.sdks.turn import cut, end

from continuation.simulator import Simulator

PROGRAM = Path(__file__).with_name("clients.mjs")
TABLES = "[gateway]\nping_seconds = 0.02\n[defaults]\nremember_limit = false\n"
WANTED = {"text": "One, two, three.", "calls": [["Write", CALL.arguments]]}


def node(folder: str, *arguments: str) -> Any:
    ran = subprocess.run(
        ["node", str(PROGRAM), *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    try:
        return json.loads(ran.stdout)
    except ValueError:
        return (ran.stdout + ran.stderr).strip()[-2000:]


def main(folder: str) -> int:
    failed = 0
    with (
        tempfile.TemporaryDirectory() as here,
        Simulator() as sim,
        serving(Path(here), sim.url, TABLES) as served,
    ):
        for name in node(folder):
            slow: dict[str, Any] = {"slow": 0.05, "deltas": 90}
            sim.reset()
            sim.script([cut("One, two, ", **slow), end("three.", CALL, stop="tool_use", **slow)])
            got = node(folder, name, served.url)
            well = isinstance(got, dict) and {k: got[k] for k in WANTED} == WANTED
            failed += not well
            told = {k: v for k, v in got.items() if k not in WANTED} if well else got
            print(f"{'ok    ' if well else 'FAILED'} {name:<24} {told or ''}", flush=True)  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) != 0)
