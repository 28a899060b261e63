"""A strict simulator of the providers: recites a text, truncates it, refuses what they refuse."""

from __future__ import annotations

from continuation.simulator.model import tokens
from continuation.simulator.scenario import (
    SIGNED,
    Block,
    Raw,
    Reply,
    Scenario,
    Text,
    Thinking,
    ToolUse,
)
from continuation.simulator.server import Simulator
from continuation.simulator.wire import Recorded

__all__ = [
    "SIGNED",
    "Block",
    "Raw",
    "Recorded",
    "Reply",
    "Scenario",
    "Simulator",
    "Text",
    "Thinking",
    "ToolUse",
    "tokens",
]
