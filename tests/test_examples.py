"""Each program in `examples/` runs against a provider that cuts, and does what it says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from continuation.simulator import Recorded, Reply, Simulator, Text, ToolUse
from continuation.simulator.wire import Answer
from continuation.testing import ANSWER, Rehearsal

EXAMPLES = Path(__file__).parent.parent / "examples"
FRAMEWORKS = {"langchain_chat": "langchain_openai", "pydantic_ai_agent": "pydantic_ai"}
"""What an example stands on that is not among the test's own packages; see `.ci/frameworks`."""
SPREAD = {"ray_batch", "temporal_batch"}
"""Over more machines than one: `tests/durable/test_examples.py`, and `.ci/durable`."""


def environment(url: str) -> dict[str, str]:
    """Return an environment whose SDKs go to a provider of ours, and nowhere else."""
    theirs = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "CONTINUATION_", "LANGSMITH_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    kept |= {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}
    kept |= {"GOOGLE_GEMINI_BASE_URL": url, "NO_PROXY": "127.0.0.1"}
    return kept | {f"{name}_API_KEY": "any" for name in ("ANTHROPIC", "OPENAI", "GEMINI")}


def run(
    name: str, sim: Simulator, tmp_path: Path, *arguments: str, said: str = "", code: str = ""
) -> str:
    """Run an example in a folder of its own; return what it prints."""
    command = ["-c", code] if code else [str(EXAMPLES / f"{name}.py"), *arguments]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        input=said, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
        env=environment(sim.url) | {"PYTHONPATH": f"{EXAMPLES}{os.pathsep}{EXAMPLES.parent}"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_streaming_chat(tmp_path: Path) -> None:
    with Rehearsal("cut-text") as sim:
        out = run("streaming_chat", sim, tmp_path, said="Tell me.\nAnd again.\n\n")
    assert out.count(ANSWER) == 2
    assert out.count("[healed, 2 attempts]") == 1  # the second answer begins at the ceiling


@pytest.mark.slow
def test_fastapi_structured(tmp_path: Path) -> None:
    outline = {"title": "Rivers", "chapters": [f"Chapter {n} of many" for n in range(60)]}
    code = (
        "import asyncio, httpx2, fastapi_structured as it\n"
        "async def main():\n"
        "    app = httpx2.ASGITransport(app=it.app)\n"
        "    async with httpx2.AsyncClient(transport=app, base_url='http://app') as client:\n"
        "        print((await client.post('/outline', params={'topic': 'rivers'})).text)\n"
        "asyncio.run(main())\n"
    )
    with Rehearsal("cut-text", answer=json.dumps(outline)) as sim:
        out = run("fastapi_structured", sim, tmp_path, code=code)
        assert len(sim.posts) == 2
    assert json.loads(out) == outline


@pytest.mark.slow
def test_coding_agent(tmp_path: Path) -> None:
    arguments = {"path": "snake.py", "content": ANSWER}
    with Rehearsal("cut-call", tool="write_file", arguments=arguments) as sim:
        out = run("coding_agent", sim, tmp_path, "Write a snake game to snake.py")
    assert ANSWER in out
    assert (tmp_path / "snake.py").read_text() == ANSWER


@pytest.mark.slow
def test_coding_agent_is_paused_and_its_tool_raises(tmp_path: Path) -> None:
    """Neither ends it, and only an answer that is whole counts as one."""
    with Simulator() as sim:
        sim.script(
            [
                Reply([Text("I look it up.")], stop="pause_turn"),
                Reply([ToolUse("write_file", {"path": "a.py"})], stop="tool_use"),
                Reply([Text("That did not work.")]),
                Reply([Text("I must not.")], stop="refusal"),
            ]
        )
        out = run("coding_agent", sim, tmp_path, "Write a snake game")
        results = (sim.posts[-1].body or {})["messages"][-1]["content"]
        assert [part["content"] for part in results] == ["KeyError: 'content'"]
        assert "That did not work." in out
        with pytest.raises(AssertionError, match="not finished: refusal"):
            run("coding_agent", sim, tmp_path, "Write a snake game")


@pytest.mark.slow
def test_responses_chain(tmp_path: Path) -> None:
    with Rehearsal("cut-text") as sim:
        out = run("responses_chain", sim, tmp_path)
        chained = json.dumps([(post.body or {})["input"] for post in sim.posts[1:]])
    assert json.dumps(ANSWER[-500:])[1:-1] in chained  # what its server never had in one answer
    assert out.count(ANSWER) == 2
    assert "gpt-5.5: complete" in out


@pytest.mark.slow
def test_gemini_functions(tmp_path: Path) -> None:
    with Rehearsal("cut-call", tool="keep", arguments={"text": ANSWER}) as sim:
        out = run("gemini_functions", sim, tmp_path)
    assert f"1 notes, the longest of {len(ANSWER)} characters" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        pytest.skip(f"{FRAMEWORKS[name]} is not installed: .ci/frameworks runs this")
    with Rehearsal("cut-text") as sim:
        out = run(name, sim, tmp_path)
    assert ANSWER in out
    assert "healed, 2 attempts" in out


class Batches(Rehearsal):
    """A provider that has batches: each answer in them is cut, for nobody watches them."""

    asked: tuple[Mapping[str, Any], ...] = ()

    def respond(self, request: Recorded) -> tuple[Answer, Reply]:
        if "/messages/batches" not in request.path:
            return super().respond(request)
        if request.method == "POST":
            self.asked = tuple((request.body or {})["requests"])
        where = f"{self.url}/v1/messages/batches/b"
        body = json.dumps(
            {"id": "b", "type": "message_batch", "processing_status": "ended",
             "results_url": f"{where}/results", "created_at": "2026-01-01T00:00:00Z",
             "expires_at": "2026-01-02T00:00:00Z", "request_counts": {}}
        )  # fmt: skip
        if request.path.endswith("/results"):
            body = "\n".join(json.dumps(self.cut(one)) for one in self.asked)
        return Answer(200, {"content-type": "application/json"}, body.encode()), Reply()

    def cut(self, one: Mapping[str, Any]) -> Mapping[str, Any]:
        message = {
            "id": f"msg_{one['custom_id']}", "type": "message", "role": "assistant",
            "model": one["params"]["model"], "stop_reason": "max_tokens",
            "content": [{"type": "text", "text": ANSWER[:2000]}],
            "usage": {"input_tokens": 9, "output_tokens": 1024},
        }  # fmt: skip
        result = {"type": "succeeded", "message": message}
        return {"custom_id": one["custom_id"], "result": result}


@pytest.mark.slow
def test_batch(tmp_path: Path) -> None:
    with Batches("whole") as sim:
        out = run("batch", sim, tmp_path)
        assert len(sim.posts) == 2
    assert out.splitlines() == ["rivers end_turn healed", "lakes end_turn healed"]


@pytest.mark.slow
def test_answers(tmp_path: Path) -> None:
    with Rehearsal("cut-text") as sim:
        out = run("answers", sim, tmp_path)
        assert out.count(f" {len(ANSWER)}\n") == 8
        asked = len(sim.posts)
        assert run("answers", sim, tmp_path) == out
        assert len(sim.posts) == asked, "all of it is in the journal"


def test_each_example_is_short_and_has_its_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert names <= tested | set(FRAMEWORKS) | SPREAD
    assert len(names) == 11
    for name in names:
        assert 20 <= len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40, name
