"""How the Messages format writes conversations, tool results, batch lines and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuation.providers.anthropic_messages.codec import MessagesCodec
from continuation.providers.contract import ParsedCall, Shape, as_result_text, block_types
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_map, as_text, is_list, objects

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}
"""The status -> the type of the error (docs: API > Errors)."""


_FIELDS = frozenset(
    {"system", "anthropic_version", "anthropic_beta", "stop_sequences", "top_k"}
    | {"context_management"}
)
"""Fields of a request that Chat Completions does not have."""
_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image"}
    | {"document", "web_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload"}
)
"""Types of blocks that Chat Completions does not have."""


class MessagesShape(Shape):
    """The shape of the Messages format."""

    messages, answer, stop, truncated = "messages", "content", "stop_reason", "max_tokens"
    stops = MessagesCodec.stops
    identity = ("model", "system", "tools")
    lengths = frozenset({"max_tokens", "stream"})
    ignored = frozenset({"cache_control", "caller", "index", "parsed"})
    envelope = frozenset({"id", "type", "role", "model", "stop_reason", "stop_sequence", "usage"})
    method = "messages.create"
    batch_request, batch_answer = "params", ("result", "message")
    upstream, server, key_header = "anthropic", "https://api.anthropic.com", b"x-api-key"

    def resembles(self, body: Mapping[str, Any]) -> int:
        """Return 5 for a field that only this format has, and 3 for the name of a Claude model.

        Chat returns at most 4.
        """
        tool = as_map(next(iter(as_list(body.get("tools"))), None))
        if not super().resembles(body):
            return 0
        if "input_schema" in tool or _FIELDS & body.keys():
            return 5
        return 3 if as_text(body.get("model")).startswith("claude") else 1

    def resembles_message(self, message: Mapping[str, Any]) -> int:
        return 2 if block_types(message) & _BLOCKS else 0

    def answer_messages(self, body: Json) -> list[Json]:
        return [{"role": "assistant", "content": body.get("content") or []}]

    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        return {**envelope, "content": messages[0]["content"]}

    def text(self, body: Json) -> str:
        return "".join(as_text(block.get("text")) for block in objects(body.get("content")))

    def normalized(self, value: object, key: str) -> object:
        """Replace a text by an equivalent list with one block."""
        if key == "content" and isinstance(value, str):
            return [{"text": value, "type": "text"}]
        return value

    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        is_content = is_list(value) and all("type" in as_json(each) for each in value)
        content = value if is_content else as_result_text(value)
        block: Json = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        if failed:
            block["is_error"] = True
        return {"role": "user", "content": [block]}

    def group_results(self, results: Sequence[Json]) -> list[Json]:
        """Put all results into one message, as the API requires."""
        if len(results) < 2:
            return list(results)
        blocks = [block for message in results for block in as_list(message.get("content"))]
        return [{"role": "user", "content": blocks}]

    def answered_calls(self, message: Json) -> set[str]:
        blocks = objects(message.get("content"))
        return {as_text(each.get("tool_use_id")) for each in blocks if _is_result(each)}

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        return hasattr(client, "messages")

    def sdk_method(self, request: Mapping[str, Any], answer: object = None) -> str:
        is_beta = "betas" in request or type(answer).__name__.startswith("Beta")
        return f"beta.{self.method}" if is_beta else self.method

    def sdk_arguments(self, client: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Add the client's timeout.

        Without an explicit timeout, the SDK refuses a long call that is not streamed.
        """
        return {"timeout": getattr(client, "timeout", None), **request}

    def is_batch_line(self, line: Json, request: Json) -> bool:
        return self.batch_request in line

    def error(self, status: int, message: str) -> Json:
        other = "api_error" if status >= 500 else "invalid_request_error"
        kind = _ERRORS.get(status, other)
        return {"type": "error", "error": {"type": kind, "message": message}}


def _is_result(block: Json) -> bool:
    return block.get("type") == "tool_result"
