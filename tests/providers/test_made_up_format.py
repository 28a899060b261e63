"""A fifth wire format is one small module and an entry point: a made-up one is found and healed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support import made_up
from support.servers import Answer, Asked, Canned

import continuation
from continuation import registry

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
    lines = Path(made_up.__file__).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150


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
