"""Databases, folders of logs, chats of gemini-cli; and originals that are in use."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import GOLDEN, LOGS, as_bytes, opencode
from support.notation import Json, read, write
from support.sessions import check, write_repaired

from continuation.cli import main
from continuation.sessions.copies import _Unchanged

BROKEN = "U:go A[t:x,c:a] U:on"


# -- databases -----------------------------------------------------------------------------------


def test_a_database_is_repaired_in_place_with_a_copy_kept(tmp_path: Path) -> None:
    root = opencode(tmp_path / "opencode.db", BROKEN)
    root.chmod(0o640)
    (session,) = write_repaired(root, in_place=True)
    assert session.written == root
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opencode.db", "opencode.orig.db"]
    assert [check(root)[0].exit_code, check(tmp_path / "opencode.orig.db")[0].exit_code] == [0, 1]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
    assert [session.exit_code for session in check(tmp_path)] == [0], "what is kept is passed over"


def test_a_database_that_is_open_elsewhere_is_read_and_copied_and_never_changed(
    tmp_path: Path,
) -> None:
    root = opencode(tmp_path / "opencode.db", BROKEN)
    with contextlib.closing(sqlite3.connect(root)) as other:
        other.execute(
            'UPDATE part SET data = \'{"type": "text", "text": "log"}\' WHERE id LIKE \'msg_000%\''
        )
        other.commit()  # to the write-ahead log
        with pytest.raises(OSError, match=r"opencode\.db: another program uses it; end"):
            write_repaired(root, in_place=True)
        (session,) = write_repaired(root)
    assert session.written is not None
    for path, status in ((session.written, 0), (root, 1)):
        (found,) = check(path)
        assert (found.exit_code, found.body["messages"][0]["content"]) == (status, "log")


def test_calls_without_an_id_get_one_and_are_closed(tmp_path: Path) -> None:
    root = opencode(tmp_path / "opencode.db", "U:go A[c:a,c:b] U:on")
    with contextlib.closing(sqlite3.connect(root)) as database:
        database.execute("UPDATE part SET data = replace(data, '\"callID\"', '\"was\"')")
        database.commit()
    (session,) = write_repaired(root)
    assert session.written is not None
    (again,) = check(session.written)
    assert again.exit_code == 0
    roles = [message["role"] for message in again.body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


def test_a_database_that_is_damaged_or_not_an_agent_s_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = opencode(tmp_path / "opencode.db", BROKEN)
    root.write_bytes(root.read_bytes()[:8192])
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE session (id)")
    for path in (root, other):
        for word in ("check", "repair"):
            assert main([word, str(path)]) == 2
    out = capsys.readouterr().out
    assert "SQLite cannot read it" in out
    assert "no agent's sessions were found" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opencode.db", "other.db"]


# -- folders -------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs as the agents have them, and other files of theirs."""
    root = tmp_path / "projects"
    files = {
        "-w/one.jsonl": as_bytes(LOGS["claude-code"](BROKEN)),
        "-w/two.jsonl": as_bytes(LOGS["claude-code"](GOLDEN)),
        "-w/one/subagents/agent-1.jsonl": as_bytes(LOGS["claude-code"](GOLDEN)),
        "-w/memory.jsonl": b'{"note": 1}\n',
        "-w/index.json": b'{"version": 1,\n "entries": []}',
        "2026/11/22/rollout-1.jsonl": as_bytes(LOGS["codex"](BROKEN)),
        "2026/11/22/rollout-2.orig.jsonl": as_bytes(LOGS["codex"](BROKEN)),
        "chats/session-1.jsonl": as_bytes(LOGS["gemini-cli"](BROKEN)),
        "lost.jsonl": b"\0\0\0\n{{{",
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def _files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_of_a_folder_each_log_is_told_and_the_clean_ones_are_counted(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(logs)]) == 2
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"{logs}: 6 sessions: 2 clean, 3 repairable, 1 not repairable"
    assert len([line for line in out if line.startswith(f"{logs}/")]) == 4


@pytest.mark.parametrize("in_place", [False, True])
def test_of_a_folder_what_is_repaired_is_in_the_copy_or_kept(logs: Path, in_place: bool) -> None:
    before, broken = (
        _files(logs),
        {"-w/one.jsonl", "2026/11/22/rollout-1.jsonl", "chats/session-1.jsonl"},
    )
    sessions = write_repaired(logs, in_place=in_place)
    other = logs.with_name("projects.orig" if in_place else "projects.repaired")
    assert _files(other).keys() == broken
    repaired, kept = (logs, other) if in_place else (other, logs)
    assert {name: _files(kept)[name] for name in broken} == {name: before[name] for name in broken}
    assert {s.written for s in sessions} == {None, *(repaired / name for name in broken)}
    assert {s.exit_code for name in broken for s in check(repaired / name)} == {0}
    after = _files(logs)
    assert {n: after[n] for n in after.keys() - broken} == {
        n: before[n] for n in before.keys() - broken
    }
    assert len(list(logs.parent.iterdir())) == 2


def test_the_folder_that_one_is_in_has_a_name(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs)
    write_repaired(Path())
    assert logs.with_name("projects.repaired").is_dir()


def test_of_a_clean_folder_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_bytes(as_bytes(LOGS["codex"](GOLDEN)))
    write_repaired(tmp_path / "logs")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    with pytest.raises(OSError, match="name a target outside of it"):
        write_repaired(tmp_path / "logs", target=tmp_path / "logs" / "copy")


# -- in use --------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells no open files")
@pytest.mark.parametrize("store", ["s.jsonl", "storage"])
def test_an_original_that_another_program_has_open_is_not_replaced(
    tmp_path: Path, store: str
) -> None:
    path = held = tmp_path / store
    if store == "storage":
        held = opencode(path, BROKEN) / "message" / "ses_1" / "msg_000.json"
    else:
        path.write_bytes(as_bytes(LOGS["codex"](BROKEN)))
    with (
        held.open("rb") as file,
        subprocess.Popen(
            [sys.executable, "-c", "input()"], pass_fds=[file.fileno()], stdin=subprocess.PIPE
        ) as other,
    ):
        with pytest.raises(OSError, match="another program uses it"):
            write_repaired(path, in_place=True)
        assert list(tmp_path.iterdir()) == [path]
        other.communicate(b"\n")
    assert write_repaired(path, in_place=True)[0].written == path


def test_an_original_that_changes_while_it_is_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"1\n")
    still = _Unchanged([path])
    still.refuse_use()
    with path.open("ab") as file:
        file.write(b"2\n")
    with pytest.raises(OSError, match="another program uses it"):
        still.refuse_use()


# -- gemini-cli ----------------------------------------------------------------------------------


def _chat(*messages: Json) -> list[Json]:
    head = {"sessionId": "s", "projectHash": "h", "startTime": "t"}
    return [head, *({"timestamp": "t", **message} for message in messages)]


def _user(name: str, text: str) -> Json:
    return {"id": name, "type": "user", "content": [{"text": text}]}


def _model(name: str, text: str, **calls: object) -> Json:
    told = [
        {"id": call, "name": "tool", "args": {"n": 1}, "result": result, "status": "success"}
        for call, result in calls.items()
    ]
    return {"id": name, "type": "gemini", "content": text, "toolCalls": told}


NOTICE = {"id": "n", "type": "info", "content": "switched"}
CHATS = {
    "results and notices": (
        _chat(
            _user("c", "<session_context>…"),
            _user("u", "go"),
            _model("m", "x", a="1", b=None),
            NOTICE,
            _user("v", "on"),
        ),
        "U:go A[t:x,c:a,c:b] R:a=1 R*:b U:on",
    ),
    "rewound": (
        [*_chat(_user("u", "go"), _model("m", "x", a=None), _user("v", "on")), {"$rewindTo": "m"}],
        "U:go",
    ),
    "set anew": (
        [
            *_chat(_model("m", "x", a=None)),
            {"$set": {"messages": [_user("u", "go"), _model("k", "y")]}},
        ],
        "U:go A[t:y]",
    ),
    "results that the user is said to have sent": (
        _chat(
            _user("u", "go"),
            _model("m", "x", a="1"),
            {
                "id": "r",
                "type": "user",
                "content": write("gemini", "U:go A[c:a] R:a")["contents"][2]["parts"],
            },
            _model("k", "y"),
        ),
        "U:go A[t:x,c:a] R:a=1 A[t:y]",
    ),
}


@pytest.mark.parametrize("case", CHATS)
@pytest.mark.parametrize("form", ["log", "document"])
def test_a_chat_of_gemini_cli_is_what_the_agent_makes_of_it(
    tmp_path: Path, case: str, form: str
) -> None:
    records, said = CHATS[case]
    if form == "document":  # the older form knows neither of the others
        messages = [record for record in records[1:] if "id" in record]
        if len(messages) < len(records) - 1:
            return
        records = [{**records[0], "messages": messages}]
    path = tmp_path / "session-1.json"
    path.write_bytes(as_bytes(records))
    (session,) = write_repaired(path)
    repaired = session.written or path
    (again,) = check(repaired)
    assert (again.format, again.exit_code) == ("gemini-cli", 0)
    assert read("gemini", again.body) == said
    assert repaired.read_bytes().count(b'"switched"') == path.read_bytes().count(b'"switched"') * (
        1 if form == "document" else 2
    )


def test_a_saved_checkpoint_of_gemini_cli_keeps_what_is_beside_its_history(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-x.json"
    contents = write("gemini", BROKEN)["contents"]
    path.write_text(json.dumps({"history": contents, "authType": "gemini-api-key"}))
    (session,) = write_repaired(path)
    assert session.written is not None
    repaired = json.loads(session.written.read_bytes())
    assert repaired["authType"] == "gemini-api-key"
    assert read("gemini", {"contents": repaired["history"]}) == "U:go A[t:x,c:a] R*:a U:on"


@pytest.mark.parametrize("store", [*LOGS, "opencode", "opencode.db", "body.json"])
def test_half_a_character_that_a_provider_refuses_is_found_and_mended(
    store: str, tmp_path: Path
) -> None:
    path, line, half = tmp_path / store, "U:go A[t:halved] U:more A[t:x]", (b"halved", b"h\\uD83d")
    if store in LOGS:
        path.write_bytes(as_bytes(LOGS[store](line)).replace(*half))
    elif store == "body.json":
        path.write_bytes(json.dumps(write("anthropic", line)).encode().replace(*half))
    else:
        opencode(path, line)
    if store == "opencode":
        for file in path.glob("part/*/*.json"):
            file.write_bytes(file.read_bytes().replace(*half))
    elif store == "opencode.db":
        with contextlib.closing(sqlite3.connect(path)) as database:
            words = [each.decode() for each in half]
            database.execute("UPDATE part SET data = replace(data, ?, ?)", words)
            database.commit()
    assert main(["check", str(path)]) == 1
    copy = tmp_path / "copy"
    assert main(["repair", str(path), "--out", str(copy)]) == 0
    assert main(["check", str(copy)]) == 0
    (session,) = check(copy)
    assert [p.code for p in check(path)[0].problems] == ["half_utf8"]
    assert "h\N{REPLACEMENT CHARACTER}" in json.dumps(session.body, ensure_ascii=False)
