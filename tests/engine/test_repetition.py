"""Runaway repetition: what counts as one, what is delivered of it, and what follows."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, HOWS, How, body_of, cut, end, play

from continuation.engine.loops import LoopNotes
from continuation.seams.repetition import (
    LEAST_CHARACTERS,
    LEAST_COPIES,
    Repetition,
    copies_asked,
    runaway,
)
from continuation.simulator import Simulator
from continuation.types import Mode, Outcome

STOPS = replace(FAST, stop_repetition=True)
STORY = "The harbour was quiet in the morning, and the boats lay still.\n\n"
LOOP = "And the sea was calm, as it had been all day long.\n"
COPIES = 120
LONG = STORY + LOOP * COPIES


def never(_: str) -> float:
    return 0


def always(_: str) -> float:
    return math.inf


# --- what counts ----------------------------------------------------------------------------------

UNITS = {
    "a line": "I will now read the file once more.\n",
    "lines that resemble each other": "A line.\nB line.\nA line.\nC line.\n",
    "words in one line": "and then it went on, ",
    "no spaces": "没有别的了，",
    "right to left": "ואז הכל התחיל מחדש.\n",
    "combining marks": "e\u0301te\u0301 नमस्ते\n",
    "emoji": "👩‍👩‍👧 go 🇫🇷 ",
    "code": "    if (x) {\n        return null;\n    }\n",
    "a paragraph": "".join(f"Sentence number {n} of it is here. " for n in range(12)) + "\n\n",
}


@pytest.mark.parametrize("piece", [1, 4, 33, 5_000])
@pytest.mark.parametrize("unit", UNITS.values(), ids=list(UNITS))
def test_what_repeats_itself_long_enough_runs_away(unit: str, piece: int) -> None:
    copies = max(LEAST_COPIES, LEAST_CHARACTERS // len(unit)) + 3
    text = STORY + unit * copies + unit[: len(unit) // 2]
    watch = Repetition(never)
    for at in range(0, len(text), piece):
        watch.feed(text[at : at + piece])
    assert watch.runs_away
    start = runaway(text, never)
    assert start is not None
    assert len(STORY) <= start <= len(STORY) + 2 * len(unit)
    assert text[start:] in unit * (copies + 2)
    assert runaway(text, always) is None


@pytest.mark.parametrize("unit", UNITS.values(), ids=list(UNITS))
def test_of_a_text_that_is_nothing_else_the_first_copy_is_kept(unit: str) -> None:
    length = runaway(unit * (LEAST_CHARACTERS // len(unit) + LEAST_COPIES), never)
    assert length is not None
    assert length >= len(unit)


@pytest.mark.parametrize(
    "text",
    [
        STORY + LOOP * (LEAST_COPIES - 1),
        STORY + "la la " * (LEAST_CHARACTERS // 6 - 10),
        LONG + "But then the wind came.",
        STORY + "0, " * 4_000,
        STORY + "| 0.00 | 0.00 | 0 |\n" * 1_000,
        STORY + "-" * 9_000,
        "".join(f"Line {n} of the table is here.\n" for n in range(1_000)),
        "",
    ],
    ids=["few", "short", "it went on", "zeros", "a table", "a rule", "counted lines", "nothing"],
)
def test_nothing_else_does(text: str) -> None:
    assert runaway(text, never) is None


@pytest.mark.parametrize(
    ("request_", "last", "copies"),
    [
        ("Repeat 'and the sea was CALM, as it had been all day long' for me", "", math.inf),
        ("as it had been all day long and the sea was calm", "", math.inf),
        ("the sea was calm, all day long", "", 0),
        ("Write about the sea.", "", 0),
        ("Write about the sea.", "Write 1,500 lines.", 1_500),
        ("Write about the sea.", "Schreib 2.000 Zeilen, 3 je Absatz.", 2_000),
        ("Write about the sea.", "写 ３００ 行", 300),
        ("", "", 0),
    ],
)
def test_a_request_asks_for_copies_by_the_words_themselves_or_by_a_number(
    request_: str, last: str, copies: float
) -> None:
    for at in range(len(LOOP)):
        two = (LOOP * 3)[at : at + 2 * len(LOOP)]
        assert copies_asked(two, f"{request_} {last}", last) == copies


PIECES = st.one_of(
    st.sampled_from([*UNITS.values(), "0;0;0\n", "\n", "- ", LOOP, "the ", "a"]),
    st.text(max_size=9),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(1, 30)), max_size=12))
def test_all_text_that_does_not_run_away_is_released(parts: list[tuple[str, int]]) -> None:
    """What is held is a copy of what precedes it, and any other text releases it."""
    watch, text, shown = Repetition(never), "", 0
    for piece, times in parts:
        for _ in range(times):
            watch.feed(piece)
            text += piece
            if watch.runs_away:
                start = runaway(text, never)
                assert start is not None
                assert text[start:] == text[start - watch.period : -watch.period]
                return
            shown = shown if watch.holds else len(text)
            if held := text[shown:]:
                copied = min(len(held), watch.copied)
                assert held[-copied:] == text[-copied - watch.period : -watch.period]
    assert runaway(text, never) is None
    watch.feed("\N{SNOWMAN} new")
    assert not watch.holds


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(2, 40),
    st.sampled_from(["0", "0.0", "-", "NULL", "null;", "false"]),
    st.sampled_from([",", ", ", " | ", "\t", ";"]),
    st.integers(100, 3_000),
)
def test_a_table_that_was_asked_for_is_never_stopped(
    columns: int, cell: str, mark: str, rows: int
) -> None:
    asked = f"Write a table of {rows} rows with {columns} columns, each {cell}."
    text = (mark.join([cell] * columns) + "\n") * rows
    watch = Repetition(lambda unit: copies_asked(unit, asked, asked))
    for at in range(0, len(text), 7):
        watch.feed(text[at : at + 7])
        assert not watch.runs_away


# --- what follows ---------------------------------------------------------------------------------


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as started:
        yield started


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dialect", FORMATS)
class TestWhatFollows:
    def test_one_copy_is_delivered_and_one_request_continues_behind_it(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([cut(LONG, deltas=9), end("Then the wind came.")])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 9_000, {}), STOPS)
        assert ran.text == STORY + LOOP + "Then the wind came."
        assert (ran.told.outcome, ran.told.ending) == (Outcome.HEALED, "end")
        assert [each.mode for each in ran.told.attempts] == [Mode.FIRST, Mode.RECOVERY]
        assert "repeated its last words" in str(body_of(simulator.posts[1]))
        assert len(simulator.posts) == 2

    def test_a_second_time_it_is_reported(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([cut(LONG, deltas=9), cut(LOOP * COPIES, deltas=9)])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 9_000, {}), STOPS)
        assert ran.text.count(LOOP) <= 2
        assert ran.told.outcome is Outcome.PARTIAL
        assert ran.told.reason == "the model only repeated the same text"
        assert ran.told.remedy
        assert len(simulator.posts) == 2

    def test_what_was_asked_for_is_delivered_as_it_comes(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([end(LONG, deltas=9)])
        asked = request(dialect, 9_000, {})
        words: Any = {
            "anthropic-messages": {"system": LOOP},
            "openai-responses": {"instructions": LOOP},
        }.get(dialect)
        if dialect == "gemini":
            asked["contents"] = f"Repeat this: {LOOP}"
        elif words is None:
            asked["messages"] = [{"role": "user", "content": f"Repeat this: {LOOP}"}]
        else:
            asked.update(words)
        ran = play(MAKES[dialect](), how, simulator, asked, STOPS)
        assert (ran.text, ran.told.outcome) == (LONG, Outcome.COMPLETE)
        assert len(simulator.posts) == 1

    def test_a_text_that_goes_on_after_copies_is_complete(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        text = STORY + LOOP * 15 + "Then the wind came."
        simulator.script([end(text, deltas=9)])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 9_000, {}), STOPS)
        assert (ran.text, ran.told.outcome) == (text, Outcome.COMPLETE)

    def test_without_the_policy_nothing_changes(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        simulator.script([end(LONG)])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 9_000, {}), FAST)
        assert (ran.text, ran.told.outcome) == (LONG, Outcome.COMPLETE)

    def test_a_recovery_that_runs_away_is_stopped_too(
        self, simulator: Simulator, dialect: str, how: How
    ) -> None:
        policy = replace(STOPS, escalate=False, prefill=False)
        simulator.script([cut("One, and "), cut("two.\n" + LOOP * COPIES, deltas=9), end("Three.")])
        ran = play(MAKES[dialect](), how, simulator, request(dialect, 9_000, {}), policy)
        assert ran.text == "One, and two.\n" + LOOP + "Three."
        assert ran.told.outcome is Outcome.HEALED


@pytest.mark.parametrize("how", HOWS)
def test_a_server_that_stops_it_itself(simulator: Simulator, how: How) -> None:
    """vLLM's `finish_reason: "repetition"`, after 20 copies: without the policy it is reported."""
    for policy, text, posts in (
        (FAST, STORY + LOOP * 90, 1),
        (STOPS, STORY + LOOP + "The end.", 2),
    ):
        simulator.reset()
        simulator.script([end(STORY + LOOP * 90, stop="repetition", deltas=9), end("The end.")])
        ran = play(
            MAKES["openai-chat"](), how, simulator, request("openai-chat", 9_000, {}), policy
        )
        assert (ran.text, len(simulator.posts)) == (text, posts)
        if policy is FAST:
            assert (ran.told.outcome, ran.told.ending) == (Outcome.INCOMPLETE, "repetition")
            assert "stop_repetition" in (ran.told.remedy or "")
        else:
            assert ran.told.outcome is Outcome.HEALED


def test_the_caller_is_shown_no_copy_and_the_server_is_left_early(simulator: Simulator) -> None:
    long = STORY + LOOP * 2_000
    simulator.script([cut(long, deltas=9, slow=0.0001), end("It ends.")])
    asked = request("anthropic-messages", 9_000, {})
    ran = play(MAKES["anthropic-messages"](), "sync-stream", simulator, asked, STOPS)
    first, second = ran.told.attempts
    assert (first.stop, second.stop) == ("repetition", "end_turn")
    assert simulator.posts[0].sent < len(long) / 9 / 2
    assert first.usage is not None
    assert first.usage.estimated
    assert (first.usage.output or 0) > LEAST_CHARACTERS / 10


def test_once_per_process_the_log_says_what_would_be_saved(
    simulator: Simulator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopNotes, "left", 100)
    asked = request("openai-chat", 9_000, {})
    simulator.script([cut(LONG), end("It ends.")] * 2)
    with caplog.at_level(logging.INFO, "continuation"):
        for _ in range(2):
            play(MAKES["openai-chat"](), "sync-stream", simulator, asked, FAST)
    (message,) = [text for text in caplog.messages if "repetition not stopped" in text]
    assert "stop_repetition = true" in message
    assert "~" in message
    assert LOOP.strip() not in message
