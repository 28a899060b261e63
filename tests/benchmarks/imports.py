"""What `import continuation` takes in a fresh interpreter, where the SDKs are not loaded by it."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys

from measure import Figure, is_quick, report

TARGET = 150.0
"""Milliseconds."""
SDKS = ("anthropic", "openai", "google.genai")

_TIMED = """
import sys, time
begun = time.perf_counter()
import {module}
taken = time.perf_counter() - begun
for sdk in {sdks!r}:
    assert sdk not in sys.modules, sdk + " was imported"
print(taken * 1e3)
"""


def main() -> int:
    rounds = 5 if is_quick(str(__doc__)) else 15
    for sdk in SDKS:
        assert importlib.util.find_spec(sdk) is not None, f"install {sdk}: it must be importable"
    modules = ("continuation", "httpx2")
    taken = [[_milliseconds(module) for module in modules] for _ in range(rounds + 1)][1:]
    ours, http = zip(*taken, strict=True)
    note = f"no SDK loaded; best of {rounds}, median {statistics.median(ours):.0f}"
    figures = [
        Figure("import continuation", min(ours), "ms", TARGET, note),
        Figure("import httpx2 alone", min(http), "ms", note="part of the above"),
    ]
    return report("import time, fresh interpreter", figures)


def _milliseconds(module: str) -> float:
    script = _TIMED.format(module=module, sdks=SDKS)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    return float(ran.stdout)


if __name__ == "__main__":
    sys.exit(main())
