"""Servers of Chat Completions and Responses in odd moods: no text twice, no half call, no lie."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk
from support.drive import STREAM, Attempt, Driven, body, sse, streams
from support.drive_chat import OPENING, asking, call, chunk, texts
from support.drive_chat import chat as run_chat
from support.drive_chat import sse as chunks
from support.drive_responses import LIMIT as CUT
from support.drive_responses import answer, last, patched, respond, response, said, written
from support.sdks.chat import whole

from continuation import Policy
from continuation.types import Outcome

Json = dict[str, Any]
LIMIT = 1000
BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
REST = "x jumps over the lazy dog, whereupon all of them went home."
WRITE = json.dumps({"path": "a.txt", "content": "hello world, this is the whole file"})
PATCH = "*** Begin Patch\n*** Update File: a.txt\n- old\n+ new\n*** End Patch"


@dataclass
class Told:
    """What the caller had."""

    text: str
    calls: list[str]
    end: str
    outcome: Outcome


def told_by(driven: Driven, text: str, calls: list[Json], end: str) -> Told:
    own = [call.get("custom") or call.get("function") or call for call in calls]
    inputs = [given for one in own if (given := one.get("input") or one.get("arguments"))]
    return Told(text, inputs, end, driven.report.outcome)


def anchor_of(asked: Json) -> str:
    """Return what the prompt asks to repeat, which has to be the end of the text."""
    turns = asked.get("messages") or asked["input"]
    found = re.search(r".*<anchor>(.*)</anchor>$", turns[-1]["content"], re.DOTALL)
    return found[1] if found else ""


# --- Chat Completions ---------------------------------------------------------------------------


def used(count: int) -> Json:
    return {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}


def speech(text: str) -> list[Json]:
    return texts(*(text[at : at + 12] for at in range(0, len(text), 12)))


def called(arguments: str, index: int = 0) -> list[Json]:
    return call([arguments[at : at + 9] for at in range(0, len(arguments), 9)], index)


def patch(text: str) -> Json:
    own = {"name": "patch", "input": text}
    return chunk({"tool_calls": [{"index": 0, "id": "call_0", "type": "custom", "custom": own}]})


def streamed(*events: Any, reason: str = "length", count: int = LIMIT) -> bytes:
    return chunks([*events, chunk({}, reason, usage=used(count)), "[DONE]"])


def broken(*events: Any) -> Attempt:
    return 200, STREAM, [chunks(events)], ConnectionError("reset")


def chat(*answers: Attempt, **policy: Any) -> Told:
    """Ask for a stream that is answered by `answers`, one after the other."""
    driven = run_chat(streams(*answers), asking(LIMIT), Policy(backoff_seconds=0.0, **policy))
    if driven.error is not None:
        raise driven.error
    # As the SDK does it, which takes calls of any type.
    built = (construct_type(type_=ChatCompletionChunk, value=event) for event in driven.told)
    choice = whole(cast("Iterator[ChatCompletionChunk]", built)).choices[0]
    calls = [call.to_dict() for call in choice.message.tool_calls or []]
    return told_by(driven, choice.message.content or "", calls, choice.finish_reason)


def interleaved(*calls: list[Any]) -> Iterator[Any]:
    """All heads first, then a piece of each in turn."""
    yield from (call[0] for call in calls)
    rests = [call[1:] for call in calls]
    while any(rests):
        yield from [rest.pop(0) for rest in rests if rest]


def test_parallel_calls_that_come_mixed_in_a_recovery_are_shown_live_one_by_one() -> None:
    calls = [json.dumps({"path": f"{n}.txt", "content": "words of it " * n}) for n in (1, 3, 2)]
    mixed = interleaved(*(called(call, n) for n, call in enumerate(calls)))
    rest = streamed(*speech(REST), *mixed, reason="tool_calls", count=90)

    told = chat(streamed(*speech(BEFORE)), rest, stream_tool_calls="live")

    assert told.text == BEFORE + REST
    assert told.calls == calls
    assert told.end == "tool_calls"


def test_mixed_calls_that_are_cut_are_never_shown() -> None:
    mixed = [*interleaved(called(WRITE), called(WRITE[:20], 1))]
    kept = chat(
        streamed(*speech(BEFORE), *mixed), streamed(*speech(BEFORE), *mixed), escalate=False
    )

    assert kept.calls == [WRITE]
    assert kept.outcome is Outcome.TRUNCATED


def test_a_text_chunk_with_a_lying_reason_is_part_of_what_is_gone_on_from() -> None:
    # The whole limit is used, the last word is beside "stop", and it is half a word.
    lie = chunk({"content": BEFORE[-2:]}, "stop", usage=used(LIMIT))

    def rest(asked: Json) -> bytes:
        return streamed(*speech(anchor_of(asked) + REST), reason="stop", count=20)

    told = chat(chunks([*speech(BEFORE[:-2]), lie, "[DONE]"]), rest)

    assert told.text == BEFORE + REST
    assert told.outcome is Outcome.HEALED


def test_free_text_input_at_exactly_the_limit_counts_as_cut() -> None:
    half, all_of_it = patch(PATCH[:-20]), patch(PATCH)
    told = chat(
        streamed(half, reason="tool_calls"), streamed(all_of_it, reason="tool_calls", count=1200)
    )

    assert told.calls == [PATCH]
    assert told.outcome is Outcome.HEALED


def test_free_text_input_below_the_limit_is_whole() -> None:
    told = chat(streamed(patch(PATCH), reason="tool_calls", count=LIMIT - 1))

    assert told.calls == [PATCH]
    assert told.outcome is Outcome.COMPLETE


def test_half_of_an_anchor_is_no_text_when_thinking_left_no_room_for_more() -> None:
    def half(asked: Json) -> bytes:
        return streamed(chunk({"reasoning_content": "Hm."}), *speech(anchor_of(asked)[:11]))

    told = chat(streamed(*speech(BEFORE)), half)

    assert told.text == BEFORE
    assert told.outcome is Outcome.PARTIAL


def test_a_half_call_that_was_shown_live_is_not_healed_by_an_empty_answer() -> None:
    empty = streamed(reason="stop", count=0)
    told = chat(streamed(*called(WRITE[:30])), empty, stream_tool_calls="live")

    assert told.end == "length"
    assert told.outcome is Outcome.TRUNCATED


def test_an_error_event_of_a_later_attempt_does_not_hide_what_broke_the_first() -> None:
    error = chunks([{"error": {"message": "busy", "type": "server_error"}}])
    with pytest.raises(ConnectionError, match="reset"):
        chat(broken(OPENING), error, max_drop_recoveries=1)


@pytest.mark.parametrize("half", [called(WRITE[:30]), [patch(PATCH[:-20])]])
def test_a_filter_that_breaks_into_a_call_leaves_no_half_call(half: list[Any]) -> None:
    told = chat(streamed(*speech(BEFORE), *half, reason="content_filter", count=40))

    assert told.text == BEFORE
    assert told.calls == []
    assert told.end == "content_filter"


def test_by_policy_a_call_that_a_filter_broke_into_is_kept() -> None:
    told = chat(
        streamed(*called(WRITE[:30]), reason="content_filter", count=40), truncated_tool_call="keep"
    )

    assert told.calls == [WRITE[:30]]


def test_a_cut_answer_in_place_of_a_dropped_one_is_asked_for_at_the_ceiling() -> None:
    # Thoughts were shown, so that nothing replaces them; at this limit nothing follows them.
    thoughts = [chunk({"reasoning_content": "Hm. "}) for _ in range(3)]
    told = chat(
        broken(*thoughts),
        streamed(*thoughts),
        streamed(*thoughts, *speech(BEFORE), reason="stop", count=1100),
        stream_thinking="live",
    )

    assert told.text == BEFORE
    assert told.outcome is Outcome.HEALED


def test_a_half_call_that_was_shown_live_is_not_asked_for_in_pieces() -> None:
    small = streamed(*called(WRITE), reason="tool_calls", count=20)
    policy: Json = {
        "escalate": False,
        "stream_tool_calls": "live",
        "truncated_tool_call": "retry_smaller",
    }
    told = chat(streamed(*called(WRITE[:30])), small, **policy)

    assert told.end == "length"
    assert told.outcome is Outcome.TRUNCATED


def test_thoughts_alone_at_exactly_the_limit_are_no_whole_answer() -> None:
    thoughts = [chunk({"reasoning_content": "Hm. "}) for _ in range(3)]
    whole_one = streamed(*thoughts, *speech(BEFORE), reason="stop", count=1100)
    told = chat(streamed(*thoughts, reason="stop"), whole_one)

    assert told.text == BEFORE
    assert told.outcome is Outcome.HEALED


# --- Responses ----------------------------------------------------------------------------------

SEARCHED: Json = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "dogs"},
}


def ask(*answers: Attempt, stream: bool = True, **policy: Any) -> Told:
    provider = streams(*answers)
    driven = respond(provider, Policy(backoff_seconds=0.0, **policy), stream=stream)
    got = last(driven.told) if stream else json.loads(b"".join(driven.pieces))
    parts = [part for item in got["output"] for part in item.get("content") or []]
    return told_by(driven, "".join(p["text"] for p in parts), got["output"], got["status"])


def test_what_stands_behind_the_text_is_known_before_a_recovery_is_asked_for() -> None:
    # No recovery can join a text that the provider's own search has followed.
    thought = {"type": "reasoning", "id": "rs_2", "summary": [], "status": "incomplete"}
    cut = answer("1", [said(BEFORE), SEARCHED, thought], CUT, LIMIT)

    def rest(asked: Json) -> bytes:
        return sse(answer("1", [said(anchor_of(asked) + REST, "msg_3")]))

    told = ask(sse(cut), rest)

    assert told.text == BEFORE + REST
    assert told.outcome is Outcome.HEALED


@pytest.mark.parametrize("stream", [False, True])
def test_the_input_of_a_custom_call_at_exactly_the_limit_counts_as_cut(stream: bool) -> None:
    half = [patched(PATCH[:-20])]
    first = (
        sse(answer("1", half, None, LIMIT)) if stream else body(response("1", half, None, LIMIT))
    )

    told = ask(first, sse(answer("1", [patched(PATCH)], None, 1200)), stream=stream)

    assert told.calls == [PATCH]
    assert told.outcome is Outcome.HEALED


def test_a_search_in_front_of_a_call_that_was_shown_live_does_not_part_it_from_its_rest() -> None:
    half = written(WRITE[:30], status="incomplete")
    cut = answer("1", [said(BEFORE), SEARCHED, half], CUT, LIMIT)
    again = [said(BEFORE, "msg_2"), {**SEARCHED, "id": "ws_2"}, written(WRITE)]

    told = ask(sse(cut), sse(answer("1", again, None, 1100)), stream_tool_calls="live")

    assert (told.text, told.calls, told.outcome) == (BEFORE, [WRITE], Outcome.HEALED)
