"""What is sent, and how: five tables, read like those of `table.py`.

`STARTS` decides how the caller's own request is sent, `REMEDIES` what happens if it is refused,
`RETRIES` what happens if a later attempt fails, `WAYS` how a recovery asks the model to continue,
`PARTS` what is requested next to complete a tool call.

`Attempts` and `Turn` state the facts and carry out what a row says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from continuation.engine.table import Action, When, first_fit
from continuation.types import ErrorKind, Way

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Choice(Generic[T_co]):
    """One row of a table here."""

    name: str
    then: T_co
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)
    """If there are alternatives, one of them must fit as well."""


def choose(rows: Sequence[Choice[T]], facts: object) -> Choice[T]:
    """Return the first row of a table that fits the facts. In each table here one always fits."""
    return first_fit(rows, facts)[0]


LIMIT_STATUSES = frozenset({400, 402, 413, 422})
"""Statuses with which servers refuse a limit that is too large for them."""
MOMENTARY = frozenset({402, 429})
"""Statuses about what credit or a rate limit leaves now; it may be less than an answer needs."""
STREAM_STATUSES = frozenset({403, 404, 405, 501})
"""Statuses with which servers also answer a caller who may not stream."""
SLOW_STATUSES = frozenset({408, 504, 524})
"""Statuses with which proxies end a body that takes too long; a stream lives on. 524: Cloudflare,
after 100 s without a byte (developers.cloudflare.com, error 524)."""
HISTORY_STATUSES = frozenset({400, 404, 422})
"""Statuses with which providers refuse a history that they cannot accept, or do not find."""


# --- how is the caller's own request sent? --------------------


class Start(StrEnum):
    """How the first attempt is sent."""

    OWN = "own"
    """Send the caller's own request. If its history was repaired, send the repaired request."""
    LOWER = "lower"
    """Send it with the ceiling as its limit."""
    RAISE = "raise"
    """Send it with a larger limit, if one is of use."""
    STREAM = "stream"
    """Send it as a stream; its caller gets the body that the events amount to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What is known before the first attempt is sent."""

    handled: bool = True
    """If its answer is truncated, the turn will complete it."""
    refused_here: bool = False
    """The request is not sent: its chain can be neither kept nor rebuilt."""
    changed: bool = False
    """Its history was repaired, or it was rewritten for its chain."""
    lowered: int | None = None
    """The known ceiling, if policy says to send no larger limit and the caller's is larger."""
    from_ceiling: bool = False
    """Policy says to start at the ceiling."""
    long_body: bool = False
    """Its body is expected to be long, and may be sent as a stream."""
    remembered: bool = False
    """Policy says to remember limits, and something is known of the model."""


# fmt: off
STARTS: tuple[Choice[Start], ...] = (
    Choice("its answer is passed on", Start.OWN,
        when={"handled": False}),
    Choice("its chain is lost, so the shell answers it", Start.OWN,
        when={"refused_here": True}),
    Choice("its limit is above the ceiling", Start.LOWER,
        when={"lowered": True, "changed": False}),
    Choice("its limit may be too small, or policy starts at the ceiling", Start.RAISE,
        when={}, either=({"from_ceiling": True}, {"remembered": True})),
    Choice("its body is expected to be long", Start.STREAM,
        when={"long_body": True}),
    Choice("its limit stays", Start.OWN,
        when={}),
)
# fmt: on


# --- what happens if the caller's own request is refused? --------------------


class Remedy(StrEnum):
    """What is done about the response to a first attempt."""

    READ = "read"
    """Read the error and consult the table again: it may state what to change."""
    REPAIR_RAISED = "repair_raised"
    """Send the repaired request, still with a raised limit."""
    RAISE_AGAIN = "raise_again"
    """Send the request as the error wants it, with a limit that is still above the caller's."""
    OWN = "own"
    """Send the request with the caller's own limit, and as the caller made it."""
    STREAM = "stream"
    """Send the request as a stream."""
    REPAIR = "repair"
    """Send the repaired request, and retry it after errors that may be temporary."""
    LOWER = "lower"
    """Send the request with the ceiling that the error names."""
    ESCALATE = "escalate"
    """Send the request at the ceiling."""
    PASS_ON = "pass_on"
    """Keep the response: it is the answer to the first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyFacts:
    """What is known of the response to a first attempt."""

    status: int = 0
    """The status of the response; 0: none arrived."""
    raised: bool = False
    """The request was sent with a limit above the caller's."""
    gathers: bool = False
    """The request asked for a stream, although its caller waits for a body."""
    names_stream: bool = False
    """The error is about streaming."""
    may_stream: bool = False
    """The request is for a body, was not sent as a stream, and may be."""
    known: bool = False
    """The error was read."""
    repairable: bool = False
    """The history breaks a rule, and was repaired after this error."""
    spare: bool = False
    """The raised request was sent once, and policy allows two attempts besides the caller's own."""
    corrects: bool = False
    """The error states what to correct, and the corrected limit is above the caller's. False if the
    error is about what credit or a rate limit leaves now: it may be less than the answer needs."""
    clamp: bool = False
    """Policy says to send no limit above the known ceiling."""
    ceiling: int | None = None
    """The ceiling that the error names, if the caller's limit is larger."""
    consumed: bool = False
    """The error says that thinking used up the limit."""
    below: bool = False
    """Policy allows raising the limit, by a fifth or more, and this turn has not done so yet."""


# fmt: off
REMEDIES: tuple[Choice[Remedy], ...] = (
    Choice("the error may state what to change", Remedy.READ,
        when={"known": False},
        either=({"raised": True, "status": LIMIT_STATUSES | MOMENTARY},
                {"raised": True, "gathers": True, "status": STREAM_STATUSES},
                {"raised": False, "gathers": False, "status": HISTORY_STATUSES})),
    Choice("a stream was refused", Remedy.OWN,
        when={"known": False, "raised": False, "gathers": True},
        either=({"status": STREAM_STATUSES},
                {"status": LIMIT_STATUSES, "names_stream": True})),
    Choice("the body took too long", Remedy.STREAM,
        when={"known": False, "raised": False, "may_stream": True, "status": SLOW_STATUSES}),
    Choice("no error, or one that no change can help", Remedy.PASS_ON,
        when={"known": False}),
    Choice("the history is repaired, and the limit stays raised", Remedy.REPAIR_RAISED,
        when={"raised": True, "repairable": True, "spare": True}),
    Choice("the raised limit or its form can be corrected", Remedy.RAISE_AGAIN,
        when={"raised": True, "corrects": True, "spare": True}),
    Choice("the raised limit was refused", Remedy.OWN,
        when={"raised": True}),
    Choice("the history is repaired", Remedy.REPAIR,
        when={"repairable": True}),
    Choice("the caller's limit is above the ceiling", Remedy.LOWER,
        when={"clamp": True, "ceiling": True}),
    Choice("rejected: thinking used the whole limit", Remedy.ESCALATE,
        when={"consumed": True, "below": True}),
    Choice("no change can help", Remedy.PASS_ON,
        when={}),
)
# fmt: on


# --- what happens if a later attempt fails? --------------------


class Retry(StrEnum):
    """What is done after a later attempt failed, or the first one after its repair."""

    WAIT = "wait"
    """Wait, then send the same request again."""
    QUOTA = "quota"
    """Send the request with the limit that the quota allows."""
    CORRECT = "correct"
    """Send the request as the error wants it: in another form, or with the limit that it names."""
    STEP_DOWN = "step_down"
    """Send the request with a smaller limit; the rest of the turn sends no larger one."""
    SETTLE = "settle"
    """Stop; the rest of the turn sends no limit above the last accepted one."""
    STOP = "stop"
    """Stop: the attempt has failed for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryFacts:
    """What is known of a failed attempt, and of what may still be tried."""

    error_kind: ErrorKind
    """What the error means."""
    status: int = 0
    """The status of the response; 0: none arrived."""
    spent: str | None = None
    """The budget that is used up; `None`: every budget has something left."""
    lessons: bool = True
    """The attempt may be sent in a corrected form: that happened less than twice."""
    quota: int | None = None
    """The smaller limit, at least the caller's, that a quota allows; `None`: none is named."""
    retries: bool = True
    """Policy allows another retry."""
    timely: bool = True
    """The server allows a retry, and the wait before it ends in time."""
    teaches: bool = False
    """The error states what to correct: a limit that it accepts, or the form of the request."""
    leaves_room: bool = True
    """The limit that the error names is above the one at which the held answer was truncated.
    False only if an answer up to that limit would be of no use."""
    chosen: bool = True
    """The engine chose the limit, and the error is not about a continuation token."""
    stepped: bool = False
    """The limit was lowered before in this turn, without a number in the error."""
    smaller: int | None = None
    """The smaller limit to try; `None`: there is none."""


LIMIT_SUSPECTED: tuple[When, ...] = (
    {"status": LIMIT_STATUSES},
    {"status": 429, "stepped": False},
)
"""Some vendors count the limit against the quota, so a 429 can be due to a raised limit. Others
refuse a limit in words that no table has."""

# fmt: off
RETRIES: tuple[Choice[Retry], ...] = (
    Choice("a budget is used up", Retry.STOP,
        when={"spent": True}),
    # Waiting does not help: the quota never has room for this limit.
    Choice("the limit is above a quota", Retry.QUOTA,
        when={"lessons": True, "quota": True}),
    Choice("the error may be temporary", Retry.WAIT,
        when={"error_kind": ErrorKind.RETRYABLE, "retries": True, "timely": True}),
    Choice("the error may be temporary, but not soon enough", Retry.STOP,
        when={"error_kind": ErrorKind.RETRYABLE, "retries": True}),
    Choice("the answer would be truncated where the held one is", Retry.STOP,
        when={"teaches": True, "leaves_room": False}),
    Choice("the error states what to correct", Retry.CORRECT,
        when={"lessons": True, "teaches": True}),
    Choice("the limit may be what is refused", Retry.STEP_DOWN,
        when={"chosen": True, "smaller": True}, either=LIMIT_SUSPECTED),
    Choice("the limit may be what is refused, and no smaller one is of use", Retry.SETTLE,
        when={"chosen": True}, either=LIMIT_SUSPECTED),
    Choice("refused for good", Retry.STOP,
        when={}),
)
# fmt: on


# --- how does a recovery ask? --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WayFacts:
    """What is known before a recovery."""

    action: Action
    prefills: bool = True
    """Policy, wire format and model allow a prefill in this request."""
    written: bool = True
    """The text that a recovery would continue is not empty."""
    no_prefill: bool = False
    """The provider has refused a prefill for this model."""
    prefilled: bool = False
    """The last recovery was a prefill: its request ended with the model's own text."""
    made_progress: bool = True
    """The attempt added something to the turn."""


# fmt: off
WAYS: tuple[Choice[Way], ...] = (
    Choice("a call is to be made smaller", Way.RETRY_SMALLER,
        when={"action": Action.RETRY_SMALLER}),
    Choice("a call was announced", Way.CALL,
        when={"action": Action.ASK_CALL}),
    # A model that continues its own repetition repeats itself again.
    Choice("the text repeats itself", Way.PROMPT,
        when={"action": Action.PASS_LOOP}),
    Choice("a prefill is not possible", Way.PROMPT,
        when={"prefills": False}),
    Choice("there is no text for a prefill", Way.PROMPT,
        when={"written": False}),
    Choice("a prefill was refused", Way.PROMPT,
        when={"no_prefill": True}),
    # Some servers treat the prefill as a finished turn; others return its continuation as thinking.
    Choice("the last prefill was not continued", Way.PROMPT,
        when={"prefilled": True, "made_progress": False}),
    Choice("a prefill is possible", Way.PREFILL,
        when={}),
)
# fmt: on


# --- which part of a call is requested next? --------------------


class NextPart(StrEnum):
    """What is done next to complete a truncated call."""

    TEXT = "text"
    """Request the rest of the text in which the call was truncated."""
    MEMBERS = "members"
    """Request the missing arguments, by a small call."""
    DO_WITHOUT = "do_without"
    """Note that the missing arguments did not arrive."""
    CLOSE = "close"
    """Check the call; deliver it if `PROOFS` has no objection."""
    LEAVE = "leave"
    """The call stays truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """What is known of a call between the requests that complete it."""

    continues_text: bool = True
    """The text in which the call was truncated is continued; `False`: its complete members are
    kept."""
    text_requested: bool = False
    """The rest of the text was requested."""
    text_whole: bool = False
    """The text has ended."""
    objection: str | None = None
    """Why `PROOFS` would not deliver the call; `None`: nothing prevents it so far."""
    members_missing: bool = False
    """Arguments are missing, and were not requested yet."""
    spent: str | None = None
    """The budget that is used up; `None`: every budget has something left."""


# fmt: off
PARTS: tuple[Choice[NextPart], ...] = (
    Choice("its text was not requested yet", NextPart.TEXT,
        when={"continues_text": True, "text_requested": False}),
    Choice("its text is still truncated", NextPart.LEAVE,
        when={"continues_text": True, "text_whole": False}),
    Choice("something prevents its delivery", NextPart.LEAVE,
        when={"objection": True}),
    Choice("arguments are missing, and a budget is used up", NextPart.DO_WITHOUT,
        when={"members_missing": True, "spent": True}),
    Choice("arguments are missing", NextPart.MEMBERS,
        when={"members_missing": True}),
    Choice("nothing is missing", NextPart.CLOSE,
        when={}),
)
# fmt: on
