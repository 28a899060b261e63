"""Chromium without a window, driven by its own protocol (chromedevtools.github.io)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium")


class Tab:
    """One page."""

    def __init__(self, line: ClientConnection) -> None:
        self._line = line
        self._number = 0
        self.complaints: list[str] = []
        """Messages of its console: errors of scripts, violations of a policy."""

    def do(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        self._number += 1
        self._line.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._line.recv(timeout=30))
            if told.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.complaints.append(json.dumps(told["params"]))
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        told = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true in the page."""
        late = monotonic() + 20
        while not (found := self.value(expression)):
            assert monotonic() < late, (expression, self.value("document.body.innerText"))
            sleep(0.05)
        return found

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        what = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.do("Input.dispatchKeyEvent", type="keyDown", **what, **text)
        self.do("Input.dispatchKeyEvent", type="keyUp", **what)

    def size(self, width: int, height: int) -> None:
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def picture(self, path: Path) -> None:
        data = self.do("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Tab]:
    """Start it; it connects only to the pages that it is sent to."""
    assert CHROMIUM is not None
    quiet = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", *quiet]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder / 'chromium'}"]
    running = subprocess.Popen([*command, "about:blank"], stderr=subprocess.DEVNULL)
    try:
        where, late = folder / "chromium" / "DevToolsActivePort", monotonic() + 30
        while not (where.exists() and where.read_text().count("\n")):
            assert monotonic() < late
            sleep(0.05)
        told = httpx2.get(f"http://127.0.0.1:{where.read_text().split()[0]}/json").json()
        (page,) = [target for target in told if target["type"] == "page"]
        with connect(page["webSocketDebuggerUrl"], max_size=None) as line:
            tab = Tab(line)
            for domain in ("Page", "Runtime", "Log"):
                tab.do(f"{domain}.enable")
            yield tab
    finally:
        running.terminate()
        running.wait(30)
