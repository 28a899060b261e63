"""A journal's file: one file after the last close, copied while in use, refused in memory."""

from __future__ import annotations

import logging
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.agents import calls_of
from support.sdks.formats import FORMATS
from support.sdks.turn import end

from continuation import Journal, JournalError, LeaseHeld
from continuation.cli import main
from continuation.journal import look
from continuation.journal.store import JournalStore
from continuation.simulator import Simulator, ToolUse

from .test_resume import ask

CALL = {"id": "c", "name": "Write", "input": {}}


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def alone(path: Path) -> Path:
    """Copy the file, and nothing beside it, to a folder of its own."""
    folder = path.parent / "elsewhere"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return Path(shutil.copy(path, folder / "copy.db"))


# --- one file is the session ----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_closed_file_is_the_whole_session(dialect: str, sim: Simulator, tmp_path: Path) -> None:
    sim.script([end(ToolUse("Write", {"path": "a"}), stop="tool_use"), end("Done. " * 9_000)])
    path = tmp_path / "agent.db"
    with Journal(path, "s") as journal:
        turn, _ = ask(sim, journal, dialect, "sync-stream")
        for call in calls_of(turn):
            journal.call(call, lambda _: "written " * 9_000)
        ask(sim, journal, dialect, "sync-stream", turns=journal.history())
        history = journal.history()
    assert names(tmp_path) == {"agent.db"}
    with Journal(alone(path), "s") as later:
        assert later.history() == history
        assert "Done." in str(history)


_OPEN = """
import sys
from continuation import Journal, LeaseHeld
journal = Journal(sys.argv[1], sys.argv[2])
journal.call({"id": "c", "name": "Write"}, lambda call: "x" * 200_000)
print("open", flush=True)
if sys.stdin.readline().strip() == "close":
    journal.close()
"""


def opener(path: Path, session: str) -> Any:
    """Start a process that opens a session; it closes it or just ends, as it reads on its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OPEN, str(path), session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.parametrize("ends", ["close", "exit", "killed", "together"])
def test_the_last_process_leaves_one_file(ends: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    first, second = opener(path, "a"), opener(path, "b")
    if ends == "together":
        for each in (first, second):
            each.stdin.write("close\n")
            each.stdin.flush()
    else:
        second.communicate("close\n")
        assert names(tmp_path) > {"agent.db"}, "the other one still has it open"
        if ends == "killed":
            first.kill()
    first.communicate("" if ends in {"exit", "together"} else "close\n")
    if ends == "together":
        second.communicate()
    if (
        ends == "killed"
    ):  # the next one to open the file puts it in one piece, even if it looks only
        assert main(["sessions", "list", str(path)]) == 0
    assert names(tmp_path) == {"agent.db"}
    copied = alone(path)
    for session in "ab":
        with Journal(copied, session) as later:
            assert len(later.call(CALL, pytest.fail)) == 200_000


def test_who_was_refused_does_not_hold_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    owner = opener(path, "a")
    with pytest.raises(LeaseHeld):
        Journal(path, "a")
    with pytest.raises(JournalError, match="not found in"):
        Journal(path, "b", readonly=True)
    owner.communicate("close\n")
    assert names(tmp_path) == {"agent.db"}


def test_sessions_beside_each_other_in_one_process(tmp_path: Path) -> None:
    """The last one puts the file in one piece, and who comes later finds it as if it were new."""
    path = tmp_path / "agent.db"
    journal = Journal(path, "s")
    with journal.child("a") as child:
        child.call(CALL, lambda _: "a")
    journal.call(CALL, lambda _: "s")
    with Journal(path, "s", readonly=True) as reader:
        assert reader.resume().kind == "nothing"
    assert names(tmp_path) > {"agent.db"}
    journal.close()
    assert names(tmp_path) == {"agent.db"}
    with Journal(path, "s", readonly=True) as reader:
        assert reader._state.calls["c"].result
    assert names(tmp_path) == {"agent.db"}
    with Journal(path, "s") as journal:
        assert journal.call(CALL, pytest.fail) == "s"
    assert names(tmp_path) == {"agent.db"}


@pytest.mark.parametrize("verb", [["list"], ["show", "s"], ["resume", "s"], ["export", "s"]])
def test_a_command_leaves_no_file(verb: list[str], tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with Journal(path, "s") as journal:
        journal.call(CALL, lambda _: "written")
    assert main(["sessions", verb[0], str(path), *verb[1:]]) == 0
    assert names(tmp_path) == {"agent.db"}


def test_a_file_in_use_is_copied_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, to = tmp_path / "agent.db", tmp_path / "copy.db"
    with Journal(path, "s") as journal:
        journal.call(CALL, lambda _: "written")
        assert main(["sessions", "copy", str(path), str(to)]) == 0
        assert to.stat().st_mode & 0o777 == 0o600
        with Journal(to, "s") as copied:  # nobody owns it, though the original has an owner
            assert copied.call(CALL, pytest.fail) == "written"
        journal.call({**CALL, "id": "d"}, lambda _: "later")
        assert main(["sessions", "copy", str(path), str(to)]) == 2
    assert "the file exists" in capsys.readouterr().err
    with Journal(to, "s") as copied:
        assert list(copied._state.calls) == ["c"]


def test_a_server_is_not_copied(
    databases: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Journal(url := databases(), "s").close()
    assert main(["sessions", "copy", url, str(tmp_path / "copy.db")]) == 2
    assert "pg_dump" in capsys.readouterr().err
    assert names(tmp_path) == set()


_AS_NOBODY = """
import os, sys
from continuation import Journal, JournalError
import continuation.history, continuation.journal.sqlite, continuation.journal.tools
from continuation.registry import dialects
dialects()  # nothing can be imported later
from continuation.journal import look
if os.getuid() == 0:  # permissions do not hold for root
    os.setgid(65534)
    os.setuid(65534)
for act in sys.argv[2:]:
    try:
        if act == "list":
            with look.reading(sys.argv[1]) as db:
                print(*(each.session for each in look.sessions(db)))
        elif act == "read":
            with Journal(sys.argv[1], "s", readonly=True) as journal:
                print(*journal._state.calls)
        else:
            Journal(sys.argv[1], "s")
    except JournalError as error:
        print(error)
"""


def test_a_file_that_cannot_be_written_can_be_read(shm: Path) -> None:
    folder = shm / "media"
    folder.mkdir()
    path = folder / "agent.db"
    with Journal(path, "s") as journal:
        journal.call(CALL, lambda _: "written")
    path.chmod(0o444)
    folder.chmod(0o555)
    shm.chmod(0o755)
    command = [sys.executable, "-c", _AS_NOBODY, str(path), "list", "read", "write"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    folder.chmod(0o755)
    listed, read, refused = ran.stdout.splitlines()
    assert (listed, read) == ("s", "c")
    assert "read-only" in refused
    assert str(folder) in refused
    assert names(folder) == {"agent.db"}


def test_a_log_that_cannot_be_read_is_not_passed_over(shm: Path) -> None:
    folder = shm / "media"
    folder.mkdir()
    owner = opener(folder / "agent.db", "s")
    owner.kill()
    owner.communicate()
    (folder / "agent.db-shm").unlink()
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    shm.chmod(0o755)
    command = [sys.executable, "-c", _AS_NOBODY, str(folder / "agent.db"), "list", "read"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    folder.chmod(0o755)
    for line in ran.stdout.splitlines():
        assert "cannot be opened" in line
        assert "agent.db-wal" in line


# --- what keeps nothing is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["", ":memory:", "file::memory:?cache=shared", "file:a.db?mode=memory", "a\0b"]
)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_target_that_keeps_nothing_is_refused(
    target: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = kind(target)
    refusal = JournalError if str(given) == "." else ValueError
    with pytest.raises(refusal, match=r"the path of a file|name a file"):
        Journal(given, "s")
    with pytest.raises((ValueError, JournalError)), look.reading(given):
        pass
    assert names(tmp_path) == set()


def test_a_place_that_takes_no_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="it is a folder; name a file"):
        Journal(tmp_path, "s")
    with pytest.raises(JournalError, match="it is a device; name a file"):
        Journal("/dev/null", "s")
    assert names(tmp_path) == set()


def test_strange_names_are_the_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a?mode=memory", "a#b%20c", "ü \udcff"):
        with Journal(tmp_path / name, "s") as journal:
            journal.call(CALL, lambda _: "written")
        assert names(tmp_path) == {name}
        (tmp_path / name).unlink()
    monkeypatch.chdir(tmp_path)
    journal = Journal("agent.db", "s")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")  # the file stays the one that was opened
    journal.call(CALL, lambda _: "written")
    journal.close()
    assert names(tmp_path) == {"sub", "agent.db"}
    assert names(tmp_path / "sub") == set()


# --- why it cannot be written ---------------------------------------------------------------------


@contextmanager
def grown(path: Path) -> Iterator[None]:
    """Let no file of this process grow."""
    JournalStore.of(path).flush()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = [each.stat().st_size for each in path.parent.glob("agent.db*")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(filter(None, sizes)), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small(folder: Path) -> Iterator[None]:
    """Mount a file system of 256 KiB on a folder, if this user may."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False,
        capture_output=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("this user may not mount file systems")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def refused(journal: Journal, log: pytest.LogCaptureFixture, *words: str) -> None:
    """A tool is refused, and a warning is logged, with these words, and no class of exception."""
    with pytest.raises(JournalError, match="so the tool is refused") as error:
        journal.call(CALL, pytest.fail)
    assert journal.fault is not None
    warning = next(each for each in log.messages if "journal not durable" in each)
    for message in (str(error.value), warning, journal.fault[1]):
        assert all(word in message for word in words), message
        assert "Error" not in message


def test_a_file_that_may_not_grow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "agent.db"
    with Journal(path, "s") as journal:
        with grown(path):
            refused(journal, caplog, "may not grow beyond", "ulimit -f")
        assert journal.call(CALL, lambda _: "written") == "written"


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small(tmp_path):
        path = tmp_path / "agent.db"
        with Journal(path, "s") as journal:
            journal.call({**CALL, "id": "a"}, lambda _: "written")
            filler = tmp_path / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            refused(journal, caplog, "the disk is full", "free some space", str(tmp_path))
            filler.unlink()
            assert journal.call(CALL, lambda _: "written") == "written"


def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    with small(tmp_path):
        path = tmp_path / "agent.db"
        with Journal(path, "s") as journal:
            journal.call(CALL, lambda _: "written")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        with pytest.raises(JournalError, match=r"read-only; name a file elsewhere"):
            Journal(path, "other")
        with Journal(path, "s", readonly=True) as reader:
            assert reader._state.calls["c"].result
        subprocess.run(["mount", "-o", "remount,rw", tmp_path], check=True)
        with Journal(path, "s") as journal:
            assert journal.call(CALL, pytest.fail) == "written"


def test_a_locked_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("continuation.stores.sqlite.PATIENCE", 0.05)
    path = tmp_path / "agent.db"
    with Journal(path, "s") as journal:
        holder = JournalStore.of(path).connect()
        holder.execute("BEGIN IMMEDIATE")
        refused(journal, caplog, "kept it locked", "end that process")
        holder.close()
        assert journal.call(CALL, lambda _: "written") == "written"


def test_another_owner_is_said_in_the_log(
    store: Path | str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(store, "s")
    with Journal(store, "s", take_over=True):
        with pytest.raises(JournalError, match="another process owns this session now"):
            journal.call(CALL, pytest.fail)
        warnings = [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]
        assert [each for each in warnings if "another process owns this session now" in each]
        assert not [each for each in warnings if "not durable" in each or "Fenced" in each]


def test_what_a_codec_raises_is_not_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def encode(self, data: bytes) -> bytes:
            raise ValueError(data)

        decode = encode

    with Journal(tmp_path / "agent.db", "s", codec=Broken()) as journal:
        assert journal.call(CALL, lambda _: "a secret") == "a secret"
        assert journal.fault == ("ValueError", "its content could not be encoded (ValueError)")
    assert "secret" not in caplog.text
    assert "could not be encoded" in caplog.text
