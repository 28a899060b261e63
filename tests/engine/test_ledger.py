"""What a turn has spent: calls, tokens, time, and what a server asks us to wait."""

from __future__ import annotations

import itertools

import pytest

from continuation.engine.waits import retry_after
from continuation.ledger import Attempt, Ledger, delivered, total
from continuation.types import AttemptResult, Head, Mode, Stop, StreamError, Usage

OK, BUSY = Head(200, {"request-id": "req_1"}), Head(529, {"x-request-id": "req_2"})


def opened() -> Ledger:
    """Return a ledger whose clock goes on a second whenever it is looked at."""
    return Ledger(itertools.count(100).__next__)


def brought(output: int | None, *, stop: str | None = "max_tokens") -> AttemptResult:
    return AttemptResult(stop=Stop.LENGTH, raw=stop, id="msg_1", usage=Usage(7, output=output))


def test_a_call_is_noted_from_its_beginning_to_its_end() -> None:
    ledger = opened()
    ledger.begin(Mode.FIRST, 1000)
    assert ledger.live is not None
    ledger.answered(OK)
    ledger.record(brought(1000))
    assert ledger.live is None
    assert ledger.attempts == [
        Attempt(
            number=1,
            mode=Mode.FIRST,
            limit=1000,
            stop="max_tokens",
            usage=Usage(7, output=1000),
            request_id="req_1",
            seconds=1,
            answered=True,
            begun=1,
            answer_id="msg_1",
        )
    ]


def test_the_limit_is_that_of_the_last_call_that_was_answered() -> None:
    ledger = opened()
    ledger.limit = 500
    for limit, head in ((1000, OK), (2000, BUSY)):
        ledger.begin(Mode.REPLACE, limit)
        ledger.answered(head)
        ledger.record(error=None if head.ok else "529")
    assert (ledger.sent, ledger.limit, ledger.error) == (2, 1000, "529")
    assert [attempt.answered for attempt in ledger.attempts] == [True, False]


@pytest.mark.parametrize(
    ("error", "named"),
    [(StreamError("overloaded_error"), "overloaded_error"), (OSError(), "OSError")],
)
def test_an_error_is_noted_by_its_name_and_never_by_its_text(error: Exception, named: str) -> None:
    ledger = opened()
    ledger.begin(Mode.FIRST, None)
    ledger.record(AttemptResult(stop=Stop.DROPPED, error=error))
    assert ledger.attempts[0].error == ledger.error == named


def test_with_no_call_under_way_there_is_nothing_to_note() -> None:
    ledger = opened()
    ledger.record(error="late")
    assert (ledger.attempts, ledger.error) == ([], None)


def test_a_paused_call_is_counted_as_one() -> None:
    ledger = opened()
    for stop in (Stop.PAUSED, Stop.LENGTH):
        ledger.begin(Mode.NATIVE_CONTINUATION, None)
        ledger.record(AttemptResult(stop=stop))
    assert (ledger.sent, ledger.paused) == (2, 1)


def spent(*outputs: int | None, stop: str | None = "max_tokens") -> Ledger:
    ledger = opened()
    for output in outputs:
        ledger.begin(Mode.FIRST, 1000)
        ledger.answered(OK)
        ledger.record(brought(output, stop=stop))
    return ledger


def test_what_was_discarded_was_billed_and_is_not_delivered() -> None:
    ledger = spent(1000, 300, 40)
    ledger.discard(0, 1)
    assert delivered(ledger.attempts) == Usage(7, output=340)
    assert total(ledger.attempts) == Usage(21, output=1340)
    assert (delivered(ledger.attempts).output, total(ledger.attempts).output) == (340, 1340)


@pytest.mark.parametrize(
    ("ledger", "billed"),
    [
        pytest.param(spent(300, 40), 340, id="counted"),
        pytest.param(spent(300, None), 1300, id="no count: all that the limit allowed"),
        pytest.param(spent(300, stop=None), 1000, id="broken off: no final count"),
    ],
)
def test_what_was_billed_is_never_told_too_low(ledger: Ledger, billed: int) -> None:
    assert ledger.most_billed(ceiling=9000, hop_ceiling=None) == billed


def test_one_hop_is_never_billed_more_than_it_can_bring() -> None:
    assert spent(None).most_billed(ceiling=9000, hop_ceiling=600) == 600


NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("headers", "wall", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, NOW, 1.5),
        ({"retry-after": "9"}, None, 9.0),
        ({"retry-after": "-9"}, NOW, 0.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:57 GMT"}, NOW, 20.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:17 GMT"}, NOW, 0.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:57 GMT"}, None, None),
        ({}, NOW, None),
    ],
)
def test_what_a_server_asks_us_to_wait(
    headers: dict[str, str], wall: float | None, seconds: float | None
) -> None:
    assert retry_after(headers, wall) == seconds


@pytest.mark.parametrize("ulp", [0.1, 1e-7, 1 / 3])
def test_output_that_is_held_is_held_until_now_exactly(ulp: float) -> None:
    """The gateway's page compares both times, so one reading of the clock must give both."""
    ledger = Ledger(map(ulp.__mul__, itertools.count(7)).__next__)
    ledger.begin(Mode.FIRST, 1000)
    ledger.record(brought(1000))
    ledger.begin(Mode.RECOVERY, 1000)
    live = ledger.so_far[-1]
    assert live.shown == live.begun + live.seconds
