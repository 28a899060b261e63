"""Lets one generator serve synchronous and asynchronous code: it does not know how to wait."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

Steps = Generator[Callable[[], Any], Any, Any]
"""A generator that yields functions without arguments. `yield` returns the result of the function,
or raises what the function raises. In asynchronous code the function returns an awaitable."""


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
                # If the function raised `StopIteration`, the generator makes this of it (PEP 479).
                if stopped is None or error.__cause__ is not stopped:
                    raise
                raise stopped from stopped.__cause__
            try:
                resume = partial(steps.send, step())
            except BaseException as error:
                stopped = error if isinstance(error, StopIteration) else None
                resume = partial(steps.throw, error)
    finally:
        del resume, stopped  # else an error and this frame would keep each other alive


def at_once(function: Callable[[], Any]) -> Any:
    """Call a slow function in this thread: synchronous code has no event loop that would wait."""
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
        del resume  # else an error and this frame would keep each other alive
