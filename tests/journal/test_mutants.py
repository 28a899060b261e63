"""Faults that are put in on purpose: the simulation finds each, or it would be worth little."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.postgres import needs_postgres

HERE = Path(__file__).parents[2]
MUTANTS = {
    "the stream ends before its end is recorded": (
        "attach/journaled.py",
        "        done.result()\n",
        "        done.done()\n",
    ),
    "a tool runs before its intent is recorded": (
        "journal/tools.py",
        "        self._journal.wait(self._start())\n        self._started()",
        "        self._start()\n        self._started()",
    ),
    "an append does not compare the epoch": (
        "journal/store.py",
        "if epochs.get(unit.owner.session) != unit.owner.epoch:",
        "if unit.owner.session not in epochs:",
    ),
    "what is given is never due": (
        "journal/live_turn.py",
        "        self._journal.save_soon(self, self._journal.save_every)\n",
        "",
    ),
    "what was saved is saved again": ("answer/given.py", "rest = text[known:]", "rest = text"),
    "what could not be written is forgotten": (
        "journal/journal.py",
        "                    self._pending.append((write, values))\n",
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
    shutil.copytree(HERE / "tests" / "support", tmp_path / "support")
    ran = faulty(tmp_path, *MUTANTS[fault], "-m", "support.simulated", "400")
    assert ran.returncode == 1
    assert "AssertionError" in ran.stderr
    assert "seed" in ran.stderr, "it can be replayed"


IN_POSTGRES = {
    "a single append does not lock its session": (
        "journal/postgres.py",
        "WHERE id = owned AND epoch = mine FOR NO KEY UPDATE;",
        "WHERE id = owned AND epoch = mine;",
        "test_no_append_passes_by_a_takeover",
    ),
    "appends do not lock their sessions": (
        "journal/postgres.py",
        '" ORDER BY id FOR NO KEY UPDATE"',
        '" ORDER BY id"',
        "test_no_append_passes_by_a_takeover",
    ),
    "what was lost with its answer is not written again": (
        "stores/postgres.py",
        "                if time.monotonic() >= until:",
        "                if True:",
        "test_an_answer_that_is_lost_is_found_again",
    ),
    "who has closed a session may have it again": (
        "journal/postgres.py",
        "    remote = True",
        "    remote = False",
        "test_who_has_closed_has_done_so_also_if_the_server_dies_then",
    ),
    "who freezes keeps the lock": (
        "stores/postgres.py",
        "set_config('idle_in_transaction_session_timeout', '{FROZEN}', true)",
        "set_config('idle_in_transaction_session_timeout', '1h', true)",
        "test_who_freezes_in_a_transaction_holds_nobody_up",
    ),
}


@needs_postgres
@pytest.mark.slow
@pytest.mark.parametrize("fault", IN_POSTGRES)
def test_a_fault_in_postgresql_is_found(fault: str, tmp_path: Path) -> None:
    where, right, wrong, test = IN_POSTGRES[fault]
    found = f"{Path(__file__).with_name('test_postgres.py')}::{test}"
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", found]
    ran = faulty(tmp_path, where, right, wrong, *options)
    assert ran.returncode == 1, ran.stdout
    summary = rf"^FAILED \S*/test_postgres\.py::{test}(\[.*\])?( - |$)"
    assert re.search(summary, ran.stdout, re.MULTILINE), ran.stdout


def faulty(
    folder: Path, where: str, right: str, wrong: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run Python on a copy of the package in which a fault is."""
    unwanted = shutil.ignore_patterns("__pycache__", "providers")
    shutil.copytree(HERE / "continuation", folder / "continuation", ignore=unwanted)
    shutil.copytree(HERE / "providers", folder / "continuation" / "providers")
    source = folder / "continuation" / where
    text = source.read_text()
    assert text.count(right) == 1, "the fault is to be put where its code is now"
    source.write_text(text.replace(right, wrong))
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        timeout=300,
    )
