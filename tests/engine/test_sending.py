"""The tables about requests: each row by a case of its own, and what they do to a turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.drive import (
    Driven,
    body,
    call_block,
    closing,
    drive,
    opening,
    sse,
    streams,
    text_block,
)
from support.tables import rows, words

from continuation import Policy
from continuation.engine.sending import (
    PARTS,
    REMEDIES,
    RETRIES,
    STARTS,
    WAYS,
    PartFacts,
    Remedy,
    RemedyFacts,
    RetryFacts,
    StartFacts,
    WayFacts,
    choose,
)
from continuation.engine.table import Action
from continuation.engine.turn import Engine
from continuation.limits import Learned
from continuation.registry import dialects
from continuation.types import ErrorKind, Outcome, Request

START_CASES = rows("""
its answer is passed on | -handled lowered=9 | own
its chain is lost, so the shell answers it | refused_here changed remembered | own
its limit is above the ceiling | lowered=9 remembered | lower
its limit may be too small, or policy starts at the ceiling | lowered=9 changed remembered | raise
its limit may be too small, or policy starts at the ceiling | from_ceiling | raise
its body is expected to be long | long_body | stream
its limit stays | lowered=9 changed | own
its limit stays | | own
""")

REMEDY_CASES = rows("""
the error may state what to change | raised status=402 | read
the error may state what to change | raised status=429 | read
the error may state what to change | raised gathers status=405 | read
the error may state what to change | status=404 | read
a stream was refused | gathers status=403 | own
a stream was refused | gathers status=400 names_stream | own
the body took too long | may_stream status=524 | stream
no error, or one that no change can help | raised status=404 | pass_on
no error, or one that no change can help | gathers status=524 | pass_on
no error, or one that no change can help | gathers status=400 | pass_on
no error, or one that no change can help | status=429 | pass_on
no error, or one that no change can help | status=200 | pass_on
no error, or one that no change can help | | pass_on
the history is repaired, and the limit stays raised | known raised repairable spare corrects
  | repair_raised
the raised limit or its form can be corrected | known raised corrects spare | raise_again
the raised limit was refused | known raised corrects repairable | own
the raised limit was refused | known raised spare clamp ceiling=9 | own
the history is repaired | known repairable clamp ceiling=9 | repair
the caller's limit is above the ceiling | known clamp ceiling=9 consumed below | lower
rejected: thinking used the whole limit | known consumed below | escalate
no change can help | known consumed | pass_on
no change can help | known ceiling=9 below | pass_on
no change can help | known clamp | pass_on
""")

RETRY_CASES = rows("""
a budget is used up | retryable spent=s quota=9 | stop
the limit is above a quota | retryable quota=9 | quota
the error may be temporary | retryable quota=9 -lessons | wait
the error may be temporary | retryable status=429 smaller=9 | wait
the error may be temporary, but not soon enough | retryable status=429 -timely smaller=9 | stop
the answer would be truncated where the held one is | ceiling status=400 teaches -leaves_room
  smaller=9 | stop
the error states what to correct | ceiling status=400 teaches smaller=9 | correct
the limit may be what is refused | ceiling status=400 teaches -lessons smaller=9 | step_down
the limit may be what is refused | final status=413 smaller=9 stepped | step_down
the limit may be what is refused | retryable -retries status=429 smaller=9 | step_down
the limit may be what is refused, and no smaller one is of use | final status=422 | settle
the limit may be what is refused, and no smaller one is of use | retryable -retries status=429
  | settle
refused for good | retryable -retries status=429 stepped smaller=9 | stop
refused for good | final status=400 -chosen smaller=9 | stop
refused for good | final status=401 smaller=9 | stop
refused for good | retryable -retries smaller=9 | stop
""")

WAY_CASES = rows("""
a call is to be made smaller | action=retry_smaller -prefills | retry_smaller
a call was announced | action=ask_call -prefills | call
the text repeats itself | action=pass_loop | prompt
a prefill is not possible | action=recover -prefills | prompt
there is no text for a prefill | action=recover -written | prompt
a prefill was refused | action=resume no_prefill | prompt
the last prefill was not continued | action=recover prefilled -made_progress | prompt
a prefill is possible | action=resume prefilled | prefill
a prefill is possible | action=recover -made_progress | prefill
""")

PART_CASES = rows("""
its text was not requested yet | -text_whole | text
its text is still truncated | text_requested members_missing | leave
something prevents its delivery | text_requested text_whole objection=s members_missing | leave
something prevents its delivery | -continues_text objection=s | leave
arguments are missing, and a budget is used up | -continues_text members_missing spent=s
  | do_without
arguments are missing | text_requested text_whole members_missing | members
nothing is missing | text_requested text_whole spent=s | close
nothing is missing | -continues_text | close
""")


def retry_facts(told: str) -> RetryFacts:
    kind, _, more = told.partition(" ")
    return RetryFacts(error_kind=ErrorKind(kind), **words(more))


def way_facts(told: str) -> WayFacts:
    facts = words(told)
    return WayFacts(**{**facts, "action": Action(facts["action"])})


def read(kind: Callable[..., Any]) -> Callable[[str], Any]:
    return lambda told: kind(**words(told))


TABLES: dict[str, tuple[Any, list[list[str]], Callable[[str], Any]]] = {
    "starts": (STARTS, START_CASES, read(StartFacts)),
    "remedies": (REMEDIES, REMEDY_CASES, read(RemedyFacts)),
    "retries": (RETRIES, RETRY_CASES, retry_facts),
    "ways": (WAYS, WAY_CASES, way_facts),
    "parts": (PARTS, PART_CASES, read(PartFacts)),
}


@pytest.mark.parametrize(
    ("table", "row", "told", "then"),
    [(table, *case) for table, (_, cases, _) in TABLES.items() for case in cases],
    ids=lambda cell: str(cell),
)
def test_each_row(table: str, row: str, told: str, then: str) -> None:
    known, _, facts_of = TABLES[table]
    chosen = choose(known, facts_of(told))
    assert (chosen.name, chosen.then) == (row, then)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_case_in_its_order(table: str) -> None:
    known, cases, _ = TABLES[table]
    assert [row.name for row in known] == list(dict.fromkeys(case[0] for case in cases))


def test_only_a_response_is_a_reason_to_read() -> None:
    """A request that failed without a response has no error to read."""
    for raised in (False, True):
        assert choose(REMEDIES, RemedyFacts(raised=raised, gathers=raised)).then is Remedy.PASS_ON


# --- in a turn ------------------------------------------------------------------------------------

ASK = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1000,
    "stream": True,
    "messages": [{"role": "user", "content": "Write."}],
}


def refusal(status: int, message: str = "no") -> Any:
    return body({"error": {"type": "some_error", "message": message}}, status)


def cut(text: str, tokens: int = 1000) -> bytes:
    return sse([opening(), *text_block(0, [text]), *closing("max_tokens", tokens)])


def test_a_resend_that_failed_for_good_is_not_made_again() -> None:
    """Three attempts after drops are left, but the next one would be refused too."""
    dropped = sse([opening()])
    driven = drive(streams(dropped, *[refusal(401)] * 3), ASK, Policy(max_drop_recoveries=3))
    assert len(driven.requests) == 2
    assert driven.report.outcome is Outcome.FAILED


NAMED = "max_tokens: 64000 > {}, which is the maximum allowed number of output tokens"
STREAMED = Policy(models_endpoint=False)


def limits_of(driven: Driven) -> list[int]:
    return [request["max_tokens"] for request in driven.requests]


def test_a_ceiling_is_learned_although_the_budget_is_used_up() -> None:
    """A later turn must not meet the same refusal, whatever was left of this one."""
    learned, policy = Learned(), replace(STREAMED, max_attempts=2)
    named = refusal(400, NAMED.format(8192))
    driven = drive(streams(cut("One, "), named), ASK, policy, learned=learned)
    assert limits_of(driven) == [1000, 64_000]
    assert [(lesson.kind, lesson.value) for lesson in driven.report.learned] == [("ceiling", 8192)]
    again = drive(streams(cut("One, "), cut("two, ", 8192)), ASK, policy, learned=learned)
    assert limits_of(again) == [1000, 8192]


def test_a_named_limit_at_which_the_answer_was_truncated_ends_the_escalation() -> None:
    """The call can be completed; another answer that ends at the same limit is of no use."""
    arguments = json.dumps({"path": "a.py", "content": "x = 1\n" * 90})[:400]
    called = sse([opening(), *call_block(0, [arguments]), *closing("max_tokens", 1000)])
    driven = drive(
        streams(called, refusal(400, NAMED.format(1000)), *[refusal(401)] * 9),
        {**ASK, "tools": [{"name": "Write", "input_schema": {"type": "object"}}]},
        replace(STREAMED, truncated_tool_call="complete"),
    )
    assert limits_of(driven) == [1000, 64_000, 1000]
    assert [attempt.mode for attempt in driven.report.attempts] == ["first", "replace", "argument"]


CONSUMED = (
    "Could not finish the message because max_tokens or model output limit was reached. "
    "Please try again with higher max_tokens."
)


@pytest.mark.parametrize(("limit", "sent"), [(1000, [1000, 16_384, 1000]), (16_384, [16_384])])
def test_a_limit_that_thinking_used_up_is_raised_only_if_a_larger_one_exists(
    limit: int, sent: list[int]
) -> None:
    """The policy `clamp` makes the engine read the error in any case."""
    error = body({"error": {"message": CONSUMED, "type": "invalid_request_error"}}, 400)
    asked = {"model": "gpt-4o", "max_tokens": limit, "messages": ASK["messages"]}
    policy = replace(STREAMED, clamp=True)
    driven = drive(streams(*[error] * 4), asked, policy, path="/v1/chat/completions")
    assert limits_of(driven) == sent


@pytest.mark.parametrize(
    ("changes", "streams"),
    [
        ({"stream": False}, True),
        ({"stream": True}, False),
        ({"stream": False, "max_tokens": 10}, False),
        ({"stream": False, "max_tokens": None}, False),
    ],
)
def test_only_a_body_that_the_turn_may_complete_is_requested_as_a_stream(
    changes: dict[str, Any], *, streams: bool
) -> None:
    asked = json.dumps({**ASK, **changes}).encode()
    engine = Engine(dialects(), Policy(leave_limits_below=100), None, float)
    dialect = engine.claims("POST", "/v1/messages")
    assert dialect is not None
    outgoing = engine.begin(dialect, Request("host", "/v1/messages", {}, asked), None).streamed()
    assert (outgoing is not None) is streams
    assert outgoing is None or json.loads(outgoing.body)["stream"] is True


@pytest.mark.parametrize(
    ("model", "ceiling", "sent"),
    [
        ("claude-sonnet-4-5", 0, 64_000),
        ("claude-sonnet-4-5", 5000, 5000),
        ("a-model-of-mine", 5000, 5000),
        ("a-model-of-mine", 0, 900_000),
    ],
)
def test_only_a_ceiling_that_is_known_lowers_the_callers_limit(
    model: str, ceiling: int, sent: int
) -> None:
    """What policy says goes before the table; the format's default is no knowledge of a model."""
    policy = replace(STREAMED, clamp=True, model_max_output_tokens=ceiling)
    whole = sse([opening(), *text_block(0, ["One."]), *closing("end_turn", 5)])
    driven = drive(streams(whole), {**ASK, "model": model, "max_tokens": 900_000}, policy)
    assert limits_of(driven) == [sent]
