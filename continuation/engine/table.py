"""What an answer is worth, and what follows it: six tables. The first row that fits decides.

`OPENINGS` decides whether a request and its response are handled or passed on, `LABELS` whether
an attempt's stop reason is correct, `ROWS` what happens after an attempt, `ANSWERS` which of two
answers is kept, `PROOFS` whether a completed call is delivered, `ENDINGS` how the caller's answer
ends. The tables in `sending.py` decide what is sent, and how.

A row's condition is data: it maps names of facts to the values they must have. The facts are the
fields of `OpeningFacts`, `Evidence`, `Situation`, `Again`, `Proof` and `Closing`; all tables but
`OPENINGS` and `PROOFS` also use those of `AttemptResult`. A condition on an unknown fact raises
`KeyError`. Every table covers every case: its last row has no condition, or the rows before it
leave no other case.

`Turn`, `Attempts` and `Budget` state the facts and carry out the actions. What they decide all the
same is listed in `design/decision-table.md`, with the reason. `scripts/draw_tables.py` draws the
tables in that page from here, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeVar

from continuation.types import AttemptResult, Outcome, Proof, Stop, StopWord, ToolCallState

When: TypeAlias = Mapping[str, Any]
"""Name of a fact -> the value it must have.

`True`: any true value (a reason, a limit, a flag). `False`: a false one, such as `None`, 0 or `""`.
A frozenset: one of its members. Anything else: an equal value.
"""


class AnyRow(Protocol):
    """What the rows of all tables have."""

    @property
    def name(self) -> str: ...
    @property
    def when(self) -> When: ...
    @property
    def either(self) -> tuple[When, ...]: ...


RowT = TypeVar("RowT", bound=AnyRow)


def first_fit(rows: Sequence[RowT], *parts: Any) -> tuple[RowT, dict[str, Any]]:
    """Return the first row that fits, and the facts: the fields of all `parts`, by name."""
    facts = {name: getattr(part, name) for part in parts for name in part.__slots__}
    for row in rows:
        if _fits(facts, row.when):
            if not row.either:
                return row, facts
            for alternative in row.either:
                if _fits(facts, alternative):
                    return row, facts
    raise LookupError(sorted(facts))


def _fits(facts: Mapping[str, Any], when: When) -> bool:
    for name, wanted in when.items():
        value = facts[name]
        if wanted is True or wanted is False:
            if wanted is not bool(value):
                return False
        elif value not in wanted if isinstance(wanted, frozenset) else value != wanted:
            return False
    return True


class Action(StrEnum):
    """What the engine does next."""

    PASS_ON = "pass_on"
    """Deliver the response unchanged, even if it is incomplete."""
    READ = "read"
    """Read the answer, and complete it if it is incomplete."""
    LOOK = "look"
    """Read the answer event by event: its labels do not show whether it is complete."""
    FINISH = "finish"
    """End the turn with the provider's own stop reason."""
    STOP = "stop"
    """End the turn with a synthetic STOP: a normal end that we write. By policy: as truncated."""
    CUT_CALL = "truncated_tool_call"
    """End the turn; the policy `truncated_tool_call` decides what happens to the truncated call."""
    RAISE = "raise"
    """Pass the first attempt's error to the caller: there is no answer to deliver."""
    ESCALATE = "escalate"
    """Resend the request at the ceiling; the new answer replaces the buffered one."""
    ESCALATE_BEHIND = "escalate_behind"
    """Resend the request at the ceiling; use only what follows the delivered text, or the calls."""
    RESEND = "resend"
    """Resend the request after a drop; the new answer replaces the buffered one."""
    RESEND_BEHIND = "resend_behind"
    """Resend the request after a drop; use only what follows the delivered text, or the calls."""
    RECOVER = "recover"
    """Ask the model to continue the text, in a recovery."""
    RESUME = "resume"
    """Ask the model to continue the text after a drop; `max_drop_recoveries` limits this."""
    TOKEN = "token"
    """Continue the answer with the provider's own continuation token."""
    CHECKPOINT = "checkpoint"
    """After a drop, continue with the provider's last token; no content came after that token."""
    THINK_LESS = "think_less"
    """Resend at the ceiling with less thinking; the new answer replaces the buffered one."""
    REPEAT = "repeat"
    """Resend the request, unchanged, once or twice; the new answer replaces the buffered one."""
    RETRY_SMALLER = "retry_smaller"
    """Ask the model once, without the truncated call, to split the call into smaller ones."""
    ASK_CALL = "ask_call"
    """Ask the model once, after its complete text, to make the call that the text announces."""
    PASS_LOOP = "pass_loop"
    """Ask the model once to continue behind a text that it repeated over and over."""
    COMPLETE_CALL = "complete_call"
    """Ask the model to write the rest of the truncated argument, as text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `OPENINGS` or `ROWS`."""

    name: str
    action: Action
    outcome: Outcome | None = None
    """The outcome of the turn; `None`: the turn continues."""
    reason: str | None = None
    """Why the answer is incomplete, for the report; the fact of that name replaces `{name}`."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)
    """If there are alternatives, one of them must fit as well."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The row that fits first, with the facts filled into its reason."""

    row: str
    action: Action
    outcome: Outcome | None = None
    reason: str | None = None


# --- is the request handled? --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningFacts:
    """What is known of the caller's request and, once it has arrived, of the response's head."""

    unreadable: str | None = None
    """Why the request cannot be read; `None`: it was read."""
    reserved: str | None = None
    """Why requests of this kind pass through unchanged; `None`: this one does not."""
    enabled: bool = True
    limit: int | None = None
    leave_limits_below: int = 0
    small: bool = False
    """The output limit is below `leave_limits_below`: it counts as a deliberate budget."""
    unanswered: bool = False
    """The request failed with an exception; no response arrived."""
    ok: bool = True
    status: int = 200
    repaired: bool = False
    """The history was repaired before the request was last sent."""
    kind: str = ""
    """The content type of the response."""
    known_kind: bool = True
    """The content type is JSON or an event stream. A missing or generic one counts as a stream if
    the caller requested a stream."""


# fmt: off
OPENINGS: tuple[Row, ...] = (
    Row("no answer arrived", Action.RAISE, Outcome.FAILED, "the request failed",
        when={"unanswered": True}),
    Row("an error answer after the history was repaired", Action.PASS_ON, Outcome.FAILED,
        "status {status} after the history was repaired",
        when={"ok": False, "repaired": True}),
    Row("an error answer", Action.PASS_ON, Outcome.FAILED, "status {status}",
        when={"ok": False}),
    Row("the request cannot be read", Action.PASS_ON, Outcome.UNTOUCHED, "{unreadable}",
        when={"unreadable": True}),
    Row("the request is of a kind that is passed through", Action.PASS_ON, Outcome.UNTOUCHED,
        "{reserved}",
        when={"reserved": True}),
    Row("switched off", Action.PASS_ON, Outcome.UNTOUCHED, "switched off by policy",
        when={"enabled": False}),
    Row("the output limit is small", Action.PASS_ON, Outcome.UNTOUCHED,
        "limit {limit} is below leave_limits_below {leave_limits_below}",
        when={"small": True}),
    Row("the answer has another content type", Action.PASS_ON, Outcome.UNTOUCHED,
        "the answer is of type {kind!r}",
        when={"known_kind": False}),
    Row("the answer is read", Action.READ,
        when={}),
)
# fmt: on


# --- is the stop reason correct? --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence against an attempt's own stop reason, besides its result.

    Stop reasons can be wrong: some servers report a normal end although the answer used the whole
    output limit, or a call's arguments do not parse.
    """

    used_up: bool = False
    """The attempt used its limit or more. False if the policy `verify_stop_reason` is off."""
    at_limit: bool = False
    """The attempt used exactly its limit, counted with thinking or without. Using more is weaker
    evidence, because not every server counts thinking against the limit."""
    structured: bool = False
    parses: bool = False
    """The text is complete JSON."""
    written: bool = False
    """The text that a recovery would continue is not empty."""
    in_word: bool = False
    """The text that a recovery would continue ends with a letter or a digit."""
    always_completed: bool = False
    """The server gives truncated answers a normal stop reason, too."""
    open_end: bool = False
    """That text ends where no complete text does: after a comma, in a table's row, in code."""


@dataclass(frozen=True, slots=True)
class Label:
    """One row of `LABELS`."""

    name: str
    stop: Stop | None = None
    """The stop that replaces the attempt's own; `None`: its own is kept."""
    call: ToolCallState | None = None
    """The state that replaces that of its last call; `None`: its own is kept."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


NONE, WHOLE, CUT = ToolCallState.NONE, ToolCallState.WHOLE, ToolCallState.CUT
NORMAL = frozenset(stop for stop in Stop if stop.is_end)

# fmt: off
LABELS: tuple[Label, ...] = (
    Label("ended, but its call is truncated", Stop.LENGTH,
        when={"stop": NORMAL, "call": CUT}),
    Label("ended at its limit, and its call cannot prove that it is complete", Stop.LENGTH, CUT,
        when={"stop": NORMAL, "call": WHOLE, "args_verified": False, "at_limit": True}),
    Label("ended at its limit, where an answer cannot end", Stop.LENGTH,
        when={"stop": NORMAL, "call": NONE, "used_up": True},
        either=({"in_word": True}, {"at_limit": True, "written": True, "open_end": True},
                {"at_limit": True, "written": True, "always_completed": True},
                {"structured": True, "written": True, "parses": False},
                {"written": False, "text": False, "not_resumable": False})),
    Label("keeps its stop reason", when={}),
)
# fmt: on


def believed(result: AttemptResult, evidence: Evidence) -> AttemptResult:
    """Return `result` with the stop and call state that the first fitting row of `LABELS` gives."""
    row = first_fit(LABELS, result, evidence)[0]
    return replace(result, stop=row.stop or result.stop, call=row.call or result.call)


# --- what happens after an attempt --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything a decision may depend on: an attempt's result, and what may still be done."""

    result: AttemptResult
    """The attempt's result. Its fields are facts too."""
    looked: bool = True
    """The answer was read event by event; `False`: only its labels are known."""
    used_up: bool = False
    """The attempt used its limit or more. False if the policy `verify_stop_reason` is off."""
    at_end: bool = False
    """The attempt added nothing, and the text ends where a complete text may end."""
    ended_twice: bool = False
    """This recovery and the one before it ended normally, and neither added anything."""
    prefill_works: bool = False
    """The model has continued a prefill in this turn."""
    structured: bool = False
    can_drop_schema: bool = False
    """A recovery may drop the constraint on structured output; the joined text is then checked."""
    completable: bool = False
    """Policy says to complete structured output, and a recovery may drop its constraint."""
    below: bool = False
    """Policy allows raising the limit, by a fifth or more, and this turn has not done so yet."""
    can_raise_limit: bool = True
    """The limit can still be raised, by any amount."""
    given: bool = False
    """Another program or an earlier process received the answer: it is not generated again."""
    recovering: bool = False
    """The attempt continued an earlier one, by a recovery or by the provider's token."""
    later: bool = False
    """The attempt was not the first one."""
    failed: bool = False
    """The attempt failed, and its retries failed too."""
    spent: str | None = None
    """The budget that is used up; `None`: every budget has something left."""
    unkept: str | None = None
    """Why the chain store could not record that the answer will be completed; `None`: no failure.
    After a failure the answer stays unchanged, because a later request would continue from the
    server's version."""
    recoveries: bool = True
    """The budget still allows a recovery."""
    prefilled: bool = False
    """The last recovery was a prefill: its request ended with the model's own text."""
    drops: bool = True
    """The budget allows another attempt after a drop, and the error may be temporary."""
    repeats: int = 0
    """How often the request may still be resent after an ending that another answer may not
    have."""
    silence: bool = False
    """An empty answer can be a complete one: the request ends with a tool's result, with text of
    the model, or has stop sequences."""
    resumes: bool = False
    """Policy and the format allow to resume an answer that the provider paused."""
    may_promise: bool = False
    """The text is to be checked for a call that it announces and does not make."""
    promised: bool = False
    """The text announces a call, and policy says to ask for it; this was not done yet."""
    asked_call: bool = False
    """The model was asked for an announced call, so the answer's own bytes are no longer enough."""
    stops_loops: bool = False
    """Policy says to end an attempt that repeats the same text over and over."""
    passed_loop: bool = False
    """The model was asked to continue behind such a text; this happens once."""
    think_less: bool = False
    """Policy allows one attempt with less thinking; it is possible, and was not made yet."""
    retry_smaller: bool = False
    """Policy allows one attempt with smaller calls; it is possible, and was not made yet."""
    complete: bool = False
    """Policy says to complete this truncated call."""
    proven: bool = False
    """If `complete`: nothing known so far prevents the completion."""
    unread: bool = False
    """If `complete`: the server parsed the truncated arguments. A stream would show their text; it
    was not requested yet."""


CALLS = frozenset({WHOLE, CUT})
ENDED = frozenset(Stop) - {*(Stop.LENGTH, Stop.WINDOW, Stop.REPETITION, Stop.PAUSED, Stop.DROPPED)}
LEFT_OFF = frozenset({Stop.LENGTH, Stop.DROPPED})
NOT_DROPPED = frozenset(Stop) - {Stop.DROPPED}

MUST_REPEAT: tuple[When, ...] = (
    {"text": False},
    {"structured": True},
    {"call": CUT, "recovering": False},
)
"""Only text can be continued. In these cases the request must be resent."""
MAY_CONTINUE: tuple[When, ...] = ({"structured": False}, {"can_drop_schema": True})
"""A recovery is free text, so no constraint on structured output may apply to it."""

# fmt: off
ROWS: tuple[Row, ...] = (
    Row("only the labels are known, and they are not enough", Action.LOOK,
        when={"looked": False},
        either=({"stop": LEFT_OFF}, {"call": CUT}, {"stop": Stop.WINDOW, "call": CALLS},
                {"stop": NORMAL, "used_up": True}, {"stop": Stop.PAUSED, "resumes": True},
                {"stop": Stop.END, "call": NONE, "may_promise": True},
                {"stop": Stop.ABORTED, "repeats": True},
                {"stop": Stop.REPETITION, "stops_loops": True})),
    # --- later attempts that failed or added nothing --------------------
    Row("a recovery failed, and a budget is used up", Action.STOP, Outcome.PARTIAL, "{spent}",
        when={"failed": True, "recovering": True, "spent": True}),
    Row("a recovery failed for good", Action.STOP, Outcome.PARTIAL, "recovery failed",
        when={"failed": True, "recovering": True}),
    # A refusal is how the provider ended the answer, so its stop reason stays.
    Row("a recovery was refused", Action.FINISH, Outcome.PARTIAL, "the model refused to continue",
        when={"recovering": True, "stop": Stop.REFUSED}),
    Row("a recovery was aborted", Action.STOP, Outcome.PARTIAL, "the provider aborted: {raw}",
        when={"recovering": True, "stop": Stop.ABORTED}),
    Row("the text repeats itself", Action.PASS_LOOP,
        when={"stop": Stop.REPETITION, "stops_loops": True, "passed_loop": False, "text": True,
              "call": NONE, "structured": False, "not_resumable": False, "spent": False,
              "unkept": False}),
    Row("the text repeats itself, and is not continued", Action.STOP, Outcome.PARTIAL,
        "the model only repeated the same text",
        when={"stop": Stop.REPETITION, "stops_loops": True, "unkept": False}),
    # No further recovery follows. The end is not synthetic either: the user may want a repetition.
    Row("a recovery only repeated earlier text", Action.FINISH, Outcome.STALLED,
        "the model only repeated what it had written",
        when={"stalled": True, "below": False}),
    Row("a recovery had nothing to add", Action.FINISH, Outcome.HEALED,
        "the text was complete: nothing was left to add",
        when={"recovering": True, "made_progress": False, "stop": Stop.END, "at_end": True}),
    # An answer exactly as long as its limit may be complete, although its stop reason says that it
    # was truncated. The model shows this by ending at once: in a prefill after an earlier prefill
    # worked, in two recoveries in a row, or right after the words that it was asked to repeat.
    Row("a recovery proved that the text is complete", Action.FINISH, Outcome.HEALED,
        "the text was complete: nothing was left to add",
        when={"recovering": True, "made_progress": False, "stop": Stop.END},
        either=({"ended_twice": True}, {"prefilled": True, "prefill_works": True},
                {"repeated": True})),
    # Some servers treat the prefill as a finished turn; others return its continuation as thinking.
    Row("a prefill was not continued", Action.RECOVER,
        when={"recovering": True, "made_progress": False, "prefilled": True, "recoveries": True,
              "spent": False, "stop": frozenset({Stop.END, Stop.LENGTH})}),
    Row("a recovery was empty", Action.STOP, Outcome.PARTIAL, "recovery was empty",
        when={"recovering": True, "made_progress": False, "stop": NOT_DROPPED}),
    # --- answers that must stay unchanged --------------------
    Row("the chain store failed, and the stream dropped", Action.RAISE, Outcome.FAILED,
        "{unkept}",
        when={"unkept": True, "stop": Stop.DROPPED}),
    Row("the chain store failed", Action.FINISH, Outcome.PARTIAL, "{unkept}",
        when={"unkept": True}),
    # --- answers that end badly, though not at a limit --------------------
    Row("refused or filtered", Action.FINISH, Outcome.INCOMPLETE, "refused by the provider: {raw}",
        when={"stop": Stop.REFUSED}),
    Row("the generation failed, nothing delivered", Action.REPEAT,
        when={"stop": Stop.ABORTED, "shown": False, "repeats": True, "spent": False}),
    Row("the generation failed", Action.FINISH, Outcome.INCOMPLETE, "the provider aborted: {raw}",
        when={"stop": Stop.ABORTED}),
    Row("the provider stopped a repetition", Action.FINISH, Outcome.INCOMPLETE,
        "the provider stopped a repetition: {raw}",
        when={"stop": Stop.REPETITION}),
    Row("ended with an unknown stop reason", Action.FINISH, Outcome.INCOMPLETE,
        "stop reason {raw!r} does not mean that the answer is complete",
        when={"stop": Stop.OTHER}),
    # No second time: after a tool's result, or in a row, silence is what the model means.
    Row("an empty answer, nothing delivered", Action.REPEAT,
        when={"stop": Stop.END, "empty": True, "silence": False, "shown": False, "repeats": 2,
              "spent": False}),
    Row("an empty answer", Action.FINISH, Outcome.INCOMPLETE, "the answer is empty",
        when={"stop": Stop.END, "empty": True, "silence": False}),
    # Only what the text's form shows counts (`promise.py`), never its mood or wording.
    Row("a call is announced, and none was made", Action.ASK_CALL,
        when={"stop": Stop.END, "promised": True, "text": True, "call": NONE, "structured": False,
              "not_resumable": False, "given": False, "spent": False}),
    # --- answers that need no further attempt --------------------
    Row("ended normally after a later attempt", Action.FINISH, Outcome.HEALED,
        when={"stop": Stop.END, "later": True}),
    Row("ended normally", Action.FINISH, Outcome.COMPLETE,
        when={"stop": Stop.END}),
    Row("the context window is full, a call is truncated", Action.CUT_CALL, Outcome.TRUNCATED,
        "context window full",
        when={"stop": Stop.WINDOW, "call": CUT}),
    Row("the context window is full", Action.FINISH, Outcome.TRUNCATED, "context window full",
        when={"stop": Stop.WINDOW}),
    # --- dropped streams; without any content an error must stay an error --------------------
    # A complete call was billed, so it is kept, as at the output limit. The model can write what
    # should have followed the call once it has the call's result.
    Row("dropped before the first event", Action.RAISE, Outcome.FAILED, "no answer arrived",
        when={"stop": Stop.DROPPED, "later": False, "opened": False}),
    Row("dropped, no text yet, no resend left", Action.RAISE, Outcome.FAILED, "stream dropped",
        when={"stop": Stop.DROPPED, "text": False, "shown": False, "call": NONE},
        either=({"drops": False}, {"spent": True})),
    Row("a budget is used up, a call is truncated", Action.CUT_CALL, Outcome.PARTIAL, "{spent}",
        when={"spent": True, "call": CUT}),
    Row("a budget is used up, the stream dropped", Action.STOP, Outcome.PARTIAL, "{spent}",
        when={"spent": True, "stop": Stop.DROPPED}),
    Row("a budget is used up", Action.FINISH, Outcome.PARTIAL, "{spent}",
        when={"spent": True}),
    Row("dropped after a continuation token", Action.CHECKPOINT,
        when={"stop": Stop.DROPPED, "drops": True, "token": True}),
    Row("dropped after complete calls", Action.STOP, Outcome.PARTIAL,
        "stream dropped after a function call",
        when={"stop": Stop.DROPPED, "call": WHOLE}),
    Row("dropped, nothing delivered, no text to continue", Action.RESEND,
        when={"stop": Stop.DROPPED, "drops": True, "shown": False}, either=MUST_REPEAT),
    Row("dropped, text delivered, then a call", Action.RESEND_BEHIND,
        when={"stop": Stop.DROPPED, "drops": True, "shown": True}, either=MUST_REPEAT),
    Row("dropped, visible text, no call", Action.RESUME,
        when={"stop": Stop.DROPPED, "drops": True, "not_resumable": False}),
    Row("dropped, a call stays truncated", Action.CUT_CALL, Outcome.PARTIAL, "stream dropped",
        when={"stop": Stop.DROPPED, "call": CUT}),
    Row("dropped, no resumption left", Action.STOP, Outcome.PARTIAL, "stream dropped",
        when={"stop": Stop.DROPPED}),
    # --- within a provider's own hops --------------------
    Row("the provider paused, and the caller continues", Action.FINISH, Outcome.INCOMPLETE,
        "paused by the provider: {raw}",
        when={"stop": Stop.PAUSED, "resumes": False}),
    Row("a step of the provider ended with a token", Action.TOKEN,
        when={"stop": Stop.PAUSED, "token": True}),
    Row("a step of the provider ended without a new token", Action.FINISH, Outcome.PARTIAL,
        "the provider's continuation made no progress",
        when={"stop": Stop.PAUSED}),
    # --- at the output limit --------------------
    Row("truncated, with a token of the provider", Action.TOKEN,
        when={"stop": Stop.LENGTH, "token": True, "can_raise_limit": True}),
    Row("truncated after complete calls", Action.FINISH, Outcome.TRUNCATED,
        "truncated after a function call",
        when={"stop": Stop.LENGTH, "call": WHOLE}),
    Row("truncated, text from an earlier process", Action.RECOVER,
        when={"stop": Stop.LENGTH, "given": True, "recoveries": True, "text": True, "call": NONE,
              "not_resumable": False}, either=MAY_CONTINUE),
    Row("truncated below the ceiling, nothing delivered", Action.ESCALATE,
        when={"stop": Stop.LENGTH, "below": True, "shown": False, "recovering": False}),
    Row("truncated below the ceiling, text delivered, then a call", Action.ESCALATE_BEHIND,
        when={"stop": Stop.LENGTH, "below": True, "shown": True},
        either=({"call": CUT}, {"text": False})),
    Row("truncated below the ceiling, text delivered", Action.RECOVER,
        when={"stop": Stop.LENGTH, "below": True, "recoveries": True, "text": True, "call": NONE,
              "not_resumable": False}, either=MAY_CONTINUE),
    Row("truncated at the ceiling, a parsed call, to be completed", Action.ESCALATE,
        when={"stop": Stop.LENGTH, "call": CUT, "complete": True, "unread": True,
              "shown": False}),
    Row("truncated at the ceiling, a call, to be completed", Action.COMPLETE_CALL,
        when={"stop": Stop.LENGTH, "call": CUT, "complete": True, "proven": True,
              "recoveries": True}),
    Row("truncated at the ceiling, a call, to be made smaller", Action.RETRY_SMALLER,
        when={"stop": Stop.LENGTH, "call": CUT, "retry_smaller": True}, either=MAY_CONTINUE),
    Row("truncated at the ceiling, a call", Action.CUT_CALL, Outcome.TRUNCATED,
        "a function call was truncated at the ceiling",
        when={"stop": Stop.LENGTH, "call": CUT}),
    Row("truncated at the ceiling, the turn cannot be continued", Action.FINISH, Outcome.TRUNCATED,
        "{not_resumable}",
        when={"stop": Stop.LENGTH, "not_resumable": True}),
    Row("truncated at the ceiling, no visible text, less thinking allowed", Action.THINK_LESS,
        when={"stop": Stop.LENGTH, "text": False, "shown": False, "think_less": True}),
    Row("truncated at the ceiling, no visible text", Action.FINISH, Outcome.TRUNCATED,
        "thinking used the whole limit: no visible text",
        when={"stop": Stop.LENGTH, "text": False}),
    Row("truncated at the ceiling, structured output", Action.FINISH, Outcome.TRUNCATED,
        "structured output cannot be continued",
        when={"stop": Stop.LENGTH, "structured": True, "completable": False},
        either=({"shown": True}, {"can_drop_schema": False})),
    Row("truncated at the ceiling, visible text", Action.RECOVER,
        when={"stop": Stop.LENGTH, "recoveries": True}),
    Row("truncated, all recoveries used", Action.FINISH, Outcome.TRUNCATED, "all recoveries used",
        when={"stop": Stop.LENGTH}),
)
# fmt: on


def decide(known: OpeningFacts | Situation) -> Decision:
    """Return the decision of the first fitting row; every situation has one.

    Openings are decided twice: before the request is sent, and when its answer begins.
    """
    if isinstance(known, OpeningFacts):
        row, facts = first_fit(OPENINGS, known)
    else:
        row, facts = first_fit(ROWS, known.result, known)
    reason = row.reason.format_map(facts) if row.reason is not None else None
    return Decision(row.name, row.action, row.outcome, reason)


# --- which of two answers is kept --------------------


class Stands(StrEnum):
    """Which answer the turn keeps after the request was resent."""

    NEW = "new"
    """The new answer."""
    HELD = "held"
    """The earlier answer, with its own stop."""
    HELD_CUT = "held, as cut"
    """The earlier answer, as one that was truncated at the output limit."""
    HELD_DROPPED = "held, as dropped"
    """The earlier answer, as one whose stream dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What the choice between two answers depends on, besides the new attempt's result."""

    replaces: bool
    """The new answer would replace the earlier one; `False`: only what follows that one is used."""
    came: bool = True
    """A new answer arrived; `False`: the attempt and its retries failed, and the result is that of
    the earlier answer."""
    held_text: bool = False
    """The earlier answer has visible text."""
    held_closed: bool = True
    """The earlier answer arrived with its terminal event, so a dropped new one is no gain."""
    held_dropped: bool = False
    """The earlier answer's stream dropped."""
    longer: bool = False
    """The new answer has more text than the earlier one."""
    shorter: bool = False
    """The new answer has less text than the earlier one."""
    held_parsed: bool = False
    """The server parsed the arguments of the truncated call in the earlier answer."""
    resendable: bool = True
    """The budget allows another attempt after a drop."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of `ANSWERS`."""

    name: str
    stands: Stands
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


# fmt: off
ANSWERS: tuple[Standing, ...] = (
    Standing("adds the missing text", Stands.NEW,
        when={"came": True, "replaces": False, "made_progress": True},
        either=({"stop": NOT_DROPPED}, {"call": WHOLE})),
    Standing("was delivered", Stands.NEW,
        when={"came": True, "replaces": True, "shown": True}),
    Standing("is complete, or its calls are", Stands.NEW,
        when={"came": True, "replaces": True},
        either=({"stop": Stop.END, "text": True},
                {"stop": frozenset(Stop) - {Stop.REFUSED}, "call": WHOLE})),
    Standing("has no text, like the earlier answer", Stands.NEW,
        when={"came": True, "replaces": True, "stop": ENDED, "held_text": False}),
    Standing("dropped, but longer", Stands.NEW,
        when={"came": True, "replaces": True, "stop": Stop.DROPPED, "longer": True}),
    Standing("is no shorter", Stands.NEW,
        when={"came": True, "replaces": True, "shorter": False},
        either=({"stop": NOT_DROPPED - ENDED}, {"stop": Stop.DROPPED, "held_closed": False})),
    Standing("shows the raw text of its truncated call", Stands.NEW,
        when={"came": True, "replaces": True, "stop": Stop.LENGTH, "call": CUT,
              "args_verified": True, "held_parsed": True}),
    Standing("truncated: the limit leaves no room", Stands.HELD_CUT,
        when={"stop": Stop.LENGTH}),
    # The earlier answer arrived up to the limit, so a drop of the new one does not fail the turn.
    Standing("dropped, but the earlier answer did not", Stands.HELD_CUT,
        when={"held_closed": True, "resendable": False},
        either=({"stop": Stop.DROPPED}, {"held_dropped": True})),
    Standing("dropped", Stands.HELD_DROPPED,
        when={"stop": Stop.DROPPED}),
    Standing("is no better", Stands.HELD,
        when={}),
)
# fmt: on


def standing(new: AttemptResult, again: Again) -> Stands:
    """Return which answer is kept after the resent request was answered."""
    return first_fit(ANSWERS, new, again)[0].stands


# --- is a completed call delivered? --------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row of `PROOFS`."""

    name: str
    reason: str | None
    """Why the call stays truncated; `None`: it is completed or, once complete, delivered."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


# fmt: off
PROOFS: tuple[Delivery, ...] = (
    Delivery("not inside a string", "its arguments end outside a string",
        when={"in_text": False}),
    Delivery("too little to quote", "too little of the argument arrived, or it only repeats itself",
        when={"quotable": False}),
    Delivery("not answered", "{error}",
        when={"error": True}),
    Delivery("refused", "the model refused to continue it",
        when={"refused": True}),
    Delivery("plain text or JSON", "it is unknown whether its rest is JSON or plain text",
        when={"decoded": False}),
    Delivery("nothing new", "nothing was added to it",
        when={"added": False}),
    Delivery("the parts do not join", "its parts do not join exactly ({seam})",
        when={"exact": False}),
    Delivery("no trusted seam", "its seam is not certain ({seam})",
        when={"trusted": False}),
    Delivery("unknown end", "it is unknown where its text ends",
        when={"ended": False}),
    Delivery("remarks of the model", "its text seems to address the reader",
        when={"remarks": True}),
    Delivery("arguments are missing", "it still lacks {lacking}",
        when={"lacking": True}),
    Delivery("not JSON", "its arguments are not complete JSON",
        when={"parses": False}),
    Delivery("against the tool's schema", "{mistake}",
        when={"mistake": True}),
    Delivery("delivered differently", "the part that was delivered cannot be continued",
        when={"seen": True}),
    Delivery("proven", None,
        when={}),
)
# fmt: on


def objection(proof: Proof) -> str | None:
    """Return why a call that is being completed stays truncated; `None`: nothing prevents it."""
    row, facts = first_fit(PROOFS, proof)
    return row.reason.format_map(facts) if row.reason is not None else None


# --- how the caller's answer ends --------------------


class Held(StrEnum):
    """What happens to buffered content when the turn ends."""

    ALL = "all"
    """All of it is delivered if the last attempt ended normally; otherwise as with `fit`."""
    FIT = "fit"
    """The complete part is delivered; a truncated call is left out, without a note."""
    BY_POLICY = "by policy"
    """The complete part is delivered; the policy `truncated_tool_call` decides about the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What an ending may depend on, besides the situation."""

    action: Action
    outcome: Outcome
    half_call: bool = False
    """By policy, part of a call was delivered, and the call stayed incomplete."""
    half_document: bool = False
    """Structured output was joined from several attempts, and is not complete JSON."""
    dead: bool = False
    """The caller's own attempt dropped, and could not be resumed."""
    on_dead: str = "error"
    on_failure: str = "stop"
    truncated_tool_call: str = "explain"


@dataclass(frozen=True, slots=True)
class Ending:
    """One row of `ENDINGS`."""

    name: str
    stop: StopWord | None
    """The stop reason that the caller gets; `None`: the first answer is delivered unchanged."""
    held: Held = Held.ALL
    outcome: Outcome | None = None
    """The outcome in the report; `None`: the outcome of the decision."""
    reason: str | None = None
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


HALF_CALL = "a function call that was delivered as it arrived is truncated"
HALF_DOCUMENT = "the joined text is not complete JSON"
NOT_WHOLE = frozenset({Outcome.PARTIAL, Outcome.STALLED, Outcome.TRUNCATED})
FIRST_ANSWER: When = {
    "action": Action.FINISH,
    "later": False,
    "asked_call": False,
    "closed": True,
    "stop": frozenset(Stop) - {Stop.LENGTH, Stop.DROPPED},
}

# fmt: off
ENDINGS: tuple[Ending, ...] = (
    Ending("the first answer could not be read", None, outcome=Outcome.UNTOUCHED,
        reason="the answer could not be read",
        when={**FIRST_ANSWER, "opened": False}),
    # If a filter stopped the answer inside a call, the last row applies: the call is left out.
    Ending("the first answer is complete", None,
        when=FIRST_ANSWER,
        either=({"stop": NORMAL | {Stop.WINDOW, Stop.PAUSED}}, {"call": frozenset({NONE, WHOLE})},
                {"truncated_tool_call": "keep"})),
    Ending("incomplete, by policy an exception", StopWord.RAISED, Held.FIT,
        when={"on_failure": "raise", "outcome": NOT_WHOLE}),
    # What the caller would get without us. A complete call stays of use, so it is delivered.
    Ending("the caller's own stream dropped for good, by policy an error", StopWord.BROKEN,
        Held.FIT,
        when={"dead": True, "on_dead": "error", "action": frozenset({Action.STOP, Action.CUT_CALL}),
              "call": frozenset({NONE, CUT})}),
    Ending("the caller's own stream dropped for good, by policy truncated", StopWord.TRUNCATED,
        Held.FIT,
        when={"dead": True, "on_dead": "truncated", "action": Action.STOP}),
    Ending("the joined text is not complete JSON, by policy an exception", StopWord.RAISED,
        Held.FIT, Outcome.TRUNCATED, HALF_DOCUMENT,
        when={"on_failure": "raise", "half_document": True}),
    Ending("a truncated call was delivered, by policy an exception", StopWord.RAISED, Held.FIT,
        Outcome.TRUNCATED, HALF_CALL,
        when={"on_failure": "raise", "half_call": True}),
    Ending("the first answer stays unchanged", None,
        when={"unkept": True}),
    Ending("the first answer has complete calls", None,
        when={**FIRST_ANSWER, "stop": Stop.LENGTH, "call": WHOLE}),
    Ending("a call is truncated by a full window", StopWord.OWN, Held.BY_POLICY,
        when={"action": Action.CUT_CALL, "stop": Stop.WINDOW}),
    Ending("a call is truncated", StopWord.TRUNCATED, Held.BY_POLICY,
        when={"action": Action.CUT_CALL}),
    # An incomplete document or call must never look complete.
    Ending("stopped, where a synthetic end would be wrong or is unwanted", StopWord.TRUNCATED,
        Held.FIT,
        when={"action": Action.STOP},
        either=({"structured": True}, {"half_call": True}, {"on_failure": "truncated"})),
    Ending("stopped", StopWord.ENDED,
        when={"action": Action.STOP}),
    Ending("the joined text is not complete JSON", StopWord.TRUNCATED, Held.FIT, Outcome.TRUNCATED,
        HALF_DOCUMENT,
        when={"half_document": True}),
    # No agent may execute an incomplete call, whatever the last attempt's stop reason was.
    Ending("a truncated call was delivered", StopWord.TRUNCATED, Held.ALL,
        Outcome.TRUNCATED, HALF_CALL,
        when={"half_call": True, "stop": Stop.END}),
    Ending("a truncated call was delivered, then a refusal", StopWord.OWN, Held.ALL,
        Outcome.TRUNCATED, HALF_CALL,
        when={"half_call": True, "outcome": Outcome.HEALED}),
    Ending("truncated", StopWord.TRUNCATED, Held.FIT,
        when={"stop": Stop.LENGTH}),
    Ending("no stop reason arrived", StopWord.TRUNCATED, Held.FIT,
        when={"raw": False, "closed": False}),
    Ending("ended", StopWord.OWN,
        when={}),
)
# fmt: on


def ending(closing: Closing, situation: Situation) -> Ending:
    """Return the first fitting row of `ENDINGS`: how the caller's answer ends. One always fits."""
    return first_fit(ENDINGS, situation.result, situation, closing)[0]
