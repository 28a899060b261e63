"""A broken session heals in one extra request, whichever provider and SDK it is for."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
from support.notation import read
from support.sdks.histories import DIALECTS, MODELS, Ran, converse, history, send
from support.sdks.turn import BOTH, How

from continuation import Policy
from continuation.history import OpenCall, Reason, validate
from continuation.history.wordings import WORDINGS
from continuation.simulator import Reply, Scenario, Simulator, Text
from continuation.types import Outcome

KILLED = "U:run A[c:a] U:there?"
"""The agent was killed while its tool ran: every message is answered 400 from then on."""

BROKEN = {
    "killed while a tool ran": KILLED,
    "two calls, one result": "U:run A[c:a,c:b] R:a U:and?",
    "killed twice": "U:run A[c:a] U:again A[c:b] U:and?",
    "the agent spoke and called, then died": "U:run A[t:sure,c:a] U:there?",
    "a result whose call is gone": "U:go A[t:yes] R:q U:and?",
    "a result that arrived twice": "U:go A[c:a] R:a R:a U:and?",
    "a result at the head": "R:q U:go A[t:yes] U:and?",
}
CACHED = {"cache_control": {"type": "ephemeral"}}
REFUSED = "messages: `tool_use` ids were found without `tool_result` blocks immediately after: a"
UNSIGNED = {"thinking": "Hm", "signature": ""}
DISPLACED = "U:go A[c:a] U:wait R:a U:and?"

EVERY = pytest.mark.parametrize("dialect", DIALECTS)


def _healed(ran: Ran, dialect: str) -> None:
    assert ran.error is None
    assert ran.text == "All is well."
    assert ran.statuses == [400, 200]
    model = MODELS[dialect]
    assert validate(ran.sent[1], dialect, live=False, model=model) == []
    assert ran.told.outcome is Outcome.COMPLETE
    assert ran.told.repairs
    assert next(type(event).__name__ for event in ran.events) == "Repairing"


@EVERY
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("name", BROKEN)
def test_a_refused_history_is_repaired_and_sent_again_once(
    name: str, dialect: str, how: How
) -> None:
    with Simulator(answer="All is well.") as sim:
        _healed(send(sim, dialect, history(dialect, BROKEN[name]), how=how), dialect)


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("said", [{"type": "text", "text": ""}, {"type": "thinking", **UNSIGNED}])
def test_an_empty_text_and_unsigned_thinking_are_repaired_as_well(
    said: dict[str, Any], how: How
) -> None:
    yes = [{"type": "text", "text": "Yes."}] if said["type"] == "thinking" else []
    body = history("anthropic", "U:go A[t:yes] U:and?")
    body["messages"][1]["content"] = [said, *yes]
    with Simulator(answer="All is well.") as sim:
        _healed(send(sim, "anthropic", body, how=how), "anthropic")


@pytest.mark.parametrize("how", BOTH)
def test_a_system_message_whose_answer_was_interrupted_is_brought_behind_the_next_question(
    how: How,
) -> None:
    """Agents send one behind the user's; interrupted, it stands between two of the user's."""
    system = {"role": "system", "content": "Be brief."}
    body = history("anthropic", "U:go U:stop")
    body["messages"].insert(1, system)
    with Simulator(answer="All is well.") as sim:
        ran = send(sim, "anthropic", body, how=how)
        _healed(ran, "anthropic")
        assert ran.sent[1]["messages"][-1] == system


def test_another_400_is_none_of_ours() -> None:
    refusal = Reply(status=400, error=("invalid_request_error", "prompt is too long: 9 > 8"))
    with Simulator() as sim:
        sim.script([refusal])
        ran = send(sim, "anthropic", history("anthropic", "U:go"))
        assert (ran.statuses, type(ran.error).__name__) == ([400], "BadRequestError")


@EVERY
def test_a_healed_history_can_be_cut_and_healed(dialect: str) -> None:
    story = "".join(f"Line {n} of the story.\n" for n in range(300))
    with Simulator(answer=story) as sim:
        ran = send(sim, dialect, history(dialect, KILLED), how="sync-stream")
        assert ran.text == story
        assert len(ran.sent) > 2


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d != "openai-responses"])
def test_a_result_that_is_not_beside_its_call_is_brought_there(dialect: str) -> None:
    with Simulator(answer="All is well.") as sim:
        ran = send(sim, dialect, history(dialect, DISPLACED))
        _healed(ran, dialect)
        assert read(dialect, _bare(ran.sent[1])) == "U:go A[c:a] R:a U:wait U:and?"


@EVERY
def test_nothing_the_user_or_a_tool_said_is_lost(dialect: str) -> None:
    with Simulator(answer="All is well.") as sim:
        ran = send(sim, dialect, history(dialect, "U:run A[t:sure,c:a,c:b] R:b U:there?"))
        made = read(dialect, _bare(ran.sent[1]))
        wanted = {"U:run A[t:sure,c:a,c:b] R*:a R:b U:there?"}
        wanted |= {"U:run A[t:sure,c:a,c:b] R:b R*:a U:there?"}
        assert made in wanted


@EVERY
def test_the_conversation_goes_on_after_it_was_healed(dialect: str) -> None:
    """Each later message brings the broken history along again, and each is healed."""
    with Simulator(answer="All is well.") as sim:
        for line in (KILLED, f"{KILLED} A[t:yes] U:more", f"{KILLED} A[c:b] R:b"):
            assert send(sim, dialect, history(dialect, line)).text == "All is well."


@EVERY
def test_vector_101_the_same_error_again_is_raised_unchanged_with_a_note_of_what_was_tried(
    dialect: str,
) -> None:
    refusal = Reply(status=400, error=("invalid_request_error", REFUSED))
    with Simulator() as sim:
        sim.script([refusal, refusal, Reply([])])
        ran = send(sim, dialect, history(dialect, KILLED))
        assert ran.statuses == [400, 400]
        assert REFUSED in str(ran.error)
        assert ran.told.outcome is Outcome.FAILED
        assert ran.told.reason == "status 400 after the history was repaired"
        named = "400 INVALID_ARGUMENT" if dialect == "gemini" else "400 invalid_request_error"
        errors = [attempt.error for attempt in ran.told.attempts]
        assert errors == ["400 tool_result_missing", named]
        assert ran.told.repairs


@EVERY
def test_a_valid_request_is_never_repaired(dialect: str) -> None:
    refusal = Reply(status=400, error=("invalid_request_error", REFUSED))
    with Simulator() as sim:
        sim.script([refusal])
        ran = send(sim, dialect, history(dialect, "U:run A[c:a] R:a U:there?"))
        assert ran.statuses == [400]
        assert ran.told.repairs == ()


@EVERY
@pytest.mark.parametrize(
    ("repair", "line", "limit", "statuses"),
    [
        # A small limit makes it a budget that is not ours to raise; its history is all the same.
        ("on_error", f"{KILLED} U:summarise", 100, [400, 200]),
        ("before_send", KILLED, 1000, [200]),
        ("off", KILLED, 1000, [400]),
    ],
    ids=["compaction", "before_send", "off"],
)
def test_when_a_history_is_repaired_is_for_the_policy_to_say(
    dialect: str, repair: Any, line: str, limit: int, statuses: list[int]
) -> None:
    with Simulator(answer="All is well.") as sim:
        policy = Policy(repair=repair)
        ran = send(sim, dialect, history(dialect, line), policy=policy, limit=limit)
    assert (ran.statuses, ran.error is None) == (statuses, repair != "off")
    assert ran.text == ("" if ran.error else "All is well.")


def test_what_only_the_provider_sees_is_mended_after_before_send_too() -> None:
    """The open call is closed before sending; the refusal is about something else, once."""
    refusal = Reply(
        status=400, error=("invalid_request_error", "Invalid `signature` in `thinking` block")
    )
    body = history("anthropic", "U:x A[th+,t:y] U:run A[c:a] U:z")
    with Simulator(answer="All is well.") as sim:
        sim.script([refusal, Reply([Text("Yes.")])])
        ran = send(sim, "anthropic", body, policy=Policy(repair="before_send"))
        assert ran.statuses == [400, 200]
        assert "thinking" not in str(ran.sent[1]["messages"])


@EVERY
def test_vector_103_auto_resume_says_one_short_thing_for_the_user(dialect: str) -> None:
    for policy, said in ((Policy(), False), (Policy(auto_resume=True), True)):
        with Simulator(answer="On we go.") as sim:
            ran = send(sim, dialect, history(dialect, "U:run A[c:a]"), policy=policy)
            assert ran.text == "On we go."
            assert str(ran.sent[-1]).count("Please go on.") == said


@EVERY
def test_quiet_is_quiet(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    for policy, lines in ((Policy(), 1), (Policy(log_repairs=False), 0)):
        caplog.clear()
        with Simulator(answer="Yes.") as sim, caplog.at_level(logging.WARNING, "continuation"):
            ran = send(sim, dialect, history(dialect, KILLED), policy=policy)
        assert len(caplog.records) == lines
        assert "there?" not in caplog.text
        assert "Repairing" in [type(event).__name__ for event in ran.events]


@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("deepseek", "deepseek-chat"),
        ("moonshot", "kimi-k2-0905-preview"),
        ("mistral", "mistral-large-latest"),
        ("openai", "gpt-4o"),
    ],
)
@pytest.mark.parametrize("name", BROKEN)
def test_each_vendor_s_own_words_are_understood(name: str, vendor: str, model: str) -> None:
    with Simulator(answer="All is well.", scenario=Scenario(vendor=vendor)) as sim:
        ran = send(sim, "openai-chat", history("openai-chat", BROKEN[name]), model=model)
        assert (ran.text, ran.statuses) == ("All is well.", [400, 200])


# --- once is enough -------------------------------------------------------------------------------


@EVERY
def test_the_same_history_is_mended_before_it_is_refused_again_and_told_once(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One client; each later turn brings the broken history along and costs one request."""
    later = [f"{KILLED} A[t:yes] U:more", f"{KILLED} A[t:yes] U:more A[t:yes] U:on"]
    bodies = [history(dialect, line) for line in (KILLED, *later)]
    if dialect == "anthropic":  # where a cache is to begin moves from turn to turn
        for body, more in zip(bodies, (CACHED, {}, {}), strict=True):
            body["messages"][2]["content"] = [{"type": "text", "text": "there?", **more}]
    with Simulator(answer="All is well.") as sim, caplog.at_level("WARNING", "continuation"):
        ran = converse(sim, dialect, bodies)
    assert [turn.statuses for turn in ran] == [[400, 200], [200], [200]]
    assert [turn.text for turn in ran] == ["All is well."] * 3
    assert all(turn.told.repairs for turn in ran)
    assert len(caplog.records) == 1


def test_thinking_that_was_refused_is_left_out_of_later_turns_before_they_are_sent() -> None:
    """Only the provider saw the fault; and another key is another memory."""
    refusal = Reply(
        status=400, error=("invalid_request_error", "Invalid `signature` in `thinking` block")
    )
    line = "U:x A[th+,t:y] U:z"
    bodies = [history("anthropic", each) for each in (line, f"{line} A[t:w] U:v")]
    with Simulator(answer="Yes.") as sim:
        sim.script([refusal, Reply([Text("Yes.")]), Reply([Text("Yes.")])])
        ran = converse(sim, "anthropic", bodies)
        assert [turn.statuses for turn in ran] == [[400, 200], [200]]
        assert "thinking" not in str(ran[1].sent[0]["messages"])


SIGNATURES = {
    "anthropic": ("Invalid `signature` in `thinking` block", "'signature'"),
    "openai-responses": (
        "The encrypted content for item rs_1 could not be verified.",
        "encrypted_content",
    ),
    "gemini": ("Thought signature is not valid.", "'Zm9v'"),
}
"""Per format the error, and what a thought is sealed with."""


@pytest.mark.parametrize("dialect", SIGNATURES)
@pytest.mark.parametrize("mode", ["adaptive", "enabled"])
def test_thinking_after_a_refused_signature_stays_in_every_later_turn(
    dialect: str, mode: str
) -> None:
    """Ten signed tool loops follow the one request that was refused."""
    words, seal = SIGNATURES[dialect]
    line = "U:x A[th+,c:a0] R:a0 A[t:y] U:z"
    bodies = [history(dialect, line)]
    for n in range(1, 11):
        line += f" A[th+,c:a{n}] R:a{n}"
        bodies.append(history(dialect, line))
        line += f" A[t:y] U:on{n}"
        bodies.append(history(dialect, line))
    if dialect == "anthropic":
        budget = {"budget_tokens": 1024} if mode == "enabled" else {}
        bodies = [{**body, "thinking": {"type": mode, **budget}} for body in bodies]
    for content in (content for body in bodies for content in body.get("contents", ())):
        for part in content["parts"]:  # Gemini signs calls as well
            part.update({"thoughtSignature": "Zm9v"} if "functionCall" in part else {})
    error = ("invalid_request_error", words)
    with Simulator() as sim:
        sim.script([Reply(status=400, error=error), *[Reply([Text("Yes.")])] * 21])
        ran = converse(sim, dialect, bodies, limit=2000)
    assert [turn.statuses for turn in ran] == [[400, 200], *[[200]] * 20]
    thoughts = [str(turn.sent[-1]).count(seal) for turn in ran]
    per_loop = 2 if dialect == "gemini" else 1
    assert thoughts == [0, *[n * per_loop for n in range(1, 11) for _ in range(2)]]
    if dialect == "anthropic":
        assert {turn.sent[-1]["thinking"]["type"] for turn in ran} == {mode}


@EVERY
@pytest.mark.parametrize("status", [429, 503])
def test_a_repair_that_meets_a_busy_server_is_tried_again(dialect: str, status: int) -> None:
    busy = Reply(status=status, error=("overloaded_error", "Overloaded"))
    with Simulator() as sim:
        sim.script([busy, Reply([Text("All is well.")])])
        ran = send(sim, dialect, history(dialect, KILLED))
        assert (ran.text, ran.statuses) == ("All is well.", [400, status, 200])
        assert ran.told.repairs


# --- open calls: who decides -------------------------------------------------------------------


@EVERY
def test_purge_drops_the_open_call_and_nothing_else(dialect: str) -> None:
    with Simulator(answer="Yes.") as sim:
        body, policy = (
            history(dialect, "U:run A[t:sure,c:a] U:there?"),
            Policy(unanswered_tool_calls="purge"),
        )
        ran = send(sim, dialect, body, policy=policy)
        assert read(dialect, _bare(ran.sent[1])) == "U:run A[t:sure] U:there?"


@EVERY
@pytest.mark.parametrize("repair", ["on_error", "before_send"])
def test_a_callable_is_shown_the_open_calls_once_and_decides_for_each(
    dialect: str, repair: Any
) -> None:
    shown: list[OpenCall] = []

    def decide(calls: tuple[OpenCall, ...]) -> Any:
        shown.extend(calls)
        return {"a": "purge", "b": "synthesize"}

    with Simulator(answer="Yes.") as sim:
        policy = Policy(repair=repair, unanswered_tool_calls=decide)
        ran = send(sim, dialect, history(dialect, "U:run A[c:a,c:b] U:there?"), policy=policy)
        assert ran.text == "Yes."
        assert read(dialect, _bare(ran.sent[-1])) == "U:run A[c:b] R*:b U:there?"
    assert [(call.id, call.name) for call in shown] == [("a", "tool"), ("b", "tool")]


@EVERY
@pytest.mark.parametrize("repair", ["on_error", "before_send"])
def test_a_callable_may_want_a_new_session_then_the_error_stands(dialect: str, repair: Any) -> None:
    times: list[int] = []

    def decide(calls: tuple[OpenCall, ...]) -> Any:
        times.append(len(calls))
        return "new_session"

    with Simulator(answer="Yes.") as sim:
        policy = Policy(repair=repair, unanswered_tool_calls=decide)
        ran = send(sim, dialect, history(dialect, KILLED), policy=policy)
        assert ran.statuses == [400]
        assert ran.error is not None
        assert ran.told.reason == "status 400"
    assert times == [1]


def raises(calls: Any) -> Any:
    raise KeyError("no such call")


async def waits(calls: Any) -> Any:
    return "purge"


class Thing:
    def __call__(self, calls: Any) -> Any:
        raise OSError("no terminal")

    def of_it(self, calls: Any) -> Any:
        return self(calls)


FAILING: dict[str, tuple[Any, str]] = {
    "raises": (raises, "the function raises raised KeyError: 'no such call'"),
    "method": (Thing().of_it, "the function Thing.of_it raised OSError: no terminal"),
    "object": (Thing(), "the function Thing raised OSError: no terminal"),
    "partial": (functools.partial(raises), "the function partial raised KeyError"),
    "coroutine": (waits, "the function waits raised TypeError: it is a coroutine function"),
    "typo": (lambda calls: "purges", "returned no decision: ask= returned 'purges'; return one of"),
    "none": (lambda calls: None, "returned no decision: ask= returned None; return one of"),
    "number": (lambda calls: {"a": 3}, "returned no decision: ask= returned 3; return one of"),
    "empty": (lambda calls: " ", "returned no decision: ask= returned ' '; return one of"),
}


@EVERY
@pytest.mark.parametrize("repair", ["on_error", "before_send"])
@pytest.mark.parametrize("how", ["sync", "async-stream"])
@pytest.mark.parametrize("name", FAILING)
def test_a_function_of_the_callers_that_fails_is_named_and_the_provider_s_error_stands(
    dialect: str, repair: Any, how: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    function, said = FAILING[name]
    with Simulator(answer="Yes.") as sim:
        policy = Policy(repair=repair, unanswered_tool_calls=function)
        ran = send(sim, dialect, history(dialect, KILLED), policy=policy, how=how)
        assert ran.statuses == [400]
        assert ran.error is not None
        assert not isinstance(ran.error, (KeyError, OSError))
    assert said in str(ran.told.reason)
    assert str(ran.told.reason).startswith("status 400; unanswered_tool_calls, the function ")
    assert said in caplog.text
    assert "internal error" not in caplog.text


@EVERY
@pytest.mark.parametrize("repair", ["on_error", "before_send"])
def test_a_callable_may_give_the_reason_which_becomes_the_result(dialect: str, repair: Any) -> None:
    def decide(calls: tuple[OpenCall, ...]) -> Any:
        return {"a": "Cancelled by the user.", "b": "rejected_by_user"}

    with Simulator(answer="Yes.") as sim:
        policy = Policy(repair=repair, unanswered_tool_calls=decide)
        ran = send(sim, dialect, history(dialect, "U:run A[c:a,c:b] U:there?"), policy=policy)
        assert ran.text == "Yes."
        sent = str(ran.sent[-1])
    assert sent.count("Cancelled by the user.") == 1
    assert str(WORDINGS[Reason.REJECTED]).replace("{name}", "tool")[:30] in sent


def test_a_policy_takes_the_words_or_a_callable() -> None:
    with pytest.raises(ValueError, match="choose one of 'synthesize', 'purge', or a callable"):
        Policy(unanswered_tool_calls="ask")  # type: ignore[arg-type]


def _bare(body: dict[str, Any]) -> dict[str, Any]:
    """The history alone, as `read` wants it."""
    field = next(key for key in ("messages", "input", "contents") if key in body)
    return {field: body[field]}
