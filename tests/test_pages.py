"""The code on the pages runs: each block of a page after the other, against a provider that cuts.

What is not run says why, in a comment before it: `<!-- not run here: reason -->`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_examples import environment

from continuation.config import examine
from continuation.testing import Rehearsal

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "design" / "tuning.md", *ROOT.glob("design/guide/*.md")]
FENCE = re.compile(
    r"^(?:<!-- not run here: ([^\n]+) -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
INSTALLS = ("pip install", "python3 -m venv", ".venv/bin/pip")
"""How the blocks begin that install something: `.ci/run` and `.ci/release` do."""
KILLED = [
    {"role": "user", "content": "Write it."},
    {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
    ]},
    {"role": "user", "content": "Are you still there?"},
]  # fmt: skip
AGENT = """
import sys, warnings
import anthropic, continuation

warnings.simplefilter("ignore")
bare = anthropic.Anthropic(base_url=sys.argv[1], max_retries=0)
client = continuation.wrap(bare, journal=continuation.Journal("my_agent.db", session="s"))
asked = [{"role": "user", "content": "Write it."}]
with client.messages.stream(model="claude-sonnet-5", max_tokens=32000, messages=asked) as stream:
    stream.get_final_text()
"""
STAGE = '''
import os, subprocess
import anthropic, continuation
from continuation.testing import simulate

MODEL, TOOLS, task = "claude-sonnet-5", [], "Write it."

def run_tool(call):
    return "done"

def run_my_agent(client=None, base_url=None):
    """Ask once, with a tool, and run the call if there is one."""
    client = client or continuation.wrap(anthropic.Anthropic(base_url=base_url))
    tools = [{"name": "Write", "input_schema": {"type": "object"}}]
    asked = [{"role": "user", "content": "go"}]
    client.messages.create(model=MODEL, max_tokens=4096, messages=asked, tools=tools)

def block(line, language, code):
    if language == "python":
        before = set(globals())
        exec(compile("\\n" * line + code, PAGE, "exec"), globals())
        for name in [name for name in globals() if name.startswith("test_")]:
            with simulate() as simulator:
                globals().pop(name)(simulator)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
'''
"""What the pages take for granted, and how a block of theirs is run."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    text, steps = page.read_text(encoding="utf-8"), list[str]()
    for found in FENCE.finditer(text):
        why, language, code = found.groups()
        if language == "toml":
            (tmp_path / "continuation.toml").write_text(code, encoding="utf-8")
            assert examine(tmp_path / "continuation.toml")[1] == []
        elif language in {"python", "sh"} and not why and not code.startswith(INSTALLS):
            line = text.count("\n", 0, found.start(3))
            steps.append(f"block({line}, {language!r}, {code!r})")
    if not steps:
        return
    (tmp_path / "session.json").write_text(json.dumps({"messages": KILLED}), encoding="utf-8")
    (tmp_path / "my_agent.py").write_text(AGENT, encoding="utf-8")
    code = "\n".join([f"PAGE = {page.name!r}", STAGE, *steps])
    with Rehearsal("cut-text") as sim:
        known = environment(sim.url)
        known["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
            env={**known, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr + ran.stdout


def test_a_page_names_the_language_of_its_code() -> None:
    for page in PAGES:
        languages = {found[2] for found in FENCE.finditer(page.read_text(encoding="utf-8"))}
        assert languages <= {"python", "sh", "toml", ""}, page


def test_the_readme_is_a_minute_long() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 110
    assert len(text.split()) <= 600
    assert max(map(len, lines)) <= 80
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert all(table.count("\n") - 2 <= 6 for table in tables)


def test_the_decisions_are_numbered_in_one_row_and_all_in_the_index() -> None:
    folder = ROOT / "design" / "decisions"
    files = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in files] == [f"{n:04d}" for n in range(1, len(files) + 1)]
    index = (folder / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^(\d+)\. \[(.+)\]\((.+)\)$", index)
    titles = [(folder / name).read_text(encoding="utf-8").split("\n")[0][2:] for name in files]
    assert listed == [(str(n), *row) for n, row in enumerate(zip(titles, files, strict=True), 1)]
