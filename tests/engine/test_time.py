"""`max_turn_seconds` ends attempts of ours, whatever they wait for, and never the caller's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from support.drive import STREAM, opening, sse, text_block
from support.sdks.messages import ask, run
from support.sdks.turn import HOWS, How

import continuation
from continuation import Policy, Truncated
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome

HALF = "a beginning of a text that goes on"
POLICY = Policy(escalate=False, max_turn_seconds=1, backoff_seconds=0)
REPLIES: dict[str, dict[str, Any]] = {
    "trickles": {"slow": 0.2, "deltas": 4},
    "falls silent": {"stall": 5, "deltas": 4},
    "never begins": {"delay": 30.0},
    "refuses slowly": {"delay": 30.0, "status": 529},
}
FAST = {("sync", "trickles"), ("sync-stream", "falls silent"), ("async", "never begins")}


@pytest.mark.parametrize(
    ("how", "what"),
    [
        pytest.param(how, what, marks=[] if (how, what) in FAST else [pytest.mark.slow])
        for how in HOWS
        for what in REPLIES
    ],
)
def test_a_later_attempt_ends_with_the_turns_time(how: How, what: str) -> None:
    with Simulator() as sim:
        later = Reply([Text(" and more, and more" * 90)], **REPLIES[what])
        sim.script([Reply([Text(HALF)], stop="max_tokens"), later])
        ran = run(sim, how, policy=POLICY)
        assert 0.9 < ran.told.seconds < 1.9
        assert sim.posts[1].done.wait(5)
        assert sim.posts[1].hung_up
    assert ran.text.startswith(HALF)
    assert (ran.told.outcome, ran.told.reason) == (Outcome.PARTIAL, "max_turn_seconds spent")
    assert ran.told.attempts[1].error == "max_turn_seconds spent"
    cuts = [event.reason for event in ran.events if isinstance(event, Truncated)]
    assert "dropped" not in cuts


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_the_callers_own_attempt_takes_the_time_it_takes(how: How) -> None:
    with Simulator() as sim:
        sim.script([Reply([Text(HALF)], delay=1.2, slow=0.1, deltas=12)])
        ran = run(sim, how, policy=POLICY)
    assert (ran.text, ran.told.outcome) == (HALF, Outcome.COMPLETE)
    assert ran.told.seconds > 1


class Multiplexed(httpx2.HTTPTransport):
    """Answers a recovery as HTTP/2 would: each read waits as long as the request says just then."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if b"max_tokens" not in request.content or HALF.encode() not in request.content:
            return super().handle_request(request)
        body = httpx2.Response(200, headers=STREAM, stream=Silent(request))
        body.extensions["http_version"] = b"HTTP/2"
        return body


class Silent(httpx2.SyncByteStream):
    def __init__(self, request: httpx2.Request) -> None:
        self.request = request

    def __iter__(self) -> Iterator[bytes]:
        time.sleep(0.5)
        yield sse([opening(), *text_block(0, [" and more"])[:-1]])
        time.sleep(self.request.extensions["timeout"]["read"])
        message = "read timed out"
        raise httpx2.ReadTimeout(message)


@pytest.mark.slow
def test_over_http_2_no_read_takes_longer_than_is_left() -> None:
    with Simulator() as sim, httpx2.Client(transport=Multiplexed()) as http:
        sim.script([Reply([Text(HALF)], stop="max_tokens")])
        bare = anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0, http_client=http)
        client = continuation.wrap(bare, config=POLICY)
        with client.messages.stream(**ask()) as stream:
            assert stream.get_final_text().startswith(HALF)
        report = continuation.last_report()
    assert report is not None
    assert report.seconds < 1.3
    assert (report.outcome, report.reason) == (Outcome.PARTIAL, "max_turn_seconds spent")
