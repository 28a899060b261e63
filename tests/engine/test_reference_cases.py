"""Cases that earlier systems learnt the hard way, by the numbers their issues and tests gave them.

Scripts are lists of answers; a small limit escalates once, a limit at the ceiling does not. The
letters are those of the survey behind this project: R recovery, T after a tool result, C calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.sdks.messages import Ran, limits, run
from support.sdks.turn import FAST, How, body_of

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Reply, Simulator, Text, Thinking, ToolCall
from continuation.types import Outcome

SMALL, BIG = 8_000, 128_000
WRITE = {"file_path": "/x", "content": "partial content and the rest of it"}


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def cut(*said: Any) -> Reply:
    return Reply([Text(s) if isinstance(s, str) else s for s in said], stop="max_tokens")


def end(*said: Any, stop: str = "end_turn") -> Reply:
    return Reply([Text(s) if isinstance(s, str) else s for s in said], stop=stop)


def play(sim: Simulator, script: list[Reply], limit: int = SMALL, **more: Any) -> Ran:
    sim.script(script)
    return run(sim, "sync", max_tokens=limit, **more)


def kinds(ran: Ran) -> list[str]:
    return [type(event).__name__ for event in ran.events]


def no_prompt_left(ran: Ran) -> bool:
    return not any(looks_like_recovery_prompt(b.text) for b in ran.said.content if b.type == "text")


def test_r1_recovery_after_a_truncated_escalation(sim: Simulator) -> None:
    ran = play(sim, [cut("Hello"), cut("Hello world"), end(" ending.")])
    assert len(sim.posts) == 3
    assert [k for k in kinds(ran) if k in {"Escalating", "Recovering"}] == [
        "Escalating",
        "Recovering",
    ]
    assert ran.text == "Hello world ending."


def test_r2_no_recovery_when_the_truncated_turn_has_a_call(sim: Simulator) -> None:
    ran = play(sim, [cut(ToolCall("write_file", WRITE, cut=14))] * 2)
    assert len(sim.posts) == 2
    assert "Recovering" not in kinds(ran)


def test_r3_three_recoveries_are_the_cap(sim: Simulator) -> None:
    ran = play(sim, [cut(f"Something new, number {n}. ") for n in range(9)])
    assert len(sim.posts) == 5
    assert ran.said.stop_reason == "max_tokens"


def test_r4_a_failed_recovery_ends_in_a_stop(sim: Simulator) -> None:
    ran = play(
        sim, [cut("partial"), cut("still partial"), Reply(status=500)] + [Reply(status=500)] * 2
    )
    assert (ran.text, ran.said.stop_reason) == ("still partial", "end_turn")
    assert no_prompt_left(ran)


def test_r5_a_call_in_a_later_recovery_ends_the_loop(sim: Simulator) -> None:
    call = ToolCall("write_file", WRITE, cut=14)
    ran = play(sim, [cut("initial"), cut("escalated "), cut("recovery 1 text "), cut(call)])
    assert len(sim.posts) == 4
    assert ran.text.startswith("escalated recovery 1 text ")


def test_r6_all_pairs_become_one_turn(sim: Simulator) -> None:
    ran = play(sim, [cut("A"), cut("B"), cut("C"), end("D")])
    assert len(sim.posts) == 4
    assert ran.text == "BCD"
    assert len(ran.said.content) == 1
    assert no_prompt_left(ran)


def test_r7_a_recovery_that_breaks_in_a_call_leaves_no_trace_of_it(sim: Simulator) -> None:
    broken = Reply([ToolCall("write_file", WRITE, id="toolu_X")], stop="tool_use", deltas=4, drop=5)
    ran = play(
        sim,
        [cut("initial"), cut("escalated "), broken, *[Reply(status=400)] * 3],
    )
    assert ran.text == "escalated "
    assert "toolu_X" not in ran.said.model_dump_json()


@pytest.mark.parametrize(
    ("name", "before", "after", "joined"),
    [
        (
            "r9 overlap stripped",
            "Alpha shared recovery suffix",
            "shared recovery suffix and continuation",
            "Alpha shared recovery suffix and continuation",
        ),
        (
            "r11 a coinciding opener is kept",
            "We covered cats. In summary, this concludes the cat section.",
            " In summary, the answer is 42 and the dog section follows.",
            "We covered cats. In summary, this concludes the cat section."
            " In summary, the answer is 42 and the dog section follows.",
        ),
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


def test_r16_a_whole_replay_adds_nothing(sim: Simulator) -> None:
    ran = play(
        sim,
        [cut("leading content. This is the tail fragment"), end("This is the tail fragment")],
        BIG,
    )
    assert ran.text == "leading content. This is the tail fragment"


def test_r19_thinking_alone_is_not_gone_on_from(sim: Simulator) -> None:
    ran = play(sim, [cut(Thinking("…", signature=None)), end("fresh text")])
    assert ran.text == "fresh text"
    assert len(body_of(sim.posts[1])["messages"]) == 1


def test_r20_a_recovery_that_begins_with_thinking(sim: Simulator) -> None:
    think = Thinking("planning the rest")
    ran = play(
        sim,
        [
            cut("Alpha shared recovery suffix"),
            end(think, Text("shared recovery suffix and continuation")),
        ],
        BIG,
    )
    assert ran.text == "Alpha shared recovery suffix and continuation"
    assert ran.blocks == ["text"]


def test_r25_an_empty_cut_escalates_with_the_larger_limit(sim: Simulator) -> None:
    ran = play(sim, [cut(), end("Completed after escalation.")])
    assert limits(sim) == [SMALL, BIG]
    assert ran.text == "Completed after escalation."


def test_r30_an_escalation_that_would_raise_nothing_is_skipped(sim: Simulator) -> None:
    ran = play(sim, [cut("Hello"), end(" ending.")], BIG)
    assert len(sim.posts) == 2
    assert "Escalating" not in kinds(ran)
    assert ran.text == "Hello ending."


def test_r35_what_the_user_sent_is_sent_again(sim: Simulator) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    content = [{"type": "text", "text": "See."}, {"type": "image", "source": source}]
    messages = [{"role": "user", "content": content}]
    play(sim, [cut("a"), cut("b and "), end("c")], messages=messages)
    assert body_of(sim.posts[2])["messages"][0] == messages[0]


def test_r36_unsigned_thinking_is_dropped_before_a_call(sim: Simulator) -> None:
    call = ToolCall("write_file", WRITE)
    think = Thinking("thinking about it", signature=None)
    ran = play(sim, [cut(think), end(call, stop="tool_use")])
    assert ran.blocks == ["tool_use"]


def test_a_users_own_limit_does_not_switch_healing_off(sim: Simulator) -> None:
    """The reference design healed nothing once a limit was set; here every request sets one."""
    assert play(sim, [cut("x"), end("All of it.")], 300).text == "All of it."


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
            Reply([ToolCall("write_file", WRITE, cut=arrived)], stop=stop),
            end(ToolCall("write_file", WRITE), stop="tool_use"),
        ]
    )
    ran = run(sim, "sync-stream", max_tokens=SMALL)
    assert [b.input for b in ran.said.content if b.type == "tool_use"] == [WRITE]


def test_the_outcome_tells_an_abandoned_answer_from_a_recovered_one(sim: Simulator) -> None:
    healed = play(sim, [cut("One, "), end("two.")], BIG)
    abandoned = play(sim, [cut("One, "), Reply(status=400)], BIG)
    assert healed.said.stop_reason == abandoned.said.stop_reason == "end_turn"
    assert healed.told.outcome is Outcome.HEALED
    assert abandoned.told.outcome is Outcome.PARTIAL


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


def test_policy_off_means_off(sim: Simulator) -> None:
    off = Policy(escalate=False, max_recoveries=0, max_drop_recoveries=0)
    ran = play(sim, [cut("x")], policy=off)
    assert ran.said.stop_reason == "max_tokens"
    assert off != FAST
