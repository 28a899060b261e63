"""The turn after the healed one: the strict simulator accepts what the caller sends back."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from support.sdks.messages import NEW, OLD
from support.sdks.turn import FAST

import continuation
from continuation import Policy
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolCall

BINDING = "claude-sonnet-5-5"
TOOLS: list[Any] = [{"name": "Write", "input_schema": {"type": "object"}}]
WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}

TURNS: dict[str, list[Reply]] = {
    "recovered": [
        Reply([Thinking("I think."), Text("One fine day, ")], stop="max_tokens"),
        Reply([Thinking("I go on."), Text("all was well.")]),
    ],
    "recovered into a call": [
        Reply([Thinking("I think."), Text("One fine day, ")], stop="max_tokens"),
        Reply([Thinking("I go on."), Text("I write."), ToolCall("Write", WRITE)], stop="tool_use"),
    ],
    "escalated behind text": [
        Reply(
            [Thinking("I think."), Text("I write. "), ToolCall("Write", WRITE, cut=20)],
            stop="max_tokens",
        ),
        Reply([Thinking("Again."), Text("Write:"), ToolCall("Write", WRITE)], stop="tool_use"),
    ],
    "cut thinking": [
        Reply([Thinking("I th", signature=None)], stop="max_tokens"),
        Reply([Thinking("I think."), Text("One fine day.")]),
    ],
    "cut call explained": [
        Reply(
            [Thinking("I think."), Text("I write. "), ToolCall("Write", WRITE, cut=20)],
            stop="max_tokens",
        ),
        Reply(status=400),
        Reply(status=400),
    ],
    "whole call, then a cut one": [
        Reply(
            [Thinking("Hm."), ToolCall("Write", WRITE), ToolCall("Write", WRITE, cut=9)],
            "max_tokens",
        ),
        Reply(status=400),
    ],
    "failed recovery": [
        Reply([Thinking("I think."), Text("One fine day, ")], stop="max_tokens"),
        Reply(status=400),
    ],
    "recovery dropped in its thinking": [
        Reply([Thinking("I think."), Text("One fine day, ")], stop="max_tokens"),
        Reply([Thinking("I go on at length."), Text("never")], drop=4),
        Reply([Text("all was well.")]),
    ],
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [NEW, OLD, BINDING])
@pytest.mark.parametrize("name", TURNS)
def test_the_next_request_is_accepted(name: str, model: str, stream: bool) -> None:
    scenario = Scenario(strict_signatures=True)
    thinking: dict[str, Any] = {"type": "enabled", "budget_tokens": 1024}
    extra = {"thinking": thinking} if model == OLD else {}
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    with (
        Simulator(scenario=scenario) as sim,
        anthropic.Anthropic(base_url=sim.url, api_key="key", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        sim.script([*TURNS[name], Reply([Text("Next.")])])
        asked: dict[str, Any] = {"model": model, "max_tokens": 2000, "tools": TOOLS, **extra}
        if stream:
            with client.messages.stream(messages=messages, **asked) as streamed:
                message = streamed.get_final_message()
        else:
            message = client.messages.create(messages=messages, **asked)
        messages.append({"role": "assistant", "content": [wire(b) for b in message.content]})
        calls = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": "ok"} for c in calls]
        messages.append({"role": "user", "content": results or "And then?"})
        sim.script([Reply([Text("Next.")])])
        after = client.messages.create(messages=messages, **asked)
        assert after.content[0].type == "text"


def wire(block: Any) -> dict[str, Any]:
    return dict(block.model_dump(exclude_none=True, exclude={"parsed_output"}))


@pytest.mark.parametrize("model", [NEW, BINDING])
def test_thinking_stays_valid_along_the_chain_of_recoveries(model: str) -> None:
    scenario = Scenario(strict_signatures=True)
    with (
        Simulator(scenario=scenario) as sim,
        anthropic.Anthropic(base_url=sim.url, api_key="key", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=Policy(escalate=False))
        parts = ["Once upon a time ", "there was a king ", "who had three sons ", "and a horse."]
        sim.script(
            [
                Reply([Thinking(f"Thought {n}."), Text(part)], stop="max_tokens")
                for n, part in enumerate(parts[:-1])
            ]
            + [Reply([Thinking("Last."), Text(parts[-1])])]
        )
        message = client.messages.create(
            model=model, max_tokens=2000, messages=[{"role": "user", "content": "Go."}]
        )
        assert [b.type for b in message.content] == ["thinking", "text"]
        assert message.content[1].text == "".join(parts)  # type: ignore[union-attr]
        assert [r.status for r in sim.posts] == [200] * 4
