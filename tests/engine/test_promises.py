"""Promises that hold in every wire format, each test a turn that once broke one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import Message
from support import drive_chat, drive_gemini
from support.drive import (
    JSON,
    STREAM,
    Answered,
    Driven,
    call_block,
    closing,
    drive,
    opening,
    sse,
    text_block,
    thinking_block,
)
from support.examples import places

from continuation import Policy
from continuation.seams.seam import join
from continuation.seams.text import choose_anchor
from continuation.types import Outcome

TOLD = "Vexing one two three. "
FAST = Policy(backoff_seconds=0, models_endpoint=False)
NOT_RESUMED = replace(FAST, max_drop_recoveries=0)
PREFILLS, PROMPTED = "claude-haiku-4-5", "claude-opus-5"


class BrokenError(Exception):
    """The connection broke."""


def ask(provider: Any, policy: Policy = FAST, model: str = PROMPTED, **changes: Any) -> Driven:
    asked = {"model": model, "max_tokens": 1000, "stream": True}
    request = {**asked, "messages": [{"role": "user", "content": "Go."}], **changes}
    return drive(provider, request, policy)


def in_turn(*answers: Answered) -> Any:
    """Return a provider that gives its answers one after the other."""
    left = iter(answers)
    return lambda _: next(left)


def streamed(*blocks: Any, stop: str = "end_turn", tokens: int = 5) -> bytes:
    events = [event for block in blocks for event in block]
    return sse([opening(), *events, *closing(stop, tokens)])


def said_before(request: dict[str, Any]) -> str:
    """Return what a request makes the assistant have said."""
    told = (m["content"] for m in request["messages"] if m["role"] == "assistant")
    return "".join(block["text"] for content in told for block in content)


@pytest.mark.parametrize("model", [PREFILLS, PROMPTED])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@places
def test_a_stream_may_break_off_at_any_byte(model: str, newline: str, step: int) -> None:
    events = [opening(), *text_block(0, [TOLD[:13], TOLD[13:]]), *closing("end_turn", 12)]
    raw = sse(events, newline)
    for place in range(0, len(raw), step):
        if raw[place : place + 1].isalnum() and raw[place - 1 : place].isalnum():
            continue  # in a word all places are alike
        requests = list[dict[str, Any]]()

        def provider(
            request: dict[str, Any], place: int = place, requests: list[dict[str, Any]] = requests
        ) -> Answered:
            requests.append(request)
            if len(requests) == 1:
                return 200, STREAM, [raw[:place]], BrokenError()
            rest = TOLD[len(said_before(request)) :]
            return 200, STREAM, [streamed(text_block(0, [rest]))], None

        driven = ask(provider, model=model)
        if driven.error is None:
            kinds = [event["type"] for event in driven.told]
            assert kinds.count("message_start") == kinds.count("message_stop") == 1, place
            assert driven.shown == TOLD, place


@pytest.mark.parametrize("kind", ["stream_tool_calls", "stream_thinking"])
def test_nothing_is_live_in_an_answer_that_is_not_streamed(kind: str) -> None:
    half = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": "a"}}
    body = {**opening()["message"], "content": [half], "stop_reason": "max_tokens"}
    body["usage"] = {"input_tokens": 10, "output_tokens": 1000}
    live: Any = {kind: "live"}
    policy = Policy(model_max_output_tokens=1000, **live)
    raw = json.dumps(body).encode()
    driven = ask(in_turn((200, JSON, [raw], None)), policy, stream=False)
    message = Message.model_validate_json(b"".join(driven.pieces))
    assert [block.type for block in message.content] == ["text"]
    assert message.stop_reason == "max_tokens"


@pytest.mark.parametrize("block", [{"type": "text", "text": "Hm."}, None])
def test_a_call_that_the_window_cut_is_not_shown_in_an_answer_that_is_not_streamed(
    block: dict[str, Any] | None,
) -> None:
    half = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": "a"}}
    stop = {"stop_reason": "model_context_window_exceeded"}
    body = {**opening()["message"], "content": [block or half], **stop}
    raw = json.dumps(body).encode()
    driven = ask(in_turn((200, JSON, [raw], None)), stream=False)
    message = Message.model_validate_json(b"".join(driven.pieces))
    assert [each.type for each in message.content] == ["text"]
    assert message.stop_reason == "model_context_window_exceeded"
    assert (b"".join(driven.pieces) == raw) is (block is not None)
    assert driven.report.outcome is Outcome.TRUNCATED


def test_a_half_call_of_chat_is_not_live_in_an_answer_that_is_not_streamed() -> None:
    own = {"id": "c", "type": "function", "function": {"name": "Write", "arguments": '{"pa'}}
    message = {"role": "assistant", "content": None, "tool_calls": [own]}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    usage = {"prompt_tokens": 10, "completion_tokens": 1000, "total_tokens": 1010}
    head = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m"}
    raw = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
    policy = Policy(model_max_output_tokens=1000, stream_tool_calls="live")
    provider = in_turn((200, JSON, [raw], None))
    driven = drive_chat.chat(provider, drive_chat.asking(stream=None), policy)
    told = json.loads(b"".join(driven.pieces))["choices"][0]["message"]
    assert not told.get("tool_calls")


def test_an_answer_that_arrived_is_not_given_up_for_one_that_broke_off() -> None:
    whole = drive_gemini.chunk(reason="MAX_TOKENS", said=1000)
    half = drive_gemini.chunk()
    answers: Sequence[Answered] = [
        (200, STREAM, [drive_gemini.sse([whole])], None),
        (200, STREAM, [drive_gemini.sse([half])], BrokenError()),
    ]
    path = f"/v1/models/{drive_gemini.NEW}:streamGenerateContent"
    driven = drive(in_turn(*answers), drive_gemini.ASK, NOT_RESUMED, path=path)
    assert driven.error is None
    assert drive_gemini.reasons(driven) == ["MAX_TOKENS"]
    assert driven.report.outcome is Outcome.TRUNCATED
    assert [attempt.discarded for attempt in driven.report.attempts] == [False, True]
    assert {told.get("responseId") for told in drive_gemini.responses(driven)} == {"r1"}


def test_a_cut_answer_without_a_word_is_no_failure_when_asking_again_broke_off() -> None:
    thought = thinking_block(0, "Hm, ")[:2]
    first = streamed(thought, stop="max_tokens", tokens=1000)
    again = sse([opening(), *thought])
    driven = ask(in_turn((200, STREAM, [first], None), (200, STREAM, [again], None)), NOT_RESUMED)
    assert driven.message.stop_reason == "max_tokens"
    assert driven.report.outcome is Outcome.TRUNCATED
    assert driven.report.stop == "max_tokens"


def test_an_attempt_whose_text_the_caller_has_is_not_reported_as_discarded() -> None:
    thought = thinking_block(0, "Hm, ")[:2]
    first = streamed(thought, stop="max_tokens", tokens=1000)
    again = sse([opening(), *text_block(0, [TOLD])[:2]])
    policy = replace(NOT_RESUMED, stream_thinking="live")
    driven = ask(
        in_turn((200, STREAM, [first], None), (200, STREAM, [again], BrokenError())), policy
    )
    assert driven.shown == TOLD
    assert [attempt.discarded for attempt in driven.report.attempts] == [False, False]


def test_half_of_a_long_echo_is_no_text() -> None:
    before = "The captain took the lamplight for oranges, and the parrot was polite all morning"
    assert choose_anchor(before) != before[20:]
    first = streamed(text_block(0, [before]), stop="max_tokens", tokens=1000)
    again = sse([opening(), *text_block(0, [before[20:50]])[:2]])
    policy = replace(NOT_RESUMED, model_max_output_tokens=1000)
    driven = ask(
        in_turn((200, STREAM, [first], None), (200, STREAM, [again], BrokenError())), policy
    )
    assert driven.shown == before


def test_an_attempt_that_only_starts_over_up_to_the_same_place_doubles_nothing() -> None:
    before = "The captain took the lamplight for oranges, and the parrot was pol"
    joined, verdict = join(before, before, anchor=choose_anchor(before))
    assert joined == before
    assert str(verdict.kind) == "restart"


def test_a_body_that_cannot_be_read_is_not_reported_as_complete() -> None:
    driven = ask(in_turn((200, JSON, [b""], None)), stream=False)
    assert b"".join(driven.pieces) == b""
    assert driven.report.outcome is Outcome.UNTOUCHED


def test_white_space_that_a_prefill_had_to_leave_out_is_not_doubled() -> None:
    raw = streamed(text_block(0, [TOLD]), call_block(1, ['{"path": "a", "con']), tokens=1000)
    first = raw[: raw.index(b"event: content_block_stop")]
    rest = streamed(text_block(0, [" "]), call_block(1, ["{}"]), stop="tool_use")
    provider = in_turn((200, STREAM, [first], BrokenError()), (200, STREAM, [rest], None))
    driven = ask(provider, model=PREFILLS)
    assert driven.shown == TOLD
    assert [block.type for block in driven.message.content] == ["text", "tool_use"]


def test_what_was_cut_and_not_counted_is_taken_for_all_that_its_limit_allowed() -> None:
    limits = list[int]()

    def provider(request: dict[str, Any]) -> Answered:
        limits.append(request["max_tokens"])
        chunks = [drive_chat.OPENING, *drive_chat.texts(TOLD), *drive_chat.closing("length")]
        return 200, STREAM, [drive_chat.sse(chunks)], None

    policy = Policy(backoff_seconds=0, model_max_output_tokens=9000, max_turn_output_tokens=5000)
    drive_chat.chat(provider, drive_chat.asking(1000), policy)
    assert limits == [1000, 4000]
