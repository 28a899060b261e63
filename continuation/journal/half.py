"""Half-written answers, for gateways: a client that repeats its request gets the rest of one.

A request is identified by a digest, and nothing of it is kept. What was given of its answer is kept
until the answer has ended; `expire` removes what is too old, and what is too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from continuation.journal.journal import Journal
from continuation.journal.live_turn import LiveTurn
from continuation.journal.statements import GATEWAY, Statement
from continuation.journal.store import JournalStore, Ownership
from continuation.types import Json

if TYPE_CHECKING:
    from continuation.providers.contract import ProviderRequest

_BATCH: Final = 500
LEASE: Final = 10.0
"""Seconds of silence after which a gateway on another machine counts as gone."""


class HalfTurn(Journal):
    """One turn of a client. `digest`: of client and request; `keep`: seconds to resume it in."""

    _rests = False  # a gateway opens one a turn: it closes the file when it ends

    def __init__(self, target: str, digest: str, *, keep: float) -> None:
        """Open it. Raises what `Journal` raises: `LeaseHeld` while the same request is answered."""
        super().__init__(target, GATEWAY + digest, lease=LEASE)
        self._keep = keep

    def begin(
        self, form: str, request: ProviderRequest, *, framed: bool, once: bool = False
    ) -> LiveTurn | None:
        turn = self._state.turn
        if turn is not None and self._store.time() - turn.since > self._keep:
            self.dropped()
        return super().begin(form, request, framed=framed, once=once)

    def _new_records(
        self, form: str, body: Json, messages: Sequence[Json], digests: list[str]
    ) -> list[tuple[str, str, object]]:
        return []

    def ended(
        self, messages: Sequence[Json], fields: Json
    ) -> tuple[Ownership, Sequence[Statement], bool]:
        return super().ended((), {"outcome": fields.get("outcome")})


def is_half(target: str, digest: str) -> bool:
    """Whether there is a half-written answer of this client and request. Raises `JournalError`."""
    store = JournalStore.of(target)
    store.flush()
    return bool(store.find(store.sql.half, (GATEWAY + digest,)))


def expire(target: str, seconds: float, most: int) -> None:
    """Remove turns silent for `seconds`, and those silent for `LEASE` beyond the newest `most`.

    Raises `JournalError`.
    """
    store = JournalStore.of(target)
    with store.transaction(durable=False) as db:
        rows = db.execute(store.sql.expired, (seconds, LEASE, most)).fetchall()
        numbers = [number for (number,) in rows]
        for start in range(0, len(numbers), _BATCH):  # one by one, thousands would take seconds
            batch = numbers[start : start + _BATCH]
            sql = store.sql
            # The last row stays, or its id would be used again: its owner could wake up.
            for each in (sql.drop_running, sql.drop_records, sql.drop_sessions, sql.outdate):
                db.execute(sql.of_many(each, len(batch)), batch)
