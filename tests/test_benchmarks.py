"""A benchmark whose optional packages are missing says so, and skips what needs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


@pytest.mark.parametrize(
    ("module", "command", "status"),
    [
        ("psycopg", ["journal.py", "--quick", "--only", "postgresql"], 0),
        ("psycopg", ["chains.py", "--quick", "--store", "postgresql"], 0),
        ("psycopg", ["chains.py", "--quick", "--store", "postgresql://127.0.0.1/none"], 0),
        ("dbos", ["engines.py"], 0),
        ("temporalio", ["engines.py"], 0),
        ("aiohttp", ["gateway.py", "--quick"], 1),
    ],
)
def test_a_missing_package_is_no_traceback(
    module: str, command: list[str], status: int, tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('none', name={module!r})")
    known = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = [sys.executable, str(BENCHMARKS / command[0]), *command[1:]]
    ran = subprocess.run(program, capture_output=True, text=True, check=False, env=known)
    assert "Traceback" not in ran.stderr, ran.stderr
    # Others may be missing as well.
    assert re.search(rf"skipped: .*\b{module}\b.* not installed", ran.stdout + ran.stderr)
    assert ran.returncode == status
