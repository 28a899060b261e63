"""Servers of Chat Completions and Responses in odd moods: no text twice, no half call, no lie."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from support.sdks.chat import playing, whole
from support.servers import Answer, Asked, Canned, Rule

import continuation
from continuation import Policy, Report
from continuation.types import Outcome

Json = dict[str, Any]
LIMIT = 1000
BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
REST = "x jumps over the lazy dog, whereupon all of them went home."
WRITE = json.dumps({"path": "a.txt", "content": "hello world, this is the whole file"})
PATCH = "*** Begin Patch\n*** Update File: a.txt\n- old\n+ new\n*** End Patch"
BREAK = object()
"""No JSON: the server dies of it, in the middle of its answer."""


@dataclass
class Told:
    """What the caller had."""

    text: str
    calls: list[str]
    end: str
    report: Report


# --- Chat Completions ---------------------------------------------------------------------------


def chunk(delta: Json | None = None, reason: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **more}


def used(count: int) -> Json:
    return {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}


def said(text: str) -> list[Any]:
    return [chunk({"content": text[at : at + 12]}) for at in range(0, len(text), 12)]


def piece(index: int, arguments: str, **head: Any) -> Json:
    own = {"arguments": arguments, **({"name": "Write"} if head else {})}
    return chunk({"tool_calls": [{"index": index, **head, "function": own}]})


def called(arguments: str, index: int = 0) -> list[Any]:
    pieces = [arguments[at : at + 9] for at in range(0, len(arguments), 9)]
    head = piece(index, "", id=f"call_{index}", type="function")
    return [head, *(piece(index, part) for part in pieces)]


def patched(text: str) -> Json:
    own = {"name": "patch", "input": text}
    return chunk({"tool_calls": [{"index": 0, "id": "call_0", "type": "custom", "custom": own}]})


def streamed(*events: Any, reason: str = "length", count: int = LIMIT) -> Answer:
    return Answer(events=[*events, chunk({}, reason, usage=used(count)), "[DONE]"])


def anchored(asked: Asked) -> Answer:
    """Repeat what the prompt asks to repeat, which has to be the end of the text, and go on."""
    return streamed(*said(anchor_of(asked) + REST), reason="stop", count=20)


def anchor_of(asked: Asked) -> str:
    turns = asked.body.get("messages") or asked.body["input"]
    found = re.search(r".*<anchor>(.*)</anchor>$", turns[-1]["content"], re.DOTALL)
    return found[1] if found else ""


def in_turn(*answers: Answer | Rule) -> Rule:
    left = iter(answers)

    def rule(asked: Asked) -> Answer:
        answer = next(left)
        return answer if isinstance(answer, Answer) else answer(asked)

    return rule


def chat(*answers: Answer | Rule, **policy: Any) -> Told:
    """Ask for a stream that is answered by `answers`, one after the other."""
    config = playing(Policy(backoff_seconds=0.0, **policy))
    with (
        Canned(in_turn(*answers)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=config)
        with client.chat.completions.create(
            model="gpt-4o",
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": "Go."}],
            stream=True,
        ) as stream:
            chunks = list(stream)
    choice = whole(chunks).choices[0]
    calls = [call.to_dict() for call in choice.message.tool_calls or []]
    shown: list[Any] = [call.get("custom") or call.get("function") for call in calls]
    inputs = [own.get("input") or own.get("arguments") for own in shown]
    report = continuation.last_report()
    assert report is not None
    return Told(choice.message.content or "", inputs, str(choice.finish_reason), report)


def interleaved(*calls: list[Any]) -> Iterator[Any]:
    """All heads first, then a piece of each in turn."""
    yield from (call[0] for call in calls)
    rests = [call[1:] for call in calls]
    while any(rests):
        yield from [rest.pop(0) for rest in rests if rest]


def test_parallel_calls_that_come_mixed_in_a_recovery_are_shown_live_one_by_one() -> None:
    calls = [json.dumps({"path": f"{n}.txt", "content": "words of it " * n}) for n in (1, 3, 2)]
    mixed = interleaved(*(called(call, n) for n, call in enumerate(calls)))
    rest = streamed(*said(REST), *mixed, reason="tool_calls", count=90)

    told = chat(streamed(*said(BEFORE)), rest, stream_tool_calls="live")

    assert told.text == BEFORE + REST
    assert told.calls == calls
    assert told.end == "tool_calls"


def test_mixed_calls_that_are_cut_are_never_shown() -> None:
    mixed = [*interleaved(called(WRITE), called(WRITE[:20], 1))]
    kept = chat(streamed(*said(BEFORE), *mixed), streamed(*said(BEFORE), *mixed), escalate=False)

    assert kept.calls == [WRITE]
    assert kept.report.outcome is Outcome.TRUNCATED


def test_a_text_chunk_with_a_lying_reason_is_part_of_what_is_gone_on_from() -> None:
    # The whole limit is used, the last word is beside "stop", and it is half a word.
    lie = chunk({"content": BEFORE[-2:]}, "stop", usage=used(LIMIT))
    told = chat(Answer(events=[*said(BEFORE[:-2]), lie, "[DONE]"]), anchored)

    assert told.text == BEFORE + REST
    assert told.report.outcome is Outcome.HEALED


def test_free_text_input_at_exactly_the_limit_counts_as_cut() -> None:
    half, all_of_it = patched(PATCH[:-20]), patched(PATCH)
    told = chat(
        streamed(half, reason="tool_calls"), streamed(all_of_it, reason="tool_calls", count=1200)
    )

    assert told.calls == [PATCH]
    assert told.report.outcome is Outcome.HEALED


def test_free_text_input_below_the_limit_is_whole() -> None:
    told = chat(streamed(patched(PATCH), reason="tool_calls", count=LIMIT - 1))

    assert told.calls == [PATCH]
    assert told.report.outcome is Outcome.COMPLETE


def test_half_of_an_anchor_is_no_text_when_thinking_left_no_room_for_more() -> None:
    def half(asked: Asked) -> Answer:
        return streamed(chunk({"reasoning_content": "Hm."}), *said(anchor_of(asked)[:11]))

    told = chat(streamed(*said(BEFORE)), half)

    assert told.text == BEFORE
    assert told.report.outcome is Outcome.PARTIAL


def test_a_half_call_that_was_shown_live_is_not_healed_by_an_empty_answer() -> None:
    empty = streamed(reason="stop", count=0)
    told = chat(streamed(*called(WRITE[:30])), empty, stream_tool_calls="live")

    assert told.end == "length"
    assert told.report.outcome is Outcome.TRUNCATED


def test_an_error_event_of_a_later_attempt_does_not_hide_what_broke_the_first() -> None:
    broken = Answer(events=[chunk({"role": "assistant", "content": ""}), BREAK])
    error = Answer(events=[{"error": {"message": "busy", "type": "server_error"}}])

    with pytest.raises(openai.APIConnectionError):
        chat(broken, error, max_drop_recoveries=1)


@pytest.mark.parametrize("half", [called(WRITE[:30]), [patched(PATCH[:-20])]])
def test_a_filter_that_breaks_into_a_call_leaves_no_half_call(half: list[Any]) -> None:
    told = chat(streamed(*said(BEFORE), *half, reason="content_filter", count=40))

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
        Answer(events=[*thoughts, BREAK]),
        streamed(*thoughts),
        streamed(*thoughts, *said(BEFORE), reason="stop", count=1100),
        stream_thinking="live",
    )

    assert told.text == BEFORE
    assert told.report.outcome is Outcome.HEALED


def test_a_half_call_that_was_shown_live_is_not_asked_for_in_pieces() -> None:
    small = streamed(*called(WRITE), reason="tool_calls", count=20)
    policy: Json = {
        "escalate": False,
        "stream_tool_calls": "live",
        "truncated_tool_call": "retry_smaller",
    }
    told = chat(streamed(*called(WRITE[:30])), small, **policy)

    assert told.end == "length"
    assert told.report.outcome is Outcome.TRUNCATED


def test_thoughts_alone_at_exactly_the_limit_are_no_whole_answer() -> None:
    thoughts = [chunk({"reasoning_content": "Hm. "}) for _ in range(3)]
    whole_one = streamed(*thoughts, *said(BEFORE), reason="stop", count=1100)
    told = chat(streamed(*thoughts, reason="stop"), whole_one)

    assert told.text == BEFORE
    assert told.report.outcome is Outcome.HEALED


# --- Responses ----------------------------------------------------------------------------------


def message(text: str, number: int, *, status: str = "completed") -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    own = {"type": "message", "role": "assistant", "status": status, "content": [part]}
    return {**own, "id": f"msg_{number}"}


def thought(number: int) -> Json:
    summary = [{"type": "summary_text", "text": "Hm."}]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "status": "incomplete"}


SEARCHED: Json = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "dogs"},
}


def patch_item(text: str) -> Json:
    own = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "patch"}
    return {**own, "input": text, "status": "completed"}


def call_item(arguments: str, status: str = "completed") -> Json:
    own = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "Write"}
    return {**own, "arguments": arguments, "status": status}


def response(*output: Json, why: str | None = None, count: int = LIMIT) -> Json:
    details = {"reason": why} if why else None
    usage = {"input_tokens": 10, "output_tokens": count, "total_tokens": 10 + count}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if why else "completed",
        "incomplete_details": details,
        "model": "m",
        "output": [*output],
        "usage": {**usage, "input_tokens_details": {"cached_tokens": 0}},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def events(whole_one: Json) -> list[Any]:
    begun: Json = {**whole_one, "status": "in_progress", "output": [], "usage": None}
    told: list[Json] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(whole_one["output"]):
        told += item_events(place, item)
    told.append({"type": f"response.{whole_one['status']}", "response": whole_one})
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


def item_events(place: int, item: Json) -> list[Json]:
    at: Json = {"output_index": place, "item_id": item["id"]}
    blank_of: Json = {"content": [], "summary": [], "input": "", "arguments": ""}
    begun = {key: blank_of.get(key, value) for key, value in item.items()}
    announced: Json = {"type": "response.output_item.added", "output_index": place, "item": begun}
    told = [announced]
    for part in item.get("content", []):
        inside = {**at, "content_index": 0}
        blank = {**part, "text": ""}
        told += [
            {"type": "response.content_part.added", **inside, "part": blank},
            {"type": "response.output_text.delta", **inside, "delta": part["text"]},
            {"type": "response.output_text.done", **inside, "text": part["text"]},
            {"type": "response.content_part.done", **inside, "part": part},
        ]
    if "input" in item:
        kind = "response.custom_tool_call_input.delta"
        told.append({"type": kind, **at, "delta": item["input"]})
    if "arguments" in item:
        kind = "response.function_call_arguments.delta"
        told.append({"type": kind, **at, "delta": item["arguments"]})
    return [*told, {"type": "response.output_item.done", "output_index": place, "item": item}]


def respond(*answers: Answer | Rule, stream: bool, **policy: Any) -> Told:
    config = Policy(backoff_seconds=0.0, **policy)
    with (
        Canned(in_turn(*answers)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=config)
        asked: Any = {"model": "gpt-5.4", "max_output_tokens": LIMIT, "input": "Go."}
        if stream:
            with client.responses.create(**asked, stream=True) as told:
                last: Any = [*told][-1]
                got = last.response
        else:
            got = client.responses.create(**asked)
    items: list[Json] = [item.to_dict() for item in got.output]
    inputs = [item.get("input") or item.get("arguments") for item in items]
    calls = [given for given in inputs if given is not None]
    report = continuation.last_report()
    assert report is not None
    return Told(got.output_text, calls, str(got.status), report)


def test_what_stands_behind_the_text_is_known_before_a_recovery_is_asked_for() -> None:
    # No recovery can join a text that the provider's own search has followed.
    cut = response(message(BEFORE, 1), SEARCHED, thought(2), why="max_output_tokens")

    def rest(asked: Asked) -> Answer:
        return Answer(events=events(response(message(anchor_of(asked) + REST, 3), count=20)))

    told = respond(Answer(events=events(cut)), rest, stream=True)

    assert told.text == BEFORE + REST
    assert told.report.outcome is Outcome.HEALED


@pytest.mark.parametrize("stream", [False, True])
def test_the_input_of_a_custom_call_at_exactly_the_limit_counts_as_cut(stream: bool) -> None:
    half, all_of_it = response(patch_item(PATCH[:-20])), response(patch_item(PATCH), count=1200)
    first = Answer(events=events(half)) if stream else Answer(half)

    told = respond(first, Answer(events=events(all_of_it)), stream=stream)

    assert told.calls == [PATCH]
    assert told.report.outcome is Outcome.HEALED


def test_a_search_in_front_of_a_call_that_was_shown_live_does_not_part_it_from_its_rest() -> None:
    half = call_item(WRITE[:30], "incomplete")
    cut = response(message(BEFORE, 1), SEARCHED, half, why="max_output_tokens")
    again = response(message(BEFORE, 2), {**SEARCHED, "id": "ws_2"}, call_item(WRITE), count=1100)

    told = respond(
        Answer(events=events(cut)),
        Answer(events=events(again)),
        stream=True,
        stream_tool_calls="live",
    )

    assert told.text == BEFORE
    assert told.calls == [WRITE]
    assert told.report.outcome is Outcome.HEALED
