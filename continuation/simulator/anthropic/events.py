"""A reply in Anthropic's shapes: the events of a stream, or one message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from continuation.simulator.anthropic.body import Json
from continuation.simulator.cost import arrived, compact, cost
from continuation.simulator.scenario import SIGNED, Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Event

DELTA = 24
"""Characters per delta where the reply does not say."""
_ONLY_AT_START = ("cache_creation", "service_tier")


@dataclass(frozen=True)
class Envelope:
    """What a reply does not know of the message it becomes."""

    id: str
    model: str
    input_usage: Json
    sign: Callable[[str], str]
    call_ids: Iterator[str]


def message(reply: Reply, envelope: Envelope) -> Json:
    """Write the whole message, as a request without `stream` gets it."""
    content = [_whole(block, envelope) for block in reply.blocks]
    head = _head(envelope, _usage(reply, envelope))
    return {**head, "content": content, **_ending(reply)}


def events(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """Write the stream: start, ping, each block's start, deltas and stop, closing delta, stop."""
    usage = _usage(reply, envelope)
    yield _event({"type": "message_start", "message": _head(envelope, _at_start(usage))})
    yield _event({"type": "ping"})
    for index, block in enumerate(reply.blocks):
        yield from _block_events(index, block, reply.deltas or DELTA, envelope)
    closing = {name: usage[name] for name in usage if name not in _ONLY_AT_START}
    yield _event({"type": "message_delta", "delta": _ending(reply), "usage": closing})
    yield _event({"type": "message_stop"})


def raw_events(listed: Sequence[tuple[str | None, str | Mapping[str, Any]]]) -> Iterator[Event]:
    """Write events as they were given."""
    for name, data in listed:
        yield Event(name, data if isinstance(data, str) else compact(data))


def whole_members(text: str) -> Json:
    """Return the top-level members of a JSON object that were whole when its text broke off."""
    found: Json = {}
    rest = text.lstrip().removeprefix("{").lstrip()
    while rest.startswith('"'):
        member = _member(rest)
        if member is None:
            break
        name, value, rest = member
        found[name] = value
        rest = rest.removeprefix(",").lstrip()
    return found


def _member(text: str) -> tuple[str, Any, str] | None:
    """Read `"name": value` at the head of `text`; a bare word or number at its end may be cut."""
    decoder = json.JSONDecoder()
    try:
        name, end = decoder.raw_decode(text)
        after = text[end:].lstrip().removeprefix(":").lstrip()
        value, end = decoder.raw_decode(after)
    except ValueError:
        return None
    rest = after[end:].lstrip()
    closed = rest or text.rstrip()[-1] in '"]}'
    return (name, value, rest) if closed else None


def _head(envelope: Envelope, usage: Json) -> Json:
    return {
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(reply: Reply, envelope: Envelope) -> Json:
    """Count the output; an empty answer that ended by itself costs two tokens."""
    spent = sum(map(cost, reply.blocks)) or (2 if reply.stop == "end_turn" else 0)
    thought = sum(cost(block) for block in reply.blocks if isinstance(block, Thinking))
    usage = {
        **envelope.input_usage,
        "output_tokens": spent,
        "output_tokens_details": {"thinking_tokens": thought},
        "service_tier": "standard",
        **(reply.usage or {}),
    }
    return {name: value for name, value in usage.items() if value is not None}


def _at_start(usage: Json) -> Json:
    begun = {name: usage[name] for name in usage if name != "output_tokens_details"}
    return {**begun, "output_tokens": min(1, usage.get("output_tokens", 0))}


def _ending(reply: Reply) -> Json:
    return {"stop_reason": reply.stop, "stop_sequence": reply.stop_sequence, **reply.extra}


def _whole(block: Block, envelope: Envelope) -> Json:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text):
            return {
                "type": "thinking",
                "thinking": text,
                "signature": _signature(block, envelope) or "",
            }
        case ToolCall():
            return {**_call(block, envelope), "input": whole_members(arrived(block))}
        case Raw(raw):
            return dict(raw)


def _call(call: ToolCall, envelope: Envelope) -> Json:
    return {
        "type": "tool_use",
        "id": call.id or next(envelope.call_ids),
        "name": call.name,
        "input": {},
    }


def _signature(block: Thinking, envelope: Envelope) -> str | None:
    return envelope.sign(block.text) if block.signature == SIGNED else block.signature


def _block_events(index: int, block: Block, size: int, envelope: Envelope) -> Iterator[Event]:
    yield _event(
        {"type": "content_block_start", "index": index, "content_block": _opening(block, envelope)}
    )
    match block:
        case Text(text):
            yield from _deltas(index, "text_delta", "text", text, size)
        case Thinking(text):
            yield from _deltas(index, "thinking_delta", "thinking", text, size)
            yield from _signature_event(index, _signature(block, envelope))
        case ToolCall():
            yield _delta(index, "input_json_delta", "partial_json", "")
            yield from _deltas(index, "input_json_delta", "partial_json", arrived(block), size)
        case Raw():
            pass
    yield _event({"type": "content_block_stop", "index": index})


def _opening(block: Block, envelope: Envelope) -> Json:
    match block:
        case Text():
            return {"type": "text", "text": ""}
        case Thinking():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case ToolCall():
            return _call(block, envelope)
        case Raw(raw):
            return dict(raw)


def _signature_event(index: int, signature: str | None) -> Iterator[Event]:
    if signature is not None:
        yield _delta(index, "signature_delta", "signature", signature)


def _deltas(index: int, kind: str, name: str, text: str, size: int) -> Iterator[Event]:
    return (
        _delta(index, kind, name, text[start : start + size]) for start in range(0, len(text), size)
    )


def _delta(index: int, kind: str, name: str, piece: str) -> Event:
    """Write the most frequent event by hand: a long stream has tens of thousands of them."""
    delta = f'{{"type":"{kind}","{name}":{compact(piece)}}}'
    data = f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}'
    return Event("content_block_delta", data)


def _event(data: Json) -> Event:
    return Event(data["type"], compact(data))
