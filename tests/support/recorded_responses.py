"""Recorded streams of Responses, an output item to a word in a line of text.

    m:One_|day           a message in two deltas, `_` is a space; `m*` is annotated behind the one,
                         `m+` before it
    th:Hm                reasoning with a summary; `th` alone has none
    c:read|{"a":|1}      a call to run
    f:patch|***          a call whose input is any text
    web_search_call:in_progress|completed
                         what the provider runs, with its progress

Each may carry fields of the finished item behind a `~`, in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import openai
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from continuation.history.types import Body
from continuation.providers.openai_responses.items import SERVER_ITEMS
from support.drive import sse
from support.recorded import LIMIT, Events, Gist, Json, Wire

_TOKEN = re.compile(
    r"(?P<kind>[a-z_]+)(?P<noted>[*+]?)(?:~(?P<more>\{\S*?\}))?(?::(?P<said>\S+))?(?: |$)"
)
_CALLS = {"c": "function_call", "f": "custom_tool_call"}
_TYPED = {"c": "arguments", "f": "input"}


def stream(line: str, start: Json | None = None, **end: Any) -> Events:
    """Return the events of a line; `start` is what the answer's opening says, `end` its last."""
    head: Json = {"id": "resp_1", "object": "response", "created_at": 7, "model": "gpt-5.4"}
    said: Json = {"error": None, "incomplete_details": None, "service_tier": "auto", "tools": []}
    begun: Json = {**head, **said, "parallel_tool_calls": True, "tool_choice": "auto"}
    begun |= {"status": "in_progress", "output": [], "usage": None, **(start or {})}
    told: list[Json] = [
        {"type": f"response.{k}", "response": begun} for k in ("created", "in_progress")
    ]
    output = list[Json]()
    for place, token in enumerate(_TOKEN.finditer(line)):
        item, events = _item(token, place)
        output.append(item)
        told += events
    usage = {"input_tokens": 9, "output_tokens": 40, "total_tokens": 49}
    ended = {"status": "completed", "output": output, "usage": usage, "service_tier": "default"}
    told.append({"type": "response.completed", "response": {**begun, **ended, **end}})
    return numbered(told)


def numbered(events: list[Json]) -> list[Json]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item(token: re.Match[str], place: int) -> tuple[Json, list[Json]]:
    """Return an item as it ends, and its events."""
    kind, pieces = token["kind"], (token["said"] or "").split("|")
    more: Json = json.loads(token["more"] or "{}")
    at: Json = {"output_index": place, "item_id": f"{kind}_{place}"}
    begun: Json = {"id": at["item_id"], "type": kind, "status": "in_progress"}
    match kind:
        case "m":
            texts = [piece.replace("_", " ") for piece in pieces]
            begun |= {"type": "message", "role": "assistant", "content": []}
            inside = {**at, "content_index": 0}
            blank: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            note = {"type": "url_citation", "start_index": 0, "end_index": len(texts[0])}
            note |= {"url": f"https://example.org/{place}", "title": f"n{place}"}
            said = {"annotation_index": 0, "annotation": note}
            noted = (
                [_event("output_text.annotation.added", inside, **said)] if token["noted"] else []
            )
            part = {**blank, "text": "".join(texts), "annotations": [note] if noted else []}
            deltas = [_event("output_text.delta", inside, delta=t, logprobs=[]) for t in texts]
            first = token["noted"] == "*"
            deltas = [*deltas[:first], *noted, *deltas[first:]]
            events = [_event("content_part.added", inside, part=blank), *deltas]
            events.append(_event("output_text.done", inside, text=part["text"], logprobs=[]))
            events.append(_event("content_part.done", inside, part=part))
            ended = {**begun, "content": [part]}
        case "th":
            begun = {"id": at["item_id"], "type": "reasoning", "summary": []}
            inside = {**at, "summary_index": 0}
            texts = [piece.replace("_", " ") for piece in pieces if piece]
            blank = {"type": "summary_text", "text": ""}
            part = {**blank, "text": "".join(texts)}
            events = [_event("reasoning_summary_text.delta", inside, delta=t) for t in texts]
            if events:
                events.insert(0, _event("reasoning_summary_part.added", inside, part=blank))
                events.append(_event("reasoning_summary_text.done", inside, text=part["text"]))
                events.append(_event("reasoning_summary_part.done", inside, part=part))
            ended = {**begun, "summary": [part] if texts else []}
        case "c" | "f":
            name, *pieces = pieces
            field, own = _TYPED[kind], _CALLS[kind]
            begun |= {"type": own, "name": name, "call_id": f"call_{place}", field: ""}
            name = "function_call_arguments" if kind == "c" else "custom_tool_call_input"
            events = [_event(f"{name}.delta", at, delta=piece) for piece in pieces]
            events.append(_event(f"{name}.done", at, **{field: "".join(pieces)}))
            ended = {**begun, field: "".join(pieces)}
        case _:
            begun |= {"code": None, "outputs": None} if kind.startswith("code") else {}
            progress = [piece.partition("=") for piece in pieces if piece]
            events = [
                _event(_under(kind, p), at, **({"delta": v} if v else {})) for p, _, v in progress
            ]
            ended = begun
    if "status" in ended:
        ended = {**ended, "status": "completed"}
    ended = {**ended, **more}
    whole = {"output_index": place}
    told = [_event("output_item.added", whole, item=begun), *events]
    return ended, [*told, _event("output_item.done", whole, item=ended)]


def _under(kind: str, progress: str) -> str:
    return (
        f"{kind}_{progress}"
        if progress.startswith(("code.", "arguments."))
        else f"{kind}.{progress}"
    )


def _event(name: str, at: Json, **said: Any) -> Json:
    return {"type": f"response.{name}", **at, **said}


# --- what a stream amounts to -----------------------------------------------------------------


def gist(events: Events) -> Gist:
    """Read the answer; that its events lead to it, the SDK's own state machine says."""
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
    for event in events:
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))
    response = events[-1]["response"]
    text, calls, kept, notes = "", list[str](), list[str](), set[str]()
    for item in response["output"]:
        match item["type"]:
            case "message":
                for part in item["content"]:
                    text += part.get("text", "")
                    for note in part.get("annotations") or []:
                        notes.add(str(note.get("title") or note.get("file_id")))
            case "reasoning":
                pass  # another attempt thinks again; that is not sent twice
            case kind if kind in SERVER_ITEMS:
                if item.get("status") not in {
                    "failed",
                    "incomplete",
                }:  # broken off, and run again
                    kept.append(kind)
            case _:
                calls.append(
                    json.dumps(
                        [item["type"], item.get("name"), item.get("arguments", item.get("input"))]
                    )
                )
    streamed = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert streamed == text
    tier = response.get("service_tier"), bool(response.get("content_filters"))
    return Gist(text, calls, [*kept, *sorted(notes), str(tier)])


def limited(events: Events, at: int) -> Events:
    """End the stream at its limit, the open item with it."""
    told, last = list(events[:at]), events[-1]["response"]
    if told[-1] is events[-1]:
        told.pop()
    output = list[Json]()
    for place, item in enumerate(_items(events, at)):
        ended = next((e for e in item if e["type"] == "response.output_item.done"), None)
        output.append(ended["item"] if ended else _half(item))
        if not ended:
            told.append(
                {"type": "response.output_item.done", "output_index": place, "item": output[-1]}
            )
    why = {"incomplete_details": {"reason": "max_output_tokens"}}
    usage = {"input_tokens": 9, "output_tokens": LIMIT, "total_tokens": 9 + LIMIT}
    ending = {**last, **why, "status": "incomplete", "output": output, "usage": usage}
    return numbered([*told, {"type": "response.incomplete", "response": ending}])


def _half(events: Events) -> Json:
    """Return an item that broke off, as the provider's last event contains it."""
    item: Json = {**events[0]["item"]}
    whole = item["type"] in {"image_generation_call", "web_search_call"}  # never incomplete
    item |= {"status": "failed" if whole else "incomplete"} if "status" in item else {}
    parts = dict[int, Json]()
    for event in events:
        kind, number = event["type"].removeprefix("response."), event.get("content_index", 0)
        if kind == "content_part.added":
            parts[number] = {**event["part"]}
        elif kind == "output_text.delta":
            parts[number]["text"] += event["delta"]
        elif kind == "output_text.annotation.added":
            parts[number]["annotations"] = [*parts[number]["annotations"], event["annotation"]]
        elif kind.endswith(("arguments.delta", "input.delta")):
            field = "input" if "input" in kind else "arguments"
            item[field] = item.get(field, "") + event["delta"]
    return {**item, "content": [*parts.values()]} if item["type"] == "message" else item


def _items(events: Events, at: int) -> Iterator[list[Json]]:
    """Yield, of the first `at` events, those of each item that began in them."""
    places = [e["output_index"] for e in events[:at] if e["type"] == "response.output_item.added"]
    for place in places:
        yield [e for e in events[:at] if e.get("output_index") == place]


def again(events: Events, asked: Body) -> Events:
    """Answer a later request: with all, or with what follows the text that it contains."""
    given = (
        [item for item in asked["input"] if isinstance(item, dict)]
        if asked["input"] != "Go."
        else []
    )
    said = [item for item in given if item.get("role") == "assistant"]
    if not said:
        return events
    text = "".join(item["content"] for item in said)
    told: list[Json] = [*events[:1]]
    number, output = count(), list[Json]()
    for item in _items(events, len(events)):
        if not text and (output or item[0]["item"]["type"] != "message"):
            kept = item
        elif item[0]["item"]["type"] != "message":
            continue
        else:
            kept, text = _behind(item, text)
            if not kept:
                continue
        place = next(number)
        told += [{**event, "output_index": place} for event in kept]
        output.append(kept[-1]["item"])
    last = events[-1]
    return numbered([*told, {**last, "response": {**last["response"], "output": output}}])


def _behind(item: list[Json], text: str) -> tuple[list[Json], str]:
    """Return a message's events after `text`, and the rest of `text` if that is longer."""
    kept, left = list[Json](), False
    whole: Json = {**item[-1]["item"]}
    for event in item:
        kind = event["type"].removeprefix("response.")
        if kind == "output_text.delta":
            had = min(len(text), len(event["delta"]))
            text, event = text[had:], {**event, "delta": event["delta"][had:]}
            if not event["delta"]:
                continue
            left = True
        elif kind == "output_text.annotation.added" and not left and text:
            continue
        kept.append(event)
    if not left:
        return [], text
    parts = list[Json]()
    for number, part in enumerate(whole["content"]):
        said = "".join(e["delta"] for e in kept if "delta" in e and e["content_index"] == number)
        notes = [
            e["annotation"] for e in kept if "annotation" in e and e["content_index"] == number
        ]
        parts.append({**part, "text": said, "annotations": notes})
    done = {"output_text.done": "text", "content_part.done": "part"}
    for place, event in enumerate(kept):
        if key := done.get(event["type"].removeprefix("response.")):
            part = parts[event["content_index"]]
            kept[place] = {**event, key: part["text"] if key == "text" else part}
    kept[-1] = {**kept[-1], "item": {**whole, "content": parts}}
    return kept, text


WIRE = Wire(
    path="/v1/responses",
    history="openai-responses",
    request={
        "model": "gpt-5.4",
        "max_output_tokens": LIMIT,
        "stream": True,
        "input": "Go.",
        "tools": [{"type": "function", "name": "read", "parameters": {}}],
    },
    encode=sse,
    gist=gist,
    limited=limited,
    again=again,
)
