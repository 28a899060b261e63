"""A chunk that is told without being parsed is told as it would have been otherwise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from continuation.providers.contract import Reader
from continuation.providers.gemini.reader import GeminiReader
from continuation.providers.openai_chat.reader import ChatReader
from continuation.providers.openai_common.vendors import Profile
from continuation.providers.openai_responses.reader import ResponsesReader
from continuation.types import Json
from continuation.wire import sse as _sse
from continuation.wire.sse import Frame
from continuation.wire.text_template import PlainEvents

Chunk = tuple[str, Any]
"""The name of an event, and what it says."""


class Slow(PlainEvents):
    """Knows nothing."""

    def match(self, frame: Frame) -> Json | None:
        return None

    def learn(self, frame: Frame, told: Sequence[Json]) -> None: ...


# --- what servers say -------------------------------------------------------------------------

HOSTILE = [
    '"}],"finish_reason":"length"',
    '"},"finish_reason":"stop"}],"x":"',
    '\\"}}',
    '","obfuscation":"x',
    '"delta":"another"',
    "\\",
    "half an emoji \ud83d",
    "\udc00",
    "\0\x01\n\r\x7f\u2028",
    '{"a": 1}',
    "stop",
]
words = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(codec=None, exclude_categories=()), max_size=4),
    st.sampled_from(HOSTILE),
    st.just("a"),
)


@st.composite
def usually(draw: st.DrawFn, usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> Any:
    return draw(st.one_of(*others) if draw(st.integers(0, 15)) == 7 else usual)


names = usually(st.just("c1"), st.just("c2"))
paddings = usually(st.text("abc", max_size=4), words, st.none())


def _with(key: str, value: object) -> Json:
    return {} if value is None else {key: value}


calls = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 0, 0, 1])},
    optional={
        "id": st.sampled_from(["call_1", "call_2", ""]),
        "type": st.just("function"),
        "custom": st.fixed_dictionaries({"input": words}),
        "extra": words,
        "function": st.fixed_dictionaries(
            {}, optional={"arguments": usually(words, st.just({"a": 1})), "name": words}
        ),
    },
)
more_arguments = st.builds(lambda text: {"index": 0, "function": {"arguments": text}}, words)
CALLED: Json = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""}}
chat_calls = usually(
    st.builds(lambda call: {"tool_calls": [call]}, more_arguments),
    st.builds(lambda call: {"tool_calls": [call]}, calls),
    st.just({"tool_calls": [CALLED]}),
    st.builds(lambda text: {"content": text}, words),
)
chat_texts = usually(
    st.builds(lambda text: {"content": text}, words),
    st.builds(lambda call: {"tool_calls": [call]}, calls),
    st.builds(lambda text, more: {"content": text, **more}, words, st.just({"role": "assistant"})),
    st.builds(lambda text: {"reasoning_content": text, "content": None}, words),
    st.builds(lambda text, note: {"content": text, "vendor": note}, words, words),
    st.builds(lambda text: {"content": [{"type": "text", "text": text}]}, words),
    st.builds(lambda text: {"function_call": {"name": "f", "arguments": text}}, words),
    st.builds(lambda text: {"refusal": text, "content": ""}, words),
    st.sampled_from([{}, None, {"content": None}, {"content": 7}]),
)


def _chat(
    name: str, delta: object, padding: object, choice: Json, beside: Json, first: bool
) -> Chunk:
    own = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **choice}
    beside = {**_with("obfuscation", padding), **beside}
    head = {"id": name, "object": "chat.completion.chunk", "created": 7}
    return "", {**beside, **head, "choices": [own]} if first else {
        **head,
        "choices": [own],
        **beside,
    }


chat_deltas = st.shared(st.sampled_from([chat_texts, chat_calls]), key="kind").flatmap(
    lambda kind: kind
)
chat = st.builds(
    _chat,
    names,
    chat_deltas,
    paddings,
    usually(
        st.just({}),
        st.builds(lambda text: {"logprobs": {"content": [{"token": text}]}}, words),
        st.builds(lambda text: {"finish_reason": text}, st.sampled_from(["stop", "length", "a"])),
        st.builds(lambda text: {"content": text}, words),
        st.builds(lambda n: {"index": n}, st.integers(0, 1)),
    ),
    usually(
        st.just({}),
        st.builds(lambda n: {"usage": {"completion_tokens": n}}, st.integers(0, 9)),
        st.builds(lambda text: {"vendor": text}, words),
        st.builds(lambda text: {"content": text}, words),
        st.builds(lambda text: {"error": {"message": text}}, words),
        st.builds(lambda text: {"nested": {"obfuscation": text}}, words),
    ),
    usually(st.just(False), st.just(True)),
)


def _response(kind: str, told: Json, at: Json, number: object, padding: object) -> Chunk:
    said = {"type": f"response.{kind}", **at, **told}
    return f"response.{kind}", {**said, **_with("obfuscation", padding), "sequence_number": number}


places = st.fixed_dictionaries(
    {},
    optional={
        "output_index": st.integers(0, 2),
        "content_index": st.integers(0, 1),
        "item_id": names,
    },
)
numbers = usually(
    st.integers(0, 10**6), st.sampled_from([None, -1, 1.5, "1", 10**30]), st.integers()
)
response_deltas = st.builds(
    lambda text, more: {"delta": text, **more},
    usually(words, st.sampled_from([None, 7, {}])),
    usually(
        st.just({"logprobs": []}),
        st.builds(lambda text: {"logprobs": [{"token": text}]}, words),
        st.builds(lambda text: {"text": text, "vendor": {"sequence_number": 5}}, words),
    ),
)
items = st.sampled_from(
    [
        {"type": "message", "id": "c1", "content": []},
        {"type": "function_call", "id": "c1", "call_id": "k", "name": "f", "arguments": ""},
        {"type": "reasoning", "id": "c1"},
    ]
)
responses = st.builds(
    _response,
    usually(
        st.just("output_text.delta"),
        st.sampled_from(
            [
                "function_call_arguments.delta",
                "reasoning_summary_text.delta",
                "output_text.done",
                "refusal.delta",
                "unknown.delta",
            ]
        ),
    ),
    response_deltas,
    usually(st.just({"output_index": 0, "content_index": 0, "item_id": "c1"}), places),
    numbers,
    paddings,
)
announced = st.builds(
    _response,
    st.sampled_from(["output_item.added", "output_item.done", "content_part.done", "completed"]),
    st.builds(lambda item: {"item": item, "response": {"output": []}}, items),
    places,
    numbers,
    st.none(),
)


def _google(parts: object, candidate: Json, beside: Json, counts: object) -> Chunk:
    own = {"content": {"parts": parts, "role": "model"}, **candidate, "index": 0}
    return "", {"candidates": [own], **_with("usageMetadata", counts), **beside}


parts = usually(
    st.builds(lambda text: {"text": text}, words),
    st.builds(lambda text: {"text": text, "thought": True}, words),
    st.builds(lambda text: {"text": text, "thoughtSignature": "s"}, words),
    st.just({"functionCall": {"name": "f", "args": {}}}),
    st.builds(lambda more: {"functionCall": {"name": "f", "willContinue": more}}, st.booleans()),
)
counts = usually(
    st.fixed_dictionaries(
        {"promptTokenCount": st.integers(0, 99)},
        optional={
            "promptTokensDetails": st.lists(
                st.fixed_dictionaries(
                    {"modality": st.just("TEXT"), "tokenCount": st.integers(0, 9)}
                ),
                max_size=2,
            ),
            "candidatesTokenCount": st.integers(0, 99),
        },
    ),
    st.sampled_from([None, {}, {"deep": [{"a": [{}]}]}, {"candidatesTokenCount": -1.5}, 7]),
)
gemini = st.builds(
    _google,
    usually(st.lists(parts, min_size=1, max_size=1), st.lists(parts, max_size=3), st.just(None)),
    usually(
        st.just({}),
        st.builds(lambda text: {"finishReason": text}, st.sampled_from(["STOP", "MAX_TOKENS", ""])),
        st.builds(lambda text: {"avgLogprobs": text}, words),
        st.builds(lambda text: {"continuationToken": text}, words),
    ),
    usually(
        st.just({}),
        st.builds(lambda text: {"responseId": text}, names),
        st.builds(lambda text: {"nested": {"usageMetadata": {"a": 1}, "text": text}}, words),
    ),
    counts,
)


@st.composite
def streams(draw: st.DrawFn, chunks: st.SearchStrategy[Chunk]) -> list[Frame]:
    """Draw a stream as bytes, with a fault here and there that makes it no JSON, or no UTF-8."""
    spaced, escaped = draw(st.booleans()), draw(st.booleans())
    marks = (", ", ": ") if spaced else (",", ":")
    frames = list[Frame]()
    for name, chunk in draw(st.lists(chunks, min_size=5, max_size=25)):
        text = json.dumps(chunk, ensure_ascii=escaped, separators=marks)
        data = text.encode("utf-8", "surrogatepass")
        odd = draw(st.integers(0, 30))
        if odd == 7 and data:
            at = draw(st.integers(0, len(data) - 1))
            fault = draw(st.sampled_from([b"\xff", b"\\", b'"', b"\\u00", b"1", b"", b"\xed\xa0"]))
            data = data[:at] + fault + data[at + 1 :]
        elif odd == 8:  # the same key again, or an escape in it
            key = draw(st.sampled_from([b'"content"', b'"delta"', b'"text"', b'"function"']))
            again = key + b':"b",' + key
            data = data.replace(key, draw(st.sampled_from([again, b'"\\u0061"', key])), 1)
        frames.append(Frame(name, data, 0))
    return frames


def check(new: Callable[[], Any], frames: Sequence[Frame]) -> None:
    fast, short, slow = new(), new(), new()
    slow._plain = Slow(lambda chunk: None, {})
    fast._plain._spent = short._plain._spent = -(10**6)
    index = None
    for place, frame in enumerate(frames):
        _check_joined(new, frames[:place], frames[place:], index)
        told = list(slow.events(frame))
        assert list(fast.events(frame)) == told
        more = short.deltas(_sse.encode(frame.name, frame.data), index, text=False)
        alike = [{"type": "content_block_delta", "index": index, "delta": d} for d, _ in more]
        assert (alike or list(short.events(frame))) == told
        index = told[-1].get("index") if told else index
    assert list(fast.eof()) == list(short.eof()) == list(slow.eof())


def _check_joined(
    new: Callable[[], Any], before: Sequence[Frame], frames: Sequence[Frame], index: object
) -> None:
    """What is told of many events at once is what is told of each, one after the other."""
    many, each = new(), new()
    for frame in before:
        assert list(many.events(frame)) == list(each.events(frame))
    chunks = [_sse.encode(frame.name, frame.data) for frame in frames]
    if (found := many.joined(b"".join(chunks), index, chunks)) is not None:
        ((kind, _), (key, text)), end = found[0].items(), found[1]
        sizes = list(itertools.accumulate(map(len, chunks)))
        told = [event for frame in frames[: sizes.index(end) + 1] for event in each.events(frame)]
        assert {event["index"] for event in told} == {index}
        assert "".join(event["delta"][key] for event in told) == text, kind
        if isinstance(many, GeminiReader):
            seen = [reader._parsed + reader._plain.seen for reader in (many, each)]
            assert seen[0] == seen[1], "what stands beside a text is known by its chunk"


def _chat_reader() -> Reader:
    return ChatReader(Profile())


@given(streams(chat))
@settings(max_examples=examples(200))
def test_chat_chunks_are_told_as_they_would_have_been(frames: list[Frame]) -> None:
    check(_chat_reader, frames)


@given(streams(usually(responses, announced)))
@settings(max_examples=examples(200))
def test_responses_events_are_told_as_they_would_have_been(frames: list[Frame]) -> None:
    check(ResponsesReader, frames)


@given(streams(gemini))
@settings(max_examples=examples(200))
def test_gemini_chunks_are_told_as_they_would_have_been(frames: list[Frame]) -> None:
    check(lambda: GeminiReader(64), frames)


# --- chunks that are alike, but do not mean the same each time ------------------------------------


def _calling(arguments: str, **named: str) -> Chunk:
    call = {"index": 0, "function": {**named, "arguments": arguments}}
    return _chat("c1", {"tool_calls": [call]}, None, {}, {}, first=False)


def _noted(text: str, note: str) -> Chunk:
    return _chat("c1", {"content": text}, "a", {}, {"note": note, "more": {"a": 1}}, first=True)


def _done(text: str) -> Chunk:
    at: Json = {"item_id": "c1", "output_index": 0, "content_index": 0}
    return _response("output_text.delta", {"text": "a", "note": "b", "delta": text}, at, 7, "a")


def _counted(text: str, count: object, **candidate: object) -> Chunk:
    counts = {"candidatesTokenCount": count} if count else None
    return _google([{"text": text}], candidate, {}, counts)


ALIKE: dict[str, tuple[Callable[[], Any], list[Chunk]]] = {
    "a name that begins another call once the arguments are whole": (
        _chat_reader,
        [_calling(piece, name="f") for piece in ['{"a"', ": 1", "}", "{}", "{}"]],
    ),
    "a name behind arguments that were told in passing": (
        _chat_reader,
        [
            _calling('{"a"', name="f"),
            *(_calling(piece) for piece in [": 1", ", ", '"b": 2', "}"]),
            _calling("{}", name="f"),
        ],
    ),
    "the same text in another place": (
        _chat_reader,
        [_noted(*said) for said in ["aa", "aa", "ba", "ab", "cc", "cc", "dc", "cd"]],
    ),
    "the same text in another key": (ResponsesReader, [_done(text) for text in "aabcab"]),
    "a value beside the text that is kept each time": (
        lambda: GeminiReader(64),
        [*(_counted(text, 1, avgLogprobs=-1) for text in "abc"), _counted("", 4, finishReason="X")],
    ),
    "an end that lacks a count": (
        lambda: GeminiReader(64),
        [
            *(_counted(text, number) for number, text in enumerate("abcd", 1)),
            _counted("e", 0),
            _counted("", 0, finishReason="MAX_TOKENS"),
        ],
    ),
}


@pytest.mark.parametrize("what", ALIKE)
def test_what_looks_alike_is_not_told_alike(what: str) -> None:
    new, chunks = ALIKE[what]
    check(new, [Frame(name, json.dumps(chunk).encode(), 0) for name, chunk in chunks])


# --- that it is worth it ------------------------------------------------------------------------


def _usual(text: str, number: int) -> list[tuple[Callable[[], Any], Chunk]]:
    said: Json = {"delta": text, "logprobs": []}
    at: Json = {"item_id": "c1", "output_index": 0, "content_index": 0}
    count = {"promptTokenCount": 3, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}]}
    delta: Json = {"content": text}
    call: Json = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
    plain = {"candidatesTokenCount": number, **count}
    return [
        (_chat_reader, _chat("c1", delta, "x" * (number % 7), {}, {}, first=False)),
        (_chat_reader, _chat("c1", call, "x" * (number % 7), {}, {"usage": None}, first=True)),
        (ResponsesReader, _response("output_text.delta", said, at, number, "x" * (number % 5))),
        (lambda: GeminiReader(64), _google([{"text": text}], {}, {"responseId": "r"}, plain)),
    ]


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("escaped", [True, False])
def test_the_usual_chunks_are_parsed_at_the_beginning_alone(form: int, escaped: bool) -> None:
    said = [f"{text} {n}" for n, text in enumerate(["a", '"b"', "文字 🙂", "c\n", *HOSTILE] * 3)]
    new, _ = _usual("", 0)[form]
    reader = new()
    long = 0
    for number, text in enumerate(said):
        name, chunk = _usual(text, number)[form][1]
        data = json.dumps(chunk, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
        before = reader._plain.seen
        told = reader.events(Frame(name, data, 0))
        (heard,) = [e["delta"] for e in told if e["type"] == "content_block_delta"]
        assert text in heard.values(), "hostile text is text"
        long += reader._plain.seen == before
    assert long <= 3 or not escaped, "half an emoji that comes raw is for the lenient parser"


def test_a_server_that_says_something_new_with_each_text_is_not_learnt_for_ever() -> None:
    reader = ChatReader(Profile())
    for number in range(50):
        name, chunk = _chat(f"c{number}", {"content": "a"}, None, {}, {}, first=False)
        reader.events(Frame(name, json.dumps(chunk).encode(), 0))
    assert reader._plain.seen == 0
    assert reader._plain._spent == 200


# --- events in their usual form -------------------------------------------------------------------

LINES = b"data: a|data: b|data:c|data:  d|data:|data: |event: x|event:y|event: |: note|id: 1|"
lines = st.one_of(
    st.sampled_from([*LINES.split(b"|"), b"data: event: z", b"data: " + b"e" * 4096]), st.just(b"")
)
breaks = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(lines, breaks), max_size=12), st.booleans(), st.integers(0, 40))
def test_a_match_finds_the_same_events_as_a_search(
    said: list[tuple[bytes, bytes]], final: bool, cut: int
) -> None:
    raw = b"".join(line + end for line, end in said)
    raw = raw[: len(raw) - cut] if cut < 6 else raw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sse, "_plain", lambda raw, start: None)
        searched = _sse.frames(raw, final=final)
    assert _sse.frames(raw, final=final) == searched
