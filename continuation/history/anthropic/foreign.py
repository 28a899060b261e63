"""Messages of another dialect in an Anthropic history, as a change of provider leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from continuation.history.tree import as_list, as_map

__all__ = ["from_chat"]


def from_chat(native: object) -> list[dict[str, Any]]:
    """A message that is not in Anthropic's form as one that is; none if nothing of it can be kept.

    Understood are plain strings, Chat's `tool` messages and `tool_calls`, and strange roles.
    """
    if isinstance(native, str):
        return [{"role": "user", "content": native}]
    given = as_map(native)
    if not given:
        return []
    if given.get("role") in ("tool", "function"):
        return [{"role": "user", "content": [_result(given)]}]
    role = "assistant" if given.get("role") in ("assistant", "model") else "user"
    calls = [_call(as_map(call)) for call in as_list(given.get("tool_calls"))]
    rest = {key: value for key, value in given.items() if key not in _CHAT_ONLY}
    return [{**rest, "role": role, "content": [*_blocks(given.get("content")), *calls]}]


_CHAT_ONLY = frozenset({"tool_calls", "reasoning_content", "refusal", "annotations", "audio"})


def _blocks(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return as_list(content)


def _result(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": given.get("tool_call_id", ""),
        "content": given.get("content") or "",
    }


def _call(given: Mapping[str, Any]) -> dict[str, Any]:
    function = as_map(given.get("function"))
    arguments = function.get("arguments")
    return {
        "type": "tool_use",
        "id": given.get("id", ""),
        "name": function.get("name", ""),
        "input": _arguments(arguments) if isinstance(arguments, str) else arguments,
    }


def _arguments(text: str) -> Any:
    """The arguments as an object, or the text itself if it is no JSON: the reader will see."""
    try:
        return json.loads(text)
    except ValueError:
        return text
