"""A gateway in operation: how it is stopped, how its configuration changes, what it refuses."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.gateways import KEYS, MESSAGES, URLS, Served, ask, process, serving, toml
from support.sdks.turn import cut, end

from continuation.gateway import server as _server
from continuation.simulator import Simulator

PLACE = "/anthropic" + URLS["anthropic-messages"]
STREAMED = {**MESSAGES, "stream": True}


@contextlib.contextmanager
def stream(url: str) -> Iterator[Iterator[str]]:
    """Ask for a streamed turn; its pieces, once it has begun."""
    with httpx2.stream("POST", url + PLACE, json=STREAMED, headers=KEYS, timeout=60) as answer:
        yield answer.iter_text()


def readiness(url: str) -> int:
    return httpx2.get(f"{url}/readyz").status_code


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end_of_patience = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_of_patience
        time.sleep(0.02)


def outcome(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "turns.log").read_text().splitlines()]


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_is_told_at_once_and_what_has_begun_is_ended(tmp_path: Path) -> None:
    gate = threading.Event()
    with Simulator() as sim, process(tmp_path, toml(sim.url)) as (url, running):
        sim.script([cut("One, "), end("two.", gate=gate, gate_at=2), end("New.")])
        with stream(url) as pieces:
            whole = next(pieces)
            assert readiness(url) == 200
            running.send_signal(signal.SIGTERM)
            told = time.monotonic()
            until(lambda: readiness(url) == 503, 2)
            assert time.monotonic() - told < 1
            # Whoever has not heard of it yet is served.
            new = httpx2.post(url + PLACE, json=MESSAGES, headers=KEYS, timeout=30)
            assert new.status_code == 200
            assert not _refuses(url)
            until(lambda: _refuses(url))
            assert 4 < time.monotonic() - told < 8
            gate.set()
            whole += "".join(pieces)
        assert running.wait(20) == 0
    assert whole.count("event: message_stop") == 1
    assert sorted(turn["outcome"] for turn in outcome(tmp_path)) == ["complete", "healed"]


def _refuses(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as line:
        return line.connect_ex((host, int(port))) != 0


@pytest.mark.slow
def test_no_attempt_begins_that_could_not_end(tmp_path: Path) -> None:
    """With less than 30 s to go an answer that is cut is ended honestly."""
    gate = threading.Event()
    text = toml(sim_url := "http://127.0.0.1:9", "[gateway]\ndrain_seconds = 20\n")
    with Simulator() as sim, process(tmp_path, text.replace(sim_url, sim.url)) as (url, running):
        sim.script([cut("One, ", gate=gate, gate_at=4, deltas=3), end("two.")])
        with stream(url) as pieces:
            whole = next(pieces)
            running.send_signal(signal.SIGTERM)
            until(lambda: readiness(url) == 503)
            gate.set()
            whole += "".join(pieces)
        assert running.wait(20) == 0
        assert len(sim.posts) == 1
    assert '"stop_reason":"max_tokens"' in whole.replace(" ", "")
    [turn] = outcome(tmp_path)
    assert (turn["outcome"], turn["reason"]) == ("partial", "the process is about to end")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("again", [False, True], ids=["time is up", "told twice"])
def test_what_does_not_end_is_ended(tmp_path: Path, stop: signal.Signals, again: bool) -> None:
    gate = threading.Event()
    more = "[gateway]\ndrain_seconds = 1\n" if not again else ""
    with Simulator() as sim, process(tmp_path, toml(sim.url, more)) as (url, running):
        sim.script([end("One, two.", gate=gate, gate_at=4, deltas=3)])
        with stream(url) as pieces:
            assert next(pieces)
            running.send_signal(stop)
            if stop is signal.SIGTERM:
                until(lambda: readiness(url) == 503)
            else:
                until(lambda: _refuses(url))
            if again:
                running.send_signal(stop)
            begun = time.monotonic()
            with contextlib.suppress(httpx2.TransportError):
                assert "message_stop" not in "".join(pieces)
            assert running.wait(15) in (0, -signal.SIGTERM)
            assert time.monotonic() - begun < (3 if again else 10)
        gate.set()
        assert running.stderr is not None
        said = running.stderr.read()
    if (stop, again) != (signal.SIGTERM, True):  # told twice before it was to end anything
        seconds = 600 if again else 1
        assert f"requests=1 seconds={seconds}" in said
    assert "Traceback" not in said
    assert "Unclosed" not in said


# --- another configuration ------------------------------------------------------------------------


@pytest.mark.slow
def test_sighup_reads_the_configuration_again_and_a_bad_one_changes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gateway.toml"
    with Simulator() as sim, process(tmp_path, toml(sim.url)) as (url, running):
        more = f'\n[upstreams.mine]\nbase_url = "{sim.url}"\ndialect = "anthropic"\n'

        def known(name: str) -> bool:
            place = f"{url}/{name}{URLS['anthropic-messages']}"
            sim.script([end("Whole.")])
            return httpx2.post(place, json=MESSAGES, headers=KEYS).status_code == 200

        assert not known("mine")
        path.write_text(toml(sim.url, more))
        running.send_signal(signal.SIGHUP)
        until(lambda: known("mine"))
        path.write_text(toml(sim.url, "\n[gateway]\nping_seconds = 'often'\n"))
        running.send_signal(signal.SIGHUP)
        told = _line(running, "configuration unchanged")
        assert "ping_seconds = 'often': must be a number" in told
        assert known("mine")
        path.unlink()
        running.send_signal(signal.SIGHUP)
        _line(running, "configuration unchanged")
        assert known("mine")


@pytest.mark.slow
def test_what_stands_on_the_command_line_holds_when_the_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    options = "--set", "enabled=false"
    with Simulator() as sim, process(tmp_path, toml(sim.url), *options) as (url, running):
        place = f"{url}/mine{URLS['anthropic-messages']}"
        more = f'\n[upstreams.mine]\nbase_url = "{sim.url}"\ndialect = "anthropic"\n'

        def asked() -> httpx2.Response:
            sim.script([cut("Half. ")])
            return httpx2.post(place, json=MESSAGES, headers=KEYS)

        assert asked().status_code != 200
        path.write_text(toml(sim.url, more))
        running.send_signal(signal.SIGHUP)
        until(lambda: asked().status_code == 200)
        sim.reset()
        assert asked().json()["stop_reason"] == "max_tokens"
        assert len(sim.posts) == 1


def _line(running: subprocess.Popen[str], said: str) -> str:
    assert running.stderr is not None
    for line in running.stderr:
        if said in line:
            return line
    raise AssertionError(said)


# --- limits ---------------------------------------------------------------------------------------


@pytest.fixture
def narrow(sim: Simulator, tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, sim.url, "[gateway]\nmax_streams = 1\n") as served:
        yield served


@pytest.mark.parametrize("path", [PLACE, "/openai/v1/responses", "/openai/v1/files"])
def test_more_than_there_is_room_for_are_told_to_come_back(
    narrow: Served, sim: Simulator, path: str
) -> None:
    gate = threading.Event()
    sim.script([end("One, two.", gate=gate, gate_at=4, deltas=3)])
    with stream(narrow.url) as pieces:
        assert next(pieces)
        refused = httpx2.post(narrow.url + path, json=MESSAGES, headers=KEYS)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "max_streams" in refused.json()["error"]["message"]
        assert readiness(narrow.url) == 200
        gate.set()
        assert "message_stop" in "".join(pieces)
    until(lambda: narrow.gateway.streams == 0)
    sim.script([end("Whole.")])
    assert httpx2.post(narrow.url + PLACE, json=MESSAGES, headers=KEYS).status_code == 200


def _answer(url: str, *pieces: bytes, pause: float = 0) -> bytes:
    """Send bytes; return all that comes until the other side hangs up."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        with contextlib.suppress(OSError):
            for piece in pieces:
                line.sendall(piece)
                time.sleep(pause)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := line.recv(65536):
                said += piece
        return said


@pytest.mark.parametrize("first", [b"", b"POST /anthropic/v1/messages HTTP/1.1\r\nhost: 127.0."])
def test_a_head_that_does_not_come_is_not_waited_for(
    narrow: Served, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(_server, "_HEAD_SECONDS", 0.2)
    answer = _answer(narrow.url, *[first] if first else [])
    assert answer.startswith(b"HTTP/1.1 408 ") if first else answer == b""


def test_a_head_without_an_end_is_refused(narrow: Served) -> None:
    lines = (b"x-header-%d: %b\r\n" % (n, b"x" * 8000) for n in range(1000))
    answer = _answer(narrow.url, b"POST /anthropic/v1/messages HTTP/1.1\r\n", *lines)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("path", [PLACE, "/anthropic/v1/unknown"])
def test_a_body_that_does_not_come_is_not_waited_for(narrow: Served, path: str) -> None:
    narrow.gateway.room.table = replace(narrow.gateway.table, body_seconds=0.2)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n".encode()
    answer = ask(narrow.url, [head, b'{"model"'])
    assert answer.split(b" ")[1] == b"408"
    until(lambda: narrow.gateway.streams == 0)
