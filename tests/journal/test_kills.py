"""Real processes, killed at random: nothing is lost but a moment's text, no tool runs twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from continuation import Journal
from continuation.history import validate
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolCall

AGENT = """
import sys
import anthropic, continuation
url, path, effects = sys.argv[1:]
def tool(call):
    with open(effects, "a") as file:
        file.write(call.id + "\\n")
    print("tool", flush=True)
    return "ok"
journal = continuation.Journal(path, session="s")
client = continuation.wrap(anthropic.Anthropic(base_url=url, api_key="k"), journal=journal)
print("ready", journal.resume().characters, flush=True)
for call in journal.resume().not_started:
    journal.call(call, tool)
messages = journal.history() or [{"role": "user", "content": "Go."}]
while True:
    with client.messages.stream(
        model="claude-sonnet-4-5", max_tokens=32000, messages=messages,
        tools=[{"name": "Write", "input_schema": {"type": "object"}}],
    ) as stream:
        for text in stream.text_stream:
            print("text", flush=True)
        reply = stream.get_final_message()
    for call in (block for block in reply.content if block.type == "tool_use"):
        journal.call(call, tool)
    if reply.stop_reason != "tool_use":
        break
    messages = journal.history()
print("done", flush=True)
"""
TEXT = "".join(f"{n}. A line that the agent was reading when it died.\n" for n in range(400))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_an_agent_killed_at_random_ends_where_it_would_have(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path, effects = tmp_path / "agent.db", tmp_path / "effects"
    effects.touch()
    code = -1
    with Simulator(TEXT, Scenario(deltas=40, slow=0.0005)) as sim:
        for kill in [*(rng.choice([1, 20, 60, 120, 200, 300]) for _ in range(4)), 0]:
            agent = subprocess.Popen(
                [sys.executable, "-c", AGENT, sim.url, str(path), str(effects)],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert agent.stdout is not None
            said = 0
            with agent.stdout as lines:
                for _ in lines:
                    said += 1
                    if said == kill:
                        agent.kill()
                        break
            agent.wait()
            code = agent.returncode
        assert code == 0
    with Journal(path, "s") as journal:
        turns = journal.history()
    assert turns[-1]["content"][0]["text"] == TEXT
    asked = [*turns, {"role": "user", "content": "And then?"}]
    assert validate({"model": "claude-sonnet-4-5", "messages": asked}, live=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["ready", "text", "tool"])
def test_no_tool_runs_twice(kill: str, tmp_path: Path) -> None:
    path, effects = tmp_path / "agent.db", tmp_path / "effects"
    effects.touch()
    calls = [ToolCall("Write", {"path": f"{n}"}) for n in range(3)]
    replies = [
        Reply([Text("I write."), *calls], stop="tool_use"),
        Reply([Text("Done.")], stop="end_turn"),
    ]
    with Simulator() as sim:
        sim.script(replies)
        for last in (False, True):
            agent = subprocess.Popen(
                [sys.executable, "-c", AGENT, sim.url, str(path), str(effects)],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert agent.stdout is not None
            with agent.stdout as lines:
                for line in lines:
                    if not last and line.startswith(kill):
                        agent.kill()
                        break
            agent.wait()
            if kill == "text" and not last:
                sim.script(replies)  # the answer is asked for again
    ran = effects.read_text().split()
    assert len(ran) == len(set(ran))
    assert len(ran) >= 2
    with Journal(path, "s") as journal:
        assert journal.resume().kind == "nothing"
        assert "Done." in str(journal.history()[-1])
