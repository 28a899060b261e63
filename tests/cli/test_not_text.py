"""Files that are no sessions at all, and the copy without thinking."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, LOGS, as_bytes, opencode

from continuation.cli import main

Capture = pytest.CaptureFixture[str]
THOUGHT = "U:x A[th+,t:said,c:a] R:a=ok A[th+,t:done] U:y"


def _zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("session.jsonl", data)
    return packed.getvalue()


def _empty_zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    zipfile.ZipFile(packed, "w").close()
    return packed.getvalue()


def _tar(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("session.jsonl")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "zip": (_zip, "this file is a ZIP archive, not a session; unpack it"),
    "empty zip": (_empty_zip, "this file is a ZIP archive, not a session; unpack it"),
    "gzip": (gzip.compress, "this file is compressed with gzip, not a session; unpack it"),
    "bzip2": (bz2.compress, "this file is compressed with bzip2, not a session; unpack it"),
    "xz": (lzma.compress, "this file is compressed with xz, not a session; unpack it"),
    "zstd": (lambda data: b"\x28\xb5\x2f\xfd" + data, "compressed with zstd"),
    "tar": (_tar, "this file is a tar archive, not a session; unpack it"),
    "utf-16": (lambda data: data.decode().encode("utf-16"), "this file is text in UTF-16"),
    "utf-16-le": (lambda data: data.decode().encode("utf-16-le"), "this file is text in UTF-16"),
    "utf-16-be": (lambda data: data.decode().encode("utf-16-be"), "this file is text in UTF-16"),
    "utf-32": (lambda data: data.decode().encode("utf-32"), "this file is text in UTF-32"),
    "empty": (lambda data: b"", "this file is empty"),
    "blank": (lambda data: b" \n\n", "this file has only white space or NUL bytes"),
    "zeros": (lambda data: bytes(4096), "this file has only white space or NUL bytes"),
    "png": (lambda data: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8, "this file is binary data"),
    "random": (lambda data: bytes(range(128, 256)) * 16, "this file is binary data"),
}


@pytest.mark.parametrize("command", ["check", "repair"])
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_session_is_called_what_it_is(
    name: str, suffix: str, command: str, tmp_path: Path, capsys: Capture
) -> None:
    made, said = FILES[name]
    path = tmp_path / f"session{suffix}"
    path.write_bytes(made(as_bytes(LOGS["claude-code"](GOLDEN))))
    assert main([command, str(path)]) == 2
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: not repairable (unknown)")
    assert said in out
    assert "cut off" not in out
    assert "line 1" not in out
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_database_and_a_folder_without_sessions(tmp_path: Path, capsys: Capture) -> None:
    database = tmp_path / "other.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert main(["check", str(database)]) == 2
    assert "no agent's sessions were found in this database" in capsys.readouterr().out
    (tmp_path / "folder").mkdir()
    assert main(["check", str(tmp_path / "folder")]) == 2
    assert "no session in this folder" in capsys.readouterr().out


def test_in_a_folder_a_packed_log_is_named_and_other_files_are_passed_over(
    tmp_path: Path, capsys: Capture
) -> None:
    whole = as_bytes(LOGS["claude-code"](GOLDEN))
    (tmp_path / "a.jsonl").write_bytes(whole)
    (tmp_path / "b.jsonl").write_bytes(gzip.compress(whole))
    (tmp_path / "c.json").write_bytes(_zip(whole))
    assert main(["check", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert f"{tmp_path / 'b.jsonl'}: not repairable" in out
    assert "compressed with gzip" in out
    assert "c.json" not in out


@pytest.mark.parametrize("damage", ["torn", "nul", "bom", "crlf"])
def test_a_damaged_log_is_still_one(damage: str, tmp_path: Path, capsys: Capture) -> None:
    whole = as_bytes(LOGS["claude-code"](GOLDEN))
    data = {
        "torn": whole[: len(whole) - 20],
        "nul": bytes(64) + whole,
        "bom": b"\xef\xbb\xbf" + whole,
        "crlf": whole.replace(b"\n", b"\r\n"),
    }[damage]
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    assert main(["check", str(path)]) in {0, 1}
    assert "(claude-code, " in capsys.readouterr().out


# --- a copy without thinking ----------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("place", ["copy", "in place"])
def test_a_copy_without_thinking(name: str, place: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "s.jsonl"
    records = LOGS[name](THOUGHT)
    path.write_bytes(as_bytes(with_thinking(records) if name == "kimi-code" else records))
    before = path.read_bytes()
    more = ["--in-place"] if place == "in place" else []
    status = main(["repair", "--strip-thinking", *more, str(path)])
    assert status == 0
    out = capsys.readouterr().out
    made = path if more else tmp_path / "s.repaired.jsonl"
    assert ": repaired (" in out
    data = made.read_bytes()
    assert b"said" in data
    assert b"done" in data
    assert thoughts(before)
    assert name == "gemini-cli" or not thoughts(data)  # that log is only added to
    assert main(["repair", "--strip-thinking", str(made)]) == 0
    assert ": clean (" in capsys.readouterr().out
    assert (path.read_bytes() == before) is (place == "copy")
    assert main(["check", str(made)]) == 0


def with_thinking(records: list[Any]) -> list[Any]:
    """Return kimi-code's records with a thought at the beginning of each step."""
    more: list[Any] = []
    for record in records:
        more.append(record)
        event = record.get("event", {})
        if event.get("type") == "step.begin":
            inner = {"turnId": "t", "step": event["step"], "stepUuid": event["uuid"]}
            part = {"type": "think", "think": "What I thought."}
            thought = {"type": "content.part", "uuid": f"{event['uuid']}t", "part": part, **inner}
            more.append({"type": "context.append_loop_event", "event": thought, "time": 0})
    return more


def thoughts(data: bytes) -> list[str]:
    """Return the thinking in the lines of a log, in any format."""
    found: list[str] = []

    def look(value: object) -> None:
        if isinstance(value, list):
            for each in value:
                look(each)
        elif isinstance(value, dict):
            kind = value.get("type")
            if kind in {"thinking", "redacted_thinking", "reasoning", "think"}:
                found.append(str(kind))
            if value.get("thought") is True or value.get("reasoning_content"):
                found.append("thought")
            for each in value.values():
                look(each)

    for line in data.splitlines():
        if line.strip():
            look(json.loads(line))
    return found


@pytest.mark.parametrize("form", ["folder", "database"])
@pytest.mark.parametrize("place", ["copy", "in place"])
def test_opencodes_store_without_thinking(
    form: str, place: str, tmp_path: Path, capsys: Capture
) -> None:
    path = store(tmp_path, form)
    more = ["--in-place"] if place == "in place" else []
    assert main(["repair", "--strip-thinking", *more, str(path)]) == 0
    assert "drop the thinking block" in capsys.readouterr().out
    made = path if more else path.with_name(f"{path.stem}.repaired{path.suffix}")
    assert "reasoning" not in kinds(made)
    assert "text" in kinds(made)
    if place == "copy":
        assert "reasoning" in kinds(path)
    assert main(["check", str(made)]) == 0
    assert main(["repair", "--strip-thinking", str(made)]) == 0


def store(folder: Path, form: str) -> Path:
    """Write a store of opencode's, with thinking before each text and call of the assistant."""
    root = opencode(folder / ("opencode.db" if form == "database" else "storage"), THOUGHT)
    thought = {"type": "reasoning", "text": "What I thought.", "time": {"start": 1, "end": 2}}
    if form == "database":
        connection = sqlite3.connect(root)
        rows = connection.execute("SELECT id, session_id, data FROM message").fetchall()
        for name, session, data in rows:
            if json.loads(data)["role"] == "assistant":
                row = (f"{name}_0", name, session, json.dumps(thought))
                connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
        connection.commit()
        connection.close()
        return root
    for file in (root / "message").rglob("*.json"):
        info = json.loads(file.read_text())
        if info["role"] == "assistant":
            own = {**thought, "id": "prt_0", "messageID": info["id"], "sessionID": "ses_1"}
            (root / "part" / info["id"] / "prt_0.json").write_text(json.dumps(own))
    return root


def kinds(path: Path) -> set[str]:
    """Return the kinds of parts in a store."""
    if path.is_dir():
        return {json.loads(f.read_text())["type"] for f in (path / "part").rglob("*.json")}
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT data FROM part").fetchall()
    connection.close()
    return {json.loads(data)["type"] for (data,) in rows}
