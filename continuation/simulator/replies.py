"""What all formats do with a reply's blocks: count their cost, cut them into pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from continuation.simulator.model import tokens
from continuation.simulator.scenario import Block, Raw, Reply, Text, Thinking, ToolCall
from continuation.simulator.wire import Json

DELTA = 24
"""Characters per delta where the reply does not say."""

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes JSON without spaces, as the providers do."""


def arrived(call: ToolCall) -> str:
    """Return as much of a call's arguments, as JSON, as the limit let through."""
    raw = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
    return raw[: call.cut]


def cost(block: Block) -> int:
    """Count a block's tokens."""
    match block:
        case Thinking(text, tokens=counted):
            return tokens(text) if counted is None else counted
        case Text(text):
            return tokens(text)
        case ToolCall():
            return tokens(arrived(block))
        case Raw(raw):
            return tokens(compact(raw))


def spent(reply: Reply, *kinds: type[Block]) -> int:
    """Count what a reply cost, or what its blocks of some kinds did."""
    return sum(cost(block) for block in reply.blocks if not kinds or isinstance(block, kinds))


def told_usage(counted: Mapping[str, Any], reply: Reply) -> Json:
    """Lay what a reply says of its usage over what was counted; None takes a field away."""
    usage = {**counted, **(reply.usage or {})}
    return {name: value for name, value in usage.items() if value is not None}


def pieces(text: str, size: int | None) -> Iterator[str]:
    """Cut a text into deltas."""
    size = size or DELTA
    return (text[start : start + size] for start in range(0, len(text), size))


def whole_members(text: str) -> Json:
    """Return the top-level members of a JSON object that were whole when its text broke off."""
    found: Json = {}
    decoder = json.JSONDecoder()
    rest = text.lstrip().removeprefix("{").lstrip()
    while rest.startswith('"'):
        try:
            name, end = decoder.raw_decode(rest)
            value_text = rest[end:].lstrip().removeprefix(":").lstrip()
            value, end = decoder.raw_decode(value_text)
        except ValueError:
            break
        after = value_text[end:].lstrip()
        # A bare word or a number at the very end may be cut: 12 may have been 123.
        if not after and rest.rstrip()[-1] not in '"]}':
            break
        found[name] = value
        rest = after.removeprefix(",").lstrip()
    return found
