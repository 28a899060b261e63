"""Turns Python's garbage collector off while large JSON is decoded or a history is parsed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def resting() -> Generator[None]:
    """Disable the garbage collector inside the block, which should take tenths of a second.

    The collector's runs would take as long as the work itself and stop all threads. Decoded JSON
    has no cycles, so they would find nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
