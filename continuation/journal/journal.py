"""`Journal`: a session that outlives its process.

What is written, and when, is the whole of it. Before a request leaves: what is new in it, and that
its turn has begun. While its answer streams: every `save_every` seconds what the caller was given
since. At its end, in one transaction: the answer, the end, and the running text goes. Before a tool
begins: that it will. After it: its result. All is appended, keyed by session and number, by the one
process that owns the session.

After a kill the same request resumes the turn: what was saved is played to the engine as a first
attempt that broke off, and the engine goes on from it as it does from any. There is no second way.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from continuation.answer.given import Given, played
from continuation.journal import forms
from continuation.journal.errors import Fenced, JournalError
from continuation.journal.live_turn import LiveTurn
from continuation.journal.owner import acquire
from continuation.journal.reader import BROKE_OFF, NOT_WHOLE, Codec, Content, SessionReader
from continuation.journal.session import STATE_KINDS, characters
from continuation.journal.store import (
    APPEND,
    FORGET,
    FORKED,
    SAVE,
    JournalStore,
    Ownership,
    Statement,
    follow,
)
from continuation.policy import is_url
from continuation.types import Json, Outcome
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    from continuation.dialect import ProviderRequest
    from continuation.journal.tools import ToolRun

logger = logging.getLogger("continuation")

Durability = Literal["kill", "power"]
Interrupted = Literal["keep", "drop"]
_REPEATABLE = frozenset({APPEND, SAVE, FORGET})


class Journal(SessionReader):
    """A session in a store: its conversation, its half-written turn, its tools.

    `target`: the path of an SQLite file, or a `postgresql://` URL (extra `postgres`), with all that
    libpq reads in one; sessions and processes share it, and many machines a database. `session`:
    its name.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        session: str,
        *,
        save_every: float = 0.05,
        durability: Durability = "kill",
        content: Content = "full",
        interrupted: Interrupted = "keep",
        codec: Codec | None = None,
        lease: float = 30.0,
        abandoned_after: float = 300.0,
        readonly: bool = False,
        take_over: bool = False,
    ) -> None:
        """Open a session, and become its owner.

        `save_every`: seconds between saves of running text, and so what a kill may lose.
        `durability`: `"power"` also syncs them, so that a power loss takes no more than a kill.
        `content`: `"none"` keeps states alone; a half-written turn is not resumable then.
        `interrupted`: whether an answer that is not gone on with stays in the history.
        `codec`: encodes what is kept of the conversation. `lease`: seconds of silence after which
        an owner on another machine has lost the session. `abandoned_after`: seconds of silence
        after which a call counts as abandoned. `take_over`: own the session though its owner may
        live, because something else decides who runs, such as a workflow engine; the other gets
        `Fenced`.

        Raises `LeaseHeld` when another process owns the session, `JournalError` for a store that is
        none, of a newer version or out of reach, and `ValueError` naming field, value and what is
        possible.
        """
        options = {"durability": Durability, "content": Content, "interrupted": Interrupted}
        values = {"durability": durability, "content": content, "interrupted": interrupted}
        for name, kinds in options.items():
            if values[name] not in get_args(kinds):
                message = f"{name} = {values[name]!r}: use one of {', '.join(get_args(kinds))}"
                raise ValueError(message)
        for name, seconds in {"save_every": save_every, "lease": lease}.items():
            if not seconds > 0:
                message = f"{name} = {seconds!r}: must be a number of seconds above 0"
                raise ValueError(message)
        if not session or session != session.encode(errors="ignore").decode().replace("\0", ""):
            message = f"session = {session!r}: a name by which the session is found again"
            raise ValueError(f"{message}, without NUL and halves of characters")
        self._target, self.session = target, session
        self.save_every = save_every
        self.durability: Durability = durability
        self.interrupted: Interrupted = interrupted
        self.lease, self.readonly, self.take_over = lease, readonly, take_over
        self._process = os.getpid()
        self._fault: BaseException | None = None
        self._closed = False
        store = JournalStore.of(target, make=not readonly)
        self.target = store.name if is_url(str(target)) else Path(target)
        """The file, or the server and its database, without who asks there."""
        owner = (
            self._find(store) if readonly else acquire(store, session, lease, by_force=take_over)
        )
        try:
            super().__init__(
                store, session, owner, content=content, codec=codec, abandoned_after=abandoned_after
            )
        except BaseException:
            if not readonly:
                store.leave(owner, lease / 3)
            raise
        self._inherited_until = self._state.number
        """The last record of the processes before this one."""
        if not readonly:
            self._store.start_beats(self.owner, lease / 3)

    def _find(self, store: JournalStore) -> Ownership:
        query = "SELECT id, epoch FROM sessions WHERE name = ?"
        for row in store.find(query, (self.session,)):
            return Ownership(*row)
        message = f"session {self.session!r}: there is none in {self.target}"
        raise JournalError(message)

    # --- who may write ---------------------------------------------------------------------------

    @property
    def fencing_token(self) -> int:
        """A number that grows with each owner: what can compare it refuses a zombie."""
        return self.owner.epoch

    def check(self) -> None:
        """Raise what keeps this journal from being written, if something does."""
        if self._closed:
            message = f"the journal of session {self.session!r} is closed; open it again"
            raise JournalError(message)
        if self.readonly:
            message = f"session {self.session!r} was opened with readonly=True"
            raise JournalError(message)
        if self._process != os.getpid():
            raise Fenced(FORKED)
        if isinstance(self._fault, Fenced):
            raise Fenced(str(self._fault)) from self._fault

    @property
    def fault(self) -> str | None:
        """What the last writing failed with, as an exception's name; `None`: it succeeded."""
        return None if self._fault is None else type(self._fault).__name__

    def failed(self, error: BaseException) -> None:
        """Something could not be written: the turn goes on, and `fault` names the error."""
        if self._fault is None:
            kind = type(error).__name__
            logger.warning("journal %s: not durable from here on (%s)", self.session, kind)
        self._fault = error

    @property
    def pointer(self) -> dict[str, str | int]:
        """Where the session is, and nothing of what it says.

        Its name (`session`), the number of the `turn` begun last, the `characters` saved of it.
        """
        live, state = self._live, self._state
        characters = 0 if live is None or live.ended else live.characters
        turn = state.ended_turns + (state.turn is not None)
        return {"session": self.session, "turn": turn, "characters": characters}

    def encode(self, data: bytes) -> bytes:
        """Encode content for the file."""
        return data if self._codec is None else self._codec.encode(data)

    def _append(
        self, *records: tuple[str, str, object], durable: bool, forget: bool = False
    ) -> Future[None]:
        """Append records of (kind, key, content); the lock is held by whoever calls."""
        return self._write(self._statements(*records, forget=forget), durable=durable)

    def _write(self, statements: Sequence[Statement], *, durable: bool) -> Future[None]:
        recorded, statements = Future[None](), self.queued(statements)
        done = self._store.append(self.owner, statements, durable=durable)
        done.add_done_callback(partial(self.written, statements))
        done.add_done_callback(partial(follow, recorded))
        return recorded

    def _statements(
        self, *records: tuple[str, str, object], forget: bool = False
    ) -> list[Statement]:
        """Take records in, and return what writes them. What cannot be encoded is not taken in."""
        statements, at = list[Statement](), self._store.time()
        contents = [self._content(kind, content) for kind, _, content in records]
        for (kind, key, _), data in zip(records, contents, strict=True):
            self._state.apply(
                self._state.number + 1, kind, key, at, data if kind in STATE_KINDS else None
            )
            number, owner = self._state.number, self.owner
            statements.append((APPEND, (owner.session, number, owner.epoch, kind, key, at, data)))
        if forget:
            statements.append((FORGET, (self.owner.session,)))
        return statements

    def _content(self, kind: str, value: object) -> bytes | None:
        data = None if value is None else dumps(value)
        if data is None or kind in STATE_KINDS:
            return data
        return self.encode(data) if self.content == "full" else None

    def queued(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return these statements behind those that are still to be written."""
        with self._lock:
            pending, self._pending = self._pending, []
        return [*pending, *statements]

    def written(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """Something is written, or is written again later; not an intent: its tool is refused."""
        error = done.exception()
        if error is None:
            self._fault = None
            return
        self.failed(error)
        transient = isinstance(error, self._store.transient)
        with self._lock:
            for sql, values in statements:
                if sql == APPEND and values[3] == "intent":
                    self._state.cancel_intent(values[4])
                elif transient and sql in _REPEATABLE:
                    self._pending.append((sql, values))

    # --- turns -----------------------------------------------------------------------------------

    def begin(
        self, form: str | None, request: ProviderRequest, *, framed: bool, once: bool = False
    ) -> LiveTurn | None:
        """Begin a turn for a request that is about to be sent; `None`: it is not kept.

        `framed`: its answer comes in AWS's framing. `once`: asked for what was asked last, it gives
        that answer again.
        """
        if form not in forms.TURN_FIELDS or not hasattr(request, "codec"):
            return None  # a format of somebody else's
        if self._state.turn is not None:
            # What was given of it is saved first; not under the lock, which the writer needs too.
            self._store.flush()
        with self._lock:
            if self._live is not None and not (self._live.ended or self._live.caller_left):
                logger.warning(
                    "journal %s: a turn is running; another one beside it is not kept, "
                    "use journal.child(...) for it",
                    self.session,
                )
                return None
            return self._begin(form, request, framed=framed, once=once)

    def _begin(self, form: str, request: ProviderRequest, *, framed: bool, once: bool) -> LiveTurn:
        state, body = self._state, request.body
        turns = forms.request_turns(form, body)
        digests = [forms.digest(turn) for turn in turns]
        digest = forms.request_digest(form, request.model, body, digests, exactly=once)
        codec = getattr(request, "codec")()  # noqa: B009 - not all requests have it
        inherited = bool(state.turns) and state.turns[-1].number <= self._inherited_until
        # A step that was killed before its engine had recorded the answer asks the same again.
        once = (once or (self.take_over and inherited)) and state.request_digest == digest
        if repeated := self._repeat_answer(form, request, codec, digests, framed=framed, once=once):
            return repeated
        events, saves, attempts, statements = list[Json](), 0, 0, list[Statement]()
        end_events = list[Json]()
        resuming = state.turn is not None and state.turn.request_digest == digest
        if resuming:
            events, saves, attempts = self._saved_events()
            if events and not (request.streamed and characters(events)):
                # Nothing to go on from, or a body is wanted now, of which nothing is given early.
                events, saves = [], 0
                statements.append((FORGET, (self.owner.session,)))
        elif state.turn is not None:
            self._close_turn(codec)
        elif once and request.streamed:
            events, end_events = self._cut_answer(form, codec)
            attempts = int(bool(events))  # the one that is played
        live = LiveTurn(
            self,
            form,
            Given(codec, events, framed=framed) if self.content == "full" else None,
            events,
            attempts,
        )
        live.begin(streamed=request.streamed, saves=saves + 1)
        if events:
            live.replay = played(codec, [*events, *end_events], framed=framed)
            live.is_complete = bool(end_events)
        if not resuming:
            terms = {"form": form, "model": request.model, "framed": framed, "limit": request.limit}
            records = self._new_records(body, turns, digests)
            statements = self._statements(*records, ("turn", digest, terms), forget=True)
        # That it is asked counts, also if nothing is given of its answer.
        count = characters(events), attempts + 1
        content = self._content("", [] if resuming else events)
        statements.append((SAVE, (self.owner.session, saves + 1, *count, content)))
        self._write(statements, durable=False)
        self._live = live
        return live

    def _new_records(
        self, body: Json, turns: Sequence[Json], digests: list[str]
    ) -> list[tuple[str, str, object]]:
        """Return the records of what is new in a request."""
        chained = bool(body.get("previous_response_id") or body.get("conversation"))
        rewind_to, first_new = self._state.unmatched(digests, chained=chained)
        records: list[tuple[str, str, object]] = []
        if rewind_to is not None:
            records.append(("rewind", str(rewind_to), None))
        pairs = zip(digests[first_new:], turns[first_new:], strict=True)
        return records + [("message", key, turn) for key, turn in pairs]

    def _repeat_answer(
        self,
        form: str,
        request: ProviderRequest,
        codec: Any,
        digests: list[str],
        *,
        framed: bool,
        once: bool,
    ) -> LiveTurn | None:
        """Give the last answer again to a request that ends with it; `None`: it is another one.

        A program that was killed behind its last answer asks so, for it begins with the history.
        Once, and not what the program itself was given: that is asked for. `once`: the request is
        the one that it answered, which is to be answered once.
        """
        state = self._state
        if self.content == "none" or not state.envelope or request.model != state.model:
            return None
        if once and state.outcome in (NOT_WHOLE if request.streamed else BROKE_OFF):
            return None  # it is gone on with
        if state.outcome == Outcome.UNTOUCHED and (request.streamed, request.limit) != (
            False,
            state.limit,
        ):
            return None  # what was left alone then is another answer now
        if not self._answer_numbers:  # it came to nothing
            return None
        ends_with_it = [turn.digest for turn in state.turns] == digests
        if not once and not (ends_with_it and state.turns[-1].number <= self._inherited_until):
            return None
        body = self._last_answer(form)
        events = [*codec.to_events(body)]
        given = Given(codec, framed=framed)
        for event in events:
            given.segment.add(event)
        if not once and given.segment.reason != codec.ended:
            return None
        self._inherited_until = 0
        live = LiveTurn(self, form, Given(codec, framed=framed), [], 1)
        live.ended = live.repeated = True
        live.is_complete, live.is_body = True, not request.streamed
        live.replay = dumps(body) if live.is_body else played(codec, events, framed=framed)
        return live

    def _note_repair(self, changes: int) -> None:
        key = str(self._state.turns[-1].number) if self._state.turns else ""
        if key not in self._state.repaired:
            logger.warning("journal %s: the history was closed, %d changes", self.session, changes)
            if not self.readonly and not self._closed:
                self._append(("repair", key, None), durable=False)

    def _close_turn(self, codec: Any) -> None:
        """End the open turn: another request has taken its place."""
        state, turn = self._state, self._state.turn
        events, _, _ = self._saved_events()
        records: list[tuple[str, str, object]] = []
        if self.interrupted == "keep" and turn is not None and characters(events):
            given = Given(codec, framed=turn.framed)
            for event in events:
                given.segment.add(event)
            turns = forms.answer_turns(state.form, given.body())
            records = [("interrupted", forms.digest(each), each) for each in turns]
        self._append(*records, ("drop", "", None), durable=True, forget=True)

    def save_soon(self, live: LiveTurn, seconds: float) -> None:
        """Have a turn's text saved in so many seconds."""
        self._store.save_at(time.monotonic() + seconds, live)

    def finish(self, live: LiveTurn) -> Future[None] | None:
        """Have a turn's end recorded; return what may be waited for."""
        held = self._lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        done = self._store.finish(live)
        return None if held else done

    def ended(
        self, turns: Sequence[Json], fields: Json
    ) -> tuple[Ownership, Sequence[Statement], bool]:
        """Return what records an answer and the end of its turn, in one transaction."""
        with self._lock:
            answer = [("answer", forms.digest(turn), turn) for turn in turns]
            end = ("end", "", fields)
            return self.owner, self.queued(self._statements(*answer, end, forget=True)), True

    def dropped(self) -> None:
        """The open turn has no answer."""
        with self._lock:
            self._append(("drop", "", None), durable=False, forget=True)

    # --- tools -----------------------------------------------------------------------------------

    def tool(self, call: object, *, idempotent: bool = False) -> ToolRun:
        """Return a context in which a tool runs at most once; see `ToolRun`."""
        from continuation.journal.tools import ToolRun

        return ToolRun(self, self.identified(call), idempotent=idempotent)

    def call(
        self,
        call: object,
        run: Callable[..., Any],
        *,
        idempotent: bool = False,
        verify: Callable[..., Any] | None = None,
    ) -> Any:
        """Run a tool for a call, at most once; return its result, also if it ran before.

        `call`: as the SDK gave it. `run` is called with it, and with `idempotency_key` and
        `fencing_token` if it takes them; if it is a coroutine function, so is this. Its result is
        JSON. What it raises is recorded as the call's result, and raised.

        A call that began and has no result is not run again: its result says that the outcome is
        unknown. `idempotent`: it is run again, with the same key. `verify`: is called like `run`,
        and returns the result if it was done, `None` if it was not (then it is run);
        `OutcomeUnknown`, raised there, says that it cannot tell.

        Raises `JournalError` when what is about to happen cannot be recorded: then `run` is not
        called. Raises `Fenced` when another process owns the session.
        """
        from continuation.journal import tools

        runner = tools.Runner(self, call, run, idempotent=idempotent, verify=verify)
        return runner.asynchronously() if runner.asynchronous else runner.now()

    def result(self, call: object, value: Any, *, failed: bool = False) -> None:
        """Record a call's result that became known otherwise: late, or run elsewhere.

        It takes the place of one that was made up and not sent yet; one that was recorded stays.
        """
        from continuation.journal.tools import wait

        tool = self.identified(call)
        if self.state_of(tool.id)[1] is None:
            wait(self.record("result", tool.id, self.result_of(tool, value, failed=failed)))

    def record(self, kind: str, call_id: str, content: object) -> Future[None]:
        """Record an intent, a result, or that a tool still runs."""
        self.check()
        with self._lock:
            return self._append((kind, call_id, content), durable=kind != "active")

    def result_of(self, call: forms.ParsedCall, value: Any, *, failed: bool) -> Json:
        """Return a call's result as it is recorded."""
        fields: Json = {"id": call.id, "name": call.name, "custom": call.custom}
        turn = forms.result(self._state.form, fields, value, failed=failed)
        return {"turn": turn, "value": value, "failed": failed}

    # --- the rest --------------------------------------------------------------------------------

    def child(self, name: str) -> Journal:
        """Open a session beside this one, for a subagent or a request in parallel."""
        return Journal(
            self._target,
            f"{self.session}/{name}",
            save_every=self.save_every,
            durability=self.durability,
            content=self.content,
            interrupted=self.interrupted,
            codec=self._codec,
            lease=self.lease,
            abandoned_after=self.abandoned_after,
            readonly=self.readonly,
            take_over=self.take_over,
        )

    def close(self) -> None:
        """Save what runs, and let the session go: another process may own it at once."""
        if self._closed or self.readonly or self._process != os.getpid():
            self._closed = True
            return
        self._closed = True
        self._store.flush()
        with suppress(Exception):
            self._store.leave(self.owner, self.lease / 3, self.queued(())).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
