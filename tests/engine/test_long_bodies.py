"""A request whose body is expected to be long is sent as a stream; its caller gets its body."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks.formats import FORMATS, MAKES, THINKS, request
from support.sdks.turn import FAST, How, Turn, body_of, end, play, play_all

from continuation.simulator import Block, Recorded, Reply, Simulator, Text, Thinking, ToolUse
from continuation.types import Outcome

LONG = 20_000
"""Tokens; a body with this limit is expected to be long."""
EXACT = ("anthropic-messages", "openai-responses")
"""Formats whose streams have every field of a body."""
CLOCK = frozenset({"created_at", "completed_at"})
"""Fields with the time of day, which differ between two answers."""
BODIES: tuple[How, ...] = ("sync", "async")
FOX = "The quick brown fox jumps."
NEVER = replace(FAST, stream_bodies="never")

every_format = pytest.mark.parametrize("dialect", FORMATS)
exact_format = pytest.mark.parametrize("dialect", EXACT)
every_way = pytest.mark.parametrize("how", BODIES)


def asking(dialect: str, limit: int = LONG, **more: Any) -> dict[str, Any]:
    """Return a request; Chat Completions of a model whose ceiling is large enough."""
    if dialect == "openai-chat":
        large = {"model": "gpt-5", "max_tokens": openai.omit, "max_completion_tokens": limit}
        more = {**large, **more}
    return request(dialect, limit, more)


def is_stream(sent: Recorded) -> bool:
    return "stream" in str(sent.path) or body_of(sent).get("stream") is True


# --- the body -------------------------------------------------------------------------------------

_WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)
_CALLS = st.builds(ToolUse, st.just("Write"), st.dictionaries(_WORDS, _VALUES, max_size=3))
_ANSWERS = st.lists(st.builds(Text, _WORDS) | _CALLS, min_size=1, max_size=4)


def body_from(dialect: str, reply: Reply, config: Any, more: dict[str, Any]) -> tuple[Any, bool]:
    """Return the body of an answer as the SDK parses it, and whether it was sent as a stream."""
    with Simulator() as simulator:
        simulator.script([reply])
        ran = play(MAKES[dialect](), "sync", simulator, asking(dialect, **more), config)
        sent = is_stream(simulator.posts[0])
        assert len(simulator.posts) == 1
    body = json.loads(ran.said.model_dump_json(exclude_unset=True))
    return {key: value for key, value in body.items() if key not in CLOCK}, sent


def check_equal(dialect: str, reply: Reply, more: dict[str, Any]) -> None:
    policy = replace(FAST, resend_failed=False, escalate=False, max_recoveries=0)
    made, streamed = body_from(dialect, reply, policy, more)
    own, not_streamed = body_from(dialect, reply, replace(policy, stream_bodies="never"), more)
    assert (streamed, not_streamed) == (True, False)
    assert made == own


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(EXACT),
    _ANSWERS,
    st.sampled_from(["end_turn", "max_tokens"]),
    st.integers(1, 30),
)
def test_the_body_has_every_field_of_the_providers_own(
    dialect: str, blocks: list[Block], stop: str, deltas: int
) -> None:
    if stop == "max_tokens" and any(isinstance(block, ToolUse) for block in blocks):
        stop = "end_turn"  # a truncated call is not delivered, streamed or not
    check_equal(dialect, Reply(blocks, stop=stop, deltas=deltas), {})


@exact_format
def test_a_body_with_thinking_has_every_field(dialect: str) -> None:
    check_equal(dialect, Reply([Thinking("Hm, so."), Text(FOX)], deltas=3), THINKS[dialect])


# --- when it is sent as a stream ------------------------------------------------------------------


def play_one(
    dialect: str, how: How, replies: list[Reply], asked: dict[str, Any], config: Any = FAST
) -> tuple[Turn, list[bool]]:
    with Simulator(FOX) as simulator:
        simulator.script(replies)
        ran = play(MAKES[dialect](), how, simulator, asked, config)
        return ran, [is_stream(sent) for sent in simulator.posts]


@every_way
@every_format
def test_only_formats_whose_streams_lack_nothing(dialect: str, how: How) -> None:
    ran, streams = play_one(dialect, how, [end(FOX)], asking(dialect))
    assert (ran.text, ran.told.outcome) == (FOX, Outcome.COMPLETE)
    assert streams == [dialect in EXACT]


@exact_format
@pytest.mark.parametrize(("limit", "streamed"), [(16_383, False), (16_384, True)])
def test_the_limit_decides(dialect: str, limit: int, *, streamed: bool) -> None:
    assert play_one(dialect, "sync", [end(FOX)], asking(dialect, limit))[1] == [streamed]


@exact_format
def test_a_policy_of_one_request_leaves_no_room_for_a_refusal(dialect: str) -> None:
    policy = replace(FAST, max_attempts=1)
    assert play_one(dialect, "sync", [end(FOX)], asking(dialect), policy)[1] == [False]


@every_way
@exact_format
def test_a_broken_one_is_resumed(dialect: str, how: How) -> None:
    ran, streams = play_one(dialect, how, [Reply([Text(FOX)], drop=6, deltas=4)], asking(dialect))
    assert (ran.text, ran.told.outcome) == (FOX, Outcome.HEALED)
    assert streams == [True, True]


# --- a server that refuses it ---------------------------------------------------------------------

VERIFY = "Your organization must be verified to stream this model."


@every_way
@exact_format
@pytest.mark.parametrize("status", [400, 403, 405, 501])
def test_a_refused_stream_is_sent_as_the_caller_made_it(
    dialect: str, how: How, status: int
) -> None:
    refusal = Reply(status=status, error=("invalid_request_error", VERIFY))
    with Simulator(FOX) as simulator:
        simulator.script([refusal, end(FOX), end(FOX)])
        runs = [MAKES[dialect](), MAKES[dialect]()]
        play_all(runs, how, simulator, [asking(dialect)] * 2)
        assert [is_stream(sent) for sent in simulator.posts] == [True, False, False]
    assert [run.text for run in runs] == [FOX, FOX]
    assert [run.told.outcome for run in runs] == [Outcome.COMPLETE] * 2


@exact_format
def test_another_refusal_is_the_callers(dialect: str) -> None:
    refusal = Reply(status=400, error=("invalid_request_error", "no such tool"))
    ran, streams = play_one(dialect, "sync", [refusal] * 3, asking(dialect))
    assert "no such tool" in str(ran.error)
    assert streams == [True]


# --- a body that took too long --------------------------------------------------------------------


@every_way
@every_format
@pytest.mark.parametrize("status", [408, 504, 524])
def test_a_body_that_took_too_long_is_requested_as_a_stream(
    dialect: str, how: How, status: int
) -> None:
    slow = Reply(status=status, error=("timeout_error", "too slow"))
    ran, streams = play_one(dialect, how, [slow], asking(dialect, 4_000))
    assert (ran.text, ran.told.outcome) == (FOX, Outcome.COMPLETE)
    assert streams == [False, True]
    assert [attempt.stop is None for attempt in ran.told.attempts] == [True, False]


@every_format
@pytest.mark.parametrize(
    ("policy", "headers"),
    [
        (NEVER, {}),
        (replace(FAST, max_retries=0), {}),
        (replace(FAST, max_attempts=1), {}),
        (FAST, {"x-should-retry": "false"}),
    ],
    ids=["never", "no retries", "one attempt", "the server forbids it"],
)
def test_otherwise_the_caller_gets_the_error(
    dialect: str, policy: Any, headers: dict[str, str]
) -> None:
    slow = Reply(status=504, error=("timeout_error", "too slow"), headers=headers)
    ran, streams = play_one(dialect, "sync", [slow] * 3, asking(dialect, 4_000), policy)
    assert "too slow" in str(ran.error)
    assert True not in streams
