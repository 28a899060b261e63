"""Behind nginx, which hangs up on who is silent for a second, answers that take more come whole."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateways import CALL, Served
from support.sdks.formats import MAKES, request
from support.sdks.turn import How, cut, end, play

from continuation.simulator import Simulator

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed"),
]
CONF = """
daemon off; worker_processes 1; pid {here}/pid; error_log {here}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {here}/b; proxy_temp_path {here}/p;
  fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {url}; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 1s;
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def behind(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    here = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = here / "nginx.conf"
    conf.write_text(CONF.format(here=here, port=port, url=served.url))
    running = subprocess.Popen([NGINX, "-p", str(here), "-c", str(conf), "-e", str(here / "e")])
    for _ in range(500):
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.01)
    yield Served(f"http://127.0.0.1:{port}", served.gateway)
    running.terminate()
    assert running.wait(10) == 0


SILENT: dict[str, Any] = {"slow": 0.6, "deltas": 400}


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-responses"])
def test_a_held_call_that_takes_long(behind: Served, sim: Simulator, dialect: str) -> None:
    """Of a stream nothing is shown for longer than nginx waits."""
    sim.script([end(CALL, stop="tool_use", **SILENT)])
    asked = request(dialect, 300, {})
    ran = play(MAKES[dialect](), "sync-stream", behind.of(dialect), asked, None)
    assert ran.tool_calls == [("Write", CALL.arguments)]


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
def test_another_attempt_that_takes_long(behind: Served, sim: Simulator, how: How) -> None:
    """Escalated without streaming, or gone on with in a stream."""
    said = "One, two." if how == "sync" else "two."
    sim.script([cut("One, "), end(said, delay=2.5)])
    dialect = "anthropic-messages"
    ran = play(MAKES[dialect](), how, behind.of(dialect), request(dialect, 300, {}), None)
    assert (ran.text, len(sim.posts)) == ("One, two.", 2)
