"""What must always be true of Chat, for any text, limit, chunking, drop and recoveries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from support.drive import JSON, STREAM, Answered, Driven, split
from support.drive_chat import (
    OPENING,
    asking,
    call,
    chat,
    closing,
    completed,
    finishes,
    shown,
    sse,
    texts,
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
    """A model that recites `text`, then calls; it goes on exactly where the request's text ends."""

    text: str
    calls: list[str] = field(default_factory=list[str])
    """Arguments of the calls that follow the text."""
    lies: str | None = None
    """What it says in place of `length` when a call was cut."""
    drops: dict[int, int] = field(default_factory=dict[int, int])
    """Attempt -> bytes after which its stream breaks."""
    fails: set[int] = field(default_factory=set[int])
    cuts: list[int] = field(default_factory=list[int])
    piece: int = 3
    newline: str = "\n"
    spaced: bool = False
    inline: bool = False
    """The reason comes in the chunk of the last text."""
    attempt: int = 0

    def __call__(self, body: dict[str, Any]) -> Answered:
        self.attempt += 1
        if self.attempt in self.fails:
            return 400, JSON, [b"{}"], None
        told = "".join(m["content"] for m in body["messages"] if m["role"] == "assistant")
        assert self.text.startswith(told)
        rest = self.text[len(told) :]
        anchor = choose_anchor(told) if told else None
        # A model that was asked for these very words and happens to go on with them cannot be
        # told from one that obeyed.
        assume(anchor is None or not rest.startswith(anchor))
        events = self._events(rest, body["max_tokens"], counted="stream_options" in body)
        if not body.get("stream"):
            return 200, JSON, [completed(Driven(pieces=[sse(events)])).to_json().encode()], None
        raw = sse(events, self.newline, spaced=self.spaced)
        broken = self.drops.get(self.attempt)
        if broken is not None and broken < len(raw):
            return 200, STREAM, split(raw[:broken], self.cuts), BrokenError()
        return 200, STREAM, split(raw, self.cuts), None

    def _events(self, rest: str, limit: int, *, counted: bool) -> list[Any]:
        said, room = rest[:limit], limit - len(rest)
        events: list[Any] = [OPENING]
        events += texts(*(said[i : i + self.piece] for i in range(0, len(said), self.piece)))
        begun = 0
        for number, arguments in enumerate(self.calls):
            if room < 0:
                break
            pieces = [
                arguments[i : min(i + 5, room)] for i in range(0, min(len(arguments), room), 5)
            ]
            events += call(pieces, number)
            room, begun = room - len(arguments), number + 1
        whole = room >= 0 and begun == len(self.calls)
        finish = ("tool_calls" if self.calls else "stop") if whole else "length"
        # A call that was cut before its first argument looks like one that needs none: without a
        # count of tokens nothing is held against a server that calls it whole.
        shown = bool(begun) and room > -len(self.calls[begun - 1])
        if shown and not whole and self.lies and begun == len(self.calls):
            finish = self.lies
        tail = closing(finish, min(limit, 999) if counted else None)
        if self.inline and said and not begun:
            events[-1]["choices"][0]["finish_reason"] = finish
            tail = tail[1:]
        return [*events, *tail]


def policy(ceiling: int, **changes: Any) -> Policy:
    return Policy(
        model_max_output_tokens=ceiling,
        leave_limits_below=0,
        backoff_seconds=0,
        verify_stop_reason=False,
        **changes,
    )


words = st.one_of(
    st.text(max_size=150),
    st.text(alphabet='ab \n}"', max_size=150),
    st.lists(st.sampled_from(["    }\n", "| a | b |\n", "word ", "文字", "🙂"]), max_size=40).map(
        "".join
    ),
).filter(lambda text: text.strip() != "" or text == "")
places = st.lists(st.integers(1, 3000), max_size=8)
breaks = st.dictionaries(st.integers(1, 4), st.integers(120, 2500), max_size=3)
telling = st.builds(
    Reciter,
    words,
    drops=breaks,
    fails=st.sets(st.integers(2, 5), max_size=2),
    cuts=places,
    piece=st.integers(1, 9),
    newline=st.sampled_from(["\n", "\r\n"]),
    spaced=st.booleans(),
    inline=st.booleans(),
)
calling = st.builds(
    Reciter,
    st.text(alphabet="ab \n", max_size=40),
    st.lists(
        st.text(max_size=40).map(lambda said: json.dumps({"path": "a", "content": said})),
        min_size=1,
        max_size=3,
    ),
    lies=st.sampled_from([None, "stop", "tool_calls"]),
    drops=breaks,
    fails=st.sets(st.integers(2, 4), max_size=3),
    cuts=places,
)
few, some = st.integers(0, 4), st.integers(0, 80)


@given(model=telling, limit=st.integers(1, 80), raised=some, recoveries=few, counted=st.booleans())
@settings(max_examples=examples(200))
def test_what_was_streamed_is_the_final_text_and_a_prefix_of_the_truth(
    model: Reciter, limit: int, raised: int, recoveries: int, counted: bool
) -> None:
    more = {"stream_options": {"include_usage": True}} if counted else {}
    driven = chat(model, asking(limit, **more), policy(limit + raised, max_recoveries=recoveries))
    report = driven.report
    assert report is not None
    if driven.error is not None:
        assert isinstance(driven.error, BrokenError)
        assert not shown(driven).strip(), "text in hand is never lost to an exception"
        return
    check_stream(driven, counted=counted)
    said = completed(driven).choices[0].message.content or ""
    assert shown(driven) == said
    assert model.text.startswith(said)
    if report.outcome in {Outcome.HEALED, Outcome.COMPLETE}:
        assert said == model.text
    check_bounds(driven, recoveries)


@given(text=words, limit=st.integers(1, 80), raised=some, recoveries=few)
@settings(max_examples=examples(100))
def test_a_whole_answer_is_the_streamed_one(
    text: str, limit: int, raised: int, recoveries: int
) -> None:
    most = policy(limit + raised, max_recoveries=recoveries)
    unary = chat(Reciter(text), asking(limit, stream=False), most)
    assert unary.error is None
    completion = ChatCompletion.model_validate_json(b"".join(unary.pieces))
    said = completion.choices[0].message.content or ""
    assert text.startswith(said)
    if unary.report.outcome in {Outcome.HEALED, Outcome.COMPLETE}:
        assert said == text
    assert completion.choices[0].finish_reason in {"stop", "length"}


@given(
    model=calling,
    limit=st.integers(1, 200),
    raised=st.integers(0, 200),
    stream=st.booleans(),
    kept=st.sampled_from(["explain", "drop", "retry_smaller"]),
)
@settings(max_examples=examples(200))
def test_a_cut_call_is_never_presented_as_a_whole_one(
    model: Reciter, limit: int, raised: int, stream: bool, kept: str
) -> None:
    if not stream:
        model.drops = {}
    tool = {"name": "Write", "parameters": {"type": "object", "required": ["path"]}}
    asked = asking(limit, stream=stream, tools=[{"type": "function", "function": tool}])
    driven = chat(model, asked, policy(limit + raised, truncated_tool_call=kept))
    if driven.error is not None:
        return
    raw = b"".join(driven.pieces)
    whole = completed(driven) if stream else ChatCompletion.model_validate_json(raw)
    choice = whole.choices[0]
    made = [c.function.arguments for c in choice.message.tool_calls or [] if c.type == "function"]
    assert made == model.calls[: len(made)]
    if choice.finish_reason == "tool_calls":
        assert made
    if stream and not any("error" in event for event in driven.told):
        check_stream(driven)


def check_stream(driven: Driven, *, counted: bool = False) -> None:
    """One role, one finish reason, one `[DONE]`, one id; usage for who asked for it."""
    raw = b"".join(driven.pieces)
    assert raw.count(b"[DONE]") == 1
    assert raw.replace(b"\r\n", b"\n").endswith(b"data: [DONE]\n\n")
    deltas = [event["choices"][0]["delta"] for event in driven.told if event["choices"]]
    assert [bool(delta.get("role")) for delta in deltas].count(True) == 1
    assert len(finishes(driven)) == 1
    assert len({event["id"] for event in driven.told}) == 1
    usage = [event for event in driven.told if event.get("usage")]
    assert len(usage) <= counted


def check_bounds(driven: Driven, recoveries: int) -> None:
    assert len(driven.requests) <= 12
    answered = [a for a in driven.report.attempts if a.stop is not None]
    assert len(answered) <= 2 + recoveries + 3
    assert not looks_like_recovery_prompt(json.dumps(driven.told))
