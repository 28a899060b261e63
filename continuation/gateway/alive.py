"""A pulse for answers in which nothing happens for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Pulse:
    """Beats when nothing was sent for some seconds, and never while something is being sent."""

    def __init__(self, seconds: float, beat: Callable[[], Awaitable[None]]) -> None:
        """Begin to wait; `beat` sends something that says nothing."""
        self.busy = False
        """Something is being sent: a caller that reads slowly is alive."""
        self._seconds = seconds
        self._beat = beat
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)
        self.beating: asyncio.Task[None] | None = None
        """A beat that is under way; nothing else is to be sent until it is over."""

    def sent(self) -> None:
        """Something was sent just now."""
        self.busy, self._last = False, self._loop.time()

    def stop(self) -> None:
        """Beat no more."""
        self._timer.cancel()
        if self.beating is not None:
            self.beating.cancel()

    def _look(self) -> None:
        left = self._seconds if self.busy else self._last + self._seconds - self._loop.time()
        if left <= 0:
            self.beating, left = self._loop.create_task(self._send()), self._seconds
        self._timer = self._loop.call_later(left, self._look)

    async def _send(self) -> None:
        try:
            await self._beat()
        finally:
            self.beating, self._last = None, self._loop.time()
