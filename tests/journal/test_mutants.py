"""Faults that are put in on purpose: the simulation finds each, or it would be worth little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
MUTANTS = {
    "the stream ends before its end is recorded": (
        "attach/journaled.py",
        "        done.result()\n",
        "        done.done()\n",
    ),
    "a tool runs before its intent is recorded": (
        "journal/tools.py",
        "        wait(self._start())\n        self._started()",
        "        self._start()\n        self._started()",
    ),
    "an append does not compare the epoch": (
        "journal/store.py",
        "if row is None or row[0] != unit.owner.epoch:",
        "if row is None:",
    ),
    "what is given is never due": (
        "journal/kept.py",
        "            self._journal.save_soon(self, self._journal.save_every)\n",
        "",
    ),
    "what was saved is saved again": ("answer/given.py", "rest = text[known:]", "rest = text"),
    "what could not be written is forgotten": (
        "journal/journal.py",
        "                    self._owed.append((sql, values))\n",
        "                    pass\n",
    ),
    "the running text stays behind the end": (
        "journal/journal.py",
        "self._statements(*answer, end, forget=True)",
        "self._statements(*answer, end)",
    ),
    "what is asked for without an answer does not count": (
        "journal/journal.py",
        "count = characters(events), attempts + 1",
        "count = characters(events), attempts",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", MUTANTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    where, right, wrong = MUTANTS[fault]
    unwanted = shutil.ignore_patterns("__pycache__", "providers")
    shutil.copytree(HERE / "continuation", tmp_path / "continuation", ignore=unwanted)
    shutil.copytree(HERE / "providers", tmp_path / "continuation" / "providers")
    shutil.copytree(HERE / "tests" / "support", tmp_path / "support")
    source = tmp_path / "continuation" / where
    text = source.read_text()
    assert text.count(right) == 1, "the fault is to be put where its code is now"
    source.write_text(text.replace(right, wrong))
    ran = subprocess.run(
        [sys.executable, "-m", "support.simulated", "400"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ran.returncode == 1
    assert "AssertionError" in ran.stderr
    assert "seed" in ran.stderr, "it can be replayed"
