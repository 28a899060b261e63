"""The command line: what it prints where, what it writes, and how it ends."""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.cli_helpers import (
    ESCAPE,
    KEY,
    MODEL,
    TEXT,
    Terminal,
    arrived,
    clean,
    interrupt,
    start,
    until,
)

import continuation
from continuation.cli import Exit, main
from continuation.cli.demo import default_file
from continuation.cli.formats import names
from continuation.simulator import Reply, Scenario, Simulator, Text
from continuation.testing import set_testing

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch, tmp_path / "home")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(TEXT, Scenario(manner="anchor", ceiling=2_000)) as simulator:
        yield simulator


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    path = tmp_path / "antwort.txt"
    path.write_bytes(TEXT.encode())
    return path


def go(sim: Simulator, *more: str, prompt: str = "go") -> int:
    return main(["run", prompt, "--model", MODEL, "--base-url", sim.url, *more])


# -- in general ----------------------------------------------------------------------------------


def test_importing_the_library_imports_neither_the_command_line_nor_rich() -> None:
    code = (
        "import sys, continuation; print([m for m in sys.modules if m.split('.')[0] == 'rich'"
        " or m.startswith(('continuation.cli', 'continuation.simulator'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_the_packages(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"continuation {continuation.__version__}\n"


def test_the_help_names_the_commands_and_every_exit_status(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert all(
        re.search(rf"^ +{word} ", said, re.MULTILINE) for word in ("demo", "run", "simulate")
    )
    assert {int(n) for n in re.findall(r"^ +(\d+)  ", said, re.MULTILINE)} == set(Exit)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sing"],
        ["demo", "--max-tokens", "0"],
        ["demo", "--max-tokens", "²"],
        ["demo", "--dialect", "klingon"],
        ["run", "go"],
        ["simulate"],
        ["simulate", "--port", "65536"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == Exit.USAGE


# -- demo ----------------------------------------------------------------------------------------


def test_without_rich_a_terminal_gets_plain_text(
    answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules, "rich", "rich.console"]:
        if name.split(".")[0] == "rich":
            monkeypatch.setitem(sys.modules, name, None)
    status, seen = Terminal(monkeypatch, "stdout").run("demo", "--file", str(answer))
    assert status == Exit.WHOLE
    assert "identical" in seen
    assert ESCAPE not in seen


def test_the_default_file_of_the_demo_is_long() -> None:
    assert len(default_file().read_text(encoding="utf-8")) > 200_000


def test_the_demo_proves_equality_over_several_seams(capsys: Capture) -> None:
    assert main(["demo"]) == Exit.WHOLE
    out, err = capsys.readouterr()
    whole = default_file().read_bytes()
    assert out.count(hashlib.sha256(whole).hexdigest()) == 2
    assert re.search(r"^ +identical$", out, re.MULTILINE)
    assert len(re.findall(r"attempt \d was cut", out)) == 3
    assert len(re.findall(r"^ +\d +[\d,]+  anchor ", out, re.MULTILINE)) == 3
    assert re.search(
        rf"[\d,]+ of {len(whole.decode()):,} characters, stop_reason 'max_tokens'", out
    )
    assert err == ""


@pytest.mark.parametrize("more", [[], ["--tool"], ["--model", "claude-haiku-4-5"]])
def test_the_demo_proves_equality_for_any_file(
    more: list[str], answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--file", str(answer), *more]) == Exit.WHOLE
    out = capsys.readouterr().out
    assert out.count(hashlib.sha256(TEXT.encode()).hexdigest()) == 2
    assert "was cut after" in out


def test_the_demo_tells_every_event_on_a_line_of_its_own(answer: Path, capsys: Capture) -> None:
    main(["demo", "--file", str(answer), "--manner", "exact"])
    told = re.findall(r"^ +[\d.]+ s  (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert told == ["attempt"] * 6 + ["finished"]


def test_the_tool_demo_shows_half_a_file_unwrapped_and_one_call_wrapped(
    answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--tool", "--file", str(answer)]) == Exit.WHOLE
    out = capsys.readouterr().out
    found = re.search(r"the call holds ([\d,]+) of ([\d,]+) characters", out)
    assert found is not None
    arrived, whole = (int(number.replace(",", "")) for number in found.groups())
    assert whole == len(TEXT)
    assert whole / 3 < arrived < whole * 2 / 3
    assert "one call, stop_reason 'tool_use'" in out


@pytest.mark.parametrize("more", [["--manner", "skip:40"], ["--max-tokens", "100"]])
def test_a_demo_that_is_not_equal_says_so_and_ends_with_1(
    more: list[str], answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--file", str(answer), *more]) == Exit.NOT_WHOLE
    out = capsys.readouterr().out
    assert "NOT identical" in out
    assert not re.search(r"^ +identical", out, re.MULTILINE)


def test_a_limit_that_does_not_cut_is_told_as_such(answer: Path, capsys: Capture) -> None:
    assert main(["demo", "--file", str(answer), "--max-tokens", "90000"]) == Exit.WHOLE
    assert "a limit of 90000 does not cut it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), (b"caf\xe9", "not UTF-8 text"), (b"short", "too few to be cut")],
)
def test_a_file_the_demo_cannot_show_is_named(
    content: bytes | None, complaint: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "it.txt"
    if content is not None:
        path.write_bytes(content)
    assert main(["demo", "--file", str(path)]) == Exit.USAGE
    err = capsys.readouterr().err
    assert str(path) in err
    assert complaint in err


def test_a_wrong_manner_lists_the_manners(capsys: Capture) -> None:
    assert main(["demo", "--manner", "rude"]) == Exit.USAGE
    assert "preamble" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["demo"], ["run", "go", "--model", MODEL]])
def test_a_missing_sdk_ends_with_3_and_the_line_that_installs_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    assert main(command) == Exit.MISSING
    assert "pip install 'continuation-engine[anthropic]'" in capsys.readouterr().err


def test_the_demo_has_no_part_in_proxies_and_keys(
    answer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert main(["demo", "--file", str(answer)]) == Exit.WHOLE
    assert KEY not in capsys.readouterr().out


def test_a_terminal_gets_colours_and_no_color_takes_them_away(
    answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["demo", "--tool", "--file", str(answer)]
    status, seen = Terminal(monkeypatch, "stdout").run(*arguments)
    assert (status, ESCAPE in seen) == (Exit.WHOLE, True)
    monkeypatch.setenv("NO_COLOR", "1")
    status, seen = Terminal(monkeypatch, "stdout").run(*arguments)
    assert (status, ESCAPE in seen) == (Exit.WHOLE, False)


def test_the_live_demo_shows_progress_and_the_same_proof(
    answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, seen = Terminal(monkeypatch, "stdout").run("demo", "--file", str(answer))
    assert status == Exit.WHOLE
    assert f"{len(TEXT):,} of {len(TEXT):,} characters" in seen
    assert "identical" in seen


def test_piped_output_has_no_escape_codes_and_a_reader_may_leave(answer: Path) -> None:
    with start("demo", "--file", str(answer)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == Exit.WHOLE
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert first.startswith(b"continuation ")
    assert ESCAPE.encode() not in first


# -- run: the answer -----------------------------------------------------------------------------


def test_an_answer_goes_to_standard_output_and_nothing_else_does(
    sim: Simulator, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert go(sim, "--max-tokens", "1000") == Exit.WHOLE
    out, err = capsysbinary.readouterr()
    assert out == TEXT.encode()
    assert b"attempt 1 was cut after 1,000 tokens: max_tokens" in err
    assert b"healed, 3 attempts, stop reason end_turn" in err
    assert ESCAPE.encode() not in err


def test_an_answer_goes_to_a_file_and_replaces_what_was_there(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old " * 50_000)
    assert go(sim, "--max-tokens", "1000", "--out", str(path)) == Exit.WHOLE
    assert path.read_bytes() == TEXT.encode()
    assert capsys.readouterr().out == ""


def test_without_a_limit_the_first_attempt_asks_for_the_models_ceiling(sim: Simulator) -> None:
    sim.scenario = Scenario()
    assert go(sim) == Exit.WHOLE
    assert [(post.body or {})["max_tokens"] for post in sim.posts] == [128_000]


def test_prompt_and_system_prompt_reach_the_model(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Schreib’s auf.".encode())))
    assert go(sim, "--max-tokens", "1000", "--system", "Be long.", prompt="-") == Exit.WHOLE
    body = sim.posts[0].body or {}
    assert body["messages"] == [{"role": "user", "content": "Schreib’s auf."}]
    assert body["system"] == "Be long."


def test_a_terminal_that_shows_the_answer_gets_the_notes_after_it(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "go", "--model", MODEL, "--base-url", sim.url, "--max-tokens", "1000"]
    status, seen = Terminal(monkeypatch, "stdout", "stderr").run(*command)
    assert status == Exit.WHOLE
    assert seen.startswith(TEXT.replace("\n", "\r\n"))
    assert "attempt 1 was cut" in seen[len(TEXT) :]


def test_the_progress_of_a_file_is_counted_on_a_terminal(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    command = ["run", "go", "--model", MODEL, "--base-url", sim.url, "--out", str(path)]
    status, seen = Terminal(monkeypatch, "stderr").run(*command, "--max-tokens", "1000")
    assert status == Exit.WHOLE
    assert path.read_bytes() == TEXT.encode()
    assert re.search(r"[\d,]+ characters", seen)


# -- run: how it ends ----------------------------------------------------------------------------


def test_a_recovery_that_fails_leaves_a_partial_answer_and_1(
    sim: Simulator, capsys: Capture
) -> None:
    sim.scenario = sim.scenario.but("status=2:500+3:500+4:500, retry_after_ms=1")
    assert go(sim, "--max-tokens", "1000") == Exit.NOT_WHOLE
    out, err = capsys.readouterr()
    assert out == TEXT[:4000]
    assert "partial (recovery failed; error 500" in err
    assert "was turned away (500" in err


def test_a_policy_file_is_obeyed_and_a_cut_answer_ends_with_1(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    config = tmp_path / "policy.toml"
    config.write_text("[defaults]\nmax_recoveries = 0\n")
    assert go(sim, "--max-tokens", "1000", "--config", str(config)) == Exit.NOT_WHOLE
    assert len(sim.posts) == 1
    assert "truncated" in capsys.readouterr().err


def test_a_budget_below_the_smallest_limit_is_cut_and_ends_with_1(
    sim: Simulator, capsys: Capture
) -> None:
    assert go(sim, "--max-tokens", "100") == Exit.NOT_WHOLE
    assert "the answer is not whole: stop_reason max_tokens" in capsys.readouterr().err


def test_a_dropped_stream_is_told_and_healed(sim: Simulator, capsys: Capture) -> None:
    sim.scenario = sim.scenario.but("drop=1:30")
    assert go(sim, "--max-tokens", "1000") == Exit.WHOLE
    assert "attempt 1: the stream was dropped" in capsys.readouterr().err


def test_a_model_whose_name_tells_no_format_is_refused_with_the_dialects(capsys: Capture) -> None:
    assert main(["run", "go", "--model", "llama"]) == Exit.USAGE
    err = capsys.readouterr().err
    assert "--model llama: this name does not tell the wire format" in err
    assert f"add --dialect ({', '.join(names())}), and --base-url URL" in err


def test_a_named_dialect_overrules_the_models_name(sim: Simulator, capsys: Capture) -> None:
    command = ["run", "go", "--model", "own-model", "--dialect", "anthropic"]
    assert main([*command, "--base-url", sim.url, "--max-tokens", "1000"]) == Exit.WHOLE
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--out", "{tmp}"], "Is a directory"),
        (["--out", "{tmp}/no/such/dir/x"], "No such file or directory"),
        (["--config", "{tmp}/none.toml"], "No such file or directory"),
        (["--config", "{tmp}/bad.toml"], "did you mean 'max_recoveries'"),
        (["--base-url", "127.0.0.1:80"], "must begin with http"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_sent(
    more: list[str], complaint: str, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "bad.toml").write_text("[defaults]\nmax_recoverys = 1\n")
    assert go(sim, *(text.format(tmp=tmp_path) for text in more)) == Exit.USAGE
    assert complaint in capsys.readouterr().err
    assert sim.requests == []


@pytest.mark.parametrize("given", [b" \n", b"\xff\xfe"])
def test_a_prompt_that_is_none_ends_with_2(
    given: bytes, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert go(sim, prompt="-") == Exit.USAGE
    assert sim.requests == []


@pytest.mark.parametrize("key", [None, "sk-ant-with\nnewline", "sk-ant-mit-ü"])
def test_a_key_that_is_missing_or_broken_ends_with_3_and_is_not_shown(
    key: str | None, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:  # fmt: skip
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    if key is not None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    assert go(sim, "--out", str(tmp_path / "out.txt")) == Exit.MISSING
    err = capsys.readouterr().err
    assert "ANTHROPIC_API_KEY" in err
    assert "sk-ant" not in err
    assert sim.requests == []
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (400, "change the request"),
        (401, "check ANTHROPIC_API_KEY"),
        (403, "another key or model"),
        (404, "check --model, --base-url and --dialect"),
        (413, "shorten it"),
        (429, "rate limit"),
        (500, "try again later"),
        (529, "overloaded"),
    ],
)
def test_a_provider_error_is_one_line_with_status_and_remedy_and_without_a_key(
    status: int, remedy: str, sim: Simulator, capsys: Capture
) -> None:
    refused = Reply(status=status, error=("some_error", f"no,\n{KEY} it is"),
                    headers={"retry-after-ms": "1"})  # fmt: skip
    sim.script([refused] * 8)
    assert go(sim, "--max-tokens", "1000") == Exit.PROVIDER
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"answered {status} some_error" in err
    assert remedy in err
    assert "sk-ant" not in err
    assert ("no, *** it is" in err) == (status not in (401, 403))


def test_an_error_in_the_stream_before_any_text_ends_with_4(
    sim: Simulator, capsys: Capture
) -> None:
    sim.scenario = sim.scenario.but("error_event=1:1+2:1+3:1+4:1+5:1")
    with set_testing():  # no waiting before it is tried again
        assert go(sim, "--max-tokens", "1000") == Exit.PROVIDER
    assert "ended the stream with an error overloaded_error" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_with_4(capsys: Capture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["run", "go", "--model", MODEL, "--base-url", url]) == Exit.PROVIDER
    err = capsys.readouterr().err
    assert "no usable answer from 127.0.0.1" in err
    assert "Traceback" not in err


def test_a_server_that_speaks_something_else_ends_with_4(sim: Simulator, capsys: Capture) -> None:
    sim.script([Reply(raw_body="<html>hello</html>", headers={"content-type": "text/html"})])
    assert go(sim, "--max-tokens", "1000") == Exit.PROVIDER
    err = capsys.readouterr().err
    assert "no usable answer" in err
    assert err.count("\n") == 1


def test_an_error_leaves_files_as_they_were(sim: Simulator, tmp_path: Path) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("precious")
    for path in (old, new):
        sim.script([Reply(status=401)])
        assert go(sim, "--max-tokens", "1000", "--out", str(path)) == Exit.PROVIDER
    assert old.read_text() == "precious"
    assert not new.exists()


def test_a_full_disk_ends_with_1_and_stops_the_answer(sim: Simulator, capsys: Capture) -> None:
    assert go(sim, "--max-tokens", "1000", "--out", "/dev/full") == Exit.NOT_WHOLE
    assert "cannot write to /dev/full: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("to_file", [True, False])
def test_ctrl_c_keeps_what_arrived_and_ends_with_130(
    to_file: bool, sim: Simulator, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    sim.script([Reply([Text("kept " * 200)], gate=threading.Event(), gate_at=10, deltas=100)])
    out = ["--out", str(path)] if to_file else []
    command = ["run", "go", "--model", MODEL, "--base-url", sim.url, "--max-tokens", "1000", *out]
    with start(*command) as process:
        if to_file:
            until(lambda: path.exists() and len(path.read_bytes()) >= 500)
            kept = path.read_bytes()
            rest, err = interrupt(process)
            assert rest == b""
        else:
            kept = arrived(process, 500)
            rest, err = interrupt(process)
            kept += rest
    assert process.returncode == Exit.INTERRUPTED
    assert ("kept " * 200).startswith(kept.decode())
    said = err.decode()
    assert re.search(rf"interrupted; kept {len(kept)} characters in ", said)
    assert "Traceback" not in said


def test_a_reader_that_leaves_ends_the_run_with_1(sim: Simulator) -> None:
    gate = threading.Event()
    sim.script([Reply([Text(TEXT)], gate=gate, gate_at=20)])
    command = ["run", "go", "--model", MODEL, "--base-url", sim.url, "--max-tokens", "1000"]
    with start(*command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        arrived(process, 50)
        process.stdout.close()
        gate.set()
        assert process.wait(60) == Exit.NOT_WHOLE
        err = process.stderr.read().decode()
    assert "cannot write to standard output: Broken pipe" in err
    assert "Exception" not in err


# -- simulate ------------------------------------------------------------------------------------


def test_the_simulator_serves_and_tells_each_request_without_its_content(answer: Path) -> None:
    command = ["simulate", "--port", "0", "--file", str(answer), "--scenario", "ceiling=500"]
    with start(*command) as process:
        assert process.stdout is not None
        head = process.stdout.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", head)
        assert found is not None
        while b"x-simulate" not in process.stdout.readline():
            pass
        told = [_told(process, found[0], limit, stream) for limit, stream in _REQUESTS]
        rest, err = interrupt(process)
    assert told == [
        "POST  /v1/messages  200  in 12  out 300  max_tokens",
        "POST  /v1/messages  200  in 12  out 300  max_tokens",
        "POST  /v1/messages  400  invalid_request_error",
    ]
    assert (process.returncode, rest, err) == (Exit.WHOLE, b"stopped\n", b"")


_REQUESTS = [(300, True), (300, False), (501, True)]


def _told(process: subprocess.Popen[bytes], url: str, limit: int, stream: bool) -> str:
    body = {"model": MODEL, "max_tokens": limit, "stream": stream,
            "messages": [{"role": "user", "content": "a secret"}]}  # fmt: skip
    headers = {"x-api-key": "any", "anthropic-version": "2026-10-21"}
    httpx2.post(f"{url}/v1/messages", headers=headers, content=json.dumps(body))
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--scenario", "manner=rude"], "manner: 'rude' is none of"),
        (["--scenario", "color=red"], "'color=red' is not a setting"),
        (["--file", "/no/such/file"], "--file /no/such/file: No such file"),
        (["--host", "0.0.0.0"], "listens on 127.0.0.1 only"),
    ],
)
def test_a_simulator_that_cannot_start_says_why(
    more: list[str], complaint: str, capsys: Capture
) -> None:
    assert main(["simulate", "--port", "0", *more]) == Exit.USAGE
    assert complaint in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["simulate", "--port", str(port)]) == Exit.USAGE
    assert f"--port {port}: Address already in use; choose another" in capsys.readouterr().err
