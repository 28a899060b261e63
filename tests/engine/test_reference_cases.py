"""Cases that earlier systems learnt the hard way, by the numbers their issues and tests gave them.

Scripts are lists of answers; a small limit escalates once, a limit at the ceiling does not. The
letters are those of the survey behind this project: R recovery, T after a tool result, C calls.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.sdks.messages import Ran, limits, run
from support.sdks.turn import How, body_of, cut, end

from continuation.simulator import Reply, Simulator, Thinking, ToolUse
from continuation.types import Outcome

SMALL, BIG = 8_000, 128_000
WRITE = {"file_path": "/x", "content": "partial content and the rest of it"}


def play(sim: Simulator, script: list[Reply], limit: int = SMALL, **more: Any) -> Ran:
    sim.script(script)
    return run(sim, "sync", max_tokens=limit, **more)


def kinds(ran: Ran) -> list[str]:
    return [type(event).__name__ for event in ran.events]


def test_r2_no_recovery_when_the_truncated_turn_has_a_call(sim: Simulator) -> None:
    ran = play(sim, [cut(ToolUse("write_file", WRITE, cut=14))] * 2)
    assert len(sim.posts) == 2
    assert "Recovering" not in kinds(ran)


def test_r6_all_pairs_become_one_turn(sim: Simulator) -> None:
    ran = play(sim, [cut("A"), cut("B"), cut("C"), end("D")])
    asked = [kind for kind in kinds(ran) if kind in {"Escalating", "Recovering"}]
    assert asked == ["Escalating", "Recovering", "Recovering"]
    assert (ran.text, ran.blocks) == ("BCD", ["text"])


@pytest.mark.parametrize(
    ("name", "before", "after", "joined"),
    [
        (
            "r12 a far earlier substring is kept",
            "Here is the rest of the explanation." + " Filler of no interest." * 30 + " cut off h",
            "ere. Here is the rest of the explanation continued.",
            "Here is the rest of the explanation."
            + " Filler of no interest." * 30
            + " cut off here. Here is the rest of the explanation continued.",
        ),
        (
            "r13 a structural prefix only in mid-paragraph",
            "some text ### Heading and then more inline prose follows\n\n",
            "### Heading\nfresh continuation of the text",
            "some text ### Heading and then more inline prose follows\n\n"
            "### Heading\nfresh continuation of the text",
        ),
        (
            "r16 a whole replay adds nothing",
            "leading content. This is the tail fragment",
            "This is the tail fragment",
            "leading content. This is the tail fragment",
        ),
        (
            "r17 two CJK characters coincide",
            "我们先讨论了第一部分的内容然后继续",
            "继续讨论第二部分的细节以及其他的问题",
            "我们先讨论了第一部分的内容然后继续继续讨论第二部分的细节以及其他的问题",
        ),
    ],
    ids=lambda value: value.partition(" ")[0] if isinstance(value, str) else None,
)
@pytest.mark.parametrize("how", ["sync", "sync-stream"])
def test_seams(sim: Simulator, how: How, name: str, before: str, after: str, joined: str) -> None:
    sim.script([cut(before), end(after)])
    assert run(sim, how, max_tokens=BIG).text == joined, name


def test_r25_an_empty_cut_escalates_with_the_larger_limit(sim: Simulator) -> None:
    ran = play(sim, [cut(), end("Completed after escalation.")])
    assert limits(sim) == [SMALL, BIG]
    assert ran.text == "Completed after escalation."


def test_r35_what_the_user_sent_is_sent_again(sim: Simulator) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    content = [{"type": "text", "text": "See."}, {"type": "image", "source": source}]
    messages = [{"role": "user", "content": content}]
    play(sim, [cut("a"), cut("b and "), end("c")], messages=messages)
    assert body_of(sim.posts[2])["messages"][0] == messages[0]


def test_t1_thinking_after_a_tool_result_escalates(sim: Simulator) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "data"}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    think = Thinking("I need more tokens.", signature=None)
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    script = [cut(think), end("Finished the analysis.")]
    ran = play(sim, script, messages=messages, tools=tools)
    assert ran.text == "Finished the analysis."


@pytest.mark.parametrize("stop", ["tool_use", "end_turn", "max_tokens"])
@pytest.mark.parametrize("arrived", [1, 15, 40])
def test_c1_to_c6_a_call_cut_in_a_stream_is_seen_whatever_the_label(
    sim: Simulator, stop: str, arrived: int
) -> None:
    sim.script(
        [
            Reply([ToolUse("write_file", WRITE, cut=arrived)], stop=stop),
            end(ToolUse("write_file", WRITE), stop="tool_use"),
        ]
    )
    ran = run(sim, "sync-stream", max_tokens=SMALL)
    assert [b.input for b in ran.said.content if b.type == "tool_use"] == [WRITE]


@pytest.mark.parametrize(
    "said",
    [
        # One line 21,000 times over (claude-code #90268); 840k tokens after "continue" (#84568).
        pytest.param(["The same line again.\n" * 2000, "The same line again.\n" * 9], id="goes on"),
        pytest.param(["Once upon a time ", "and then " * 20_000], id="begins"),
    ],
)
def test_a_recovery_that_loops_is_the_last(sim: Simulator, said: list[str]) -> None:
    ran = play(sim, [*map(cut, said), end("never asked")], BIG)
    assert (ran.told.outcome, ran.said.stop_reason) == (Outcome.STALLED, "max_tokens")
    assert ran.text == "".join(said)
    assert len(sim.posts) == 2
