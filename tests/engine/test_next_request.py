"""The turn after the healed one: the strict simulator accepts what the caller sends back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.sdks.formats import FORMATS, MAKES, THINKS, request
from support.sdks.messages import NEW, OLD, Ran, ask
from support.sdks.turn import FAST, HOWS, How, cut, end, play

from continuation import Outcome, Policy
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolUse

BINDING = "claude-sonnet-5-5"
TOOLS: list[Any] = [{"name": "Write", "input_schema": {"type": "object"}}]
WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE, HALF = ToolUse("Write", WRITE), ToolUse("Write", WRITE, cut=20)
REFUSED = Reply(status=400)


HAD = cut(Thinking("I think."), Text("One fine day, "))
CALLING = cut(Thinking("I think."), Text("I write. "), HALF)
TURNS: dict[str, list[Reply]] = {
    "recovered": [HAD, Reply([Thinking("I go on."), Text("all was well.")])],
    "recovered into a call": [
        HAD,
        Reply([Thinking("I go on."), Text("I write."), WHOLE], stop="tool_use"),
    ],
    "escalated behind text": [
        CALLING,
        Reply([Thinking("Again."), Text("Write:"), WHOLE], stop="tool_use"),
    ],
    "cut thinking": [
        cut(Thinking("I th", signature=None)),
        Reply([Thinking("I think."), Text("One fine day.")]),
    ],
    "cut call explained": [CALLING, REFUSED],
    "whole call, then a cut one": [cut(Thinking("Hm."), WHOLE, replace(HALF, cut=9)), REFUSED],
    "failed recovery": [HAD, REFUSED],
    "recovery dropped in its thinking": [
        HAD,
        Reply([Thinking("I go on at length."), Text("never")], drop=4),
        Reply([Text("all was well.")]),
    ],
}


@pytest.mark.parametrize("how", ["sync", "sync-stream"])
@pytest.mark.parametrize("model", [NEW, OLD, BINDING])
@pytest.mark.parametrize("name", TURNS)
def test_the_next_request_is_accepted(name: str, model: str, how: Any) -> None:
    manual = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if model == OLD else {}
    asked = ask(model=model, max_tokens=2000, tools=TOOLS, **manual)
    with Simulator(scenario=Scenario(strict_signatures=True)) as sim:
        sim.script([*TURNS[name], Reply([Text("Next.")])])
        ran = play(Ran(), how, sim, asked)
        sim.script([Reply([Text("Next.")])])
        assert play(Ran(), "sync", sim, ran.following(asked), FAST).text == "Next."


@pytest.mark.parametrize("model", [NEW, BINDING])
def test_thinking_stays_valid_along_the_chain_of_recoveries(model: str) -> None:
    parts = ["Once upon a time ", "there was a king ", "who had three sons ", "and a horse."]
    with Simulator(scenario=Scenario(strict_signatures=True)) as sim:
        told = [cut(Thinking(f"Thought {part}."), Text(part)) for part in parts[:-1]]
        sim.script([*told, Reply([Thinking("Last."), Text(parts[-1])])])
        ran = play(Ran(), "sync", sim, ask(model=model), Policy(escalate=False))
        assert (ran.blocks, ran.text) == (["thinking", "text"], "".join(parts))
        assert [post.status for post in sim.posts] == [200] * 4


LINE = "A line that was being read when all ended.\n"
TO_TEXT = dict(zip(FORMATS, (4, 2, 5, 1), strict=True))
"""Events up to the first text."""


@pytest.mark.parametrize("dialect", FORMATS)
def test_no_text_is_missing_before_a_call_that_is_delivered(dialect: str) -> None:
    """Where a recovery breaks off behind a call, its text may look like what stood before it."""
    said, rest = "".join(f"{n}. {LINE}" for n in range(3)) + "3. " + LINE[:22], LINE[22:]
    outcomes = set[str]()
    with Simulator() as sim:
        for drop in range(1, 18):
            sim.reset()
            sim.script(
                [
                    end(said + rest, drop=TO_TEXT[dialect], deltas=len(said)),
                    end(rest, WHOLE, stop="tool_use", drop=drop, deltas=40),
                    end(rest, WHOLE, stop="tool_use"),
                ]
            )
            ran = play(MAKES[dialect](), "sync-stream", sim, request(dialect, 5_000, {}))
            assert ran.tool_calls == [("Write", WRITE)]
            assert ran.text == said + rest
            outcomes.add(ran.told.outcome)
    assert outcomes == {Outcome.PARTIAL, Outcome.HEALED}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_an_answer_without_text_has_no_empty_one_and_the_chat_continues(
    dialect: str, how: How
) -> None:
    """Thinking used the limit up twice: what goes back to the provider has no empty block."""
    scenario = Scenario(thinking="all", strict_signatures=True)
    asked = request(dialect, 2_000, THINKS[dialect])
    with Simulator("The quick brown fox.", scenario) as sim:
        ran = play(MAKES[dialect](), how, sim, asked)
        assert (ran.text, len(sim.posts)) == ("", 2)
        sim.script([end("Next.")])
        assert play(MAKES[dialect](), "sync", sim, ran.following(asked)).text == "Next."
        assert [post.status for post in sim.posts if post.method == "POST"] == [200] * 3
