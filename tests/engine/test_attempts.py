"""What a turn sends, waits for, notes and delivers between its attempts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.drive import (
    Clock,
    Driven,
    body,
    closing,
    drive,
    opening,
    sse,
    streams,
    text_block,
)

from continuation import Policy
from continuation.engine.attempts import Attempts
from continuation.engine.commands import Consult
from continuation.engine.turn import Engine
from continuation.ledger import Ledger
from continuation.limits import Learned
from continuation.registry import dialects
from continuation.reports.report import Recorder, Recovering
from continuation.types import Request

ASK = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1000,
    "stream": True,
    "messages": [{"role": "user", "content": "Write."}],
}
QUIET = Policy(models_endpoint=False)


def cut(text: str, tokens: int = 1000, prompt: int = 10) -> bytes:
    return sse([opening(prompt), *text_block(0, [text]), *closing("max_tokens", tokens)])


def whole(text: str, tokens: int) -> bytes:
    return sse([opening(), *text_block(0, [text]), *closing("end_turn", tokens)])


def limits_of(driven: Driven) -> list[int]:
    return [request["max_tokens"] for request in driven.requests]


# --- what is learned ------------------------------------------------------------------------------


def test_a_ceiling_that_refused_the_first_attempt_is_obeyed_from_the_start_next_time() -> None:
    named = "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens"
    refused = body({"error": {"type": "invalid_request_error", "message": named}}, 400)
    learned, policy = Learned(), Policy(models_endpoint=False, clamp=True)
    asked = {**ASK, "model": "a-model-of-mine", "max_tokens": 9000}
    first = drive(streams(refused, whole("One.", 5)), asked, policy, learned=learned)
    assert limits_of(first) == [9000, 8192]
    again = drive(streams(whole("One.", 5)), asked, policy, learned=learned)
    assert limits_of(again) == [8192]


def test_what_the_complete_answer_needed_is_remembered() -> None:
    learned = Learned()
    drive(streams(cut("One, "), whole("two.", 2000)), ASK, QUIET, learned=learned)
    assert [facts["needed"] for facts in learned.facts().values()] == [3000]


# --- limits ---------------------------------------------------------------------------------------


def test_only_a_recovery_leaves_room_for_the_text_that_it_repeats() -> None:
    """Its prompt contains the output so far; that of a resent request does not."""
    provider = streams(cut("One, ", prompt=150_000), whole("two.", 10))
    recovered = drive(provider, ASK, QUIET)
    assert limits_of(recovered) == [1000, 200_000 - 150_000 - 1000 - 1024]
    held = sse([opening(150_000), *closing("max_tokens", 1000)])
    resent = drive(streams(held, whole("One.", 10)), ASK, QUIET)
    assert limits_of(resent) == [1000, 200_000 - 150_000 - 1024]


@pytest.mark.parametrize(("spent", "left"), [(0.0, 5.0), (4.5, 0.5), (9.0, 0.1)])
def test_the_callers_timeout_bounds_what_is_left_but_never_to_nothing(
    spent: float, left: float
) -> None:
    clock = Clock()
    engine = Engine(dialects(), QUIET, None, clock)
    dialect = engine.claims("POST", "/v1/messages")
    assert dialect is not None
    asked = b'{"model": "m", "max_tokens": 1000, "messages": []}'
    turn = engine.begin(dialect, Request("host", "/v1/messages", {}, asked), 5.0)
    clock.now += spent
    assert turn._attempts.budget.seconds_left == pytest.approx(left)
    assert turn.recorder.host == "host"


# --- waits and events -----------------------------------------------------------------------------

ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}


def test_only_an_error_in_a_stream_is_followed_by_a_rest() -> None:
    """A broken connection says nothing of the server's load."""
    reported = drive(streams(sse([opening(), ERROR]), whole("One.", 5)), ASK, QUIET)
    assert len(reported.waits) == 1
    assert 0 < reported.waits[0] <= QUIET.backoff_seconds
    broken = drive(streams(sse([opening()]), whole("One.", 5)), ASK, QUIET)
    truncated = drive(streams(cut("One, "), whole("two.", 5)), ASK, QUIET)
    assert broken.waits == truncated.waits == []


def test_an_event_has_the_number_of_the_attempt_that_begins() -> None:
    dropped = sse([opening(), *text_block(0, ["two, "])])
    driven = drive(streams(cut("One, "), dropped, whole("three.", 5)), ASK, QUIET)
    told = [event.attempt for event in driven.events if isinstance(event, Recovering)]
    assert told == [2, 3]


def test_bytes_behind_a_complete_answer_are_delivered_too() -> None:
    stream, behind = whole("One.", 5), b": the server says goodbye\n\n"
    driven = drive(streams([stream, behind, behind]), ASK, QUIET)
    assert b"".join(driven.pieces) == stream + behind + behind


# --- the store of chains --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "kept"),
    [(None, True), (lambda: True, True), (lambda: False, False), (lambda: 1 // 0, False)],
)
def test_only_an_answer_that_is_noted_may_differ_from_the_servers(
    job: Callable[[], bool] | None, *, kept: bool
) -> None:
    attempts = chained(job)
    script = attempts.promise("resp_1")
    assert consulted(script) == (kept, job is not None)


@pytest.mark.parametrize("job", [None, lambda: True])
def test_the_turn_is_kept_where_a_request_may_continue_from_it(
    job: Callable[[], bool] | None,
) -> None:
    attempts = chained(job)
    assert consulted(attempts.keep())[1] is (job is not None)
    assert attempts.recorder.given == "resp_1"


def chained(job: Callable[[], bool] | None) -> Attempts:
    """Return attempts whose request has a chain. The chain stores its turn with `job`."""
    chain = SimpleNamespace(
        promise=lambda *_: job, record=lambda: job, given="resp_1", patience=None
    )
    recorder: Any = Recorder("openai-responses", None, Ledger(float))
    parts: dict[str, Any] = dict.fromkeys(Attempts.__dataclass_fields__)
    parts |= {"request": SimpleNamespace(chain=chain), "recorder": recorder}
    return Attempts(**parts)


def consulted(script: Any) -> tuple[Any, bool]:
    """Run a script; return its value, and whether it consulted the store."""
    asked = False
    try:
        while True:
            command = next(script)
            assert isinstance(command, Consult)
            command.do()
            asked = True
    except StopIteration as over:
        return over.value, asked
