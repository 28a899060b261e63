"""Drives a turn of Responses without sockets, and makes its provider's answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from continuation import Policy
from support.drive import Driven, Provider, drive

Json = dict[str, Any]
LIMIT = "max_output_tokens"
"""The `reason` in a truncated response's `incomplete_details`."""
REQUEST: Json = {"model": "gpt-5.4", "max_output_tokens": 1000, "stream": True, "input": "Go."}


def respond(provider: Provider, policy: Policy | None = None, **changes: Any) -> Driven:
    """Run a turn to its end."""
    return drive(provider, {**REQUEST, **changes}, policy, path="/v1/responses")


def accumulate(told: list[Json]) -> Any:
    """Return the response as the SDK's own state machine builds it, of events without a gap."""
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
    for event in told:
        if event["type"] not in {"novel", "keepalive"}:
            state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))
    return last(told)


def last(told: list[Json]) -> Any:
    """Return the response in the last event, without the slow state machine; assert no gap."""
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    return told[-1]["response"]


# --- a provider in small ------------------------------------------------------------------------


def said(text: str, name: str = "msg_1", status: str = "completed") -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": [part]}


def written(arguments: str, name: str = "fc_1", status: str = "completed") -> Json:
    told = {"id": name, "type": "function_call", "call_id": "call_1", "name": "Write"}
    return {**told, "arguments": arguments, "status": status}


def patched(text: str) -> Json:
    own = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "patch"}
    return {**own, "input": text, "status": "completed"}


def response(name: str, items: list[Json], reason: str | None = None, tokens: int = 9) -> Json:
    """Return a whole response; `reason`: why it is incomplete."""
    usage = {"input_tokens": 5, "output_tokens": tokens, "total_tokens": 5 + tokens}
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "store": True,
        "usage": {**usage, "input_tokens_details": {"cached_tokens": 0}},
    }


def answer(name: str, items: list[Json], reason: str | None = None, tokens: int = 9) -> list[Json]:
    """Return a response as events."""
    whole = response(name, items, reason, tokens)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    told: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for place, item in enumerate(items) for event in _item(place, item)),
        {"type": f"response.{whole['status']}", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


def _item(place: int, item: Json) -> Iterator[Json]:
    at = {"item_id": item["id"], "output_index": place}
    blank: Json = {"content": [], "summary": [], "input": "", "arguments": ""}
    begun = {key: blank.get(key, value) for key, value in item.items()}
    begun["status"] = "in_progress"
    yield {"type": "response.output_item.added", "output_index": place, "item": begun}
    for number, part in enumerate(item.get("content", [])):
        here, text = {**at, "content_index": number}, part["text"]
        yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
        yield from _told("output_text", {**here, "logprobs": []}, text, {"text": text})
        yield {"type": "response.content_part.done", **here, "part": part}
    if "arguments" in item:
        whole = {"arguments": item["arguments"], "name": item["name"]}
        yield from _told("function_call_arguments", at, item["arguments"], whole)
    if "input" in item:
        yield from _told("custom_tool_call_input", at, item["input"], {"input": item["input"]})
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


def _told(kind: str, at: Json, text: str, whole: Json) -> Iterator[Json]:
    for start in range(0, len(text), 8):
        yield {"type": f"response.{kind}.delta", **at, "delta": text[start : start + 8]}
    yield {"type": f"response.{kind}.done", **at, **whole}
