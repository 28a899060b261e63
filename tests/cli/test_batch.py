"""`run --batch` and `finish`: lines in, whole answers out, and what happens when it is killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli_helpers import MODEL, TEXT, Terminal, interrupt, start, until
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import quietly

from continuation.bulk.lines import answer_in, text_of
from continuation.cli import Exit, main
from continuation.simulator import Reply, Scenario, Simulator, Text

Capture = pytest.CaptureFixture[str]
BODY = {"model": MODEL, "max_tokens": 1_000, "messages": [{"role": "user", "content": "Go."}]}


def write(path: Path, *lines: object) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def read(path: Path) -> dict[str, Any]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line.get("custom_id") or line.get("key") or line["id"]: line for line in lines}


def batch(sim: Simulator, given: Path, out: Path, *more: str) -> int:
    line = ["run", "--batch", str(given), "--out", str(out), "--base-url", sim.url]
    return main([*line, "--model", MODEL, "--max-tokens", "1000", *more])


def prompts(folder: Path, count: int) -> Path:
    asked = ({"id": f"p{n}", "prompt": f"Write {n}."} for n in range(count))
    return write(folder / "prompts.jsonl", *asked)


def test_every_form_of_line_gets_its_answer(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given = write(
        tmp_path / "in.jsonl",
        {"id": "a", "prompt": "Go."},
        {"prompt": "Go."},
        "",
        {**BODY, "id": "b"},
        BODY,
        {"custom_id": "c", "params": BODY},
    )
    out = tmp_path / "out.jsonl"
    assert batch(sim, given, out) == Exit.WHOLE
    found = read(out)
    assert len(found) == 5
    assert {"a", "b", "c"} < set(found)
    assert found["a"]["text"] == TEXT
    assert text_of(found["b"]["answer"]) == text_of(found["c"]["answer"]) == TEXT
    assert {line["outcome"] for line in found.values()} == {"healed"}
    assert found["c"]["line"] == 6
    assert found["c"]["usage"]["output"] > 4_000
    assert out.stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr().err
    assert "5 lines: 5 healed" in said
    assert "slowest: " in said


def test_bad_lines_are_told_with_their_number_and_lose_nothing(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    ask = {"id": "a", "prompt": "Go."}
    lines = ["{secret", ask, [3], {"prompt": " "}, {"id": "a", "prompt": "Else."}, {"nothing": 1}]
    given, out = write(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    assert batch(sim, given, out) == Exit.USAGE
    said = capsys.readouterr().err
    assert [n for n in range(1, 7) if f"line {n}: " in said] == [1, 3, 4, 5, 6]
    assert "secret" not in said
    assert set(read(out)) == {"a"}


def test_a_request_that_fails_is_tried_again_the_next_time(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 3), tmp_path / "out.jsonl"
    sim.script([Reply(status=400, error=("invalid_request_error", "no such thing"))])
    assert batch(sim, given, out, "--concurrency", "1") == Exit.PROVIDER
    assert "line 1: 'p0' failed: 127.0.0.1 answered 400" in capsys.readouterr().err
    assert set(read(out)) == {"p1", "p2"}
    sim.requests.clear()
    assert batch(sim, given, out) == Exit.WHOLE
    assert "3 lines: 1 healed, 2 before" in capsys.readouterr().err
    assert set(read(out)) == {"p0", "p1", "p2"}


def test_a_key_that_is_not_taken_ends_it_at_once(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    sim.script([Reply(status=401, error=("authentication_error", "invalid x-api-key"))] * 50)
    given, out = prompts(tmp_path, 50), tmp_path / "out.jsonl"
    assert batch(sim, given, out, "--concurrency", "2") == Exit.PROVIDER
    assert len(sim.posts) < 10
    assert "every other request would fail the same way" in capsys.readouterr().err


def test_an_answer_that_is_not_whole_ends_with_1(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 1), tmp_path / "out.jsonl"
    none = ["--set", "max_recoveries=0", "--set", "escalate=false"]
    assert batch(sim, given, out, *none) == Exit.NOT_WHOLE
    line = read(out)["p0"]
    assert (line["outcome"], line["ending"]) == ("truncated", "length")
    assert line["remedy"] == "raise max_recoveries"


def test_a_torn_line_is_taken_off_and_the_journal_has_its_answer(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 3), tmp_path / "out.jsonl"
    journal = "--journal", str(tmp_path / "batch.db")
    assert batch(sim, given, out, *journal) == Exit.WHOLE
    os.truncate(out, out.stat().st_size - 100)
    sim.requests.clear()
    assert batch(sim, given, out, *journal) == Exit.WHOLE
    assert sim.posts == []
    assert {line["text"] for line in read(out).values()} == {TEXT}


@pytest.mark.parametrize(
    "there", ["hello\n", "hello", '{"id": "a"}\n', '["outcome"]', '{"a": 1}', '{"a": 1', "{\n"]
)
def test_a_file_of_somebody_elses_is_left_alone(
    there: str, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 1), tmp_path / "out.jsonl"
    out.write_text(there)
    assert batch(sim, given, out) == Exit.USAGE
    assert out.read_text() == there
    assert "--force" in capsys.readouterr().err
    assert batch(sim, given, out, "--force") == Exit.WHOLE
    assert set(read(out)) == {"p0"}


def test_json_is_the_summary_and_quiet_says_nothing(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given = prompts(tmp_path, 2)
    assert batch(sim, given, tmp_path / "a.jsonl", "--json") == Exit.WHOLE
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert (summary["exit"], summary["outcomes"], summary["bad"]) == (0, {"healed": 2}, 0)
    assert summary["output"] > 8_000
    assert len(summary["slowest"]) == 2
    assert batch(sim, given, tmp_path / "b.jsonl", "--quiet") == Exit.WHOLE
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, out = prompts(tmp_path, 4), str(tmp_path / "out.jsonl")
    line = "run", "--batch", str(given), "--out", out, "--base-url", sim.url, "--model", MODEL
    status, seen = Terminal(monkeypatch, "stdout", "stderr").run(*line, "--max-tokens", "1000")
    assert status == Exit.WHOLE
    assert "4 of 4" in seen
    assert "per second" in seen
    assert "~$" in seen
    assert "━" in seen


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["run", "--batch", "in.jsonl"], "--out FILE is missing"),
        (["run", "--batch", "in.jsonl", "--out", "o", "--base-url", "h:1"], "must begin with http"),
        (["run", "--batch", os.devnull, "--out", "o"], "write the lines to a file first"),
        (["run", "--batch", "empty.jsonl", "--out", "o"], "no line is a JSON object"),
        (["run", "--batch", "none.jsonl", "--out", "o"], "none.jsonl: No such file"),
        (["run", "--batch", "in.jsonl", "--out", "o"], "add --dialect"),
        (["run", "--batch", "in.jsonl", "--out", "no/o", "--model", MODEL], "choose a path"),
        (
            ["run", "--batch", "in.jsonl", "--out", "o", "--model", MODEL, "--journal", "in.jsonl"],
            "file is not a database",
        ),
        (["finish", "none.jsonl", "--requests", "in.jsonl", "--out", "o"], "No such file"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_sent(
    line: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    prompts(tmp_path, 1).rename(tmp_path / "in.jsonl")
    write(tmp_path / "empty.jsonl", "", "none")
    assert main(line) == Exit.USAGE
    assert why in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_that_is_killed_goes_on_in_mid_answer(
    kill: signal.Signals, tmp_path: Path, capsys: Capture
) -> None:
    given, out, kept = prompts(tmp_path, 12), tmp_path / "out.jsonl", tmp_path / "batch.db"
    with Simulator(TEXT, Scenario(deltas=96, slow=0.004)) as sim, quietly():
        line = ["run", "--batch", str(given), "--out", str(out), "--model", MODEL]
        line += ["--base-url", sim.url, "--concurrency", "4", "--journal", str(kept)]
        process = start(*line)
        until(lambda: out.exists() and len(read_whole(out)) >= 3)
        until(lambda: sum(post.status == 200 for post in sim.posts) >= 6)
        if kill is signal.SIGINT:
            _, said = interrupt(process)
            assert process.returncode == Exit.INTERRUPTED
            assert b"run the same command to resume" in said
        else:
            process.send_signal(kill)
            process.communicate(timeout=60)
        before = len(sim.posts)
        assert main(line) == Exit.WHOLE
        assert {line["text"] for line in read(out).values()} == {TEXT}
        assert set(read(out)) == {f"p{n}" for n in range(12)}
        assert len(sim.posts) <= 12 + 4, "those that were under way are asked for their rest"
        assert before < 12


def read_whole(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


# --- what lines may be ----------------------------------------------------------------------------


def test_lines_may_come_from_any_editor(sim: Simulator, tmp_path: Path, capsys: Capture) -> None:
    """A mark of the byte order, line ends of Windows, no end at the end, numbers for ids."""
    ask = json.dumps({"id": 7, "prompt": "Grüße."}, ensure_ascii=False)
    half = json.dumps({"id": "\ud83d", "prompt": "Go."})
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(f"\ufeff{ask}\r\n\r\n{half}".encode())
    assert batch(sim, given, out) == Exit.WHOLE
    assert set(read(out)) == {"7", "\ud83d"}
    sim.requests.clear()
    assert batch(sim, given, out) == Exit.WHOLE
    assert sim.posts == []


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"prompt": "\xff"}',
        b"\0",
        '{"prompt": "x"}'.encode("utf-16"),
        b"NaN",
        b"1" * 5_000,
    ],
    ids=["deep", "latin", "nul", "utf-16", "nan", "digits"],
)
def test_a_line_that_is_none_stops_nothing(
    line: bytes, sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_bytes(line.replace(b"\n", b"") + b'\n{"id": "a", "prompt": "Go."}\n')
    assert batch(sim, given, out) == Exit.USAGE
    assert "line 1: not a JSON object" in capsys.readouterr().err
    assert set(read(out)) == {"a"}


def test_a_line_of_another_kind_is_told_and_not_sent(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    embedding = {"custom_id": "e", "url": "/v1/embeddings", "body": {"model": "m", "input": "x"}}
    given = write(
        tmp_path / "in.jsonl",
        {"custom_id": "a", "params": BODY},
        {"key": "b", "request": {"contents": [{"parts": [{"text": "Go."}]}]}},
        {"custom_id": "c", "url": "/v1/chat/completions", "body": BODY},
        embedding,
        {"id": "d", "prompt": "Go.", "system": ["Be brief."]},
        {"id": "f", "prompt": "Go.", "model": 5},
    )
    assert batch(sim, given, tmp_path / "out.jsonl") == Exit.USAGE
    said = capsys.readouterr().err
    assert "line 2: it is a request of Gemini, but the first is one of Anthropic Messages" in said
    assert "line 3: it is a request of OpenAI Chat Completions" in said
    assert "line 4: url = '/v1/embeddings'" in said
    assert "line 5: system must be a string" in said
    assert "line 6: model must be a string" in said
    assert set(read(tmp_path / "out.jsonl")) == {"a"}


def test_only_a_mere_prompt_asks_for_all_that_can_be_written(
    tmp_path: Path, capsys: Capture
) -> None:
    given = write(tmp_path / "in.jsonl", {"id": "a", "prompt": "Go."}, {**BODY, "id": "b"})
    out = str(tmp_path / "out.jsonl")
    line = ["run", "--batch", str(given), "--out", out, "--model", MODEL, "--concurrency", "1"]
    with Simulator(TEXT, Scenario()) as sim:
        assert main([*line, "--base-url", sim.url]) == Exit.WHOLE
        first, second, *_ = (post.body["max_tokens"] for post in sim.posts if post.body)
    assert first > second == BODY["max_tokens"]


def test_a_prompt_to_a_model_that_may_write_little_asks_for_no_more(tmp_path: Path) -> None:
    given = write(tmp_path / "in.jsonl", {"id": "a", "prompt": "Go.", "model": "gpt-4-turbo"})
    out = tmp_path / "out.jsonl"
    with Simulator("A line.\n" * 20, Scenario()) as sim:
        line = ["run", "--batch", str(given), "--out", str(out), "--base-url", f"{sim.url}/v1"]
        assert main(line) == Exit.WHOLE
        assert [(post.body or {})["max_output_tokens"] for post in sim.posts] == [4096]


def test_a_stored_prompt_of_responses_is_a_request(
    sim: Simulator, tmp_path: Path, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    given = write(tmp_path / "in.jsonl", {"id": "a", "model": "gpt-5", "prompt": {"id": "pmpt_1"}})
    line = ["run", "--batch", str(given), "--out", str(tmp_path / "o"), "--base-url", sim.url]
    main(line)  # the simulator has none
    assert sim.posts[0].body == {"model": "gpt-5", "prompt": {"id": "pmpt_1"}, "stream": True}
    assert "internal error" not in caplog.text


def test_a_server_that_is_not_there_is_not_asked_for_each_line(
    tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 500), tmp_path / "out.jsonl"
    line = ["run", "--batch", str(given), "--out", str(out), "--model", MODEL]
    assert main([*line, "--base-url", "http://127.0.0.1:9", "--concurrency", "30"]) == Exit.PROVIDER
    said = capsys.readouterr().err
    assert "check the network and --base-url" in said
    assert said.count("failed: ") < 100
    assert "every other request would fail the same way; run the same command to resume" in said


@pytest.mark.parametrize("name", ["pipe", "-"])
def test_what_can_be_read_once_is_refused(
    name: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert batch(sim, Path(name), tmp_path / "out.jsonl") == Exit.USAGE
    assert "write the lines to a file first" in capsys.readouterr().err


def test_what_the_sdk_does_not_take_is_told_without_what_it_says(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    ask = {"contents": "secret", "generationConfig": {"temperatur": "secret"}}
    given = write(tmp_path / "in.jsonl", {"key": "a", "request": ask})
    line = ["run", "--batch", str(given), "--out", str(tmp_path / "o"), "--base-url", sim.url]
    assert main([*line, "--model", "gemini-3-pro"]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "line 1: 'a' cannot be sent: temperatur: extra_forbidden; change the request" in said
    assert "secret" not in said


# --- the output -----------------------------------------------------------------------------------


def test_no_file_that_is_read_is_written(sim: Simulator, tmp_path: Path, capsys: Capture) -> None:
    given, link = prompts(tmp_path, 1), tmp_path / "link.jsonl"
    link.hardlink_to(given)
    before, new = given.read_bytes(), tmp_path / "new"
    assert batch(sim, given, link, "--force") == Exit.USAGE
    assert "this would overwrite the file of --batch" in capsys.readouterr().err
    assert batch(sim, given, new, "--journal", str(new)) == Exit.USAGE
    assert "overwrite the file of --journal" in capsys.readouterr().err
    for out in (given, link):
        line = ["finish", str(given), "--requests", str(link), "--out", str(out), "--force"]
        assert main(line) == Exit.USAGE
    assert given.read_bytes() == before
    assert not new.exists()
    assert sim.posts == []


def test_force_takes_nothing_away_before_there_is_something_new(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    sim.script([Reply(status=401, error=("authentication_error", "invalid x-api-key"))])
    given, out = prompts(tmp_path, 1), tmp_path / "out.jsonl"
    out.write_text("dear\n")
    assert batch(sim, given, out, "--force") == Exit.PROVIDER
    assert out.read_text() == "dear\n"
    assert batch(sim, given, out, "--force") == Exit.WHOLE
    assert set(read(out)) == {"p0"}


def test_two_runs_do_not_write_to_one_file(tmp_path: Path, capsys: Capture) -> None:
    given, out = prompts(tmp_path, 2), tmp_path / "out.jsonl"
    with Simulator(TEXT, Scenario(deltas=96, slow=0.02)) as sim:
        line = ["run", "--batch", str(given), "--out", str(out), "--model", MODEL]
        process = start(*line, "--base-url", sim.url)
        until(lambda: bool(sim.posts))
        assert main([*line, "--base-url", sim.url, "--force"]) == Exit.USAGE
        assert "another run writes to it" in capsys.readouterr().err
        process.communicate(timeout=60)
        assert process.returncode == Exit.WHOLE
        assert len(sim.posts) == 2
    assert set(read(out)) == {"p0", "p1"}


def test_a_disk_that_is_full_leaves_whole_lines(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 6), tmp_path / "out.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        assert batch(sim, given, out) == Exit.NOT_WHOLE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "stopped: File too large" in capsys.readouterr().err
    some = read(out)
    assert 0 < len(some) < 6
    assert batch(sim, given, out) == Exit.WHOLE
    assert f"4 healed, {len(some)} before" in capsys.readouterr().err
    assert {line["text"] for line in read(out).values()} == {TEXT}


def test_a_whole_line_without_its_end_is_not_paid_again(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 2), tmp_path / "out.jsonl"
    assert batch(sim, given, out) == Exit.WHOLE
    os.truncate(out, out.stat().st_size - 1)
    sim.requests.clear()
    prompts(tmp_path, 3)
    assert batch(sim, given, out) == Exit.WHOLE
    assert set(read(out)) == {"p0", "p1", "p2"}
    assert {post.body["messages"][0]["content"] for post in sim.posts if post.body} == {"Write 2."}


def test_what_another_file_of_requests_left_is_not_counted(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 3), tmp_path / "out.jsonl"
    assert batch(sim, given, out) == Exit.WHOLE
    write(given, {"id": "other", "prompt": "Go."}, {"id": "p1", "prompt": "Go."})
    capsys.readouterr()
    assert batch(sim, given, out) == Exit.WHOLE
    assert "2 lines: 1 healed, 1 before" in capsys.readouterr().err


# --- when it ends early ---------------------------------------------------------------------------


def test_a_key_that_is_revoked_ends_it(sim: Simulator, tmp_path: Path, capsys: Capture) -> None:
    refused = Reply(status=401, error=("authentication_error", "invalid x-api-key"))
    sim.script([Reply([Text("Short.")]), *[refused] * 100])
    given, out = prompts(tmp_path, 100), tmp_path / "out.jsonl"
    assert batch(sim, given, out, "--concurrency", "1") == Exit.PROVIDER
    assert "every other request would fail the same way" in capsys.readouterr().err
    assert len(sim.posts) < 30


def test_an_answer_that_was_left_alone_and_is_cut_is_not_whole(
    sim: Simulator, tmp_path: Path, capsys: Capture
) -> None:
    given, out = prompts(tmp_path, 1), tmp_path / "out.jsonl"
    assert batch(sim, given, out, "--set", "enabled=false") == Exit.NOT_WHOLE
    assert "line 1: 'p0' is incomplete: untouched" in capsys.readouterr().err


def test_ctrl_c_keeps_what_has_come(tmp_path: Path) -> None:
    """A server that says nothing keeps nobody waiting."""
    given, out = prompts(tmp_path, 30), tmp_path / "out.jsonl"
    with Simulator("A short answer.", Scenario()) as sim:
        sim.script([Reply([Text("Short.")], delay=0.2)] * 8 + [Reply(delay=60.0)] * 22)
        line = ["run", "--batch", str(given), "--out", str(out), "--model", MODEL]
        process = start(*line, "--base-url", sim.url, "--concurrency", "16")
        until(lambda: out.exists() and len(read_whole(out)) == 8)
        began = time.monotonic()
        _, said = interrupt(process)
        assert process.returncode == Exit.INTERRUPTED
        assert b"failed" not in said
        assert time.monotonic() - began < 15
    assert len(read(out)) == 8


# --- finish --------------------------------------------------------------------------------------


def cut_results(dialect: str, sim: Simulator, folder: Path) -> tuple[Path, Path]:
    """Write what a batch API is given and brings back: one answer whole, one cut, one error."""
    ran, asked, came = MAKES[dialect](), list[Any](), list[Any]()
    failed = {"type": "errored", "error": {"type": "error", "error": {"type": "api_error"}}}
    with ran.connect(sim.url, asynchronous=False) as client:
        for name, limit in (("whole", 9_000), ("cut", 1_000)):
            keywords = request(dialect, limit, {})
            answer = ran.create(client, keywords)
            if dialect == "gemini":
                body = answer.model_dump(
                    mode="json", by_alias=True, exclude_none=True, exclude={"sdk_http_response"}
                )
                contents = [{"role": "user", "parts": [{"text": keywords["contents"]}]}]
                settings = {"maxOutputTokens": limit}
                inner = {"contents": contents, "generationConfig": settings}
                asked.append({"key": name, "request": inner})
                came.append({"key": name, "response": body})
                continue
            body = answer.to_dict(mode="json")
            if dialect == "anthropic-messages":
                asked.append({"custom_id": name, "params": keywords})
                result = {"type": "succeeded", "message": body}
                came.append({"custom_id": name, "result": result})
            else:
                asked.append({"custom_id": name, "method": "POST", "url": "/v1", "body": keywords})
                response = {"status_code": 200, "request_id": "req_1", "body": body}
                line = {"id": "batch_req_1", "custom_id": name}
                came.append({**line, "response": response, "error": None})
    match dialect:
        case "anthropic-messages":
            came.append({"custom_id": "failed", "result": failed})
        case "gemini":
            came.append({"key": "failed", "error": {"code": 13, "message": "internal"}})
        case _:
            error = {"code": "batch_expired", "message": "It could not be run in time."}
            came.append({"id": "b", "custom_id": "failed", "response": None, "error": error})
    sim.requests.clear()
    return write(folder / "requests.jsonl", *asked), write(folder / "results.jsonl", *came)


@pytest.mark.parametrize("dialect", FORMATS)
def test_what_a_batch_api_brought_back_cut_is_gone_on_with(
    dialect: str, tmp_path: Path, capsys: Capture
) -> None:
    with Simulator(TEXT, Scenario()) as sim:
        requests, results = cut_results(dialect, sim, tmp_path)
        url, out = sim.url + "/v1" * dialect.startswith("openai"), tmp_path / "out.jsonl"
        line = ["finish", str(results), "--requests", str(requests), "--out", str(out)]
        if dialect == "gemini":
            line += ["--model", request(dialect, 1, {})["model"]]
        assert main([*line, "--base-url", url]) == Exit.USAGE
        assert "line 3: 'failed' has no answer, but " in capsys.readouterr().err
        assert len(sim.posts) == 1
        before, after = read(results), read(out)
        raw = set(results.read_text(encoding="utf-8").splitlines())
        assert len(raw & set(out.read_text(encoding="utf-8").splitlines())) == 2
        assert after["whole"] == before["whole"]
        assert after["failed"] == before["failed"]
        healed = answer_in(after["cut"])
        assert healed is not None
        assert text_of(healed) == TEXT
        assert after["cut"].keys() == before["cut"].keys()
        assert main([*line, "--base-url", url]) == Exit.WHOLE
        assert len(sim.posts) == 1, "all of it is done"


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    given, out = prompts(tmp_path, 8), tmp_path / "out.jsonl"
    with Simulator("x", Scenario()) as sim:
        sim.script([Reply(delay=60.0)] * 8)
        line = ["run", "--batch", str(given), "--out", str(out), "--model", MODEL]
        process = start(*line, "--base-url", sim.url)
        until(lambda: len(sim.posts) == 8)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
        began = time.monotonic()
        interrupt(process)
    assert process.returncode == Exit.INTERRUPTED
    assert time.monotonic() - began < 3


def test_results_and_requests_that_do_not_match_are_told(tmp_path: Path, capsys: Capture) -> None:
    """An answer is gone on with where one request is its own, and it once."""
    with Simulator(TEXT, Scenario()) as sim:
        requests, results = cut_results("anthropic-messages", sim, tmp_path)
        asked = [json.loads(line) for line in requests.read_text().splitlines()]
        came = [json.loads(line) for line in results.read_text().splitlines()]
        whole, cut = asked
        other = {**cut, "params": {**cut["params"], "system": "Another one."}}
        twice = {**cut, "custom_id": "twice"}
        nameless = {key: value for key, value in cut.items() if key != "custom_id"}
        late = [{**cut, "custom_id": f"late{n}"} for n in range(7)]
        write(requests, whole, cut, twice, {**other, "custom_id": "twice"}, nameless, *late)
        answer = came[1]["result"]
        lines = [came[1], came[1], {"custom_id": "twice", "result": answer}, {"result": answer}]
        write(results, *lines)
        line = ["finish", str(results), "--requests", str(requests), "--base-url", sim.url]
        assert main([*line, "--out", str(tmp_path / "out.jsonl")]) == Exit.USAGE
        said = capsys.readouterr().err
        assert len(sim.posts) == 1
        assert "line 2: an earlier line has the id 'cut'" in said
        assert "line 3: 'twice' has two requests in" in said
        assert "line 4: it has no id" in said
        assert (
            "8 requests without a result: 'late0', 'late1', 'late2', 'late3', 'late4', ..." in said
        )


def test_geminis_keys_may_stand_in_metadata(tmp_path: Path, capsys: Capture) -> None:
    ask = {"contents": [{"role": "user", "parts": [{"text": "Go."}]}]}
    line = {"request": {**ask, "generation_config": {"max_output_tokens": 1_000}}}
    given = write(tmp_path / "in.jsonl", {**line, "metadata": {"key": "k1"}})
    with Simulator(TEXT, Scenario()) as sim:
        out = ["--out", str(tmp_path / "out.jsonl"), "--base-url", sim.url]
        assert main(["run", "--batch", str(given), *out, "--model", "gemini-3-pro"]) == Exit.WHOLE
    assert set(read(tmp_path / "out.jsonl")) == {"k1"}


def test_a_request_of_geminis_that_names_no_model_is_told(tmp_path: Path, capsys: Capture) -> None:
    with Simulator(TEXT, Scenario()) as sim:
        requests, results = cut_results("gemini", sim, tmp_path)
        line = ["finish", str(results), "--requests", str(requests), "--base-url", sim.url]
        line += ["--out", str(tmp_path / "out.jsonl")]
        assert main(line) == Exit.USAGE
        assert "the request of 'cut' names no model; add --model" in capsys.readouterr().err
        assert main([*line, "--model", "gemini-3-pro"]) == Exit.WHOLE
        assert set(read(tmp_path / "out.jsonl")) == {"whole", "cut", "failed"}


def test_a_result_without_its_request_is_left_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    with Simulator(TEXT, Scenario()) as sim:
        requests, results = cut_results("anthropic-messages", sim, tmp_path)
        first, *_ = requests.read_text().splitlines()
        write(requests, first)
        line = ["finish", str(results), "--requests", str(requests), "--base-url", sim.url]
        assert main([*line, "--out", str(tmp_path / "out.jsonl")]) == Exit.USAGE
        assert f"'cut' has no request in {requests}" in capsys.readouterr().err
        assert sim.posts == []
        assert (tmp_path / "out.jsonl").read_text() != ""
        assert read(tmp_path / "out.jsonl") == read(results)
