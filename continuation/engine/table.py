"""What happens when: six tables, and one rule. The first row that fits wins.

`OPENINGS` says what becomes of a request and the head of its answer, `LABELS` whether an attempt's
own word for its end is believed, `ROWS` what happens after it, `ANSWERS` which of two answers
stands, `PROOFS` whether a cut call that was completed is one, `ENDINGS` how the caller's answer
ends. A row's condition is data: the name of a fact, and the value it must have. Facts are the
fields of the values below (`OpeningFacts`, `Evidence`, `Situation`, the last two with their
`AttemptResult`, `Again`, `Proof`, `Closing`); a condition that names no fact raises `KeyError`.
Every table is total: its last row has no condition, or stands behind rows that leave nothing out.

Nothing else in the engine decides; `Turn` and `Budget` only state facts. `design/decision-table.md`
is drawn from here by `scripts/draw_tables.py`, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from continuation.types import AttemptResult, Outcome, Proof, Stop, StopWord, ToolCallState

When: TypeAlias = Mapping[str, Any]
"""Facts by name, and what each must be.

`True` and `False` ask whether there is anything at all (a reason, a limit, a flag); a frozenset
asks for one of its members; anything else asks for itself.
"""


RowT = TypeVar("RowT", "Row", "Label", "Standing", "Delivery", "Ending")


def first_fit(rows: Sequence[RowT], *parts: Any) -> tuple[RowT, dict[str, Any]]:
    """Return the first row that fits the facts, which are all fields of `parts`, and the facts."""
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
    """Hand the answer over as it is; the turn is none of ours."""
    READ = "read"
    """Read the answer: it is ours to heal."""
    LOOK = "look"
    """Read the answer event by event; its labels alone do not settle it."""
    FINISH = "finish"
    """End the turn with the provider's own stop reason."""
    STOP = "stop"
    """End the turn with a synthetic STOP (or the truth, by policy)."""
    CUT_CALL = "truncated_tool_call"
    """End the turn; the cut call is treated by the policy `truncated_tool_call`."""
    RAISE = "raise"
    """There is nothing in hand: the caller gets the first attempt's error."""
    ESCALATE = "escalate"
    """The same request at the ceiling; its answer replaces what we hold."""
    ESCALATE_BEHIND = "escalate_behind"
    """The same request at the ceiling; only what follows the shown text, or only its calls."""
    RESEND = "resend"
    """The same request again after a drop; nothing was shown."""
    RESEND_BEHIND = "resend_behind"
    """The same request again after a drop; only what follows, or only its calls."""
    RECOVER = "recover"
    """The model is asked to go on from the text there is."""
    RESUME = "resume"
    """A recovery after a dropped stream, on its own budget."""
    TOKEN = "token"
    """The provider's own continuation."""
    CHECKPOINT = "checkpoint"
    """The same after a drop: nothing came behind the provider's last token."""
    THINK_LESS = "think_less"
    """The same request at the ceiling, with less thinking; its answer replaces what we hold."""
    RETRY_SMALLER = "retry_smaller"
    """One more attempt without the cut call, asking for smaller pieces."""
    COMPLETE_CALL = "complete_call"
    """The rest of the argument that the call was cut in is asked for, as text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `OPENINGS` or `ROWS`."""

    name: str
    action: Action
    outcome: Outcome | None = None
    """What becomes of the turn; `None`: it goes on."""
    reason: str | None = None
    """Why it is not whole, for the report; `{name}` stands for a fact."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)
    """Alternatives, one of which must fit as well."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A row that won, with its reason spelled out for the report."""

    row: str
    action: Action
    outcome: Outcome | None = None
    reason: str | None = None


# --- is the turn ours? --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningFacts:
    """What is known of the caller's request and, once it has come, of the head of its answer."""

    unreadable: str | None = None
    """Why the request could not be read, if it could not."""
    reserved: str | None = None
    """Why its format says that it is not ours, if it is not."""
    enabled: bool = True
    limit: int | None = None
    leave_limits_below: int = 0
    small: bool = False
    """Its limit is below `leave_limits_below`: a budget, not an oversight."""
    failed: bool = False
    """No head came, but an exception."""
    ok: bool = True
    status: int = 200
    repaired: bool = False
    """The history was repaired before it was sent at last."""
    consumed: bool = False
    """The error means that thinking used the limit up, and the limit can still be raised."""
    kind: str = ""
    """The answer's content type."""
    known_kind: bool = True
    """That is JSON or an event stream."""


# fmt: off
OPENINGS: tuple[Row, ...] = (
    Row("no answer came", Action.RAISE, Outcome.FAILED, "the request failed",
        when={"failed": True}),
    Row("refused: the limit was spent without a word", Action.ESCALATE,
        when={"ok": False, "consumed": True}),
    Row("an error answer to a repaired request", Action.PASS_ON, Outcome.FAILED,
        "status {status} after the history was repaired",
        when={"ok": False, "repaired": True}),
    Row("an error answer", Action.PASS_ON, Outcome.FAILED, "status {status}",
        when={"ok": False}),
    Row("the request cannot be read", Action.PASS_ON, Outcome.UNTOUCHED, "{unreadable}",
        when={"unreadable": True}),
    Row("the request is of a kind we leave alone", Action.PASS_ON, Outcome.UNTOUCHED, "{reserved}",
        when={"reserved": True}),
    Row("switched off", Action.PASS_ON, Outcome.UNTOUCHED, "switched off by policy",
        when={"enabled": False}),
    Row("the limit is small", Action.PASS_ON, Outcome.UNTOUCHED,
        "limit {limit} is below leave_limits_below {leave_limits_below}",
        when={"small": True}),
    Row("the answer is of another type", Action.PASS_ON, Outcome.UNTOUCHED,
        "the answer is of type {kind!r}",
        when={"known_kind": False}),
    Row("ours to heal", Action.READ,
        when={}),
)
# fmt: on


# --- is its label believed? --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What there is to hold against an attempt's own word, beside what it came to.

    Labels lie: servers call a cut answer finished, with every token of the limit used or arguments
    that do not parse.
    """

    used_up: bool = False
    """It used its limit or more; never where the policy `verify_stop_reason` is off."""
    at_limit: bool = False
    """It used exactly its limit, with thinking or without. More than that is weaker evidence: not
    every server tells the two apart."""
    structured: bool = False
    parses: bool = False
    """The text is whole JSON."""
    written: bool = False
    """The text that a recovery would go on from is not empty."""
    in_word: bool = False
    """That text ends with a letter or a digit."""


@dataclass(frozen=True, slots=True)
class Label:
    """One row of `LABELS`."""

    name: str
    stop: Stop | None = None
    """What it is taken for; `None`: its own word holds."""
    call: ToolCallState | None = None
    """What its last call is taken for; `None`: for what it looks like."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


NONE, WHOLE, CUT = ToolCallState.NONE, ToolCallState.WHOLE, ToolCallState.CUT

# fmt: off
LABELS: tuple[Label, ...] = (
    Label("ended, with a call that is cut", Stop.LENGTH,
        when={"stop": Stop.END, "call": CUT}),
    Label("ended at its limit, with a call that cannot show a cut", Stop.LENGTH, CUT,
        when={"stop": Stop.END, "call": WHOLE, "args_verified": False, "at_limit": True}),
    Label("ended at its limit, where no answer ends", Stop.LENGTH,
        when={"stop": Stop.END, "call": NONE, "used_up": True},
        either=({"in_word": True},
                {"structured": True, "written": True, "parses": False},
                {"written": False, "text": False, "not_resumable": False})),
    Label("taken at its word", when={}),
)
# fmt: on


def believed(result: AttemptResult, evidence: Evidence) -> AttemptResult:
    """Return a result under the label that the first fitting row gives it."""
    row = first_fit(LABELS, result, evidence)[0]
    return replace(result, stop=row.stop or result.stop, call=row.call or result.call)


# --- what happens after an attempt --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision may depend on: what an attempt came to, and what is left to be done."""

    result: AttemptResult
    """What the attempt came to. Its fields are facts like those below."""
    looked: bool = True
    """The answer was read event by event; `False`: only its labels are known."""
    used_up: bool = False
    """It used its whole limit, and the policy `verify_stop_reason` says what that makes of it."""
    at_end: bool = False
    """The attempt brought nothing new, and the text stands where a whole one may end."""
    structured: bool = False
    can_drop_schema: bool = False
    """The constraint on structured output can be lifted for a recovery, and the whole checked."""
    completable: bool = False
    """Policy asks for structured output to be gone on with, and its constraint can be lifted."""
    below: bool = False
    """The limit can still be raised by a fifth or more, and was not raised yet."""
    can_raise_limit: bool = True
    """The limit can still be raised, by however little."""
    given: bool = False
    """It was given elsewhere, or to a process that was stopped: no text of it is paid again."""
    recovering: bool = False
    """The attempt that ended went on from a partial."""
    later: bool = False
    """It was not the first attempt."""
    failed: bool = False
    """The attempt failed for good, its retries included."""
    spent: str | None = None
    """The budget that is used up, if one is."""
    unkept: str | None = None
    """What kept the chain store from learning that the answer is to be mended, if anything did:
    then it stays as it came, for who goes on from it goes on from what the server has."""
    recoveries: bool = True
    """A recovery is left."""
    drops: bool = True
    """A resumption after a drop is left, and what broke off can be hoped to go away."""
    think_less: bool = False
    """Policy asks for one attempt with less thinking, the request has less, and it was not made."""
    retry_smaller: bool = False
    """Policy asks for one guided attempt, and it was not made yet."""
    complete: bool = False
    """Policy asks for this cut call to be completed..."""
    proven: bool = False
    """...and nothing speaks against that so far..."""
    unread: bool = False
    """...but its server has parsed what arrived; a stream, not asked for yet, would show it."""


CALLS = frozenset({WHOLE, CUT})
ENDED = frozenset({Stop.END, Stop.REFUSED})
LEFT_OFF = frozenset({Stop.LENGTH, Stop.DROPPED})
NOT_DROPPED = frozenset(Stop) - {Stop.DROPPED}

MUST_REPEAT: tuple[When, ...] = (
    {"text": False},
    {"structured": True},
    {"call": CUT, "recovering": False},
)
"""Only text can be gone on from; anything else has to be asked for again."""
MAY_GO_ON: tuple[When, ...] = ({"structured": False}, {"can_drop_schema": True})
"""A recovery is written as free text."""

# fmt: off
ROWS: tuple[Row, ...] = (
    Row("known by its labels only, and they do not settle it", Action.LOOK,
        when={"looked": False},
        either=({"stop": LEFT_OFF}, {"call": CUT}, {"stop": Stop.WINDOW, "call": CALLS},
                {"stop": Stop.END, "used_up": True})),
    # --- later attempts that brought nothing --------------------
    Row("a recovery failed, and a budget is spent", Action.STOP, Outcome.PARTIAL, "{spent}",
        when={"failed": True, "recovering": True, "spent": True}),
    Row("a recovery failed for good", Action.STOP, Outcome.PARTIAL, "recovery failed",
        when={"failed": True, "recovering": True}),
    Row("a recovery was refused", Action.STOP, Outcome.PARTIAL, "recovery refused",
        when={"recovering": True, "stop": Stop.REFUSED}),
    # No reason to go on; and none for an end of ours, for it may have been what was asked for.
    Row("a recovery only said the same again", Action.FINISH, Outcome.STALLED,
        "the model only repeated what it had written",
        when={"stalled": True, "below": False}),
    Row("a recovery had nothing to add", Action.FINISH, Outcome.HEALED,
        "the text was whole: nothing was left to add",
        when={"recovering": True, "made_progress": False, "stop": Stop.END, "at_end": True}),
    Row("a recovery was empty", Action.STOP, Outcome.PARTIAL, "recovery was empty",
        when={"recovering": True, "made_progress": False, "stop": NOT_DROPPED}),
    # --- answers that must stay as they came --------------------
    Row("the chain store cannot be told, and the stream dropped", Action.RAISE, Outcome.FAILED,
        "{unkept}",
        when={"unkept": True, "stop": Stop.DROPPED}),
    Row("the chain store cannot be told", Action.FINISH, Outcome.PARTIAL, "{unkept}",
        when={"unkept": True}),
    # --- answers that are whole --------------------
    Row("ended normally after a later attempt", Action.FINISH, Outcome.HEALED,
        when={"stop": ENDED, "later": True}),
    Row("ended normally", Action.FINISH, Outcome.COMPLETE,
        when={"stop": ENDED}),
    Row("the context window is full, a call was cut", Action.CUT_CALL, Outcome.TRUNCATED,
        "context window full",
        when={"stop": Stop.WINDOW, "call": CUT}),
    Row("the context window is full", Action.FINISH, Outcome.TRUNCATED, "context window full",
        when={"stop": Stop.WINDOW}),
    # --- dropped streams; with nothing in hand an error must stay an error --------------------
    # A call that is whole is there, and paid: it is run, here as at the limit. What was to follow
    # it the model says when it has the result.
    Row("dropped before the first event", Action.RAISE, Outcome.FAILED, "no answer came",
        when={"stop": Stop.DROPPED, "later": False, "opened": False}),
    Row("dropped, nothing in hand, none left", Action.RAISE, Outcome.FAILED, "stream dropped",
        when={"stop": Stop.DROPPED, "text": False, "shown": False, "call": NONE},
        either=({"drops": False}, {"spent": True})),
    Row("a budget is spent, a call was cut", Action.CUT_CALL, Outcome.PARTIAL, "{spent}",
        when={"spent": True, "call": CUT}),
    Row("a budget is spent, a stream dropped", Action.STOP, Outcome.PARTIAL, "{spent}",
        when={"spent": True, "stop": Stop.DROPPED}),
    Row("a budget is spent", Action.FINISH, Outcome.PARTIAL, "{spent}",
        when={"spent": True}),
    Row("dropped behind a checkpoint", Action.CHECKPOINT,
        when={"stop": Stop.DROPPED, "drops": True, "token": True}),
    Row("dropped behind calls that are whole", Action.STOP, Outcome.PARTIAL,
        "stream dropped after a function call",
        when={"stop": Stop.DROPPED, "call": WHOLE}),
    Row("dropped, nothing shown, no text to go on from", Action.RESEND,
        when={"stop": Stop.DROPPED, "drops": True, "shown": False}, either=MUST_REPEAT),
    Row("dropped, text shown, then a call", Action.RESEND_BEHIND,
        when={"stop": Stop.DROPPED, "drops": True, "shown": True}, either=MUST_REPEAT),
    Row("dropped, visible text, no call", Action.RESUME,
        when={"stop": Stop.DROPPED, "drops": True, "not_resumable": False}),
    Row("dropped, a call stays cut", Action.CUT_CALL, Outcome.PARTIAL, "stream dropped",
        when={"stop": Stop.DROPPED, "call": CUT}),
    Row("dropped for good", Action.STOP, Outcome.PARTIAL, "stream dropped",
        when={"stop": Stop.DROPPED}),
    # --- within a provider's own hops --------------------
    Row("a hop ended with a token", Action.TOKEN,
        when={"stop": Stop.PAUSED, "token": True}),
    Row("a hop ended without a new token", Action.FINISH, Outcome.PARTIAL,
        "the provider's continuation made no progress",
        when={"stop": Stop.PAUSED}),
    # --- at the output limit --------------------
    Row("cut, the provider gave a token", Action.TOKEN,
        when={"stop": Stop.LENGTH, "token": True, "can_raise_limit": True}),
    Row("cut behind calls that are whole", Action.FINISH, Outcome.TRUNCATED,
        "cut after a function call",
        when={"stop": Stop.LENGTH, "call": WHOLE}),
    Row("cut, visible text that was given before", Action.RECOVER,
        when={"stop": Stop.LENGTH, "given": True, "recoveries": True, "text": True, "call": NONE,
              "not_resumable": False}, either=MAY_GO_ON),
    Row("cut below the ceiling, nothing shown", Action.ESCALATE,
        when={"stop": Stop.LENGTH, "below": True, "shown": False, "recovering": False}),
    Row("cut below the ceiling, text shown, then a call", Action.ESCALATE_BEHIND,
        when={"stop": Stop.LENGTH, "below": True, "shown": True},
        either=({"call": CUT}, {"text": False})),
    Row("cut below the ceiling, text shown", Action.RECOVER,
        when={"stop": Stop.LENGTH, "below": True, "recoveries": True, "text": True, "call": NONE,
              "not_resumable": False}, either=MAY_GO_ON),
    Row("cut at the ceiling, a call cut that came parsed, to be completed", Action.ESCALATE,
        when={"stop": Stop.LENGTH, "call": CUT, "complete": True, "unread": True,
              "shown": False}),
    Row("cut at the ceiling, a call cut, to be completed", Action.COMPLETE_CALL,
        when={"stop": Stop.LENGTH, "call": CUT, "complete": True, "proven": True,
              "recoveries": True}),
    Row("cut at the ceiling, a call cut, guidance asked for", Action.RETRY_SMALLER,
        when={"stop": Stop.LENGTH, "call": CUT, "retry_smaller": True}, either=MAY_GO_ON),
    Row("cut at the ceiling, a call cut", Action.CUT_CALL, Outcome.TRUNCATED,
        "a function call was cut at the ceiling",
        when={"stop": Stop.LENGTH, "call": CUT}),
    Row("cut at the ceiling, the turn cannot be gone on from", Action.FINISH, Outcome.TRUNCATED,
        "{not_resumable}",
        when={"stop": Stop.LENGTH, "not_resumable": True}),
    Row("cut at the ceiling, no visible text, less thinking asked for", Action.THINK_LESS,
        when={"stop": Stop.LENGTH, "text": False, "shown": False, "think_less": True}),
    Row("cut at the ceiling, no visible text", Action.FINISH, Outcome.TRUNCATED,
        "thinking used the whole limit: no visible text",
        when={"stop": Stop.LENGTH, "text": False}),
    Row("cut at the ceiling, structured output", Action.FINISH, Outcome.TRUNCATED,
        "structured output, or the rest of an earlier answer, cannot be gone on with",
        when={"stop": Stop.LENGTH, "structured": True, "completable": False},
        either=({"shown": True}, {"can_drop_schema": False})),
    Row("cut at the ceiling, visible text", Action.RECOVER,
        when={"stop": Stop.LENGTH, "recoveries": True}),
    Row("cut, all recoveries used", Action.FINISH, Outcome.TRUNCATED, "all recoveries used",
        when={"stop": Stop.LENGTH}),
)
# fmt: on


def decide(known: OpeningFacts | Situation) -> Decision:
    """Return what the first fitting row says. Total: every situation has a row.

    Of an opening it is asked before the request goes out, and when its answer begins.
    """
    if isinstance(known, OpeningFacts):
        row, facts = first_fit(OPENINGS, known)
    else:
        row, facts = first_fit(ROWS, known.result, known)
    reason = row.reason.format_map(facts) if row.reason is not None else None
    return Decision(row.name, row.action, row.outcome, reason)


# --- which of two answers stands --------------------


class Stands(StrEnum):
    """Which answer the turn has after the same request was sent again."""

    NEW = "new"
    """The one that was generated anew."""
    HELD = "held"
    """The one in hand, under its own label."""
    HELD_CUT = "held, as cut"
    """The one in hand, as one that was cut at the limit."""
    HELD_DROPPED = "held, as dropped"
    """The one in hand, as one whose stream dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What that may depend on besides what the new attempt came to."""

    replaces: bool
    """The new answer would take the place of the one in hand; else only what follows is taken."""
    came: bool = True
    """An answer came; `False`: the attempt failed for good, and the result is that in hand."""
    held_text: bool = False
    """The answer in hand has visible text."""
    held_closed: bool = True
    """The answer in hand had arrived, whole or cut: half a new one is no gain."""
    held_dropped: bool = False
    """The answer in hand broke off."""
    longer: bool = False
    """The new answer has more text."""
    shorter: bool = False
    """The new answer has less text."""
    held_parsed: bool = False
    """Of the cut call in hand the server has parsed what arrived."""
    resendable: bool = True
    """One more drop can be made good."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of `ANSWERS`."""

    name: str
    stands: Stands
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


# fmt: off
ANSWERS: tuple[Standing, ...] = (
    Standing("brought what follows", Stands.NEW,
        when={"came": True, "replaces": False, "made_progress": True},
        either=({"stop": NOT_DROPPED}, {"call": WHOLE})),
    Standing("was shown", Stands.NEW,
        when={"came": True, "replaces": True, "shown": True}),
    Standing("is whole, or its calls are", Stands.NEW,
        when={"came": True, "replaces": True},
        either=({"stop": Stop.END, "text": True},
                {"stop": frozenset(Stop) - {Stop.REFUSED}, "call": WHOLE})),
    Standing("says as little as the one in hand", Stands.NEW,
        when={"came": True, "replaces": True, "stop": ENDED, "held_text": False}),
    Standing("broke off, and is longer all the same", Stands.NEW,
        when={"came": True, "replaces": True, "stop": Stop.DROPPED, "longer": True}),
    Standing("is no shorter", Stands.NEW,
        when={"came": True, "replaces": True, "shorter": False},
        either=({"stop": NOT_DROPPED - ENDED}, {"stop": Stop.DROPPED, "held_closed": False})),
    Standing("shows what broke off of its call", Stands.NEW,
        when={"came": True, "replaces": True, "stop": Stop.LENGTH, "call": CUT,
              "args_verified": True, "held_parsed": True}),
    Standing("was cut: there is no room at this limit", Stands.HELD_CUT,
        when={"stop": Stop.LENGTH}),
    # What we hold was cut, and arrived: no drop makes it a failure.
    Standing("broke off, the one in hand did not", Stands.HELD_CUT,
        when={"held_closed": True, "resendable": False},
        either=({"stop": Stop.DROPPED}, {"held_dropped": True})),
    Standing("broke off", Stands.HELD_DROPPED,
        when={"stop": Stop.DROPPED}),
    Standing("is no better", Stands.HELD,
        when={}),
)
# fmt: on


def standing(new: AttemptResult, again: Again) -> Stands:
    """Return which answer stands when the same request was answered again."""
    return first_fit(ANSWERS, new, again)[0].stands


# --- is a completed call a call? --------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row of `PROOFS`."""

    name: str
    reason: str | None
    """Why the call stays cut; `None`: it is gone on with or, once it is whole, delivered."""
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


# fmt: off
PROOFS: tuple[Delivery, ...] = (
    Delivery("not inside a text", "its arguments break off outside a string",
        when={"in_text": False}),
    Delivery("too little to quote", "too little of the argument arrived, or it only repeats itself",
        when={"quotable": False}),
    Delivery("not answered", "{error}",
        when={"error": True}),
    Delivery("refused", "the model refused to go on with it",
        when={"refused": True}),
    Delivery("plain or escaped", "it cannot be told whether its rest came as JSON or as plain text",
        when={"decoded": False}),
    Delivery("nothing new", "nothing was added to it",
        when={"added": False}),
    Delivery("the parts do not meet", "its parts do not meet exactly ({seam})",
        when={"exact": False}),
    Delivery("no sure seam", "the seam in it is not sure ({seam})",
        when={"trusted": False}),
    Delivery("words of the model's own", "its text seems to speak to the reader",
        when={"remarks": True}),
    Delivery("arguments are missing", "it still lacks {lacking}",
        when={"lacking": True}),
    Delivery("no JSON", "its arguments are not whole JSON",
        when={"parses": False}),
    Delivery("not what the tool takes", "{mistake}",
        when={"mistake": True}),
    Delivery("shown otherwise", "what was shown of it cannot be gone on with",
        when={"seen": True}),
    Delivery("proven", None,
        when={}),
)
# fmt: on


def objection(proof: Proof) -> str | None:
    """Return why a call that is being completed stays cut; `None`: nothing speaks against it."""
    row, facts = first_fit(PROOFS, proof)
    return row.reason.format_map(facts) if row.reason is not None else None


# --- how the caller's answer ends --------------------


class Held(StrEnum):
    """What becomes of what the caller has not seen yet when the turn ends."""

    ALL = "all"
    """All of it goes out, if the last attempt ended as it should."""
    FIT = "fit"
    """What is whole goes out; a cut call is left out without a word."""
    BY_POLICY = "by policy"
    """What is whole goes out, and the cut call as the policy `truncated_tool_call` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What an ending may depend on besides the situation it was decided in."""

    action: Action
    outcome: Outcome
    half_call: bool = False
    """The caller has been shown a call, by policy, that nothing made whole."""
    half_document: bool = False
    """Structured output was put together from several attempts, and is not whole JSON."""
    on_failure: str = "stop"
    truncated_tool_call: str = "explain"


@dataclass(frozen=True, slots=True)
class Ending:
    """One row of `ENDINGS`."""

    name: str
    stop: StopWord | None
    """The stop reason the caller gets; `None`: the first answer goes out byte for byte."""
    held: Held = Held.ALL
    outcome: Outcome | None = None
    """What the report says; `None`: what was decided."""
    reason: str | None = None
    when: When = field(kw_only=True)
    either: tuple[When, ...] = field(default=(), kw_only=True)


HALF_CALL = "a function call that was shown as it came stays half"
HALF_DOCUMENT = "the joined text is not whole JSON"
NOT_WHOLE = frozenset({Outcome.PARTIAL, Outcome.STALLED, Outcome.TRUNCATED})
FIRST_ANSWER: When = {
    "action": Action.FINISH,
    "later": False,
    "closed": True,
    "stop": frozenset({Stop.END, Stop.REFUSED, Stop.WINDOW}),
}

# fmt: off
ENDINGS: tuple[Ending, ...] = (
    Ending("the first answer could not be read", None, outcome=Outcome.UNTOUCHED,
        reason="the answer could not be read",
        when={**FIRST_ANSWER, "opened": False}),
    # A filter that breaks into a call is left to the last row: half a call does not go out.
    Ending("the first answer is whole", None,
        when=FIRST_ANSWER,
        either=({"stop": frozenset({Stop.END, Stop.WINDOW})}, {"call": frozenset({NONE, WHOLE})},
                {"truncated_tool_call": "keep"})),
    Ending("not whole, and an exception is wanted", StopWord.RAISED, Held.FIT,
        when={"on_failure": "raise", "outcome": NOT_WHOLE}),
    Ending("the joined text is not whole JSON, and an exception is wanted", StopWord.RAISED,
        Held.FIT, Outcome.TRUNCATED, HALF_DOCUMENT,
        when={"on_failure": "raise", "half_document": True}),
    Ending("half a call is out, and an exception is wanted", StopWord.RAISED, Held.FIT,
        Outcome.TRUNCATED, HALF_CALL,
        when={"on_failure": "raise", "half_call": True}),
    Ending("the first answer stays as it came", None,
        when={"unkept": True}),
    Ending("the first answer holds calls that are whole", None,
        when={**FIRST_ANSWER, "stop": Stop.LENGTH, "call": WHOLE}),
    Ending("a call was cut by a full window", StopWord.OWN, Held.BY_POLICY,
        when={"action": Action.CUT_CALL, "stop": Stop.WINDOW}),
    Ending("a call was cut", StopWord.TRUNCATED, Held.BY_POLICY,
        when={"action": Action.CUT_CALL}),
    # Half a document, or half a call, is never given out as a whole one.
    Ending("stopped, and a synthetic end would be wrong or unwanted", StopWord.TRUNCATED, Held.FIT,
        when={"action": Action.STOP},
        either=({"structured": True}, {"half_call": True}, {"on_failure": "truncated"})),
    Ending("stopped", StopWord.ENDED,
        when={"action": Action.STOP}),
    Ending("the joined text is not whole JSON", StopWord.TRUNCATED, Held.FIT, Outcome.TRUNCATED,
        HALF_DOCUMENT,
        when={"half_document": True}),
    # No loop may run a half call, whatever the last attempt said.
    Ending("half a call is out", StopWord.TRUNCATED, Held.ALL, Outcome.TRUNCATED, HALF_CALL,
        when={"half_call": True, "stop": Stop.END}),
    Ending("half a call is out, refused", StopWord.OWN, Held.ALL, Outcome.TRUNCATED, HALF_CALL,
        when={"half_call": True, "outcome": Outcome.HEALED}),
    Ending("cut", StopWord.TRUNCATED, Held.FIT,
        when={"stop": Stop.LENGTH}),
    Ending("no reason ever came", StopWord.TRUNCATED, Held.FIT,
        when={"raw": False, "closed": False}),
    Ending("ended", StopWord.OWN,
        when={}),
)
# fmt: on


def ending(closing: Closing, situation: Situation) -> Ending:
    """Return how the caller's answer ends. Total, like `decide`."""
    return first_fit(ENDINGS, situation.result, situation, closing)[0]
