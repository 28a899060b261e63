"""A thread that ends the streams of this process that are silent for too long.

A thread that waits for bytes cannot look at the clock. httpcore's read timeout does not help: it is
read once, before the first chunk of an HTTP/1 body, but the allowed silence changes with the phases
of an answer. A timer for each stream would need a thread for each stream, or a cancel scope for
each chunk.
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
"""Seconds between two checks of the streams."""


class Watched(Protocol):
    """A stream that is being read."""

    def check_silence(self) -> None: ...


class Watchdog:
    """Checks streams every few seconds. Its thread runs only while there are streams."""

    def __init__(self, tick: float = TICK) -> None:
        self.tick = tick
        self._lock = threading.Lock()
        self._streams = weakref.WeakSet[Watched]()
        self._thread: threading.Thread | None = None

    def add(self, stream: Watched) -> None:
        """Check a stream until it is removed or garbage-collected."""
        with self._lock:
            self._streams.add(stream)
            # After a fork, the parent's thread is not alive in this process.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="continuation-watchdog", daemon=True
                )
                self._thread.start()

    def remove(self, stream: Watched) -> None:
        """Stop checking a stream."""
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
            # A process that was suspended has not read what arrived meanwhile: let it read first.
            if time.monotonic() - before < self.tick + TICK and not self._look():
                return

    def _look(self) -> bool:
        """Check each stream; return whether there are any."""
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
