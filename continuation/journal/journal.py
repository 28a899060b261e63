"""`Journal`: a session that outlives its process.

This is written, and when. Before a request leaves: what is new in it, and that its turn has begun.
While its answer streams: every `save_every` seconds what the caller was given since. At its end, in
one transaction: the answer and the end, and the running text is removed. Before a tool begins: the
intent to run it. After it: its result. All is appended, keyed by session and number, by the one
process that owns the session.

After a kill the same request resumes the turn: the engine is given what was saved as a first
attempt whose connection dropped, and continues it like any other. There is no second mechanism.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
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
from continuation.journal.statements import APPEND, FORGET, SAVE, Statement
from continuation.journal.store import FORKED, TAKEN, JournalStore, Ownership, follow
from continuation.logs import line
from continuation.policy import is_url
from continuation.providers.contract import ParsedCall
from continuation.registry import dialects
from continuation.types import Json, Outcome
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    from continuation.journal.tools import ToolRun
    from continuation.providers.contract import ProviderRequest

logger = logging.getLogger("continuation")

Durability = Literal["kill", "power"]
Interrupted = Literal["keep", "drop"]
_REPEATABLE = frozenset({APPEND, SAVE, FORGET})


class Journal(SessionReader):
    """A session in a store: its conversation, its half-written turn, its tools.

    `target`: the path of an SQLite file, or a `postgresql://` URL as libpq reads it (extra
    `postgres`). Many sessions and processes may share either, and many machines a database.
    `session`: the session's name.
    """

    _rests = True
    """Whether `close` puts a file in one piece if no other session of the process is open."""

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
        """Open a session, create it if there is none, and become its owner.

        `save_every`: seconds between saves of running text; a kill may lose as much.
        `durability`: `"power"` also syncs saves, so that a power loss takes no more than a kill.
        `content`: `"none"` keeps only states; then a half-written turn cannot be resumed.
        `interrupted`: whether a half-written answer stays in the history if it is not continued.
        `codec`: encodes the content that is kept. `lease`: seconds of silence after which an owner
        on another machine has lost the session. `abandoned_after`: seconds of silence after which
        a call counts as abandoned. `readonly`: open an existing session without owning it.
        `take_over`: own the session even if its owner may live, because something else decides who
        runs, such as a workflow engine; the former owner gets `Fenced`. If that one was suspended
        inside a tool, it may still act: `ToolRun.check`, just before the effect, prevents that.

        Raises `LeaseHeld` when another process owns the session; `JournalError` if the store is no
        journal, of a newer version or out of reach; `ValueError` naming field, value and remedy.
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
            message = f"session = {session!r}: must be a name"
            raise ValueError(f"{message}, without NUL characters and lone surrogates")
        self._target, self.session = target, session
        self.save_every = save_every
        self.durability: Durability = durability
        self.interrupted: Interrupted = interrupted
        self.lease, self.readonly, self.take_over = lease, readonly, take_over
        self._process = os.getpid()
        self._fault: BaseException | None = None
        self._closed = False
        self._is_incomplete = False
        """Whether the caller was given an answer that is not recorded."""
        dialects()  # imported now: a process may later lose the right to read files
        store = JournalStore.of(target, make=not readonly)
        self.target = store.name if is_url(str(target)) else Path(target)
        """The path of the file, or the URL of server and database, without user and password."""
        owner: Ownership | None = None
        try:
            owner = (
                self._find(store)
                if readonly
                else acquire(store, session, lease, by_force=take_over)
            )
            super().__init__(
                store, session, owner, content=content, codec=codec, abandoned_after=abandoned_after
            )
        except BaseException:
            if owner is not None and not readonly:
                store.leave(owner, lease / 3)
            if self._rests:
                store.rest()
            raise
        self._inherited_until = self._state.number
        """The number of the last record of earlier processes; 0 once their answer was repeated."""
        if not readonly:
            self._store.start_beats(self.owner, lease / 3)

    def _find(self, store: JournalStore) -> Ownership:
        for row in store.find(store.sql.session, (self.session,)):
            return Ownership(*row)
        message = f"session {self.session!r}: not found in {self.target}"
        raise JournalError(message)

    # --- who may write ---------------------------------------------------------------------------

    @property
    def fencing_token(self) -> int:
        """A number that grows with each owner; a service that compares it can refuse old ones."""
        return self.owner.epoch

    def check(self) -> None:
        """Raise `JournalError` or `Fenced` if this journal cannot be written by this process."""
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
    def fault(self) -> tuple[str, str] | None:
        """The exception that the last write failed with, and why; `None`: it succeeded."""
        if self._fault is None:
            return None
        return type(self._fault).__name__, self._store.reason(self._fault)

    def failed(self, error: BaseException) -> str:
        """Note that a write failed, and return why and the remedy; the turn continues."""
        reason = self._store.reason(error)
        why, _, remedy = reason.partition("; ")
        event = None
        if isinstance(error, Fenced):
            event = None if isinstance(self._fault, Fenced) else "session lost"
        elif self._fault is None:
            event = "journal not durable"
        if event is not None:
            logger.warning("%s", line(event, session=self.session, reason=why, remedy=remedy))
        self._fault = error
        return reason

    @property
    def pointer(self) -> dict[str, str | int]:
        """The session's progress, without any of its content.

        Its name (`session`), the number of the `turn` begun last, the `characters` saved of it.
        """
        live, state = self._live, self._state
        characters = 0 if live is None or live.ended else live.characters
        turn = state.ended_turns + (state.turn is not None)
        return {"session": self.session, "turn": turn, "characters": characters}

    def encode(self, data: bytes) -> bytes:
        """Return content as the codec encodes it, or unchanged without one."""
        return data if self._codec is None else self._codec.encode(data)

    def _append(
        self, *records: tuple[str, str, object], durable: bool, forget: bool = False
    ) -> Future[None]:
        """Append records of (kind, key, content); the caller holds the lock."""
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
        """Apply records, unless one cannot be encoded; return the statements that write them."""
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
        """Return these statements after those that could not be written before."""
        with self._lock:
            pending, self._pending = self._pending, []
        return [*pending, *statements]

    def written(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """Handle a write's result: what failed is written later, but an intent is taken back."""
        error = done.exception()
        if error is None:
            self._fault = None
            return
        self.failed(error)
        transient = isinstance(error, self._store.transient)
        with self._lock:
            for write, values in statements:
                if write == APPEND and values[3] == "intent":
                    self._state.cancel_intent(values[4])
                elif transient and write in _REPEATABLE:
                    self._pending.append((write, values))

    # --- turns -----------------------------------------------------------------------------------

    def begin(
        self, form: str, request: ProviderRequest, *, framed: bool, once: bool = False
    ) -> LiveTurn | None:
        """Begin a turn for a request that is about to be sent; `None`: it is not kept.

        `framed`: its answer is an AWS event stream. `once`: if the request is the same as the last
        one, that one's answer is given again.
        """
        if self._state.turn is not None:
            # Save what was given of it first; not under the lock, which the writer needs too.
            self._store.flush()
        with self._lock:
            if self._live is not None and not (self._live.ended or self._live.caller_left):
                why = "another turn of this session is running"
                remedy = "use journal.child(...)"
                event = "answer not recorded"
                logger.warning("%s", line(event, session=self.session, reason=why, remedy=remedy))
                return None
            return self._begin(form, request, framed=framed, once=once)

    def _begin(self, form: str, request: ProviderRequest, *, framed: bool, once: bool) -> LiveTurn:
        state, body = self._state, request.body
        shape, codec = forms.shape_of(form), request.codec()
        messages = shape.request_messages(body)
        digests = [forms.digest(each, shape) for each in messages]
        digest = forms.request_digest(form, shape, request.model, body, digests, exactly=once)
        inherited = bool(state.messages) and state.messages[-1].number <= self._inherited_until
        # A workflow step that was killed before its engine recorded the answer asks the same again.
        once = (once or (self.take_over and inherited)) and state.request_digest == digest
        if repeated := self._repeat_answer(form, request, codec, digests, framed=framed, once=once):
            return repeated
        events, saves, attempts, statements = list[Json](), 0, 0, list[Statement]()
        end_events = list[Json]()
        resuming = state.turn is not None and state.turn.request_digest == digest
        if resuming:
            events, saves, attempts = self._saved_events()
            if events and not (request.streamed and characters(events)):
                # Nothing to continue, or a JSON body is wanted now, which is given only as a whole.
                events, saves = [], 0
                statements.append((FORGET, (self.owner.session,)))
        elif state.turn is not None:
            self._close_turn(codec)
        elif once and request.streamed:
            events, end_events = self._cut_answer(form, codec)
            attempts = int(bool(events))  # the one that is replayed
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
            records = self._new_records(form, body, messages, digests)
            statements = self._statements(*records, ("turn", digest, terms), forget=True)
        # Saved even without content, so that this upstream call is counted.
        count = characters(events), attempts + 1
        content = self._content("", [] if resuming else events)
        statements.append((SAVE, (self.owner.session, saves + 1, *count, content)))
        self._write(statements, durable=False)
        self._live, self._is_incomplete = live, False
        return live

    def _new_records(
        self, form: str, body: Json, messages: Sequence[Json], digests: list[str]
    ) -> list[tuple[str, str, object]]:
        """Return the records of a request's new messages, after a `rewind` if it drops old ones."""
        chained = forms.shape_of(form).is_chained(body)
        rewind_to, first_new = self._state.unmatched(digests, chained=chained)
        records: list[tuple[str, str, object]] = []
        if rewind_to is not None:
            records.append(("rewind", str(rewind_to), None))
        pairs = zip(digests[first_new:], messages[first_new:], strict=True)
        return records + [("message", key, message) for key, message in pairs]

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
        """Give the last answer again to a request that ends with it; `None`: it does not fit.

        A program that was killed after its last answer starts with a history that ends with it.
        Only an answer from before this process is repeated, and only once: after that the caller
        wants a new one. `once`: the request is the one that was answered: repeat without limit.
        """
        state = self._state
        if self.content == "none" or not state.envelope or request.model != state.model:
            return None
        if once and state.outcome in (NOT_WHOLE if request.streamed else BROKE_OFF):
            return None  # it is continued instead
        if state.outcome == Outcome.UNTOUCHED and (request.streamed, request.limit) != (
            False,
            state.limit,
        ):
            return None  # an untouched answer fits no other limit, and no stream
        if not self._answer_numbers:  # the answer was empty
            return None
        ends_with_it = [each.digest for each in state.messages] == digests
        if not once and not (ends_with_it and state.messages[-1].number <= self._inherited_until):
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
        key = str(self._state.messages[-1].number) if self._state.messages else ""
        if key not in self._state.repaired:
            logger.warning("%s", line("history repaired", session=self.session, changes=changes))
            if not self.readonly and not self._closed:
                self._append(("repair", key, None), durable=False)

    def _close_turn(self, codec: Any) -> None:
        """End the open turn, which another request replaces; keep its answer if that is wanted."""
        state, turn = self._state, self._state.turn
        events, _, _ = self._saved_events()
        records: list[tuple[str, str, object]] = []
        if self.interrupted == "keep" and turn is not None and characters(events):
            given = Given(codec, framed=turn.framed)
            for event in events:
                given.segment.add(event)
            shape = forms.shape_of(state.form)
            messages = shape.answer_messages(given.body())
            records = [("interrupted", forms.digest(each, shape), each) for each in messages]
        self._append(*records, ("drop", "", None), durable=True, forget=True)

    def save_soon(self, live: LiveTurn, seconds: float) -> None:
        """Have a turn's text saved after so many seconds."""
        self._store.save_at(time.monotonic() + seconds, live)

    def finish(self, live: LiveTurn) -> Future[None] | None:
        """Have a turn's end recorded; return a future to wait for, `None`: do not wait."""
        held = self._lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        done = self._store.finish(live)
        return None if held else done

    def ended(
        self, messages: Sequence[Json], fields: Json
    ) -> tuple[Ownership, Sequence[Statement], bool]:
        """Return what records an answer and its turn's end: owner, statements, whether to sync."""
        with self._lock:
            shape = forms.shape_of(self._state.form)
            answer = [("answer", forms.digest(each, shape), each) for each in messages]
            end = ("end", "", fields)
            return self.owner, self.queued(self._statements(*answer, end, forget=True)), True

    def dropped(self, *, answered: bool = False) -> None:
        """Record that the open turn ended without an answer, or with one that is not recorded."""
        with self._lock:
            self._is_incomplete = answered
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

        `call`: as the SDK gave it. `run` is called with it, and with `idempotency_key`,
        `fencing_token` and `tool_run` (a `ToolRun`, for its `check`) if it names them; if it is a
        coroutine function, await what this returns. Its result must be JSON. What it raises is
        recorded as the call's result, and raised; the call is not run again.

        A call that began and has no result is not run again: the text that is returned states that
        its outcome is unknown. `idempotent`: run such a call again, with the same key. `verify`:
        called like `run` for such a call; it returns the result if the tool has run, `None` if not
        (then it is run), and raises `OutcomeUnknown` if it cannot find out. A process that was
        suspended before its effect may have it after `verify` said `None`: see `ToolRun.check`.

        Raises `JournalError` when the intent to run it cannot be recorded: then `run` is not
        called. Raises `Fenced` when another process owns the session.
        """
        from continuation.journal import tools

        runner = tools.Runner(self, call, run, idempotent=idempotent, verify=verify)
        return runner.asynchronously() if runner.asynchronous else runner.now()

    def settle(
        self,
        run: Callable[..., Any],
        *,
        idempotent: Collection[str] = (),
        verify: Callable[..., Any] | None = None,
    ) -> Any:
        """Run the calls that the last answer asks for; return the messages of the next request.

        For the beginning of an agent's loop: after a kill as after an answer it runs, in their
        order, the calls that have no result yet, each as `call` does, and returns `history()`;
        `[]` in a new session. Called again, it runs nothing again. `run` is called with a
        `ParsedCall` (`id`, `name`, `arguments`); if it is a coroutine function, await what this
        returns.

        What `run` raises is recorded as the call's result, for the model, and the other calls run;
        a warning names the tool and the exception. `JournalError` is raised, and what is no
        `Exception` (`KeyboardInterrupt`, a cancellation) stops here: then the outcome of the call
        is unknown. `idempotent`: the names of tools that may run again if their outcome is
        unknown. `verify`: as for `call`.

        Calls of an answer that is not whole (truncated, broken off) are not run: the messages
        state so. While an answer is half written, the messages are those of its request.
        """
        from continuation.journal import tools

        settling = tools.Settling(self, run, idempotent=idempotent, verify=verify)
        return settling.asynchronously() if tools.is_asynchronous(run) else settling.now()

    def calls_to_settle(self) -> list[ParsedCall]:
        """Return the calls of the last answer without a result, in their order.

        Raises `JournalError` if the last answer is not recorded.
        """
        self.check()
        if self._is_incomplete:
            message = (
                f"session {self.session!r}: the last answer is not recorded, because its request"
                " was passed through unchanged; see `enabled` and `leave_limits_below`"
            )
            raise JournalError(message)
        return self._last_calls()

    def check_owner(self) -> None:
        """Raise `Fenced` if the store says that another process owns the session by now."""
        self.check()
        if self._store.find(self._store.sql.epoch, (self.owner.session,)) != [(self.owner.epoch,)]:
            fenced = Fenced(TAKEN)
            self.failed(fenced)
            raise fenced

    def result(self, call: object, value: Any, *, failed: bool = False) -> None:
        """Record a call's result that comes late, or from a run elsewhere.

        `history` then has it in place of a made-up result. A result already recorded stays.
        """
        tool = self.identified(call)
        if self.state_of(tool.id)[1] is None:
            record = self.result_of(tool, value, failed=failed)
            self.wait(self.record("result", tool.id, record), "the result is not recorded yet")

    def record(self, kind: str, call_id: str, content: object) -> Future[None]:
        """Record of a call an `intent`, a `result`, or `active`: that it still runs."""
        self.check()
        with self._lock:
            return self._append((kind, call_id, content), durable=kind != "active")

    def wait(self, done: Future[None] | None, so: str = "the tool is refused") -> None:
        """Wait until a record is durable. Raises `JournalError` if it cannot be written.

        `so`: what follows from that, for the message.
        """
        if done is None:
            return
        try:
            done.result()
        except JournalError:
            raise
        except Exception as error:
            message = f"the journal cannot be written, so {so}: {self._store.reason(error)}"
            raise JournalError(message) from error

    def result_of(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        """Return a call's result in the form in which it is recorded."""
        form = self._state.form
        sent: Json = {}
        if form:  # otherwise the session has no answer yet that calls a tool
            sent = forms.shape_of(form).result(call, value, failed=failed)
        return {"turn": sent, "value": value, "failed": failed}

    # --- the rest --------------------------------------------------------------------------------

    def child(self, name: str) -> Journal:
        """Open session `SESSION/name`, same options, for a subagent or a parallel request."""
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
        """Save the running turn, and give up the session: another process may own it at once.

        The last one to close a file leaves it in one piece: without `-wal` and `-shm` beside it.
        """
        closed, self._closed = self._closed, True
        if closed or self._process != os.getpid():
            return
        if not self.readonly:
            self._store.flush()
            with suppress(Exception):
                self._store.leave(self.owner, self.lease / 3, self.queued(())).result()
        if self._rests:
            self._store.rest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
