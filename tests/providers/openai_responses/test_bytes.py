"""The bytes of a Responses stream, at every split and in every framing."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from support.drive import Attempt, Driven, bodies, combs, sse, streams
from support.drive_responses import (
    LIMIT,
    Json,
    accumulate,
    answer,
    last,
    respond,
    response,
    said,
    written,
)
from support.examples import pieces

from continuation import Policy

ARGS = '{"path": "a.txt", "content": "naïve 文字 🙂"}'
TOOL = {"type": "function", "name": "Write", "parameters": {"required": ["path"]}}
HEALED = "The quick brown fox jumps 文字 🙂."
LIVE = Policy(stream_tool_calls="live")
SCENES = {
    "text": (
        answer("1", [said("The quick brown fo", status="incomplete")], LIMIT),
        answer("2", [said("x jumps 文字 🙂.", "msg_2")]),
    ),
    "call": (
        answer("1", [said("I write. "), written(ARGS[:30], status="incomplete")], LIMIT),
        answer("2", [said("I write. ", "msg_2"), written(ARGS, "fc_2")]),
    ),
    "whole": (answer("1", [said("I write. "), written(ARGS)]), []),
}


def served(*attempts: Attempt) -> Driven:
    return respond(streams(*attempts))


def output(driven: Driven) -> list[Json]:
    """Return what a stream ended with; a call of a later attempt gets a new id each time."""
    return [{k: v for k, v in item.items() if k != "id"} for item in last(driven.told)["output"]]


def text_of(driven: Driven) -> str:
    return str(driven.told[-1]["response"]["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("scene", SCENES)
@pieces
def test_at_every_split_of_either_attempt_the_answer_is_the_same(
    scene: str, newline: str, size: int
) -> None:
    first, second = (sse(events, newline) for events in SCENES[scene])
    whole = served(first, second)
    expected = output(whole)
    assert whole.joined(accumulate)["output"] == whole.told[-1]["response"]["output"]
    for some in combs(first, size):
        driven = served(some, second)
        assert output(driven) == expected
        assert second or b"".join(driven.pieces) == first, "what was not cut passes as it came"
    for some in combs(second, size):
        assert output(served(first, some)) == expected


def test_what_was_streamed_is_what_the_response_says() -> None:
    driven = served(*map(sse, SCENES["text"]))
    final = driven.joined(accumulate)
    deltas = [e["delta"] for e in driven.told if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text_of(driven) == HEALED
    assert (final["id"], final["output"][0]["id"]) == ("resp_1", "msg_1")


def test_the_ends_of_a_text_wait_until_they_are_true() -> None:
    events, rest = SCENES["text"]
    shown = [bool(piece) for piece in served([sse([event]) for event in events], sse(rest)).pieces]
    kinds = [event["type"] for event in events]
    assert shown[:2] == [True, True], "the opening is shown at once, and what follows it"
    assert shown[kinds.index("response.output_text.delta")], "visible text is shown at once"
    assert not any(shown[kinds.index("response.output_text.done") : len(events)])


def test_a_stream_without_names_or_ends_is_read_as_well() -> None:
    bare = {"created", "output_item.added", "output_text.delta", "incomplete", "completed"}

    def plain(events: list[Json]) -> bytes:
        kept = [event for event in events if event["type"].removeprefix("response.") in bare]
        return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in kept)

    first, second = map(plain, SCENES["text"])
    assert text_of(served(first, second + b"data: [DONE]\n\n")) == HEALED


def test_a_server_that_tells_all_at_the_end_is_read_as_well() -> None:
    ends = [sse([events[0], {**events[-1], "sequence_number": 1}]) for events in SCENES["call"]]
    message, call = output(served(*ends))
    assert (message["type"], call["type"], call["arguments"]) == ("message", "function_call", ARGS)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("rest", [0, 1], ids=["none", "half"])
def test_a_last_event_that_lacks_its_blank_line_counts(newline: str, rest: int) -> None:
    raw = sse(SCENES["whole"][0], newline)
    driven = served(raw[: -len(newline) * (2 - rest)])
    assert driven.joined(accumulate)["status"] == "completed"
    assert len(driven.requests) == 1
    driven = served(*(sse(events, newline).rstrip() for events in SCENES["text"]))
    assert text_of(driven) == HEALED
    assert len(driven.requests) == 2


def test_a_last_event_counts_if_the_connection_breaks_behind_it() -> None:
    broken = httpx2.RemoteProtocolError("peer closed connection")
    attempts = [sse(events).rstrip() for events in SCENES["text"]]
    driven = respond(streams(*attempts, broken=broken))
    assert driven.joined(accumulate)["status"] == "completed"
    assert len(driven.requests) == 2


def test_half_a_last_event_does_not_count() -> None:
    first, second = SCENES["text"]
    whole = sse([*first[:-1], {**first[-1], "type": "response.completed"}])
    driven = served(whole[:-20], sse(second))
    assert text_of(driven) == HEALED
    assert len(driven.requests) == 2


def test_unknown_events_pass_under_the_callers_numbers() -> None:
    novel = {"type": "novel", "x": 1, "sequence_number": 77}
    first, second = SCENES["text"]
    driven = served(sse(first), sse([*second[:2], novel, *second[2:]]))
    assert [event["x"] for event in driven.told if event["type"] == "novel"] == [1]
    driven.joined(accumulate)


@pytest.mark.parametrize("opened", [True, False])
def test_what_a_lost_attempt_told_beside_its_items_is_counted_and_not_told_again(
    opened: bool,
) -> None:
    *opening, ended = answer("1", [], LIMIT)
    ping = {"type": "keepalive", "sequence_number": 0}
    cut = [*opening, ended] if opened else [ping, ended]
    dropped = [*answer("2", [])[:2], {**ping, "sequence_number": 2}]
    driven = served(sse(cut), sse(dropped), sse(SCENES["text"][1]))
    assert last(driven.told)
    assert [event["type"] for event in driven.told].count("response.created") == 1
    assert len({e["response"]["id"] for e in driven.told if "response" in e}) == 1


def test_text_flows_behind_reasoning_that_no_part_announces() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    at = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    spoken = {"type": "response.output_text.delta", "output_index": 1, "item_id": "msg_1"}
    *begun, ended = answer("1", [])
    events = [
        *begun,
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_text.delta", **at, "delta": "Hm."},
        *({**spoken, "content_index": 0, "delta": text} for text in ("So", " it", " is.")),
        ended,
    ]
    pieces = served([sse([event]) for event in events]).pieces
    assert [bool(piece) for piece in pieces[:8]] == [True, True, False, False, *[True] * 4]


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [*range(1, len(ARGS)), '{"a": {"b": 1}'])
def test_a_call_cut_anywhere_is_never_shown_whatever_is_said_of_it(
    cut: int | str, stream: bool
) -> None:
    arguments = cut if isinstance(cut, str) else ARGS[:cut]
    first, second = [written(arguments)], [written(ARGS, "fc_2")]
    if stream:
        provider = streams(sse(answer("1", first)), sse(answer("2", second)))
    else:
        provider = bodies(response("1", first), response("2", second))
    driven = respond(provider, stream=stream, max_output_tokens=None, tools=[TOOL])
    final = last(driven.told) if stream else json.loads(b"".join(driven.pieces))
    assert [item["arguments"] for item in final["output"]] == [ARGS]
    assert (final["id"], len(driven.requests)) == ("resp_1" if stream else "resp_2", 2)


@pytest.mark.parametrize("whole", [ARGS, '{"path": "b.txt"}'])
def test_a_call_shown_live_goes_on_or_ends_as_itself(whole: str) -> None:
    again = {**written(whole, "fc_2"), "call_id": "call_2"}
    attempts = SCENES["call"][0], answer("2", [said("", "msg_2"), again])
    told = respond(streams(*map(sse, attempts)), LIVE).joined(accumulate)["output"]
    calls = [(item["id"], item["status"], item["arguments"]) for item in told if "call_id" in item]
    if whole == ARGS:
        assert calls == [("fc_1", "completed", ARGS)]
    else:
        assert calls == [("fc_1", "incomplete", ARGS[:30]), ("fc_2", "completed", whole)]


def test_a_live_call_without_the_arguments_it_needs_ends_once() -> None:
    first = sse(answer("1", [written("", status="incomplete")], LIMIT))
    driven = respond(streams(first), LIVE, max_output_tokens=128_000, tools=[TOOL])
    ends = [e["item"] for e in driven.told if e["type"] == "response.output_item.done"]
    assert [item["status"] for item in ends if item["id"] == "fc_1"] == ["incomplete"]
    assert last(driven.told)["output"][0] == ends[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_labelled_whole_that_is_cut_is_asked_for_again(stream: bool) -> None:
    cut, whole = [said("I write. "), written(ARGS[:30])], [written(ARGS, "fc_2")]
    if stream:
        driven = served(sse(answer("1", cut)), sse(SCENES["call"][1]))
    else:
        answers = response("1", cut[1:], tokens=1000), response("2", whole)
        driven = respond(bodies(*answers), stream=False)
    final = last(driven.told) if stream else json.loads(b"".join(driven.pieces))
    assert final["id"] == ("resp_1" if stream else "resp_2")
    assert final["output"][-1]["arguments"] == ARGS
    assert len(driven.requests) == 2


# --- bodies -------------------------------------------------------------------------------------


def test_a_text_in_the_place_of_parts_is_no_empty_message() -> None:
    first = response("1", [{**said(""), "content": "The quick brown fo"}], LIMIT)
    second = SCENES["text"][1][-1]["response"]
    asked: Any = {"stream": False, "max_output_tokens": 128_000, "input": {"role": "user"}}
    driven = respond(bodies(first, second), **asked)
    final = json.loads(b"".join(driven.pieces))
    assert final["output"][0]["content"][0]["text"] == HEALED
    assert driven.requests[1]["input"][0] == {"role": "user"}


def test_a_body_that_is_whole_passes_byte_for_byte() -> None:
    raw = json.dumps(SCENES["whole"][0][-1]["response"], indent=1).encode()
    assert b"".join(respond(bodies(raw), stream=False).pieces) == raw


REFUSED = "I'm sorry, but I can't help with that."


def refusing(*texts: str, number: str = "2") -> Json:
    """Return a whole response whose message holds these texts, and then a refusal."""
    item = said("", f"msg_{number}")
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    item["content"] = [*parts, {"type": "refusal", "refusal": REFUSED}]
    return response(number, [item])


def refusal_events(whole: Json) -> list[Json]:
    """Return a response as events, with a refusal as its own part."""
    [item] = whole["output"]
    at = {"item_id": item["id"], "output_index": 0}
    told: list[Json] = [
        {"type": "response.created", "response": {**whole, "output": [], "usage": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
    ]
    for number, part in enumerate(item["content"]):
        kind = "refusal" if part["type"] == "refusal" else "text"
        here, name = (
            {**at, "content_index": number},
            "refusal" if kind == "refusal" else "output_text",
        )
        blank = {**part, kind: ""}
        told += [
            {"type": "response.content_part.added", **here, "part": blank},
            {"type": f"response.{name}.delta", **here, "delta": part[kind]},
            {"type": f"response.{name}.done", **here, kind: part[kind]},
            {"type": "response.content_part.done", **here, "part": part},
        ]
    told += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


@pytest.mark.parametrize("texts", [[], ["x ju"]], ids=["alone", "after text"])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_refusal_part_of_a_recovery_is_not_joined_to_the_text(
    texts: list[str], streamed: bool
) -> None:
    part = [said("The quick brown fo", status="incomplete")]
    refused = refusing(*texts)
    if streamed:
        driven = respond(streams(sse(answer("1", part, LIMIT)), sse(refusal_events(refused))))
        whole = driven.told[-1]["response"]
    else:
        at_ceiling = Policy(model_max_output_tokens=1000)
        provider = bodies(response("1", part, LIMIT), refused)
        driven = respond(provider, at_ceiling, stream=False)
        whole = json.loads(b"".join(driven.pieces))
    shown = [part["text"] for item in whole["output"] for part in item["content"] if "text" in part]
    assert "".join(shown) == "The quick brown fo" + "".join(texts)
    assert driven.report.reason == "the model refused to continue"
