"""Detects the dialect of a body by its shape."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from continuation.history.types import Body, HistoryFormat
from continuation.wire.json_values import as_list, as_map, as_text, is_list

_ANTHROPIC_FIELDS: Final = frozenset(
    {"system", "anthropic_version", "anthropic_beta", "stop_sequences", "top_k"}
    | {"context_management"}
)
_CHAT_FIELDS: Final = frozenset(
    {"max_completion_tokens", "response_format", "stop", "n", "frequency_penalty", "seed"}
    | {"presence_penalty", "stream_options", "reasoning_effort", "parallel_tool_calls"}
    | {"logit_bias"}
)
_ANTHROPIC_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image"}
    | {"document", "web_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload"}
)
_CHAT_BLOCKS: Final = frozenset({"image_url", "input_audio", "refusal", "file"})
_PLAIN_ROLES: Final = frozenset({"user", "assistant", "system"})
_CHAT_ROLES: Final = ("tool", "developer", "function")
_CHAT_KEYS: Final = ("tool_calls", "tool_call_id", "function_call", "reasoning_content")


def detect(body: Body) -> HistoryFormat:
    """Return the dialect of a request body, or of the part of it that holds the conversation.

    Plain text messages are the same in both `messages` dialects; without another sign they are
    taken for Chat, which has fewer rules. Raises ValueError if `body` has no conversation.
    """
    if is_list(body.get("contents")):
        return HistoryFormat.GEMINI
    if "messages" not in body and "input" in body:
        return HistoryFormat.OPENAI_RESPONSES
    if not is_list(body.get("messages")):
        problem = "body: it has no list `messages`, `contents` or `input`"
        raise ValueError(f"{problem}; name the dialect or correct the body")
    asks_chat = bool(_CHAT_FIELDS & body.keys())
    tool = as_map(next(iter(as_list(body.get("tools"))), None))
    if as_text(body.get("model")).startswith("claude") and not asks_chat:
        return HistoryFormat.ANTHROPIC
    if "input_schema" in tool or _ANTHROPIC_FIELDS & body.keys():
        return HistoryFormat.ANTHROPIC
    if tool.get("type") == "function" or "function" in tool or asks_chat:
        return HistoryFormat.OPENAI_CHAT
    return _by_messages(body["messages"])


def _by_messages(messages: list[Any]) -> HistoryFormat:
    # Most messages are plain texts, which are the same in both dialects.
    with contextlib.suppress(LookupError, TypeError):
        messages = [
            message
            for message in messages
            if type(message["content"]) is not str
            or len(message) != 2
            or message["role"] not in _PLAIN_ROLES
        ]
    for message in map(as_map, messages):
        if as_text(message.get("role")) in _CHAT_ROLES or any(k in message for k in _CHAT_KEYS):
            return HistoryFormat.OPENAI_CHAT
        blocks = as_list(message.get("content"))
        kinds = {as_text(as_map(block).get("type")) for block in blocks}
        if kinds & _ANTHROPIC_BLOCKS:
            return HistoryFormat.ANTHROPIC
        if kinds & _CHAT_BLOCKS:
            return HistoryFormat.OPENAI_CHAT
    return HistoryFormat.OPENAI_CHAT
