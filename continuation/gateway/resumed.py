"""Half-written answers, for clients that repeat their request (`[gateway] journal`).

Only the credentials in its request identify a client. So a client never gets an answer of a client
with other credentials. If the journal fails, answers are sent but not kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import anyio
import httpx2

from continuation.attach.journaled import TurnLog, begin_turn_async
from continuation.config.gateway import GatewayTable
from continuation.engine.turn import Turn
from continuation.logs import line

if TYPE_CHECKING:
    from continuation.journal.half import HalfTurn

logger = logging.getLogger("continuation")

_LEASE_WAIT: Final = 0.5
"""Seconds to wait while the same request is being answered. Its client may have just left."""
_WAIT: Final = 2.0
"""Seconds that a turn waits for the journal. Then it is answered without it."""
_RETRY_AFTER: Final = 10.0
"""Seconds for which an unreachable journal is not opened again."""
_EXPIRE_EVERY: Final = 60.0
"""Seconds between two removals of answers that no client has resumed."""


def digest(*parts: bytes) -> str:
    """Return a digest of client, URL and request."""
    hasher = blake2b(digest_size=20)
    for each in parts:  # the lengths distinguish ("ab", "c") from ("a", "bc")
        hasher.update(len(each).to_bytes(8, "big") + each)
    return hasher.hexdigest()


class Resumed:
    """Keeps the delivered parts of answers that have not ended."""

    def __init__(self) -> None:
        self._not_before = self._expired = self._had = float("-inf")
        # A separate pool, so that a silent store cannot block all other threads of the gateway.
        self._pool = ThreadPoolExecutor(8, "gateway-journal")

    @asynccontextmanager
    async def recording(
        self, table: GatewayTable, turn: Turn, url: httpx2.URL, digest: str
    ) -> AsyncGenerator[TurnLog | None]:
        """Keep a streamed turn while it runs, and continue one that was interrupted.

        Yield the turn's log; `None`: it is not kept.
        """
        journal: HalfTurn | None = None
        # Without a request for events, Gemini streams one JSON array, which cannot be resumed.
        events = not url.path.endswith(":streamGenerateContent") or b"alt=sse" in url.query
        if table.journal and events and turn.asked is not None and turn.asked[1].streamed:
            journal = await self._opened(table, digest)
        if journal is None:
            yield None
            return
        try:
            yield await begin_turn_async(journal, turn, url.path)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(journal.close)

    async def has(self, table: GatewayTable, digest: str) -> bool:
        """Whether a half-written answer is kept; `False` also if the journal does not reply."""
        if not table.journal or time.monotonic() < self._not_before:
            return False

        def look() -> bool:
            from continuation.journal.half import is_half

            return is_half(table.journal, digest)

        try:
            async with asyncio.timeout(_WAIT):
                return await asyncio.wrap_future(self._pool.submit(look))
        except Exception as error:  # whatever it is, the request is answered
            self._unavailable(str(error) or f"it did not answer in {_WAIT:.0f} s")
            return False

    async def _opened(self, table: GatewayTable, digest: str) -> HalfTurn | None:
        """Open a session in a thread; `None`: it failed, or took longer than `_WAIT`."""
        if time.monotonic() < self._not_before:
            return None
        opening = self._pool.submit(self._open, table, digest)
        try:
            async with asyncio.timeout(_WAIT):
                return await asyncio.shield(asyncio.wrap_future(opening))
        except TimeoutError:
            if time.monotonic() > self._had + _WAIT:  # others could not be opened either
                self._unavailable(f"it did not answer in {_WAIT:.0f} s")
        except BaseException:
            opening.add_done_callback(_close_late)
            raise
        opening.add_done_callback(_close_late)
        return None

    def _unavailable(self, reason: object) -> None:
        now = time.monotonic()
        if now >= self._not_before:  # log it once for all that wait
            logger.warning("%s", line("gateway journal unavailable", reason=reason))
        self._not_before = now + _RETRY_AFTER

    def _open(self, table: GatewayTable, digest: str) -> HalfTurn | None:
        from continuation.journal import LeaseHeld
        from continuation.journal.half import HalfTurn, expire

        now = time.monotonic()
        if now < self._not_before:
            return None
        try:
            if now > self._expired + _EXPIRE_EVERY:
                self._expired = now
                expire(table.journal, table.journal_seconds, int(table.journal_turns))
            while True:
                try:
                    journal = HalfTurn(table.journal, digest, keep=table.journal_seconds)
                except LeaseHeld:
                    if time.monotonic() > now + _LEASE_WAIT:
                        return None
                    time.sleep(0.02)
                else:
                    self._had = time.monotonic()
                    return journal
        except Exception as error:  # whatever it is, the request is answered
            self._unavailable(error)
            return None


def _close_late(opening: Future[HalfTurn | None]) -> None:
    """Close a session that was opened after its turn had stopped waiting."""
    if opening.exception() is None and (journal := opening.result()) is not None:
        journal.close()
