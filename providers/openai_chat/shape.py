"""How Chat Completions writes conversations, tool results, batch lines and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continuation.providers.contract import ParsedCall, as_result_text, block_types, without_empty
from continuation.providers.openai_chat.codec import ChatCodec
from continuation.providers.openai_common.shape import IGNORED, OpenAIShape
from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_map, as_text, dumps, objects

_FIELDS = frozenset(
    {"max_completion_tokens", "response_format", "stop", "n", "frequency_penalty", "seed"}
    | {"presence_penalty", "stream_options", "reasoning_effort", "parallel_tool_calls"}
    | {"logit_bias"}
)
"""Fields of a request that Anthropic's format does not have."""
_ROLES = frozenset({"tool", "developer", "function"})
_KEYS = frozenset({"tool_calls", "tool_call_id", "function_call", "reasoning_content"})
_BLOCKS = frozenset({"image_url", "input_audio", "refusal", "file"})
"""Roles, fields and types of parts in messages that Anthropic's format does not have."""


class ChatShape(OpenAIShape):
    """The shape of Chat Completions."""

    messages, answer, stop, truncated = "messages", "choices", "finish_reason", "length"
    stops = ChatCodec.stops
    lengths = frozenset({"max_tokens", "max_completion_tokens", "stream", "stream_options"})
    ignored = IGNORED | {"audio", "cache_control", "refusal"}
    envelope = frozenset(
        {"id", "object", "created", "model", "usage", "service_tier", "system_fingerprint"}
    )
    method = "chat.completions.create"

    def resembles(self, body: Mapping[str, Any]) -> int:
        """Return 4 for a field that only Chat has, and 2 for the form of a tool.

        Anthropic's format returns 3 for the name of a Claude model.
        """
        tool = as_map(next(iter(as_list(body.get("tools"))), None))
        if not super().resembles(body):
            return 0
        if _FIELDS & body.keys():
            return 4
        return 2 if tool.get("type") == "function" or "function" in tool else 1

    def resembles_message(self, message: Mapping[str, Any]) -> int:
        if as_text(message.get("role")) in _ROLES or _KEYS & message.keys():
            return 3
        return 1 if block_types(message) & _BLOCKS else 0

    def choices(self, body: Json) -> list[Json]:
        return objects(body.get("choices"))

    def answer_messages(self, body: Json) -> list[Json]:
        return [without_empty(self._message(body))]

    def split_answer(self, body: Json) -> tuple[list[Json], Json]:
        messages, envelope = super().split_answer(body)
        stop = next((choice.get("finish_reason") for choice in self.choices(body)), None)
        return messages, {**envelope, "finish_reason": stop}

    def join_answer(self, messages: Sequence[Json], envelope: Json) -> Json:
        rest = {key: value for key, value in envelope.items() if key != "finish_reason"}
        stop = envelope.get("finish_reason")
        return {**rest, "choices": [{"index": 0, "message": messages[0], "finish_reason": stop}]}

    def is_single_answer(self, body: Json) -> bool:
        has_logprobs = any(choice.get("logprobs") for choice in self.choices(body))
        return super().is_single_answer(body) and not has_logprobs

    def text(self, body: Json) -> str:
        content = self._message(body).get("content")
        if isinstance(content, str):
            return content
        return "".join(as_text(part.get("text")) for part in objects(content))

    def normalized(self, value: object, key: str) -> object:
        """Replace a text by an equivalent list with one part."""
        if key == "content" and isinstance(value, str):
            return [{"text": value, "type": "text"}]
        return value

    def function_of(self, call: Json) -> Json:
        return as_json(call.get("function")) or as_json(call.get("custom")) or call

    def result(self, call: ParsedCall, value: Any, *, failed: bool) -> Json:
        return {"role": "tool", "tool_call_id": call.id, "content": as_result_text(value)}

    def answered_calls(self, message: Json) -> set[str]:
        return {as_text(message.get("tool_call_id"))} if message.get("role") == "tool" else set()

    def is_client(self, client: Any, request: Mapping[str, Any]) -> bool:
        return hasattr(client, "responses") and self.messages in request

    def error_event(self, error: Json) -> bytes:
        return b"data: %b\n\n" % dumps(error)

    def _message(self, body: Json) -> Json:
        return next((as_json(choice.get("message")) for choice in self.choices(body)), {})
