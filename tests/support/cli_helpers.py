"""What the tests of the command line share: a clean environment, processes and a terminal."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from continuation.cli import main

KEY = "sk-ant-this-is-a-secret-0123456789"
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
MODEL = "claude-opus-5"
TEXT = "".join(f"{n}: Zeile mit Umlaut ü, 文字 und 🙂, geht weiter.\n" for n in range(400))
ESCAPE = "\x1b"
_THEIRS = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "CONTINUATION_")


def clean(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Remove the environment's keys, proxies and colour settings; set the tests' key."""
    for name in [*os.environ]:
        if name.startswith(_THEIRS) or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    for name in KEYS:
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the command as a process with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "continuation", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def arrived(process: subprocess.Popen[bytes], count: int) -> bytes:
    """Wait for so many bytes of output, and return all there are, read without a buffer."""
    assert process.stdout is not None
    found = b""
    while len(found) < count:
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, f"the output ended after {len(found)} of {count} bytes"
        found += piece
    return found


def interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Send Ctrl-C, and return the rest of the process's output."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()  # or leaving its context waits for it
        raise


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that must come true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 60 s"
        time.sleep(0.01)


class Terminal:
    """A pseudo-terminal in place of standard output and standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        self._patch = monkeypatch
        self._names = names
        self._seen = io.BytesIO()

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the command in this process; return its status and what the terminal got."""
        master, slave = pty.openpty()
        reader = threading.Thread(target=self._read, args=(master,))
        reader.start()
        with self._patch.context() as patch, os.fdopen(slave, "w") as stream:
            for name in self._names:
                patch.setattr(sys, name, stream)
            status = main(arguments)
        reader.join()
        os.close(master)
        return status, self._seen.getvalue().decode()

    def _read(self, master: int) -> None:
        try:
            while data := os.read(master, 65536):
                self._seen.write(data)
        except OSError:  # on Linux: the other end is closed
            return
