"""One thread for all streams of a process, which ends those that are silent for too long.

A thread that waits for bytes cannot look at the clock, and httpcore reads the timeout of an HTTP/1
body once, before its first chunk, so it cannot follow the phases of an answer. A timer for each
stream would be a thread for each, or a cancel scope for each chunk.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import weakref
from typing import Final, Protocol

logger = logging.getLogger("continuation")

TICK: Final = 5.0
"""Seconds between two looks at the streams."""


class Watched(Protocol):
    """A stream that is being read."""

    def check_silence(self) -> None: ...


class Watchdog:
    """Looks at streams from time to time; its thread runs only while there are any."""

    def __init__(self, tick: float = TICK) -> None:
        self.tick = tick
        self._lock = threading.Lock()
        self._streams = weakref.WeakSet[Watched]()
        self._thread: threading.Thread | None = None

    def add(self, stream: Watched) -> None:
        """Look at a stream until it is removed or collected."""
        with self._lock:
            self._streams.add(stream)
            # After a fork the thread of the parent is not alive here.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="continuation-watchdog", daemon=True
                )
                self._thread.start()

    def remove(self, stream: Watched) -> None:
        """Look at a stream no longer."""
        with self._lock:
            self._streams.discard(stream)

    def _work(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # A signal that is delivered to this thread would not end a read of the main thread:
            # Ctrl-C would wait for the server.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            before = time.monotonic()
            time.sleep(self.tick)
            # A process that was stopped has not read what arrived meanwhile: let it read first.
            if time.monotonic() - before < self.tick + TICK and not self._look():
                return

    def _look(self) -> bool:
        """Look at each stream; return whether there are any."""
        with self._lock:
            streams = [*self._streams]
            if not streams:
                self._thread = None
                return False
        for stream in streams:
            try:
                stream.check_silence()
            except Exception:
                logger.exception("internal error: a silent stream was not ended")
        return True


WATCHDOG: Final = Watchdog()
