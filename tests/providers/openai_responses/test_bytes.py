"""The bytes of a Responses stream, at every split and in every framing."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from support.drive import JSON, STREAM, Answered, Driven, drive, split, sse
from support.examples import places, splits

from continuation import Policy

REQUEST: dict[str, Any] = {
    "model": "gpt-5.4",
    "max_output_tokens": 1000,
    "stream": True,
    "input": "Go.",
}
ARGS = '{"path": "a.txt", "content": "naïve 文字 🙂"}'


def answer(name: str, items: list[dict[str, Any]], reason: str | None = None) -> list[Any]:
    """Write a stream in small; `reason`: why it is incomplete."""
    status = "incomplete" if reason else "completed"
    base = {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "store": True,
    }
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": base},
        {"type": "response.in_progress", "response": base},
    ]
    for place, item in enumerate(items):
        told += item_events(place, item)
    usage = {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14}
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    whole = {**base, "status": status, "output": items, "usage": usage, **details}
    told.append({"type": f"response.{status}", "response": whole})
    return [{**event, "sequence_number": n} for n, event in enumerate(told)]


def item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": place}
    field = "content" if item["type"] == "message" else "arguments"
    begun = {**item, field: type(item[field])(), "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        *(message if item["type"] == "message" else call)(at, item),
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def message(at: dict[str, Any], item: dict[str, Any]) -> list[dict[str, Any]]:
    part, here = item["content"][0], {**at, "content_index": 0}
    pieces = [part["text"][n : n + 7] for n in range(0, len(part["text"]), 7)]
    delta = {"type": "response.output_text.delta", **here, "logprobs": []}
    return [
        {"type": "response.content_part.added", **here, "part": {**part, "text": ""}},
        *({**delta, "delta": piece} for piece in pieces),
        {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **here, "part": part},
    ]


def call(at: dict[str, Any], item: dict[str, Any]) -> list[dict[str, Any]]:
    kind, given = "response.function_call_arguments", item["arguments"]
    return [
        *(
            {"type": f"{kind}.delta", **at, "delta": given[n : n + 9]}
            for n in range(0, len(given), 9)
        ),
        {"type": f"{kind}.done", **at, "arguments": given, "name": "Write"},
    ]


def said(text: str, name: str = "msg_1", status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": [part]}


def written(arguments: str, name: str = "fc_1", status: str = "completed") -> dict[str, Any]:
    told = {"id": name, "type": "function_call", "call_id": "call_1", "name": "Write"}
    return {**told, "arguments": arguments, "status": status}


LIMIT = "max_output_tokens"
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


def served(first: list[bytes], second: list[bytes]) -> Driven:
    answers = iter([first, second])

    def provider(_: dict[str, Any]) -> Answered:
        return 200, STREAM, next(answers), None

    return drive(provider, REQUEST, path="/v1/responses")


def accumulated(events: list[dict[str, Any]]) -> Any:
    """Return the response as the SDK's own state machine builds it."""
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
    for event in events:
        if event["type"] not in {"novel", "keepalive"}:
            state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))
    final = events[-1]["response"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return final


def ended(driven: Driven) -> Any:
    """Return what a gapless stream ended with; the state machine is asked once, it is slow."""
    numbers = [event["sequence_number"] for event in driven.told]
    assert numbers == list(range(len(numbers)))
    return without_ids(driven.told[-1]["response"])


def without_ids(response: Any) -> Any:
    """A call of a later attempt gets a new id each time."""
    return [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("scene", SCENES)
@places
def test_every_split_in_two_of_either_attempt_gives_the_same(
    scene: str, newline: str, step: int
) -> None:
    first, second = (sse(events, newline) for events in SCENES[scene])
    expected = without_ids(served([first], [second]).joined(accumulated))
    for cut in splits(first, step):
        assert ended(served(split(first, [cut]), [second])) == expected
    for cut in splits(second, step):
        assert ended(served([first], split(second, [cut]))) == expected


def test_what_was_streamed_is_what_the_response_says() -> None:
    first, second = (sse(events) for events in SCENES["text"])
    driven = served([first], [second])
    final = driven.joined(accumulated)
    deltas = [e["delta"] for e in driven.told if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == final["output"][0]["content"][0]["text"]
    assert (final["id"], final["output"][0]["id"]) == ("resp_1", "msg_1")
    assert final["output"][0]["content"][0]["text"] == "The quick brown fox jumps 文字 🙂."


@places
def test_an_uncut_stream_passes_byte_for_byte(step: int) -> None:
    for newline in ["\n", "\r\n", "\r"]:
        raw = sse(SCENES["whole"][0], newline)
        for cut in splits(raw, step):
            assert b"".join(served(split(raw, [cut]), []).pieces) == raw


def test_the_ends_of_a_text_wait_until_they_are_true() -> None:
    events = SCENES["text"][0]
    pieces = served([sse([event]) for event in events], [sse(SCENES["text"][1])]).pieces
    shown = [bool(piece) for piece in pieces[: len(events)]]
    kinds = [event["type"] for event in events]
    assert shown[0], "the opening is shown at once"
    assert shown[1], "so is what follows it"
    assert shown[kinds.index("response.output_text.delta")], "visible text is shown at once"
    assert not any(shown[kinds.index("response.output_text.done") :])


def test_a_stream_without_names_or_ends_is_read_as_well() -> None:
    bare = ["response.created", "response.output_item.added", "response.output_text.delta"]

    def plain(events: list[dict[str, Any]], last: str) -> bytes:
        kept = [event for event in events if event["type"] in {*bare, last}]
        return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in kept)

    first = plain(SCENES["text"][0], "response.incomplete")
    second = plain(SCENES["text"][1], "response.completed") + b"data: [DONE]\n\n"
    final = served([first], [second]).told[-1]["response"]
    assert final["output"][0]["content"][0]["text"] == "The quick brown fox jumps 文字 🙂."


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("rest", [0, 1], ids=["none", "half"])
def test_a_last_event_that_lacks_its_blank_line_counts(newline: str, rest: int) -> None:
    raw = sse(SCENES["whole"][0], newline)
    end = raw[: -len(newline) * (2 - rest)]
    driven = served([end], [])
    assert len(driven.requests) == 1
    assert driven.joined(accumulated)["status"] == "completed"
    first, second = (sse(events, newline) for events in SCENES["text"])
    driven = served([first.rstrip()], [second.rstrip()])
    assert driven.joined(accumulated)["output"][0]["content"][0]["text"].endswith("文字 🙂.")
    assert len(driven.requests) == 2


def test_a_last_event_counts_if_the_connection_breaks_behind_it() -> None:
    answers = iter([sse(events).rstrip() for events in SCENES["text"]])
    broken = httpx2.RemoteProtocolError("peer closed connection")
    driven = drive(lambda _: (200, STREAM, [next(answers)], broken), REQUEST, path="/v1/responses")
    assert len(driven.requests) == 2
    assert driven.joined(accumulated)["status"] == "completed"


def test_half_a_last_event_does_not_count() -> None:
    first, second = SCENES["text"]
    whole = sse([*first[:-1], {**first[-1], "type": "response.completed"}])
    driven = served([whole[:-20]], [sse(second)])
    assert len(driven.requests) == 2
    assert driven.told[-1]["response"]["output"][0]["content"][0]["text"].endswith("文字 🙂.")


def test_unknown_events_pass_under_the_callers_numbers() -> None:
    novel = {"type": "novel", "x": 1, "sequence_number": 77}
    first, second = SCENES["text"]
    driven = served([sse(first)], [sse([*second[:2], novel, *second[2:]])])
    passed = next(event for event in driven.told if event["type"] == "novel")
    assert passed["x"] == 1
    driven.joined(accumulated)


@pytest.mark.parametrize("opened", [True, False])
def test_what_a_lost_attempt_told_beside_its_items_is_counted_and_not_told_again(
    opened: bool,
) -> None:
    *opening, ended = answer("1", [], LIMIT)
    ping = {"type": "keepalive", "sequence_number": 0}
    cut = [*opening, ended] if opened else [ping, ended]
    dropped = [*answer("2", [])[:2], {**ping, "sequence_number": 2}]
    answers = iter([sse(cut), sse(dropped), sse(SCENES["text"][1])])
    driven = drive(
        lambda _: (200, STREAM, [next(answers)], None),
        REQUEST,
        path="/v1/responses",
    )
    kinds = [event["type"] for event in driven.told]
    assert kinds.count("response.created") == 1
    numbers = [event["sequence_number"] for event in driven.told]
    assert numbers == list(range(len(numbers)))
    assert len({e["response"]["id"] for e in driven.told if "response" in e}) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [*range(len(ARGS)), '{"a": {"b": 1}'])
def test_a_call_cut_anywhere_is_never_shown_whatever_is_said_of_it(
    cut: int | str, stream: bool
) -> None:
    arguments = cut if isinstance(cut, str) else ARGS[:cut]
    tool = {"type": "function", "name": "Write", "parameters": {"required": ["path"]}}
    first, second = answer("1", [written(arguments)]), answer("2", [written(ARGS, "fc_2")])
    told = [[sse(events)] for events in (first, second)]
    bodies = [[json.dumps(events[-1]["response"]).encode()] for events in (first, second)]
    answers, kind = iter(told if stream else bodies), STREAM if stream else JSON
    request = {**REQUEST, "stream": stream, "max_output_tokens": None, "tools": [tool]}
    driven = drive(lambda _: (200, kind, next(answers), None), request, path="/v1/responses")
    raw = b"".join(driven.pieces)
    final = driven.told[-1]["response"] if stream else json.loads(raw)
    assert [item["arguments"] for item in final["output"]] == [ARGS]
    assert (final["id"], len(driven.requests)) == ("resp_1", 2)


@pytest.mark.parametrize("whole", [ARGS, '{"path": "b.txt"}'])
def test_a_call_shown_live_goes_on_or_ends_as_itself(whole: str) -> None:
    first = answer("1", [said("I write. "), written(ARGS[:30], status="incomplete")], LIMIT)
    again = {**written(whole, "fc_2"), "call_id": "call_2"}
    answers = iter([sse(first), sse(answer("2", [said("", "msg_2"), again]))])
    driven = drive(
        lambda _: (200, STREAM, [next(answers)], None),
        REQUEST,
        Policy(stream_tool_calls="live"),
        path="/v1/responses",
    )
    output = driven.joined(accumulated)["output"]
    calls = [(i["id"], i["status"], i["arguments"]) for i in output if "arguments" in i]
    if whole == ARGS:
        assert calls == [("fc_1", "completed", ARGS)]
    else:
        assert calls == [("fc_1", "incomplete", ARGS[:30]), ("fc_2", "completed", whole)]


def test_a_live_call_without_the_arguments_it_needs_ends_once() -> None:
    tool = {"type": "function", "name": "Write", "parameters": {"required": ["path"]}}
    first = answer("1", [written("", status="incomplete")], LIMIT)
    driven = drive(
        lambda _: (200, STREAM, [sse(first)], None),
        {**REQUEST, "max_output_tokens": 128_000, "tools": [tool]},
        Policy(stream_tool_calls="live"),
        path="/v1/responses",
    )
    ends = [e["item"] for e in driven.told if e["type"] == "response.output_item.done"]
    assert [item["status"] for item in ends if item["id"] == "fc_1"] == ["incomplete"]
    assert driven.told[-1]["response"]["output"][0] == ends[0]


def test_text_flows_behind_reasoning_that_no_part_announces() -> None:
    begun = answer("1", [])[:2]
    at = {"output_index": 0, "item_id": "rs_1"}
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    thought = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_text.delta", **at, "content_index": 0, "delta": "Hm."},
    ]
    spoken = {"type": "response.output_text.delta", "output_index": 1, "item_id": "msg_1"}
    said_so = [{**spoken, "content_index": 0, "delta": text} for text in ("So", " it", " is.")]
    events = [*begun, *thought, *said_so, answer("1", [])[-1]]
    pieces = served([sse([event]) for event in events], []).pieces
    assert [bool(piece) for piece in pieces[:8]] == [True, True, False, False, *[True] * 4]


def test_a_server_that_tells_all_at_the_end_is_read_as_well() -> None:
    first, second = SCENES["call"]
    ends = [sse([events[0], {**events[-1], "sequence_number": 1}]) for events in (first, second)]
    driven = served([ends[0]], [ends[1]])
    final = driven.told[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message", "function_call"]
    assert final["output"][1]["arguments"] == ARGS


def test_a_call_labelled_whole_that_is_cut_is_asked_for_again() -> None:
    first = answer("1", [said("I write. "), written(ARGS[:30])])
    driven = served([sse(first)], [sse(SCENES["call"][1])])
    assert driven.told[-1]["response"]["output"][-1]["arguments"] == ARGS
    assert len(driven.requests) == 2


def test_a_body_labelled_whole_that_is_cut_is_asked_for_again() -> None:
    bodies = [
        answer("1", [written(ARGS[:30])])[-1]["response"],
        answer("2", [written(ARGS, "fc_2")])[-1]["response"],
    ]
    bodies[0]["usage"]["output_tokens"] = 1000
    raw = iter([json.dumps(body).encode() for body in bodies])

    def provider(_: dict[str, Any]) -> Answered:
        return 200, JSON, [next(raw)], None

    driven = drive(provider, {**REQUEST, "stream": False}, path="/v1/responses")
    final = json.loads(b"".join(driven.pieces))
    assert (final["id"], final["output"][0]["arguments"]) == ("resp_1", ARGS)


def test_a_text_in_the_place_of_parts_is_no_empty_message() -> None:
    first, second = (scene[-1]["response"] for scene in SCENES["text"])
    first["output"][0]["content"] = "The quick brown fo"
    raw = iter([json.dumps(body).encode() for body in (first, second)])
    asked = {**REQUEST, "stream": False, "max_output_tokens": 128_000, "input": {"role": "user"}}
    driven = drive(lambda _: (200, JSON, [next(raw)], None), asked, path="/v1/responses")
    final = json.loads(b"".join(driven.pieces))
    assert final["output"][0]["content"][0]["text"] == "The quick brown fox jumps 文字 🙂."
    assert driven.requests[1]["input"][0] == {"role": "user"}


def test_a_body_that_is_whole_passes_byte_for_byte() -> None:
    raw = json.dumps(SCENES["whole"][0][-1]["response"], indent=1).encode()
    driven = drive(
        lambda _: (200, JSON, [raw], None), {**REQUEST, "stream": False}, path="/v1/responses"
    )
    assert b"".join(driven.pieces) == raw
