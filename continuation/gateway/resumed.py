"""Half-written answers, for clients that come back with the same request (`[gateway] journal`).

Who asks is told by the credentials that came with the request, and by nothing else: one with other
credentials never gets what another was given. A journal that cannot be had costs no answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import anyio
import httpx2

from continuation.attach.journaled import KeptTurn, kept_turn
from continuation.config.gateway import GatewayTable
from continuation.engine.turn import Turn

if TYPE_CHECKING:
    from continuation.journal.half import HalfTurn

logger = logging.getLogger("continuation")

_HELD: Final = 0.5
"""Seconds that are given to whoever answers the same request: its client may have left just now."""
_AGAIN: Final = 10.0
"""Seconds in which a journal that could not be had is not asked for again."""
_EVERY: Final = 60.0
"""Seconds between two removals of what nobody has come back for."""


def digest(*told: bytes) -> str:
    """Return what stands for who asks, where, and what."""
    summed = blake2b(digest_size=20)
    for each in told:  # the lengths keep ("ab", "c") and ("a", "bc") apart
        summed.update(len(each).to_bytes(8, "big") + each)
    return summed.hexdigest()


class Resumed:
    """Keeps what clients were given of answers that are not over."""

    def __init__(self) -> None:
        self._not_before = self._expired = float("-inf")

    @asynccontextmanager
    async def kept(
        self, table: GatewayTable, turn: Turn, url: httpx2.URL, digest: str
    ) -> AsyncGenerator[KeptTurn | None]:
        """Let a streamed turn be kept while it runs, and go on where it was left.

        `None`: it is not kept.
        """
        journal: HalfTurn | None = None
        # Gemini streams one JSON array where it is not asked for events: no beginning of it is any.
        events = not url.path.endswith(":streamGenerateContent") or b"alt=sse" in url.query
        if table.journal and events and turn.asked is not None and turn.asked[1].streamed:
            journal = await anyio.to_thread.run_sync(self._open, table, digest)
        if journal is None:
            yield None
            return
        try:
            yield await anyio.to_thread.run_sync(kept_turn, journal, turn, url.path)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(journal.close)

    def _open(self, table: GatewayTable, digest: str) -> HalfTurn | None:
        from continuation.journal import JournalError, LeaseHeld
        from continuation.journal.half import HalfTurn, expire

        now = time.monotonic()
        if now < self._not_before:
            return None
        try:
            if now > self._expired + _EVERY:
                self._expired = now
                expire(table.journal, table.journal_seconds, int(table.journal_turns))
            while True:
                try:
                    return HalfTurn(table.journal, digest, keep=table.journal_seconds)
                except LeaseHeld:
                    if time.monotonic() > now + _HELD:
                        return None
                    time.sleep(0.02)
        except (JournalError, ValueError, OSError) as error:
            logger.warning("[gateway] journal: no turn is kept for now: %s", error)
            self._not_before = time.monotonic() + _AGAIN
            return None
