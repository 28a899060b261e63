"""`Journal`: a session that outlives its process.

The journal writes:

- before a request is sent: its new messages, and that its turn has begun;
- while the answer streams: every `save_every` seconds, what the caller has received since;
- when the answer ends, in one transaction: the answer and the end; it removes the running text;
- before a tool begins: the intent to run it; after the tool: its result.

Records are only appended. Session and number identify each. Only the process that owns the session
writes.

After a kill, the same request resumes the turn. The engine gets the saved text as a first attempt
with a dropped connection, and continues it as usual. There is no second mechanism.
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
    `postgres`). Many sessions and processes may share either; many machines may share a database.
    `session`: the session's name.
    """

    _rests = True
    """Whether `close` also closes the file, if no other session of the process is open."""

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

        `save_every`: seconds between saves of running text. A kill loses at most that much.
        `durability`: `"power"` also syncs saves, so that a power loss loses no more than a kill.
        `content`: `"none"` keeps only states; a half-written turn then cannot be resumed.
        `interrupted`: whether a half-written answer stays in the history if it is not continued.
        `codec`: encodes the content that is kept.
        `lease`: seconds of silence after which an owner on another machine has lost the session.
        `abandoned_after`: seconds of silence after which a call counts as abandoned.
        `readonly`: open an existing session without owning it.
        `take_over`: own the session even if its owner may be alive, because something else, such
        as a workflow engine, decides which process runs. The former owner gets `Fenced`. If it was
        suspended inside a tool, it could still act; to prevent that, call `ToolRun.check` just
        before the effect.

        Raises `LeaseHeld` when another process owns the session. Raises `JournalError` if the store
        is no journal, has a newer version or cannot be reached. Raises `ValueError` for a bad
        value; its message has field, value and remedy.
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
        """Whether the caller received an answer that is not recorded."""
        dialects()  # import them now: a process may later lose the right to read files
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
        """Number of the last record of earlier processes; 0 once their answer was repeated."""
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
        """A number that grows with each owner; a service can use it to refuse former owners."""
        return self.owner.epoch

    def check(self) -> None:
        """Raise `JournalError` or `Fenced` if this process cannot write this journal."""
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
        """Name and reason of the exception of the last write; `None`: it succeeded."""
        if self._fault is None:
            return None
        return type(self._fault).__name__, self._store.reason(self._fault)

    def failed(self, error: BaseException) -> str:
        """Log that a write failed; return the reason and the remedy. The turn continues."""
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

        Its name (`session`), the number of its last `turn`, and the `characters` saved of that.
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
        """Append records of (kind, key, content). The caller must hold the lock."""
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
        """Apply records to the state; return the statements that write them.

        If one cannot be encoded, none is applied.
        """
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
        """Return these statements, preceded by those that could not be written before."""
        with self._lock:
            pending, self._pending = self._pending, []
        return [*pending, *statements]

    def written(self, statements: Sequence[Statement], done: Future[None]) -> None:
        """Handle a write's result. Write later what failed; but cancel an intent that failed."""
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
        """Begin a turn for a request that is about to be sent; `None`: it is not recorded.

        `framed`: the answer is an AWS event stream. `once`: if the request equals the last one,
        repeat the last answer.
        """
        if self._state.turn is not None:
            # First save what the caller received of it; without the lock, which the writer needs.
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
        # A workflow step that was killed before its engine recorded the answer sends it again.
        once = (once or (self.take_over and inherited)) and state.request_digest == digest
        if repeated := self._repeat_answer(form, request, codec, digests, framed=framed, once=once):
            return repeated
        events, saves, attempts, statements = list[Json](), 0, 0, list[Statement]()
        end_events = list[Json]()
        resuming = state.turn is not None and state.turn.request_digest == digest
        if resuming:
            events, saves, attempts = self._saved_events()
            if events and not (request.streamed and characters(events)):
                # There is nothing to continue, or the caller now wants a JSON body, not a stream.
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
        # Save even without content: this counts the upstream call.
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
        """Repeat the last answer for a request that ends with it; `None`: it does not fit.

        A program that was killed after its last answer restarts with a history that ends with that
        answer. Only an answer of an earlier process is repeated, and only once: after that, the
        caller wants a new one. `once`: the request is the one that was answered; repeat its answer
        any number of times.
        """
        state = self._state
        if self.content == "none" or not state.envelope or request.model != state.model:
            return None
        if once and state.outcome in (NOT_WHOLE if request.streamed else BROKE_OFF):
            return None  # the turn continues it instead
        if state.outcome == Outcome.UNTOUCHED and (request.streamed, request.limit) != (
            False,
            state.limit,
        ):
            return None  # an untouched body fits only a request without stream and with its limit
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
        """End the open turn, which another request replaces.

        Keep its answer if `interrupted` is `"keep"` and the answer has text.
        """
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
        """Make the writer save a turn's text in `seconds`."""
        self._store.save_at(time.monotonic() + seconds, live)

    def finish(self, live: LiveTurn) -> Future[None] | None:
        """Make the writer record a turn's end; return a future to wait for; `None`: do not wait."""
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
        """Run the tool of a call at most once; return its result. If it ran before, return that.

        `call`: as the SDK returned it. `run` gets the call, and `idempotency_key`, `fencing_token`
        and `tool_run` (a `ToolRun`, for its `check`) if it has parameters of these names. If it is
        a coroutine function, await what this method returns. Its result must be JSON. An exception
        of `run` is recorded as the call's result and raised. The call is not run again.

        A call that began and has no result is not run again either. Its result here is a text that
        says that the outcome is unknown. `idempotent`: run such a call again, with the same key.
        `verify`: called like `run` for such a call. It returns the result if the tool has run, and
        `None` if not; the tool is then run. It raises `OutcomeUnknown` if it cannot find out. A
        process that was suspended before its effect may still act after `verify` returned `None`:
        see `ToolRun.check`.

        Raises `JournalError` when the intent cannot be recorded; `run` is then not called. Raises
        `Fenced` when another process owns the session.
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
        """Run the tool calls of the last answer; return the messages of the next request.

        Call it at the beginning of an agent's loop, both after an answer and after a kill. It runs
        the calls that have no result yet, in order, each as `call` does. It returns `history()`,
        which is `[]` in a new session. A second call runs nothing again. `run` gets a `ParsedCall`
        (`id`, `name`, `arguments`). If it is a coroutine function, await what this method returns.

        An exception of `run` is recorded as the call's result, for the model, and the other calls
        run. A warning names the tool and the exception. `JournalError` is raised. Anything else
        than an `Exception` (`KeyboardInterrupt`, a cancellation) is raised too, and the outcome of
        the call is then unknown. `idempotent`: the names of tools that may run again if their
        outcome is unknown. `verify`: as for `call`.

        Calls of an incomplete answer (truncated or broken off) are not run, and the messages say
        so. While an answer is half written, the messages are those of its request.
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
        """Raise `Fenced` if, according to the store, another process now owns the session."""
        self.check()
        if self._store.find(self._store.sql.epoch, (self.owner.session,)) != [(self.owner.epoch,)]:
            fenced = Fenced(TAKEN)
            self.failed(fenced)
            raise fenced

    def result(self, call: object, value: Any, *, failed: bool = False) -> None:
        """Record a call's result that arrives late, or that was produced elsewhere.

        `history` then contains it instead of a text that says that there is no result. It does not
        replace a result that is already recorded.
        """
        tool = self.identified(call)
        if self.state_of(tool.id)[1] is None:
            record = self.result_of(tool, value, failed=failed)
            self.wait(self.record("result", tool.id, record), "the result is not recorded yet")

    def record(self, kind: str, call_id: str, content: object) -> Future[None]:
        """Record a call's `intent`, its `result`, or (`active`) that it is still running."""
        self.check()
        with self._lock:
            return self._append((kind, call_id, content), durable=kind != "active")

    def wait(self, done: Future[None] | None, so: str = "the tool is refused") -> None:
        """Wait until a record is durable. Raises `JournalError` if it cannot be written.

        `so`: the consequence, for the error's message.
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
        if form:  # without one, the session has no answer with a call yet
            sent = forms.shape_of(form).result(call, value, failed=failed)
        return {"turn": sent, "value": value, "failed": failed}

    # --- the rest --------------------------------------------------------------------------------

    def child(self, name: str) -> Journal:
        """Open session `SESSION/name` with the same options, for a subagent or parallel request."""
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
        """Save the running turn and give up the session. Another process can own it at once.

        The last process that closes a file also removes its `-wal` and `-shm` files.
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
