"""The bytes of generateContent at any split, in any framing, and what is written behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.drive import Driven, combs, split
from support.drive_gemini import (
    FAST,
    LONG,
    OPENED,
    SIGNATURE,
    Chunk,
    ask,
    call,
    candidates,
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
from support.examples import examples, pieces

from continuation.types import Outcome

SIGNED_END = chunk(text("", thoughtSignature=SIGNATURE), reason="STOP")
CUT = chunk(text(""), reason="MAX_TOKENS", said=1000)
TEXT_CUT = [chunk(text("The quick")), chunk(text(" brown fo 文字")), CUT]
TEXT_REST = [chunk(text("x ju")), chunk(text("mps 🙂.")), SIGNED_END]
CALL_CUT = [chunk(text("I write. ")), chunk(OPENED), CUT]
CALL_WHOLE = [chunk(text("I write. ")), chunk(call(path="a.txt")), chunk(text(""), reason="STOP")]
THOUGHT = [chunk(text("Hm", thought=True)), chunk(text("...", thought=True)), *TEXT_REST]
SCENES: dict[str, tuple[list[Chunk], list[Chunk]]] = {
    "text": (TEXT_CUT, TEXT_REST),
    "call": (CALL_CUT, CALL_WHOLE),
    "whole": (TEXT_REST, []),
    "whole call": (CALL_WHOLE, []),
    "whole, with thoughts": (THOUGHT, []),
}
ENDS = ["\r\n", "\n", "\r"]


def seen(driven: Driven) -> tuple[str, list[str], list[Any]]:
    calls = [part["functionCall"] for part in parts(driven) if "functionCall" in part]
    return said(driven), reasons(driven), calls


# --- framing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ENDS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TEXT_CUT, TEXT_REST),
        (CALL_CUT, CALL_WHOLE),
        (TEXT_REST, []),
        (CALL_WHOLE, []),
        (THOUGHT, []),
    ],
    ids=["text", "call", "whole text", "whole call", "whole, with thoughts"],
)
@pieces
def test_at_every_split_of_either_attempt_the_answer_is_the_same(
    first: list[Chunk], second: list[Chunk], newline: str, size: int
) -> None:
    one, two = sse(first, newline), sse(second, newline)
    expected = seen(ask([[one], [two]]))
    assert expected[1] == ["STOP"]
    for some in combs(one, size):
        driven = ask([some, [two]])
        assert seen(driven) == expected
        assert two or b"".join(driven.pieces) == one, "what was not cut passes as it came"
    for some in combs(two, size):
        assert seen(ask([[one], some])) == expected


PART = st.one_of(
    st.text(max_size=9).map(text),
    st.text(max_size=9).map(lambda said: text(said, thought=True)),
    st.text(max_size=9).map(lambda said: text(said, thoughtSignature=SIGNATURE)),
    st.text(max_size=9).map(lambda said: call(path=said)),
    st.just(text('"finishReason": "STOP"')),
    st.sampled_from([{"executableCode": {"code": "1"}}, {"hologram": {"a": 1}}, {}]),
)
ENVELOPE = st.fixed_dictionaries(
    {},
    optional={
        "groundingMetadata": st.just({"webSearchQueries": ["q"]}),
        "safetyRatings": st.just([{"category": "C", "probability": "LOW"}]),
    },
)
CHUNKS = st.lists(
    st.builds(lambda part, beside: chunk(part, **beside), PART, ENVELOPE), min_size=1, max_size=8
)


@given(CHUNKS, st.lists(st.integers(0, 2000), max_size=5), st.sampled_from(ENDS))
@settings(max_examples=examples(80))
def test_nothing_of_an_uncut_stream_is_changed_or_lost(
    chunks: list[Chunk], cuts: list[int], newline: str
) -> None:
    raw = sse([*chunks, SIGNED_END], newline)
    driven = ask([split(raw, cuts)])
    assume(driven.ended is not None)  # an empty answer is requested again
    assert b"".join(driven.pieces) == raw
    assert report(driven).outcome is Outcome.COMPLETE


@given(CHUNKS, st.lists(st.integers(0, 2000), max_size=4))
@settings(max_examples=examples(50))
def test_of_a_cut_stream_every_split_shows_the_same(chunks: list[Chunk], cuts: list[int]) -> None:
    raw, rest = sse([*chunks, CUT]), sse(CALL_WHOLE)
    attempts = [[rest], [rest], [rest], [rest]]
    assert seen(ask([split(raw, cuts), *attempts])) == seen(ask([[raw], *attempts]))


def test_text_flows_as_it_comes_and_the_rest_waits() -> None:
    thinks = chunk(text("Hm", thought=True))
    chunks = [thinks, *[chunk(text(f"word {n} ")) for n in range(4)], *CALL_WHOLE]
    shown = [bool(piece) for piece in ask([[sse([c]) for c in chunks]]).pieces]
    assert shown[:6] == [False, True, True, True, True, True]
    assert shown[6:] == [False, False, True], "a call waits for the end, and that for the last byte"


def test_a_body_that_is_none_passes() -> None:
    assert b"".join(unary(b"<html>").pieces) == b"<html>"


def test_a_stream_that_ends_without_a_reason_is_a_dropped_one() -> None:
    driven = ask([sse(TEXT_CUT[:2]), sse(TEXT_REST)])
    assert (said(driven), reasons(driven)) == ("The quick brown fo 文字x jumps 🙂.", ["STOP"])
    assert report(driven).rows[0] == "dropped, visible text, no call"


def test_a_blocked_prompt_passes_as_it_came() -> None:
    raw = sse([{"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}])
    assert b"".join(ask([[raw]]).pieces) == raw


def test_an_error_inside_a_stream_reaches_the_caller_when_nothing_helps() -> None:
    error = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    driven = ask([[sse([error])] for _ in range(4)])
    assert b"UNAVAILABLE" in b"".join(driven.pieces)


def test_a_chunk_without_content_is_held_until_text_follows() -> None:
    """Shown before a cut it would make a chat forget the turn."""
    first = [chunk(), chunk(text("The quick")), chunk(), chunk(text(" brown fo")), chunk(), CUT]
    pieces = ask([[sse([c]) for c in first], sse(TEXT_REST)]).pieces
    assert [bool(piece) for piece in pieces[:5]] == [False, True, False, True, False]


# --- what is written behind ------------------------------------------------------------------


def test_the_end_is_told_once_and_with_a_part() -> None:
    driven = ask([sse(TEXT_CUT), sse([TEXT_REST[0], chunk(text("mps."), reason="STOP")])])
    last = candidates(driven)[-1]
    assert (reasons(driven), last["finishReason"]) == (["STOP"], "STOP")
    assert all(candidate["content"]["parts"] for candidate in candidates(driven))
    assert [r["responseId"] for r in responses(driven)] == ["r1"] * len(responses(driven))


def test_counts_are_running_totals_and_the_last_one_counts() -> None:
    first = [chunk(text("The quick"), said=3), chunk(text(" brown fo"), said=900), CUT]
    driven = ask([sse([*first, {"usageMetadata": {"candidatesTokenCount": 1000}}]), sse(TEXT_REST)])
    assert [a.usage.output for a in report(driven).attempts if a.usage] == [1000, 7]
    assert responses(driven)[-1]["usageMetadata"]["candidatesTokenCount"] == 1007


GROUNDING = {
    "groundingChunks": [{"web": {"uri": "a"}}],
    "groundingSupports": [
        {"segment": {"startIndex": 2, "endIndex": 4}, "groundingChunkIndices": [0]}
    ],
    "webSearchQueries": ["q"],
}
CITED = {"citationSources": [{"startIndex": 1, "endIndex": 4, "uri": "u"}]}


@pytest.mark.parametrize("streamed", [False, True])
def test_grounding_and_citations_move_with_their_text(streamed: bool) -> None:
    beside: Any = {"groundingMetadata": GROUNDING, "citationMetadata": CITED}
    before = "The quick brown fo 文字"
    first = [chunk(text(before)), chunk(text(""), reason="MAX_TOKENS", said=70_000, **beside)]
    rest = [chunk(text("x ju")), chunk(text("mps."), reason="STOP", **beside)]
    body = chunk(text(before), reason="MAX_TOKENS", said=70_000, **beside)
    config: Any = {"generationConfig": {"maxOutputTokens": 65_536}}
    if streamed:
        driven = ask([sse(first), sse(rest)], **config)
    else:
        driven = unary(body, sse(rest), **config)
    assert said(driven) == before + "x jumps."
    [noted] = [c for c in candidates(driven) if "groundingMetadata" in c]
    size = len(before.encode())
    supports = noted["groundingMetadata"]["groundingSupports"]
    assert [s["groundingChunkIndices"] for s in supports] == [[0], [1]]
    assert [s["segment"]["startIndex"] for s in supports] == [2, 2 + size]
    assert [s["segment"]["endIndex"] for s in supports] == [4, 4 + size]
    assert len(noted["groundingMetadata"]["groundingChunks"]) == 2
    spans = [(c["startIndex"], c["endIndex"]) for c in noted["citationMetadata"]["citationSources"]]
    assert spans == [(1, 4), (1 + size, 4 + size)]


def test_what_the_caller_has_had_beside_a_chunk_is_not_told_twice() -> None:
    first = [chunk(text("The quick"), citationMetadata=CITED), chunk(text(" brown fo")), CUT]
    driven = ask([sse(first), sse(TEXT_REST)])
    assert sum("citationMetadata" in c for c in candidates(driven)) == 1


def test_ratings_are_the_last_of_each_category() -> None:
    low, high = ([{"category": "C", "probability": p}] for p in ("LOW", "HIGH"))
    first = [chunk(text("The quick")), {**CUT}]
    first[1]["candidates"][0]["safetyRatings"] = low
    rest = [chunk(text("x."), reason="STOP", safetyRatings=high)]
    driven = ask([sse(first), sse(rest)])
    assert candidates(driven)[-1]["safetyRatings"] == high


# --- tokens ----------------------------------------------------------------------------------


def hop(words: str, token: str, reason: str = "MAX_TOKENS") -> list[bytes]:
    return [sse([chunk(text(words)), chunk(text(""), reason=reason, continuationToken=token)])]


WHOLE = [sse([chunk(text("three.")), SIGNED_END])]
TWICE = replace(FAST, max_attempts=2)
MOST: Any = {"generationConfig": {"maxOutputTokens": 1_048_576}}


def test_the_same_token_twice_stops() -> None:
    attempts = [hop("One, ", "QQ=="), hop("two, ", "QQ==", "CONTINUATION")]
    driven = ask(attempts, model=LONG)
    assert (said(driven), reasons(driven)) == ("One, two, ", ["MAX_TOKENS"])
    assert "continuationToken" not in candidates(driven)[-1]
    assert "no progress" in str(report(driven).reason)


def test_a_pause_that_brings_nothing_new_stops() -> None:
    pause = [sse([chunk(reason="CONTINUATION")])]
    driven = ask([hop("One, ", "QQ=="), pause], model=LONG)
    assert (said(driven), reasons(driven)) == ("One, ", ["STOP"])
    assert report(driven).outcome is Outcome.PARTIAL


def test_the_same_limit_is_not_asked_for_again_by_a_token() -> None:
    driven = ask([hop("One, ", "QQ=="), WHOLE], model=LONG, **MOST)
    assert "continuationToken" not in driven.requests[1]
    assert said(driven) == "One, three."


def test_a_refused_token_falls_back_to_the_table() -> None:
    refusal = ValueError("Invalid continuation_token.")
    driven = ask([hop("One, ", "QQ=="), refusal, WHOLE], model=LONG)
    assert [("continuationToken" in r) for r in driven.requests] == [False, True, False]
    assert said(driven) == "One, three."


def test_an_answer_that_stays_cut_leaves_its_token() -> None:
    driven = ask([hop("One, ", "QQ=="), hop("two, ", "Qg==")], model=LONG, policy=TWICE)
    last = candidates(driven)[-1]
    assert (last["finishReason"], last["continuationToken"]) == ("MAX_TOKENS", "Qg==")


def test_a_recovery_goes_on_by_its_own_tokens_and_leaves_none() -> None:
    attempts = [hop("One, ", "QQ=="), hop("two, ", "Qg==", "CONTINUATION"), WHOLE]
    driven = ask(attempts, model=LONG, **MOST)
    assert said(driven) == "One, two, three."
    recovery, hopped = driven.requests[1:]
    assert hopped["contents"] == recovery["contents"]
    assert hopped["continuationToken"] == "Qg=="
    attempts[1] = hop("two, ", "Qg==")
    driven = ask(attempts, model=LONG, policy=TWICE, **MOST)
    assert "continuationToken" not in candidates(driven)[-1]


def test_an_answer_that_began_elsewhere_is_asked_for_again_and_never_prompted() -> None:
    dropped = [sse([chunk(text("two, "))])]
    again = [sse([chunk(text("two, ")), chunk(text("three.")), SIGNED_END])]
    driven = ask([dropped, again], model=LONG, continuationToken="QQ==", policy=FAST)
    assert said(driven) == "two, three."
    assert [r["continuationToken"] for r in driven.requests] == ["QQ==", "QQ=="]


def test_what_stands_before_the_first_event_hides_none() -> None:
    mark = b"\xef\xbb\xbf"
    driven = ask([[mark, sse(TEXT_CUT)], [mark + sse(TEXT_REST)]])
    assert driven.requests[1]["contents"][1]["parts"] == [text("The quick brown fo 文字")]
    assert said(driven).endswith("x jumps 🙂.")
    raw = mark + sse(CALL_WHOLE)
    assert b"".join(ask([[raw]]).pieces) == raw
