"""Recorded streams of the Messages API in a line of text each.

    t:One_|day         a text in two deltas; `_` is a space, `!` in the place of a delta is a ping
    t**:cited|text     two citations stand before its first delta
    th:Hm|so           thinking, signed
    c:read|{"a":|1}    a call to run; without pieces its arguments are one empty delta
    s:search|{}        a call of a tool that the provider runs (`_TOOLS`)
    r:search           what came of the last one
    k:summary          a compaction; `f` is a fallback to another model
    !                  a ping

Each may carry further fields behind a `~`, in JSON: `c~{"caller":{"type":"direct"}}:read`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any, cast

import httpx2
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaRawMessageStreamEvent

from continuation.history.types import Body
from support.drive import sse
from support.recorded import LIMIT, Events, Gist, Json, Wire, behind

_TOKEN = re.compile(
    r"(?P<kind>[a-z]+|!)(?P<cited>\**)(?:~(?P<more>\{\S*?\}(?=:|\s|$)))?(?::(?P<said>\S+))?"
)
_COUNTS = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
PING: Json = {"type": "ping"}
_OUTPUT: Json = {"content": [], "return_code": 0, "stderr": "", "stdout": "1"}
RESULT: Json = {"type": "code_execution_result", **_OUTPUT}
_CREATED: Json = {"type": "text_editor_code_execution_create_result", "is_file_update": False}
_FOUND: Json = {"type": "tool_search_tool_search_result", "tool_references": []}
_TOOLS: dict[str, tuple[str, str, Any]] = {
    "advise": ("advisor", "advisor", {"type": "advisor_result", "text": "Yes."}),
    "bash": ("bash_code_execution",) * 2 + ({**RESULT, "type": "bash_code_execution_result"},),
    "edit": ("text_editor_code_execution",) * 2 + (_CREATED,),
    "find": ("tool_search_tool_bm25", "tool_search", _FOUND),
    "search": ("web_search", "web_search", []),
    "echo": ("echo", "mcp", []),
}
"""What the lines call a tool of the provider's -> its name, that of its results, and one."""
GO: list[Json] = [{"role": "user", "content": "Go."}]
CODE: Json = {"type": "server_tool_use", "id": "srvtoolu_9", "name": "code", "input": {}}
RAN: list[Json] = [
    *GO,
    {"role": "assistant", "content": [CODE, {**CODE, "type": "tool_use", "id": "toolu_9"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9"}]},
]


def stream(line: str, *, stop: str = "end_turn", start: Json | None = None, **end: Any) -> Events:
    """Return the events of a line; `start` is laid over the message, `end` over its last delta.

    Content that `start` holds is there before the first block of the line.
    """
    message: Json = {
        "model": "claude-opus-5",
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_COUNTS, "output_tokens": 1, "service_tier": "standard"},
        **(start or {}),
    }
    events: list[Json] = [{"type": "message_start", "message": message}]
    places, calls = count(len(message["content"])), [""]
    for token in _TOKEN.finditer(line):
        if token["kind"] == "!":
            events.append(PING)
            continue
        index = next(places)
        begun, deltas = _block(token, index, calls)
        begun |= json.loads(token["more"] or "{}")
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            told = {"type": "content_block_delta", "index": index, "delta": delta}
            events.append(told if delta else PING)
        events.append({"type": "content_block_stop", "index": index})
    return [*events, *_end(stop, 60, **end)]


def _end(stop: str, tokens: int, **more: Any) -> list[Json]:
    usage = {**_COUNTS, "output_tokens": tokens, **more.pop("usage", {})}
    delta = {"stop_reason": stop, "stop_sequence": None, **more.pop("delta", {})}
    ending = {"type": "message_delta", "delta": delta, "usage": usage, **more}
    return [ending, {"type": "message_stop"}]


def _block(token: re.Match[str], index: int, calls: list[str]) -> tuple[Json, list[Json]]:
    """Return how a block begins, and its deltas; an empty one stands for a ping."""
    first, *rest = (token["said"] or "").split("|")
    match token["kind"]:
        case "t":
            begun: Json = {"type": "text", "text": ""}
            cited = [_citation(f"c{index}{n}") for n in range(len(token["cited"]))]
            if cited:
                begun["citations"] = []
            deltas = [{"type": "citations_delta", "citation": each} for each in cited]
            return begun, deltas + _deltas("text", "text", [first, *rest])
        case "th":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            signed = {"type": "signature_delta", "signature": f"c2ln{index}w=="}
            return begun, [*_deltas("thinking", "thinking", [first, *rest]), signed]
        case "c":
            begun = {"type": "tool_use", "id": f"toolu_{index}", "name": first, "input": {}}
            return begun, _deltas("input_json", "partial_json", rest or [""])
        case "s":
            name, kind, _ = _TOOLS[first]
            calls.append(f"srvtoolu_{index}")
            kind = "mcp_tool_use" if kind == "mcp" else "server_tool_use"
            begun = {"type": kind, "id": calls[-1], "name": name, "input": {}}
            return begun, _deltas("input_json", "partial_json", rest)
        case "r":
            _, kind, content = _TOOLS[first]
            kind = f"{kind}_tool_result"
            return {"type": kind, "tool_use_id": calls[-1], "content": content}, []
        case "k":
            told = {"type": "compaction_delta", "content": first, "encrypted_content": "ZW5j"}
            return {"type": "compaction", "content": None, "encrypted_content": None}, [told]
        case "f":
            models = {"from": {"model": "claude-opus-5"}, "to": {"model": "claude-sonnet-5"}}
            return {"type": "fallback", **models, "trigger": {"type": "refusal"}}, []
        case kind:
            raise ValueError(kind)


def _deltas(kind: str, key: str, pieces: list[str]) -> list[Json]:
    said = [piece.replace("_", " ") if kind != "input_json" else piece for piece in pieces]
    return [{} if piece == "!" else {"type": f"{kind}_delta", key: piece} for piece in said]


def _citation(name: str) -> Json:
    place = {"url": f"https://example.org/{name}", "title": name, "encrypted_index": name}
    return {"type": "web_search_result_location", "cited_text": name, **place}


# --- what a stream amounts to -----------------------------------------------------------------


def message_of(events: Events) -> Json:
    """Return the message as the SDK puts it together."""
    snapshot, buffers = None, dict[int, bytes]()
    for event in events:
        snapshot = accumulate_event(
            event=cast("BetaRawMessageStreamEvent", event),
            current_snapshot=snapshot,
            json_bufs=buffers,
            request_headers=httpx2.Headers(),
        )
    assert snapshot is not None
    return snapshot.model_dump(mode="json", warnings=False, exclude_none=True)


def gist(events: Events) -> Gist:
    text, calls, kept = "", list[str](), list[str]()
    for block in message_of(events)["content"]:
        match block["type"]:
            case "text":
                text += block["text"]
                kept += [each["title"] for each in block.get("citations") or []]
            case "tool_use":
                calls.append(json.dumps([block["name"], block["input"]]))
            case "thinking":
                pass  # another attempt thinks again; that is not sent twice
            case _:
                kept.append(json.dumps(block, sort_keys=True))
    return Gist(text, calls, kept)


def limited(events: Events, at: int) -> Events:
    """End the stream at its limit, the open block with it."""
    told = list(events[:at])
    if told[-1]["type"] == "message_delta":
        told.pop()
    kinds = [event["type"] for event in told if event["type"] != "ping"]
    blocks = [event for event in told if event["type"] == "content_block_start"]
    if kinds[-1] in {"content_block_start", "content_block_delta"}:
        told.append({"type": "content_block_stop", "index": blocks[-1]["index"]})
    usage = {**events[-2].get("usage", {}), "output_tokens": LIMIT}
    return [*told, *_end("max_tokens", LIMIT, usage=usage)]


def again(events: Events, asked: Body) -> Events:
    """Answer a later request: with all, or with what follows the content that it contains."""
    before = len(RAN if asked["messages"][:3] == RAN else GO)
    added = asked["messages"][before:]
    said = [b for m in added if m["role"] == "assistant" for b in m["content"]]
    if not said:
        return events
    text = "".join(block["text"] for block in said if block["type"] == "text")
    skip = behind(gist(events).text, text)
    had = {(block["type"], block.get("id", block.get("tool_use_id"))) for block in said}
    told: list[Json] = [{**events[0], "message": {**events[0]["message"], "content": []}}]
    index = 0
    for begun, deltas in _blocks(events):
        if begun["type"] == "text":
            size = sum(len(delta.get("text", "")) for delta in deltas)
            if size and skip >= size:
                skip -= size
                continue
            cited = skip == 0  # else they were sent with the skipped text
            left: list[Json] = []
            for delta in deltas:
                piece = delta.get("text", "")
                skipped = min(skip, len(piece))
                skip -= skipped
                if piece[skipped:]:
                    left.append({**delta, "text": piece[skipped:]})
                elif cited and not piece:
                    left.append(delta)
            deltas = left
        elif (begun["type"], begun.get("id", begun.get("tool_use_id"))) in had:
            continue
        told.append({"type": "content_block_start", "index": index, "content_block": begun})
        told += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        told.append({"type": "content_block_stop", "index": index})
        index += 1
    return [*told, *events[-2:]]


def _blocks(events: Events) -> Iterator[tuple[Json, list[Json]]]:
    """Yield each block, those of the opening first: its start, and its deltas."""
    for whole in events[0]["message"]["content"]:
        told = [{"type": "text_delta", "text": whole["text"]}] if whole["type"] == "text" else []
        yield ({**whole, "text": ""} if told else whole), told
    begun, deltas = dict[str, Any](), list[Json]()
    for event in events:
        if event["type"] == "content_block_start":
            begun, deltas = event["content_block"], []
        elif event["type"] == "content_block_delta":
            deltas.append(event["delta"])
        elif event["type"] == "content_block_stop":
            yield begun, deltas


WIRE = Wire(
    path="/v1/messages",
    history="anthropic",
    request={
        "model": "claude-opus-5",
        "max_tokens": LIMIT,
        "stream": True,
        "messages": GO,
        "tools": [{"name": "code", "input_schema": {"type": "object"}}],
    },
    encode=sse,
    gist=gist,
    limited=limited,
    again=again,
)
RUNNING = replace(WIRE, request={**WIRE.request, "messages": RAN})
"""The same for a history in which code run by the provider waited for a call's result."""
