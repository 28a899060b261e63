"""`run PROMPT --journal FILE`: the same command resumes, and nothing is paid twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.cli_helpers import MODEL, TEXT, arrived, interrupt, start, until

from continuation.cli import Exit, main
from continuation.simulator import Recorded, Reply, Scenario, Simulator, Text

Capture = pytest.CaptureFixture[str]
FORMATS = [
    (MODEL, "anthropic", ""),
    ("gpt-5.5", "openai-responses", "/v1"),
    ("gpt-5.5", "openai-chat", "/v1"),
    ("gemini-3.1-pro", "gemini", ""),
]


def command(sim: Simulator, folder: Path, *more: str, model: str = MODEL) -> list[str]:
    named = ["--model", model, "--max-tokens", "1000", "--journal", str(folder / "run.db")]
    path = "/v1" if model.startswith("gpt") else ""
    return ["run", "Write it.", *named, "--base-url", sim.url + path, *more]


def asked_anew(post: Recorded) -> bool:
    """Whether a request carries nothing of the answer."""
    body = post.body or {}
    turns = body.get("messages") or body.get("contents") or body["input"]
    return isinstance(turns, str) or len([t for t in turns if t.get("role") != "system"]) == 1


@pytest.mark.parametrize(("model", "dialect", "path"), FORMATS)
def test_the_same_command_gives_the_answer_again_and_sends_nothing(
    model: str, dialect: str, path: str, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    run = command(sim, tmp_path, "--dialect", dialect, model=model)
    assert main(run) == Exit.WHOLE
    sent = len(sim.posts)
    assert capsys.readouterr().out == TEXT
    assert main(run) == Exit.WHOLE
    out, err = capsys.readouterr()
    assert (out, len(sim.posts)) == (TEXT, sent)
    assert "has an answer of the same command; this is not billed again" in err
    assert "; billed: " not in err
    run[1] = "Write another."
    assert main(run) == Exit.WHOLE
    assert len(sim.posts) == 2 * sent


def test_another_server_is_another_command(sim: Simulator, tmp_path: Path) -> None:
    assert main(command(sim, tmp_path)) == Exit.WHOLE
    with Simulator(TEXT, sim.scenario) as other:
        assert main(command(other, tmp_path)) == Exit.WHOLE
        assert len(other.posts) == 3


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(("model", "dialect", "path"), FORMATS)
def test_a_stopped_run_resumes_on_standard_output(
    model: str, dialect: str, path: str, how: signal.Signals, tmp_path: Path
) -> None:
    gate = threading.Event()
    with Simulator(TEXT, Scenario(manner="anchor", deltas=48)) as sim:
        half = TEXT[: len(TEXT) // 2]
        sim.script([Reply([Text(TEXT)], gate=gate, gate_at=len(half) // 48, deltas=48)])
        run = command(sim, tmp_path, "--dialect", dialect, model=model)
        with start(*run) as process:
            arrived(process, 5_000)
            until(lambda: saved(tmp_path) >= 4_000)
            process.send_signal(how)
            _, err = process.communicate(timeout=60)
        gate.set()
        if how == signal.SIGINT:
            assert process.returncode == Exit.INTERRUPTED
            assert "the same command resumes" in err.decode()
        done = subprocess.run(
            [sys.executable, "-m", "continuation", *run],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.decode()) == (Exit.WHOLE, TEXT)
        assert b"characters of the same command; this is not billed again" in done.stderr
        assert b"was dropped" not in done.stderr
        assert not any(map(asked_anew, sim.posts[1:]))


def saved(folder: Path) -> int:
    """Return how many characters of the open turn the journal has."""
    import sqlite3

    if not (folder / "run.db").exists():
        return 0
    with sqlite3.connect(folder / "run.db") as db:
        try:
            return int(db.execute("SELECT max(characters) FROM running").fetchone()[0] or 0)
        except sqlite3.OperationalError:  # it is being made
            return 0


@pytest.mark.slow
def test_a_file_that_was_killed_at_many_points_has_the_text_once(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    scenario = Scenario(manner="anchor", deltas=48, slow=0.01)
    with Simulator(TEXT, scenario) as sim:
        run = command(sim, tmp_path, "--out", str(out))
        size = len(TEXT.encode())
        for at in (0, 1, 2_000, 5_000, 9_000, 14_000, size - 100):
            with start(*run) as process:
                while process.poll() is None and _size(out) < at:
                    time.sleep(0.001)
                process.kill()
        sent = list[int]()
        for _ in range(2):
            with start(*run) as process:
                _, err = process.communicate(timeout=60)
            assert process.returncode == Exit.WHOLE, err.decode()
            sent.append(len(sim.posts))
        assert sent[0] == sent[1]
        assert out.read_text() == TEXT
        answered = [post for post in sim.posts if not asked_anew(post)]
        assert len(answered) > 3


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


@pytest.mark.slow
def test_a_file_is_resumed_where_it_ran_ahead_of_the_journal(
    tmp_path: Path, capsys: Capture
) -> None:
    out, gate = tmp_path / "out.txt", threading.Event()
    with Simulator(TEXT, Scenario(manner="anchor")) as sim:
        sim.script([Reply([Text(TEXT)], gate=gate, gate_at=60, deltas=48)])
        run = command(sim, tmp_path, "--out", str(out))
        with start(*run) as process:
            until(lambda: saved(tmp_path) > 2_000 and _size(out) > 2_000)
            interrupt(process)
        gate.set()
        had = out.read_text()
        assert TEXT.startswith(had)
        kept = TEXT[: saved(tmp_path)]
        assert kept.startswith(had)  # the journal gets a chunk before the file does
        out.write_text(f"{kept}lost words")  # as if killed before the next save
        assert main(run) == Exit.WHOLE
        assert out.read_text() == TEXT
        out.write_text("Somebody's own text.")
        assert main(run) == Exit.NOT_WHOLE
        assert "its text differs from the journal's" in capsys.readouterr().err
        assert out.read_text() == "Somebody's own text."
        assert main([*run, "--force"]) == Exit.WHOLE
        assert out.read_text() == TEXT


def test_a_file_that_is_not_of_this_command_is_left_alone(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out.txt"
    out.write_text("precious")
    assert main(command(sim, tmp_path, "--out", str(out))) == Exit.USAGE
    assert "the file exists" in capsys.readouterr().err
    assert (out.read_text(), sim.posts) == ("precious", [])
    assert main(command(sim, tmp_path)) == Exit.WHOLE
    assert main(command(sim, tmp_path, "--out", str(out))) == Exit.NOT_WHOLE
    assert out.read_text() == "precious"


def test_an_answer_that_is_not_whole_is_continued(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    sim.scenario = sim.scenario.but("status=2:500+3:500+4:500, retry_after_ms=1")
    assert main(command(sim, tmp_path)) == Exit.NOT_WHOLE
    part = capsys.readouterr().out
    assert part == TEXT[:4000]
    sim.scenario = Scenario(manner="anchor", ceiling=2_000, deltas=96)
    assert main(command(sim, tmp_path)) == Exit.WHOLE
    assert capsys.readouterr().out == TEXT
    assert not any(map(asked_anew, sim.posts[1:]))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--set", "enabled=false"], "no answer is recorded with enabled = false"),
        (["--max-tokens", "100"], "add --set leave_limits_below=100"),
        (
            ["--journal", "{tmp}/out.txt", "--out", "{tmp}/out.txt"],
            "overwrite the file of --journal",
        ),
        (["--journal", "{tmp}/text"], "--journal "),
        (["--journal", "mysql://u:secret@h/d"], "--journal "),
    ],
)
def test_a_journal_that_would_keep_nothing_is_refused(
    more: list[str], complaint: str, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "text").write_text("no journal, " * 1000)
    told = [text.format(tmp=tmp_path) for text in more]
    assert main(command(sim, tmp_path, *told)) == Exit.USAGE
    err = capsys.readouterr().err
    assert complaint in err
    assert "secret" not in err
    assert sim.posts == []


@pytest.mark.slow
def test_the_same_command_at_the_same_time_is_refused(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    sim.script([Reply([Text(TEXT)], gate=threading.Event(), gate_at=10, deltas=48)])
    run = command(sim, tmp_path)
    with start(*run) as process:
        arrived(process, 100)
        assert main(run) == Exit.USAGE
        assert "the same command is running" in capsys.readouterr().err
        process.kill()
