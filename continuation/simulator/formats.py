"""Which wire formats the simulator speaks; a request belongs to the first that routes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuation.limits import ModelLimits
from continuation.simulator.anthropic.format import AnthropicFormat
from continuation.simulator.format import Format
from continuation.simulator.gemini.format import GeminiFormat
from continuation.simulator.openai_chat.format import ChatFormat
from continuation.simulator.openai_responses.format import ResponsesFormat
from continuation.simulator.wire import Recorded


def formats(models: Mapping[str, ModelLimits]) -> Sequence[Format[Any]]:
    """Return one of each; `models` says what a model can do before the shipped table is asked."""
    kinds = (AnthropicFormat, GeminiFormat, ChatFormat, ResponsesFormat)
    return [kind(models) for kind in kinds]


def in_order(listed: Sequence[Format[Any]], request: Recorded) -> Sequence[Format[Any]]:
    """Put formats in the order they are asked: `/v1/models` is Anthropic's by its header only."""
    return listed if "anthropic-version" in request.headers else [*listed[1:], listed[0]]
