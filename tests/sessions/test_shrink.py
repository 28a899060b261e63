"""`continuation repair --shrink`: a session that is too large fits again, and stays valid."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.golden import LOGS, as_bytes, opencode
from support.notation import DIALECTS, read, write
from support.sessions import check, write_repaired

from continuation.cli import main
from continuation.history import Repaired, api, validate
from continuation.history.types import HistoryFormat
from continuation.sessions import SavedPolicy, SavedSession

NOTE = "characters were left out here"
WORDS = " ".join(f"line {n} of the output" for n in range(2_000))
LONG = f"It begins here. {WORDS} It ends here."
TURNS = "U:first " + " ".join(f"A[t:look,c:k{n}] R:k{n}" for n in range(6)) + " A[t:done]"


def lengthened(value: Any, field: str = "") -> Any:
    """Return messages in any form with long results in place of those of the notation."""
    if isinstance(value, dict):
        return {key: lengthened(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [lengthened(each, field) for each in value]
    is_result = isinstance(value, str) and value.startswith("ok k")
    return f"{value}. {LONG}" if is_result else value


def shrinking(tokens: int) -> SavedPolicy:
    return SavedPolicy(live=False, prefill=True, shrink=tokens)


def only(sessions: list[SavedSession]) -> SavedSession:
    (session,) = sessions
    return session


def shrunk(body: dict[str, Any], dialect: str, most: int) -> tuple[Repaired, int, int]:
    policy, kind = shrinking(most), HistoryFormat(dialect)
    return api.shrunk(Repaired(body), kind, policy, "", "", most)


def longs(data: bytes) -> int:
    return data.count(WORDS[-400:].encode())


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_each_agent_fits_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(before := as_bytes(lengthened(LOGS[name](TURNS))))
    assert longs(before) >= 6
    most = 40_000
    session = only(write_repaired(path, policy=shrinking(most)))
    assert (session.exit_code, session.written) == (1, tmp_path / "s.repaired.jsonl")
    assert path.read_bytes() == before
    again = only(check(tmp_path / "s.repaired.jsonl", policy=shrinking(most)))
    assert (again.exit_code, again.problems, again.violations) == (0, [], [])
    assert session.repaired is not None
    assert again.body == session.repaired.body
    said = json.dumps(again.body, ensure_ascii=False)
    shortened = said.count(NOTE)
    assert 0 < shortened < 6
    assert len(session.repaired.changes) == shortened
    assert said.rindex(NOTE) < said.index(WORDS[-900:-600])  # the oldest first
    assert said.count("It begins here.") == said.count("It ends here.") == 6


@pytest.mark.parametrize("name", ["storage", "opencode.db"])
def test_opencodes_storage_fits_again(name: str, tmp_path: Path) -> None:
    path = opencode(tmp_path / name, TURNS)
    for file in path.rglob("*.json"):
        file.write_text(json.dumps(lengthened(json.loads(file.read_text()))))
    if path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path)) as database:
            for row in database.execute("SELECT id, data FROM part").fetchall():
                data = json.dumps(lengthened(json.loads(row[1])))
                database.execute("UPDATE part SET data = ? WHERE id = ?", (data, row[0]))
            database.commit()
    session = only(write_repaired(path, policy=shrinking(40_000)))
    assert session.exit_code == 1
    assert session.written is not None
    again = only(check(session.written, policy=shrinking(40_000)))
    assert (again.exit_code, again.violations) == (0, [])
    assert session.repaired is not None
    assert again.body == session.repaired.body
    assert 0 < json.dumps(again.body).count(NOTE) < 6


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_fits_again_and_only_its_results_change(dialect: str, tmp_path: Path) -> None:
    body = lengthened(write(dialect, f"U:first A[th+,t:look,c:z] R:z {TURNS}"))
    path = tmp_path / "request.json"
    path.write_text(json.dumps(body))
    assert main(["repair", "--shrink", "40000", str(path)]) == 0
    assert json.loads(path.read_text()) == body
    written = tmp_path / "request.repaired.json"
    shrunk = json.loads(written.read_text())
    assert NOTE in json.dumps(shrunk)
    assert validate(shrunk, dialect, live=False) == validate(body, dialect, live=False) == []
    calls = re.findall(r"[cR]:\w+", read(dialect, body))
    assert re.findall(r"[cR]:\w+", read(dialect, shrunk)) == calls
    assert main(["repair", "--shrink", "40000", str(written)]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, written.name]


@pytest.mark.parametrize("model", ["claude-opus-5-1", "claude-opus-4-5"])
def test_thinking_that_is_bound_to_a_shortened_result_is_removed(
    model: str, tmp_path: Path
) -> None:
    turns = " ".join(f"A[th+,t:look,c:k{n}] R:k{n}" for n in range(6))
    records = LOGS["claude-code"](f"U:first {turns} A[th+,t:done]")
    path = tmp_path / "s.jsonl"
    path.write_bytes(as_bytes(lengthened(records)).replace(b"claude-x", model.encode()))
    before = path.read_bytes().count(b'"signature"')
    session = only(write_repaired(path, policy=shrinking(40_000)))
    assert session.written is not None
    after = session.written.read_bytes()
    assert NOTE.encode() in after
    assert before == 7
    # The thinking before the first result is bound to nothing that has changed.
    assert after.count(b'"signature"') == (1 if model == "claude-opus-5-1" else before)


def test_a_result_that_was_no_error_stays_none(tmp_path: Path) -> None:
    for name, error in (("kimi-code", b'"isError": true'), ("gemini-cli", b'"status": "error"')):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(before := as_bytes(lengthened(LOGS[name](TURNS))))
        session = only(write_repaired(path, policy=shrinking(20_000)))
        assert session.written is not None
        after = session.written.read_bytes()
        assert NOTE.encode() in after
        assert error not in before
        assert error.replace(b" ", b"") not in after.replace(b" ", b"")


def test_what_does_not_fit_is_said_with_the_numbers_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(as_bytes(lengthened(LOGS["claude-code"](TURNS))))
    assert main(["repair", "--shrink", "500", str(path)]) == 2
    out = capsys.readouterr().out
    assert "not repairable" in out
    assert re.search(r"it has about [\d,]{6,} tokens, and [\d,]+ if all results .* than 500\.", out)
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]
    assert main(["repair", "--shrink", "1000000", str(path)]) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]


def test_images_and_short_results_stay(tmp_path: Path) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 3_000}
    body = write("anthropic", "U:first A[c:a] R:a A[c:b] R:b A[t:done]")
    body["messages"][2]["content"][0]["content"] = [
        {"type": "image", "source": picture},
        {"type": "text", "text": LONG},
    ]
    path = tmp_path / "request.json"
    path.write_text(json.dumps(body))
    assert main(["repair", "--shrink", "2000", str(path)]) == 0
    shrunk = json.loads((tmp_path / "request.repaired.json").read_text())
    image, text = shrunk["messages"][2]["content"][0]["content"]
    assert image == {"type": "image", "source": picture}
    assert NOTE in text["text"]
    text["text"] = LONG
    assert shrunk == body


FILES: list[dict[str, Any]] = [
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}},
    {"type": "image_url", "image_url": {"url": LONG}},
    {"type": "input_file", "file_url": LONG},
    {"fileData": {"fileUri": LONG}},
]
"""A file or an image in each format, with a long value that is not encoded."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_files_of_all_formats_stay_in_a_result_of_each(dialect: str) -> None:
    body = write(dialect, "U:first A[c:a] R:a A[t:done]")
    content = [*FILES, {"type": "text", "text": LONG}]
    message = next(each for each in body.values() if isinstance(each, list))[2]
    match dialect:
        case "anthropic":
            message["content"][0]["content"] = content
        case "openai-chat":
            message["content"] = content
        case "openai-responses":
            message["output"] = content
        case _:
            message["parts"][0]["functionResponse"]["response"] = {"output": content}
    text = json.dumps(content[:-1])
    repaired, _, _ = shrunk(body, dialect, 1)
    after = json.dumps(repaired.body)
    assert text[1:-1] in after
    assert after.count(NOTE) == 1


@pytest.mark.parametrize("tokens", ["0", "-1", "many", "1.5"])
def test_a_wrong_number_is_refused(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["repair", "--shrink", tokens, "x.json"])
    assert "--shrink" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["chat", "checkpoint"])
def test_the_documents_of_gemini_cli_fit_again(form: str, tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    if form == "checkpoint":
        path.write_text(json.dumps({"history": lengthened(write("gemini", TURNS))["contents"]}))
    else:
        first, *others = lengthened(LOGS["gemini-cli"](TURNS))
        messages = [each for each in others if "id" in each]
        path.write_text(json.dumps({**first, "messages": messages}))
    session = only(write_repaired(path, policy=shrinking(40_000)))
    assert (session.format, session.exit_code) == ("gemini-cli", 1)
    assert session.written is not None
    again = only(check(session.written, policy=shrinking(40_000)))
    assert (again.exit_code, again.violations) == (0, [])
    assert 0 < json.dumps(again.body).count(NOTE) < 6


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=examples(15), deadline=None)
@given(st.integers(2_000, 80_000), st.lists(st.integers(0, 4_000), min_size=1, max_size=6))
def test_a_second_run_changes_nothing(dialect: str, most: int, lengths: list[int]) -> None:
    turns = " ".join(f"A[t:look,c:k{n}] R:k{n}={'x-y.' * size}z" for n, size in enumerate(lengths))
    body = write(dialect, f"U:first {turns} A[t:done]")
    first, before, after = shrunk(body, dialect, most)
    assert validate(first.body, dialect, live=False) == []
    assert after <= before
    again, *counts = shrunk(dict(first.body), dialect, most)
    assert (again.changes, counts) == ((), [after, after])
    if before <= most:
        assert first.body is body
