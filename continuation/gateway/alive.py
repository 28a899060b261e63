"""Keep-alives for answers while nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Pulse:
    """Calls `beat` if nothing was sent for some seconds, and never while something is sent."""

    def __init__(self, seconds: float, beat: Callable[[], Awaitable[None]]) -> None:
        """Begin to wait. `beat` sends something without content."""
        self.busy = False
        """Whether something is being sent. A caller that reads slowly needs no keep-alive."""
        self._seconds = seconds
        self._beat = beat
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)
        self.beating: asyncio.Task[None] | None = None
        """The current beat, or `None`. Nothing else may be sent until it has ended."""

    def sent(self) -> None:
        """Note that something was sent just now."""
        self.busy, self._last = False, self._loop.time()

    def stop(self) -> None:
        """Stop beating, and stop the current beat."""
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
