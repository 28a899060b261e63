"""Messages of another dialect in a Chat history, as a change of provider leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from continuation.history.tree import as_list, as_map, is_list, text_of, word

__all__ = ["FOREIGN_BLOCKS", "from_anthropic"]

FOREIGN_BLOCKS: Final = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Anthropic's blocks that Chat has no place for inside `content`."""


def from_anthropic(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An Anthropic message as Chat messages: results first, then what was said, with its calls.

    Thinking is dropped: no other provider can take it back.
    """
    content = given.get("content")
    if not is_list(content):
        return [dict(given)]
    blocks = [as_map(block) for block in as_list(content)]
    results = [_result(block) for block in blocks if block.get("type") == "tool_result"]
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    said = [block for block in as_list(content) if not _is_foreign(block)]
    if results and not said and not calls:
        return results
    rest: dict[str, Any] = {**given, "content": said or None}
    return [*results, {**rest, "tool_calls": calls} if calls else rest]


def _is_foreign(block: object) -> bool:
    return word(as_map(block).get("type")) in FOREIGN_BLOCKS


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    text = text_of(block.get("content"))
    return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": text}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {"id": block.get("id", ""), "type": "function", "function": function}
