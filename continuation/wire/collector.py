"""Turns Python's garbage collector off while large JSON is decoded or a history is parsed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def resting() -> Generator[None]:
    """Disable the garbage collector inside the block, which should take tenths of a second.

    Its runs take as long as the work itself and stop all threads; decoded JSON has no cycles.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
