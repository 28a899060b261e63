"""`continuation check` and `continuation repair`: what they say, what they write, how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, LOGS, as_bytes, opencode
from support.notation import DIALECTS, write

from continuation.cli import main
from continuation.history.rules import TABLE

Capture = pytest.CaptureFixture[str]
BROKEN = "U:geheim A[t:vertraulich,c:k1,c:k2] R:k1=streng U:weiter"
SECRETS = ("geheim", "vertraulich", "streng", "weiter")


def log(path: Path, name: str, line: str = BROKEN) -> Path:
    path.write_bytes(as_bytes(LOGS[name](line)))
    return path


def body(path: Path, dialect: str, line: str = BROKEN) -> Path:
    path.write_text(json.dumps(write(dialect, line)), encoding="utf-8")
    return path


def told(capsys: Capture, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)["sessions"]


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_a_clean_log_is_called_clean(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", name, GOLDEN)
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: clean ({name}, ")


@pytest.mark.parametrize("name", LOGS)
def test_check_says_what_is_wrong_with_a_log_and_where_and_never_what_was_said(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    path = log(tmp_path / "s.jsonl", name)
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: repairable ({name}, ")
    assert "tool_result_missing\n      a provider would say: " in out
    assert f"a repair would: {TABLE['repairs']['synthesize_result']['does']}" in out
    assert not any(secret in out for secret in SECRETS)
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_check_tells_the_dialect_of_a_request_body(
    dialect: str, tmp_path: Path, capsys: Capture
) -> None:
    status, [found] = told(capsys, "check", str(body(tmp_path / "b.json", dialect)))
    assert (status, found["exit_code"], found["format"]) == (1, 1, "json")
    assert found["dialect"] == dialect
    assert found["violations"]
    assert found["changes"]
    assert not any(secret in json.dumps(found) for secret in SECRETS)


def test_check_names_the_line_of_a_log(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", "claude-code")
    _, [found] = told(capsys, "check", str(path))
    (violation,) = found["violations"]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert violation["path"].startswith("messages[1]")
    assert '"vertraulich"' in lines[violation["line"] - 1]  # the first line of that message


def test_check_reports_a_torn_line(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(as_bytes(LOGS["jsonl"](GOLDEN)) + b'{"role": "us')
    assert main(["check", str(path)]) == 1
    assert "the last line is incomplete" in capsys.readouterr().out


def test_check_of_several_paths_ends_with_the_worst(tmp_path: Path, capsys: Capture) -> None:
    clean = log(tmp_path / "a.jsonl", "jsonl", GOLDEN)
    broken = log(tmp_path / "b.jsonl", "jsonl")
    nothing = tmp_path / "c.jsonl"
    nothing.write_bytes(b"not a session\n")
    assert main(["check", str(clean), str(broken)]) == 1
    assert main(["check", str(nothing), str(clean), str(broken)]) == 2
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("/")]
    states = [line.split(": ")[1].split(" (")[0] for line in heads]
    assert states == ["clean", "repairable", "not repairable", "clean", "repairable"]


def test_a_path_that_is_not_there_does_not_hide_the_others(tmp_path: Path, capsys: Capture) -> None:
    clean = log(tmp_path / "a.jsonl", "jsonl", GOLDEN)
    gone = tmp_path / "gone.jsonl"
    status, [first, second] = told(capsys, "check", str(gone), str(clean))
    assert status == 2
    assert first == {
        "path": str(gone),
        "exit_code": 2,
        "error": f"{gone}: No such file or directory",
    }
    assert (second["exit_code"], second["violations"]) == (0, [])


def test_json_nested_without_end_is_reported(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"messages": ' + "[" * 200_000)
    assert main(["check", str(path)]) == 2
    assert capsys.readouterr().out.startswith(f"{path}: ")


def test_nothing_in_a_session_can_move_the_cursor(tmp_path: Path, capsys: Capture) -> None:
    path = body(tmp_path / "b.json", "anthropic", "U:go A[c:k1] U:on")
    path.write_text(path.read_text(encoding="utf-8").replace("k1", "\\u001b[2Jk1"))
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[2Jk1" in out


# -- repair --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_repair_writes_a_clean_copy_beside_the_log(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    path = log(tmp_path / "s.jsonl", name)
    before = path.read_bytes()
    assert main(["repair", str(path)]) == 0
    out = capsys.readouterr().out
    copy = tmp_path / "s.repaired.jsonl"
    assert out.startswith(f"{path}: repaired ({name}, ")
    assert f"  written: {copy}\n" in out
    assert TABLE["repairs"]["synthesize_result"]["does"] in out
    assert not any(secret in out for secret in SECRETS)
    assert path.read_bytes() == before
    assert main(["check", str(copy)]) == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_repair_writes_a_clean_request_body(dialect: str, tmp_path: Path, capsys: Capture) -> None:
    goal = tmp_path / "whole.json"
    path = body(tmp_path / "b.json", dialect)
    status, [found] = told(capsys, "repair", str(path), "--out", str(goal))
    assert (status, found["written"]) == (0, str(goal))
    assert main(["check", str(goal)]) == 0
    assert all(secret in goal.read_text(encoding="utf-8") for secret in SECRETS)


def test_repair_reads_and_writes_opencode_s_folders(tmp_path: Path, capsys: Capture) -> None:
    root = opencode(tmp_path / "storage", "U:go A[t:x,c:a,c:b] R:a U:two A[t:y]")
    assert main(["check", str(root)]) == 1
    assert "repairable (opencode, openai-chat, 5 messages)" in capsys.readouterr().out
    status, [found] = told(capsys, "repair", str(root))
    assert (status, found["written"]) == (0, str(tmp_path / "storage.repaired"))
    _, [again] = told(capsys, "check", found["written"])
    assert again["violations"] == []


def test_repair_in_place_keeps_the_original(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", "claude-code")
    before = path.read_bytes()
    assert main(["repair", "--in-place", str(path)]) == 0
    assert f"  written: {path}\n" in capsys.readouterr().out
    assert (tmp_path / "s.orig.jsonl").read_bytes() == before
    assert main(["check", str(path)]) == 0


def test_repair_leaves_a_clean_session_alone(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", "jsonl", GOLDEN)
    assert main(["repair", str(path)]) == 0
    assert ": clean (" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


def test_repair_overwrites_nothing(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", "jsonl")
    goal = tmp_path / "mine.jsonl"
    goal.write_text("mine")
    assert main(["repair", str(path), "--out", str(goal)]) == 2
    assert f"{goal}: exists already; move it away" in capsys.readouterr().out
    assert goal.read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["other.jsonl", "--out", "x.jsonl"], "works with one PATH, but there are 2"),
        (["--out", "no/such/x.jsonl"], "does not exist; create it"),
    ],
)
def test_out_that_cannot_be_is_refused_before_anything_is_read(
    more: list[str], why: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "s.jsonl", "jsonl")
    assert main(["repair", "s.jsonl", *more]) == 2
    assert why in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


# -- in general ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "repair"])
def test_the_help_says_how_it_ends_and_what_it_reads(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    statuses = (0, 1, 2) if command == "check" else (0, 2)  # `repair` never ends with 1
    assert [n for n in range(4) if f"\n    {n}  " in out] == [*statuses]
    assert all(
        name in out for name in ("Claude Code", "kimi-code", "qwen-code", "codex", "opencode")
    )


def test_importing_the_library_imports_no_command_and_no_history_yet_its_names_are_there() -> None:
    code = (
        "import sys, continuation\n"
        "unwanted = [f'continuation.{room}' for room in ('history', 'cli', 'simulator')]\n"
        "assert not [m for m in sys.modules if m.startswith(('rich', *unwanted))]\n"
        "names = ('validate', 'repair', 'Violation', 'Repaired', 'RepairPolicy')\n"
        "assert set(names) <= set(continuation.__all__) & set(dir(continuation))\n"
        "from continuation import *\n"
        "import continuation.history as history\n"
        "assert all(getattr(continuation, n) is getattr(history, n) for n in names)\n"
        "assert not hasattr(continuation, 'nonsense')\n"
        "assert repair({'messages': []}).changes == ()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


CALLS_IN_CHAT = b'"tool_calls":[{"id":"x","type":"function","function":{"name":"n"}}]'
ODD = {
    "half a surrogate": b'{"messages":[{"role":"user","content":"a\\ud800b"},'
    b'{"role":"assistant","content":null,' + CALLS_IN_CHAT + b"}]}",
    "NUL": b'{"messages":[{"role":"user","content":"a\\u0000b"},'
    b'{"role":"assistant","content":""}]}',
    "no content": b'{"type":"user","uuid":"u1","message":{"role":"user"}}\n'
    b'{"type":"user","uuid":"u2","parentUuid":"u1","message":{"role":"user","content":"x"}}\n'
    b'{"type":"assistant","uuid":"u3","parentUuid":"u2","message":{"role":"assistant"}}\n',
    "other content": b'{"type":"user","uuid":"u1","message":{"role":"user","content":3}}\n'
    b'{"type":"assistant","uuid":"u2","message":{"role":"assistant","content":[3,null]}}\n',
    "binary": bytes(range(256)) * 40,
    "nothing": b"",
    "no object": b"[1,null]",
    "contents": b'{"contents":[{"role":"model"},{"parts":3},null,{"role":"user","parts":[null]}]}',
    "input": b'{"input":[null,{"type":"function_call"},{"type":3},{"role":"user","content":{}}]}',
    "events": b'{"type":"context.append_loop_event","event":null}\n'
    b'{"type":"context.append_message","message":{"role":3,"content":[{"type":"think","think":4},'
    b'{"type":"text","text":5}]}}\n',
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_told_of_or_repaired_and_no_crash(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(ODD[name])
    found = main(["check", str(path)])
    status = main(["repair", str(path)])
    assert (found, status) in {(0, 0), (1, 0), (2, 2)}
    assert (tmp_path / "s.repaired.json").exists() is (found == 1)
    assert capsys.readouterr().err == ""


def test_a_crash_of_ours_has_a_status_of_its_own_and_says_nothing_of_what_was_read(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError(SECRETS)

    monkeypatch.setattr("continuation.sessions.checked", crash)
    path = log(tmp_path / "s.jsonl", "jsonl")
    assert main(["check", str(path)]) == 70
    told = capsys.readouterr()
    assert "internal error: RuntimeError in crash, line " in told.err
    assert not any(secret in told.err + told.out for secret in SECRETS)


def test_findings_that_repeat_are_counted(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "s.jsonl", "jsonl")
    path.write_bytes(path.read_bytes() + b"no json\n" * 500 + b"{}\n")
    assert main(["check", str(path)]) == 1
    told = capsys.readouterr().out
    assert "(and 499 more like it)" in told
    assert len(told.splitlines()) < 20
