from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.golden import GOLDEN, LOGS, as_bytes, opencode
from support.notation import DIALECTS, Json, read, write
from support.sessions import check, load, write_repaired

from continuation.history import RepairPolicy, repair, validate
from continuation.sessions import SavedSession


def _save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _only(sessions: list[SavedSession]) -> SavedSession:
    (session,) = sessions
    return session


def _said(session: SavedSession) -> str:
    assert session.dialect is not None
    return read(str(session.dialect), session.body)


@pytest.mark.parametrize("name", LOGS)
def test_a_clean_log_of_each_agent_is_told_and_clean(name: str, tmp_path: Path) -> None:
    session = _only(check(_save(tmp_path / "s.jsonl", as_bytes(LOGS[name](GOLDEN)))))
    assert session.format == name
    assert session.exit_code == 0
    assert session.violations == []
    assert session.problems == []
    assert "U:first" in _said(session)
    assert "R:k1 R:k2" in _said(session)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        # The program was killed while a tool ran; the user went on after that.
        ("U:go A[t:x,c:a,c:b] R:a", "U:go A[t:x,c:a,c:b] R:a R*:b"),
        (
            "U:go A[c:a] U:two A[c:b] R:b A[t:end]",
            "U:go A[c:a] R*:a U:two A[c:b] R:b A[t:end]",
        ),
    ],
)
def test_a_log_with_an_open_call_is_closed_in_its_place(
    name: str, broken: str, whole: str, tmp_path: Path
) -> None:
    path = _save(tmp_path / "s.jsonl", as_bytes(LOGS[name](broken)))
    session = _only(write_repaired(path))
    assert session.exit_code == 1
    assert [v.code for v in session.violations] == ["tool_result_missing"]
    assert session.written == tmp_path / "s.repaired.jsonl"
    again = _only(check(session.written))
    assert again.exit_code == 0
    assert _said(again) == whole
    assert path.read_bytes() == as_bytes(LOGS[name](broken))


@pytest.mark.parametrize("name", LOGS)
def test_lines_of_unchanged_messages_stay_byte_for_byte(name: str, tmp_path: Path) -> None:
    records = LOGS[name]("U:go A[t:x,c:a] R:a A[t:y] U:now A[c:b]")
    session = _only(write_repaired(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert session.written is not None
    after = session.written.read_bytes().splitlines()
    kept = as_bytes(records).splitlines()
    assert [line for line in after if line in kept] == kept
    assert len(after) == len(kept) + 1


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("step", [61, pytest.param(7, marks=pytest.mark.slow)])
def test_every_prefix_of_a_log_is_read_repaired_and_read_again(
    name: str, step: int, tmp_path: Path
) -> None:
    golden = as_bytes(LOGS[name](GOLDEN))
    path = _save(tmp_path / "s.jsonl", golden)
    whole, entire = _texts(_said(_only(load(path)))), {b"", *golden.split(b"\n")}
    for cut in reversed(range(0, len(golden) + 1, step)):
        os.truncate(path, cut)  # to write it anew each time would take twice as long
        session = _only(check(path))
        if session.dialect is None:
            assert golden[:cut].count(b"\n") <= 2, cut
            continue
        assert session.repaired is not None
        assert session.repaired.left == ()
        said = _texts(_said(session))
        repaired = _texts(read(str(session.dialect), dict(session.repaired.body)))
        assert said <= whole & repaired, cut
        torn = golden[:cut].rpartition(b"\n")[2].strip() not in entire
        assert torn == any(p.code in ("torn_tail", "torn_body") for p in session.problems), cut


def _texts(said: str) -> set[str]:
    words = (word for token in said.split() for word in token.strip("A[]").split(","))
    return {word for word in words if not word.startswith("th")}


LINES = (
    GOLDEN,
    "U:go A[t:x,c:a,c:b] R:a R:b A[t:y] U:on A[th+,t:hm,c:d] R:d A[c:e] R:e A[t:end] U:last A[t:z]",
    "U:u A[c:k] R:k A[c:k1,c:k2,c:k3] R:k1 R:k2 R:k3 A[t:z] U:u1 A[t:z1] U:u2 A[th+,t:z2]",
)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """What a kill, a full disk, a power failure or a second writer leaves of a log."""
    for _ in range(rng.randint(1, 3)):
        lines = data.splitlines(keepends=True) or [b"\n"]
        at, to, cut = (rng.randrange(len(each)) for each in (lines, lines, data or b" "))
        torn = lines[at][: rng.randrange(len(lines[at]))]
        match rng.randrange(7):
            case 0:
                lines = [data[:cut]]
            case 1:
                del lines[at : at + rng.randint(1, 3)]
            case 2:
                lines.insert(to, lines[at])
            case 3:
                lines[at] = torn + b"\n"
            case 4:  # the next line is fused with what is left of it
                lines[at] = torn
            case 5:
                lines[at] = lines[at].rstrip(b"\n")
            case _:
                lines = [data[:cut], b"\0" * rng.randint(1, 50), data[cut:]]
        data = b"".join(lines)
    return data


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_a_log_with_any_damage_is_clean_once_it_is_repaired(
    name: str, count: int, tmp_path: Path
) -> None:
    for seed in range(count):
        rng = random.Random(f"{name} {seed}")
        data = _damaged(rng, as_bytes(LOGS[name](rng.choice(LINES))))
        path, made = _save(tmp_path / "s.jsonl", data), tmp_path / "s.repaired.jsonl"
        made.unlink(missing_ok=True)
        session = _only(write_repaired(path))
        if session.written is not None:
            again = _only(check(made))
            assert (again.exit_code, again.problems, again.violations) == (0, [], []), seed
            assert session.repaired is not None
            wanted = read(str(again.dialect), dict(session.repaired.body))
            assert _texts(_said(again)) == _texts(wanted), seed


def test_what_a_line_says_whose_step_has_lost_its_beginning_is_kept(tmp_path: Path) -> None:
    records = LOGS["kimi-code"]("U:go A[t:x,c:a] R:a A[t:y] U:on")
    records = [record for record in records if record.get("event", {}).get("type") != "step.begin"]
    session = _only(write_repaired(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert {problem.code for problem in session.problems} == {"step_unknown"}
    assert session.written is not None
    again = _only(check(session.written))
    assert (again.exit_code, _said(again)) == (0, "U:go A[t:x,c:a] R:a A[t:y] U:on")


@pytest.mark.parametrize(("model", "clean"), [("kimi-k2.6", True), ("claude-opus-5", False)])
def test_a_log_s_thinking_is_judged_by_the_model_it_names(
    model: str, clean: bool, tmp_path: Path
) -> None:
    records = LOGS["claude-code"]("U:go A[th-,t:x] U:on A[t:y]")
    for record in records:
        if "model" in record.get("message", {}):
            record["message"]["model"] = model
    session = _only(check(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert (session.exit_code == 0) == clean


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("step", [29, pytest.param(5, marks=pytest.mark.slow)])
def test_every_prefix_of_a_request_body_gives_a_valid_history(
    dialect: str, step: int, tmp_path: Path
) -> None:
    golden = json.dumps(write(dialect, GOLDEN), ensure_ascii=False).encode()
    path = _save(tmp_path / "s.json", golden)
    assert _only(check(path)).exit_code == 0
    for cut in reversed(range(0, len(golden) + 1, step)):
        os.truncate(path, cut)
        session = _only(check(path))
        if session.dialect is not None:
            assert session.repaired is not None
            assert validate(session.repaired.body, str(session.dialect), model="", live=False) == []


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("tail", [b"\0" * 300, b"\n\0\0\0\n", b'{"type":"us', b'{"a":"\xe2\x80'])
def test_dirt_at_the_end_is_reported_and_nothing_before_it_is_lost(
    name: str, tail: bytes, tmp_path: Path
) -> None:
    golden = as_bytes(LOGS[name](GOLDEN))
    clean = _said(_only(load(_save(tmp_path / "c.jsonl", golden))))
    session = _only(write_repaired(_save(tmp_path / "s.jsonl", golden + tail)))
    assert _said(session) == clean
    assert session.exit_code == 1
    assert {p.code for p in session.problems} <= {"nul_run", "torn_tail"}
    assert session.written is not None
    assert session.written.read_bytes() == golden


@pytest.mark.parametrize("name", LOGS)
def test_a_bad_line_in_the_middle_costs_only_itself(name: str, tmp_path: Path) -> None:
    lines = as_bytes(LOGS[name](GOLDEN)).splitlines(keepends=True)
    at = len(lines) // 2
    data = b"".join([*lines[:at], b"\0\0garbage\xff{]\n", *lines[at:]])
    session = _only(check(_save(tmp_path / "s.jsonl", data)))
    assert _said(session) == _said(_only(load(_save(tmp_path / "c.jsonl", b"".join(lines)))))
    assert {p.code for p in session.problems} == {"nul_run", "bad_line"}
    assert {p.line for p in session.problems} == {at + 1}


@pytest.mark.parametrize("name", LOGS)
def test_a_record_fused_with_a_torn_one_is_found(name: str, tmp_path: Path) -> None:
    """J1: a torn tail, then an append by a program that did not look."""
    lines = as_bytes(LOGS[name](GOLDEN)).splitlines(keepends=True)
    at = len(lines) - 3
    data = b"".join([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]])
    fused = _only(load(_save(tmp_path / "s.jsonl", data)))
    without = _only(load(_save(tmp_path / "c.jsonl", b"".join(lines[:at] + lines[at + 1 :]))))
    assert "torn_and_fused" in [p.code for p in fused.problems]
    assert _said(fused) == _said(without)


def test_two_whole_records_in_one_line_are_both_kept(tmp_path: Path) -> None:
    lines = as_bytes(LOGS["jsonl"]("U:a A[t:b] U:c")).splitlines(keepends=True)
    data = b"".join([lines[0], lines[1].strip(), *lines[2:]])
    session = _only(load(_save(tmp_path / "s.jsonl", data)))
    assert [p.code for p in session.problems] == ["fused_lines"]
    assert _said(session) == "U:a A[t:b] U:c"


def test_half_a_character_in_a_line_is_reported_and_the_line_kept(tmp_path: Path) -> None:
    data = b'{"role":"user","content":"caf\xc3"}\n{"role":"assistant","content":"yes"}\n'
    session = _only(load(_save(tmp_path / "s.jsonl", data)))
    assert [p.code for p in session.problems] == ["half_utf8"]
    assert _said(session) == "U:caf� A[t:yes]"
    (repaired,) = write_repaired(tmp_path / "s.jsonl")
    assert repaired.written is not None
    assert _only(check(repaired.written)).exit_code == 0


def test_a_whole_record_without_its_line_end_is_kept(tmp_path: Path) -> None:
    data = as_bytes(LOGS["claude-code"](GOLDEN))[:-1]
    assert _only(check(_save(tmp_path / "s.jsonl", data))).exit_code == 0


def test_a_kimi_step_that_never_ended_is_reported(tmp_path: Path) -> None:
    records = LOGS["kimi-code"]("U:go A[t:x,c:a]")[:-1]
    session = _only(check(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert [p.code for p in session.problems] == ["step_unfinished"]


def test_a_kimi_message_that_waited_for_a_result_is_no_fault(tmp_path: Path) -> None:
    """K09: what is appended while a call runs is logged before the result, and sent after it."""
    records = LOGS["kimi-code"]("U:go A[c:a] U:steer R:a A[t:done]")
    session = _only(check(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert session.exit_code == 0
    assert _said(session) == "U:go A[c:a] R:a U:steer A[t:done]"


def test_a_kimi_step_with_cut_arguments_is_written_as_a_whole_step(tmp_path: Path) -> None:
    records = LOGS["kimi-code"]("U:go A[t:x,c:a] U:next")
    for record in records:
        if record.get("event", {}).get("type") == "tool.call":
            record["event"]["args"] = '{"n": '
    session = _only(write_repaired(_save(tmp_path / "s.jsonl", as_bytes(records))))
    assert session.written is not None
    again = _only(check(session.written))
    assert again.exit_code == 0
    assert _said(again) == "U:go A[t:x,c:a] R*:a U:next"


def test_claude_code_side_branches_error_notices_and_sidechains_are_understood(
    tmp_path: Path,
) -> None:
    records = LOGS["claude-code"]("U:go A[t:x,c:a,c:b] R:a R:b A[t:y]")
    notice = {**records[-1], "uuid": "n1", "parentUuid": records[-1]["uuid"]}
    notice["message"] = {"role": "assistant", "model": "<synthetic>", "content": []}
    aside = {**records[1], "uuid": "n2", "isSidechain": True, "message": {"role": "user"}}
    # A request as it was sent, of which no answer came.
    blob = {"type": "api-request-blob", "message": {"role": "user", "content": "all of it"}}
    data = as_bytes([*records, notice, aside, blob])
    session = _only(check(_save(tmp_path / "s.jsonl", data)))
    assert session.exit_code == 0
    assert _said(session) == "U:go A[t:x,c:a,c:b] R:a R:b A[t:y]"


def test_claude_code_records_name_the_record_that_now_stands_before_them(tmp_path: Path) -> None:
    path = _save(tmp_path / "s.jsonl", as_bytes(LOGS["claude-code"]("U:go A[c:a] U:two A[t:y]")))
    session = _only(write_repaired(path))
    assert session.written is not None
    records = [json.loads(line) for line in session.written.read_bytes().splitlines()]
    names: dict[str, Json] = {r["uuid"]: r for r in records if "uuid" in r}
    thread, at = [], records[-1]
    while at["parentUuid"] is not None:
        thread.append(at["message"]["role"])
        at = names[at["parentUuid"]]
    assert thread == ["assistant", "user", "assistant"]
    assert len(names) == 4


def test_a_lost_parent_is_bridged_and_reported(tmp_path: Path) -> None:
    records = LOGS["claude-code"]("U:go A[t:x] U:two A[t:y]")
    session = _only(check(_save(tmp_path / "s.jsonl", as_bytes(records[:2] + records[3:]))))
    assert [p.code for p in session.problems] == ["lost_parent"]
    assert _said(session) == "U:go U:two A[t:y]"


def test_codex_items_before_a_compaction_are_left_alone(tmp_path: Path) -> None:
    early = LOGS["codex"]("U:old A[c:z]")
    compacted = {"type": "compacted", "payload": {"message": "so far"}}
    late = LOGS["codex"]("U:new A[t:yes]")[1:]
    data = as_bytes([*early, compacted, *late])
    session = _only(check(_save(tmp_path / "s.jsonl", data)))
    assert session.exit_code == 0
    assert _said(session) == "U:new A[t:yes]"


STORES = pytest.mark.parametrize("store", ["storage", "opencode.db"])


def _tear(root: Path, table: str, number: int, data: bytes) -> None:
    """Write something else for one of a message's parts, or for a message."""
    if root.suffix != ".db":
        folder = f"message/ses_1/msg_{number:03}" if table == "message" else f"part/msg_{number:03}"
        path = root / folder if table == "part" else (root / f"{folder}.json")
        for file in [path] if table == "message" else sorted(path.glob("*.json"))[1:2]:
            file.write_bytes(data)
        return
    with contextlib.closing(sqlite3.connect(root)) as database:
        row = f"msg_{number:03}" if table == "message" else f"msg_{number:03}_prt_001"
        said = data.decode("utf-8", "replace")
        database.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (said, row))
        database.commit()


@STORES
def test_opencode_storage_is_read_and_an_open_call_closed(tmp_path: Path, store: str) -> None:
    root = opencode(tmp_path / store, "U:go A[t:x,c:a,c:b] R:a U:two A[t:y]")
    (session,) = write_repaired(root)
    assert session.format == "opencode"
    assert [v.code for v in session.violations] == ["tool_result_missing"]
    assert [p.code for p in session.problems] == ["step_unfinished"]
    name = {"storage": "storage.repaired", "opencode.db": "opencode.repaired.db"}[store]
    assert session.written == tmp_path / name
    assert {path.name for path in tmp_path.iterdir()} == {store, name}
    (again,) = check(session.written)
    assert again.exit_code == 0
    assert _said(again) == "U:go A[t:x,c:a,c:b] R:a R*:b U:two A[t:y]"
    (before,) = check(root)
    assert before.violations != []


@STORES
def test_opencode_torn_parts_are_reported_and_not_copied(tmp_path: Path, store: str) -> None:
    root = opencode(tmp_path / store, "U:go A[t:x] U:two A[] U:three A[t:y]")
    _tear(root, "part", 1, b'{"type": "text", "te')
    before = root.read_bytes() if root.is_file() else b""
    (session,) = check(root if root.is_file() else root / "message" / "ses_1")
    assert [p.code for p in session.problems] == ["bad_file"]
    assert session.exit_code == 1
    (session,) = write_repaired(root)
    assert session.written is not None
    (again,) = check(session.written)
    assert (again.exit_code, _said(again)) == (0, "U:go U:two U:three A[t:y]")
    assert (root.read_bytes() if root.is_file() else b"") == before, "the original stays"


@STORES
@pytest.mark.parametrize("number", [0, 1, 3, 4])
@pytest.mark.parametrize("kept", [b"", b'{"role": "as', b'{"modelID": "m", "extra": "x'])
def test_an_opencode_message_that_is_lost_is_rebuilt_from_its_parts(
    tmp_path: Path, number: int, kept: bytes, store: str
) -> None:
    line = "U:go A[t:x,c:a] R:a U:two A[t:y]"
    root = opencode(tmp_path / store, line)
    _tear(root, "message", number, kept)
    (session,) = write_repaired(root)
    assert [p.code for p in session.problems] == ["bad_file"]
    assert _said(session) == line
    assert session.written is not None
    (again,) = check(session.written)
    assert (again.exit_code, _said(again)) == (0, line)


@STORES
def test_what_opencode_does_not_send_is_no_fault(tmp_path: Path, store: str) -> None:
    """From before a summary, an answer that failed, a command without text."""
    root = opencode(tmp_path / store, "U:a A[c:k] U:sum A[t:so] U:b A[c:l] U:c A[t:d]")
    summed = {"role": "assistant", "summary": True, "finish": "stop", "parentID": "msg_002"}
    failed = {"role": "assistant", "error": {"name": "APIError"}}
    ids = {"sessionID": "ses_1"} if store == "storage" else {}
    for number, info in ((3, summed), (5, failed)):
        named = {**ids, "id": f"msg_{number:03}"} if ids else {}
        _tear(root, "message", number, json.dumps({**info, **named}).encode())
    mark = json.dumps({"type": "compaction", "auto": True})
    if store == "storage":
        (root / "part" / "msg_002" / "prt_000.json").write_text(mark)
    else:
        with contextlib.closing(sqlite3.connect(root)) as database:
            database.execute("UPDATE part SET data = ? WHERE message_id = 'msg_002'", (mark,))
            database.commit()
    (session,) = check(root)
    assert session.exit_code == 0
    assert [m["role"] for m in session.body["messages"]] == [
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
    ]


def test_an_opencode_message_of_which_nothing_is_left_goes(tmp_path: Path) -> None:
    root = opencode(tmp_path / "storage", "U:go A[t:x] U:two A[t:y]")
    (root / "message" / "ses_1" / "msg_001.json").write_bytes(b"\0" * 40)
    for part in (root / "part" / "msg_001").glob("*.json"):
        part.unlink()
    (session,) = write_repaired(root)
    assert session.written is not None
    (again,) = check(session.written)
    assert (again.exit_code, _said(again)) == (0, "U:go U:two A[t:y]")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("below", ["", "message/ses_1"])
def test_a_repaired_opencode_storage_lies_beside_it_whole(
    tmp_path: Path, below: str, in_place: bool
) -> None:
    root = opencode(tmp_path / "storage", "U:go A[t:x,c:a]")
    before = {path.relative_to(root): path.read_bytes() for path in root.rglob("*.json")}
    (session,) = write_repaired(root / below, in_place=in_place)
    goal, original = tmp_path / "storage.repaired", root
    if in_place:
        goal, original = root, tmp_path / "storage.orig"
    assert session.written == goal
    assert {p.relative_to(original): p.read_bytes() for p in original.rglob("*.json")} == before
    assert {path.relative_to(goal) for path in goal.rglob("*.json")} == set(before)
    assert check(goal)[0].exit_code == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("target", ["storage/copy", "storage/message/ses_1/copy"])
def test_a_storage_is_never_copied_into_itself(tmp_path: Path, target: str) -> None:
    root = opencode(tmp_path / "storage", "U:go A[t:x,c:a]")
    before = sorted(root.rglob("*"))
    with pytest.raises(OSError, match="name a target outside of it"):
        write_repaired(root / "message" / "ses_1", target=tmp_path / target)
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("fault", ["full", "writing", "renaming"])
def test_a_storage_that_cannot_be_repaired_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, in_place: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    root = opencode(tmp_path / "storage", "U:go A[t:x,c:a]")
    before = {path: path.read_bytes() for path in root.rglob("*.json")}
    if fault == "full":
        usage = shutil._ntuple_diskusage(100, 100, 0)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    elif fault == "writing":
        monkeypatch.setattr(Path, "write_bytes", fail)
    else:
        rename = Path.rename
        monkeypatch.setattr(
            Path,
            "rename",
            lambda old, new: fail() if ".storage." in str(old) else rename(old, new),
        )
    with pytest.raises(OSError, match=r"No space|are free"):
        write_repaired(root, in_place=in_place)
    assert {path: path.read_bytes() for path in root.rglob("*.json")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]


def test_a_healthy_opencode_session_stays_as_it_is(tmp_path: Path) -> None:
    root = opencode(tmp_path / "storage", "U:go A[t:x] U:two A[] U:three A[t:y]")
    image = {"id": "prt_000", "type": "file", "mime": "image/png", "url": "data:image/png;base64,"}
    (root / "part" / "msg_002" / "prt_000.json").write_text(json.dumps(image))
    failed = root / "message" / "ses_1" / "msg_003.json"
    error = {"name": "APIError", "data": {"statusCode": 529}}
    failed.write_text(json.dumps({**json.loads(failed.read_text()), "error": error}))
    assert [session.exit_code for session in check(root)] == [0]


def test_a_call_id_that_is_used_again_is_told_apart_by_its_message(tmp_path: Path) -> None:
    root = opencode(tmp_path / "storage", "U:go A[c:bash] R:bash U:two A[c:other]")
    again = root / "part" / "msg_004" / "prt_001.json"
    part = json.loads(again.read_text())
    assert part["state"]["status"] == "running"
    again.write_text(json.dumps({**part, "callID": "bash"}))
    done = (root / "part" / "msg_001" / "prt_001.json").read_bytes()
    (session,) = write_repaired(root)
    assert session.written is not None
    assert (session.written / "part" / "msg_001" / "prt_001.json").read_bytes() == done
    closed = json.loads((session.written / "part" / "msg_004" / "prt_001.json").read_text())
    assert closed["state"]["status"] == "error"


def test_the_original_stays_and_nothing_is_overwritten(tmp_path: Path) -> None:
    data = as_bytes(LOGS["jsonl"]("U:go A[c:a]"))
    path = _save(tmp_path / "s.jsonl", data)
    write_repaired(path)
    with pytest.raises(FileExistsError, match=r"s\.repaired\.jsonl: exists already"):
        write_repaired(path)
    assert path.read_bytes() == data
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.jsonl", "s.repaired.jsonl"]


def test_in_place_keeps_mode_link_and_line_ends(tmp_path: Path) -> None:
    data = as_bytes(LOGS["jsonl"]("U:go A[c:a]")).replace(b"\n", b"\r\n")
    (tmp_path / "far").mkdir()
    path, link = _save(tmp_path / "far" / "s.jsonl", data), tmp_path / "s.jsonl"
    path.chmod(0o640)
    link.symlink_to(path)
    session = _only(write_repaired(link, in_place=True))
    assert session.written == link
    assert link.is_symlink()
    repaired = path.read_bytes()
    assert repaired.count(b"\r\n") == repaired.count(b"\n") > data.count(b"\n")
    assert set(data.splitlines()) < set(repaired.splitlines())
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "s.orig.jsonl").read_bytes() == data
    assert _only(check(path)).exit_code == 0


def test_in_place_keeps_the_original_under_another_name(tmp_path: Path) -> None:
    data = as_bytes(LOGS["jsonl"]("U:go A[c:a]"))
    path = _save(tmp_path / "s.jsonl", data)
    session = _only(write_repaired(path, in_place=True))
    assert session.written == path
    assert (tmp_path / "s.orig.jsonl").read_bytes() == data
    assert _only(check(path)).exit_code == 0


def test_a_clean_session_is_not_written_and_a_broken_body_keeps_its_other_fields(
    tmp_path: Path,
) -> None:
    path = _save(tmp_path / "s.jsonl", as_bytes(LOGS["jsonl"](GOLDEN)))
    assert _only(write_repaired(path)).written is None
    assert [each.name for each in tmp_path.iterdir()] == ["s.jsonl"]
    body = write("anthropic", "U:go A[c:a] U:x", model="claude-x", tools=[{"name": "tool"}])
    session = _only(write_repaired(_save(tmp_path / "b.json", json.dumps(body).encode())))
    assert session.written is not None
    assert json.loads(session.written.read_bytes()) == repair(body).body


@pytest.mark.parametrize("data", [b"", b"\n\n", b"not a session", b'{"a": 1}', b"[]\n"])
def test_a_file_without_a_conversation_is_beyond_repair(data: bytes, tmp_path: Path) -> None:
    session = _only(check(_save(tmp_path / "s.jsonl", data)))
    assert (session.exit_code, session.format) in ((2, "unknown"), (0, "json"))


def test_a_live_session_is_left_alone_if_asked(tmp_path: Path) -> None:
    path = _save(tmp_path / "s.jsonl", as_bytes(LOGS["claude-code"]("U:go A[c:a]")))
    assert _only(check(path, policy=RepairPolicy(live=True))).exit_code == 0
    assert _only(check(path)).exit_code == 1


# --- threads --------------------------------------------------------------------------------------

USE, RESULT = {"type": "tool_use", "name": "Bash", "input": {"n": 1}}, {"type": "tool_result"}
REPLY = {"id": "msg_1"}


def _thread(*said: tuple[Any, ...]) -> list[Json]:
    """Claude Code's records: content, and what is special; an assistant's content is a list."""
    records, parent = list[Json](), None
    for number, (content, *special) in enumerate(said):
        answers = isinstance(content, list) and content[0]["type"] != "tool_result"
        role, more = ("assistant" if answers else "user"), special[0] if special else {}
        message: Json = {"role": role, "content": content, **more}
        if answers:
            message = {"id": f"msg_{number}", "model": "claude-opus-5", **message}
        record: Json = {"parentUuid": parent, "uuid": f"u{number}", "type": role}
        if message.get("model") == "<synthetic>":
            record["isApiErrorMessage"] = True
        records.append({**record, "message": message})
        parent = f"u{number}"
    return records


def _use(name: str) -> list[Json]:
    return [{**USE, "id": name}]


def _result(name: str) -> list[Json]:
    return [{**RESULT, "tool_use_id": name, "content": f"done {name}"}]


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


NOTICE = (_text("API Error: 400 tool_use without tool_result"), {"model": "<synthetic>"})
CALLS = _thread(("go",), (_use("a"), REPLY), (_use("b"), REPLY), (_use("c"), REPLY))
BRANCHES = _thread(*[("",)] * 4, (_result("a"),), (_result("b"),), ("next",))[4:]
CALLED = _thread(("go",), (_use("a"),), (_result("a"),), (_text("ok"),))
LONG = _thread(("go",), (_text("x"),), ("two",), (_use("a"),), ("three",))
UNSIGNED = [{"type": "thinking", "thinking": "hm", "signature": ""}]
THREADS = {
    "calls interrupted again and again": _thread(
        ("go",), (_use("a"),), ("continue",), NOTICE, ("continue",), NOTICE, ("four",)
    ),
    "three calls, two results": [
        *CALLS,
        {**BRANCHES[0], "parentUuid": "u1"},
        {**BRANCHES[1], "parentUuid": "u2"},
        BRANCHES[2],
    ],
    "an empty answer": _thread(("go",), (_text(""),), ("more",), (_text("fine"),)),
    "an empty block": _thread(("go",), (_text(""), REPLY), (_text("words"), REPLY), ("x",)),
    "unsigned thinking": _thread(("go",), (UNSIGNED, REPLY), (_text("words"), REPLY), ("x",)),
    "text behind a call": _thread(
        ("go",), (_use("a"), REPLY), (_text("after"), REPLY), (_result("a"),), (_text("ok"),)
    ),
    "a line twice": [*CALLED[:2], *CALLED[1:]],
    "the first is lost": LONG[1:],
    "what is first is no message": [{"type": "hook", "uuid": "u0", "parentUuid": None}, *LONG[1:]],
    "one is lost": [*LONG[:2], *LONG[3:]],
}


@pytest.mark.parametrize("case", THREADS)
def test_an_agent_loads_from_a_repaired_thread_all_that_it_loaded_before(
    tmp_path: Path, case: str
) -> None:
    path = _save(tmp_path / "s.jsonl", as_bytes(THREADS[case]))
    session = _only(write_repaired(path))
    assert session.written is not None or session.exit_code == 0
    repaired = session.written or path
    lines = [json.loads(line) for line in repaired.read_bytes().splitlines()]
    names = {line["uuid"]: line for line in lines}
    assert {line["parentUuid"] for line in lines} <= {None, *names}
    assert _only(check(repaired)).exit_code == 0
    loaded, at = list[str](), lines[-1]
    while at is not None:
        loaded.append(at["uuid"])
        at = names.get(at["parentUuid"])
    before = {record["uuid"]: record["parentUuid"] for record in THREADS[case]}
    name = THREADS[case][-1]["uuid"]
    while name in before:
        assert name in loaded or name not in names
        name = before[name]
    text = json.dumps(lines)
    for word in ("go", "continue", "four", "done a", "done b", "words", "after", "three"):
        assert (f'"{word}' in text) or f'"{word}' not in json.dumps(THREADS[case])
