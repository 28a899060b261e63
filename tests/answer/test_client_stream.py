"""The owner's invariants, over any blocks and any cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from continuation.answer.attempt_reader import AttemptReader
from continuation.answer.client_stream import ClientStream
from continuation.answer.gate import Gate
from continuation.policy import Policy
from continuation.types import JoinPlan, Json, Mode, ReplayBuffer
from continuation.wire import blocks as told
from continuation.wire.blocks import TEXT, TOOL_CALL, Block, Segment, calls_in
from continuation.wire.sse import Frame


class Log:
    """A wire format whose bytes are notes of what was written, and to which block."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int, Any]] = []

    def open(self, message: Json) -> bytes:
        return self._note("open", -1, None)

    def start(self, index: int, block: Block) -> bytes:
        return self._note("start", index, block.kind)

    def delta(self, index: int, block: Block, delta: Json) -> bytes:
        return self._note("delta", index, delta.get("text", delta.get("partial_json")))

    def stop(self, index: int, block: Block) -> bytes:
        return self._note("stop", index, None)

    def other(self, event: Json) -> bytes:
        return b""

    def resume(self, message: Json, blocks: Sequence[Block], shown: int) -> None:
        pass

    def closing(self, blocks: Sequence[Block], delta: Json) -> bytes:
        return b""

    def end(self, blocks: Sequence[Block], delta: Json, usage: Json) -> bytes:
        return self._note("end", -1, None)

    def body(self, message: Json, blocks: Sequence[Block], delta: Json, usage: Json) -> Json:
        self._note("end", -1, "".join(b.text for b in blocks if b.kind == TEXT))
        return {}

    def _note(self, what: str, index: int, value: Any) -> bytes:
        self.notes.append((what, index, value))
        return b"%s " % what.encode()


class Tells:
    """Tells events that were made beforehand, one for each frame."""

    def events(self, frame: Frame) -> Sequence[Json]:
        raise AssertionError(frame)

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        return iter(())

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        return None

    def eof(self) -> Sequence[Json]:
        return ()


WORDS = st.text("abc \n`", min_size=1, max_size=30)
ARGUMENTS = ('{"path": "a"', ', "content": "b"}')


@st.composite
def attempts(draw: st.DrawFn) -> list[Json]:
    """Draw the events of one attempt: texts, thoughts and calls, the last perhaps cut."""
    events: list[Json] = []
    kinds = draw(st.lists(st.sampled_from([TEXT, "thinking", TOOL_CALL]), min_size=1, max_size=4))
    for index, kind in enumerate(kinds):
        pieces = draw(st.lists(WORDS, min_size=1, max_size=6))
        if kind == TEXT:
            events.append(told.start(index, {"type": TEXT, "text": ""}))
            events += [told.delta(index, "text_delta", text=piece) for piece in pieces]
        elif kind == TOOL_CALL:
            events.append(told.start(index, {"type": TOOL_CALL, "id": "1", "name": "Write"}))
            cut = draw(st.integers(1, 2)) if index == len(kinds) - 1 else 2
            events += [
                told.delta(index, "input_json_delta", partial_json=a) for a in ARGUMENTS[:cut]
            ]
        else:
            events.append(told.start(index, {"type": "thinking", "thinking": ""}))
            events += [told.delta(index, "thinking_delta", thinking=piece) for piece in pieces]
        if index < len(kinds) - 1 or draw(st.booleans()):
            events.append(told.stop(index))
    return events


MODES = st.sampled_from([Mode.RECOVERY, Mode.APPEND_TAIL])
POLICIES = st.sampled_from([Policy(), Policy(stream_tool_calls="live", stream_thinking="live")])
FIRST = JoinPlan(Mode.FIRST)
CUT_CALLS = st.sampled_from([None, "keep", "drop", "explain"])


def read(client: ClientStream, events: list[Json], plan: JoinPlan, policy: Policy) -> None:
    """Read an attempt to its end, as the builder does."""
    segment = Segment()
    client.join(segment, plan)
    held = bool(client.joined.live_calls)
    gate = Gate(policy, hold_calls=held, streamed=client.streamed)
    AttemptReader(Tells(), segment, gate, client).see(events)
    client.flush_held()
    client.finish_text(ended=False)
    client.place_annotations()


def texts(log: Log) -> str:
    """Return what a reader of the stream joins."""
    kinds = {index: kind for what, index, kind in log.notes if what == "start"}
    deltas = [(index, value) for what, index, value in log.notes if what == "delta"]
    return "".join(value for index, value in deltas if kinds[index] == TEXT and value)


def assert_sound(log: Log) -> None:
    """Blocks are dense, begin and end in turn, and nothing is behind the end."""
    open_block, count = -1, 0
    for place, (what, index, _) in enumerate(log.notes):
        if what == "start":
            assert (open_block, index) == (-1, count)
            open_block, count = index, count + 1
        elif what == "delta":
            assert index == open_block
        elif what == "stop":
            assert index == open_block
            open_block = -1
        elif what == "end":
            assert open_block == -1
            assert place == len(log.notes) - 1


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(attempts(), MODES), min_size=1, max_size=4),
    POLICIES,
    CUT_CALLS,
    st.booleans(),
)
def test_what_was_streamed_joined_is_the_final_text(
    turn: list[tuple[list[Json], Mode]], policy: Policy, cut_call: str | None, ended: bool
) -> None:
    log = Log()
    client = ClientStream(log, ReplayBuffer(), streamed=True)
    client.begin({"id": "1"})
    seen = ""
    for number, (events, mode) in enumerate(turn):
        if number and mode is Mode.RECOVERY:
            client.leave()
        read(client, events, JoinPlan(mode if number else Mode.FIRST), policy)
        assert texts(log).startswith(seen), "what was streamed was taken back"
        assert texts(log) == client.text
        seen = texts(log)
    client.release(cut_call, ended=ended)
    client.end({"stop_reason": "end_turn"}, {})
    assert texts(log) == client.text
    assert texts(log).startswith(seen)
    assert_sound(log)
    assert [what for what, _, _ in log.notes].count("end") == 1


@settings(max_examples=examples(150))
@given(attempts(), st.sampled_from([None, "drop", "explain", "retry_smaller"]))
def test_half_a_call_goes_out_only_where_it_was_asked_for(
    events: list[Json], cut_call: str | None
) -> None:
    log = Log()
    client = ClientStream(log, ReplayBuffer(), streamed=True)
    read(client, events, FIRST, Policy())
    assert not calls_in(client.blocks), "calls wait for the end of the turn"
    client.release(cut_call, ended=False)
    assert all(call.arguments == "".join(ARGUMENTS) for call in calls_in(client.blocks))
    assert not any(call.broken for call in calls_in(client.blocks))


@settings(max_examples=examples(100))
@given(attempts(), st.integers(0, 200), MODES)
def test_pieces_make_no_difference_to_what_is_shown(
    events: list[Json], size: int, mode: Mode
) -> None:
    """The short way for text that flows shows what the long way shows."""
    logs = (Log(), Log())
    first = [told.start(0, {"type": TEXT, "text": ""}), told.delta(0, "text_delta", text="abc a")]
    for log, short in zip(logs, (True, False), strict=True):
        client = ClientStream(log, ReplayBuffer(), streamed=True)
        read(client, first, FIRST, Policy())
        segment = Segment()
        client.join(segment, JoinPlan(mode, hold=size or 1))
        reader = AttemptReader(Tells(), segment, Gate(Policy()), client)
        for event in events:
            reader.see([event])
            if not short:
                reader.steady = None
        client.finish_text(ended=True)
    assert texts(logs[0]) == texts(logs[1])
    assert logs[0].notes == logs[1].notes


def test_a_body_may_have_its_end_taken_back_and_a_stream_may_not() -> None:
    first = [
        told.start(0, {"type": TEXT, "text": ""}),
        told.delta(0, "text_delta", text="The word is na\ufffd"),
    ]
    again = [
        told.start(0, {"type": TEXT, "text": ""}),
        told.delta(0, "text_delta", text="\u00efve, as they say in books of that kind, or so."),
    ]
    shown = {}
    for streamed in (True, False):
        client = ClientStream(Log(), ReplayBuffer(), streamed=streamed)
        read(client, first, FIRST, Policy())
        read(client, again, JoinPlan(Mode.RECOVERY), Policy())
        shown[streamed] = client.text
    assert shown[True].startswith("The word is na\ufffd")
    assert shown[False] == "The word is na\u00efve, as they say in books of that kind, or so."


def test_nothing_follows_the_end() -> None:
    client = ClientStream(Log(), ReplayBuffer(), streamed=True)
    read(client, [told.start(0, {"type": TEXT, "text": "It is."})], FIRST, Policy())
    client.end({}, {})
    with pytest.raises(AssertionError):
        client.end({}, {})
