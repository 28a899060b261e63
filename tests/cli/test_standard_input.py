"""What is piped into `continuation run`, and flags that would have no effect."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli_helpers import MODEL, TEXT, Terminal

from continuation.cli import Exit, main
from continuation.simulator import Simulator

Capture = pytest.CaptureFixture[str]


def asked(sim: Simulator) -> Any:
    [message] = (sim.posts[0].body or {})["messages"]
    return message["content"]


def command(sim: Simulator, *prompt: str) -> list[str]:
    return ["run", *prompt, "--model", MODEL, "--base-url", sim.url]


@pytest.mark.parametrize(
    ("piped", "prompt", "sent"),
    [
        (b"the log", ["Why?"], "the log\n\nWhy?"),
        (b"the log\n", ["Why?"], "the log\n\nWhy?"),
        (b"the log\n\n\n", ["Why?"], "the log\n\n\nWhy?"),
        ("文字".encode(), ["Why?"], "文字\n\nWhy?"),
        (b"\xef\xbb\xbfthe log", ["Why?"], "the log\n\nWhy?"),
        (b"the log\n", [], "the log\n"),
        (b"the log\n", ["-"], "the log\n"),
        (b"", ["Why?"], "Why?"),
        (b" \n", ["Why?"], "Why?"),
    ],
)
def test_what_is_piped_stands_before_the_prompt(
    piped: bytes, prompt: list[str], sent: str, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    assert main(command(sim, *prompt)) == Exit.WHOLE
    assert asked(sim) == sent


@pytest.mark.parametrize(
    ("piped", "prompt", "complaint"),
    [
        (b"", [], "PROMPT is missing; write it as an argument, or pipe it in"),
        (b"\n", ["-"], "PROMPT is empty, and so is standard input"),
        (b"", [" "], "PROMPT is empty"),
        (b"\x89PNG\r\n\x1a\n\0", ["Why?"], "not UTF-8 text (invalid start byte at byte 0)"),
        ("Straße".encode("utf-16"), ["Why?"], "standard input: not UTF-8 text"),
        ("plain".encode("utf-16-le"), ["Why?"], "a NUL character at position 1"),
    ],
)
def test_what_is_no_text_is_refused(
    piped: bytes,
    prompt: list[str],
    complaint: str,
    sim: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    assert main(command(sim, *prompt)) == Exit.USAGE
    assert complaint in capsys.readouterr().err
    assert sim.posts == []


@pytest.mark.slow
@pytest.mark.parametrize("stdin", ["<&-", "< /dev/null", "< /dev/zero", "< dir", "0> written"])
def test_odd_standard_inputs(stdin: str, sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    if stdin == "< /dev/zero":
        stdin = "< zeros"
        (tmp_path / "zeros").write_bytes(bytes(1000))
    line = f'"$@" {stdin}'
    run = [sys.executable, "-m", "continuation", *command(sim, "Why?")]
    done = subprocess.run(
        ["sh", "-c", line, "sh", *run],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    if stdin in {"<&-", "< /dev/null", "0> written"}:
        assert (done.returncode, done.stdout) == (Exit.WHOLE, TEXT)
        assert asked(sim) == "Why?"
    else:
        assert done.returncode != 0
        assert sim.posts == []


@pytest.mark.slow
def test_a_pipe_that_stays_open_is_told(sim: Simulator) -> None:
    read, write = os.pipe()
    run = [sys.executable, "-m", "continuation", *command(sim, "Why?")]
    with subprocess.Popen(run, stdin=read, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        os.close(read)
        assert one.stderr is not None
        assert b"waiting for standard input to end" in one.stderr.readline()
        os.write(write, b"late")
        os.close(write)
        assert one.wait(60) == Exit.WHOLE
    assert asked(sim) == "late\n\nWhy?"


def test_a_terminal_is_not_waited_for(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    began = time.monotonic()
    status, _ = Terminal(monkeypatch, "stdin", "stdout").run(*command(sim, "Why?"))
    assert (status, asked(sim)) == (Exit.WHOLE, "Why?")
    status, _ = Terminal(monkeypatch, "stdin").run(*command(sim))
    assert status == Exit.USAGE
    assert "PROMPT is missing" in capsys.readouterr().err
    assert time.monotonic() - began < 60


# -- flags that would have no effect, and those that are misspelled -------------------------------

RUN = ["run", "p", "--model", MODEL]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ([*RUN, "--force"], "--force: has no effect without --out FILE"),
        ([*RUN, "--concurrency", "3"], "--concurrency: works only with --batch"),
        (["report", "r.json", "--force"], "--force: has no effect without --out PATH"),
        (["report", "r.json", "--html", "--json"], "add --out PATH"),
        (["limits", "--set", "clamp=true"], "--set: has no effect without MODEL"),
        (["limits", "--config", "c.toml"], "--config: has no effect without MODEL"),
        (["demo", "--kill", "--max-tokens", "300"], "--max-tokens: has no effect with --kill"),
        (["demo", "--tool", "--manner", "exact"], "--manner: has no effect with --tool"),
    ],
)
def test_a_flag_without_effect_is_refused(line: list[str], complaint: str, capsys: Capture) -> None:
    assert main(line) == Exit.USAGE
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--max-tokens", "300"], "--max-tokens: has no effect, because no line of"),
        (["--system", "s"], "--system: has no effect"),
        (["--model", MODEL], "--model: has no effect"),
    ],
)
def test_a_flag_that_no_line_of_a_batch_needs_is_refused(
    more: list[str], complaint: str, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    lines = tmp_path / "in.jsonl"
    request = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    lines.write_text(json.dumps({"custom_id": "a", "params": request}) + "\n")
    line = ["run", "--batch", str(lines), "--out", str(tmp_path / "o"), "--base-url", sim.url]
    assert main([*line, *more]) == Exit.USAGE
    assert complaint in capsys.readouterr().err
    assert sim.posts == []
    with lines.open("a") as file:
        file.write(json.dumps({"prompt": "x"}) + "\n")
    both = [*line, "--model", MODEL, *more] if more[0] != "--model" else [*line, *more]
    assert main(both) != Exit.USAGE


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["rnu", "p"], "run"),
        ([*RUN, "--modle", "x"], "--model"),
        ([*RUN, "--max-tok", "3"], "--max-tokens"),
        ([*RUN, "--concurency", "3"], "--concurrency"),
        (["sessions", "lits", "x"], "list"),
        (["config", "chek"], "check"),
        ([*RUN, "--dialect", "openai-caht"], "openai-chat"),
        (["simulate", "--scenaro", "x"], "--scenario"),
    ],
)
def test_a_misspelled_word_is_answered_with_the_nearest(
    line: list[str], meant: str, capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code == Exit.USAGE
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_what_is_set_on_the_command_line_wins_over_the_commands_own(sim: Simulator) -> None:
    assert main([*command(sim, "p"), "--set", "initial_limit=caller"]) == Exit.WHOLE
    assert (sim.posts[0].body or {})["max_tokens"] == 8192


# -- bad input that once ended in an error of ours -------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://", "http://x:port", "http://x:99999", "http://a b", "ftp://x"]
)
@pytest.mark.parametrize("what", ["run", "finish"])
def test_a_base_url_that_is_none_is_named(
    what: str, url: str, tmp_path: Path, capsys: Capture
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text("{}\n")
    files = ["finish", str(lines), "--requests", str(lines), "--out", str(tmp_path / "o")]
    line = [*RUN] if what == "run" else files
    assert main([*line, "--base-url", url]) == Exit.USAGE
    assert f"--base-url {url}: " in capsys.readouterr().err


def test_a_link_to_itself_is_named(tmp_path: Path, capsys: Capture) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for line in (
        ["run", "--batch", str(loop), "--out", str(tmp_path / "o"), "--model", MODEL],
        ["finish", str(loop), "--requests", str(loop), "--out", str(tmp_path / "o")],
        [*RUN, "--out", str(loop)],
    ):
        assert main(line) == Exit.USAGE
        assert str(loop) in capsys.readouterr().err


def test_a_report_that_is_nested_too_deeply_is_named(tmp_path: Path, capsys: Capture) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    assert main(["report", str(deep)]) == Exit.USAGE
    assert "nested too deeply" in capsys.readouterr().err
