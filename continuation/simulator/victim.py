"""Kills the client's process, so that its user can see what a kill leaves behind."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

logger = logging.getLogger("continuation")

Victim = Popen[Any] | int | Callable[[], object] | None


def kill(victim: Victim, connection: socket.socket) -> None:
    """Kill the process that the user named, or else the one at the other end of a connection."""
    if callable(victim):
        victim()
        return
    pid = victim.pid if isinstance(victim, Popen) else victim or _asker(connection)
    if pid is None or pid == os.getpid():
        why = "it is this process" if pid else "its process is unknown"
        logger.error("no process was killed: %s; set the simulator's `victim`", why)
        return
    with suppress(ProcessLookupError):
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def _asker(connection: socket.socket) -> int | None:
    """Return the pid of the process at the other end; None: unknown (not Linux, or no rights)."""
    ends = [connection.getpeername()[1], connection.getsockname()[1]]
    with suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(end.rpartition(":")[2], 16) for end in fields[1:3]] == ends:
                return _holder(f"socket:[{fields[9]}]")
    return None


def _holder(link: str) -> int | None:
    """Return the pid of the process that has a file open; None: none has, or it may not be seen."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            for file in (process / "fd").iterdir() if process.name.isdecimal() else ():
                with suppress(FileNotFoundError):
                    if str(file.readlink()) == link:
                        return int(process.name)
    return None
