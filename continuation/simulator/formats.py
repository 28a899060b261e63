"""Which wire formats the simulator speaks; a request belongs to the first that routes it."""

from __future__ import annotations

from collections.abc import Mapping

from continuation.limits import ModelLimits

from .anthropic import AnthropicFormat
from .wire import WireFormat


def formats(models: Mapping[str, ModelLimits]) -> tuple[WireFormat, ...]:
    """Return one of each; `models` says what a model can do before the shipped table is asked."""
    return (AnthropicFormat(models),)
