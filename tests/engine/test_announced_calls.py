"""A complete text that announces a call and makes none: what counts as that, and what follows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.drive import STREAM, Answered, closing, drive, opening, sse, text_block
from support.examples import examples
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, HOWS, How, body_of, cut, end, play

from continuation.engine.promise import Notes, announces_call
from continuation.simulator import Reply, Simulator, Thinking, ToolUse
from continuation.types import Mode, Outcome

ASK = replace(FAST, unkept_promise="ask")
PROMISE = "Now I will edit the file:"
WRITE = {"path": "a.txt", "content": "x"}
CALL = Reply([ToolUse("Write", WRITE)], stop="tool_use")
CALLED = [("Write", WRITE)]


# --- what counts ----------------------------------------------------------------------------------

TOOLS = ("Write", "read_file", "runTests", "fs.list")
ANNOUNCED = (
    "Now I will edit the file:",
    "I have seen it.\n\nLet me fix that now:  \n",
    "**Next step:**",
    "次にファイルを編集します：",
    "Sure. I use `Write` for that.",
    "Das geht mit `Write()`.",
    "Ich rufe nun read_file auf.",
    "Now runTests",
    "まず `read_file` を呼びます。",
    "終わりました。次は read_file です。",
    "It is done with `fs.list`.",
)
NOT_ANNOUNCED = (
    "",
    "The file is edited.",
    "Write to me if you need more.",
    "I used `Write` for that. All is done.",
    "`read_file` を呼びました。終わりです。",
    "Shall I call `Write`?",
    "`Write` を使いますか？",
    "See my_read_file and read_file_2, in src/read_file.py.",
    "These are the steps:\n- one\n- two",
    "Use `Other` for that.",
    "The time is 12:30",
    "fs.list",
)


@pytest.mark.parametrize("text", ANNOUNCED)
def test_a_colon_at_the_end_or_a_tools_name_in_the_last_sentence_announces_a_call(
    text: str,
) -> None:
    assert announces_call(text, TOOLS)


@pytest.mark.parametrize("text", NOT_ANNOUNCED)
def test_nothing_else_does(text: str) -> None:
    assert not announces_call(text, TOOLS)


EACH = "Now I edit Write write_to me: tool `Other` 12:30 ok? done. 完了。 … ;"
WORDS = st.sampled_from([*EACH.split(), "\n"])


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(st.lists(WORDS, max_size=12).map(" ".join), st.text(max_size=80)))
def test_no_answer_without_the_evidence_is_followed_by_a_request(text: str) -> None:
    last = text.rstrip().split("\n")[-1].rstrip().rstrip("*_").rstrip()
    assume(text.strip() and last[-1:] not in (":", "：", "﹕") and "`Write" not in last)

    def provider(_: dict[str, Any]) -> Answered:
        events = [opening(), *text_block(0, [text]), *closing("end_turn", 9)]
        return 200, STREAM, [sse(events)], None

    asked: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": 1_000,
        "stream": True,
        "messages": [{"role": "user", "content": "Write a file."}],
        "tools": [{"name": "Write", "input_schema": {"type": "object"}}],
    }
    driven = drive(provider, asked, ASK)
    assert len(driven.requests) == 1
    assert driven.report.outcome is Outcome.COMPLETE


# --- what follows ---------------------------------------------------------------------------------


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as started:
        yield started


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
class TestWhatFollows:
    def test_an_explanation_is_a_paragraph_of_its_own(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([end(PROMISE), end("No call is needed:")])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), ASK)
        assert ran.text == f"{PROMISE}\n\nNo call is needed:"
        assert ran.told.outcome is Outcome.HEALED
        assert len(simulator.posts) == 2

    @pytest.mark.parametrize(
        "second",
        [
            Reply([]),
            Reply([Thinking("Hm.")]),
            Reply(status=401),
            Reply([], stop="refusal"),
            end(" \n"),
        ],
        ids=["empty", "only thinking", "an error", "a refusal", "blank"],
    )
    def test_if_nothing_new_comes_the_answer_stays_complete(
        self, simulator: Simulator, dialect: str, how: How, second: Reply
    ) -> None:
        simulator.script([end(PROMISE), *[second] * 3])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), ASK)
        assert (ran.text, ran.tool_calls) == (PROMISE, [])
        assert (ran.told.outcome, ran.told.ending) == (Outcome.COMPLETE, "end")
        assert len(simulator.posts) == 2
        assert [each.discarded or bool(each.error) for each in ran.told.attempts] == [False, True]

    def test_it_follows_a_recovery_as_well(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([cut("Now I will edit the file, which lies "), end("here:"), CALL])
        policy = replace(ASK, max_recoveries=1, escalate=False)
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), policy)
        assert ran.text == "Now I will edit the file, which lies here:"
        assert ran.tool_calls == CALLED
        modes = [each.mode for each in ran.told.attempts]
        assert modes == [Mode.FIRST, Mode.RECOVERY, Mode.RECOVERY]

    def test_where_no_call_can_follow_nothing_is_asked(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([end(PROMISE)] * 9)
        forbidden: Any = {
            "anthropic-messages": {"tool_choice": {"type": "none"}},
            "gemini": {"tool_config": {"function_calling_config": {"mode": "NONE"}}},
        }.get(dialect, {"tool_choice": "none"})
        no_tools: dict[str, Any] = {"tools": []}
        for more in (forbidden, no_tools):
            play(MAKES[dialect](), how, simulator, request(dialect, 4_000, more), ASK)
        once = replace(ASK, max_attempts=1)
        play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), once)
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), FAST)
        assert len(simulator.posts) == 4
        assert (ran.text, ran.told.outcome) == (PROMISE, Outcome.COMPLETE)

    def test_a_call_that_drops_leaves_the_answer_complete(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([end(PROMISE), *[replace(CALL, drop=1)] * 9])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 4_000, {}), ASK)
        assert (ran.text, ran.tool_calls) == (PROMISE, [])
        assert ran.told.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("dialect", FORMATS)
def test_the_request_has_the_text_and_a_short_prompt(simulator: Simulator, dialect: str) -> None:
    simulator.script([end(PROMISE), CALL])
    ran = play(MAKES[dialect](), "sync-stream", simulator, request(dialect, 4_000, {}), ASK)
    assert ran.tool_calls == CALLED
    sent = str(body_of(simulator.posts[-1]))
    assert sent.index(PROMISE) < sent.index("Make the call now")


def test_once_per_process_the_log_says_what_would_be_done(
    simulator: Simulator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notes, "left", 100)
    asked = request("openai-chat", 4_000, {})
    simulator.script([end("All is done."), *[end(PROMISE)] * 3])
    with caplog.at_level(logging.INFO, "continuation"):
        for _ in range(3):
            ran = play(MAKES["openai-chat"](), "sync-stream", simulator, asked, FAST)
            assert ran.told.outcome is Outcome.COMPLETE
    (message,) = [text for text in caplog.messages if "announced" in text]
    assert 'unkept_promise = "ask"' in message
    assert len(simulator.posts) == 3
