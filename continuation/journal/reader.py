"""Read a session: its conversation, its last answer, and the facts for a resume.

Nothing here writes. Reads see the store, and what this process has not written yet.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from continuation.journal import forms
from continuation.journal.errors import JournalError
from continuation.journal.session import CONTENT_KINDS, SessionState, characters
from continuation.journal.statements import APPEND, Statement
from continuation.journal.store import JournalStore, Ownership
from continuation.providers.contract import ParsedCall
from continuation.types import Json, Outcome
from continuation.wire.json_values import as_json, as_list, loads, objects

if TYPE_CHECKING:
    from continuation.history.types import OpenCall
    from continuation.journal.live_turn import LiveTurn

Content = Literal["full", "none"]
BROKE_OFF = frozenset({Outcome.PARTIAL, Outcome.STALLED})
"""Outcomes of answers that broke off. This library, not the provider, wrote their end."""
NOT_WHOLE = BROKE_OFF | {Outcome.TRUNCATED}
"""Outcomes of incomplete answers: they broke off or were truncated."""
_BLOCK_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop"}
)
"""Types of an answer's events that do not belong to its end."""


class Codec(Protocol):
    """Encodes the recorded content, for example by encryption."""

    def encode(self, data: bytes) -> bytes: ...
    def decode(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Resume:
    """What a session was doing when its process was stopped."""

    kind: Literal["nothing", "turn", "calls"]
    """`turn`: an answer is half written, and the same request continues it. `calls`: calls of the
    last answer have no result, or have a result that no request has sent."""
    characters: int = 0
    """How many characters of the half-written answer are saved."""
    resumable: bool = True
    """`False`: no text is saved that could be continued."""
    attempts: int = 0
    """How many upstream calls were made for the half-written answer."""
    not_started: tuple[ParsedCall, ...] = ()
    """Calls that never began: safe to run. Calls of incomplete answers are not listed."""
    unknown: tuple[ParsedCall, ...] = ()
    """Calls that began and have no result: their outcome is unknown."""
    abandoned: tuple[ParsedCall, ...] = ()
    """Those of `unknown` that were last known to run more than `abandoned_after` seconds ago."""
    unsent: tuple[str, ...] = ()
    """Ids of calls with a result that no request has sent yet."""


class SessionReader:
    """The reading part of a session, and the base of `Journal`."""

    def __init__(
        self,
        store: JournalStore,
        session: str,
        owner: Ownership,
        *,
        content: Content,
        codec: Codec | None,
        abandoned_after: float,
    ) -> None:
        """Read the session's state. Raises `JournalError`."""
        self._store, self.session, self.owner = store, session, owner
        self.content: Content = content
        self._codec, self.abandoned_after = codec, abandoned_after
        self._lock = threading.RLock()
        self._pending: list[Statement] = []
        """Statements that could not be written. They are written before the next ones."""
        self._live: LiveTurn | None = None
        self._state = SessionState()
        self._anonymous_calls = Counter[str]()
        """How often each id was assigned to a call without an id."""
        self._read()

    def _read(self) -> None:
        """Read the records, without the content of the conversation."""
        for row in self._store.find(self._store.sql.states, (self.owner.session,)):
            self._state.apply(*row)

    def _decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return loads(data if self._codec is None else self._codec.decode(data))

    # --- the conversation -------------------------------------------------------------------------

    def history(self, dialect: str | None = None) -> list[dict[str, Any]]:
        """Return the messages for the next request; `[]`: there are none yet.

        These are the messages of requests and answers, then results that were not sent yet. A call
        without a result gets one that says what is known about it. While an answer is half written,
        they are the messages of its request; sending them again resumes the answer.

        Raises `ValueError` if the session's format is not `dialect`, and `JournalError` if no
        content is kept.
        """
        from continuation import history

        contents = self._contents()
        with self._lock:
            state = self._state
            if dialect is not None and state.form and dialect != state.form:
                message = f"dialect = {dialect!r}: this session's format is {state.form!r}"
                raise ValueError(message)
            if not state.messages:
                return []
            form, body, unsent = self._body(contents)
            started = {call_id for call_id, call in state.calls.items() if call.result is None}
            results = list(unsent.values())
            if any(call_id.startswith("#") for call_id in unsent):
                calls = self._unanswered(form, body, contents)
                results = self._results_in_order(form, unsent, calls, started)
            shape = forms.shape_of(form)
            results, key = shape.group_results(results), shape.messages
            body[key] = [*as_list(body[key]), *results]
            if not forms.has_rules(form):
                return objects(body[key])
            identify = self._identify(contents)

            def reason(call: OpenCall) -> history.Reason:
                begun = identify(call).id in started
                return history.Reason.STARTED_UNKNOWN if begun else history.Reason.NOT_STARTED

            policy = history.RepairPolicy(
                live=False,
                prefill=True,
                reason=reason,
                # The last message here will not be the last one of the request.
                allow=lambda change: change.why != "trailing_whitespace",
            )
            repaired = history.repair(body, form, policy=policy, model=state.model)
            if repaired.changes:
                self._note_repair(len(repaired.changes))
            return objects(repaired.body[key])

    def _body(self, contents: dict[int | None, Any]) -> tuple[str, Json, dict[str, Json]]:
        """Return format, request body without unsent results, and those results by call id."""
        state, form = self._state, self._state.form
        if self.content == "none":
            message = (
                f"session {self.session!r}: with content = 'none', no conversation is recorded"
            )
            raise JournalError(message)
        shape = forms.shape_of(form)
        messages = [as_json(contents.get(recorded.number)) for recorded in state.messages]
        sent, anonymous = set[str](), 0
        for recorded, content in zip(state.messages, messages, strict=True):
            ids = shape.answered_calls(content)
            anonymous = recorded.number if "#" in ids else anonymous
            sent |= ids
        unsent = dict[str, Json]()
        for call_id, call in state.calls.items():
            if call.result is None or call_id in sent:
                continue
            if call_id.startswith("#") and int(call_id[1:].partition("/")[0]) < anonymous:
                continue
            if result := as_json(as_json(contents.get(call.result)).get("turn")):
                unsent[call_id] = result
        return form, {"model": state.model, shape.messages: messages}, unsent

    def _unanswered(
        self, form: str, body: Json, contents: dict[int | None, Any]
    ) -> list[tuple[ParsedCall, bool]]:
        """Return the calls that no message of a body answers, and whether only results follow them.

        `body` must not contain unsent results. Results of calls without an id belong to the calls
        in order, and an earlier call may still have no result.
        """
        from continuation import history

        if not forms.has_rules(form):
            return []
        identify, calls = self._identify(contents), history.unanswered_tool_calls(body, form)
        return [(identify(call), call.trailing) for call in calls]

    def _results_in_order(
        self,
        form: str,
        unsent: dict[str, Json],
        calls: list[tuple[ParsedCall, bool]],
        started: set[str],
    ) -> list[Json]:
        """Return the messages of unsent results in the order of their calls.

        Only its place identifies a call without an id. So each such call needs a result here, and
        gets one that says what is known about it.
        """
        from continuation.history.wordings import WORDINGS, Reason

        shape, rest, results = forms.shape_of(form), dict(unsent), list[Json]()
        for call, last in calls:
            if call.id in rest:
                results.append(rest.pop(call.id))
            elif last and call.id.startswith("#"):
                known = Reason.STARTED_UNKNOWN if call.id in started else Reason.NOT_STARTED
                results.append(shape.result(call, WORDINGS[known], failed=True))
        return [*results, *rest.values()]

    def _contents(self, number: int | None = None, *, flush: bool = True) -> dict[int | None, Any]:
        """Return the conversation's content by record number. `number`: only that record's.

        `flush`: write what is pending first. Do not hold the lock then, because the writer needs
        it.
        """
        query, values = self._store.sql.contents, [self.owner.session]
        if number is not None:
            query, values = self._store.sql.content, [*values, number]
        if flush:
            self._store.flush()
        rows = self._store.find(query, values)
        with self._lock:
            rows += [(row[1], row[3], row[6]) for write, row in self._pending if write == APPEND]
        return {each: self._decode(data) for each, kind, data in rows if kind in CONTENT_KINDS}

    @property
    def _is_whole(self) -> bool:
        """Whether the last answer is complete. Calls of a truncated answer may lack arguments."""
        return self._state.outcome not in NOT_WHOLE and not self._state.stopped_short

    def _last_calls(self) -> list[ParsedCall]:
        """Return the calls without a result at the session's end, if their answer is complete."""
        contents = self._contents()
        with self._lock:
            state = self._state
            if state.turn is not None or not state.messages or not self._is_whole:
                return []
            form, body, unsent = self._body(contents)
            calls = self._unanswered(form, body, contents)
            return [call for call, last in calls if last and call.id not in unsent]

    def resume(self) -> Resume:
        """Return what the session was doing when its process stopped. Changes nothing."""
        contents = self._contents()
        with self._lock:
            state = self._state
            if state.turn is not None and (self._live is None or self._live.caller_left):
                events, _, attempts = self._saved_events()
                count = characters(events)
                return Resume("turn", count, bool(count), attempts)
            if not state.messages or self.content == "none":
                return Resume("nothing", resumable=False)
            form, body, unsent = self._body(contents)
            calls = self._unanswered(form, body, contents)
            open_calls = [call for call, _ in calls if call.id not in unsent]
            not_started, unknown = list[ParsedCall](), list[ParsedCall]()
            abandoned = list[ParsedCall]()
            for tool in open_calls:
                started = state.calls.get(tool.id)
                if started is None:
                    if self._is_whole:
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

    def _note_repair(self, changes: int) -> None:
        """Note that `history` repaired the conversation, with so many changes."""

    # --- the last answer --------------------------------------------------------------------------

    @property
    def _answer_numbers(self) -> list[int]:
        """The record numbers of the last answer's messages."""
        return [
            each.number for each in self._state.messages if each.number > self._state.turn_start
        ]

    def _last_answer(self, form: str) -> Json:
        """Return the body of the last answer."""
        contents = self._contents(flush=False)  # it was synced before its end was delivered
        messages = [as_json(contents[number]) for number in self._answer_numbers]
        return forms.shape_of(form).join_answer(messages, self._state.envelope or {})

    def _cut_answer(self, form: str, codec: Any) -> tuple[list[Json], list[Json]]:
        """Return the events of the last answer's blocks and of its end, for a repeated request.

        Both are empty if the answer is complete or has no text. The end is empty if the answer
        broke off, because the provider did not write that end.
        """
        state = self._state
        if state.outcome not in NOT_WHOLE or not state.envelope or not self._answer_numbers:
            return [], []
        events = [*codec.to_events(self._last_answer(form))]
        blocks = [event for event in events if event["type"] in _BLOCK_EVENTS]
        ends = [event for event in events if event["type"] not in _BLOCK_EVENTS]
        if not characters(blocks):
            return [], []
        return blocks, [] if state.outcome in BROKE_OFF else ends

    def _saved_events(self) -> tuple[list[Json], int, int]:
        """Return what is saved of the open turn: its events, number of saves and upstream calls."""
        events, saves, attempts = list[Json](), 0, 0
        for row in self._store.find(self._store.sql.saves, (self.owner.session,)):
            saves, attempts = row[0], max(attempts, row[1])
            events += objects(self._decode(row[2]))
        return events, saves, attempts

    # --- calls ------------------------------------------------------------------------------------

    def identified(self, call: object) -> ParsedCall:
        """Return a call with its id. A missing id is made from answer, name and arguments.

        The order in which they run distinguishes equal calls of one answer.
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
        """The record number of the last answer; 0: there is none."""
        answers = [each.number for each in self._state.messages if each.kind == "answer"]
        return answers[-1] if answers else 0

    def _ids(self, tool: ParsedCall, contents: dict[int | None, Any]) -> list[str]:
        """Return the ids of all calls of the last answer that are equal to a call without an id."""
        number = self._answer_number
        key = f"#{number}/{tool.name}/{forms.digest([tool.arguments])[:12]}"
        shape, wanted = forms.shape_of(self._state.form), forms.digest([tool.name, tool.arguments])
        others = shape.calls_without_id(as_json(contents.get(number)))
        alike = sum(forms.digest([each.name, each.arguments]) == wanted for each in others)
        return [key, *(f"{key}/{nth}" for nth in range(2, alike + 1))]

    def _identify(self, contents: dict[int | None, Any]) -> Callable[[OpenCall], ParsedCall]:
        """Return a function that identifies calls; equal ones without an id by their order."""
        identified, counted = dict[str, ParsedCall](), Counter[str]()

        def identify(call: OpenCall) -> ParsedCall:
            tool = identified.get(call.path) or forms.tool_call(call)
            if not tool.id:
                ids = self._ids(tool, contents)
                counted[ids[0]] += 1
                tool = replace(tool, id=ids[(counted[ids[0]] - 1) % len(ids)])
            identified[call.path] = tool
            return tool

        return identify

    def state_of(self, call_id: str) -> tuple[bool, int | None]:
        """Return whether a call is known, and its result's record number (`None`: no result)."""
        call = self._state.calls.get(call_id)
        return call is not None, call.result if call is not None else None

    def recorded(self, number: int) -> Json:
        """Return the result that a record holds."""
        return as_json(self._contents(number).get(number))
