"""What a later attempt of the Messages API is told was said before, whatever was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.messages_server import (
    BEFORE,
    ECHO,
    FAST,
    REST,
    ask,
    cut,
    half,
    said,
    text,
    thought,
    write,
)


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


def test_live_thinking_that_was_cut_is_not_sent_back() -> None:
    policy = replace(FAST, stream_thinking="live")
    first = cut(thought(), text(BEFORE), thought("Well", ""))
    told = ask(first, said(text(ECHO + REST)), policy=policy)
    assert told.replayed(1) == ["thinking", "text"]
