"""What a turn promises in every wire format alike, through the real SDKs.

Which row decides, and what it does, is in `tests/engine/test_matrix.py`; what only one format has,
in the folder of that format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors
from support.sdks import chat, gemini, messages, responses
from support.sdks.turn import BOTH, FAST, How, body_of, cut, end, streamed

from continuation import Policy
from continuation.seams.text import choose_anchor
from continuation.simulator import Block, Reply, Scenario, Simulator, ToolUse
from continuation.simulator.model import Ask
from continuation.types import Outcome

LIMIT = 1000
WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}
WHOLE, HALF = ToolUse("Write", WRITE), ToolUse("Write", WRITE, cut=30)


@dataclass(frozen=True)
class Format:
    """How one turn is asked for, and what is called how."""

    ask: Callable[..., Any]
    """Takes the simulator, how, and the limit; then what `run` of the format's driver takes."""
    top: int
    limits: Callable[[Simulator], Sequence[int | None]]
    conversation: str
    output: str
    """The count of what was said."""
    why: Callable[[Any], str]
    """How an answer says that it ended."""
    refused: type[Exception]
    ended: dict[str, str]
    """Ends that are no cut, as the simulator is told them and as the caller sees them."""
    half: Block = HALF


FORMATS = {
    "messages": Format(
        lambda sim, how, limit, **more: messages.run(sim, how, max_tokens=limit, **more),
        128_000,
        messages.limits,
        "messages",
        "output_tokens",
        lambda ran: str(ran.said.stop_reason),
        anthropic.BadRequestError,
        {name: name for name in ("stop_sequence", "refusal", "novel")},
    ),
    "chat": Format(
        lambda sim, how, limit, **more: chat.run(
            sim, how, max_tokens=limit, **counted(how), **more
        ),
        chat.CEILING,
        chat.limits,
        "messages",
        "completion_tokens",
        lambda ran: str(ran.finish),
        openai.BadRequestError,
        {"refusal": "content_filter", "novel": "novel", "repetition": "repetition"},
    ),
    "responses": Format(
        lambda sim, how, limit, **more: responses.run(sim, how, max_output_tokens=limit, **more),
        128_000,
        responses.limits,
        "input",
        "output_tokens",
        lambda ran: str(ran.said.status),
        openai.BadRequestError,
        dict.fromkeys(("refusal", "steered", "max_messages"), "incomplete"),
    ),
    "gemini": Format(
        lambda sim, how, limit, **more: gemini.run(sim, how, limit=limit, **more),
        gemini.CEILING,
        gemini.limits,
        "contents",
        "candidatesTokenCount",
        lambda ran: str(ran.reasons[-1]),
        errors.ClientError,
        {name: name for name in ("SAFETY", "RECITATION")},
        gemini.HALF,
    ),
}


def counted(how: How) -> dict[str, Any]:
    """A stream of Chat tells what was used only to who asks."""
    return {"stream_options": {"include_usage": True}} if streamed(how) else {}


pytestmark = pytest.mark.parametrize("how", BOTH)
formats = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


# --- not ours, not cut --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "stop"),
    [
        pytest.param(form, stop, id=f"{name}-{stop}")
        for name, form in FORMATS.items()
        for stop in form.ended
    ],
)
def test_an_answer_that_is_not_cut_is_returned_as_it_is(
    sim: Simulator, how: How, form: Format, stop: str
) -> None:
    sim.script([end("All of it.", stop=stop)])
    ran = form.ask(sim, how, LIMIT)
    assert (ran.text, form.why(ran)) == ("All of it.", form.ended[stop])
    complete = stop == "stop_sequence"
    assert ran.told.outcome is (Outcome.COMPLETE if complete else Outcome.INCOMPLETE)
    assert len(sim.posts) == 1


@formats
def test_a_small_limit_is_a_budget(sim: Simulator, how: How, form: Format) -> None:
    sim.script([cut("Yes")])
    ran = form.ask(sim, how, 16)
    assert (ran.text, ran.says_cut, len(sim.posts)) == ("Yes", True, 1)
    assert ran.told.outcome is Outcome.UNTOUCHED
    assert "leave_limits_below" in str(ran.told.reason)


@formats
def test_an_error_of_the_first_attempt_is_unchanged(sim: Simulator, how: How, form: Format) -> None:
    sim.script([Reply(status=400, error=("invalid_request_error", "bad thing"))])
    ran = form.ask(sim, how, LIMIT)
    assert isinstance(ran.error, form.refused)
    assert "bad thing" in str(ran.error)
    assert len(sim.posts) == 1


# --- a recovery that is refused -----------------------------------------------------------------

REFUSALS = {"messages": "refusal", "chat": "refusal", "responses": "refusal", "gemini": "SAFETY"}


@pytest.mark.parametrize("said", ["I'm sorry, but I can't help with that.", "抱歉，我不能继续。"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_recovery_that_is_refused_in_words_adds_none_of_them(
    sim: Simulator, how: How, name: str, said: str
) -> None:
    form = FORMATS[name]
    sim.script([cut("The quick brown fo"), end(said, stop=REFUSALS[name])])
    ran = form.ask(sim, how, form.top)
    assert (ran.text, form.why(ran)) == ("The quick brown fo", form.ended[REFUSALS[name]])
    assert (ran.told.outcome, ran.told.synthetic) == (Outcome.PARTIAL, False)
    assert ran.told.reason == "the model refused to continue"


# --- words to the reader ------------------------------------------------------------------------

SAIL = (
    "The ferry leaves the harbour at six, long before the fish market opens. Most passengers are "
)
REST = "islanders who sell their catch across the bay, and all of them are sorry to go."


@pytest.mark.parametrize(
    "said", ["Sorry, my answer was cut off. ", "对不住，刚才断了。", "Hoppla: “"]
)
@formats
def test_words_before_the_anchor_are_no_part_of_the_answer(
    sim: Simulator, how: How, form: Format, said: str
) -> None:
    anchor = choose_anchor(SAIL)
    closing = "”" if said.endswith("“") else ""
    sim.script([cut(SAIL), end(f"{said}{anchor}{closing}{REST}")])
    ran = form.ask(sim, how, form.top)
    assert (ran.text, ran.told.outcome) == (SAIL + REST, Outcome.HEALED)
    [seam] = ran.told.seams
    assert (seam.kind, seam.inserted, seam.taken_back) == ("preamble", 0, 0)


@formats
def test_a_seam_that_nothing_proves_is_called_assumed(
    sim: Simulator, how: How, form: Format
) -> None:
    sim.script([cut(SAIL), end(REST)])
    ran = form.ask(sim, how, form.top)
    assert (ran.text, [seam.kind for seam in ran.told.seams]) == (SAIL + REST, ["assumed"])
    assert "assumed (nothing repeated proves it)" in ran.told.to_html()


# --- at the output limit ------------------------------------------------------------------------


@formats
def test_three_recoveries_and_then_the_real_reason(sim: Simulator, how: How, form: Format) -> None:
    sim.script([cut(f"Part {n} is here, ") for n in range(9)])
    ran = form.ask(sim, how, LIMIT)
    kept = range(4) if streamed(how) else range(1, 5)  # of a body the first is asked for again
    assert ran.text == "".join(f"Part {n} is here, " for n in kept)
    assert len(sim.posts) == kept.stop
    assert (ran.told.outcome, ran.says_cut) == (Outcome.TRUNCATED, True)
    assert [attempt.discarded for attempt in ran.told.attempts][:2] == [not streamed(how), False]


@formats
@pytest.mark.parametrize("kept", ["drop", "keep"])
def test_a_call_cut_at_the_ceiling_is_never_recovered(
    sim: Simulator, how: How, form: Format, kept: Any
) -> None:
    sim.script([cut("I write it. ", form.half)])
    ran = form.ask(sim, how, form.top, policy=replace(FAST, truncated_tool_call=kept))
    assert len(said_calls(ran)) == (kept == "keep")
    assert ran.text.startswith("I write it. ")
    assert "Write" not in ran.text
    assert (ran.told.outcome, ran.says_cut) == (Outcome.TRUNCATED, True)
    assert len(sim.posts) == 1


def said_calls(ran: Any) -> list[Any]:
    """Half a call has no arguments that a program could read."""
    if isinstance(ran, messages.Ran):
        return [block for block in ran.said.content if block.type == "tool_use"]
    if isinstance(ran, responses.Ran):
        return [item for item in ran.said.output if item.type == "function_call"]
    return list(ran.calls)


@formats
def test_guidance_asks_for_smaller_pieces(sim: Simulator, how: How, form: Format) -> None:
    small = {"path": "a.txt", "content": "hello"}
    sim.script(
        [
            cut("I write it. ", form.half),
            end("In pieces.", ToolUse("Write", small), stop="tool_use"),
        ]
    )
    policy = replace(FAST, truncated_tool_call="retry_smaller")
    ran = form.ask(sim, how, form.top, policy=policy)
    assert ran.tool_calls == [("Write", small)]
    last = body_of(sim.posts[1])[form.conversation][-1]
    assert (last["role"], "Write" in json.dumps(last)) == ("user", True)
    assert (ran.says_cut, len(sim.posts)) == (False, 2)


@formats
def test_a_cut_call_alone_leaves_no_empty_answer(sim: Simulator, how: How, form: Format) -> None:
    sim.script([cut(form.half)])
    ran = form.ask(sim, how, form.top, policy=replace(FAST, truncated_tool_call="drop"))
    assert ran.text
    assert ran.tool_calls == []


@formats
def test_a_regenerated_text_that_differs_gives_only_its_calls(
    sim: Simulator, how: How, form: Format
) -> None:
    sim.script([cut("I write it now. ", form.half), end("Let me write.", WHOLE, stop="tool_use")])
    ran = form.ask(sim, how, LIMIT)
    assert ran.text == ("I write it now. " if streamed(how) else "Let me write.")
    assert ran.tool_calls == [("Write", WRITE)]


@formats
def test_several_calls_come_from_one_answer_only(sim: Simulator, how: How, form: Format) -> None:
    read = ToolUse("Read", {"path": "b.txt"})
    sim.script([cut("Two. ", read, form.half), end("Two. ", read, WHOLE, stop="tool_use")])
    ran = form.ask(sim, how, LIMIT)
    assert ran.text == "Two. "
    assert ran.tool_calls == [("Read", {"path": "b.txt"}), ("Write", WRITE)]


@formats
def test_a_cut_call_in_a_recovery_ends_it(sim: Simulator, how: How, form: Format) -> None:
    first = [] if streamed(how) else [cut("dropped")]
    sim.script([*first, cut("One fine day, "), cut("two of us "), cut("went. ", form.half)])
    ran = form.ask(sim, how, LIMIT)
    assert ran.text.startswith("One fine day, two of us went. ")
    assert ran.tool_calls == []
    assert len(sim.posts) == len(first) + 3


# --- what fails ---------------------------------------------------------------------------------


@formats
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_recovery_is_a_synthetic_stop(
    sim: Simulator, how: How, form: Format, status: int
) -> None:
    sim.script([cut("What we hold "), *[Reply(status=status)] * 3])
    ran = form.ask(sim, how, form.top)
    assert (ran.text, ran.says_cut) == ("What we hold ", False)
    assert (ran.told.outcome, ran.told.reason) == (Outcome.PARTIAL, "recovery failed")
    assert ran.told.synthetic
    assert str(status) in str(ran.told.error)
    assert len(sim.posts) == 4


@formats
def test_on_failure_truth_tells_the_truth(sim: Simulator, how: How, form: Format) -> None:
    sim.script([cut("What we hold "), Reply(status=400)])
    policy = replace(FAST, on_failure="truncated")
    assert form.ask(sim, how, form.top, policy=policy).says_cut


@formats
def test_a_retried_recovery_succeeds(sim: Simulator, how: How, form: Format) -> None:
    wait = Reply(status=429, headers={"retry-after-ms": "1"})
    sim.script([cut("One, two, "), wait, Reply(status=503), end("three.")])
    ran = form.ask(sim, how, form.top)
    assert ran.text == "One, two, three."
    events = ["Truncated", "Recovering", "Retrying", "Retrying", "Finished"]
    assert [type(event).__name__ for event in ran.events] == events


@formats
def test_a_failed_escalation_goes_on_from_the_partial(
    sim: Simulator, how: How, form: Format
) -> None:
    if streamed(how):
        pytest.skip("shown text is not escalated")
    sim.script([cut("One, two, "), Reply(status=403), end("three.")])
    ran = form.ask(sim, how, LIMIT)
    assert (ran.text, ran.told.outcome) == ("One, two, three.", Outcome.HEALED)


@formats
def test_a_shorter_escalation_loses(sim: Simulator, how: How, form: Format) -> None:
    if streamed(how):
        pytest.skip("shown text is not escalated")
    long = "a long and useful text that goes "
    sim.script([cut(long), cut("short "), end("on.")])
    assert form.ask(sim, how, LIMIT).text == long + "on."


@formats
def test_a_failed_escalation_of_a_call_is_explained(sim: Simulator, how: How, form: Format) -> None:
    sim.script([cut("I write. ", form.half), Reply(status=400)])
    ran = form.ask(sim, how, LIMIT)
    assert (ran.tool_calls, ran.says_cut) == ([], True)
    assert "Write" in ran.text


@pytest.mark.parametrize("name", ["messages", "chat", "responses"])  # Gemini's API cuts it down
def test_a_limit_above_the_ceiling_is_a_lesson(how: How, name: str) -> None:
    form = FORMATS[name]
    with Simulator(scenario=Scenario(ceiling=4096, models_endpoint=False)) as sim:
        sim.script([cut("The quick brown fo"), end("The quick brown fox jumps.")])
        ran = form.ask(sim, how, LIMIT)
        assert form.limits(sim) == [LIMIT, form.top, 4096]
        assert (ran.text, ran.told.outcome) == ("The quick brown fox jumps.", Outcome.HEALED)


class Sparing(Simulator):
    """Gives no more than `most` tokens, and says so in words of its own."""

    most, status = 0, 400

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        if ask.limit > self.most:
            said = "invalid_request_error", "You ask too much of us."
            return Reply(status=self.status, error=said)
        return super()._reply(ask, scenario, attempt)


@formats
@pytest.mark.parametrize(("most", "status"), [(LIMIT, 400), (12_000, 402), (12_000, 422)])
def test_a_limit_that_is_refused_in_words_nobody_knows_is_lowered(
    how: How, form: Format, most: int, status: int
) -> None:
    with Sparing() as sim:
        sim.most, sim.status = most, status
        gone_on = [cut("brown "), end("fox jumps.")]
        anew = most > LIMIT and not streamed(how)
        sim.script([cut("The quick "), *([end("The quick brown fox jumps.")] if anew else gone_on)])
        ran = form.ask(sim, how, LIMIT)
        assert (ran.text, ran.told.outcome) == ("The quick brown fox jumps.", Outcome.HEALED)
        taken = [limit for limit in form.limits(sim) if limit and limit <= most]
        assert all(later == taken[-1] for later in taken[1:])
        assert (taken[-1] == LIMIT) == (most == LIMIT)


@formats
def test_an_error_event_counts_as_a_drop(sim: Simulator, how: How, form: Format) -> None:
    if not streamed(how):
        pytest.skip("a body has no events")
    sim.script([end("The quick brown fox jumps", deltas=4, error_after=5), end(" on.")])
    ran = form.ask(sim, how, LIMIT)
    assert ran.text.startswith("The ")
    assert ran.text.endswith(" on.")
    assert ran.told.outcome is Outcome.HEALED


@formats
def test_an_error_event_that_would_be_told_again_is_the_callers(
    sim: Simulator, how: How, form: Format
) -> None:
    if not streamed(how):
        pytest.skip("a body has no events")
    wrong = Reply(error_after=0, error=("invalid_request_error", "bad thing"))
    sim.script([wrong, end("never asked for")])
    ran = form.ask(sim, how, LIMIT)
    assert ran.error is not None
    assert len(sim.posts) == 1


@formats
def test_half_a_call_in_a_dropped_recovery_is_forgotten(
    sim: Simulator, how: How, form: Format
) -> None:
    dropped = end(form.half, stop="tool_use", deltas=6, drop=1 if form is FORMATS["gemini"] else 6)
    sim.script([cut("One fine day "), dropped, end("all was well.")])
    ran = form.ask(sim, how, form.top)
    assert (ran.text, ran.tool_calls) == ("One fine day all was well.", [])


# --- budgets, labels, memory --------------------------------------------------------------------


@formats
@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (Policy(max_attempts=2), 2),
        (Policy(max_turn_output_tokens=1), 1),
        (Policy(max_recoveries=0, escalate=False), 1),
        (Policy(max_recoveries=1, escalate=False), 2),
    ],
)
def test_a_spent_budget_returns_what_we_hold(
    sim: Simulator, how: How, form: Format, policy: Policy, calls: int
) -> None:
    sim.script([cut(f"Part {n} of it, ") for n in range(9)])
    ran = form.ask(sim, how, LIMIT, policy=policy)
    assert (len(sim.posts), ran.says_cut) == (calls, True)
    assert ran.told.outcome in {Outcome.PARTIAL, Outcome.TRUNCATED}


@formats
@pytest.mark.parametrize("believed", [False, True])
def test_a_label_that_lies_about_text_is_seen_through_unless_policy_believes_it(
    sim: Simulator, how: How, form: Format, believed: bool
) -> None:
    sim.script([end("The quick bro", usage={form.output: form.top}), end("wn fox.")])
    ran = form.ask(sim, how, form.top, policy=replace(FAST, verify_stop_reason=not believed))
    outcome = Outcome.COMPLETE if believed else Outcome.HEALED
    text = "The quick bro" if believed else "The quick brown fox."
    assert (ran.text, ran.told.outcome) == (text, outcome)


@formats
def test_a_full_limit_that_ends_well_is_left_alone(sim: Simulator, how: How, form: Format) -> None:
    sim.script([end("The quick brown fox.", usage={form.output: LIMIT})])
    ran = form.ask(sim, how, LIMIT)
    assert (ran.told.outcome, len(sim.posts)) == (Outcome.COMPLETE, 1)
