"""Bugs of ours, one at a time, at every call: the caller gets an answer, and pays for it once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message
from support.drive import check_stream
from support.sdks.turn import cut, end
from support.shells import LIMIT, LONG, Way, ask, both, text_of

import continuation
from continuation import Policy
from continuation.prompts import cut_call_note
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolUse

ROOT = Path(continuation.__file__).parent
ROOMS = (
    "engine",
    "answer",
    "wire",
    "seams",
    "limits",
    "providers",
    "reports/report.py",
    "prompts.py",
)
OURS = {
    str(path)
    for room in ROOMS
    for path in ([ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"))
}
"""Engine, dialect and helpers: whatever the shells call."""

TEXT = LONG[:1600]
HALF = TEXT[:500]
ARGUMENTS = {"content": LONG[:500]}

NOTES = {cut_call_note("save", received) for received in (2, 300)}
"""How much of a call came is known to the character in a stream only."""

CALM = Policy(remember_limit=False)
WHOLE, BROKEN = ToolUse("save", ARGUMENTS), ToolUse("save", ARGUMENTS, cut=300)
HM = Thinking("Hm. " * 20)
SMALL: Any = {"deltas": 60}
SCRIPTS: dict[str, tuple[Policy, list[Reply]]] = {
    "an uncut answer": (CALM, [end(HALF, **SMALL)]),
    "a recovery": (Policy(escalate=False), [cut(HALF, **SMALL), end(TEXT[500:], **SMALL)]),
    "two recoveries": (
        Policy(escalate=False, prefill=False),
        [cut(HALF, **SMALL), cut(TEXT[500:1200], **SMALL), end(TEXT[1200:], **SMALL)],
    ),
    "an escalation": (CALM, [cut(HM, **SMALL), end(HM, TEXT, **SMALL)]),
    "a cut call made whole": (
        CALM,
        [cut(HALF, BROKEN, **SMALL), end(HALF, WHOLE, stop="tool_use", **SMALL)],
    ),
    "a call that stays cut": (Policy(model_max_output_tokens=LIMIT), [cut(HALF, BROKEN, **SMALL)]),
    "a drop": (CALM, []),
}
SAMPLED = pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("sync", 3),
        pytest.param("sync", 50, marks=pytest.mark.slow),
        pytest.param("async", 12, marks=pytest.mark.slow),
    ],
)
"""Of a turn's calls as many are sampled, from all over it; both kinds have the same engine."""


OF_THE_HELPER = {"text", "thinking", "signature", "input_json", "ping"}
"""Events that are not in the stream, or that may stand anywhere in it."""


class BugError(Exception):
    """What our code never raises by itself."""


@contextlib.contextmanager
def bug_at(number: int) -> Iterator[list[str]]:
    """Let our `number`-th call fail as it begins; yields the names of the calls up to there."""
    called: list[str] = []

    def trace(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename in OURS and code.co_name != "<genexpr>":
            called.append(code.co_qualname)
            if len(called) == number:
                raise BugError(called[-1])

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield called
    finally:
        sys.settrace(before)


def turn(way: Way, client: Any, *, streamed: bool) -> tuple[Message, list[Any]]:
    """Run one turn; the SDK puts the message together."""
    if not streamed:
        return way.do(client.messages.create(**ask())), []
    with way.within(client.messages.stream(**ask())) as helper:
        events = list(way.each(helper))
        return way.do(helper.get_final_message()), events


def assert_sound(message: Message, script: list[Reply]) -> None:
    """What arrived is true as far as it goes, and no half call passes for a whole one."""
    text = text_of(message)
    first = script[0].blocks if script else ()
    assert text.startswith("".join(block.text for block in first if isinstance(block, Text)))
    assert TEXT.startswith(text) or text.removeprefix(HALF).strip() in NOTES, text[-200:]
    for block in message.content:
        if block.type == "tool_use" and block.input != ARGUMENTS:
            assert message.stop_reason == "max_tokens"


def sampled(total: int, most: int) -> list[int]:
    """Return some calls from all over a turn, and the last ones, where all has been said."""
    last = min(most, 5)
    return sorted({*range(1, total + 1, max(1, total // most)), *range(total - last, total + 1)})


@SAMPLED
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bug_at_any_call_costs_the_healing_and_no_more(
    kind: Any, streamed: bool, name: str, most: int
) -> None:
    policy, script = SCRIPTS[name]
    if name == "a drop" and not streamed:
        pytest.skip("half a JSON body is an error, without a bug too")
    with Simulator(TEXT, Scenario(drop={1: 10}, deltas=60)) as sim, Way(kind) as way:
        bare = way.bare(sim.url)

        def once(number: int) -> list[str]:
            sim.reset()
            sim.script(script)
            client = continuation.wrap(bare, config=policy, on_event=lambda event: None)
            with bug_at(number) as called:
                try:
                    message, events = turn(way, client, streamed=streamed)
                except httpx2.RemoteProtocolError:
                    # As without us: the engine had not begun.
                    assert name == "a drop"
                    assert called == ["Engine.claims"] or len(sim.requests) == 1
                    return called
            if streamed and (name != "a drop" or len(sim.posts) > 1):
                told = [e.to_dict() for e in events if e.type not in OF_THE_HELPER]
                check_stream(told)
            assert_sound(message, script)
            posts = [post.body for post in sim.posts if post.body is not None]
            assert posts.count(posts[0]) == 1, "the caller's request was sent twice"
            return called

        total = len(once(0))
        assert total > 20
        for number in sampled(total, most):
            try:
                called = once(number)
            except BaseException as error:
                error.add_note(f"the bug was at call {number} of {total}")
                raise
            # A socket may cut the stream otherwise this time: the last calls may not come.
            assert len(called) == number or total - number < 20


@SAMPLED
@pytest.mark.parametrize("name", ["an uncut answer", "an escalation"])
def test_a_bug_costs_no_body_that_is_sent_as_a_stream(kind: Any, name: str, most: int) -> None:
    """The stream's events are kept, and the body is made of them without the engine."""
    policy, script = SCRIPTS[name]
    with Simulator() as sim, Way(kind) as way:
        bare = way.bare(sim.url)

        def once(number: int) -> int:
            sim.reset()
            sim.script(script)
            client = continuation.wrap(bare, config=policy)
            with bug_at(number) as called:
                message = way.do(client.messages.create(**ask(max_tokens=20_000)))
            assert_sound(message, script)
            assert len([post for post in sim.posts if post.status == 200]) <= len(script)
            return len(called)

        for number in sampled(once(0), most):
            try:
                once(number)
            except BaseException as error:
                error.add_note(f"the bug was at call {number}")
                raise


@both
def test_a_listener_that_raises_is_none_of_the_turns_business(kind: Any) -> None:
    def fail(event: object) -> None:
        raise BugError

    with Simulator() as sim, Way(kind) as way:
        for streamed in (False, True):
            sim.script(SCRIPTS["a recovery"][1])
            client = continuation.wrap(
                way.bare(sim.url), on_event=fail, config=Policy(escalate=False)
            )
            assert text_of(turn(way, client, streamed=streamed)[0]) == TEXT


@both
def test_a_bug_after_a_request_that_failed_sends_no_second_one(kind: Any) -> None:
    with Simulator() as sim, Way(kind) as way:
        bare = way.bare(sim.url)

        def once(number: int) -> int:
            sim.reset()
            sim.script([Reply(drop=-1)])
            client = continuation.wrap(bare)
            with bug_at(number) as called, pytest.raises(anthropic.APIConnectionError):
                turn(way, client, streamed=False)
            assert len(sim.posts) == 1
            return len(called)

        for number in range(1, once(0) + 1):
            once(number)


@SAMPLED
@pytest.mark.parametrize("ceiling", [50_000, 5_000], ids=["taken", "refused"])
def test_a_bug_about_a_limit_we_raised_never_costs_the_callers_answer(
    kind: Any, ceiling: int, most: int
) -> None:
    with Simulator(HALF, Scenario(ceiling=ceiling)) as sim, Way(kind) as way:
        bare = way.bare(sim.url)
        raised = Policy(initial_limit="ceiling", model_max_output_tokens=50_000)

        def once(number: int) -> int:
            sim.reset()
            client = continuation.wrap(bare, config=raised)
            with bug_at(number) as called:
                message, _ = turn(way, client, streamed=True)
            assert text_of(message) == HALF
            assert [post.status for post in sim.posts].count(200) == 1
            return len(called)

        for number in sampled(once(0), most):
            once(number)
