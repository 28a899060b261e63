"""Every decision of the Gemini dialect, through the real SDK: streamed and not, sync and async."""

from __future__ import annotations

from typing import Any

import pytest
from support.sdks.gemini import CEILING, DOORS, LONG, NEW, OLD, Door, Ran, limits, run, speakers
from support.sdks.turn import BOTH, How, body_of, cut, end, streamed

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.simulator import Reply, Scenario, Simulator, Thinking, ToolUse
from continuation.types import Outcome

pytestmark = [pytest.mark.parametrize("how", BOTH)]

WRITE = {"path": "a.txt", "content": "hello world, this is the whole file"}


def prompts(sim: Simulator) -> list[str]:
    """Return our own prompts in the last request."""
    contents = body_of(sim.posts[-1])["contents"]
    texts = [part.get("text", "") for content in contents for part in content["parts"]]
    return [text for text in texts if looks_like_recovery_prompt(text)]


def is_one_turn(ran: Ran, text: str) -> bool:
    """Whether a chat remembers what was asked and one answer that is not empty."""
    answer = "".join(p.text or "" for c in ran.history[1:] for p in c.parts or [] if not p.thought)
    return speakers(ran) == ["user", "model"] and answer == text


# --- not ours, not cut -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [{"candidate_count": 2}, {"response_modalities": ["TEXT", "IMAGE"]}]
)
def test_several_answers_and_pictures_pass(
    sim: Simulator, how: How, setting: dict[str, Any]
) -> None:
    sim.script([cut("Once")])
    ran = run(sim, how, model="gemini-2.5-flash", **setting)
    assert ran.told.outcome is Outcome.UNTOUCHED
    assert ran.reasons[-1] == "MAX_TOKENS"
    assert len(sim.posts) == 1


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", [NEW, OLD])
def test_shown_text_is_recovered_at_the_ceiling(
    sim: Simulator, how: How, door: Door, model: str
) -> None:
    limit = 1000 if streamed(how) else CEILING
    sim.script([cut("The quick brown fo"), end("x jumps.")])
    ran = run(sim, how, door=door, limit=limit, model=model)
    assert (ran.text, ran.reasons) == ("The quick brown fox jumps.", ["STOP"])
    assert limits(sim) == [limit, CEILING]
    assert len(prompts(sim)) == (model == NEW)
    assert sim.posts[-1].path.endswith(":streamGenerateContent")
    assert sim.posts[-1].query == "alt=sse"
    assert door == "models" or is_one_turn(ran, ran.text)


def test_without_a_limit_a_cut_answer_is_escalated_to_the_ceiling(sim: Simulator, how: How) -> None:
    sim.script([cut(Thinking("Hm", tokens=8000)), end("Whole.")])
    ran = run(sim, how, limit=None)
    assert ran.text == "Whole."
    assert limits(sim) == [None, CEILING]


def test_a_refused_prefill_becomes_a_user_turn_once(sim: Simulator, how: How) -> None:
    refusal = ("invalid_request_error", "Requests ending with a model turn are not supported.")
    said = ["The quick brown fo"]
    sim.script([cut(*said), Reply(status=400, error=refusal), end("x jumps.")])
    ran = run(sim, how, limit=CEILING, model=OLD)
    assert ran.text == "The quick brown fox jumps."
    roles = [body_of(post)["contents"][-1]["role"] for post in sim.posts]
    assert roles == ["user", "model", "user"]


def test_a_recovery_that_is_refused_keeps_what_there_is(sim: Simulator, how: How) -> None:
    sim.script([cut("One fine day, "), end("all ", stop="RECITATION")])
    ran = run(sim, how, limit=CEILING)
    assert (ran.text, ran.reasons) == ("One fine day, all ", ["RECITATION"])
    assert ran.told.reason == "the model refused to continue"


def test_a_refusal_in_words_is_not_joined_to_the_answer(sim: Simulator, how: How) -> None:
    sim.script([cut("One fine day, "), end("I can't continue with this. ", stop="SAFETY")])
    ran = run(sim, how, limit=CEILING)
    assert (ran.text, ran.reasons) == ("One fine day, ", ["SAFETY"])


def test_structured_output_is_only_escalated(sim: Simulator, how: How) -> None:
    schema: Any = {"response_mime_type": "application/json", "response_schema": {"type": "OBJECT"}}
    whole = '{"a": "the whole of it"}'
    first = cut(Thinking("Hm", tokens=900)) if streamed(how) else cut('{"a": "the')
    sim.script([first, end(whole)])
    ran = run(sim, how, **schema)
    assert (ran.text, limits(sim)) == (whole, [1000, CEILING])
    sim.script([cut('{"a": "the')])
    ran = run(sim, how, limit=CEILING, **schema)
    assert (ran.text, ran.reasons) == ('{"a": "the', ["MAX_TOKENS"])
    assert prompts(sim) == []


def test_a_malformed_call_at_the_cap_is_a_truncated_one(sim: Simulator, how: How) -> None:
    usage = {"candidatesTokenCount": 1000}
    malformed = end("I write. ", stop="MALFORMED_FUNCTION_CALL", usage=usage)
    sim.script([malformed, end("I write. ", ToolUse("Write", WRITE))])
    ran = run(sim, how)
    assert [call.args for call in ran.calls] == [WRITE]
    assert (ran.text, ran.reasons) == ("I write. ", ["STOP"])
    assert limits(sim) == [1000, CEILING]


def test_a_malformed_call_that_stays_so_is_told_in_the_providers_word(
    sim: Simulator, how: How
) -> None:
    usage = {"candidatesTokenCount": CEILING}
    sim.script([end(stop="MALFORMED_FUNCTION_CALL", usage=usage)])
    ran = run(sim, how, limit=CEILING)
    assert ran.reasons == ["MALFORMED_FUNCTION_CALL"]
    assert ran.calls == []
    assert ran.told.outcome is Outcome.TRUNCATED


# --- ceilings --------------------------------------------------------------------------------


def test_the_models_endpoint_is_asked_once_and_only_after_a_cut(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), end("three.")])
    ran = run(sim, how)
    asked = [(r.path, r.query, r.status) for r in sim.requests if r.method == "GET"]
    assert asked == [(f"/v1/models/{NEW}", "", 200)]
    assert ran.told.outcome is Outcome.HEALED


def test_vertex_names_its_ceiling_in_the_refusal(how: How) -> None:
    with Simulator(scenario=Scenario(ceiling=20_000)) as sim:
        sim.script([cut(Thinking("Hm", tokens=1000)), end("Whole.")])
        ran = run(sim, how, vertex=True)
        assert ran.text == "Whole."
        assert limits(sim) == [1000, CEILING, 20_000]
        assert [r for r in sim.requests if r.method == "GET"] == []


def test_the_window_is_shared_with_the_input(how: How) -> None:
    with Simulator(scenario=Scenario(tokens=False)) as sim:
        sim.script([cut(Thinking("Hm", tokens=1000)), end("Whole.")])
        ran = run(sim, how, model=LONG, contents="word " * 4000)
        assert ran.text == "Whole."
        prompt = ran.usage.prompt_token_count or 0
        assert limits(sim) == [1000, 1_048_576 - prompt - 1024]


# --- usage and headers -----------------------------------------------------------------------


@pytest.mark.parametrize("usage", ["turn", "billed"])
def test_usage_is_the_turns_or_all_that_was_billed(sim: Simulator, how: How, usage: str) -> None:
    policy = Policy(usage=usage)  # type: ignore[arg-type]
    first = {"promptTokenCount": 100, "candidatesTokenCount": 900, "thoughtsTokenCount": 100}
    second = {"promptTokenCount": 120, "candidatesTokenCount": 500, "thoughtsTokenCount": None}
    sim.script([cut("One, two, ", usage=first), end("three.", usage=second)])
    ran = run(sim, how, policy=policy, limit=CEILING)
    told = ran.usage
    assert told.prompt_token_count == (100 if usage == "turn" else 220)
    assert (told.candidates_token_count, told.thoughts_token_count) == (1400, 100)
    assert told.total_token_count == (told.prompt_token_count or 0) + 1500
    assert ran.told.billed.output == 1500


def test_the_answer_keeps_the_id_of_the_first_attempt(sim: Simulator, how: How) -> None:
    sim.script([cut("One, two, "), end("three.")])
    ran = run(sim, how, limit=CEILING)
    assert len({chunk.response_id for chunk in ran.chunks}) == 1
    assert {chunk.model_version for chunk in ran.chunks} == {NEW}
