"""A strict stand-in for the providers: recites a text, cuts it, refuses what they refuse."""

from __future__ import annotations

from .model import tokens
from .scenario import SIGNED, Block, Call, Raw, Reply, Scenario, Text, Thinking
from .server import Simulator
from .wire import Recorded

__all__ = [
    "SIGNED",
    "Block",
    "Call",
    "Raw",
    "Recorded",
    "Reply",
    "Scenario",
    "Simulator",
    "Text",
    "Thinking",
    "tokens",
]
