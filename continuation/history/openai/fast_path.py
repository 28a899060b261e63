"""The quick look at both OpenAI dialects; what it is for, `Grammar.fast_validate` says."""

from __future__ import annotations

import re
from typing import Any, Final

from jiter import from_json

from continuation.history.openai.items import ITEM_ID, PREFIXES
from continuation.history.tree import HistoryContext
from continuation.history.types import Body
from continuation.history.wordings import LEAD, LEADS, looks_like_recovery
from continuation.wire.json_values import as_map

MISTRAL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}\Z")
#: Models of DeepSeek and Moonshot that reason whether asked or not.
THINKING_MODEL: Final = re.compile(r"reasoner|thinking|-r1\b", re.IGNORECASE)
_CHAT_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_ITEM_TEXTS: Final = {
    "assistant": frozenset({"output_text"}),
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
}


def _is_object(arguments: str) -> bool:
    return arguments == "{}" or type(from_json(arguments.encode())) is dict


# -- Chat ----------------------------------------------------------------------------------------


def chat_plainly_valid(messages: list[Any], body: Body, context: HistoryContext) -> bool:
    """Whether common shapes of Chat, all valid, are all there is."""
    if context.reasoning != "auto" or context.prefill is False:
        return False
    waiting: list[str] = []
    before = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting or role not in _CHAT_ROLES:
            return False
        elif role == "assistant":
            if not _chat_assistant(content, message.get("tool_calls"), waiting):
                return False
        elif type(content) is not str:
            if not _chat_blocks(content):
                return False
        elif content[:LEAD] in LEADS and before == "assistant" and looks_like_recovery(content):
            return False
        before = role
    return not waiting and (not context.vendor or _vendor(messages, body, context))


def _chat_assistant(content: Any, calls: list[Any] | None, waiting: list[str]) -> bool:
    if calls is None:
        return type(content) is str and content != "" and not content.isspace()
    for call in calls:
        arguments = call["function"]["arguments"]
        if not call["id"] or call["id"] in waiting or not _is_object(arguments):
            return False
        waiting.append(call["id"])
    return bool(calls) and (content is None or type(content) is str)


def _chat_blocks(content: Any) -> bool:
    for block in content:
        kind = block["type"]
        if kind == "text":
            if block["text"][:LEAD] in LEADS:
                return False
        elif kind != "image_url" and kind != "input_audio" and kind != "file":
            return False
    return bool(content)


def _vendor(messages: list[Any], body: Body, context: HistoryContext) -> bool:
    """Whether the rules of one vendor's servers are kept as well."""
    calls = [message for message in messages if message.get("tool_calls")]
    if messages[-1]["role"] == "assistant":
        return False
    if context.vendor == "mistral":
        return all(MISTRAL_ID.match(c["id"]) for message in calls for c in message["tool_calls"])
    thinks = as_map(body.get("thinking")).get("type") == "enabled"
    if context.vendor not in ("deepseek", "moonshot") or thinks:
        return False
    if any(message["content"] == "" for message in calls):
        return False
    if all((message.get("reasoning_content") or "").strip() for message in calls):
        return True
    silent = not any(message.get("reasoning_content") for message in messages)
    return silent and not THINKING_MODEL.search(context.model)


# -- Responses -----------------------------------------------------------------------------------


def responses_plainly_valid(items: list[Any], body: Body) -> bool:
    """Whether common items of Responses, all valid, are all there is."""
    stored = body.get("store") is not False
    waiting: set[str] = set()
    seen: set[str] = set()
    before = ""
    for item in items:
        kind = item.get("type") or "message"
        if before == "reasoning" and kind != "function_call" and item.get("role") != "assistant":
            return False
        if "id" in item and not _id(item["id"], kind, seen):
            return False
        if kind == "message":
            if not _message(item):
                return False
        elif kind == "function_call":
            call = item["call_id"]
            if call in seen or not call or not _is_object(item["arguments"]):
                return False
            waiting.add(call)
            seen.add(call)
        elif kind == "function_call_output":
            waiting.remove(item["call_id"])
        elif kind != "reasoning" or not (stored or item["encrypted_content"]):
            return False
        before = kind
    return not waiting and before != "reasoning"


def _id(name: str | None, kind: str, seen: set[str]) -> bool:
    if name is None:
        return True
    prefix = "" if kind == "function_call_output" else PREFIXES[kind]
    if name in seen or not name.startswith(prefix) or not ITEM_ID.match(name):
        return False
    seen.add(name)
    return True


def _message(item: Any) -> bool:
    content, kinds = item["content"], _ITEM_TEXTS[item["role"]]
    if type(content) is str:
        return bool(content) and not content.isspace() and content[:LEAD] not in LEADS
    text = ""
    for block in content:
        if block["type"] not in kinds:
            return False
        text = block.get("text") or "image"
        if text.isspace() or text[:LEAD] in LEADS:
            return False
    return text != ""
