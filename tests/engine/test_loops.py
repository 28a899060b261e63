"""The loops that callers write around a stream never meet an event that they cannot read.

Each loop reads what the format's examples read, without a check: `chunk.choices[0].delta`,
`event.delta`, `chunk.candidates[0].content.parts`. So whatever we write, and wherever a later
attempt begins or fails, has what these loops expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.sdks.formats import FORMATS, MAKES, THINKS, request
from support.sdks.turn import STREAMS, How, cut, end, play

from continuation import Policy
from continuation.simulator import Reply, Simulator, Thinking, ToolUse

WHOLE = ToolUse("Write", {"path": "a.txt"})
HALF = ToolUse("Write", {"path": "a.txt", "content": "hello " * 20}, cut=40)
STORY = "The quick brown fox jumps over the lazy dog. "
REFUSED = Reply(status=400)
SCRIPTS: dict[str, Sequence[Reply]] = {
    "uncut": [end(STORY)],
    "recovered": [cut(STORY), end("And it rests.")],
    "recovered from thinking": [cut(Thinking("Hm"), STORY), end(Thinking("So"), "And it rests.")],
    "recovered into a call": [cut(STORY), end("And it rests.", WHOLE, stop="tool_use")],
    "replaced": [cut(Thinking("Hm")), end("And it rests.")],
    "replaced by a call": [cut(HALF), end(WHOLE, stop="tool_use")],
    "asked again behind text": [cut(STORY, HALF), end(STORY, WHOLE, stop="tool_use")],
    "a call stays cut": [cut(STORY, HALF), *[cut(STORY, HALF)] * 3],
    "failed recovery": [cut(STORY), *[REFUSED] * 4],
    "empty recovery": [cut(STORY[:20]), *[end("")] * 4],
    "dropped": [end(STORY, drop=6, deltas=4), end(STORY[12:])],
    "dropped, no resumption left": [end(STORY, drop=6, deltas=4), *[REFUSED] * 4],
    "only thinking": [cut(Thinking("Hm"))] * 4,
    "nothing": [cut()] * 4,
    "all recoveries used": [cut(f"{n}. {STORY}") for n in range(6)],
}


def read_messages(event: Any) -> str:
    if event.type == "content_block_start":
        assert isinstance(event.content_block.type, str)
    if event.type == "content_block_delta":
        return event.delta.text if event.delta.type == "text_delta" else ""
    if event.type == "message_delta":
        assert event.delta.stop_reason
        assert event.usage.output_tokens >= 0
    return ""


def read_chat(chunk: Any) -> str:
    choice = chunk.choices[0]
    for call in choice.delta.tool_calls or []:
        assert call.index >= 0
        assert isinstance(call.function.arguments or "", str)
    return choice.delta.content or ""


def read_responses(event: Any) -> str:
    if event.type.endswith(".delta"):
        assert isinstance(event.delta, str)
    if event.type in {"response.output_item.added", "response.output_item.done"}:
        assert event.item.type
    if event.type in {"response.completed", "response.incomplete"}:
        assert event.response.output is not None
        for item in event.response.output:
            if item.type == "message":
                assert all(part.text is not None for part in item.content)
    return event.delta if event.type == "response.output_text.delta" else ""


def read_gemini(chunk: Any) -> str:
    parts = chunk.candidates[0].content.parts
    for part in parts:
        if part.function_call:
            assert part.function_call.name
    return "".join(part.text for part in parts if part.text and not part.thought)


LOOPS: dict[str, Callable[[Any], str]] = dict(
    zip(FORMATS, (read_messages, read_chat, read_responses, read_gemini), strict=True)
)
POLICIES = {
    "default": Policy(backoff_seconds=0.0),
    "live": Policy(backoff_seconds=0.0, stream_tool_calls="live", stream_thinking="live"),
    "truncated": Policy(backoff_seconds=0.0, on_failure="truncated", truncated_tool_call="drop"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", STREAMS)
@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_loop_reads_each_event_without_a_check(
    name: str, dialect: str, how: How, policy: str
) -> None:
    more = THINKS[dialect] if "thinking" in name else {}
    with Simulator() as sim:
        sim.script(SCRIPTS[name])
        ran = play(MAKES[dialect](), how, sim, request(dialect, 2_000, more), POLICIES[policy])
    assert (ran.error is None) is ("resumption" not in name), "without us it is an error, too"
    text = "".join(map(LOOPS[dialect], ran.pieces))
    if ran.error is None:
        assert text == ran.text
    else:
        assert text
        assert STORY.startswith(text)


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_obfuscation": True}])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_chat_stream_has_no_chunk_without_choices_that_nobody_asked_for(
    name: str, options: Any
) -> None:
    asked = {"stream_options": options} if options else {}
    with Simulator() as sim:
        sim.script(SCRIPTS[name])
        ran = play(MAKES["openai-chat"](), "sync-stream", sim, request("openai-chat", 2_000, asked))
    assert (ran.error is None) is ("resumption" not in name)
    text = "".join(map(read_chat, ran.pieces))
    assert text == ran.text if ran.error is None else STORY.startswith(text)
