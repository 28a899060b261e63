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
from support.shells import LIMIT, LONG, Way, ask, both, text_of

import continuation
from continuation import Policy
from continuation.prompts import cut_call_note
from continuation.simulator import Reply, Scenario, Simulator, Text, Thinking, ToolCall

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
SCRIPTS: dict[str, tuple[Policy, list[Reply]]] = {
    "an uncut answer": (CALM, [Reply([Text(HALF)], deltas=60)]),
    "a recovery": (
        Policy(escalate=False),
        [Reply([Text(HALF)], stop="max_tokens", deltas=60), Reply([Text(TEXT[500:])], deltas=60)],
    ),
    "two recoveries": (
        Policy(escalate=False, prefill=False),
        [
            Reply([Text(HALF)], stop="max_tokens", deltas=60),
            Reply([Text(TEXT[500:1200])], stop="max_tokens", deltas=60),
            Reply([Text(TEXT[1200:])], deltas=60),
        ],
    ),
    "an escalation": (
        CALM,
        [
            Reply([Thinking("Hm. " * 20)], stop="max_tokens", deltas=60),
            Reply([Thinking("Hm. " * 20), Text(TEXT)], deltas=60),
        ],
    ),
    "a cut call made whole": (
        CALM,
        [
            Reply([Text(HALF), ToolCall("save", ARGUMENTS, cut=300)], stop="max_tokens", deltas=60),
            Reply([Text(HALF), ToolCall("save", ARGUMENTS)], stop="tool_use", deltas=60),
        ],
    ),
    "a call that stays cut": (
        Policy(model_max_output_tokens=LIMIT),
        [Reply([Text(HALF), ToolCall("save", ARGUMENTS, cut=300)], stop="max_tokens", deltas=60)],
    ),
    "a drop": (CALM, []),
}
MOST = pytest.mark.parametrize("most", [3, pytest.param(50, marks=pytest.mark.slow)])
"""Of a turn's calls as many are sampled, from all over it."""


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


def assert_valid(events: list[Any]) -> None:
    """One opening, dense blocks that open and close in turn, one end."""
    kinds = [event.type for event in events if event.type not in {"text", "thinking", "signature"}]
    kinds = [kind for kind in kinds if kind not in {"input_json", "ping"}]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert kinds.count("message_start") == kinds.count("message_stop") == 1
    open_block, index = False, 0
    for event in events:
        if event.type == "content_block_start":
            assert not open_block
            assert event.index == index
            open_block = True
        elif event.type == "content_block_delta":
            assert open_block
            assert event.index == index
        elif event.type == "content_block_stop":
            assert open_block
            open_block, index = False, index + 1
    assert not open_block


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


@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", SCRIPTS)
@MOST
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
                assert_valid(events)
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


@both
@pytest.mark.parametrize("ceiling", [50_000, 5_000], ids=["taken", "refused"])
@MOST
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
