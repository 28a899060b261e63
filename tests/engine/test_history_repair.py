"""A broken session heals in one extra request, and the conversation goes on."""

from __future__ import annotations

import logging
from typing import Any

import anthropic
import pytest
from support.sdks.messages import NEW, run
from support.sdks.turn import HOWS, How, body_of

from continuation import Policy
from continuation.history import validate
from continuation.simulator import Reply, Simulator, Text
from continuation.types import Outcome

TOOLS: list[Any] = [{"name": "Bash", "input_schema": {"type": "object"}}]


def use(number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"n": number}}


def user(*blocks: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": list(blocks) if blocks and isinstance(blocks[0], dict) else blocks[0],
    }


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def result(number: int) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "done"}


KILLED = [user("Run it."), assistant(use(1)), user("Are you there?")]
"""Claude Code, kimi-code #269: killed while a tool ran; the session answers 400 for ever."""

BROKEN = {
    "claude code: killed while a tool ran": KILLED,
    "kimi-code: two calls, one result": [
        user("Run both."),
        assistant(use(1), use(2)),
        user(result(1), {"type": "text", "text": "And?"}),
    ],
    "a result whose call is gone": [
        user("Go."),
        assistant({"type": "text", "text": "Yes."}),
        user(result(9), {"type": "text", "text": "And?"}),
    ],
    "an empty text": [user("Go."), assistant({"type": "text", "text": ""}), user("And?")],
    "antigravity: an unsigned thinking block": [
        user("Go."),
        assistant(
            {"type": "thinking", "thinking": "Hm", "signature": ""},
            {"type": "text", "text": "Yes."},
        ),
        user("And?"),
    ],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_rejected_history_is_repaired_and_sent_again_once(name: str, how: How) -> None:
    with Simulator(answer="All is well.") as sim:
        ran = run(sim, how, messages=BROKEN[name], tools=TOOLS)
        assert ran.text == "All is well."
        assert [post.status for post in sim.posts] == [400, 200]
        assert validate(body_of(sim.posts[1]), "anthropic", live=False) == []
        assert ran.told.outcome is Outcome.COMPLETE
        assert ran.told.repairs
        assert "Repairing" in [type(event).__name__ for event in ran.events]


def test_the_caller_s_own_messages_are_all_still_there() -> None:
    with Simulator(answer="All is well.") as sim:
        run(sim, "sync", messages=KILLED, tools=TOOLS)
        sent = body_of(sim.posts[1])["messages"]
        assert sent[0] == KILLED[0]
        assert sent[1] == KILLED[1]
        assert "Are you there?" in str(sent[2])


def test_before_send_costs_no_extra_request() -> None:
    with Simulator(answer="All is well.") as sim:
        ran = run(sim, "sync", policy=Policy(repair="before_send"), messages=KILLED, tools=TOOLS)
        assert ran.text == "All is well."
        assert [post.status for post in sim.posts] == [200]


def test_off_means_off() -> None:
    with Simulator(answer="All is well.") as sim:
        ran = run(sim, "sync", policy=Policy(repair="off"), messages=KILLED, tools=TOOLS)
        assert isinstance(ran.error, anthropic.BadRequestError)
        assert len(sim.posts) == 1


def test_the_same_error_again_is_raised_unchanged() -> None:
    text = (
        "messages.1: `tool_use` ids were found without `tool_result` blocks "
        "immediately after: toolu_1."
    )
    refusal = Reply(status=400, error=("invalid_request_error", text))
    with Simulator() as sim:
        sim.script([refusal, refusal, Reply([Text("never")])])
        valid = [user("Go."), assistant(use(1)), user(result(1))]
        ran = run(sim, "sync", messages=valid, tools=TOOLS)
        assert isinstance(ran.error, anthropic.BadRequestError)
        assert text in str(ran.error)
        assert len(sim.posts) == 1, "a request that was valid is never repaired"


def test_another_400_is_none_of_ours() -> None:
    refusal = Reply(status=400, error=("invalid_request_error", "prompt is too long: 9 > 8"))
    with Simulator() as sim:
        sim.script([refusal])
        ran = run(sim, "sync", messages=[user("Go.")])
        assert isinstance(ran.error, anthropic.BadRequestError)
        assert len(sim.posts) == 1


def test_a_small_compaction_request_is_repaired_as_well() -> None:
    with Simulator(answer="Short.") as sim:
        ran = run(sim, "sync", messages=KILLED, tools=TOOLS, max_tokens=100)
        assert ran.text == "Short."
        assert [post.status for post in sim.posts] == [400, 200]


def test_auto_resume_says_one_short_thing_for_the_user() -> None:
    open_end = [user("Run it."), assistant(use(1))]
    for policy, said in ((Policy(), False), (Policy(auto_resume=True), True)):
        with Simulator(answer="On we go.") as sim:
            ran = run(sim, "sync", policy=policy, messages=open_end, tools=TOOLS)
            assert ran.text == "On we go."
            assert ("Please go on." in str(body_of(sim.posts[-1])["messages"][-1])) is said


def test_a_healed_history_can_be_cut_and_healed() -> None:
    story = "".join(f"Line {n} of the story.\n" for n in range(2000))
    with Simulator(answer=story) as sim:
        ran = run(sim, "sync-stream", model=NEW, messages=KILLED, tools=TOOLS)
        assert ran.text == story


def test_quiet_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    for policy, lines in ((Policy(), 1), (Policy(log_repairs=False), 0)):
        caplog.clear()
        with Simulator(answer="Yes.") as sim, caplog.at_level(logging.WARNING, "continuation"):
            run(sim, "sync", policy=policy, messages=KILLED, tools=TOOLS)
        assert len(caplog.records) == lines
        assert "Are you there" not in caplog.text
