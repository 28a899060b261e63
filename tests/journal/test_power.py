"""Power that is lost: what was synced is there, of the rest any part may be.

A program's writes and syncs are read from its system calls. At each moment a disk holds what was
synced until then, and of what was written since any sectors, in any order: of such disks many are
made, and each has to open, hold all that was promised, and go on.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from continuation import Journal
from continuation.simulator import Scenario, Simulator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace tells the system calls"),
]
SECTOR = 512
PROGRAM = """
import os, sys
import anthropic, continuation
from continuation import Journal

def told(what):
    os.write(1, f"{what}\\n".encode())

path, url = sys.argv[1:]
with Journal(path, "s", save_every=0.002) as journal:
    told("open")
    bare = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)
    client = continuation.wrap(bare, journal=journal)
    turns = []
    for number in range(8):
        turns.append({"role": "user", "content": f"Go on, {number}. " + "Well. " * 2_000})
        ask = {"model": "claude-sonnet-5", "max_tokens": 20_000, "messages": turns}
        with client.messages.stream(**ask) as stream:
            text = "".join(stream.text_stream)
        told(f"answer {number}")
        turns.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
        for tool in range(4):
            name = f"c{number}{tool}"
            journal.record("intent", name, {"name": "Write"}).result()
            told(f"intent {name}")
            journal.record("result", name, {"value": "x" * 9_000, "turn": {}}).result()
            told(f"result {name}")
"""


@dataclass
class Disk:
    """What one file is for those who read it, and what of it a disk is sure to hold."""

    seen: bytearray = field(default_factory=bytearray)
    sure: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])
    """Written since it was synced; `None`: cut off there."""

    def write(self, at: int, data: bytes | None) -> None:
        _apply(self.seen, at, data)
        self.since.append((at, data))

    def sync(self) -> None:
        self.sure, self.since = bytes(self.seen), []

    def after(self, rng: random.Random) -> bytes:
        """Return what may be there when power was lost now."""
        held, kind = bytearray(self.sure), rng.choice(["nothing", "all", "some", "beginning"])
        end = {"nothing": 0, "beginning": rng.randint(0, len(self.since))}.get(kind)
        for at, data in self.since[:end]:
            if data is None:
                if kind != "some" or rng.random() < 0.5:
                    _apply(held, at, None)
                continue
            for start in range(0, len(data), SECTOR):
                if kind != "some" or rng.random() < 0.5:
                    _apply(held, at + start, data[start : start + SECTOR])
        return bytes(held)


def _apply(held: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del held[at:]
        return
    held.extend(bytes(max(0, at - len(held))))
    held[at : at + len(data)] = data


CALL = re.compile(
    r'(?P<at>[\d.]+) (?P<call>\w+)\((?P<fd>\d+)<(?P<path>[^>]*)>(?:, "(?P<data>[^"]*)", \d+)?'
    r"(?:, (?P<offset>\d+))?\) += (?P<done>\d+)"
)


def calls(folder: Path) -> Iterator[tuple[str, str, bytes, int]]:
    """Yield the system calls of all threads as they began: what, which file, what data, where."""
    lines = [line for each in folder.glob("calls.*") for line in each.read_text().splitlines()]
    found = [match for line in lines if (match := CALL.match(line))]
    for call in sorted(found, key=lambda match: float(match["at"])):
        data = bytes.fromhex((call["data"] or "").replace("\\x", ""))
        name = bytes.fromhex(call["path"].replace("\\x", "")).decode()
        yield call["call"], name, data, int(call["offset"] or 0)


def test_what_was_promised_is_there(tmp_path: Path) -> None:
    path, traced = tmp_path / "agent.db", tmp_path / "calls"
    with Simulator("A line of the answer.\n" * 900, Scenario(deltas=100)) as sim:
        names = "trace=pwrite64,write,ftruncate,fdatasync,fsync"
        strace = ["strace", "-ff", "-ttt", "-xx", "-y", "-s", "1000000", "-e", names]
        program = [sys.executable, "-c", PROGRAM, str(path), sim.url]
        ran = subprocess.run([*strace, "-o", str(traced), *program], capture_output=True)
    if b"ptrace" in ran.stderr.lower():
        pytest.skip("system calls cannot be traced here")
    assert ran.returncode == 0, ran.stderr.decode()[-2_000:]
    disks, told, lost = {path: Disk(), Path(f"{path}-wal"): Disk()}, list[str](), 0
    rng = random.Random(18)
    for call, name, data, offset in calls(tmp_path):
        if name.startswith("pipe:"):
            told += data.decode().split("\n")[:-1]
        elif (disk := disks.get(Path(name))) is not None:
            if call in {"fsync", "fdatasync"}:
                disk.sync()
            elif call == "ftruncate":
                disk.write(offset, None)
            else:
                disk.write(offset, data)
        else:
            continue
        if told and rng.random() < 0.25:
            lost += 1
            check(tmp_path / "after", disks, told, rng)
    assert told[0] == "open"
    assert told[-1] == "result c73"
    assert lost > 200


def check(folder: Path, disks: dict[Path, Disk], told: list[str], rng: random.Random) -> None:
    """Lose power now; what was told before has to be there, and the session to go on."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, disk in disks.items():
        (folder / path.name).write_bytes(disk.after(rng))
    where = folder / next(iter(disks)).name
    with closing(sqlite3.connect(where)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = db.execute("SELECT kind, key, content FROM records ORDER BY number").fetchall()
        numbers = [row[0] for row in db.execute("SELECT number FROM records ORDER BY number")]
    assert numbers == list(range(1, len(numbers) + 1)), "a beginning of what was written"
    kept = {f"{kind} {key}" for kind, key, _ in rows if kind in {"intent", "result"}}
    assert {each for each in told if each[:6] in {"intent", "result"}} <= kept
    answers = [json.loads(content) for kind, _, content in rows if kind == "answer"]
    assert len(answers) >= sum(each.startswith("answer") for each in told)
    with closing(sqlite3.connect(where)) as db:  # its owner, in a machine that was on, is alive
        db.execute("UPDATE sessions SET owner = NULL")
        db.commit()
    with Journal(where, "s") as journal:
        journal.record("intent", "more", {"name": "Write"}).result()
        assert journal.resume().kind in {"nothing", "turn", "calls"}
