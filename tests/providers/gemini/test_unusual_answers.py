"""Servers of generateContent in odd moods, through the real SDK: no text twice, and none lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from google import genai
from google.genai import types
from support.servers import Answer, Asked, Canned, Rule

import continuation
from continuation import Policy, Report
from continuation.reports.report import Event, Retrying
from continuation.types import Outcome

NEW, LONG = "gemini-3.6-flash", "gemini-4-argon"
BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
ECHO, REST = "and then the quick brown fo", "x jumps over the lazy dog."
WHOLE = BEFORE + REST
Json = dict[str, Any]


def text(said: str, **more: Any) -> Json:
    return {"text": said, **more}


THOUGHT, SIGNATURE = text("Hm.", thought=True), text("", thoughtSignature="c2lnbmVk")


def chunk(*parts: Json, reason: str = "", said: int = 0, **more: Any) -> Json:
    candidate: Json = {"content": {"parts": [*parts], "role": "model"}, "index": 0, **more}
    ends = {"finishReason": reason} if reason else {}
    counts = {"promptTokenCount": 10, "candidatesTokenCount": said, "totalTokenCount": 10 + said}
    return {"candidates": [{**candidate, **ends}], "usageMetadata": counts}


CUT = [chunk(text(BEFORE)), chunk(text(""), reason="MAX_TOKENS", said=1000)]


@dataclass
class Told:
    """What the caller of a stream had."""

    text: str
    reasons: list[str]
    report: Report


def stream(
    *answers: Answer | Rule,
    model: str = NEW,
    on_event: Callable[[Event], None] | None = None,
) -> Told:
    """Ask for a stream that is answered by `answers`, one after the other, or by one rule."""
    left = iter(answers)

    def rule(asked: Asked) -> Answer:
        answer = answers[0] if callable(answers[0]) else next(left)
        return answer(asked) if callable(answer) else answer

    policy = Policy(backoff_seconds=0.0, models_endpoint=False)
    with Canned(rule) as server:
        options = types.HttpOptions(base_url=server.url)
        with genai.Client(api_key="key", http_options=options) as bare:
            client = continuation.wrap(bare, config=policy, on_event=on_event)
            config: Any = {"max_output_tokens": 1000}
            asked = client.models.generate_content_stream
            chunks = [*asked(model=model, contents="Go.", config=config)]
    candidates = [c.candidates[0] for c in chunks if c.candidates]
    contents = [c.content for c in candidates if c.content]
    parts = [part for content in contents for part in content.parts or []]
    report = continuation.last_report()
    assert report is not None
    return Told(
        "".join(part.text or "" for part in parts if not part.thought),
        [c.finish_reason.value for c in candidates if c.finish_reason],
        report,
    )


# --- an echo in several blocks ----------------------------------------------------------------
# A seam is decided by all of an attempt's text, whatever stands between its pieces.


@pytest.mark.parametrize("at", [3, 9, 20])
@pytest.mark.parametrize("between", [THOUGHT, SIGNATURE], ids=["thought", "signature"])
def test_what_stands_between_the_words_of_an_echo_does_not_show_it(between: Json, at: int) -> None:
    echo = [chunk(text(ECHO[:at])), chunk(between), chunk(text(ECHO[at:] + REST))]
    told = stream(Answer(events=CUT), Answer(events=[*echo, chunk(text(""), reason="STOP")]))
    assert (told.text, told.reasons) == (WHOLE, ["STOP"])


@pytest.mark.parametrize("at", [3, 9, 20])
def test_a_signed_piece_of_an_echo_is_not_shown(at: int) -> None:
    signed = text(ECHO[:at], thoughtSignature="c2lnbmVk")
    echo = [chunk(signed), chunk(text(ECHO[at:] + REST), reason="STOP")]
    told = stream(Answer(events=CUT), Answer(events=echo))
    assert (told.text, told.reasons) == (WHOLE, ["STOP"])


@pytest.mark.parametrize("tail", [[THOUGHT, SIGNATURE], [THOUGHT], [SIGNATURE, THOUGHT]])
def test_an_echo_of_text_behind_which_it_thought_is_not_shown(tail: list[Json]) -> None:
    cut = [CUT[0], *map(chunk, tail), CUT[1]]
    rest = [chunk(text(ECHO + REST)), chunk(text(""), reason="STOP")]
    told = stream(Answer(events=cut), Answer(events=rest))
    assert (told.text, told.reasons) == (WHOLE, ["STOP"])


@pytest.mark.parametrize("at", [0, 1, len(ECHO) // 2, len(ECHO) - 3, len(ECHO), len(ECHO) + 4])
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("ends", ["CONTINUATION", ""])
def test_a_seam_goes_on_over_the_hops_of_a_recovery(at: int, thinks: bool, ends: str) -> None:
    """A hop that pauses, or breaks off behind its checkpoint, may spend all on thinking."""
    said = ECHO + REST
    thought = {"text": "Hm.", "thought": True}
    if at == 0 and not thinks:
        return
    parts = ([thought] if thinks else []) + ([text(said[:at])] if at else [])
    hop = chunk(*parts, reason=ends, continuationToken="AAAA")
    answers = [CUT, [hop], [chunk(text(said[at:]), reason="STOP")]]
    asked: list[bool] = []

    def answer(request: Asked) -> Answer:
        asked.append("continuationToken" in request.body)
        return Answer(events=answers[len(asked) - 1])

    told = stream(answer, model=LONG)
    assert (told.text, asked) == (WHOLE, [False, False, True])
    assert told.report.outcome is Outcome.HEALED


# --- ends ---------------------------------------------------------------------------------------


def test_a_stop_of_a_server_between_does_not_hide_a_cut() -> None:
    rest = chunk(text(ECHO + REST), reason="STOP")
    told = stream(Answer(events=[*CUT, chunk(text(""), reason="STOP")]), Answer(events=[rest]))
    assert told.text == WHOLE
    assert told.report.outcome is Outcome.HEALED


def test_text_behind_a_cut_makes_a_stop_the_end_again() -> None:
    told = stream(Answer(events=[*CUT, chunk(text(REST), reason="STOP")]))
    assert (told.text, told.report.outcome) == (WHOLE, Outcome.COMPLETE)


# --- forms ----------------------------------------------------------------------------------------

HOP = [chunk(text(REST)), chunk(text(""), reason="STOP", said=9)]
ONE = chunk(text(REST), reason="STOP", said=9)


@pytest.mark.parametrize(
    "hop",
    [
        Answer(events=HOP, headers={"content-type": "Text/Event-Stream; Charset=UTF-8"}),
        Answer(events=HOP, headers={"content-type": "text/event-stream;charset=utf-8"}),
        Answer(ONE),
        Answer(HOP),
        Answer(ONE, headers={"content-type": "text/plain"}),
    ],
    ids=["letter case", "charset", "body", "array", "plain"],
)
def test_a_hop_may_come_in_any_form(hop: Answer) -> None:
    token = chunk(text(""), reason="MAX_TOKENS", said=1000, continuationToken="AAAA")
    told = stream(Answer(events=[CUT[0], token]), hop, model=LONG)
    assert (told.text, told.reasons) == (WHOLE, ["STOP"])
    assert [attempt.mode for attempt in told.report.attempts] == ["first", "native_continuation"]


# --- refusals -------------------------------------------------------------------------------------


def limited(delay: str) -> Answer:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.", "details": [info]}
    return Answer({"error": error}, status=429)


def test_the_wait_that_a_refusal_names_in_its_body_is_kept() -> None:
    events: list[Event] = []
    rest = Answer(events=[chunk(text(ECHO + REST), reason="STOP")])
    told = stream(Answer(events=CUT), limited("0.015s"), rest, on_event=events.append)
    assert told.text == WHOLE
    assert [event.seconds for event in events if isinstance(event, Retrying)] == [0.015]


def test_a_wait_beyond_the_policys_longest_is_not_begun() -> None:
    told = stream(Answer(events=CUT), limited("3600s"))
    assert (told.text, told.report.outcome) == (BEFORE, Outcome.PARTIAL)
    assert len(told.report.attempts) == 2
