"""Raises Ctrl-C again if it arrived inside C code that ignores exceptions."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Generator
from typing import Any

_PAUSE = 0.05
"""Seconds until the interrupt is raised again. The C code has returned by then."""
_waiting: list[threading.Timer] = []
"""The timers that will raise an interrupt again."""


@contextlib.contextmanager
def repeat_ignored_interrupts() -> Generator[None]:
    """Raise `KeyboardInterrupt` again if Python reports that it was ignored.

    SDKs build each event of a stream in pydantic-core. That calls Python code and ignores what the
    code raises, so Python passes it to `sys.unraisablehook`. About one Ctrl-C in eight was lost
    this way while a stream arrived, and the command then waited for the server.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            timer = threading.Timer(_PAUSE, _interrupt)
            timer.daemon = True
            _waiting.append(timer)
            timer.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        caught()


def caught() -> None:
    """Do not raise again the interrupts that were ignored so far, because the work has ended.

    An ignored Ctrl-C can still end the work, for example if it closes a stream. If it were raised
    again, the command would end without its summary.
    """
    while _waiting:
        _waiting.pop().cancel()


def _interrupt() -> None:
    main = threading.main_thread()
    if hasattr(signal, "pthread_kill") and main.ident is not None:
        signal.pthread_kill(main.ident, signal.SIGINT)  # this also ends a read that waits
    else:
        _thread.interrupt_main()
