"""The four wire formats side by side: the driver of each, and a plain request in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openai

from continuation.simulator import Simulator
from support.sdks import chat, gemini, messages, responses
from support.sdks.turn import Turn

FORMATS = ("anthropic-messages", "openai-chat", "openai-responses", "gemini")
MAKES: Mapping[str, Callable[[], Turn]] = dict(
    zip(FORMATS, (messages.Ran, chat.Ran, responses.Ran, gemini.Ran), strict=True)
)
LIMITS: Mapping[str, Callable[[Simulator], Sequence[int | None]]] = dict(
    zip(FORMATS, (messages.limits, chat.limits, responses.limits, gemini.limits), strict=True)
)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
THINKS: Mapping[str, dict[str, Any]] = {
    "anthropic-messages": {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
    "openai-chat": {
        "model": "gpt-5",
        "max_tokens": openai.omit,
        "max_completion_tokens": 16_000,
    },
    "openai-responses": {"model": "gpt-5", "reasoning": {"effort": "low", "summary": "auto"}},
    "gemini": {"thinking_config": {"include_thoughts": True}},
}
"""What has a model think, and show it."""
WRITE_TOOL: Mapping[str, list[Any]] = {
    "anthropic-messages": [{"name": "Write", "input_schema": SCHEMA}],
    "openai-chat": [{"type": "function", "function": {"name": "Write", "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", "name": "Write", "parameters": SCHEMA}],
    "gemini": [{"function_declarations": [{"name": "Write"}]}],
}


def request(dialect: str, limit: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the tool Write, in the words of a format's SDK."""
    tools = {"tools": WRITE_TOOL[dialect]}
    match dialect:
        case "anthropic-messages":
            return {**messages.ask(max_tokens=limit), **tools, **more}
        case "openai-chat":
            return {**chat.ask(max_tokens=limit), **tools, **more}
        case "openai-responses":
            return {**responses.ask(max_output_tokens=limit), **tools, **more}
        case _:
            settings = {"max_output_tokens": limit, **tools, **more}
            model = settings.pop("model", gemini.NEW)
            return {"model": model, "contents": gemini.ASKED, "config": settings}
