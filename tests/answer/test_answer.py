"""What an answer keeps of its earlier attempts when a later one breaks off."""

from __future__ import annotations

import json

import pytest
from support.drive import (
    JSON,
    STREAM,
    Answered,
    call_block,
    closing,
    drive,
    opening,
    text_block,
    thinking_block,
)
from support.drive import sse as messages
from support.drive_gemini import (
    ASK,
    FAST,
    LONG,
    Chunk,
    ask,
    chunk,
    parts,
    responses,
    said,
    sse,
    text,
)

from continuation import Policy

IMAGE: Chunk = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
LAST = chunk(text("Done."), reason="STOP")


@pytest.mark.parametrize("rest", [0, 1, 40])
def test_half_the_body_of_a_hop_takes_nothing_from_the_hops_before(rest: int) -> None:
    first = chunk(text("I plot. "), IMAGE, reason="MAX_TOKENS", continuationToken="t1")
    bodies = [json.dumps(told).encode() for told in (first, LAST, LAST)]
    bodies.insert(1, bodies[1][:rest])
    answers = iter(bodies)
    path = f"/v1/models/{LONG}:generateContent"
    driven = drive(lambda _: (200, JSON, [next(answers)], None), ASK, FAST, path=path)
    assert (said(driven), IMAGE in parts(driven)) == ("I plot. Done.", True)


@pytest.mark.parametrize("brought", [[], [b": nothing\r\n\r\n"]])
def test_a_hop_that_brought_nothing_is_not_counted(brought: list[bytes]) -> None:
    first = chunk(text("I plot it. " * 20), reason="MAX_TOKENS", continuationToken="t1")
    driven = ask([[sse([first])], brought, [sse([LAST])]], model=LONG)
    assert responses(driven)[-1]["usageMetadata"]["candidatesTokenCount"] == 7 + 7


@pytest.mark.parametrize("refused", [True, False])
def test_the_thinking_before_a_whole_call_stays_when_asking_again_fails(refused: bool) -> None:
    first = [
        opening(),
        *text_block(0, ["I write it. "]),
        *thinking_block(1, "I need both.", "signed"),
        *call_block(2, ['{"path": "a"}']),
        *call_block(3, ['{"path": '], "Read"),
        *closing("max_tokens", 1000),
    ]
    again = messages([opening(), *text_block(0, ["I write it. "])])
    later: Answered = (403, JSON, [b"{}"], None) if refused else (200, STREAM, [again], None)
    answers = iter([(200, STREAM, [messages(first)], None), later])
    request = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": True, "messages": []}
    policy = Policy(models_endpoint=False, truncated_tool_call="drop", max_drop_recoveries=0)
    driven = drive(lambda _: next(answers), request, policy)
    assert [block.type for block in driven.message.content] == ["text", "thinking", "tool_use"]
    assert len(driven.requests) == 2
