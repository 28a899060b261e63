"""One turn while it runs: what the caller is given is saved, and its end is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from continuation.answer.given import Given
from continuation.journal import forms
from continuation.journal.session import characters
from continuation.journal.store import SAVE, Ownership, Statement
from continuation.types import Json, Outcome
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    from continuation.journal.journal import Journal
    from continuation.ledger import Ledger


class LiveTurn:
    """A turn of a journal's session; the shells tell it what they give."""

    def __init__(
        self, journal: Journal, form: str, given: Given | None, events: list[Json], attempts: int
    ) -> None:
        """Begin. `given`: `None` where no content is kept; `events`: what was saved before."""
        self.replay: bytes | None = None
        """The first attempt, where the turn goes on from what was saved..."""
        self.is_complete = self.is_body = False
        """...which is all of the answer; it is a JSON body."""
        self.attempts = attempts
        """How many upstream calls were made for it in processes before this one."""
        self.repeated = False
        """It is the last answer once more, and nothing of it is recorded."""
        self.ended = self.caller_left = False
        """Its end is recorded; nobody reads its answer any further."""
        self._outcome = ""
        self._journal = journal
        self._form = form
        self._given = given
        self._streamed = True
        self._chunks: list[bytes] = []
        self._scheduled = False
        self._unsaved: list[Json] = []
        self._saves = 0
        self.characters = characters(events)
        """Of what is saved, or is being saved."""
        self.ledger: Ledger | None = None
        """Counts the upstream calls that this process makes for it."""

    def begin(self, *, streamed: bool, saves: int) -> None:
        """The answer begins; `saves`: the number of the last save of its text."""
        self._streamed, self._saves = streamed, saves

    def give(self, chunk: bytes) -> None:
        """The caller gets these bytes now."""
        self._chunks.append(chunk)
        if not self._scheduled and self._streamed:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._journal.save_soon(self, self._journal.save_every)

    # --- on the writer's thread, which alone reads what was given ---------------------------------

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what is to be saved now; the writer asks, when it is due."""
        self._scheduled = False
        row = None if self.ended else self._row()
        if row is None:
            return None
        if not (self._scheduled or self.caller_left):
            self._schedule()  # by this thread: to wake it for every save would cost twice
        return self._save(row)

    def _save(self, row: tuple[object, ...]) -> tuple[Ownership, Sequence[Statement], bool]:
        journal = self._journal
        return journal.owner, journal.queued([(SAVE, row)]), journal.durability == "power"

    def _row(self) -> tuple[object, ...] | None:
        """Return what is new as a row, if anything is; what cannot be encoded stays new."""
        given, journal = self._given, self._journal
        if given is None:
            return None
        self._read(given)
        self._unsaved += given.new_events()
        if not self._unsaved:
            return None
        content = journal.encode(dumps(self._unsaved))
        self._saves += 1
        self.characters += characters(self._unsaved)
        self._unsaved = []
        attempts = self.attempts - (self.replay is not None)
        attempts += self.ledger.sent if self.ledger is not None else 0
        return journal.owner.session, self._saves, self.characters, attempts, content

    def _read(self, given: Given) -> None:
        count = len(self._chunks)  # the caller's thread appends meanwhile
        chunks = self._chunks[:count]
        del self._chunks[:count]
        if chunks and self._streamed:
            given.read(chunks)
        elif chunks:
            given.read_body(b"".join(chunks))

    def finish(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what records the end of the answer; if that was not given, the turn stays open."""
        given, turns = self._given, list[Json]()
        envelope: Json = {}
        if self.ended:
            return None
        if given is not None:
            row = self._row()
            if self._streamed:
                given.eof()
            if given.segment.reason is None:
                return None if row is None else self._save(row)
            turns, envelope = forms.split_answer(self._form, given.body())
        self.ended = True
        return self._journal.ended(turns, {"outcome": self._outcome, "around": envelope})

    def saved(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """What was collected is saved, or cannot be."""
        self._journal.written(statements, done)

    @property
    def fault(self) -> str | None:
        """What the last writing failed with, as an exception's name."""
        return self._journal.fault

    # --- on the caller's, which may be any: garbage is collected in all of them -------------------

    def end(self, outcome: str) -> Future[None] | None:
        """The answer is over. The future ends when that is recorded; `None`: do not wait."""
        self._outcome = outcome
        self.caller_left = True
        return self._journal.finish(self)

    def keep(self, body: bytes) -> Future[None] | None:
        """It passed as it came: this is all of it. Of several answers none is kept."""
        if not forms.is_single_answer(self._form, body):
            self.drop()
            return None
        self._streamed = False
        self.give(body)
        return self.end(Outcome.UNTOUCHED)

    def drop(self) -> None:
        """The provider refused the request, or the engine left it alone: there is no answer."""
        self.ended = True
        self._journal.dropped()

    def answer(self) -> bytes | None:
        """Return all that was given as a JSON body; `None`: its end was not, or none is kept."""
        given = self._given
        if given is None:
            return None
        if self.repeated:  # nobody else reads it
            self._read(given)
            given.eof()
        return dumps(given.body()) if given.segment.reason else None

    def leave(self) -> None:
        """The caller reads no further: the turn stays open, as far as it was given."""
        self.caller_left = True
        self._journal.save_soon(self, 0.0)
