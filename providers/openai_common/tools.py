"""What a request says of its tools."""

from __future__ import annotations

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text


def needy(body: Json) -> frozenset[str]:
    """Return the tools that cannot be called without arguments: a call without any was cut."""
    tools = [as_json(tool) for tool in as_list(body.get("tools"))]
    # Chat Completions wrap in "function" what Responses say of the tool itself.
    declared = [as_json(tool.get("function")) or tool for tool in tools]
    return frozenset(
        as_text(tool.get("name"))
        for tool in declared
        if as_list(as_json(tool.get("parameters")).get("required"))
    )
