"""Behind nginx, which hangs up on who is silent, answers that are silent for longer come whole.

With `REAL_TIME` set nginx waits 12 s, the upstream is silent for 60, and a pulse comes each 10.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateways import CALL, Served, serving
from support.sdks.formats import MAKES, request
from support.sdks.turn import How, cut, end, play

from continuation.simulator import Simulator

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed"),
]
REAL = "REAL_TIME" in os.environ
PATIENCE, SILENCE = (12, 60) if REAL else (1, 2)
PINGS = "" if REAL else "[gateway]\nping_seconds = 0.3\n"
CONF = """
daemon off; worker_processes 1; pid {here}/pid; error_log {here}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {here}/b; proxy_temp_path {here}/p;
  fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {url}; proxy_http_version 1.1; proxy_buffering off;
      proxy_read_timeout {patience}s;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def behind(provider: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    here = tmp_path_factory.mktemp("nginx")
    more = f"{PINGS}[defaults]\nremember_limit = false\n"
    with serving(here, provider.url, more) as served:
        yield from in_front(here, served)


def in_front(here: Path, served: Served) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = here / "nginx.conf"
    conf.write_text(CONF.format(here=here, port=port, url=served.url, patience=PATIENCE))
    running = subprocess.Popen([NGINX, "-p", str(here), "-c", str(conf), "-e", str(here / "e")])
    for _ in range(500):
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.01)
    yield Served(f"http://127.0.0.1:{port}", served.gateway)
    running.terminate()
    assert running.wait(10) == 0


@pytest.mark.parametrize(
    ("dialect", "at"), [("gemini", 1), ("anthropic-messages", 3), ("openai-responses", 12)]
)
def test_silence_in_a_stream(behind: Served, sim: Simulator, dialect: str, at: int) -> None:
    """Before an event of its text, or of a call that is held back."""
    gate = threading.Event()
    sim.script([end("One, two, three.", CALL, stop="tool_use", gate=gate, gate_at=at, deltas=8)])
    threading.Timer(SILENCE, gate.set).start()
    ran = play(MAKES[dialect](), "sync-stream", behind.of(dialect), request(dialect, 300, {}), None)
    assert (ran.text, ran.tool_calls) == ("One, two, three.", [("Write", CALL.arguments)])


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
def test_another_attempt_that_takes_long(behind: Served, sim: Simulator, how: How) -> None:
    """Escalated without streaming, or gone on with in a stream."""
    said = "One, two." if how == "sync" else "two."
    sim.script([cut("One, "), end(said, delay=SILENCE)])
    dialect = "anthropic-messages"
    ran = play(MAKES[dialect](), how, behind.of(dialect), request(dialect, 300, {}), None)
    assert (ran.text, len(sim.posts)) == ("One, two.", 2)
