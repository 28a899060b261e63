"""How Responses writes conversations, tool results, batch lines and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuation.providers.contract import ParsedCall, as_result_text
from continuation.providers.openai_common.shape import IGNORED, OpenAIShape
from continuation.providers.openai_responses.codec import ResponsesCodec
from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, objects


class ResponsesShape(OpenAIShape):
    """The shape of Responses."""

    messages, answer, stop, truncated = "input", "output", "status", "incomplete"
    stops = ResponsesCodec.stops
    identity = ("model", "instructions", "tools", "previous_response_id", "conversation")
    lengths = frozenset({"max_output_tokens", "stream", "stream_options"})
    ignored = IGNORED | {"status", "refusal"}
    envelope = frozenset(
        {"id", "object", "created_at", "completed_at", "status", "model", "usage"}
        | {"incomplete_details", "service_tier"}
    )
    method = "responses.create"

    def resembles(self, body: Mapping[str, Any]) -> int:
        return int("input" in body and "messages" not in body)

    def is_chained(self, body: Json) -> bool:
        return bool(body.get("previous_response_id") or body.get("conversation"))

    def request_messages(self, body: Json) -> list[Json]:
        """Return the input's items. A text is one message of the user."""
        value = body.get("input")
        if isinstance(value, str):
            return [{"role": "user", "content": value}]
        return super().request_messages(body)

    def answer_messages(self, body: Json) -> list[Json]:
        return objects(body.get("output"))

    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        return {**envelope, "output": [*messages]}

    def is_truncated(self, body: Json) -> bool:
        return body.get("status") == self.truncated

    def text(self, body: Json) -> str:
        items = objects(body.get("output"))
        parts = [part for item in items if _is_message(item) for part in objects(item["content"])]
        return "".join(as_text(part.get("text")) for part in parts)

    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        kind = "custom_tool_call_output" if call.custom else "function_call_output"
        return {"type": kind, "call_id": call.id, "output": as_result_text(value)}

    def answered_calls(self, message: Json) -> set[str]:
        is_output = as_text(message.get("type")).endswith("_output")
        return {as_text(message.get("call_id"))} if is_output else set()

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        return hasattr(client, "responses") and "messages" not in request

    def is_batch_line(self, line: Json, request: Json) -> bool:
        return self.batch_request in line and "messages" not in request

    def error_event(self, error: Json) -> bytes:
        """Return the event `error`. Clients read its fields at the top, or in `error`."""
        fields = as_json(error.get("error"))
        return super().error_event({"type": "error", **fields, "error": fields})


def _is_message(item: Json) -> bool:
    return item.get("type") == "message" and "content" in item
