"""A running turn: saves what the caller receives, and records the end."""

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
    """A running turn of a session. The shells pass it the bytes that they deliver."""

    def __init__(
        self, journal: Journal, form: str, given: Given | None, events: list[Json], attempts: int
    ) -> None:
        """Begin. `given`: `None` if no content is kept; `events`: the block events saved before."""
        self.replay: bytes | None = None
        """What was saved before, as the bytes of a first attempt; `None` if nothing was."""
        self.is_complete = self.is_body = False
        """Whether `replay` is the complete answer; whether it is a JSON body, not a stream."""
        self.attempts = attempts
        """How many upstream calls earlier processes made for this turn."""
        self.repeated = False
        """Whether the turn repeats the last answer; nothing of it is then recorded."""
        self.ended = self.caller_left = False
        """Whether the turn's end is recorded; whether the caller has stopped reading."""
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
        """Counts the upstream calls that this process makes for the turn."""

    def begin(self, *, streamed: bool, saves: int) -> None:
        """Note that the answer begins. `saves`: the number of the last save of its text."""
        self._streamed, self._saves = streamed, saves

    def give(self, chunk: bytes) -> None:
        """Take bytes of the answer when the caller receives them."""
        self._chunks.append(chunk)
        if not self._scheduled and self._streamed:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._journal.save_soon(self, self._journal.save_every)

    # --- on the writer's thread; only it reads what the caller received ---------------------------

    def collect(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what to save now, if anything. The writer calls it when a save is due."""
        self._scheduled = False
        row = None if self.ended else self._row()
        if row is None:
            return None
        if not (self._scheduled or self.caller_left):
            self._schedule()  # here, because waking the writer for each save would cost double
        return self._save(row)

    def _save(self, row: tuple[object, ...]) -> tuple[Ownership, Sequence[Statement], bool]:
        journal = self._journal
        return journal.owner, journal.queued([(SAVE, row)]), journal.durability == "power"

    def _row(self) -> tuple[object, ...] | None:
        """Return a row that saves what is new, if anything. If encoding fails, it stays new."""
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
        count = len(self._chunks)  # the caller's thread may append at the same time
        chunks = self._chunks[:count]
        del self._chunks[:count]
        if chunks and self._streamed:
            given.read(chunks)
        elif chunks:
            given.read_body(b"".join(chunks))

    def finish(self) -> tuple[Ownership, Sequence[Statement], bool] | None:
        """Return what records the answer's end; if none was delivered, what saves its text."""
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
        """Report to the journal whether the collected text was saved."""
        self._journal.written(statements, done)

    @property
    def fault(self) -> tuple[str, str] | None:
        """Name and reason of the exception of the last write; `None`: it succeeded."""
        return self._journal.fault

    # --- on any thread: the caller's, or where the garbage collector closes a stream --------------

    def end(self, outcome: str) -> Future[None] | None:
        """Record the answer's end; the future ends when it is written. `None`: do not wait."""
        self._outcome = outcome
        self.caller_left = True
        return self._journal.finish(self)

    def keep(self, body: bytes) -> Future[None] | None:
        """Record a body that was passed through unchanged, if it is a single answer."""
        if not forms.is_single_answer(self._shape, body):
            self.drop(answered=True)
            return None
        self._streamed = False
        self.give(body)
        return self.end(Outcome.UNTOUCHED)

    def drop(self, *, answered: bool = False) -> None:
        """End the turn without an answer: the request was refused, or was passed through.

        `answered`: the caller received an answer, but it is not recorded.
        """
        self.ended = True
        self._journal.dropped(answered=answered)

    def answer(self) -> bytes | None:
        """Return the delivered answer as a JSON body; `None`: it has no end, or is not kept."""
        given = self._given
        if given is None:
            return None
        if self.repeated:  # the writer does not read a repeated answer
            self._read(given)
            given.eof()
        return dumps(given.body()) if given.segment.reason else None

    def leave(self) -> None:
        """Note that the caller stopped reading. Save what it received; the turn stays open."""
        self.caller_left = True
        self._journal.save_soon(self, 0.0)
