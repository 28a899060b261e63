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
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from continuation.answer.given import Given, played
from continuation.journal import forms
from continuation.journal.errors import Fenced, JournalError
from continuation.journal.live_turn import LiveTurn
from continuation.journal.owner import acquire
from continuation.journal.session import CONTENT_KINDS, STATE_KINDS, SessionState, characters
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
from continuation.wire.json_values import as_json, dumps, loads, objects

if TYPE_CHECKING:
    from continuation.dialect import ProviderRequest
    from continuation.history.types import OpenCall
    from continuation.journal.tools import ToolRun

logger = logging.getLogger("continuation")

Durability = Literal["kill", "power"]
Content = Literal["full", "none"]
Interrupted = Literal["keep", "drop"]


_REPEATABLE = frozenset({APPEND, SAVE, FORGET})
_BROKE_OFF = frozenset({Outcome.PARTIAL, Outcome.STALLED})
"""Outcomes of answers whose end is made up..."""
_NOT_WHOLE = _BROKE_OFF | {Outcome.TRUNCATED}
"""...or says that they are cut."""
_BLOCK_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop"}
)
"""Events of an answer that are not its end."""


class Codec(Protocol):
    """Encodes what is kept of the conversation, such as by encryption."""

    def encode(self, data: bytes) -> bytes: ...
    def decode(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Resume:
    """What a session was doing when its process was stopped."""

    kind: Literal["nothing", "turn", "calls"]
    """`turn`: an answer is half written, and the same request goes on with it. `calls`: calls of
    the last answer lack a result, or have one that was not sent."""
    characters: int = 0
    """Of the half-written answer, as many as are saved."""
    resumable: bool = True
    """`False`: a turn is open, and nothing of its answer is there to go on from."""
    attempts: int = 0
    """Upstream calls that were made for it."""
    not_started: tuple[forms.ParsedCall, ...] = ()
    """Calls that never began: safe to run."""
    unknown: tuple[forms.ParsedCall, ...] = ()
    """Calls that began, and nobody knows what became of them."""
    abandoned: tuple[forms.ParsedCall, ...] = ()
    """Those of them whose owner was silent for longer than `abandoned_after` when it was lost."""
    unsent: tuple[str, ...] = ()
    """Ids of calls that have a result which no request has carried yet."""


class Journal:
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
        self.content: Content = content
        self.interrupted: Interrupted = interrupted
        self.lease, self.abandoned_after, self.readonly = lease, abandoned_after, readonly
        self.take_over = take_over
        self._codec = codec
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._fault: BaseException | None = None
        self._pending: list[Statement] = []
        """What could not be written: it goes before what is written next."""
        self._closed = False
        self._live: LiveTurn | None = None
        self._store = JournalStore.of(target, make=not readonly)
        self.target = self._store.name if is_url(str(target)) else Path(target)
        """The file, or the server and its database, without who asks there."""
        self.owner = (
            self._find() if readonly else acquire(self._store, session, lease, by_force=take_over)
        )
        self._state = SessionState()
        self._anonymous_calls = Counter[str]()
        """How often calls without an id were asked about."""
        try:
            self._read()
        except BaseException:
            if not readonly:
                self._store.leave(self.owner, lease / 3)
            raise
        self._inherited_until = self._state.number
        """The last record of the processes before this one."""
        if not readonly:
            self._store.start_beats(self.owner, lease / 3)

    def _find(self) -> Ownership:
        query = "SELECT id, epoch FROM sessions WHERE name = ?"
        for row in self._store.find(query, (self.session,)):
            return Ownership(*row)
        message = f"session {self.session!r}: there is none in {self.target}"
        raise JournalError(message)

    def _read(self) -> None:
        """Read what is recorded, without the content of the conversation."""
        query = (
            "SELECT number, kind, key, at, CASE WHEN kind IN ('turn', 'end', 'intent')"
            " THEN content END FROM records WHERE session = ? ORDER BY number"
        )
        for row in self._store.find(query, (self.owner.session,)):
            self._state.apply(*row)

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

    def _decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return loads(data if self._codec is None else self._codec.decode(data))

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
        if once and state.outcome in (_NOT_WHOLE if request.streamed else _BROKE_OFF):
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

    @property
    def _answer_numbers(self) -> list[int]:
        """The records of the last answer."""
        return [turn.number for turn in self._state.turns if turn.number > self._state.turn_start]

    def _last_answer(self, form: str) -> Json:
        """Return the body of the last answer."""
        contents = self._contents(flush=False)  # it was synced before its end was given
        turns = [as_json(contents[number]) for number in self._answer_numbers]
        return forms.join_answer(form, turns, self._state.envelope or {})

    def _cut_answer(self, form: str, codec: Any) -> tuple[list[Json], list[Json]]:
        """Return the last answer to what is asked once more, if it was not made whole.

        That is its blocks, and its end if that says that it was cut: one that broke off was given
        an end that is not its own.
        """
        state = self._state
        if state.outcome not in _NOT_WHOLE or not state.envelope or not self._answer_numbers:
            return [], []
        events = [*codec.to_events(self._last_answer(form))]
        blocks = [event for event in events if event["type"] in _BLOCK_EVENTS]
        ends = [event for event in events if event["type"] not in _BLOCK_EVENTS]
        if not characters(blocks):
            return [], []
        return blocks, [] if state.outcome in _BROKE_OFF else ends

    def _saved_events(self) -> tuple[list[Json], int, int]:
        """Return what is saved of the open turn: events, number of saves, upstream calls."""
        events, saves, attempts = list[Json](), 0, 0
        query = "SELECT number, attempts, content FROM running WHERE session = ? ORDER BY number"
        for row in self._store.find(query, (self.owner.session,)):
            saves, attempts = row[0], max(attempts, row[1])
            events += objects(self._decode(row[2]))
        return events, saves, attempts

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

    # --- what there is ---------------------------------------------------------------------------

    def history(self, dialect: str | None = None) -> list[dict[str, Any]]:
        """Return the conversation as the next request may carry it; `[]`: there is none yet.

        It is what requests and answers said, results that were not sent yet behind it, and for
        calls without one a result that says what is known. Of a turn that is half written, it is
        its request's: sent again, the turn goes on.

        `dialect`: fails with `ValueError` if the session speaks another one. Raises `JournalError`
        where no content is kept.
        """
        from continuation import history

        contents = self._contents()
        with self._lock:
            state = self._state
            if dialect is not None and state.form and dialect != state.form:
                message = f"dialect = {dialect!r}: this session speaks {state.form!r}"
                raise ValueError(message)
            if not state.turns:
                return []
            form, body, _ = self._body(contents)
            started = {call_id for call_id, call in state.calls.items() if call.result is None}

            identify = self._identify(contents)

            def reason(call: OpenCall) -> history.Reason:
                begun = identify(call).id in started
                return history.Reason.STARTED_UNKNOWN if begun else history.Reason.NOT_STARTED

            policy = history.RepairPolicy(
                live=False,
                prefill=True,
                reason=reason,
                # An answer that is last here will not be last in the request.
                allow=lambda change: change.why != "trailing_whitespace",
            )
            repaired = history.repair(body, form, policy=policy, model=state.model)
            if repaired.changes:
                self._log_repair(len(repaired.changes))
            return objects(repaired.body[forms.TURN_FIELDS[form]])

    def _log_repair(self, changes: int) -> None:
        key = str(self._state.turns[-1].number) if self._state.turns else ""
        if key not in self._state.repaired:
            logger.warning("journal %s: the history was closed, %d changes", self.session, changes)
            if not self.readonly and not self._closed:
                self._append(("repair", key, None), durable=False)

    def _body(self, contents: dict[int | None, Any]) -> tuple[str, Json, dict[str, Json]]:
        """Return the conversation with unsent results, as a request's body."""
        state, form = self._state, self._state.form
        if self.content == "none":
            message = f"session {self.session!r}: with content = 'none' no conversation is kept"
            raise JournalError(message)
        turns = [as_json(contents.get(recorded.number)) for recorded in state.turns]
        sent, anonymous = set[str](), 0
        for recorded, turn in zip(state.turns, turns, strict=True):
            ids = forms.call_ids(form, turn)
            anonymous = recorded.number if "#" in ids else anonymous
            sent |= ids
        unsent = {
            call_id: as_json(as_json(contents.get(call.result)).get("turn"))
            for call_id, call in state.calls.items()
            if call.result is not None
            and call_id not in sent
            and not (call_id.startswith("#") and int(call_id[1:].partition("/")[0]) < anonymous)
        }
        all_turns = [*turns, *forms.group_results(form, list(unsent.values()))]
        return form, {"model": state.model, forms.TURN_FIELDS[form]: all_turns}, unsent

    def _contents(self, number: int | None = None, *, flush: bool = True) -> dict[int | None, Any]:
        """Read the content of the conversation, by record; `number`: of that one alone.

        `flush`: what is not written yet is, first; not under the lock, which the writer needs too.
        """
        query = "SELECT number, kind, content FROM records WHERE session = ?"
        values = [self.owner.session]
        if number is not None:
            query, values = f"{query} AND number = ?", [*values, number]
        if flush:
            self._store.flush()
        rows = self._store.find(query, values)
        with self._lock:
            rows += [(row[1], row[3], row[6]) for sql, row in self._pending if sql == APPEND]
        return {each: self._decode(data) for each, kind, data in rows if kind in CONTENT_KINDS}

    def resume(self) -> Resume:
        """Say what the session was doing when its process was stopped; changes nothing."""
        from continuation import history

        contents = self._contents()
        with self._lock:
            state = self._state
            if state.turn is not None and (self._live is None or self._live.caller_left):
                events, _, attempts = self._saved_events()
                count = characters(events)
                return Resume("turn", count, bool(count), attempts)
            if not state.turns or self.content == "none":
                return Resume("nothing", resumable=False)
            form, body, unsent = self._body(contents)
            open_calls = history.unanswered_tool_calls(body, form)
            not_started, unknown = list[forms.ParsedCall](), list[forms.ParsedCall]()
            abandoned = list[forms.ParsedCall]()
            for tool in map(self._identify(contents), open_calls):
                started = state.calls.get(tool.id)
                if started is None:
                    not_started.append(tool)
                    continue
                unknown.append(tool)
                if self._store.time() - started.active > self.abandoned_after:
                    abandoned.append(tool)
            return Resume(
                "calls" if open_calls or unsent else "nothing",
                not_started=tuple(not_started),
                unknown=tuple(unknown),
                abandoned=tuple(abandoned),
                unsent=tuple(unsent),
            )

    # --- tools -----------------------------------------------------------------------------------

    def tool(self, call: object, *, idempotent: bool = False) -> ToolRun:
        """Return a context in which a tool runs at most once; see `ToolRun`."""
        from continuation.journal.tools import ToolRun

        return ToolRun(self, self.identified(call), idempotent=idempotent)

    def identified(self, call: object) -> forms.ParsedCall:
        """Read a call; one without an id gets that of its answer, its name and its arguments.

        Those that are alike in one answer are told apart by the order in which they are run.
        """
        tool = forms.tool_call(call)
        if tool.id:
            return tool
        ids = self._ids(tool, self._contents(self._answer_number))
        with self._lock:
            self._anonymous_calls[ids[0]] += 1
            return replace(tool, id=ids[(self._anonymous_calls[ids[0]] - 1) % len(ids)])

    @property
    def _answer_number(self) -> int:
        """The number of the last answer."""
        answers = [turn.number for turn in self._state.turns if turn.kind == "answer"]
        return answers[-1] if answers else 0

    def _ids(self, tool: forms.ParsedCall, contents: dict[int | None, Any]) -> list[str]:
        """Return the ids of the last answer's calls that are like one without an id."""
        number = self._answer_number
        key = f"#{number}/{tool.name}/{forms.digest([tool.arguments])[:12]}"
        alike = forms.count_alike(as_json(contents.get(number)), tool)
        return [key, *(f"{key}/{nth}" for nth in range(2, alike + 1))]

    def _identify(self, contents: dict[int | None, Any]) -> Callable[[OpenCall], forms.ParsedCall]:
        """Return what identifies open calls: they are those that have no result."""
        identified = dict[str, forms.ParsedCall]()

        def identify(call: OpenCall) -> forms.ParsedCall:
            tool = identified.get(call.path) or forms.tool_call(call)
            if not tool.id:
                ids, taken = self._ids(tool, contents), {each.id for each in identified.values()}
                free = [each for each in ids if each not in taken and not self.state_of(each)[1]]
                tool = replace(tool, id=(free or ids)[0])
            identified[call.path] = tool
            return tool

        return identify

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

    def state_of(self, call_id: str) -> tuple[bool, int | None]:
        """Say of a call whether it began, and which record its result is."""
        call = self._state.calls.get(call_id)
        return call is not None, call.result if call is not None else None

    def recorded(self, number: int) -> Json:
        """Return a recorded result."""
        return as_json(self._contents(number).get(number))

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
