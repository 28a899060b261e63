"""`continuation demo --kill`: kills an agent while the model writes, and starts it again."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from continuation.cli.demo import Demo
from continuation.cli.exits import CommandError, Exit
from continuation.cli.journal import lines_of, listed
from continuation.cli.screen import print_json
from continuation.limits import find
from continuation.reports.account import number, plural
from continuation.simulator import Reply, Simulator, Text, ToolUse

_SHARE = 0.4
"""The share of the answer that the agent gets before it is killed."""
_LOOKS = Reply([Text("I look first."), ToolUse("Look", {})], stop="tool_use")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Return `Exit.WHOLE` if the answer equals the file and the tool ran once."""
    if arguments.max_tokens is not None:
        message = (
            "--max-tokens: has no effect with --kill, because a kill ends the answer; leave it out"
        )
        raise CommandError(message, Exit.USAGE)
    demo = Demo(arguments)
    if demo.tool or not demo.format.agent:
        message = (
            "--kill: works only with a text and the anthropic SDK; leave out the other options"
        )
        raise CommandError(message, Exit.USAGE)
    out = demo.out
    simulator = demo.provider(replace(demo.paced(), ceiling=None))
    with simulator, tempfile.TemporaryDirectory() as folder:
        agent = _Agent(demo.format.agent, simulator, Path(folder), demo.model)
        out.line("1. an agent with a journal runs a tool, then the model writes", "bold")
        simulator.script([_LOOKS])
        received = agent.run(until=int(demo.length * _SHARE))
        out.line(f"   SIGKILL after {plural(received, 'character')} of the answer", "red")
        for line, _ in lines_of(listed(agent.file)[0]):
            out.line(f"   {line}", "dim")
        out.line()
        out.line("2. the same program, started again", "bold")
        agent.run(until=None)
        record = agent.record
        if "saved" not in record:
            message = f"the agent did not finish (exit status {agent.status})"
            raise CommandError(message, Exit.NOT_WHOLE)
        runs = len(agent.log.read_text().splitlines())
        out.line(f"   {record['outcome']}; the tool ran {plural(runs, 'time')}")
        saved, billed = number(record["saved"]), number(record["billed"])
        out.line(f"   not billed again: {saved} tokens; billed by this process: {billed}")
        demo.document |= {"tool_runs": runs, "told": record}
        equal = demo.prove("the answer", agent.answer.read_bytes())
    print_json(demo.document)
    return Exit.WHOLE if equal and runs == 1 else Exit.NOT_WHOLE


class _Agent:
    """The agent's program. Each `run` starts it again."""

    def __init__(self, program: str, simulator: Simulator, folder: Path, model: str) -> None:
        self.file, self.answer, self.log = (folder / name for name in ("db", "answer", "log"))
        limits = find(model)
        limit = limits.ceiling if limits is not None else 64_000
        arguments = [simulator.url, self.file, model, limit, self.answer, self.log]
        self._command = [sys.executable, "-c", program, *map(str, arguments)]
        self.record: dict[str, Any] = {}
        """The last line of its output."""
        self.status = 0

    def run(self, *, until: int | None) -> int:
        """Run the agent; return the number of characters of the answer that it received.

        `until`: kill it when it has received so many; `None`: let it end.
        """
        received = 0
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.record = json.loads(line)
                received = self.record.get("received", received)
                if until is not None and received >= until:
                    process.kill()
                    break
            process.stdout.close()
        self.status = process.returncode
        return received
