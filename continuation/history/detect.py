"""Which dialect a body is written in, by its shape."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from continuation.history.types import Body, HistoryFormat
from continuation.wire.json_values import as_list, as_map, as_text, is_list

_ANTHROPIC_FIELDS: Final = frozenset(
    {
        "system",
        "anthropic_version",
        "anthropic_beta",
        "stop_sequences",
        "top_k",
        "context_management",
    }
)
_CHAT_FIELDS: Final = frozenset(
    {
        "max_completion_tokens",
        "response_format",
        "stop",
        "n",
        "frequency_penalty",
        "presence_penalty",
        "stream_options",
        "reasoning_effort",
        "parallel_tool_calls",
        "logit_bias",
        "seed",
    }
)
_ANTHROPIC_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image"}
    | {"document", "web_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload"}
)
_CHAT_BLOCKS: Final = frozenset({"image_url", "input_audio", "refusal", "file"})
_PLAIN_ROLES: Final = frozenset({"user", "assistant", "system"})
_CHAT_KEYS: Final = ("tool_calls", "tool_call_id", "function_call", "reasoning_content")


def detect(body: Body) -> HistoryFormat:
    """Tell the dialect of a request body, or of the part of it that holds the conversation.

    Plain text messages are the same in both `messages` dialects; without another sign they are
    taken for Chat, whose rules ask less. Raises ValueError if there is no conversation in `body`.
    """
    if is_list(body.get("contents")):
        return HistoryFormat.GEMINI
    if "messages" not in body and "input" in body:
        return HistoryFormat.OPENAI_RESPONSES
    if is_list(body.get("messages")):
        return _by_fields(body) or _by_messages(body["messages"])
    msg = "body: no list `messages`, `contents` or `input` in it; name the dialect or mend the body"
    raise ValueError(msg)


def _by_fields(body: Body) -> HistoryFormat | None:
    model = body.get("model")
    if isinstance(model, str) and model.startswith("claude") and not _CHAT_FIELDS & body.keys():
        return HistoryFormat.ANTHROPIC
    tool: Mapping[str, Any] = as_map(next(iter(as_list(body.get("tools"))), None))
    if "input_schema" in tool or _ANTHROPIC_FIELDS & body.keys():
        return HistoryFormat.ANTHROPIC
    if tool.get("type") == "function" or "function" in tool or _CHAT_FIELDS & body.keys():
        return HistoryFormat.OPENAI_CHAT
    return None


def _by_messages(messages: list[Any]) -> HistoryFormat:
    # Plain texts are most of it, and are alike in both.
    with contextlib.suppress(LookupError, TypeError):
        messages = [
            message
            for message in messages
            if type(message["content"]) is not str
            or len(message) != 2
            or message["role"] not in _PLAIN_ROLES
        ]
    found = (_by_message(as_map(message)) for message in messages)
    return next((dialect for dialect in found if dialect is not None), HistoryFormat.OPENAI_CHAT)


def _by_message(message: Mapping[str, Any]) -> HistoryFormat | None:
    if as_text(message.get("role")) in ("tool", "developer", "function"):
        return HistoryFormat.OPENAI_CHAT
    if any(key in message for key in _CHAT_KEYS):
        return HistoryFormat.OPENAI_CHAT
    content = message.get("content")
    if not is_list(content):
        return None
    kinds = {as_text(as_map(block).get("type")) for block in as_list(content)}
    if kinds & _ANTHROPIC_BLOCKS:
        return HistoryFormat.ANTHROPIC
    return HistoryFormat.OPENAI_CHAT if kinds & _CHAT_BLOCKS else None
