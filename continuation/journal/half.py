"""Half-written answers, for gateways: a client that repeats its request gets the rest.

A digest identifies a request; the journal keeps nothing else of it. It keeps what the client
received of the answer until the answer has ended. `expire` removes turns that are too old, and the
oldest if there are too many.
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

    _rests = False  # a gateway opens one per turn, and closes the file when it stops

    def __init__(self, target: str, digest: str, *, keep: float) -> None:
        """Open the turn. Raises as `Journal` does; `LeaseHeld` while the same request runs."""
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
    """Remove turns that were silent for `seconds`; keep about `most` of the others.

    Beyond the newest `most`, a turn is removed once it was silent for `LEASE`. Before that, its
    gateway may still write to it.

    Raises `JournalError`.
    """
    store = JournalStore.of(target)
    with store.transaction(durable=False) as db:
        rows = db.execute(store.sql.expired, (seconds, LEASE, most)).fetchall()
        numbers = [number for (number,) in rows]
        for start in range(0, len(numbers), _BATCH):  # one by one takes seconds for thousands
            batch = numbers[start : start + _BATCH]
            sql = store.sql
            # Keep the last row. Otherwise its id would be used again, and a former owner that wakes
            # up would write to the new session.
            for each in (sql.drop_running, sql.drop_records, sql.drop_sessions, sql.outdate):
                db.execute(sql.of_many(each, len(batch)), batch)
