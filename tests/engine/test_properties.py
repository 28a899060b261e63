"""What must always be true, for any text, limit, chunking, drop and number of recoveries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from anthropic.types import Message
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.drive import (
    JSON,
    STREAM,
    Answered,
    Driven,
    call_block,
    check_stream,
    closing,
    drive,
    opening,
    split,
    sse,
    text_block,
)
from support.examples import examples

from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.seams.text import choose_anchor
from continuation.types import Outcome


class BrokenError(Exception):
    """The connection broke."""


@dataclass
class Reciter:
    """A model that recites `text`, and goes on exactly where the request's own text ends."""

    text: str
    calls: list[str] = field(default_factory=list[str])
    """Arguments of the calls that follow the text."""
    obeys: bool = False
    """It begins by repeating the words the recovery prompt asks for."""
    drops: dict[int, int] = field(default_factory=dict[int, int])
    """Attempt -> bytes after which its stream breaks."""
    fails: set[int] = field(default_factory=set[int])
    """Attempts that are turned away."""
    cuts: list[int] = field(default_factory=list[int])
    piece: int = 3
    attempt: int = 0

    def __call__(self, body: dict[str, Any]) -> Answered:
        self.attempt += 1
        if self.attempt in self.fails:
            return 400, JSON, [b"{}"], None
        spoken = self.text[: self._place(body["messages"])]
        rest = self.text[len(spoken) :]
        anchor = choose_anchor(spoken) if spoken else None
        if anchor is not None and self.obeys:
            assume(body["max_tokens"] > len(anchor))  # no ceiling is smaller than an anchor
            rest = anchor + rest
        elif anchor is not None:
            # A model that was asked for these very words and happens to go on with them cannot
            # be told from one that obeyed.
            assume(not rest.startswith(anchor))
        events = self._events(rest, body["max_tokens"])
        if not body.get("stream"):
            return 200, JSON, [self._body(events)], None
        raw = sse(events)
        broken = self.drops.get(self.attempt)
        if broken is not None and broken < len(raw):
            return 200, STREAM, split(raw[:broken], self.cuts), BrokenError()
        return 200, STREAM, split(raw, self.cuts), None

    def _place(self, messages: list[Any]) -> int:
        """How far the text has been told, repeated anchors left out."""
        place = 0
        for message in messages:
            if message["role"] != "assistant":
                continue
            told = "".join(b["text"] for b in message["content"] if b["type"] == "text")
            anchor = (choose_anchor(self.text[:place]) or "") if place and self.obeys else ""
            told = told[min(len(anchor), len(told)) :]
            assert self.text.startswith(told, place)
            place += len(told)
        return place

    def _events(self, rest: str, limit: int) -> list[dict[str, Any]]:
        room = limit
        said, room = rest[:room], room - len(rest)
        pieces = [said[i : i + self.piece] for i in range(0, len(said), self.piece)]
        events = [opening(), *(text_block(0, pieces) if said else [])]
        for call in self.calls:
            if room <= 0:
                room = -1
                break
            args, room = call[:room], room - len(call)
            events += call_block((1 if said else 0) + self.calls.index(call), [args])
        whole = room >= 0
        stop = ("tool_use" if self.calls else "end_turn") if whole else "max_tokens"
        return [*events, *closing(stop, min(limit, 999))]

    def _body(self, events: list[dict[str, Any]]) -> bytes:
        driven = Driven(pieces=[sse(events)])
        return driven.message.model_dump_json().encode()


def request(limit: int, **changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": limit,
        "stream": True,
        "messages": [{"role": "user", "content": "Go."}],
    }
    return {**plain, **changes}


def policy(ceiling: int, **changes: Any) -> Policy:
    return Policy(
        model_max_output_tokens=ceiling,
        leave_limits_below=0,
        backoff_seconds=0,
        verify_stop_reason=False,
        **changes,
    )


texts = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="ab \n}", max_size=200),
    st.lists(st.sampled_from(["    }\n", "| a | b |\n", "word ", "文字", "🙂"]), max_size=40).map(
        "".join
    ),
).filter(lambda text: text.isprintable() or text.strip() != "" or text == "")


@given(
    text=texts,
    limit=st.integers(1, 80),
    raised=st.integers(0, 80),
    recoveries=st.integers(0, 4),
    drops=st.dictionaries(st.integers(1, 4), st.integers(200, 1500), max_size=3),
    fails=st.sets(st.integers(2, 5), max_size=2),
    cuts=st.lists(st.integers(1, 2000), max_size=8),
    piece=st.integers(1, 9),
    obeys=st.booleans(),
)
@settings(max_examples=examples(250))
@example(
    text="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    limit=9,
    raised=0,
    recoveries=3,
    drops={},
    fails=set(),
    obeys=False,
    cuts=[],
    piece=3,
)
def test_what_was_streamed_is_the_final_text_and_a_prefix_of_the_truth(
    text: str,
    limit: int,
    raised: int,
    recoveries: int,
    drops: dict[int, int],
    fails: set[int],
    cuts: list[int],
    piece: int,
    obeys: bool,
) -> None:
    model = Reciter(text, drops=drops, fails=fails, cuts=cuts, piece=piece, obeys=obeys)
    driven = drive(model, request(limit), policy(limit + raised, max_recoveries=recoveries))
    report = driven.report
    assert report is not None
    if driven.error is not None:
        assert isinstance(driven.error, BrokenError)
        assert not driven.shown.strip(), "text in hand is never lost to an exception"
        return
    if driven.told[-1]["type"] != "error":
        check_stream(driven.told)
    message = driven.message
    said = "".join(block.text for block in message.content if block.type == "text")
    assert driven.shown == said
    assert text.startswith(said)
    if report.outcome in {Outcome.HEALED, Outcome.COMPLETE}:
        assert said == text
    check_bounds(driven, recoveries)


@given(
    text=texts,
    limit=st.integers(1, 80),
    raised=st.integers(0, 80),
    recoveries=st.integers(0, 4),
    obeys=st.booleans(),
)
@settings(max_examples=examples(150))
def test_a_whole_answer_is_the_streamed_one(
    text: str, limit: int, raised: int, recoveries: int, obeys: bool
) -> None:
    unary = drive(
        Reciter(text, obeys=obeys),
        request(limit, stream=False),
        policy(limit + raised, max_recoveries=recoveries),
    )
    assert unary.error is None
    message = Message.model_validate_json(b"".join(unary.pieces))
    said = "".join(block.text for block in message.content if block.type == "text")
    assert text.startswith(said)
    if unary.report.outcome in {Outcome.HEALED, Outcome.COMPLETE}:
        assert said == text
    check_bounds(unary, recoveries)


@given(
    text=st.text(alphabet="ab \n", max_size=40),
    content=st.text(max_size=60),
    limit=st.integers(1, 150),
    raised=st.integers(0, 150),
    drops=st.dictionaries(st.integers(1, 3), st.integers(200, 1500), max_size=2),
    fails=st.sets(st.integers(2, 4), max_size=3),
    cuts=st.lists(st.integers(1, 2000), max_size=8),
    stream=st.booleans(),
    kept=st.sampled_from(["explain", "drop", "retry_smaller"]),
)
@settings(max_examples=examples(250))
def test_a_cut_call_is_never_presented_as_a_whole_one(
    text: str,
    content: str,
    limit: int,
    raised: int,
    drops: dict[int, int],
    fails: set[int],
    cuts: list[int],
    stream: bool,
    kept: str,
) -> None:
    arguments = json.dumps({"path": "a", "content": content})
    model = Reciter(text, [arguments], drops=drops if stream else {}, fails=fails, cuts=cuts)
    driven = drive(
        model, request(limit, stream=stream), policy(limit + raised, truncated_tool_call=kept)
    )
    if driven.error is not None:
        return
    raw = b"".join(driven.pieces)
    message = driven.message if stream else Message.model_validate_json(raw)
    calls = [block.input for block in message.content if block.type == "tool_use"]
    assert calls in ([], [json.loads(arguments)])
    if message.stop_reason == "tool_use":
        assert calls


def check_bounds(driven: Driven, recoveries: int) -> None:
    posts = [body for body in driven.requests if body]
    assert len(posts) <= 12
    answered = [a for a in driven.report.attempts if a.stop is not None]
    assert len(answered) <= 2 + recoveries + 3
    everything = json.dumps(driven.told)
    assert not looks_like_recovery_prompt(everything)
