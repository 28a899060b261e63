"""One generator for synchronous and asynchronous code: it says what is done, not how it waits."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

Steps = Generator[Any, Any, Any]
"""Yields what a call returned, an awaitable in asynchronous code; is sent its result."""


def called(steps: Steps) -> Any:
    """Drive steps whose calls return their results; return what the steps return."""
    value = None
    while True:
        try:
            value = steps.send(value)
        except StopIteration as end:
            return end.value


async def awaited(steps: Steps) -> Any:
    """Drive steps whose calls return awaitables; an error is raised where the step was yielded."""
    resume: Callable[[], Any] = partial(steps.send, None)
    try:
        while True:
            try:
                step = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = partial(steps.send, await step)
            except BaseException as error:
                resume = partial(steps.throw, error)
    finally:
        del resume  # else an error would keep this frame alive, and the frame the error
