"""The bytes of a stream, at every split, in every framing: what is shown never depends on them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drive import (
    STREAM,
    Answered,
    Driven,
    call_block,
    closing,
    drive,
    opening,
    split,
    sse,
    text_block,
)
from support.examples import examples, places, splits

from continuation.wire import sse as _sse

REQUEST: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 1000,
    "stream": True,
    "messages": [{"role": "user", "content": "Go."}],
}
ARGS = '{"path": "a.txt", "content": "naïve 文字 🙂"}'

TEXT_CUT = [opening(), {"type": "ping"}, *text_block(0, ["The quick", " brown fo"])]
TEXT_REST = [opening(), *text_block(0, ["x ju", "mps 文字 🙂."])]
CALL_CUT = [opening(), *text_block(0, ["I write. "]), *call_block(1, [ARGS[:20], ARGS[20:30]])]
CALL_WHOLE = [opening(), *text_block(0, ["I write. "]), *call_block(1, [ARGS[:9], ARGS[9:]])]


def served(first: list[bytes], second: list[bytes]) -> Driven:
    answers = iter([first, second])

    def provider(_: dict[str, Any]) -> Answered:
        return 200, STREAM, next(answers), None

    return drive(provider, REQUEST)


def healed(driven: Driven) -> list[dict[str, Any]]:
    return [event for event in driven.told if event["type"] != "ping"]


SCENES = {
    "text": (
        [*TEXT_CUT, *closing("max_tokens", 1000)],
        [*TEXT_REST, *closing("end_turn", 9)],
    ),
    "call": (
        [*CALL_CUT, *closing("max_tokens", 1000)],
        [*CALL_WHOLE, *closing("tool_use", 40)],
    ),
    "whole": ([*CALL_WHOLE, *closing("tool_use", 40)], []),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("scene", SCENES)
@places
def test_every_split_in_two_of_either_attempt_gives_the_same(
    scene: str, newline: str, step: int
) -> None:
    first, second = (sse(events, newline) for events in SCENES[scene])
    whole = served([first], [second])
    expected = whole.message
    for cut in splits(first, step):
        assert served(split(first, [cut]), [second]).message == expected
    for cut in splits(second, step):
        assert served([first], split(second, [cut])).message == expected


@pytest.mark.parametrize("scene", SCENES)
def test_byte_by_byte_and_with_comments(scene: str) -> None:
    first, second = (sse(events) for events in SCENES[scene])
    noisy = [raw.replace(b"\n\n", b"\n\n: still here\n\n") for raw in (first, second)]
    expected = served([first], [second]).message
    for one, two in ((first, second), noisy):
        singles = [[raw[i : i + 1] for i in range(len(raw))] for raw in (one, two)]
        assert served(*singles).message == expected


@places
def test_an_uncut_stream_passes_byte_for_byte(step: int) -> None:
    for newline, scene in itertools.product(["\n", "\r\n", "\r"], ["whole"]):
        raw = sse(SCENES[scene][0], newline)
        for cut in splits(raw, step):
            assert b"".join(served(split(raw, [cut]), []).pieces) == raw


def test_unknown_events_and_fields_pass() -> None:
    novel = {"type": "novel", "x": 1}
    first = [*TEXT_CUT[:4], novel, *TEXT_CUT[4:], *closing("max_tokens", 1000)]
    second = [opening(), novel, *TEXT_REST[1:], *closing("end_turn", 9)]
    driven = served([sse(first)], [sse(second)])
    assert [e for e in driven.told if e["type"] == "novel"] == [novel, novel]
    assert driven.shown == "The quick brown fox jumps 文字 🙂."


def test_text_flows_as_it_comes_and_calls_wait() -> None:
    events = [*CALL_WHOLE, *closing("tool_use", 40)]
    chunks = [sse([event]) for event in events]
    pieces = served(chunks, []).pieces
    shown_at = [bool(piece) for piece in pieces]
    kinds = [event["type"] for event in events]
    text = kinds.index("content_block_delta")
    assert shown_at[0], "the opening is shown at once"
    assert shown_at[text], "visible text is shown at once"
    last = len(events) - 1
    assert not any(shown_at[text + 1 : last]), "the call waits for the end of the message"
    assert shown_at[last]


def test_pings_are_never_held() -> None:
    events = [*CALL_WHOLE[:6], {"type": "ping"}, *CALL_WHOLE[6:], *closing("tool_use", 40)]
    pieces = served([sse([event]) for event in events], []).pieces
    assert b"ping" in pieces[6]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
@settings(max_examples=examples(300))
def test_frames_do_not_depend_on_the_split(raw: bytes, cuts: list[int]) -> None:
    raw = raw.replace(b"\x00", b"\n").replace(b"\x01", b"\r")
    buffer, seen, found = bytearray(), 0, list[tuple[str, bytes]]()
    for chunk in split(raw, cuts):
        buffer += chunk
        for frame in _sse.frames(buffer, seen):
            seen = frame.end
            found.append((frame.name, frame.data))
    whole = [(frame.name, frame.data) for frame in _sse.frames(raw)]
    assert found == whole
