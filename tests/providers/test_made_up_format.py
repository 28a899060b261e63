"""A fifth wire format is one small module and an entry point: a made-up one is found and healed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from support import made_up
from support.servers import Answer, Asked, Canned

import continuation
from continuation import registry
from continuation.bulk import lines

TEXT = " ".join(f"Sentence {n} says that {n} is a number." for n in range(1, 9))
ARGUMENTS = json.dumps({"path": "a.txt", "content": "line\n" * 40})
CEILING = made_up.MadeUp.default_ceiling
"""Words of four characters: what the model can say at once."""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a distribution that names the format in our entry-point group."""
    info = tmp_path / "made_up-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1\n")
    points = f"[{registry.GROUP}]\nmade-up = support.made_up:DIALECT\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    registry.dialects.cache_clear()
    yield
    registry.dialects.cache_clear()


def words(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def said(asked: Asked, lines: list[dict[str, Any]], why: str) -> Answer:
    """Say lines as the request wants them, up to its limit or the model's ceiling."""
    most = min(asked.body["most"], CEILING)
    cut = len(lines) > most
    lines = lines[:most]
    end = {"why": "most" if cut else why, "spent": {"in": 3, "out": len(lines)}}
    if asked.body.get("flow"):
        return Answer(events=[*lines, end])
    text = "".join(line.get("say", "") for line in lines)
    names = [line["run"] for line in lines if "run" in line]
    arguments = "".join(line.get("with", "") for line in lines)
    runs = [{"run": name, "with": arguments} for name in names]
    return Answer({"say": text, "runs": runs, **end})


def reciting(asked: Asked) -> Answer:
    """Recite the text from where the conversation has it."""
    had = "".join(turn["say"] for turn in asked.body["turns"] if turn["who"] == "mind")
    return said(asked, [{"say": word} for word in words(TEXT.removeprefix(had))], "done")


def calling(arguments: str) -> Any:
    def call(asked: Asked) -> Answer:
        pieces = [{"with": piece} for piece in words(arguments)]
        return said(asked, [{"say": "So."}, {"run": "write"}, *pieces], "run")

    return call


def ask(server: Canned, *, flow: bool, most: int = 20) -> dict[str, Any]:
    """Ask as a caller does, and return the answer as one object."""
    body = {"mind": "m-1", "turns": [{"who": "user", "say": "Go."}], "most": most, "flow": flow}
    with continuation.http_client(leave_limits_below=1) as client:
        answer = client.post(server.url + made_up.PATH, json=body)
    answer.raise_for_status()
    return lines_of(answer) if flow else answer.json()


def lines_of(answer: httpx2.Response) -> dict[str, Any]:
    whole: dict[str, Any] = {"say": "", "runs": []}
    for line in answer.text.split("\n\n"):
        told = json.loads(line.removeprefix("data: ")) if line.strip() else {}
        if "run" in told:
            whole["runs"].append({"run": told["run"], "with": ""})
        if "with" in told:
            whole["runs"][-1]["with"] += told["with"]
        whole["say"] += told.get("say", "")
        whole |= {key: told[key] for key in ("why", "spent") if key in told}
    return whole


def test_it_is_small() -> None:
    source = Path(made_up.__file__).read_text(encoding="utf-8").splitlines()
    assert len(source) <= 200


@pytest.mark.parametrize("flow", [True, False])
def test_a_cut_text_is_made_whole(flow: bool) -> None:
    with Canned(reciting) as server:
        answer = ask(server, flow=flow)
        assert len(server.asked) > 1, "cut at the limit and at the ceiling"
    report = continuation.last_report()
    assert report is not None
    assert report.outcome is continuation.Outcome.HEALED
    assert (answer["say"], answer["why"]) == (TEXT, "done")


@pytest.mark.parametrize("flow", [True, False])
def test_an_uncut_answer_is_the_servers_own(flow: bool) -> None:
    with Canned(lambda asked: said(asked, [{"say": "Hi."}], "done")) as server:
        assert ask(server, flow=flow)["say"] == "Hi."
        assert len(server.asked) == 1
    report = continuation.last_report()
    assert report is not None
    assert report.outcome is continuation.Outcome.COMPLETE


@pytest.mark.parametrize("flow", [True, False])
def test_a_cut_call_is_asked_for_again_and_comes_whole(flow: bool) -> None:
    short = json.dumps({"path": "a.txt", "content": "line\n" * 20})
    with Canned(calling(short)) as server:
        answer = ask(server, flow=flow)
        assert len(server.asked) > 1
    assert answer["runs"] == [{"run": "write", "with": short}]
    assert answer["why"] == "run"


@pytest.mark.parametrize("flow", [True, False])
def test_a_call_that_stays_cut_is_never_one_to_run(flow: bool) -> None:
    with Canned(calling(ARGUMENTS)) as server:
        answer = ask(server, flow=flow)
    assert not [call for call in answer["runs"] if _is_json(call["with"])]
    assert not answer["runs"] or answer["why"] == "most"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# --- beyond one request ---------------------------------------------------------------------------


class Mind:
    """An SDK of the format: as much of one as `run_batch` and `finish` need."""

    def __init__(self, url: str, **options: Any) -> None:
        self._client = continuation.http_client(leave_limits_below=1, **options)
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def tell(self, **body: Any) -> dict[str, Any]:
        answer = self._client.post(self._url + made_up.PATH, json=body)
        answer.raise_for_status()
        whole: dict[str, Any] = answer.json()
        return whole


def request(**fields: Any) -> dict[str, Any]:
    return {"mind": "m-1", "turns": [{"who": "user", "say": "Go."}], "most": 20, **fields}


def test_a_conversation_is_journaled(tmp_path: Path) -> None:
    with (
        Canned(reciting) as server,
        continuation.Journal(tmp_path / "agent.db", "s") as journal,
        Mind(server.url, journal=journal) as mind,
    ):
        answer = mind.tell(**request())
        turns = journal.history()
    assert answer["say"] == TEXT
    said = {"who": "mind", "say": TEXT, "runs": []}
    assert turns == [{"who": "user", "say": "Go."}, said]


def test_a_tool_of_it_runs_once(tmp_path: Path) -> None:
    short = json.dumps({"path": "a.txt", "content": ""})
    ran = list[str]()

    def run(call: dict[str, Any]) -> str:
        ran.append(call["with"])
        return "done"

    with Canned(calling(short)) as server:
        for _ in range(2):
            with (
                continuation.Journal(tmp_path / "agent.db", "s") as journal,
                Mind(server.url, journal=journal) as mind,
            ):
                answer = mind.tell(**request(most=60))
                journal.call(answer["runs"][0], run)
                assert journal.history()[-1] == {"who": "user", "say": "done", "ran": "write"}
    assert ran == [short]


_KILLED = """
import os, signal, sys
import continuation
from support import made_up
url, path, kills = sys.argv[1:]
journal = continuation.Journal(path, "s", save_every=0.01)
body = {"mind": "m-1", "turns": [{"who": "user", "say": "Go."}], "most": 20, "flow": True}
with continuation.http_client(leave_limits_below=1, journal=journal) as client:
    with client.stream("POST", url + made_up.PATH, json=body) as answer:
        for line in answer.iter_lines():
            print(line, flush=True)
            while kills == "yes":
                with continuation.Journal(path, "s", readonly=True) as saved:
                    if saved.resume().characters:
                        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_resumes_its_answer(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    printed = list[str]()
    with Canned(reciting) as server:
        for kills, status in (("yes", -signal.SIGKILL), ("no", 0)):
            command = [sys.executable, "-c", _KILLED, server.url, str(tmp_path / "a.db"), kills]
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            assert ended.returncode == status, ended.stderr
            printed.append(ended.stdout)
        resumed = server.asked[1].body["turns"]
    lines = [json.loads(line.removeprefix("data: ")) for line in printed[1].split("\n") if line]
    assert "".join(line.get("say", "") for line in lines) == TEXT
    assert TEXT.startswith(next(turn["say"] for turn in resumed if turn["who"] == "mind"))


def test_a_batch_of_it_is_answered_and_kept(tmp_path: Path) -> None:
    asked = [request(id=f"r{n}") for n in range(3)]
    with Canned(reciting) as server, Mind(server.url) as mind:
        results = [list(continuation.run_batch(mind, asked, journal=tmp_path / "batch.db"))]
        sent = len(server.asked)
        results.append(list(continuation.run_batch(mind, asked, journal=tmp_path / "batch.db")))
        assert len(server.asked) == sent, "the second run has all answers from the journal"
    for each in results:
        assert [result.error for result in each] == [None] * 3
        assert {result.answer["say"] for result in each} == {TEXT}


def test_a_truncated_answer_from_elsewhere_is_finished() -> None:
    with Canned(reciting) as server, Mind(server.url) as mind:
        half: dict[str, Any] = {
            "say": TEXT[:40],
            "runs": [],
            "why": "most",
            "spent": {"in": 3, "out": 10},
        }
        whole = continuation.finish(mind, request(), half)
        assert server.asked[0].body["turns"][-2]["say"] == TEXT[:40]
    assert whole["say"] == TEXT
    assert whole["why"] == "done"


def test_a_line_of_its_batches_is_read() -> None:
    line: dict[str, Any] = {"custom_id": "a", "asks": request()}
    answered: dict[str, Any] = {"custom_id": "a", "tells": {"say": "Hi", "runs": [], "why": "most"}}
    assert lines.request_in(line) == ("a", request())
    answer = lines.answer_in(answered)
    assert answer is not None
    assert lines.is_cut(answer)
    assert lines.text_of(answer) == "Hi"
