"""Kills a process that the user has named, so that the user sees what a kill leaves behind."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen
from typing import Any

logger = logging.getLogger("continuation")

Victim = Popen[Any] | int | Callable[[], object] | None


def kill(victim: Victim) -> None:
    """Kill the process. If there is none, or if it is this process, log what to set."""
    if callable(victim):
        victim()
        return
    pid = victim.pid if isinstance(victim, Popen) else victim
    if pid is None or pid == os.getpid():
        logger.error(
            "no process was killed, because %s: set the simulator's `victim` to the `Popen` or pid"
            " of your agent's process, or to a function that kills it",
            "none is set" if pid is None else "it is this process",
        )
        return
    with suppress(ProcessLookupError):
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
