"""Odd answers of the Messages API, through the real SDK: no text doubled or lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anthropic
import pytest
from support.messages_server import (
    BEFORE,
    ECHO,
    FAST,
    LIMIT,
    REST,
    WHOLE,
    Json,
    ask,
    cut,
    half,
    message,
    result,
    said,
    search,
    text,
    thought,
    write,
)
from support.servers import Answer, Asked, Canned

import continuation
from continuation.types import Outcome

# --- what the provider runs itself --------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("again", ["recovered", "not recovered"])
def test_a_search_that_was_cut_is_not_left_without_its_result(streamed: bool, again: str) -> None:
    blocks = thought(), text(BEFORE), half(search())
    body = Answer(message(*blocks, stop="max_tokens", tokens=LIMIT))
    rest = said(text(ECHO + REST)) if again == "recovered" else Answer({}, status=400)
    told = ask(cut(*blocks) if streamed else body, rest, streamed=streamed)
    assert told.text == (WHOLE if again == "recovered" else BEFORE)
    assert "server_tool_use" not in told.kinds
    assert not told.faults


def test_a_search_before_text_that_was_shown_is_not_told_again_behind_it() -> None:
    policy = replace(FAST, model_max_output_tokens=4 * LIMIT)
    blocks = search(), result(), text("I found it. ")
    whole = said(*blocks, write(), stop="tool_use")
    told = ask(cut(*blocks, half(write())), whole, policy=policy)
    assert told.kinds == ["server_tool_use", "web_search_tool_result", "text", "tool_use"]
    assert told.report.outcome is Outcome.HEALED


def test_arguments_that_came_parsed_prove_nothing_in_a_stream_either() -> None:
    """What a gateway made of half a call, and sends with its beginning, is JSON as well."""
    sent = [event for event in cut(write()).events if "input_json_delta" not in event]
    parsed = [event.replace('"input": {}', '"input": {"path": "a."}') for event in sent]
    policy = replace(FAST, model_max_output_tokens=4 * LIMIT)
    told = ask(Answer(events=parsed), said(write(), stop="tool_use"), policy=policy)
    assert [block.input for block in told.message.content if block.type == "tool_use"] == [
        {"path": "a.txt"}
    ]
    assert told.report.outcome is Outcome.HEALED


# --- echoes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["refusal", "max_tokens", "model_context_window_exceeded"])
def test_half_an_echo_is_no_text_however_it_ends(stop: str) -> None:
    told = ask(cut(thought(), text(BEFORE)), said(thought(), text(ECHO[:-9]), stop=stop))
    assert told.text == BEFORE


@pytest.mark.parametrize("between", [[], [thought()]], ids=["texts", "thinking"])
@pytest.mark.parametrize("live", [True, False])
def test_an_echo_of_more_than_one_text_is_not_shown(between: list[Json], live: bool) -> None:
    """Cited answers come in many small texts; the last one may be a few words."""
    policy = replace(FAST, stream_thinking="live" if live else "hold")
    first = cut(thought(), text(BEFORE[:-6]), *between, text(BEFORE[-6:]))
    told = ask(first, said(text(ECHO + REST)), policy=policy)
    assert (told.text, told.report.outcome) == (WHOLE, Outcome.HEALED)


def test_an_echo_of_a_text_behind_which_it_thought_is_not_shown() -> None:
    policy = replace(FAST, stream_thinking="live")
    first = cut(thought(), text(BEFORE), thought("Well", ""))
    told = ask(first, said(text(ECHO + REST)), policy=policy)
    assert (told.text, told.report.outcome) == (WHOLE, Outcome.HEALED)
    assert told.replayed(1) == ["thinking", "text"], "live thinking that was cut is not sent back"


# --- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
def test_thinking_that_used_up_the_limit_is_no_whole_answer(streamed: bool) -> None:
    policy = replace(FAST, model_max_output_tokens=4 * LIMIT)
    lie = thought("I think", "")
    body = Answer(message(lie, tokens=LIMIT))
    first = cut(lie, stop="end_turn") if streamed else body
    told = ask(first, said(thought(), text(WHOLE)), policy=policy, streamed=streamed)
    assert (told.text, told.report.outcome) == (WHOLE, Outcome.HEALED)


def test_thinking_that_a_refusal_cut_is_not_left_unsigned() -> None:
    policy = replace(FAST, model_max_output_tokens=4 * LIMIT)
    refused = said(thought("I th", ""), stop="refusal")
    told = ask(cut(thought("I think", "")), refused, policy=policy)
    assert told.message.stop_reason == "refusal"
    assert not told.kinds


def test_a_blank_text_before_thinking_that_was_cut_is_not_left() -> None:
    """No provider takes it back."""
    told = ask(cut(text("\n\n"), thought("I th", "")))
    assert (told.kinds, told.message.stop_reason) == ([], "max_tokens")


# --- what a later attempt is told was said before -------------------------------------------------


@pytest.mark.parametrize("at", [3, 9, 20])
def test_thinking_within_an_echo_is_not_sent_back_behind_text(at: int) -> None:
    """The provider wants thinking first, and would refuse the second recovery."""
    more = " Then it sat down, and looked at the dog for a long time, a"
    echo = cut(text(ECHO[:at]), thought(), text(ECHO[at:] + REST + more))
    told = ask(cut(thought(), text(BEFORE)), echo, said(text("nd it looked back.")))
    kinds = [[b["type"] for b in m["content"]] for m in told.asked[2]["messages"][1:]]
    assert kinds == [["thinking", "text"], ["text"], ["text", "text"], ["text"]]


def test_behind_half_a_call_shown_live_no_other_is_asked_for() -> None:
    """A guided call would be a second one, and the first can not be taken back."""
    policy = replace(FAST, stream_tool_calls="live", truncated_tool_call="retry_smaller")
    broken = cut(thought(), text("I write."), thought(), half(write()))
    told = ask(broken, broken, said(write("b.txt"), stop="tool_use"), policy=policy)
    assert all(len(asked["messages"]) == 1 for asked in told.asked)
    assert told.message.stop_reason == "max_tokens"


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../files/x", "..", "a/../../files", "a\\1b", "x?y=1", "x#y"])
def test_a_models_name_is_one_segment_of_the_path_that_is_looked_up(name: str) -> None:
    def rule(asked: Asked) -> Answer:
        whole = message(text(WHOLE), stop="end_turn" if len(server.asked) > 1 else "max_tokens")
        return Answer(whole) if asked.method == "POST" else Answer({}, status=404)

    with Canned(rule) as server, anthropic.Anthropic(base_url=server.url, api_key="key") as bare:
        client = continuation.wrap(bare, backoff_seconds=0.0)
        go: Any = [{"role": "user", "content": "Go."}]
        client.messages.create(model=name, max_tokens=LIMIT, messages=go)
        paths = {asked.path for asked in server.asked if asked.method == "GET"}
    assert paths == ({f"/v1/models/{quote(name, safe='')}"} if name != ".." else set())
