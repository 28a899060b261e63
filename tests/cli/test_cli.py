"""The command line: what it prints where, what it writes, and how it ends."""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest
from support.cli_helpers import ESCAPE, MODEL, TEXT, Terminal, arrived, interrupt, start, until

import continuation
from continuation.cli import Exit, demo, main
from continuation.cli.demo import default_file
from continuation.cli.formats import names
from continuation.policy import KEYS
from continuation.simulator import Reply, Scenario, Simulator, Text
from continuation.testing import SCENARIOS

Capture = pytest.CaptureFixture[str]


def go(sim: Simulator, *more: str, prompt: str = "go") -> int:
    return main(["run", prompt, "--model", MODEL, "--base-url", sim.url, *more])


# -- in general ----------------------------------------------------------------------------------


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
    told = re.findall(r"^ +(\d+)  (.+)", said, re.MULTILINE)
    assert {int(number) for number, _ in told} == set(Exit)
    page = Path(__file__).parents[2] / "design" / "guide" / "command-line.md"
    listed = re.findall(r"(?m)^\| (\d+) \| (.+) \|$", page.read_text(encoding="utf-8"))
    assert [(number, meaning.replace("`", "")) for number, meaning in listed] == told


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sing"],
        ["demo", "--max-tokens", "0"],
        ["demo", "--max-tokens", "²"],
        ["demo", "--dialect", "klingon"],
        ["run", "go"],
        ["simulate", "--port", "65536"],
        ["check"],
        ["repair", "x", "--out", "y", "--in-place"],
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


@pytest.mark.slow  # of a shorter file, and in each format: see test_formats.py
def test_the_demo_proves_equality_over_several_seams(capsys: Capture) -> None:
    assert main(["demo"]) == Exit.WHOLE
    out, err = capsys.readouterr()
    whole = default_file().read_bytes()
    assert out.count(hashlib.sha256(whole).hexdigest()) == 2
    assert re.search(r"^ +identical$", out, re.MULTILINE)
    assert len(re.findall(r"attempt \d was truncated", out)) == 3
    assert len(re.findall(r"^ +\d +[\d,]+  anchor ", out, re.MULTILINE)) == 3
    assert re.search(
        rf"[\d,]+ of {len(whole.decode()):,} characters, stop_reason 'max_tokens'", out
    )
    assert err == ""


@pytest.mark.slow
def test_the_demo_kills_an_agent_and_the_answer_is_whole(answer: Path, capsys: Capture) -> None:
    assert main(["demo", "--kill", "--file", str(answer)]) == Exit.WHOLE
    said = capsys.readouterr().out
    for line in (
        r"   SIGKILL after [\d,]+ characters of the answer",
        r"   demo: interrupted",
        r"   healed; the tool ran 1 time",
        r"   not billed again: [\d,]{3,} tokens; billed by this process: [\d,]+",
        r"   identical",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), line


def test_the_demo_of_a_kill_is_shown_with_a_text(capsys: Capture) -> None:
    for more in (["--tool"], ["--dialect", "gemini"], ["--model", "gpt-5"]):
        assert main(["demo", "--kill", *more]) == Exit.USAGE
        assert "leave out the other options" in capsys.readouterr().err


def test_the_demo_tells_every_event_on_a_line_of_its_own(answer: Path, capsys: Capture) -> None:
    main(["demo", "--file", str(answer), "--manner", "exact"])
    told = re.findall(r"^ +[\d.]+ s  (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert told == ["attempt"] * 6 + ["finished"]


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
    assert "a limit of 90000 does not truncate it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), (b"caf\xe9", "not UTF-8 text"), (b"short", "too few to be truncated")],
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


def test_a_terminal_gets_progress_in_colours_and_no_color_takes_them_away(
    answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_PACE", 0.2)
    status, seen = Terminal(monkeypatch, "stdout").run("demo", "--file", str(answer))
    assert (status, ESCAPE in seen) == (Exit.WHOLE, True)
    assert f"{len(TEXT):,} of {len(TEXT):,} characters" in seen
    assert "identical" in seen
    monkeypatch.setenv("NO_COLOR", "1")
    status, seen = Terminal(monkeypatch, "stdout").run("demo", "--tool", "--file", str(answer))
    assert (status, ESCAPE in seen) == (Exit.WHOLE, False)


@pytest.mark.slow
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
    assert b"attempt 1 was truncated after 1,000 tokens: max_tokens" in err
    assert b"healed, 3 attempts, stop reason end_turn" in err
    assert ESCAPE.encode() not in err


def test_an_answer_goes_to_a_file_and_replaces_what_was_there(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old " * 50_000)
    wanted = "--max-tokens", "1000", "--out", str(path)
    assert go(sim, *wanted) == Exit.USAGE
    assert "--force" in capsys.readouterr().err
    assert (sim.requests, path.read_text()) == ([], "old " * 50_000)
    assert go(sim, *wanted, "--force") == Exit.WHOLE
    assert path.read_bytes() == TEXT.encode()
    assert capsys.readouterr().out == ""


def test_without_a_limit_a_model_that_may_write_little_is_asked_for_no_more(
    sim: Simulator, tmp_path: Path
) -> None:
    little = ["run", "go", "--model", "gpt-4-turbo", "--base-url", f"{sim.url}/v1"]
    assert main([*little, "--out", str(tmp_path / "a.txt")]) == Exit.WHOLE
    assert (sim.posts[0].body or {})["max_output_tokens"] == 4096


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
    assert "attempt 1 was truncated" in seen[len(TEXT) :]


def test_the_progress_of_a_file_is_counted_on_a_terminal(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    command = ["run", "go", "--model", MODEL, "--base-url", sim.url, "--out", str(path)]
    status, seen = Terminal(monkeypatch, "stderr").run(*command, "--max-tokens", "1000")
    assert status == Exit.WHOLE
    assert path.read_bytes() == TEXT.encode()
    told = r"[\d,]+ characters, ~[\d,]+ tokens/s, attempt 3, ~\$\d\.\d{4}"
    assert re.search(told, seen)


# -- run: how it ends ----------------------------------------------------------------------------


def test_a_recovery_that_fails_leaves_a_partial_answer_and_1(
    sim: Simulator, capsys: Capture
) -> None:
    sim.scenario = sim.scenario.but("status=2:500+3:500+4:500, retry_after_ms=1")
    assert go(sim, "--max-tokens", "1000") == Exit.NOT_WHOLE
    out, err = capsys.readouterr()
    assert out == TEXT[:4000]
    assert "partial (recovery failed; error 500" in err
    assert "failed (500" in err


def test_a_policy_file_is_obeyed_and_a_cut_answer_ends_with_1(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    config = tmp_path / "policy.toml"
    config.write_text("[defaults]\nmax_recoveries = 0\n")
    said = "--max-tokens", "1000", "--config", str(config)
    assert go(sim, *said) == Exit.NOT_WHOLE
    assert len(sim.posts) == 1
    assert "truncated" in capsys.readouterr().err
    assert go(sim, *said, "--set", "max_recoveries=3", "--set", "usage=billed") == Exit.WHOLE


def test_a_dropped_stream_is_told_and_healed(sim: Simulator, capsys: Capture) -> None:
    sim.scenario = sim.scenario.but("drop=1:30")
    assert go(sim, "--max-tokens", "1000") == Exit.WHOLE
    assert "attempt 1: the stream was dropped" in capsys.readouterr().err


def test_a_model_whose_name_tells_no_format_is_refused_with_the_dialects(capsys: Capture) -> None:
    assert main(["run", "go", "--model", "llama"]) == Exit.USAGE
    err = capsys.readouterr().err
    assert "--model llama: the wire format of this model is unknown" in err
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
        (["--set", "max_recoverys=1"], "--set max_recoverys = '1': unknown key"),
        (["--set", "max_recoveries=many"], "--set max_recoveries = 'many': must be"),
        (["--set", "max_recoveries=11"], "--set max_recoveries = 11: must be"),
        (["--set", "max_recoveries"], "write KEY=VALUE"),
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


def test_a_server_that_is_not_there_ends_with_4(capsys: Capture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["run", "go", "--model", MODEL, "--base-url", url]) == Exit.PROVIDER
    err = capsys.readouterr().err
    assert "no usable answer from 127.0.0.1" in err
    assert "Traceback" not in err


def test_an_error_leaves_files_as_they_were(sim: Simulator, tmp_path: Path) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("precious")
    for path in (old, new):
        sim.script([Reply(status=401)])
        wanted = "--max-tokens", "1000", "--out", str(path), "--force"
        assert go(sim, *wanted) == Exit.PROVIDER
    assert old.read_text() == "precious"
    assert not new.exists()


def test_a_full_disk_ends_with_1_and_stops_the_answer(sim: Simulator, capsys: Capture) -> None:
    assert go(sim, "--max-tokens", "1000", "--out", "/dev/full") == Exit.NOT_WHOLE
    assert "cannot be written to /dev/full: No space left" in capsys.readouterr().err


@pytest.mark.slow
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
            rest, err = interrupt(process)
            kept = path.read_bytes()
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


@pytest.mark.slow
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
    assert "the answer cannot be written to standard output: Broken pipe" in err
    assert "Exception" not in err


# -- for scripts ---------------------------------------------------------------------------------


def test_json_is_all_there_is_on_standard_output(sim: Simulator, capsys: Capture) -> None:
    assert go(sim, "--max-tokens", "1000", "--json") == Exit.WHOLE
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["exit"], told["stop"], told["error"]) == (0, "end_turn", None)
    assert told["text"] == TEXT
    assert continuation.Report.from_dict(told["report"]).outcome == "healed"
    assert err == ""


def test_json_of_an_incomplete_answer_has_its_ending_and_the_remedy(
    sim: Simulator, capsys: Capture
) -> None:
    sim.script([Reply([Text("No.")], stop="refusal")])
    assert go(sim, "--max-tokens", "1000", "--json") == Exit.NOT_WHOLE
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["ending"] == "refused"
    assert report["remedy"] == "change the request, or send it to another model"


def test_json_of_a_run_that_failed_says_why(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    sim.script([Reply(status=401)])
    assert go(sim, "--json", "--max-tokens", "9", "--out", str(tmp_path / "a")) == Exit.PROVIDER
    told = json.loads(capsys.readouterr().out)
    assert told["exit"] == Exit.PROVIDER
    assert "401" in told["error"]
    assert "text" not in told


def test_quiet_is_the_answer_alone(sim: Simulator, capsys: Capture) -> None:
    assert go(sim, "--max-tokens", "1000", "--quiet") == Exit.WHOLE
    assert capsys.readouterr() == (TEXT, "")
    sim.script([Reply(status=401)])
    with pytest.raises(SystemExit):
        go(sim, "--quiet", "--json")


def test_every_command_that_tells_something_does_it_as_json_or_not_at_all(
    answer: Path, tmp_path: Path, capsys: Capture
) -> None:
    file, clean = str(answer), tmp_path / "clean.json"
    clean.write_text('{"messages": [{"role": "user", "content": "go"}]}')
    (tmp_path / "policy.toml").write_text("[defaults]\nusage = 'billed'\n")
    assert main(["demo", "--file", file, "--json"]) == Exit.WHOLE
    demo_told = capsys.readouterr().out
    assert json.loads(demo_told)["identical"] is True
    (tmp_path / "turn.json").write_text(demo_told)
    for command in (
        ["demo", "--tool", "--file", file],
        ["limits"],
        ["limits", MODEL],
        ["config", "show", MODEL],
        ["config", "check", str(tmp_path / "policy.toml")],
        ["check", str(clean)],
        ["repair", str(clean)],
        ["report", str(tmp_path / "turn.json")],
    ):
        assert main([*command, "--json"]) == Exit.WHOLE, command
        out, err = capsys.readouterr()
        assert json.loads(out), command
        assert err == "", command
        assert main([*command, "--quiet"]) == Exit.WHOLE, command
        assert capsys.readouterr() == ("", ""), command


def test_tables_fit_sixty_columns(answer: Path, capsys: Capture) -> None:
    for command in (["demo", "--file", str(answer)], ["limits"], ["limits", MODEL]):
        assert main(command) == Exit.WHOLE
        head, *rows = capsys.readouterr().out.partition("identical")[::2]
        table = (rows[0] or head).splitlines()
        assert len(table) > 4
        assert max(map(len, table)) <= 60


def test_a_key_is_found_by_who_searches_what_config_show_tells(
    tmp_path: Path, capsys: Capture
) -> None:
    (path := tmp_path / "continuation.toml").write_text("[defaults]\nmax_recoveries = 2\n")
    assert main(["config", "show", MODEL, "--config", str(path)]) == Exit.WHOLE
    words = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert words >= set(KEYS)


# -- report --------------------------------------------------------------------------------------


@pytest.fixture
def told(sim: Simulator, tmp_path: Path, capsys: Capture) -> Path:
    """Return a file as `run --json` writes it."""
    assert go(sim, "--max-tokens", "1000", "--json") == Exit.WHOLE
    (path := tmp_path / "turn.json").write_text(capsys.readouterr().out)
    return path


def test_a_report_is_shown_as_text_and_as_a_page(
    told: Path, tmp_path: Path, capsys: Capture
) -> None:
    report = continuation.Report.from_dict(json.loads(told.read_text())["report"])
    assert main(["report", str(told)]) == Exit.WHOLE
    assert capsys.readouterr().out == f"{report}\n"
    assert main(["report", str(told), "--html"]) == Exit.WHOLE
    assert capsys.readouterr().out == report.to_html()
    page = tmp_path / "turn.html"
    for more, status in (([], 0), ([], Exit.USAGE), (["--force"], 0)):
        assert main(["report", str(told), "--html", "--out", str(page), *more]) == status
    assert page.read_text() == report.to_html()


def test_a_log_of_reports_is_read_line_by_line(
    told: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    line = json.dumps(json.loads(told.read_text())["report"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{line}\n{line}\n"))
    assert main(["report", "-"]) == Exit.WHOLE
    assert capsys.readouterr().out.count("claude-opus-5: healed") == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no report"),
        ("[]", "it has no report"),
        ('{"report": null}', "it has no report"),
        ("no JSON", "line 1 is not JSON"),
        ('{}\n\noh, {"a": 1}', "line 3 is not JSON"),
        ("{}", "not a report of a turn: it has no outcome, reason, "),
        ("3", "not a report of a turn: it must be an object, not int"),
        ('{"report": 3}', "not a report of a turn: it must be an object, not int"),
        (b"\xff", "not UTF-8 text (byte 0)"),
        (None, "No such file"),
    ],
)
def test_what_is_no_report_is_named(
    text: str | bytes | None, why: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["report", str(path)]) == Exit.USAGE
    said = capsys.readouterr().err
    assert said.count(str(path)) == 1
    assert why in said
    assert "__init__" not in said
    assert text is None or "give the JSON of `report.as_dict()`" in said


# -- simulate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--scenario", "manner=rude"], "manner: 'rude' is none of"),
        (["--scenario", "color=red"], "'color=red' is not a setting"),
        (["--scenario", "cut_call"], "'cut_call': write key=value, or one of whole, cut-text, "),
        (["--scenario", "cut-call, color=red"], "'color=red' is not a setting"),
        (["--scenario", "kill"], "only a Python program can name the process to kill; use"),
        (["--scenario", "kill=1:20"], "only a Python program can name the process to kill; use"),
        (["--file", "/no/such/file"], "--file /no/such/file: No such file"),
        (["--host", "0.0.0.0"], "listens only on 127.0.0.1"),
    ],
)
def test_a_simulator_that_cannot_start_says_why(
    more: list[str], complaint: str, capsys: Capture
) -> None:
    assert main(["simulate", "--port", "0", *more]) == Exit.USAGE
    assert complaint in capsys.readouterr().err


def test_its_help_tells_every_scenario_and_every_setting(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    said = capsys.readouterr().out
    for name, about in SCENARIOS.items():
        assert f"{name} " in said
        assert about in said
    for setting in fields(Scenario):
        assert f"`{setting.name}`" in said, setting.name


def test_a_port_that_is_taken_is_named(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["simulate", "--port", str(port)]) == Exit.USAGE
    assert f"--port {port}: Address already in use; choose another" in capsys.readouterr().err


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["lines", "json"])
def test_a_password_in_a_url_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    path = tmp_path / "continuation.toml"
    path.write_text('[defaults]\nchain_store = "postgresql://me:s3cret@db/x?password=s3cret"\n')
    assert main(["config", "show", MODEL, "--config", str(path), *form]) == Exit.WHOLE
    told = capsys.readouterr().out
    assert "postgresql://" in told
    assert "s3cret" not in told
