"""The decision table through the Responses SDK, streamed and not, sync and async."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support.sdks.responses import CITY, GO, limits, posts, run
from support.sdks.turn import BOTH, How, cut, end, streamed

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Raw, Reply, Simulator, Thinking, ToolUse
from continuation.types import Outcome

pytestmark = pytest.mark.parametrize("how", BOTH)

TOP = 128_000
ARGS = '{"path": "a.txt", "content": "hello world, this is the whole file"}'
TOOLS = [{"type": "function", "name": "Write", "parameters": {"type": "object"}}]
CUSTOM = {"type": "custom_tool_call", "call_id": "call_c", "name": "patch", "input": "*** Begin"}


def write(cut: int | None = None) -> ToolUse:
    return ToolUse("Write", ARGS, cut=cut)


def prompts(sim: Simulator) -> list[str]:
    """Return our own prompts in the last request."""
    texts = [str(item.get("content")) for item in posts(sim)[-1]["input"]]
    return [text for text in texts if looks_like_recovery_prompt(text)]


def phased(text: str, phase: str) -> Raw:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return Raw({**item, "phase": phase})


# --- not ours, not cut ----------------------------------------------------------------------


def test_an_answer_that_failed_stays_failed(sim: Simulator, how: How) -> None:
    failure = ("invalid_prompt", "no")
    sim.script([end("half", stop="failed", error=failure)])
    ran = run(sim, how)
    assert (ran.said.status, ran.said.error.code) == ("failed", "invalid_prompt")
    assert len(sim.posts) == 1


def test_a_conversation_passes_untouched(sim: Simulator, how: How) -> None:
    sim.script([cut("half")])
    ran = run(sim, how, conversation="conv_1")
    assert (ran.said.status, ran.told.outcome) == ("incomplete", Outcome.UNTOUCHED)
    assert "conversation" in str(ran.told.reason)


def test_the_background_passes_untouched(sim: Simulator, how: How) -> None:
    sim.script([cut("half")])
    ran = run(sim, how, background=True)
    assert (ran.said.status, ran.told.outcome) == ("incomplete", Outcome.UNTOUCHED)
    assert "background" in str(ran.told.reason)


# --- at the output limit --------------------------------------------------------------------


def test_without_a_limit_an_unknown_server_is_asked_for_more(sim: Simulator, how: How) -> None:
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = run(sim, how, max_output_tokens=None)
    assert limits(sim) == [None, TOP]
    assert ran.text == ("The quick brown fox jumps." if streamed(how) else "x jumps.")


def test_shown_text_is_recovered_at_the_ceiling(sim: Simulator, how: How) -> None:
    limit = 1000 if streamed(how) else TOP
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = run(sim, how, max_output_tokens=limit)
    assert (ran.text, ran.items) == ("The quick brown fox jumps.", ["message"])
    assert (ran.said.status, ran.said.output[0].status) == ("completed", "completed")
    assert limits(sim) == [limit, TOP]
    assert len(prompts(sim)) == 1
    assert posts(sim)[1]["store"] is False
    assert ran.told.outcome is Outcome.HEALED
    assert ran.kinds.count("response.created") == streamed(how)
    for done in ("output_text.done", "content_part.done", "output_item.done", "completed"):
        assert ran.kinds.count(f"response.{done}") == streamed(how), done
    assert ran.numbers == list(range(len(ran.numbers)))


def test_shown_text_then_a_cut_call_is_escalated(sim: Simulator, how: How) -> None:
    sim.script(
        [
            cut("I write it now. ", write(30)),
            end(Thinking("Hm"), "I write it now. Here:", write(), stop="tool_use"),
        ]
    )
    ran = run(sim, how, tools=TOOLS)
    assert ran.text == "I write it now. Here:"
    assert ran.items[-2:] == ["message", "function_call"]
    assert (ran.said.output[-1].arguments, ran.said.output[-1].status) == (ARGS, "completed")
    assert ran.said.status == "completed"
    assert limits(sim) == [1000, TOP]
    assert prompts(sim) == []
    assert ran.kinds.count("response.function_call_arguments.done") == streamed(how)


def test_reasoning_before_a_dropped_call_goes_with_it(sim: Simulator, how: How) -> None:
    sim.script([cut("I write it. ", Thinking("How?"), write(30))])
    ran = run(sim, how, policy=Policy(truncated_tool_call="drop"), max_output_tokens=TOP)
    assert ran.items == ["message"]


def test_a_cut_custom_call_is_never_shown(sim: Simulator, how: How) -> None:
    sim.script([cut("I patch. ", Raw(CUSTOM)), end("I patch. ", Raw(CUSTOM))])
    ran = run(sim, how)
    assert ran.items == ["message", "custom_tool_call"]
    assert ran.said.output[-1].input == "*** Begin"
    sim.reset()
    sim.script([cut("I patch. ", Raw(CUSTOM))])
    assert "custom_tool_call" not in run(sim, how, max_output_tokens=TOP).items


@pytest.mark.parametrize(
    "item",
    [
        {**CUSTOM, "status": "incomplete"},
        {"type": "image_generation_call", "status": "incomplete", "result": "AA=="},
        {"type": "mcp_call", "status": "incomplete", "name": "t", "arguments": "", "output": None},
    ],
    ids=lambda item: str(item["type"]),
)
def test_an_item_that_was_cut_is_never_said_to_be_whole(
    sim: Simulator, how: How, item: dict[str, Any]
) -> None:
    sim.script([cut(Raw(item))])
    ran = run(sim, how, policy=Policy(truncated_tool_call="keep"), max_output_tokens=TOP)
    assert [item.status for item in ran.said.output] == ["incomplete"]
    done = [event.item for event in ran.raw if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == (ran.output if streamed(how) else [])


def test_a_forced_call_that_was_cut_is_escalated(sim: Simulator, how: How) -> None:
    sim.script([cut(write(20)), end(write(), stop="tool_use")])
    ran = run(sim, how, tools=TOOLS, tool_choice="required")
    assert (ran.items, ran.said.output[0].arguments) == (["function_call"], ARGS)
    sim.reset()
    sim.script([cut("I could also say that")])
    choice = {"type": "function", "name": "Write"}
    ran = run(sim, how, tools=TOOLS, tool_choice=choice, max_output_tokens=TOP)
    assert (ran.text, len(sim.posts)) == ("I could also say that", 1)


def test_reasoning_stays_before_the_message_it_led_to(sim: Simulator, how: How) -> None:
    sim.script([cut(Thinking("One."), "One, "), end(Thinking("More."), "two.")])
    ran = run(sim, how, max_output_tokens=TOP)
    assert (ran.items, ran.text) == (["reasoning", "message"], "One, two.")
    assert ran.said.output[0].encrypted_content
    asked = posts(sim)[1]["input"]
    assert [item["type"] for item in asked] == ["message", "reasoning", "message", "message"]
    assert not any("id" in item for item in asked[1:])


def test_structured_output_is_escalated_or_left(sim: Simulator, how: How) -> None:
    sim.script([cut('{"name": "Ro'), end('{"name": "Rome"}')])
    ran = run(sim, how, text=CITY)
    if streamed(how):  # shown: what goes on from half a document is not taken for granted
        assert ran.text.startswith('{"name": "Ro')
    else:
        assert ran.text == '{"name": "Rome"}'
    sim.reset()
    sim.script([cut('{"name": "Ro'), end('me"}')])
    ran = run(sim, how, text=CITY, max_output_tokens=TOP)
    assert ran.said.status == ("incomplete" if streamed(how) else "completed")
    assert streamed(how) or "text" not in posts(sim)[1]


def test_items_that_are_refused_are_left_out(sim: Simulator, how: How) -> None:
    told = "The encrypted content for item rs_1 could not be verified."
    refusal = Reply(status=400, error=("invalid_request_error", told))
    sim.script([cut(Thinking("Hm."), "The quick brown fo"), refusal, end("x jumps.")])
    ran = run(sim, how, max_output_tokens=TOP)
    assert ran.text == "The quick brown fox jumps."
    assert [item["type"] for item in posts(sim)[2]["input"]] == ["message"] * 3


def test_an_answer_that_failed_at_the_server_counts_as_dropped(sim: Simulator, how: How) -> None:
    sim.script([end("The quick brown fo", stop="failed"), end("x jumps.")])
    ran = run(sim, how)
    assert (ran.text, ran.said.status) == ("The quick brown fox jumps.", "completed")
    assert ran.said.error is None


# --- items ----------------------------------------------------------------------------------


def test_texts_of_one_phase_are_joined_and_others_kept_apart(sim: Simulator, how: How) -> None:
    rest = [phased("x jumps.", "final_answer"), phased("By the way.", "commentary")]
    sim.script([cut(phased("The quick brown fo", "final_answer")), end(*rest)])
    ran = run(sim, how, max_output_tokens=TOP)
    assert [(i.phase, i.content[0].text) for i in ran.said.output] == [
        ("final_answer", "The quick brown fox jumps."),
        ("commentary", "By the way."),
    ]
    sim.reset()
    sim.script(
        [
            cut(phased("Let me look at the fox and ", "commentary")),
            end(phased("It jumps over the dog.", "final_answer")),
        ]
    )
    ran = run(sim, how, max_output_tokens=TOP)
    assert [(i.phase, i.content[0].text) for i in ran.said.output] == [
        ("commentary", "Let me look at the fox and "),
        ("final_answer", "It jumps over the dog."),
    ]
    assert posts(sim)[1]["input"][1]["phase"] == "commentary"


def cited(text: str, start: int, end: int) -> Raw:
    mark = {"type": "url_citation", "url": "u", "title": "t"}
    note = {**mark, "start_index": start, "end_index": end}
    part = {"type": "output_text", "text": text, "annotations": [note]}
    item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return Raw(item)


BEFORE = "The quick brown fox sat under the wide old tree and "
SHORT = "then it jumps. "
LONG = SHORT + "And on it went, day after day. " * 40


@pytest.mark.parametrize(
    ("rest", "text", "marked"),
    [
        (cited(BEFORE[-20:] + SHORT, 25, 33), BEFORE + SHORT, ["quick", "it jumps"]),
        (cited(BEFORE[-20:] + LONG, 25, 33), BEFORE + LONG, ["quick", "it jumps"]),
        (BEFORE + SHORT, BEFORE + SHORT, ["quick"]),
    ],
    ids=["short", "long", "told again"],
)
def test_annotations_move_with_their_text(
    sim: Simulator, how: How, rest: Any, text: str, marked: list[str]
) -> None:
    sim.script([cut(cited(BEFORE, 4, 9)), end(rest)])
    ran = run(sim, how, max_output_tokens=TOP)
    assert ran.text == text
    marks = ran.said.output[0].content[0].annotations
    assert [text[m.start_index : m.end_index] for m in marks] == marked
    shown = [e.annotation for e in ran.raw if e.type.endswith("annotation.added")]
    assert [m.to_dict() for m in shown] == [m.to_dict() for m in marks if streamed(how)]


def test_a_citation_of_text_that_is_told_again_is_shown_once(sim: Simulator, how: How) -> None:
    text = "The quick brown fox sat under the wide old tree. "
    said = cited(text, 4, 9)
    sim.script([cut(said, write(20)), end(said, write(), stop="tool_use")])
    ran = run(sim, how, tools=TOOLS)
    assert ran.items == ["message", "function_call"]
    marks = ran.said.output[0].content[0].annotations
    assert [text[m.start_index : m.end_index] for m in marks] == ["quick"]
    shown = [e.annotation for e in ran.raw if e.type.endswith("annotation.added")]
    assert [m.to_dict() for m in shown] == [m.to_dict() for m in marks if streamed(how)]


def test_a_whole_custom_call_before_a_cut_one_is_kept(sim: Simulator, how: How) -> None:
    whole = Raw({**CUSTOM, "status": "completed", "input": "*** Begin, *** End"})
    half = Raw({**CUSTOM, "call_id": "call_d", "status": "incomplete"})
    sim.script([cut(whole, half)])
    ran = run(sim, how, policy=Policy(truncated_tool_call="drop"), max_output_tokens=TOP)
    assert [(item.type, item.call_id) for item in ran.said.output] == [
        ("custom_tool_call", "call_c")
    ]


def test_what_the_server_ran_itself_is_kept(sim: Simulator, how: How) -> None:
    search = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    sim.script([cut(Raw(search), "The quick brown fo"), end("x jumps.")])
    ran = run(sim, how, max_output_tokens=TOP)
    assert (ran.items, ran.text) == (["web_search_call", "message"], "The quick brown fox jumps.")


def test_usage_is_that_of_one_uncut_turn_or_all_that_was_billed(sim: Simulator, how: How) -> None:
    answers = [cut(Thinking("Hm."), "The quick brown fo"), end("x jumps.")]
    sim.script(answers)
    turn = run(sim, how, max_output_tokens=TOP).said.usage
    sim.reset()
    sim.script(answers)
    ran = run(sim, how, policy=Policy(usage="billed"), max_output_tokens=TOP)
    billed = ran.said.usage
    assert turn.output_tokens == billed.output_tokens == 1 + 5 + 2
    assert turn.output_tokens_details.reasoning_tokens == 1
    assert turn.total_tokens == turn.input_tokens + turn.output_tokens
    assert billed.input_tokens > turn.input_tokens


def test_a_stream_keeps_its_first_id_and_the_callers_words_are_kept(
    sim: Simulator, how: How
) -> None:
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = run(sim, how, max_output_tokens=TOP, metadata={"a": "b"}, instructions="Be brief.")
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="key") as client:
        if how.endswith("stream"):
            half = client.responses.retrieve(ran.said.id)
            assert half.output_text == "The quick brown fo"
        else:  # nobody has the id of that half
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(ran.said.id)
    assert (ran.said.max_output_tokens, ran.said.metadata) == (TOP, {"a": "b"})
    assert (ran.said.store, ran.said.instructions) == (True, "Be brief.")
    assert posts(sim)[1]["instructions"] == "Be brief."
    assert posts(sim)[1]["input"][0] == GO
