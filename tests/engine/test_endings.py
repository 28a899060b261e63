"""Every way in which an answer can end: the table, each of its cells, and what the report says."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

import draw_endings
import openai.types.chat.chat_completion
import openai.types.chat.chat_completion_chunk
import openai.types.responses.response
import pytest
from anthropic.types.beta.beta_stop_reason import BetaStopReason
from anthropic.types.stop_reason import StopReason
from google.genai import types as genai
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks import messages
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, How, end, play, streamed

from continuation.engine.table import Action
from continuation.simulator import Block, Reply, Scenario, Simulator, Text, Thinking, ToolUse
from continuation.types import Outcome, Stop

FOX = "The quick brown fox jumps."
HOWS: tuple[How, ...] = ("sync", "async-stream")
CODECS = dict(zip(FORMATS, draw_endings.CODECS.values(), strict=True))


# --- the table ------------------------------------------------------------------------------------


def members() -> Iterator[tuple[str, str]]:
    """Yield each stop reason that the installed SDKs know, with its format."""
    for reason in (*get_args(StopReason), *get_args(BetaStopReason)):
        yield "anthropic-messages", reason
    choice = openai.types.chat.chat_completion.Choice.model_fields["finish_reason"]
    for reason in get_args(choice.annotation):
        yield "openai-chat", reason
    details = openai.types.responses.response.IncompleteDetails.model_fields["reason"]
    literal, _ = get_args(details.annotation)
    for reason in get_args(literal):
        yield "openai-responses", reason
    for enum in (genai.FinishReason, genai.BlockedReason):
        for reason in enum:
            yield "gemini", reason.value


REPORTED = {
    "steered": "another response continues from it, on a connection of its own",
    "max_messages": "the server's limit of messages",
}
"""Stop reasons that mean none of the others: they are reported as they are."""
SAYS_NOTHING = {"FINISH_REASON_UNSPECIFIED"}
"""What a server sends that has not stopped yet."""


@pytest.mark.parametrize(("dialect", "reason"), sorted(set(members())))
def test_every_stop_reason_of_the_sdks_has_a_row(dialect: str, reason: str) -> None:
    known = CODECS[dialect].stops
    assert reason in known or reason in REPORTED or reason in SAYS_NOTHING


def test_the_page_shows_the_table() -> None:
    page = draw_endings.PAGE.read_text(encoding="utf-8")
    assert draw_endings.with_drawing(page) == page, "run: python scripts/draw_endings.py --write"


def cells() -> Iterator[tuple[str, str]]:
    """Yield what a server can end an answer with that has text."""
    for dialect, codec in CODECS.items():
        for reason, stop in codec.stops.items():
            blocks_a_prompt = reason in {"JAILBREAK", "BLOCKED_REASON_UNSPECIFIED"}
            elsewhere = stop in {Stop.LENGTH, Stop.WINDOW, Stop.DROPPED} or reason == "failed"
            if not elsewhere and not blocks_a_prompt:
                yield dialect, reason
        if dialect != "gemini":  # its SDK warns of each reason that it does not know
            yield dialect, "eaten_by_the_dog"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("called", [False, True], ids=["text", "call"])
@pytest.mark.parametrize(("dialect", "reason"), [*cells()])
def test_each_cell(dialect: str, reason: str, called: bool, how: How) -> None:
    """An answer is complete only if its stop reason means that; each reason is reported."""
    if called and reason == "pause_turn":
        return  # a turn with an open call is not paused
    said: list[Block] = [Text(FOX)]
    if called:
        said.append(ToolUse("Write", {"path": "a"}))
    bad = Reply(said, stop=reason)
    with Simulator() as simulator:
        simulator.script([bad] * 12)
        more = {"model": messages.OLD} if reason == "pause_turn" else {}
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, more), FAST)
        posts = len(simulator.posts)
    decision = draw_endings.decided(
        CODECS[dialect], reason, shown=streamed(how) and not called, empty=False
    )
    again = {Action.REPEAT: 3, Action.TOKEN: 11}.get(decision.action, 1)
    report = ran.told
    stop = CODECS[dialect].stops.get(reason, Stop.OTHER)
    assert report.ending == stop
    whole = stop is Stop.END
    assert (report.outcome is Outcome.COMPLETE) is whole
    assert (report.remedy is None) is whole
    assert posts == again or (decision.action is Action.REPEAT and 1 <= posts <= 3)
    if not whole:
        assert report.outcome in {Outcome.INCOMPLETE, Outcome.TRUNCATED}
        assert report.reason
    assert ran.text.startswith(FOX)


def test_half_a_surrogate_pair_as_a_stop_reason_can_be_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raw = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    message = {"role": "assistant", "content": FOX}
    choice = {"index": 0, "finish_reason": "\ud83d", "message": message}
    with caplog.at_level(logging.WARNING, "continuation"), Simulator() as simulator:
        simulator.script([Reply(raw_body=json.dumps({**raw, "choices": [choice]}))])
        ran = play(MAKES["openai-chat"](), "sync", simulator, request("openai-chat", 4_000, {}))
    assert ran.told.outcome is Outcome.INCOMPLETE
    assert caplog.text.encode().count(b"ud83d") >= 1


# --- nothing at all -------------------------------------------------------------------------------

EMPTY: Mapping[str, list[Block]] = {
    "nothing": [],
    "an empty text": [Text("")],
    "only thinking": [Thinking("Hm, let me see.")],
    "thinking, and an empty text": [Thinking("Hm."), Text("")],
}
THINKS: Mapping[str, dict[str, Any]] = {
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
    "gemini": {"thinking_config": {"include_thoughts": True}},
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize("what", EMPTY)
def test_an_empty_answer_is_requested_once_more(what: str, dialect: str, how: How) -> None:
    more = THINKS.get(dialect, {}) if "thinking" in what else {}
    asked = request(dialect, 4_000, more)
    with Simulator() as simulator:
        simulator.script([Reply(EMPTY[what]), end(FOX)])
        ran = play(MAKES[dialect](), how, simulator, asked, FAST)
        assert (ran.text, ran.told.outcome) == (FOX, Outcome.HEALED)
        simulator.script([Reply(EMPTY[what])] * 3)
        again = play(MAKES[dialect](), how, simulator, asked, FAST)
        assert (again.told.outcome, again.told.ending) == (Outcome.INCOMPLETE, "empty")
        assert again.told.remedy
        simulator.reset()
        simulator.script([Reply(EMPTY[what])] * 3)
        off = play(MAKES[dialect](), how, simulator, asked, replace(FAST, resend_failed=False))
        assert len(simulator.posts) == 1
    assert off.told.ending == "empty"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_blank_text_is_no_answer_either(dialect: str, how: How) -> None:
    with Simulator() as simulator:
        simulator.script([end(" \n")] * 2)
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
    assert (ran.told.outcome, ran.told.ending) == (Outcome.INCOMPLETE, "empty")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
def test_silence_after_a_tools_result_is_an_answer(dialect: str, how: How) -> None:
    with Simulator() as simulator:
        simulator.script([Reply([ToolUse("Write", {"path": "a"})], stop="tool_use"), Reply([])])
        asked = request(dialect, 4_000, {})
        ran = play(MAKES[dialect](), how, simulator, asked, FAST)
        after = play(MAKES[dialect](), how, simulator, ran.following(asked), FAST)
        assert len(simulator.posts) == 2
    assert (after.told.outcome, after.told.ending) == (Outcome.COMPLETE, "end")


STOPS: Mapping[str, dict[str, Any]] = {
    "anthropic-messages": {"stop_sequences": ["."]},
    "openai-chat": {"stop": ["."]},
    "gemini": {"stop_sequences": ["."]},
}


@pytest.mark.parametrize("dialect", STOPS)
def test_silence_before_a_stop_sequence_is_an_answer(dialect: str) -> None:
    with Simulator() as simulator:
        simulator.script([Reply([], stop="stop_sequence")] * 2)
        asked = request(dialect, 4_000, STOPS[dialect])
        ran = play(MAKES[dialect](), "sync", simulator, asked, FAST)
        assert len(simulator.posts) == 1
    assert (ran.told.outcome, ran.told.ending) == (Outcome.COMPLETE, "end")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
@given(st.text(min_size=1, max_size=40).filter(str.strip), st.booleans())
@settings(max_examples=examples(12), deadline=None)
def test_an_answer_with_anything_in_it_is_sent_once(
    dialect: str, how: How, text: str, called: bool
) -> None:
    said: list[Block] = [ToolUse("Write", {"path": text})] if called else [Text(text)]
    with Simulator() as simulator:
        simulator.script([Reply(said, stop="tool_use" if called else "end_turn")])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
        assert len(simulator.posts) == 1
    assert (ran.told.outcome, ran.told.ending) == (Outcome.COMPLETE, "end")


# --- a generation that failed ---------------------------------------------------------------------


def test_the_second_time_the_schema_of_the_tool_is_sent_along() -> None:
    failed = Reply([], stop="MALFORMED_FUNCTION_CALL")
    called = Reply([ToolUse("Write", {"path": "a"})], stop="tool_use")
    with Simulator() as simulator:
        simulator.script([failed, failed, called])
        ran = play(MAKES["gemini"](), "sync", simulator, request("gemini", 4_000, {}), FAST)
        first, second, third = [str(post.body) for post in simulator.posts]
    assert ran.tool_calls == [("Write", {"path": "a"})]
    assert ran.told.outcome is Outcome.HEALED
    assert first.count("exact name") == second.count("exact name") == 0
    assert third.count("exact name") == 1


# --- a torn event ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sync-stream", "async-stream"])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_torn_event_is_a_drop(dialect: str, how: How) -> None:
    """At each event of the answer, as a proxy tears it: its data ends early."""
    story = "Once upon a time there was a fox, and it went on a journey to the sea. The end."
    for at in range(2, 9):
        with Simulator(story, Scenario(deltas=8, torn={1: at})) as simulator:
            ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
        assert ran.error is None, at
        assert ran.text == story, at
        assert ran.told.outcome in {Outcome.HEALED, Outcome.COMPLETE}


TORN: Mapping[str, bytes] = {
    "anthropic-messages": b'{"id": "msg_1", "type": "message", "content": [{"type": "text", "te',
    "openai-chat": b'{"id": "x", "choices": [{"index": 0, "message": {"role": "assist',
    "openai-responses": b'{"id": "resp_1", "object": "response", "output": [{"type": "mess',
    "gemini": b'{"candidates": [{"content": {"parts": [{"text": "Once up',
}


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_torn_body_is_a_drop(dialect: str, how: How) -> None:
    """A proxy's timeout leaves half of a body behind status 200 (wso2#5231)."""
    with Simulator() as simulator:
        simulator.script([Reply(raw_body=TORN[dialect]), end(FOX)])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
        assert len(simulator.posts) == 2
    assert (ran.text, ran.told.outcome) == (FOX, Outcome.HEALED)


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_body_that_is_torn_anywhere_is_not_complete(dialect: str) -> None:
    """Before and after the stop reason, which some formats write first."""
    with Simulator("A short answer, {with} [braces].") as simulator:
        play(MAKES[dialect](), "sync", simulator, request(dialect, 4_000, {}), None)
        (post,) = simulator.posts
        body = simulator.respond(post)[0].body
        for end in (*range(len(body) // 3, len(body) - 1, 37), *range(len(body) - 9, len(body))):
            simulator.script([Reply(raw_body=body[:end])])
            ran = play(MAKES[dialect](), "sync", simulator, request(dialect, 4_000, {}), FAST)
            assert (ran.error, ran.told.outcome) == (None, Outcome.HEALED), end


# --- a provider that stays dead -------------------------------------------------------------------

DEAD = [Reply([Text(FOX)], drop=5, deltas=4), *[Reply(status=500)] * 8]


@pytest.mark.parametrize("how", ["sync-stream", "async-stream"])
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_stream_that_dies_for_good_raises_and_keeps_its_text(
    dialect: str, how: How, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "continuation"), Simulator() as simulator:
        simulator.script(DEAD)
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
    assert ran.error is not None
    assert "characters were delivered" in str(ran.error)
    assert (ran.told.outcome, ran.told.ending) == (Outcome.PARTIAL, "dropped")
    assert "ending=dropped" in caplog.text
    assert "remedy=" in caplog.text


@pytest.mark.parametrize("dialect", FORMATS)
@pytest.mark.parametrize(("on_dead", "says_cut"), [("stop", False), ("truncated", True)])
def test_by_policy_it_ends(dialect: str, on_dead: Any, says_cut: bool) -> None:
    with Simulator() as simulator:
        simulator.script(DEAD)
        policy = replace(FAST, on_dead=on_dead)
        asked = request(dialect, 4_000, {})
        ran = play(MAKES[dialect](), "sync-stream", simulator, asked, policy)
    assert ran.text
    assert FOX.startswith(ran.text)
    assert ran.says_cut is says_cut
    assert ran.told.outcome is Outcome.PARTIAL


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_truncated_answer_whose_recovery_fails_ends_by_on_failure(dialect: str) -> None:
    with Simulator() as simulator:
        simulator.script([end(FOX[:12], stop="max_tokens"), *[Reply(status=500)] * 8])
        asked = request(dialect, 4_000, {})
        ran = play(MAKES[dialect](), "sync-stream", simulator, asked, FAST)
    assert ran.error is None
    assert (ran.told.outcome, ran.told.synthetic) == (Outcome.PARTIAL, True)
