"""What a later attempt of the Messages API is told was said before, whatever was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from odd_anthropic import BEFORE, ECHO, FAST, REST, ask, cut, half, said, text, thought, write


@pytest.mark.parametrize("at", [3, 9, 20])
def test_thinking_within_an_echo_is_not_sent_back_behind_text(at: int) -> None:
    """The provider wants thinking first, and would refuse the second recovery."""
    more = " Then it sat down, and looked at the dog for a long time, a"
    echo = cut(text(ECHO[:at]), thought(), text(ECHO[at:] + REST + more))
    told = ask(cut(thought(), text(BEFORE)), echo, said(text("nd it looked back.")))
    kinds = [[b["type"] for b in m["content"]] for m in told.asked[2]["messages"][1:]]
    assert kinds == [["thinking", "text"], ["text"], ["text", "text"], ["text"]]


def test_a_call_shown_live_is_not_sent_back_without_a_result() -> None:
    policy = replace(FAST, tool_stream="live", cut_call="guide")
    again = said(write("b.txt"), stop="tool_use")
    told = ask(cut(thought(), text("I write."), thought(), half(write())), again, policy=policy)
    assert told.replayed(1) == ["thinking", "text"]


def test_live_thinking_that_was_cut_is_not_sent_back() -> None:
    policy = replace(FAST, thinking_stream="live")
    first = cut(thought(), text(BEFORE), thought("Well", ""))
    told = ask(first, said(text(ECHO + REST)), policy=policy)
    assert told.replayed(1) == ["thinking", "text"]
