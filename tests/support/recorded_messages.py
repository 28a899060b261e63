"""Recorded streams of the Messages API in a line of text each.

    t:One_|day         a text in two deltas; `_` is a space, `!` in the place of a delta is a ping
    t**:cited|text     two citations stand before its first delta
    th:Hm|so           thinking, signed
    c:read|{"a":|1}    a call to run; without pieces its arguments are one empty delta
    s:web_search|{}    a call of the provider's own; `s:echo@mcp` is one of an MCP server
    r:web_search       what came of the last one
    k:summary          a compaction; `f` is a fallback to another model
    !                  a ping

Each may carry further fields behind a `~`, in JSON: `c~{"caller":{"type":"direct"}}:read`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import httpx2
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaRawMessageStreamEvent

from continuation.history.types import Body
from support.drive import sse
from support.recorded import LIMIT, Events, Gist, Json, Wire

_TOKEN = re.compile(r"(?P<kind>[a-z]+|!)(?P<cited>\**)(?:~(?P<more>\{\S*?\}))?(?::(?P<said>\S+))?")
_COUNTS = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
_PING: Json = {"type": "ping"}


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
            events.append(_PING)
            continue
        index = next(places)
        begun, deltas = _block(token, index, calls)
        begun |= json.loads(token["more"] or "{}")
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            told = {"type": "content_block_delta", "index": index, "delta": delta}
            events.append(told if delta else _PING)
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
            name, _, server = first.partition("@")
            kind = f"{server or 'server'}_tool_use"
            calls.append(f"srvtoolu_{index}")
            begun = {"type": kind, "id": calls[-1], "name": name, "input": {}}
            return begun, _deltas("input_json", "partial_json", rest)
        case "r":
            kind = f"{first}_tool_result"
            return {"type": kind, "tool_use_id": calls[-1], "content": []}, []
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
    return cast("Json", snapshot.to_dict())


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
                pass  # another attempt thinks anew, and what it thinks is not told twice
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
    return [*told, *_end("max_tokens", LIMIT)]


def again(events: Events, asked: Body) -> Events:
    """Answer a later request: with all, or with what is behind the content it says was said."""
    said = [b for m in asked["messages"] if m["role"] == "assistant" for b in m["content"]]
    if not said:
        return events
    text = "".join(block["text"] for block in said if block["type"] == "text")
    had = {block.get("id", block.get("tool_use_id", block["type"])) for block in said}
    told: list[Json] = [{**events[0], "message": {**events[0]["message"], "content": []}}]
    for index, block in enumerate(_blocks(events)):
        begun, deltas = block[0]["content_block"], block[1:-1]
        if begun["type"] == "text":
            left: list[Json] = []
            passed = False
            for event in deltas:
                piece = event.get("delta", {}).get("text", "")
                skipped = min(len(text), len(piece))
                text, passed = text[skipped:], passed or bool(skipped)
                if len(piece) > skipped:
                    delta = {**event["delta"], "text": piece[skipped:]}
                    left.append({**event, "delta": delta})
                elif not piece:
                    left.append(event)
            deltas = [e for e in left if "text" in e.get("delta", {})] if passed else left
            if not deltas or text:
                continue
        elif begun.get("id", begun.get("tool_use_id", begun["type"])) in had:
            continue
        told += [{**e, "index": index} if "index" in e else e for e in (block[0], *deltas)]
        told.append({"type": "content_block_stop", "index": index})
    return [*told, *events[-2:]]


def _blocks(events: Events) -> Iterator[list[Json]]:
    """Yield the events of each block, content of the opening first; pings between are left out."""
    for index, whole in enumerate(events[0]["message"]["content"]):
        begun = {"type": "content_block_start", "index": index, "content_block": whole}
        yield [begun, {"type": "content_block_stop", "index": index}]
    block: list[Json] = []
    for event in events:
        if block or event["type"] == "content_block_start":
            block.append(event)
        if event["type"] == "content_block_stop":
            yield block
            block = []


WIRE = Wire(
    path="/v1/messages",
    history="anthropic",
    request={
        "model": "claude-opus-5",
        "max_tokens": LIMIT,
        "stream": True,
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    },
    encode=sse,
    gist=gist,
    limited=limited,
    again=again,
)
