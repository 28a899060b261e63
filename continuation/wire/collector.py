"""Python's garbage collector, while much JSON is read or a history taken apart."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def resting() -> Generator[None]:
    """Let the collector rest, for tenths of a second: what is made meanwhile holds no cycles.

    To look at all of it again and again takes as long as the work itself, and no other thread can
    run while it looks.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
