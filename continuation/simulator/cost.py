"""What a reply's blocks cost, and how much of a cut call arrives: the same in every format."""

from __future__ import annotations

import json

from continuation.simulator.model import tokens
from continuation.simulator.scenario import Block, Raw, Text, Thinking, ToolCall

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
