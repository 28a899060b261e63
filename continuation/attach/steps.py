"""One generator for synchronous and asynchronous code: it says what is done, not how it waits."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

Steps = Generator[Callable[[], Any], Any, Any]
"""Yields a function without arguments, and is sent its result; in asynchronous code the function
returns an awaitable of it. What the function raises is raised where it was yielded."""


def called(steps: Steps) -> Any:
    """Drive steps whose functions return their results; return what the steps return."""
    resume: Callable[[], Any] = partial(steps.send, None)
    stopped: StopIteration | None = None
    try:
        while True:
            try:
                step = resume()
            except StopIteration as end:
                return end.value
            except RuntimeError as error:
                # A generator turns the `StopIteration` of such a function into this (PEP 479).
                if stopped is None or error.__cause__ is not stopped:
                    raise
                raise stopped from stopped.__cause__
            try:
                resume = partial(steps.send, step())
            except BaseException as error:
                stopped = error if isinstance(error, StopIteration) else None
                resume = partial(steps.throw, error)
    finally:
        del resume, stopped  # else an error would keep this frame alive, and the frame the error


def at_once(function: Callable[[], Any]) -> Any:
    """Call a function that takes long, where no others would wait."""
    return function()


async def awaited(steps: Steps) -> Any:
    """Drive steps whose functions return awaitables; return what the steps return."""
    resume: Callable[[], Any] = partial(steps.send, None)
    try:
        while True:
            try:
                step = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = partial(steps.send, await step())
            except BaseException as error:
                resume = partial(steps.throw, error)
    finally:
        del resume  # else an error would keep this frame alive, and the frame the error
