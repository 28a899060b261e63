"""The agents themselves: killed in the middle of a call, repaired, and taken up again.

    python tests/sessions/agents.py FOLDER [NAME…]

FOLDER is where `npm install` has put them; `.ci/agents` does both. Each agent talks to the
simulator, which is as strict as the providers are. An agent that is not there is a failure, and so
is one that does not send all that was said before when it takes up a repaired session.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from continuation.sessions import checked, repairing
from continuation.simulator import Recorded, Reply, Scenario, Simulator, Text, ToolUse
from continuation.simulator.model import Ask
from continuation.simulator.wire import Answer

FIRST, SAID, SECOND = "Count to one, please.", "One, and that is all.", "And now to two, please."
NO_RESULT = "[no result]"
"""How the answer that a repair gives to an open call begins."""
PATIENCE = 90.0


class Model(Simulator):
    """Calls the tool that an agent runs commands with, as long as there is a command to run."""

    def __init__(self) -> None:
        super().__init__()
        self.command = ""
        self._now = threading.local()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        self._now.body = request.raw.decode(errors="replace")
        return super().respond(request)

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        del scenario, attempt
        runs = self.command and FIRST in self._now.body and not ask.turns[-1].results
        for name, (key, more) in TOOLS.items() if runs else ():
            if f'"name":"{name}"' in self._now.body:
                arguments = {key: self.command, **more}
                return Reply([Text(SAID), ToolUse(name, arguments)], stop="tool_use")
        return Reply([Text("Done.")])


TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bash": ("command", {"description": "waits"}),
    "bash": ("command", {"description": "waits"}),
    "run_shell_command": ("command", {"description": "waits", "is_background": False}),
    "exec_command": ("cmd", {}),
}
"""The tools that run a command, what the command is called there, and what else they want."""


# -- what each agent needs -----------------------------------------------------------------------


def _torn(sessions: Path) -> None:
    """It was killed in the middle of a line, too."""
    (log,) = sessions.rglob("*.jsonl")
    with log.open("ab") as file:
        file.write(log.read_bytes().splitlines()[-1][:40])


def _unanswered(sessions: Path) -> None:
    """gemini-cli saves a call with its result; versions before saved it as soon as it was made."""
    (log,) = sessions.rglob("session-*.jsonl")
    records = [json.loads(line) for line in log.read_bytes().splitlines()]
    said = next(record for record in records if record.get("type") == "gemini")
    call = {"id": "c1", "name": "run_shell_command", "args": {"command": "true"}}
    said["toolCalls"] = [{**call, "status": "executing", "timestamp": said["timestamp"]}]
    with log.open("ab") as file:
        file.write(json.dumps(said).encode() + b"\n")
    _torn(sessions)


def _lost(sessions: Path) -> None:
    """What the user said is lost but for its parts; the agent cannot even list such a session."""
    with contextlib.closing(sqlite3.connect(sessions / "opencode.db")) as database:
        database.execute("UPDATE message SET data = '{\"role' WHERE data LIKE '%\"user\"%'")
        database.commit()


@dataclass(frozen=True)
class Agent:
    """How one is started and taken up again, and where it keeps its sessions."""

    name: str
    start: Sequence[str]
    """What is said comes behind it."""
    resume: Sequence[str]
    """`ID` stands for the session's."""
    sessions: str
    """Below the home."""
    settings: Mapping[str, str]
    files: Mapping[str, Any] = field(default_factory=dict[str, Any])
    damage: Callable[[Path], None] = _torn
    saves_calls: bool = True
    """Before they have a result."""


def agents(anthropic: str, openai: str, gemini_url: str) -> list[Agent]:
    """All of them, told to talk to servers at these URLs, by the format they speak."""
    claude = ("--allowedTools", "Bash,Write", "--model", "claude-sonnet-4-5")
    codex = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    gemini = ("-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p")
    qwen = ("--auth-type", "openai", "-m", "qwen3-coder-plus", "--approval-mode", "yolo", "-p")
    toml = (
        'model = "gpt-5.5"\nmodel_provider = "here"\n[model_providers.here]\nname = "here"\n'
        f'base_url = "{openai}/v1"\nenv_key = "KEY"\nwire_api = "responses"\n'
    )
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "here",
        "options": {"baseURL": f"{openai}/v1", "apiKey": "any"},
        "models": {"m": {"limit": {"context": 200_000, "output": 32_000}}},
    }
    opencode = {"provider": {"here": provider}, "permission": "allow"}
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return [
        Agent(
            "claude",
            ("-p", *claude),
            ("-p", "--resume", "ID", *claude),
            ".claude/projects",
            {"ANTHROPIC_BASE_URL": anthropic, "ANTHROPIC_API_KEY": "any"},
        ),
        Agent(
            "codex",
            codex,
            (*codex, "resume", "--last"),
            ".codex/sessions",
            {"KEY": "any"},
            {".codex/config.toml": toml},
        ),
        Agent(
            "gemini",
            gemini,
            ("--resume", "latest", *gemini),
            ".gemini/tmp",
            {"GOOGLE_GEMINI_BASE_URL": gemini_url, "GEMINI_API_KEY": "any"}
            | {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            {".gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}}},
            _unanswered,
            saves_calls=False,
        ),
        Agent(
            "qwen",
            qwen,
            ("--continue", *qwen),
            ".qwen/projects",
            {
                "OPENAI_BASE_URL": f"{openai}/v1",
                "OPENAI_API_KEY": "any",
                "OPENAI_MODEL": "qwen3-coder-plus",
            },
        ),
        Agent(
            "opencode",
            ("run", "-m", "here/m"),
            ("run", "--continue", "-m", "here/m"),
            ".local/share/opencode",
            {f"OPENCODE_DISABLE_{name}": "1" for name in off},
            {".config/opencode/opencode.json": opencode},
            _lost,
        ),
    ]


# -- one agent -----------------------------------------------------------------------------------


def run(
    agent: Agent,
    binary: Path,
    home: Path,
    words: Sequence[str],
    until: Callable[[], bool],
    *,
    errors: bool = True,
) -> str:
    """Let it run until it ends or something holds; then it is killed. Return what it wrote.

    `errors`: on standard error, too.
    """
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", **agent.settings}
    with (home / "told").open("w+b") as told:
        process = subprocess.Popen(
            [binary, *words],
            cwd=home / "work",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told if errors else subprocess.DEVNULL,
            start_new_session=True,
        )
        ends = time.monotonic() + PATIENCE
        while process.poll() is None and not until() and time.monotonic() < ends:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        told.seek(0)
        return f"exit status {status}\n{told.read().decode(errors='replace')}"


def faults(agent: Agent, binary: Path, model: Model, home: Path) -> list[str]:
    """What is wrong with a session of its own, once it was repaired; [] if nothing is."""
    if not binary.exists():
        return [f"{binary}: there is no such program"]
    (home / "work").mkdir(parents=True)
    for name, content in agent.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content if isinstance(content, str) else json.dumps(content))
    mark, sessions = home / "mark", home / agent.sessions
    model.reset()
    model.command = f"touch {mark}; sleep 60"

    def saved() -> bool:
        """The call runs, and the session has what came before it: some run it first."""
        files = [each for each in sessions.rglob("*") if mark.exists() and each.is_file()]
        word = str(mark) if agent.saves_calls else SAID
        return any(word.encode() in file.read_bytes() for file in files)

    told = run(agent, binary, home, [*agent.start, FIRST], saved)
    model.command = ""
    if not saved():
        return [f"it never came to the call: {told}"]
    agent.damage(sessions)
    (broken,) = checked(sessions)
    ends = time.monotonic() + PATIENCE  # what was killed may be at work until it is gone
    while any(made.exit_code == 2 for made in repairing(sessions, in_place=True)):
        if time.monotonic() > ends:
            return ["another program is at work on the session"]
        time.sleep(0.2)
    (again,) = checked(sessions)
    statuses = [broken.exit_code, again.exit_code]
    left = [p.code for p in again.problems] + [v.code for v in again.violations]
    model.reset()
    words = [broken.path.stem if word == "ID" else word for word in agent.resume]
    told = run(agent, binary, home, [*words, SECOND], lambda: False)
    asked = [request for request in model.posts if SECOND in request.raw.decode()]
    # Agents ask for titles and the like, too; the conversation is the longest.
    sent = max((request.raw.decode() for request in asked), key=len, default="")
    return [
        *([f"found, and found again: {statuses} {left}"] if statuses != [1, 0] else []),
        *([] if asked else [f"it did not take the session up: {told}"]),
        *(f"refused: {request.status}" for request in asked if request.status != 200),
        *(f"not sent: {text}" for text in (FIRST, SAID, NO_RESULT) if asked and text not in sent),
    ]


def main(folder: Path, names: Sequence[str]) -> int:
    """Try the agents named, or all."""
    worst = 0
    with Model() as model, tempfile.TemporaryDirectory() as homes:
        for agent in agents(*[model.url] * 3):
            if names and agent.name not in names:
                continue
            began = time.monotonic()
            binary = folder / "node_modules" / ".bin" / agent.name
            found = faults(agent, binary, model, Path(homes, agent.name))
            worst |= bool(found)
            state = "; ".join(found) or "takes up what was repaired"
            print(f"{agent.name}: {state} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201
    return worst


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
