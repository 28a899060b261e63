"""One turn while it runs: what the caller is given is saved, and its end is recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from continuation.answer.given import Given
from continuation.journal import forms
from continuation.journal.session import characters
from continuation.journal.store import SAVE, Ownership, Statement
from continuation.types import Json
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    from continuation.journal.journal import Journal
    from continuation.ledger import Ledger


class Kept:
    """A turn of a journal's session; the shells tell it what they give."""

    def __init__(
        self, journal: Journal, form: str, given: Given | None, events: list[Json], attempts: int
    ) -> None:
        """Begin. `given`: `None` where no content is kept; `events`: what was saved before."""
        self.played: bytes | None = None
        """The first attempt, where the turn goes on from what was saved."""
        self.attempts = attempts
        """How many upstream calls were made for it in processes before this one."""
        self.ended = self.left = False
        """Its end is recorded; nobody reads its answer any further."""
        self._outcome = ""
        self._journal = journal
        self._form = form
        self._given = given
        self._streamed = True
        self._chunks: deque[bytes] = deque()
        self._armed = False
        self._pieces = 0
        self._characters = characters(events)
        self.ledger: Ledger | None = None
        """Counts the upstream calls that this process makes for it."""

    def begin(self, *, streamed: bool, pieces: int) -> None:
        """The answer begins; `pieces`: how often its text was saved before."""
        self._streamed, self._pieces = streamed, pieces

    def give(self, chunk: bytes) -> None:
        """The caller gets these bytes now."""
        self._chunks.append(chunk)
        if not self._armed and self._streamed:
            self._armed = True
            self._journal.save_soon(self, self._journal.save_every)

    # --- on the writer's thread, which alone reads what was given ---------------------------------

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what is to be saved now; the writer asks, when it is due."""
        self._armed = False
        given, journal = self._given, self._journal
        if self.ended or given is None:
            return None
        self._read(given)
        if not (news := given.news()):
            return None
        self._pieces += 1
        self._characters += characters(news)
        attempts = self.attempts - (self.played is not None)
        attempts += self.ledger.sent if self.ledger is not None else 0
        content = journal.encode(dumps(news))
        row = (journal.owner.session, self._pieces, self._characters, attempts, content)
        return journal.owner, [(SAVE, row)], journal.durability == "power"

    def _read(self, given: Given) -> None:
        chunks = [self._chunks.popleft() for _ in range(len(self._chunks))]
        if chunks and self._streamed:
            given.read(chunks)
        elif chunks:
            given.read_body(b"".join(chunks))

    def finish(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what records the end of the answer; if that was not given, the turn stays open."""
        given, turns = self._given, list[Json]()
        if given is not None:
            saved = self.collect()
            if self._streamed:
                given.eof()
            if given.segment.reason is None:
                return saved
            turns = forms.answered(self._form, given.body())
        self.ended = True
        return self._journal.ended(turns, self._outcome)

    def saved(self, done: Future[None]) -> None:
        """What was collected is saved, or cannot be."""
        if (error := done.exception()) is not None:
            self._journal.failed(error)

    # --- on the caller's, which may be any: garbage is collected in all of them -------------------

    def end(self, outcome: str) -> Future[None] | None:
        """The answer is over. The future tells when that is recorded, if one may wait for it."""
        self._outcome = outcome
        self.left = True
        return self._journal.finish(self)

    def drop(self) -> None:
        """The provider refused the request, or none of it was ours: there is no answer."""
        self.ended = True
        self._journal.dropped()

    def leave(self) -> None:
        """The caller reads no further: the turn stays open, as far as it was given."""
        self.left = True
        self._journal.save_soon(self, 0.0)
