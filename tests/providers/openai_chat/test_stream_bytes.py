"""The bytes of a Chat stream, at every split, in every framing: the answer is the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drive import Attempt, Driven, body, combs, streams
from support.drive_chat import (
    OPENING,
    asking,
    call,
    chat,
    chunk,
    closing,
    completed,
    finishes,
    gist,
    shown,
    sse,
    texts,
)
from support.examples import pieces

from continuation import Policy
from continuation.providers.openai_chat.codec import ChatPath

ARGS = '{"path": "a.txt", "content": "naïve 文字 🙂"}'
COUNTED = asking(stream_options={"include_usage": True})

TEXT_CUT = [OPENING, *texts("The quick", " brown fo")]
TEXT_REST = [OPENING, *texts("x ju", "mps 文字 🙂.")]
CALL_CUT = [OPENING, *texts("I write. "), *call([ARGS[:20], ARGS[20:30]])]
CALL_WHOLE = [OPENING, *texts("I write. "), *call([ARGS[:9], ARGS[9:]])]
SCENES: dict[str, tuple[list[Any], list[Any]]] = {
    "text": ([*TEXT_CUT, *closing("length", 1000)], [*TEXT_REST, *closing("stop", 9)]),
    "call": ([*CALL_CUT, *closing("length", 1000)], [*CALL_WHOLE, *closing("tool_calls", 40)]),
    "mislabelled call": (
        [*CALL_CUT, *closing("tool_calls")],
        [*CALL_WHOLE, *closing("tool_calls", 40)],
    ),
    "whole": ([*CALL_WHOLE, *closing("tool_calls", 40)], []),
}


def served(*attempts: Attempt, request: Any = COUNTED) -> Driven:
    return chat(streams(*attempts), request)


def healed(first: Sequence[Any], *later: Sequence[Any], **asked: Any) -> Driven:
    """Run a turn whose attempts say these chunks; the first one comes chunk by chunk."""
    return served([sse([told]) for told in first], *map(sse, later), request=asking(**asked))


@pytest.mark.parametrize("spaced", [False, True], ids=["compact", "spaced"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("scene", SCENES)
@pieces
def test_at_every_split_of_either_attempt_the_answer_is_the_same(
    scene: str, newline: str, spaced: bool, size: int
) -> None:
    first, second = (sse(told, newline, spaced=spaced) for told in SCENES[scene])
    whole = served(first, second)
    expected = gist(whole)
    assert completed(whole).choices[0].message.content == expected[0]
    for some in combs(first, size):
        driven = served(some, second)
        assert gist(driven) == expected
        assert second or b"".join(driven.pieces) == first, "what was not cut passes as it came"
    for some in combs(second, size):
        assert gist(served(first, some)) == expected


@pytest.mark.parametrize("scene", SCENES)
def test_comments_say_nothing(scene: str) -> None:
    first, second = (sse(told) for told in SCENES[scene])
    noisy = [raw.replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n") for raw in (first, second)]
    expected = gist(served(first, second))
    assert gist(served(*noisy)) == expected
    assert gist(served(*([bytes([byte]) for byte in raw] for raw in noisy))) == expected


@pytest.mark.parametrize("scene", ["text", "call", "mislabelled call"])
def test_a_healed_stream_has_one_role_one_finish_one_usage_and_one_done(scene: str) -> None:
    driven = served(*map(sse, SCENES[scene]))
    raw = b"".join(driven.pieces)
    roles = [e for e in driven.told if e["choices"] and e["choices"][0]["delta"].get("role")]
    usage = [event for event in driven.told if event.get("usage")]
    assert (len(roles), len(finishes(driven)), len(usage), raw.count(b"[DONE]")) == (1, 1, 1, 1)
    assert raw.endswith(b"data: [DONE]\n\n")
    assert {(event["id"], event["created"]) for event in driven.told} == {("c1", 7)}


def test_usage_is_told_only_to_who_asked() -> None:
    driven = healed([*TEXT_CUT, *closing("length")], [*TEXT_REST, *closing("stop", 9)])
    assert not any("usage" in event for event in driven.told)
    assert shown(driven) == "The quick brown fox jumps 文字 🙂."
    assert "stream_options" not in driven.requests[0]
    assert driven.requests[1]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("options", [{"include_usage": False}, {"include_obfuscation": False}])
def test_other_stream_options_do_not_bring_a_chunk_without_choices(options: Any) -> None:
    driven = healed(
        [*TEXT_CUT, *closing("length")],
        [*TEXT_REST, *closing("stop", 9)],
        stream_options=options,
    )
    assert driven.requests[1]["stream_options"] == {**options, "include_usage": True}
    assert all(event["choices"] for event in driven.told)
    assert not any("usage" in event for event in driven.told)


def thoughts(field: str, **beside: Any) -> list[Any]:
    return [chunk({field: piece, **beside}) for piece in ("Hm, ", "so.")]


THOUGHTS = {
    "DeepSeek's": thoughts("reasoning_content", content=None),
    "vLLM's": thoughts("reasoning"),
    "with an empty text": thoughts("reasoning_content", content=""),
    "under both names": [chunk({"reasoning": "Hm.", "reasoning_content": "Hm."})],
}


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("whose", THOUGHTS)
def test_text_flows_at_once_behind_reasoning(whose: str, spaced: bool) -> None:
    """Chunk by chunk, as a network gives them: none of them is taken for one like the last."""
    events = [OPENING, *THOUGHTS[whose], *texts("The", " answer", "."), *closing("stop")]
    pieces = served([sse([event], spaced=spaced) for event in events]).pieces
    first = len(THOUGHTS[whose]) + 1
    assert not any(pieces[1:first]), "reasoning waits"
    assert all(pieces[first : first + 3])


@pytest.mark.parametrize("whose", THOUGHTS)
@pytest.mark.parametrize("label", ["length", "tool_calls", "stop"])
def test_a_call_cut_behind_reasoning_is_seen_chunk_by_chunk(whose: str, label: str) -> None:
    first = [OPENING, *THOUGHTS[whose], *call([ARGS[:9], ARGS[9:20]]), *closing(label)]
    driven = healed(first, SCENES["call"][1])
    assert calls_of(driven) == [("call_0", ARGS)]
    assert len(driven.requests) == 2


@pytest.mark.parametrize("name", [None, "", "Write"])
def test_a_second_call_cut_behind_a_whole_one_is_seen_chunk_by_chunk(name: str | None) -> None:
    """Some servers say the name, or that there is none, in every piece."""
    more = [piece(0, None, name, '{"a":'), piece(0, None, name, "1}")]
    first = [OPENING, *call([]), *more, *call(["{"], index=1), *closing("tool_calls")]
    driven = healed(first, SCENES["call"][1], tools=[{"type": "function", "function": TOOL}])
    assert calls_of(driven) == [("call_0", ARGS)]


def test_a_call_in_the_chunk_of_an_empty_text_is_seen() -> None:
    """Where the reason comes first, what stands behind the text is not looked over."""

    def told(delta: Any) -> Any:
        return {**chunk({}), "choices": [{"index": 0, "finish_reason": None, "delta": delta}]}

    said = [told({"content": text, "tool_calls": None}) for text in ("I", " write", ". ")]
    begun = {"index": 0, "id": "a", "type": "function", "function": {"name": "Write"}}
    cut = {"index": 0, "function": {"arguments": ARGS[:20]}}
    calls = [told({"content": "", "tool_calls": [piece]}) for piece in (begun, cut)]
    first = [OPENING, *said, *calls, *closing("tool_calls")]
    driven = healed(first, SCENES["call"][1])
    assert calls_of(driven) == [("call_0", ARGS)]
    assert shown(driven) == "I write. "


NOTHING: list[Any] = [None, []]


@given(data=st.data())
def test_what_is_looked_over_is_shown_as_what_is_read(data: st.DataObject) -> None:
    vocabulary = [
        *texts("Hello", " ", "\r\n", '"tool_calls":[{"', '{"name":"'),
        *(chunk({"content": "x", "tool_calls": none}) for none in NOTHING),
        *(event for whose in THOUGHTS.values() for event in whose),
        chunk({"content": "said", "reasoning_content": "and thought"}),
        chunk({"content": [{"type": "text", "text": "listed"}]}),
        chunk({"refusal": "No."}),
        *call(['{"a":', "1}"]),
        *call(['{"b'], index=1),
    ]
    events = [OPENING, *data.draw(st.lists(st.sampled_from(vocabulary), max_size=12))]
    events += closing(data.draw(st.sampled_from(LABELS)))
    again = [OPENING, *texts("All of it."), *closing("stop")] * 2
    skimmed = healed(events, again, limit=16_384)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatPath, "flows", lambda *_: False)
        patch.setattr(ChatPath, "skips", lambda *_, **__: False)
        assert skimmed.pieces == healed(events, again, limit=16_384).pieces


READ = '{"path": "a.txt"}'
OTHER = '{"text": "Something else."}'
LABELS = ["stop", "length", "tool_calls"]
LIVE = Policy(stream_tool_calls="live")


def test_a_call_shown_live_is_not_told_twice() -> None:
    first = [OPENING, *THOUGHTS["vLLM's"], *closing("length")]
    again = [OPENING, *call([ARGS[:9], ARGS[9:]]), *closing("tool_calls")]
    driven = chat(streams(sse(first), sse(again)), asking(), LIVE)
    assert calls_of(driven) == [("call_0", ARGS)]


@pytest.mark.parametrize("cut", range(len(ARGS)))
@pytest.mark.parametrize("again", ["the same", "another"])
def test_of_calls_shown_live_an_answer_asked_for_again_tells_only_the_rest(
    cut: int, again: str
) -> None:
    """The caller runs each call once: the first as it was shown, the second when it is whole."""
    told = [OPENING, *texts("Two files. "), *call([READ], 0, "Read")]
    first = sse([*told, *call([ARGS[:cut]], 1), *closing("length")])
    second = ARGS if again == "the same" else OTHER
    rest = sse([*told, *call([second[:3], second[3:]], 1), *closing("tool_calls")])
    driven = chat(streams(first, rest), asking(), LIVE)
    made = calls_of(driven)
    assert made[0] == ("call_0", READ)
    if again == "the same" or second.startswith(ARGS[:cut]):
        assert made[1:] == [("call_1", second)]
        assert finishes(driven) == ["tool_calls"]
    else:
        assert made[1][1] == ARGS[:cut], "what was shown cannot be taken back"
        assert [arguments for _, arguments in made[2:]] == [second]
        assert finishes(driven) == ["length"], "half a call is in it: no loop may run that"
    assert shown(driven) == "Two files. "


def test_text_flows_as_it_comes_and_calls_wait() -> None:
    shown_at = [bool(piece) for piece in healed(SCENES["whole"][0]).pieces]
    assert shown_at[:2] == [True, True], "the role and the text are shown at once"
    held = len(SCENES["whole"][0]) - 1
    assert not any(shown_at[2:held]), "the call waits for the end"
    assert shown_at[held]


@pytest.mark.parametrize("text", ['"tool_calls":[{', '"finish_reason":"length"', "a\r\n\r\nb"])
@pytest.mark.parametrize("spaced", [False, True])
def test_what_text_says_of_the_wire_is_text(text: str, spaced: bool) -> None:
    events = [OPENING, *texts("So: ", text, text, " and on"), *closing("stop")]
    driven = served([sse([event], spaced=spaced) for event in events])
    assert b"".join(driven.pieces) == sse(events, spaced=spaced)
    assert shown(driven) == f"So: {text}{text} and on"
    assert len(driven.requests) == 1


def test_an_overload_told_in_the_stream_is_waited_out_ever_longer() -> None:
    busy = sse([{"error": {"message": "later", "type": "server_error", "code": 503}}])
    policy = Policy(backoff_seconds=1.0, max_drop_recoveries=3)
    driven = chat(streams(*[busy] * 4), asking(), policy)
    assert len(driven.requests) == 4
    assert len(driven.waits) == 3
    assert all(0.75 <= wait / 2**n <= 1 for n, wait in enumerate(driven.waits))
    dropped = chat(streams(*[sse([OPENING])] * 4), asking(), policy)
    assert (len(dropped.requests), dropped.waits) == (4, [])


@pytest.mark.parametrize("after", [0, 1, 7])
def test_an_answer_whose_connection_breaks_behind_its_reason_ends_as_it_should(after: int) -> None:
    told = sse([OPENING, *texts("All of it."), chunk({}, "stop")])
    raw = told + b"data: [DONE]\n\n"[:after]
    driven = chat(streams(raw, broken=ConnectionResetError()), asking())
    assert (driven.error, len(driven.requests)) == (None, 1)
    assert shown(driven) == "All of it."
    assert finishes(driven) == ["stop"]
    assert b"".join(driven.pieces).count(b"data: [DONE]\n\n") == 1


# --- chunks as vendors write them ---------------------------------------------------------------


FULL = {"prompt_tokens": 10, "completion_tokens": 1000, "total_tokens": 1010}
LAST = chunk({"content": " brown fo"}, "length")
MANNERS: dict[str, tuple[list[Any], list[Any]]] = {
    "the end with the last text": (
        [*TEXT_CUT[:-1], LAST, "[DONE]"],
        [*TEXT_REST[:-1], chunk({"content": "mps 文字 🙂."}, "stop"), "[DONE]"],
    ),
    "all in one chunk": (
        [chunk({"role": "assistant", "content": "The quick brown fo"}, "length"), "[DONE]"],
        [chunk({"role": "assistant", "content": "x jumps 文字 🙂."}, "stop"), "[DONE]"],
    ),
    "vLLM's usage in every chunk": (
        [*({**piece, "usage": FULL} for piece in TEXT_CUT), *closing("length", 1000)],
        [*TEXT_REST, *closing("stop", 9)],
    ),
    "an error in the middle": ([*TEXT_CUT, {"error": {"code": 502}}], SCENES["text"][1]),
    "a worded one": ([*TEXT_CUT, {"error": "x"}, "[DONE]"], SCENES["text"][1]),
    "one with a type": (
        [*TEXT_CUT, {"error": {"message": "x", "type": "server_error"}}],
        SCENES["text"][1],
    ),
    "OpenRouter's beside a choice": (
        [*TEXT_CUT, {**chunk({"content": ""}, "error"), "error": {"code": 502}}, "[DONE]"],
        SCENES["text"][1],
    ),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_a_text_is_gone_on_with_however_its_end_is_told(manner: str) -> None:
    driven = healed(*MANNERS[manner], limit=16_384)
    roles = [e for e in driven.told if e["choices"] and e["choices"][0]["delta"].get("role")]
    assert (shown(driven), finishes(driven)) == ("The quick brown fox jumps 文字 🙂.", ["stop"])
    assert (len(roles), len(driven.requests)) == (1, 2)
    assert b"error" not in b"".join(driven.pieces)


def test_a_first_chunk_without_choices_is_no_beginning() -> None:
    """Azure tells what it filtered of the prompt before there is a completion."""
    filtered = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
    first = [{**filtered, "prompt_filter_results": []}, *TEXT_CUT, *closing("length")]
    driven = healed(first, SCENES["text"][1])
    assert shown(driven) == "The quick brown fox jumps 文字 🙂."
    assert [event["id"] for event in driven.told].count("") == 1
    assert driven.told[-1]["id"] == "c1"


def test_usage_in_the_last_chunk_stays_there() -> None:
    """Mistral tells it unasked."""
    first = [*TEXT_CUT, chunk({}, "length", usage=FULL), "[DONE]"]
    second = [*TEXT_REST, chunk({}, "stop", usage={**FULL, "completion_tokens": 5}), "[DONE]"]
    driven = healed(first, second)
    assert driven.told[-1]["usage"]["completion_tokens"] == 1005
    assert driven.told[-1]["choices"][0]["finish_reason"] == "stop"
    assert len(finishes(driven)) == 1


def calls_of(driven: Driven) -> list[tuple[str, str]]:
    said = completed(driven).choices[0].message.tool_calls or []
    return [(call.id, call.function.arguments) for call in said if call.type == "function"]


def piece(index: int | None, ident: str | None, name: str | None, arguments: str) -> Any:
    function = {"arguments": arguments, "name": name}
    told = {"index": index, "id": ident, "type": "function"}
    said = {key: value for key, value in told.items() if value is not None}
    own = {key: value for key, value in function.items() if value is not None}
    return chunk({"tool_calls": [{**said, "function": own}]})


def spelled(text: str) -> Any:
    """Return a piece of a call that is written as index:id:name:arguments."""
    index, ident, name, arguments = text.split(":", 3)
    return piece(int(index) if index else None, ident or None, name or None, arguments)


TWO = [("call_a", '{"a":1}'), ("call_b", '{"b":2}')]
SPELLINGS = {
    "by index": ["0:call_a:A:", '0:::{"a":1}', "1:call_b:B:", '1:::{"b":2}'],
    "whole, one index for all": ['0:call_a:A:{"a":1}', '0:call_b:B:{"b":2}'],
    "without an index": [':call_a:A:{"a"', "::::1}", ':call_b:B:{"b"', "::::2}"],
    "id and name in each piece": ['0:call_a:A:{"a"', "0:call_a:A::1}", '1:call_b:B:{"b":2}'],
    "interleaved": ["0:call_a:A:", "1:call_b:B:", '1:::{"b"', '0:::{"a"', "1::::2}", "0::::1}"],
    "an id that comes late": ['0::A:{"a":', "0:call_a::1}", '1:call_b:B:{"b":2}'],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_calls_are_told_apart_however_they_are_numbered(spelling: str) -> None:
    """Of a healed answer: what came uncut goes out as it came."""
    two = [OPENING, *texts("Two. ")]
    cut = [*two, *call(['{"cut']), *closing("length")]
    driven = healed(cut, [*two, *map(spelled, SPELLINGS[spelling]), *closing("tool_calls")])
    assert (shown(driven), calls_of(driven)) == ("Two. ", TWO)
    assert finishes(driven) == ["tool_calls"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("label", ["length", "tool_calls", "stop"])
def test_of_several_calls_the_last_one_cut_is_seen(spelling: str, label: str) -> None:
    *told, last = SPELLINGS[spelling]
    first = [OPENING, *map(spelled, [*told, last[:-1]]), *closing(label)]
    again = [OPENING, *map(spelled, SPELLINGS["by index"]), *closing("tool_calls")]
    driven = served(sse(first), sse(again), request=asking())
    assert len(driven.requests) == 2
    assert calls_of(driven) == TWO


OLLAMAS = {"index": 0, "id": "call_a", "function": {"name": "A", "arguments": {"a": 1}}}


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        # Without an id, under one index: two calls. Arguments as an object, which some gateways
        # pass on from Ollama: a text.
        ([piece(0, None, "A", '{"a":1}')] * 2, ['{"a":1}'] * 2),
        ([chunk({"tool_calls": [OLLAMAS]})], ['{"a":1}']),
    ],
)
def test_calls_are_read_as_they_were_meant(said: list[Any], calls: list[str]) -> None:
    first = [OPENING, *call(['{"cut']), *closing("length")]
    driven = healed(first, [OPENING, *said, *closing("tool_calls")])
    assert [arguments for _, arguments in calls_of(driven)] == calls


def test_content_as_a_list_keeps_thinking_and_text_apart() -> None:
    """Mistral's reasoning models."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    first = [
        OPENING,
        chunk({"content": [thought]}),
        chunk({"content": [{"type": "text", "text": "The quick"}]}),
        *texts(" brown fo"),
    ]
    driven = healed([*first, *closing("length")], SCENES["text"][1])
    raw = [e["choices"][0]["delta"].get("content") for e in driven.told]
    said = [c for c in raw if isinstance(c, list)]
    assert said == [[thought], [{"type": "text", "text": "The quick"}]]
    assert "".join(c for c in raw if isinstance(c, str)) == " brown fox jumps 文字 🙂."


def test_reasoning_details_are_kept_as_they_came() -> None:
    detail = {"type": "reasoning.text", "text": "Hm.", "index": 0, "signature": None}
    thinking = chunk({"reasoning": "Hm.", "reasoning_details": [detail]})
    first = [OPENING, thinking, *closing("length")]
    second = [OPENING, thinking, thinking, *TEXT_REST[1:], *closing("stop")]
    driven = served(sse(first), sse(second), request=asking())
    deltas = [event["choices"][0]["delta"] for event in driven.told]
    assert [d["reasoning_details"] for d in deltas if "reasoning_details" in d] == [[detail]] * 2
    assert finishes(driven) == ["stop"]


def test_what_stands_beside_chunks_stands_beside_the_whole_answer() -> None:
    """Perplexity's citations; an answer without streaming is asked for again with it."""
    cut = {**chunk({}), "choices": [{"message": {"content": "Th"}, "finish_reason": "length"}]}
    said = [{**piece, "citations": ["https://a"]} for piece in TEXT_CUT]
    again = sse([*said, *closing("stop")])
    driven = served(body(cut), again, request=asking(stream=None))
    whole = json.loads(b"".join(driven.pieces))
    assert whole["citations"] == ["https://a"]
    assert whole["choices"][0]["message"]["content"] == "The quick brown fo"


def test_what_is_written_here_says_why_it_ends() -> None:
    """Some servers never do; a helper of the SDK takes no completion without."""
    first = [OPENING, *texts("The quick"), *closing("length")]
    counted = closing("stop", 9)[1:]
    for rest, finish in ((texts(" brown fox."), "stop"), (call([ARGS]), "tool_calls")):
        driven = healed(first, [OPENING, *rest, *counted])
        assert finishes(driven) == [finish]


@given(data=st.data())
def test_what_is_unknown_passes_unharmed(data: st.DataObject) -> None:
    strange = st.dictionaries(
        st.sampled_from(["x_groq", "provider", "citations", "novel", "service_tier", "usage"]),
        st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text()), st.just({"a": 1})),
    )
    first = [{**piece, **data.draw(strange)} for piece in TEXT_CUT]
    events = [*first, {"novel": True}, {**chunk({}, "stop"), **data.draw(strange)}, "[DONE]"]
    assert b"".join(served(sse(events)).pieces) == sse(events)


TOOL = {"name": "Write", "parameters": {"type": "object", "required": ["path"]}}


@pytest.mark.parametrize("label", ["length", "tool_calls", "stop", "function_call"])
@pytest.mark.parametrize("stream", [True, None], ids=["streamed", "body"])
def test_a_call_cut_at_any_character_is_never_shown(label: str, stream: bool | None) -> None:
    again = sse([OPENING, *call([ARGS]), *closing("tool_calls")])
    asked = asking(tools=[{"type": "function", "function": TOOL}], stream=stream)
    for place in range(label != "length", len(ARGS)):
        arrived = [ARGS[i : min(i + 4, place)] for i in range(0, place, 4)]
        cut: Any = sse([OPENING, *texts("I write. "), *call(arrived), *closing(label)])
        if not stream:
            cut = body(completed(Driven([cut])).to_json().encode())
        driven = served(cut, again, request=asked)
        if stream:
            made = [arguments for _, arguments in calls_of(driven)]
        else:
            [choice] = json.loads(b"".join(driven.pieces))["choices"]
            made = [made["function"]["arguments"] for made in choice["message"]["tool_calls"]]
        assert made == [ARGS], place
        assert len(driven.requests) == 2


REFUSED = "I'm sorry, but I can't help with that."


@pytest.mark.parametrize(
    ("rest", "text", "stop"),
    [
        ([*texts(REFUSED), *closing("content_filter", 9)], "", "content_filter"),
        ([chunk({"refusal": REFUSED}), *closing("stop", 9)], "", "stop"),
        ([*texts("x ju"), chunk({"refusal": REFUSED}), *closing("stop", 9)], "x ju", "stop"),
        ([*texts("x ju"), *closing("content_filter", 9)], "x ju", "content_filter"),
    ],
    ids=["in words", "in its field", "after text", "by a filter, in mid-sentence"],
)
def test_a_recovery_that_is_refused_ends_with_the_providers_own_reason(
    rest: list[Any], text: str, stop: str
) -> None:
    driven = healed([*TEXT_CUT, *closing("length")], [OPENING, *rest])
    assert shown(driven) == "The quick brown fo" + text
    assert finishes(driven) == [stop]
    assert (driven.report.outcome, driven.report.synthetic) == ("partial", False)
    assert driven.report.reason == "the model refused to continue"


@pytest.mark.parametrize(
    ("message", "text", "stop"),
    [
        ({"content": REFUSED}, "", "content_filter"),
        ({"content": None, "refusal": REFUSED}, "", "stop"),
        ({"content": "x ju", "refusal": REFUSED}, "x ju", "stop"),
    ],
    ids=["in words", "in its field", "after text"],
)
def test_a_refused_recovery_of_a_body_keeps_the_providers_own_reason(
    message: dict[str, Any], text: str, stop: str
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": stop}
    first = completed(Driven([sse([*TEXT_CUT, *closing("length")])])).to_dict()
    refused = {**first, "choices": [choice]}
    told = [body(json.dumps(one).encode()) for one in (first, refused)]
    at_ceiling = Policy(model_max_output_tokens=1000)
    driven = chat(streams(*told), asking(stream=None, max_tokens=1000), at_ceiling)
    [choice] = json.loads(b"".join(driven.pieces))["choices"]
    assert choice["message"]["content"] == "The quick brown fo" + text
    assert choice["finish_reason"] == stop
    assert driven.report.reason == "the model refused to continue"
