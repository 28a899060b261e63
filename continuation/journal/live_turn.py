"""A running turn: saves what the caller is given, and records the end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from continuation.answer.given import Given
from continuation.journal import forms
from continuation.journal.session import characters
from continuation.journal.statements import SAVE, Statement
from continuation.journal.store import Ownership
from continuation.types import Json, Outcome
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    from continuation.journal.journal import Journal
    from continuation.ledger import Ledger


class LiveTurn:
    """A running turn of a session; the shells report to it what they give the caller."""

    def __init__(
        self, journal: Journal, form: str, given: Given | None, events: list[Json], attempts: int
    ) -> None:
        """Begin. `given`: `None` if no content is kept; `events`: the block events saved before."""
        self.replay: bytes | None = None
        """What was saved before, as the bytes of a first attempt; `None` if nothing was."""
        self.is_complete = self.is_body = False
        """Whether `replay` is the whole answer; whether it is a JSON body, not a stream."""
        self.attempts = attempts
        """How many upstream calls earlier processes made for it."""
        self.repeated = False
        """Whether it gives the last answer again; then nothing of it is recorded."""
        self.ended = self.caller_left = False
        """Whether its end is recorded; whether the caller reads no further."""
        self._outcome = ""
        self._journal = journal
        self._shape = forms.shape_of(form)
        self._given = given
        self._streamed = True
        self._chunks: list[bytes] = []
        self._scheduled = False
        self._unsaved: list[Json] = []
        self._saves = 0
        self.characters = characters(events)
        """Characters of the answer that are saved or being saved."""
        self.ledger: Ledger | None = None
        """Counts the upstream calls that this process makes for it."""

    def begin(self, *, streamed: bool, saves: int) -> None:
        """Note that the answer begins; `saves`: the number of the last save of its text."""
        self._streamed, self._saves = streamed, saves

    def give(self, chunk: bytes) -> None:
        """Take bytes of the answer as the caller gets them."""
        self._chunks.append(chunk)
        if not self._scheduled and self._streamed:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._journal.save_soon(self, self._journal.save_every)

    # --- on the writer's thread, which alone reads what was given ---------------------------------

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what is to be saved now, if anything; the writer calls it when a save is due."""
        self._scheduled = False
        row = None if self.ended else self._row()
        if row is None:
            return None
        if not (self._scheduled or self.caller_left):
            self._schedule()  # from the writer's thread: waking it each time costs double
        return self._save(row)

    def _save(self, row: tuple[object, ...]) -> tuple[Ownership, Sequence[Statement], bool]:
        journal = self._journal
        return journal.owner, journal.queued([(SAVE, row)]), journal.durability == "power"

    def _row(self) -> tuple[object, ...] | None:
        """Return a row that saves what is new, if anything; what fails to encode stays new."""
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
        """Return what records the answer's end; if no end was given, what saves its text."""
        given, messages = self._given, list[Json]()
        envelope: Json = {}
        if self.ended:
            return None
        if given is not None:
            row = self._row()
            if self._streamed:
                given.eof()
            if given.segment.reason is None:
                return None if row is None else self._save(row)
            messages, envelope = self._shape.split_answer(given.body())
        self.ended = True
        fields: Json = {"outcome": self._outcome, "around": envelope}
        if given is not None and not given.is_whole:
            fields["short"] = True
        return self._journal.ended(messages, fields)

    def saved(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """Report to the journal whether what was collected is saved."""
        self._journal.written(statements, done)

    @property
    def fault(self) -> tuple[str, str] | None:
        """The exception that the last write failed with, and why; `None`: it succeeded."""
        return self._journal.fault

    # --- on the caller's thread, or any other: the garbage collector closes streams too -----------

    def end(self, outcome: str) -> Future[None] | None:
        """Record the answer's end; the future ends when that is written. `None`: do not wait."""
        self._outcome = outcome
        self.caller_left = True
        return self._journal.finish(self)

    def keep(self, body: bytes) -> Future[None] | None:
        """Keep a body that passed unchanged; it is dropped unless it holds a single answer."""
        if not forms.is_single_answer(self._shape, body):
            self.drop(answered=True)
            return None
        self._streamed = False
        self.give(body)
        return self.end(Outcome.UNTOUCHED)

    def drop(self, *, answered: bool = False) -> None:
        """End the turn without an answer: the request was refused, or the engine left it alone.

        `answered`: the caller has an answer, which is not recorded.
        """
        self.ended = True
        self._journal.dropped(answered=answered)

    def answer(self) -> bytes | None:
        """Return all that was given as a JSON body; `None`: its end is missing, or none is kept."""
        given = self._given
        if given is None:
            return None
        if self.repeated:  # the writer does not
            self._read(given)
            given.eof()
        return dumps(given.body()) if given.segment.reason else None

    def leave(self) -> None:
        """Note that the caller reads no further: what it got is saved, and the turn stays open."""
        self.caller_left = True
        self._journal.save_soon(self, 0.0)
