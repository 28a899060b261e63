"""What servers of generateContent do that the usual one does not: nothing may be lost by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.drive import JSON, Driven
from support.drive_gemini import (
    FAST,
    LONG,
    NEW,
    SIGNATURE,
    Chunk,
    ask,
    call,
    chunk,
    parts,
    reasons,
    responses,
    said,
    sse,
    text,
)

from continuation import Policy
from continuation.engine.attempts import HOPS
from continuation.types import Outcome

BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
ANCHOR = "and then the quick brown fo"
CUT = [chunk(text(BEFORE)), chunk(text(""), reason="MAX_TOKENS", said=1000)]
SIGNED = text("", thoughtSignature=SIGNATURE)
ERROR: Chunk = {"error": {"code": 500, "message": "no", "status": "INTERNAL"}}


def outcome(driven: Driven) -> Outcome:
    assert driven.report is not None
    return driven.report.outcome


def usage(driven: Driven) -> int:
    told = [r["usageMetadata"] for r in responses(driven) if "usageMetadata" in r]
    return int(told[-1]["candidatesTokenCount"])


def chatty(*words: str, last: str = "STOP", **more: Any) -> list[Chunk]:
    """Return chunks that each say STOP, as the servers of 2024 wrote them."""
    reasons = ["STOP"] * (len(words) - 1) + [last]
    return [chunk(text(w), reason=r, **more) for w, r in zip(words, reasons, strict=True)]


# --- the end is where the bytes end -----------------------------------------------------------


def test_a_server_that_says_stop_with_each_chunk_is_read_to_its_end() -> None:
    rest = chatty(ANCHOR[:9], ANCHOR[9:] + "x ju", "mps.")
    driven = ask([[sse(CUT)], [sse(rest)]])
    assert (said(driven), reasons(driven)) == (BEFORE + "x jumps.", ["STOP"])


def test_its_cut_is_found_behind_all_those_stops() -> None:
    first = chatty("A captain of ", "the line wrote ", "his lo", last="MAX_TOKENS", said=1000)
    driven = ask([[sse(first)], [sse(chatty("g by ", "lamplight."))]])
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
        driven = ask([[sse(CUT)], [sse([chunk(text("x jumps."), reason=reason), *tail])]])
        assert SIGNED in parts(driven)
        assert usage(driven) == 1050
    else:
        first = [chunk(text(BEFORE)), chunk(text(""), reason=reason), *tail]
        driven = ask([[sse(first)], [sse([chunk(text("x jumps."), reason="STOP")])]])
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


@pytest.mark.parametrize("behind", [call(path="a"), text("Hm", thought=True), SIGNED])
def test_what_stands_behind_a_text_in_its_chunk_does_not_hide_the_seam(behind: Chunk) -> None:
    both = chunk(text(ANCHOR + "x jumps."), behind, reason="STOP")
    driven = ask([[sse(CUT)], [sse([both])]])
    assert said(driven) == BEFORE + "x jumps."
    assert outcome(driven) is Outcome.HEALED


def test_a_count_between_two_texts_does_not_hold_up_the_second() -> None:
    counts: Chunk = {"usageMetadata": {"promptTokenCount": 10}}
    before = [chunk(text(BEFORE + "x jumps. ")), CUT[1]]
    echo = "quick brown fox jumps."
    rest = [chunk(text(echo)), counts, chunk(text(" ")), counts, chunk(call(path="a"))]
    driven = ask([[sse(before)], [sse([*rest, chunk(text(""), reason="STOP")])]])
    assert said(driven) == BEFORE + "x jumps. "
    pieces = ask([[sse([c]) for c in [*before[:1], counts, chunk(text("So. ")), *CUT]]] * 5).pieces
    assert [bool(piece) for piece in pieces[:3]] == [True, False, True]


def test_text_before_a_thought_in_a_cut_chunk_is_gone_on_from() -> None:
    both = chunk(text(BEFORE), text("Hm", thought=True), reason="MAX_TOKENS", said=70_000)
    most: Any = {"generationConfig": {"maxOutputTokens": 65_536}}
    driven = ask([[sse([both])], [sse([chunk(text("x jumps."), reason="STOP")])]], **most)
    assert (said(driven), outcome(driven)) == (BEFORE + "x jumps.", Outcome.HEALED)


def test_a_recovery_that_is_cut_behind_a_thought_is_no_empty_one() -> None:
    both = chunk(text("x jumps"), text("Hm", thought=True), SIGNED, reason="MAX_TOKENS")
    driven = ask([[sse(CUT)], [sse([both])], [sse([chunk(text(" over."), reason="STOP")])]])
    assert said(driven) == BEFORE + "x jumps over."


def test_parts_behind_a_call_stay_behind_it() -> None:
    half = [chunk(text("I write. ")), chunk(call(path="a"), reason="MAX_TOKENS")]
    whole = chunk(text("I write. "), call(path="a.txt"), text("So.", thoughtSignature=SIGNATURE))
    driven = ask([[sse(half)], [sse([whole, chunk(SIGNED, reason="STOP")])]])
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
    driven = ask([[sse(first)], [sse(again)]])
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
    policy = Policy(backoff_seconds=0.0, models_endpoint=False, max_attempts=most)
    driven = ask(hops(200), model=LONG, policy=policy)
    assert len(driven.requests) == most + HOPS
    assert reasons(driven) == ["MAX_TOKENS"]
    assert said(driven) == "".join(f"{n}, " for n in range(most + HOPS))
    assert driven.report is not None
    assert driven.report.reason == "max_attempts spent"


def test_a_hop_that_ends_the_answer_without_a_word_has_ended_it() -> None:
    driven = ask([hop("One.", 1, "MAX_TOKENS"), [sse([chunk(SIGNED, reason="STOP")])]], model=LONG)
    assert (said(driven), outcome(driven)) == ("One.", Outcome.HEALED)
    assert SIGNED in parts(driven)


def test_the_reason_does_not_speak_of_structured_output_alone() -> None:
    body = chunk(text("two, "), reason="MAX_TOKENS", said=70_000)
    driven = ask(
        [[json.dumps(body).encode()]],
        verb="generateContent",
        first=JSON,
        policy=FAST,
        continuationToken="QQ==",
        generationConfig={"maxOutputTokens": 65_536},
    )
    assert driven.report is not None
    assert "rest of an earlier answer" in str(driven.report.reason)


LAST = chunk(text("two, "))
END = chunk(reason="MAX_TOKENS", said=1000)
TOKEN = chunk(continuationToken="QQ==")


@pytest.mark.parametrize("first", [[LAST, TOKEN, END], [LAST, END, TOKEN]])
def test_a_token_may_come_in_a_chunk_of_its_own(first: list[Chunk]) -> None:
    driven = ask([[sse(first)], [sse([chunk(text("three."), reason="STOP")])]], model=LONG)
    assert [r.get("continuationToken") for r in driven.requests] == [None, "QQ=="]
    assert (said(driven), reasons(driven)) == ("two, three.", ["STOP"])


def test_a_token_that_more_was_said_behind_is_not_gone_on_by() -> None:
    """It would bring what the caller has had."""
    driven = ask(
        [[sse([TOKEN, LAST, END])], [sse([chunk(text("three."), reason="STOP")])]], model=LONG
    )
    assert "continuationToken" not in driven.requests[1]
    assert said(driven) == "two, three."


# --- budgets ----------------------------------------------------------------------------------


def test_a_drop_counts_no_more_than_a_hop_can_bring() -> None:
    """A limit of a million says nothing of what one request may be billed."""
    dropped = [[sse([chunk(text(f"{n}, "), said=2)])] for n in range(3)]
    driven = ask(
        [*dropped, [sse([chunk(text("done."), reason="STOP")])]],
        model=LONG,
        broken=ConnectionError("reset"),
        generationConfig={"maxOutputTokens": 1_048_576},
    )
    assert (len(driven.requests), reasons(driven)) == (4, ["STOP"])
    assert outcome(driven) is Outcome.HEALED


def test_and_what_it_counts_is_kept_from_the_limits_that_follow() -> None:
    policy = Policy(backoff_seconds=0.0, models_endpoint=False, max_turn_output_tokens=150_000)
    dropped = [[sse([chunk(text(f"{n}, "), said=2)])] for n in range(4)]
    driven = ask(dropped, model=LONG, broken=ConnectionError("reset"), policy=policy)
    limits = [r["generationConfig"]["maxOutputTokens"] for r in driven.requests]
    assert limits == [1000, 149_000, 149_000 - 65_536, 149_000 - 2 * 65_536]


# --- parts that say nothing, or something new ---------------------------------------------------


@pytest.mark.parametrize("where", ["shown", "only_call"])
def test_a_part_without_a_field_is_no_part(where: str) -> None:
    """A chat takes an answer with one for a turn that failed, and forgets what it was asked."""
    most: Any = {"generationConfig": {"maxOutputTokens": 65_536}}
    before = [text(BEFORE)] if where == "shown" else []
    body = chunk(*before, {}, reason="MAX_TOKENS", said=65_536)
    attempts = [[json.dumps(body).encode()], *[[sse([body])]] * 3]
    driven = ask(attempts, verb="generateContent", first=JSON, **most)
    assert {} not in parts(driven)
    assert parts(driven)


# --- drops behind the last word -----------------------------------------------------------------


def test_an_answer_asked_for_again_that_ends_where_the_shown_text_ends_is_whole() -> None:
    # A normal end behind all that was shown is an answer.
    shown = [chunk(text('{"a": ')), chunk(text("12}"))]
    again = [sse([*shown, chunk(text(""), reason="STOP")])]
    driven = ask(
        [[sse(shown)], again, again, again],
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
    driven = ask([[sse(first)], [sse([chunk(text(ANCHOR + "x jumps."), reason="STOP")])]])
    assert (said(driven), reasons(driven)) == ("I plot. " + BEFORE + "x jumps.", ["STOP"])
    assert [part for part in parts(driven) if "text" not in part] == [code, ran, drawn]
    sent = driven.requests[1]["contents"][1]["parts"]
    assert sent == [text("I plot. "), code, ran, drawn, text(BEFORE)]


# --- what a later request carries ---------------------------------------------------------------

MOST: Any = {"generationConfig": {"maxOutputTokens": 65_536}}
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
    driven = ask([dropped, [sse([chunk(text("x jumps."), reason="STOP")])]], model=model, **MOST)
    assert sent(driven) == BEFORE
    assert [part for part in parts(driven) if part.get("thought")]


@pytest.mark.parametrize("model", [NEW, OLD])
def test_white_space_behind_a_signed_text_hides_none_of_it(model: str) -> None:
    # Fails for the old model until `Showing.held` sees the text before white space as well.
    signed = chunk(text("quick brown", thoughtSignature=SIGNATURE))
    first = [chunk(text("And the ")), signed, chunk(text(" ")), chunk(SIGNED, reason="MAX_TOKENS")]
    rest = [sse([chunk(text("fox jumps."), reason="STOP")])]
    driven = ask([[sse(first)], rest], model=model, **MOST)
    assert sent(driven).rstrip() == "And the quick brown"
