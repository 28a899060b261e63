"""The bytes of a stream, at every split, in every framing: what is shown never depends on them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drive import (
    Attempt,
    Clock,
    Driven,
    call_block,
    closing,
    combs,
    drive,
    opening,
    split,
    sse,
    streams,
    text_block,
)
from support.examples import examples, pieces

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


def served(*attempts: Attempt, clock: Clock | None = None) -> Driven:
    return drive(streams(*attempts), REQUEST, clock=clock)


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
@pieces
def test_at_every_split_of_either_attempt_the_answer_is_the_same(
    scene: str, newline: str, size: int
) -> None:
    first, second = (sse(events, newline) for events in SCENES[scene])
    expected = served(first, second).message
    for some in combs(first, size):
        driven = served(some, second)
        assert driven.message == expected
        assert second or b"".join(driven.pieces) == first, "what was not cut passes as it came"
    for some in combs(second, size):
        assert served(first, some).message == expected


@pytest.mark.parametrize("scene", SCENES)
def test_comments_say_nothing(scene: str) -> None:
    first, second = (sse(events) for events in SCENES[scene])
    noisy = [raw.replace(b"\n\n", b"\n\n: still here\n\n") for raw in (first, second)]
    expected = served(first, second).message
    assert served(*noisy).message == expected
    assert served(*([bytes([byte]) for byte in raw] for raw in noisy)).message == expected


def test_unknown_events_and_fields_pass() -> None:
    novel = {"type": "novel", "x": 1}
    first = [*TEXT_CUT[:4], novel, *TEXT_CUT[4:], *closing("max_tokens", 1000)]
    second = [opening(), novel, *TEXT_REST[1:], *closing("end_turn", 9)]
    driven = served(sse(first), sse(second))
    assert [e for e in driven.told if e["type"] == "novel"] == [novel, novel]
    assert driven.shown == "The quick brown fox jumps 文字 🙂."


def test_text_flows_as_it_comes_and_calls_wait() -> None:
    events = [*CALL_WHOLE, *closing("tool_use", 40)]
    shown = [bool(piece) for piece in served([sse([event]) for event in events]).pieces]
    kinds = [event["type"] for event in events]
    text, last = kinds.index("content_block_delta"), len(events) - 1
    assert shown[0], "the opening is shown at once"
    assert shown[text], "so is visible text"
    assert not any(shown[text + 1 : last]), "the call waits for the end of the message"
    assert shown[last]


@pytest.mark.parametrize("seconds", [0.001, 6.0])
def test_a_ping_waits_in_its_place_unless_all_is_silent(seconds: float) -> None:
    """Then it keeps the connection alive. Whatever it does, it comes once."""
    ping = {"type": "ping"}
    events = [*CALL_WHOLE[:6], ping, CALL_WHOLE[6], ping, *CALL_WHOLE[7:], *closing("tool_use", 40)]
    chunks = [sse([event]) for event in events]
    driven = served(chunks, clock=Clock(tick=seconds))
    assert [b"ping" in piece for piece in driven.pieces].index(True) == (8 if seconds > 1 else 11)
    assert sorted(driven.told, key=json.dumps) == sorted(events, key=json.dumps)
    assert (b"".join(driven.pieces) == b"".join(chunks)) == (seconds < 1)


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
