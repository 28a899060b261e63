"""`continuation serve`: a process on a port, and what it refuses to start with."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx2
import pytest
from support.gateways import KEYS, MESSAGES, URLS, process, toml
from support.sdks.turn import cut, end

from continuation.cli import main
from continuation.simulator import Simulator


def test_other_machines_are_not_served_without_a_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTINUATION_TOKEN", raising=False)
    assert main(["serve", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "set CONTINUATION_TOKEN, or add --insecure" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["192.0.2.1", "local host"])
def test_a_host_that_is_not_this_machine_is_not_told_to_choose_another_port(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", host, "--port", "0", "--insecure"]) == 2
    assert capsys.readouterr().err.endswith("; choose an address of this machine\n")


@pytest.mark.slow
def test_it_tells_the_base_urls_as_clients_are_to_have_them(tmp_path: Path) -> None:
    more = "[upstreams.mine]\nbase_url = 'http://h/api/v3'\ndialect = 'openai'\n"
    with process(tmp_path, toml("http://up", more)) as (url, running):
        assert running.stderr is not None
        told = [running.stderr.readline().split() for _ in range(4)]
    assert told == [
        [f"{url}/anthropic", "http://up"],
        [f"{url}/openai/v1", "http://up/v1"],
        [f"{url}/gemini", "http://up"],
        [f"{url}/mine", "http://h/api/v3"],
    ]


def test_what_nobody_could_catch_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[defaults]\non_failure = 'raise'\n")
    assert main(["serve", "--port", "0", "--config", str(path)]) == 2
    assert "no program behind a gateway can catch" in capsys.readouterr().err


@pytest.mark.slow
def test_it_serves_and_finishes_what_it_has_begun(tmp_path: Path) -> None:
    """A stream goes on behind the signal to stop, and one line in the log tells of the turn."""
    with Simulator() as sim, process(tmp_path, toml(sim.url)) as (url, running):
        sim.script([cut("One, ", slow=0.05), end("two.", slow=0.05)])
        asked = {**MESSAGES, "stream": True}
        place = f"{url}/anthropic{URLS['anthropic-messages']}"
        with httpx2.stream("POST", place, json=asked, headers=KEYS, timeout=60) as answer:
            pieces = answer.iter_text()
            whole = next(pieces)
            running.send_signal(signal.SIGINT)
            whole += "".join(pieces)
        assert "server" not in answer.headers
        assert running.wait(30) == 0
    assert whole.count("event: message_stop") == 1
    (line,) = (tmp_path / "turns.log").read_text().splitlines()
    assert json.loads(line)["outcome"] == "healed"
