"""The decision table itself: each row by a situation of its own, and the document that shows it."""

from __future__ import annotations

import itertools
from typing import Any

import draw_tables
import pytest
from support.tables import rows
from support.tables import words as facts

from continuation.engine.sending import PARTS, REMEDIES, RETRIES, STARTS, WAYS
from continuation.engine.table import (
    ANSWERS,
    ENDINGS,
    LABELS,
    OPENINGS,
    PROOFS,
    ROWS,
    Action,
    Again,
    AnyRow,
    Closing,
    Evidence,
    OpeningFacts,
    Row,
    Situation,
    believed,
    decide,
    ending,
    first_fit,
    objection,
)
from continuation.types import AttemptResult, Outcome, Proof, Stop, StopWord, ToolCallState

RESULT = frozenset(AttemptResult.__slots__)


def situation(words: str = "", /, **more: Any) -> Situation:
    """Return a situation, its attempt's result told among the other facts."""
    told = facts(words) | more
    result = AttemptResult(**{name: fact for name, fact in told.items() if name in RESULT})
    return Situation(result=result, **{n: fact for n, fact in told.items() if n not in RESULT})


def decided(words: str) -> tuple[Action, Outcome | None]:
    """Read an action, and the outcome if the turn is over."""
    action, *over = words.split()
    return Action(action), Outcome(over[0]) if over else None


# --- what happens after an attempt ----------------------------------------------------------------

CASES = rows("""
only the labels are known, and they are not enough | end used_up -looked | look
a recovery failed, and a budget is used up | length recovering failed text spent=s | stop partial
a recovery failed for good | length recovering failed text | stop partial
a recovery was refused | refused recovering later text | finish partial
a recovery was aborted | aborted recovering later text repeats=2 | stop partial
the text repeats itself | repetition text stops_loops | pass_loop
the text repeats itself, and is not continued | repetition text stops_loops passed_loop
  | stop partial
a recovery only repeated earlier text | length recovering stalled text | finish stalled
a recovery had nothing to add | end recovering -made_progress at_end | finish healed
a recovery proved that the text is complete | end recovering -made_progress ended_twice
  | finish healed
a prefill was not continued | end recovering later -made_progress prefilled text | recover
a recovery was empty | end recovering later -made_progress text | stop partial
the chain store failed, and the stream dropped | dropped text unkept=s | raise failed
the chain store failed | length text below unkept=s | finish partial
refused or filtered | refused text | finish incomplete
the generation failed, nothing delivered | aborted text repeats=2 | repeat
the generation failed | aborted text repeats=2 shown | finish incomplete
the provider stopped a repetition | repetition text | finish incomplete
ended with an unknown stop reason | other text | finish incomplete
an empty answer, nothing delivered | end empty repeats=2 | repeat
an empty answer | end empty repeats=1 | finish incomplete
a call is announced, and none was made | end text promised | ask_call
ended normally after a later attempt | end later text | finish healed
ended normally | end text | finish complete
the context window is full, a call is truncated | window call=cut | truncated_tool_call truncated
the context window is full | window text below | finish truncated
dropped before the first event | dropped -opened | raise failed
dropped, no text yet, no resend left | dropped -drops | raise failed
a budget is used up, a call is truncated | length spent=s call=cut text below
  | truncated_tool_call partial
a budget is used up, the stream dropped | dropped spent=s text | stop partial
a budget is used up | length spent=s text below | finish partial
dropped after a continuation token | dropped token text shown | checkpoint
dropped after complete calls | dropped call=whole | stop partial
dropped, nothing delivered, no text to continue | dropped | resend
dropped, text delivered, then a call | dropped text shown call=cut | resend_behind
dropped, visible text, no call | dropped text shown | resume
dropped, a call stays truncated | dropped text call=cut -drops | truncated_tool_call partial
dropped, no resumption left | dropped text -drops | stop partial
the provider paused, and the caller continues | paused text token | finish incomplete
a step of the provider ended with a token | paused token resumes | token
a step of the provider ended without a new token | paused text resumes | finish partial
truncated, with a token of the provider | length token below | token
truncated after complete calls | length call=whole below | finish truncated
truncated, text from an earlier process | length below text given | recover
truncated below the ceiling, nothing delivered | length below text | escalate
truncated below the ceiling, text delivered, then a call | length below shown text call=cut
  | escalate_behind
truncated below the ceiling, text delivered | length below shown text | recover
truncated at the ceiling, a parsed call, to be completed | length call=cut complete unread
  | escalate
truncated at the ceiling, a call, to be completed | length call=cut complete proven
  | complete_call
truncated at the ceiling, a call, to be made smaller | length call=cut retry_smaller | retry_smaller
truncated at the ceiling, a call | length call=cut text | truncated_tool_call truncated
truncated at the ceiling, the turn cannot be continued | length text not_resumable=s
  | finish truncated
truncated at the ceiling, no visible text, less thinking allowed | length think_less | think_less
truncated at the ceiling, no visible text | length | finish truncated
truncated at the ceiling, structured output | length text structured shown can_drop_schema
  | finish truncated
truncated at the ceiling, visible text | length text | recover
truncated, all recoveries used | length text -recoveries | finish truncated
""")


@pytest.mark.parametrize(("row", "told", "then"), CASES, ids=lambda cell: str(cell))
def test_each_row(row: str, told: str, then: str) -> None:
    decision = decide(situation(told))
    assert (decision.row, (decision.action, decision.outcome)) == (row, decided(then))


def test_every_row_has_a_case_in_its_order() -> None:
    assert [row.name for row in ROWS] == [case[0] for case in CASES]


def test_every_situation_has_a_row_and_every_ending_a_reason() -> None:
    flags = ("text", "shown", "below", "recovering", "made_progress", "recoveries", "drops")
    for stop, call in itertools.product(Stop, ToolCallState):
        for *values, structured in itertools.product((False, True), repeat=len(flags) + 1):
            chosen = dict(zip(flags, values, strict=True))
            decision = decide(situation(stop=stop, call=call, structured=structured, **chosen))
            whole = decision.outcome in {None, Outcome.COMPLETE, Outcome.HEALED}
            assert whole or decision.reason


def test_a_call_is_never_answered_with_a_recovery_turn() -> None:
    for call in (ToolCallState.WHOLE, ToolCallState.CUT):
        for shown, below in itertools.product((False, True), repeat=2):
            facts = situation(stop=Stop.LENGTH, text=True, call=call, shown=shown, below=below)
            assert decide(facts).action is not Action.RECOVER


def test_what_cannot_be_lifted_is_only_asked_for_again() -> None:
    flags = ("text", "shown", "below", "later", "drops")
    again = {Action.ESCALATE, Action.ESCALATE_BEHIND, Action.RESEND, Action.RESEND_BEHIND}
    over = {Action.FINISH, Action.STOP, Action.CUT_CALL, Action.RAISE}
    for stop, call in itertools.product(set(Stop) - {Stop.PAUSED}, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            chosen = dict(zip(flags, values, strict=True))
            assert decide(situation(stop=stop, call=call, structured=True, **chosen)).action in (
                again | over
            )


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_is_whole_needs_no_reason(later: bool) -> None:
    whole = situation(
        stop=Stop.END, text=True, later=later, not_resumable="an odd block", spent="tokens"
    )
    assert decide(whole).reason is None
    cut = situation(stop=Stop.LENGTH, not_resumable="an odd block")
    assert decide(cut).reason == "an odd block"


def test_a_condition_on_no_fact_at_all_is_a_mistake_that_shows() -> None:
    rows = (Row("misspelt", Action.FINISH, when={"stopp": Stop.END}),)
    with pytest.raises(KeyError, match="stopp"):
        first_fit(rows, AttemptResult(stop=Stop.END))
    with pytest.raises(LookupError):
        first_fit((), AttemptResult(stop=Stop.END))


# --- is the stop reason correct? ------------------------------------------------------------------

# The row; the result; the evidence; the stop and the state of the call that count.
LABEL_CASES = rows("""
ended, but its call is truncated | end call=cut | | length cut
ended at its limit, and its call cannot prove that it is complete | end call=whole -args_verified
  | used_up at_limit | length cut
ended at its limit, where an answer cannot end | end text | used_up in_word written | length none
ended at its limit, where an answer cannot end | end text | used_up at_limit open_end written
  | length none
ended at its limit, where an answer cannot end | end text
  | used_up at_limit always_completed written | length none
ended at its limit, where an answer cannot end | end text | used_up structured written | length none
ended at its limit, where an answer cannot end | end | used_up | length none
keeps its stop reason | end call=whole -args_verified | used_up | end whole
keeps its stop reason | end call=whole | used_up at_limit | end whole
keeps its stop reason | end text | in_word written | end none
keeps its stop reason | end text | used_up open_end written | end none
keeps its stop reason | end text | used_up always_completed written | end none
keeps its stop reason | end text | used_up written | end none
keeps its stop reason | end text | used_up structured written parses | end none
keeps its stop reason | end | used_up structured written parses | end none
keeps its stop reason | end not_resumable=s | used_up | end none
keeps its stop reason | end text | used_up | end none
keeps its stop reason | end | used_up written | end none
keeps its stop reason | refused call=cut | used_up in_word | refused cut
keeps its stop reason | dropped call=whole -args_verified | used_up at_limit | dropped whole
""")


@pytest.mark.parametrize(("row", "result", "evidence", "counts"), LABEL_CASES)
def test_each_label(row: str, result: str, evidence: str, counts: str) -> None:
    known, found = AttemptResult(**facts(result)), Evidence(**facts(evidence))
    assert first_fit(LABELS, known, found)[0].name == row
    really = believed(known, found)
    assert f"{really.stop} {really.call}" == counts


def test_every_label_has_a_case_in_its_order() -> None:
    assert [row.name for row in LABELS] == list(dict.fromkeys(case[0] for case in LABEL_CASES))


# --- which of two answers stands --------------------------------------------------------------

ANSWER_CASES = rows("""
adds the missing text | length | -replaces
was delivered | length shown | shorter
is complete, or its calls are | length call=whole | shorter
has no text, like the earlier answer | refused |
dropped, but longer | dropped | longer
is no shorter | length | held_text
shows the raw text of its truncated call | length call=cut | shorter held_parsed
truncated: the limit leaves no room | length | shorter
dropped, but the earlier answer did not | dropped | -resendable
dropped | dropped |
is no better | end | held_text
""")


@pytest.mark.parametrize(("row", "result", "known"), ANSWER_CASES)
def test_each_row_of_what_stands(row: str, result: str, known: str) -> None:
    again = Again(**{"replaces": True, **facts(known)})
    found, _ = first_fit(ANSWERS, AttemptResult(**facts(result)), again)
    assert found.name == row


def test_no_row_of_what_stands_is_without_a_case() -> None:
    assert [row.name for row in ANSWERS] == [row for row, _, _ in ANSWER_CASES]


# --- is a completed call a call? -------------------------------------------------------------


def test_each_objection_and_that_the_first_one_counts() -> None:
    against: list[dict[str, Any]] = [
        {name: value}
        for row in PROOFS[:-1]
        for name, wanted in row.when.items()
        for value in ["nobody" if name in {"error", "lacking", "mistake"} else wanted]
    ]
    assert len(against) == len(PROOFS) - 1, "one fact each"
    for at, facts_ in enumerate(against):
        later = {name: value for more in against[at:] for name, value in more.items()}
        for told in (facts_, later):
            row, _ = first_fit(PROOFS, Proof(**told))
            assert row is PROOFS[at]
            assert objection(Proof(**told))
    assert objection(Proof()) is None


# --- is the turn ours? ----------------------------------------------------------------------------

OPENING_CASES = rows("""
no answer arrived | unanswered | raise failed | the request failed
an error answer after the history was repaired | -ok status=400 repaired | pass_on failed
  | status 400 after the history was repaired
an error answer | -ok status=529 -enabled | pass_on failed | status 529
the request cannot be read | unreadable=garbled | pass_on untouched | garbled
the request is of a kind that is passed through | reserved=forced small | pass_on untouched | forced
switched off | -enabled small | pass_on untouched | switched off by policy
the output limit is small | small limit=100 leave_limits_below=256 | pass_on untouched
  | limit 100 is below leave_limits_below 256
the answer has another content type | -known_kind kind=text/html | pass_on untouched
  | the answer is of type 'text/html'
the answer is read |  | read |
""")


@pytest.mark.parametrize(("row", "told", "then", "reason"), OPENING_CASES)
def test_each_opening(row: str, told: str, then: str, reason: str) -> None:
    decision = decide(OpeningFacts(**facts(told)))
    assert (decision.row, (decision.action, decision.outcome)) == (row, decided(then))
    assert decision.reason == (reason or None)


def test_every_opening_has_a_case_in_its_order() -> None:
    assert [row.name for row in OPENINGS] == [case[0] for case in OPENING_CASES]


# --- how an answer ends ---------------------------------------------------------------------------

# What was decided; the attempt; the reason the caller gets, what is told of what is held, and the
# outcome where it is another one.
ENDING_CASES = rows("""
the first answer could not be read | finish complete | end -opened | own_bytes all untouched
the first answer is complete | finish complete | end | own_bytes all
incomplete, by policy an exception | stop partial on_failure=raise | dropped | raised fit
the caller's own stream dropped for good, by policy an error | stop partial dead | dropped
  | broken fit
the caller's own stream dropped for good, by policy truncated
  | stop partial dead on_dead=truncated | dropped | truncated fit
the joined text is not complete JSON, by policy an exception
  | finish healed on_failure=raise half_document | end later | raised fit truncated
a truncated call was delivered, by policy an exception | finish healed on_failure=raise half_call
  | end later | raised fit truncated
the first answer stays unchanged | finish partial | length unkept=s | own_bytes all
the first answer has complete calls | finish truncated | length call=whole | own_bytes all
a call is truncated by a full window | truncated_tool_call truncated | window call=cut
  | own by policy
a call is truncated | truncated_tool_call truncated | length call=cut | truncated by policy
stopped, where a synthetic end would be wrong or is unwanted | stop partial half_call | dropped
  | truncated fit
stopped | stop partial | dropped | ended all
the joined text is not complete JSON | finish healed half_document | end later structured
  | truncated fit truncated
a truncated call was delivered | finish healed half_call | end later | truncated all truncated
a truncated call was delivered, then a refusal | finish healed half_call | refused later
  | own all truncated
truncated | finish truncated | length | truncated fit
no stop reason arrived | finish partial | paused -closed | truncated fit
ended | finish healed | end raw=end_turn later | own all
""")


def closing(words: str) -> Closing:
    action, outcome, *more = words.split()
    return Closing(action=Action(action), outcome=Outcome(outcome), **facts(" ".join(more)))


@pytest.mark.parametrize(("row", "over", "told", "end"), ENDING_CASES)
def test_each_ending(row: str, over: str, told: str, end: str) -> None:
    found = ending(closing(over), situation(told))
    said = (found.stop or "own_bytes", found.held, *([found.outcome] if found.outcome else []))
    assert (found.name, " ".join(said)) == (row, end)


def test_every_ending_has_a_case_in_its_order() -> None:
    assert [row.name for row in ENDINGS] == [case[0] for case in ENDING_CASES]


@pytest.mark.parametrize("reason", ["structured", "half_call", "on_failure"])
def test_a_synthetic_end_never_stands_behind_half_a_document_or_half_a_call(reason: str) -> None:
    more = {"half_call": "half_call", "on_failure": "on_failure=truncated"}.get(reason, "")
    over = closing(f"stop partial {more}")
    found = ending(over, situation("dropped", structured=reason == "structured"))
    assert found.stop is StopWord.TRUNCATED


@pytest.mark.parametrize("policy", ["explain", "drop", "keep", "retry_smaller"])
def test_half_a_call_that_a_filter_cut_is_kept_only_by_policy(policy: str) -> None:
    over = closing(f"finish complete truncated_tool_call={policy}")
    found = ending(over, situation("refused call=cut raw=refusal"))
    assert (found.stop is None) is (policy == "keep")


def test_every_decision_that_ends_a_turn_has_an_ending() -> None:
    """Whatever the table decides, and whatever the answer holds."""
    flags = ("later", "closed", "structured", "half_call", "half_document")
    over = [row for row in ROWS if row.outcome is not None and row.action is not Action.RAISE]
    for row, stop, call in itertools.product(over, Stop, ToolCallState):
        for values in itertools.product((False, True), repeat=len(flags)):
            later, closed, structured, half_call, half_document = values
            assert row.outcome is not None
            found = ending(
                Closing(
                    action=row.action,
                    outcome=row.outcome,
                    half_call=half_call,
                    half_document=half_document,
                ),
                situation(stop=stop, call=call, later=later, closed=closed, structured=structured),
            )
            runnable = found.stop in {StopWord.OWN, StopWord.ENDED} and stop is Stop.END
            assert not (runnable and half_call and later)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_shows_the_tables() -> None:
    page = draw_tables.PAGE.read_text(encoding="utf-8")
    assert draw_tables.with_drawings(page) == page, "run: python scripts/draw_tables.py --write"
    shown: list[AnyRow] = [*OPENINGS, *LABELS, *ROWS, *ANSWERS, *PROOFS, *ENDINGS]
    shown += [*STARTS, *REMEDIES, *RETRIES, *WAYS, *PARTS]
    for row in shown:
        assert f"| {row.name} | {draw_tables.condition(row)} |" in page


def test_a_fact_is_explained_once() -> None:
    drawn = draw_tables.drawings()["facts"].splitlines()
    named = [line.split("|")[1] for line in drawn]
    assert len(set(named)) == len(named)
