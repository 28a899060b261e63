"""Servers of generateContent with manners and in moods of their own: nothing twice, none lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.drive import Attempt, Driven, body
from support.drive_gemini import (
    BEFORE,
    ECHO,
    FAST,
    LONG,
    NEW,
    OPENED,
    SIGNATURE,
    Chunk,
    ask,
    call,
    chunk,
    parts,
    reasons,
    report,
    responses,
    said,
    sse,
    text,
    unary,
)

from continuation.engine.budget import HOPS
from continuation.reports.report import Retrying
from continuation.types import Outcome

REST = "x jumps over the lazy dog."
WHOLE = BEFORE + REST
MOST: Any = {"generationConfig": {"maxOutputTokens": 65_536}}
THOUGHT, SIGNED = text("Hm.", thought=True), text("", thoughtSignature=SIGNATURE)
END = chunk(text(""), reason="STOP")
CUT = [chunk(text(BEFORE)), chunk(text(""), reason="MAX_TOKENS", said=1000)]
AGAIN = sse([chunk(text(ECHO + REST), reason="STOP")])
"""It begins with what the prompt asks to repeat."""
ERROR: Chunk = {"error": {"code": 500, "message": "no", "status": "INTERNAL"}}


def outcome(driven: Driven) -> Outcome:
    return report(driven).outcome


def usage(driven: Driven) -> int:
    told = [r["usageMetadata"] for r in responses(driven) if "usageMetadata" in r]
    return int(told[-1]["candidatesTokenCount"])


def chatty(*words: str, last: str = "STOP", **more: Any) -> list[Chunk]:
    """Return chunks that each say STOP, as the servers of 2024 wrote them."""
    reasons = ["STOP"] * (len(words) - 1) + [last]
    return [chunk(text(w), reason=r, **more) for w, r in zip(words, reasons, strict=True)]


# --- how texts come ---------------------------------------------------------------------------


def echoed(*before: Chunk, at: int, **more: Any) -> bytes:
    """Return a recovery whose echo comes in two parts, with something between them."""
    told = [text(ECHO[:at], **more), *before, text(ECHO[at:] + REST)]
    return sse([*map(chunk, told), END])


HEALED: dict[str, list[Attempt]] = {
    "STOP is said with each chunk": [
        sse(CUT),
        sse(chatty(ECHO[:9], ECHO[9:] + REST[:4], REST[4:])),
    ],
    "a server between says STOP behind the cut": [sse([*CUT, END]), AGAIN],
    "a thought behind the text where a recovery is cut": [
        sse(CUT),
        sse([chunk(text(REST[:7]), THOUGHT, SIGNED, reason="MAX_TOKENS")]),
        sse([chunk(text(REST[7:]), reason="STOP")]),
    ],
    **{
        f"a {name} behind the text in its chunk": [
            sse(CUT),
            sse([chunk(text(ECHO + REST), behind, reason="STOP")]),
        ]
        for name, behind in (("call", call(path="a")), ("thought", THOUGHT), ("signature", SIGNED))
    },
    **{
        f"a {name} amid the words of an echo, at {at}": [sse(CUT), echoed(between, at=at)]
        for name, between in (("thought", THOUGHT), ("signature", SIGNED))
        for at in (3, 9, 20)
    },
    **{
        f"the first words of an echo are signed, {at} of them": [
            sse(CUT),
            echoed(at=at, thoughtSignature=SIGNATURE),
        ]
        for at in (3, 9, 20)
    },
    **{
        f"it thought behind the text: {name}": [sse([CUT[0], *map(chunk, tail), CUT[1]]), AGAIN]
        for name, tail in (
            ("signed", [THOUGHT, SIGNED]),
            ("unsigned", [THOUGHT]),
            ("signed before", [SIGNED, THOUGHT]),
        )
    },
}
"""What the attempts say; a seam is decided by all of an attempt's text, whatever is between."""


@pytest.mark.parametrize("how", HEALED)
def test_a_cut_text_is_gone_on_with(how: str) -> None:
    driven = ask(HEALED[how])
    assert (said(driven), reasons(driven)) == (WHOLE, ["STOP"])
    assert outcome(driven) is Outcome.HEALED


def test_text_before_a_thought_in_a_cut_chunk_is_gone_on_from() -> None:
    both = chunk(text(BEFORE), THOUGHT, reason="MAX_TOKENS", said=70_000)
    driven = ask([sse([both]), AGAIN], **MOST)
    assert (said(driven), outcome(driven)) == (WHOLE, Outcome.HEALED)


def test_text_behind_a_cut_makes_a_stop_the_end_again() -> None:
    driven = ask([sse([*CUT, chunk(text(REST), reason="STOP")])])
    assert (said(driven), outcome(driven)) == (WHOLE, Outcome.COMPLETE)


def test_its_cut_is_found_behind_all_those_stops() -> None:
    first = chatty("A captain of ", "the line wrote ", "his lo", last="MAX_TOKENS", said=1000)
    driven = ask([sse(first), sse(chatty("g by ", "lamplight."))])
    assert said(driven) == "A captain of the line wrote his log by lamplight."
    assert reasons(driven)[-1] == "STOP"
    assert outcome(driven) is Outcome.HEALED


def test_its_text_flows_from_the_second_chunk_on() -> None:
    pieces = ask([[sse([c]) for c in chatty(*[f"word {n} " for n in range(6)])]]).pieces
    assert [bool(piece) for piece in pieces[:6]] == [False, *[True] * 5]


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS"])
def test_a_count_and_a_signature_may_come_behind_the_end(reason: str) -> None:
    last = {"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 50}}
    tail = [chunk(SIGNED), last]
    if reason == "STOP":
        driven = ask([sse(CUT), sse([chunk(text("x jumps."), reason=reason), *tail])])
        assert SIGNED in parts(driven)
        assert usage(driven) == 1050
    else:
        first = [chunk(text(BEFORE)), chunk(text(""), reason=reason), *tail]
        driven = ask([sse(first), sse([chunk(text("x jumps."), reason="STOP")])])
        assert usage(driven) == 57
    assert said(driven) == BEFORE + "x jumps."


def test_an_answer_with_something_behind_its_end_passes_as_it_came() -> None:
    chunks = [chunk(text("All of it."), reason="STOP"), chunk(SIGNED), {"usageMetadata": {}}]
    driven = ask([[sse([c]) for c in chunks]])
    assert b"".join(driven.pieces) == sse(chunks)
    assert outcome(driven) is Outcome.COMPLETE


@pytest.mark.parametrize("error", [None, ConnectionError("reset")])
def test_what_breaks_behind_the_end_breaks_nothing(error: Exception | None) -> None:
    """The answer is whole: neither asked for again, nor taken from the caller by an error."""
    chunks = [chunk(text("All of ")), chunk(text("it."), reason="STOP")]
    raw = sse(chunks if error else [*chunks, ERROR])
    driven = ask([[raw]], broken=error)
    assert (said(driven), reasons(driven)) == ("All of it.", ["STOP"])
    assert b"INTERNAL" not in b"".join(driven.pieces)
    assert len(driven.requests) == 1


# --- several parts in a chunk -----------------------------------------------------------------


def test_a_count_between_two_texts_does_not_hold_up_the_second() -> None:
    counts: Chunk = {"usageMetadata": {"promptTokenCount": 10}}
    before = [chunk(text(BEFORE + "x jumps. ")), CUT[1]]
    echo = "quick brown fox jumps."
    rest = [chunk(text(echo)), counts, chunk(text(" ")), counts, chunk(call(path="a"))]
    driven = ask([sse(before), sse([*rest, chunk(text(""), reason="STOP")])])
    assert said(driven) == BEFORE + "x jumps. "
    pieces = ask([[sse([c]) for c in [*before[:1], counts, chunk(text("So. ")), *CUT]]] * 5).pieces
    assert [bool(piece) for piece in pieces[:3]] == [True, False, True]


def test_parts_behind_a_call_stay_behind_it() -> None:
    half = [chunk(text("I write. ")), chunk(OPENED, reason="MAX_TOKENS")]
    whole = chunk(text("I write. "), call(path="a.txt"), text("So.", thoughtSignature=SIGNATURE))
    driven = ask([sse(half), sse([whole, chunk(SIGNED, reason="STOP")])])
    kinds = [next(iter(part)) for part in parts(driven)]
    assert kinds == ["text", "functionCall", "text", "text"]
    assert parts(driven)[1:] == [
        call(path="a.txt"),
        text("So.", thoughtSignature=SIGNATURE),
        SIGNED,
    ]


def test_a_call_left_open_before_another_one_is_not_whole() -> None:
    opened: Chunk = {"functionCall": {"name": "Write", "willContinue": True}}
    end = chunk(text(""), reason="STOP")
    first = [chunk(text("I write. ")), chunk(opened), chunk(call("Read", path="a")), end]
    again = [chunk(text("I write. ")), chunk(call(path="a")), chunk(call("Read", path="a")), end]
    driven = ask([sse(first), sse(again)])
    assert [p for p in parts(driven) if "functionCall" in p] == [
        call(path="a"),
        call("Read", path="a"),
    ]


# --- hops -------------------------------------------------------------------------------------


def hop(words: str, number: int, reason: str = "CONTINUATION") -> list[bytes]:
    more: Any = {} if reason == "STOP" else {"continuationToken": f"{number:04}"}
    return [sse([chunk(text(words)), chunk(text(""), reason=reason, **more)])]


def hops(count: int) -> list[list[bytes]]:
    """Return a cut answer, and its rest in `count` hops, the last of which ends it."""
    between = [hop(f"{n}, ", n) for n in range(1, count)]
    return [hop("0, ", 0, "MAX_TOKENS"), *between, hop("done.", count, "STOP")]


def test_an_answer_may_take_as_many_hops_as_its_window_has() -> None:
    driven = ask(hops(16), model=LONG)
    assert said(driven) == "".join(f"{n}, " for n in range(16)) + "done."
    assert reasons(driven) == ["STOP"]


@pytest.mark.parametrize("most", [2, 5])
def test_one_cap_bounds_hops_as_well(most: int) -> None:
    driven = ask(hops(200), model=LONG, policy=replace(FAST, max_attempts=most))
    assert len(driven.requests) == most + HOPS
    assert reasons(driven) == ["MAX_TOKENS"]
    assert said(driven) == "".join(f"{n}, " for n in range(most + HOPS))
    assert report(driven).reason == "max_attempts spent"


def test_a_hop_that_ends_the_answer_without_a_word_has_ended_it() -> None:
    driven = ask([hop("One.", 1, "MAX_TOKENS"), sse([chunk(SIGNED, reason="STOP")])], model=LONG)
    assert (said(driven), outcome(driven)) == ("One.", Outcome.HEALED)
    assert SIGNED in parts(driven)


def test_the_reason_does_not_speak_of_structured_output_alone() -> None:
    body = chunk(text("two, "), reason="MAX_TOKENS", said=70_000)
    driven = unary(body, continuationToken="QQ==", **MOST)
    assert "cannot be continued" in str(report(driven).reason)


LAST, SPENT = chunk(text("two, ")), chunk(reason="MAX_TOKENS", said=1000)
TOKEN = chunk(continuationToken="QQ==")


@pytest.mark.parametrize("first", [[LAST, TOKEN, SPENT], [LAST, SPENT, TOKEN]])
def test_a_token_may_come_in_a_chunk_of_its_own(first: list[Chunk]) -> None:
    driven = ask([sse(first), sse([chunk(text("three."), reason="STOP")])], model=LONG)
    assert [r.get("continuationToken") for r in driven.requests] == [None, "QQ=="]
    assert (said(driven), reasons(driven)) == ("two, three.", ["STOP"])


def test_a_token_that_more_was_said_behind_is_not_gone_on_by() -> None:
    """It would bring what the caller has had."""
    driven = ask(
        [sse([TOKEN, LAST, SPENT]), sse([chunk(text("three."), reason="STOP")])], model=LONG
    )
    assert "continuationToken" not in driven.requests[1]
    assert said(driven) == "two, three."


@pytest.mark.parametrize("at", [0, 1, len(ECHO) // 2, len(ECHO) - 3, len(ECHO), len(ECHO) + 4])
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("ends", ["CONTINUATION", None])
def test_a_seam_goes_on_over_the_hops_of_a_recovery(
    at: int, thinks: bool, ends: str | None
) -> None:
    """A hop that pauses, or breaks off behind its checkpoint, may spend all on thinking."""
    if at == 0 and not thinks:
        return
    words = ECHO + REST
    parts = ([THOUGHT] if thinks else []) + ([text(words[:at])] if at else [])
    hop = [chunk(*parts, reason=ends, said=0, continuationToken="AAAA")]
    driven = ask([sse(CUT), sse(hop), sse([chunk(text(words[at:]), reason="STOP")])], model=LONG)
    assert ["continuationToken" in r for r in driven.requests] == [False, False, True]
    assert (said(driven), report(driven).outcome) == (WHOLE, Outcome.HEALED)


# --- budgets ----------------------------------------------------------------------------------


def test_a_drop_counts_no_more_than_a_hop_can_bring() -> None:
    """A limit of a million says nothing of what one request may be billed."""
    dropped = [[sse([chunk(text(f"{n}, "), said=2)])] for n in range(3)]
    driven = ask(
        [*dropped, sse([chunk(text("done."), reason="STOP")])],
        model=LONG,
        broken=ConnectionError("reset"),
        generationConfig={"maxOutputTokens": 1_048_576},
    )
    assert (len(driven.requests), reasons(driven)) == (4, ["STOP"])
    assert outcome(driven) is Outcome.HEALED


def test_and_what_it_counts_is_kept_from_the_limits_that_follow() -> None:
    policy = replace(FAST, max_turn_output_tokens=150_000)
    dropped = [[sse([chunk(text(f"{n}, "), said=2)])] for n in range(4)]
    driven = ask(dropped, model=LONG, broken=ConnectionError("reset"), policy=policy)
    limits = [r["generationConfig"]["maxOutputTokens"] for r in driven.requests]
    assert limits == [1000, 149_000, 149_000 - 65_536, 149_000 - 2 * 65_536]


# --- parts that say nothing, or something new ---------------------------------------------------


@pytest.mark.parametrize("where", ["shown", "only_call"])
def test_a_part_without_a_field_is_no_part(where: str) -> None:
    """A chat takes an answer with one for a turn that failed, and forgets what it was asked."""
    before = [text(BEFORE)] if where == "shown" else []
    body = chunk(*before, {}, reason="MAX_TOKENS", said=65_536)
    driven = unary(body, *[sse([body])] * 3, **MOST)
    assert parts(driven) == before


# --- drops behind the last word -----------------------------------------------------------------


def test_an_answer_asked_for_again_that_ends_where_the_shown_text_ends_is_whole() -> None:
    # A normal end behind all that was shown is an answer.
    shown = [chunk(text('{"a": ')), chunk(text("12}"))]
    again = [sse([*shown, chunk(text(""), reason="STOP")])]
    driven = ask(
        [sse(shown), again, again, again],
        generationConfig={"maxOutputTokens": 1000, "responseMimeType": "application/json"},
    )
    assert (said(driven), reasons(driven)) == ('{"a": 12}', ["STOP"])
    assert len(driven.requests) == 2
    assert outcome(driven) is Outcome.HEALED


def test_text_behind_a_drawing_is_gone_on_from() -> None:
    """Code that the provider runs draws figures between its texts."""
    code: Chunk = {"executableCode": {"language": "PYTHON", "code": "plot()"}}
    ran: Chunk = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    drawn: Chunk = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    first = [chunk(text("I plot. ")), chunk(code), chunk(ran), chunk(drawn), *CUT]
    driven = ask([sse(first), AGAIN])
    assert (said(driven), reasons(driven)) == ("I plot. " + WHOLE, ["STOP"])
    assert [part for part in parts(driven) if "text" not in part] == [code, ran, drawn]
    sent = driven.requests[1]["contents"][1]["parts"]
    assert sent == [text("I plot. "), code, ran, drawn, text(BEFORE)]


# --- what a later request carries ---------------------------------------------------------------

OLD = "gemini-3.1-pro"
"""It is gone on from by prefill."""


def sent(driven: Driven) -> str:
    """Return the text of the model's turn that the last request carries."""
    turns = [c for c in driven.requests[-1]["contents"] if c["role"] == "model"]
    return "".join(part.get("text", "") for part in turns[-1]["parts"])


@pytest.mark.parametrize("model", [NEW, OLD, LONG])
def test_summaries_of_thoughts_are_carried_to_no_later_request(model: str) -> None:
    thinks = chunk(text("I weigh it.", thought=True))
    dropped = [sse([thinks, chunk(text(BEFORE))])]
    driven = ask([dropped, sse([chunk(text("x jumps."), reason="STOP")])], model=model, **MOST)
    assert sent(driven) == BEFORE
    assert [part for part in parts(driven) if part.get("thought")]


@pytest.mark.parametrize("model", [NEW, OLD])
def test_white_space_behind_a_signed_text_hides_none_of_it(model: str) -> None:
    signed = chunk(text("quick brown", thoughtSignature=SIGNATURE))
    first = [chunk(text("And the ")), signed, chunk(text(" ")), chunk(SIGNED, reason="MAX_TOKENS")]
    rest = [sse([chunk(text("fox jumps."), reason="STOP")])]
    driven = ask([sse(first), rest], model=model, **MOST)
    assert sent(driven).rstrip() == "And the quick brown"


# --- forms ----------------------------------------------------------------------------------------

HOP = [chunk(text(REST)), END]
ONE = chunk(text(REST), reason="STOP", said=9)


def typed(kind: str, told: Attempt) -> Attempt:
    assert isinstance(told, bytes)
    return 200, {"content-type": kind}, [told], None


@pytest.mark.parametrize(
    "hop",
    [
        typed("Text/Event-Stream; Charset=UTF-8", sse(HOP)),
        typed("text/event-stream;charset=utf-8", sse(HOP)),
        body(ONE),
        body(HOP),
        (200, {"content-type": "text/plain"}, body(ONE)[2], None),
    ],
    ids=["letter case", "charset", "body", "array", "plain"],
)
def test_a_hop_may_come_in_any_form(hop: Attempt) -> None:
    token = chunk(text(""), reason="MAX_TOKENS", said=1000, continuationToken="AAAA")
    driven = ask([sse([CUT[0], token]), hop], model=LONG)
    assert (said(driven), reasons(driven)) == (WHOLE, ["STOP"])
    modes = [attempt.mode for attempt in report(driven).attempts]
    assert modes == ["first", "native_continuation"]


# --- refusals -------------------------------------------------------------------------------------


def limited(delay: str) -> Attempt:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.", "details": [info]}
    return body({"error": error}, status=429)


def test_the_wait_that_a_refusal_names_in_its_body_is_kept() -> None:
    driven = ask([sse(CUT), limited("0.015s"), AGAIN])
    assert said(driven) == WHOLE
    assert [event.seconds for event in driven.events if isinstance(event, Retrying)] == [0.015]


def test_a_wait_beyond_the_policys_longest_is_not_begun() -> None:
    driven = ask([sse(CUT), limited("3600s")])
    assert (said(driven), report(driven).outcome) == (BEFORE, Outcome.PARTIAL)
    assert len(report(driven).attempts) == 2
