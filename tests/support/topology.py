"""The topology of `deploy/compose.yaml`, as processes: nginx, two gateways, PostgreSQL."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gateways import process, toml
from support.postgres import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
needs_nginx = pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed")
_OWN = "pid {here}/pid; daemon off;\n"
_PATHS = "".join(
    f"  {name}_temp_path {{here}}/{name};\n"
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


def servers() -> list[str]:
    """Return the gateways that nginx knows of."""
    return re.findall(r"(?m)^\s*server (\S+:\d+)", (DEPLOY / "nginx.conf").read_text())


@contextlib.contextmanager
def nginx(folder: Path, ports: list[int]) -> Iterator[str]:
    """Run nginx with the configuration of `deploy/` before gateways on these ports; yield a URL."""
    text, port = (DEPLOY / "nginx.conf").read_text(), free_port()
    for name, place in zip(servers(), ports, strict=True):
        text = text.replace(name, f"127.0.0.1:{place}")
    text = text.replace("listen 8787", f"listen 127.0.0.1:{port}")
    text = text.replace("http {\n", f"http {{\n{_PATHS.format(here=folder)}")
    path = folder / "nginx.conf"
    path.write_text(_OWN.format(here=folder) + text)
    command = [NGINX, "-p", str(folder), "-c", str(path), "-e", str(folder / "nginx.log")]
    running = subprocess.Popen(command)
    try:
        for _ in range(500):
            with socket.socket() as line:
                if line.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        assert running.wait(10) == 0


class Replica:
    """One gateway, which can be killed, stopped and started again on its port."""

    def __init__(self, folder: Path, upstream: str, store: str, more: str = "") -> None:
        folder.mkdir()
        self.port = free_port()
        self._folder = folder
        told = (DEPLOY / "continuation.toml").read_text()
        told = re.sub(r'"postgresql://.*?"', f'"{store}"', told)
        self._text = toml(upstream, f"\n{told}{more}")
        self._stack = contextlib.ExitStack()
        self.process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Replica:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self) -> None:
        self._stack.close()
        running = process(self._folder, self._text, "--port", str(self.port))
        _, self.process = self._stack.enter_context(running)
