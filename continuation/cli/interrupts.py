"""Raise Ctrl-C again if it arrived inside C code that ignores exceptions."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Generator
from typing import Any

_PAUSE = 0.05
"""Seconds until the interrupt is raised again: by then the C code has returned."""
_waiting: list[threading.Timer] = []
"""What will raise an interrupt again."""


@contextlib.contextmanager
def repeat_ignored_interrupts() -> Generator[None]:
    """Raise `KeyboardInterrupt` again whenever Python reports it as ignored.

    An SDK builds each event of a stream in pydantic-core, which calls back into Python and drops
    what that raises: Python hands it to `sys.unraisablehook`. About one Ctrl-C in eight was lost
    like that while a stream arrived, and the command then waited for the server.
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
    """Raise no interrupt again that was ignored so far: another one has ended the work.

    One Ctrl-C can be ignored and still end the work, for example if it closes a stream. Raised
    again, it would end the command without its last words.
    """
    while _waiting:
        _waiting.pop().cancel()


def _interrupt() -> None:
    main = threading.main_thread()
    if hasattr(signal, "pthread_kill") and main.ident is not None:
        signal.pthread_kill(main.ident, signal.SIGINT)  # also ends a read that waits
    else:
        _thread.interrupt_main()
