"""The glance at both OpenAI dialects; what a glance is, `glance` says."""

from __future__ import annotations

import re
from typing import Any, Final

from jiter import from_json

from continuation.history.fast_validate import LEAD, LEADS, OTHER_SHAPE
from continuation.history.tree import Context, as_list, as_map
from continuation.history.types import Body
from continuation.history.wordings import looks_like_recovery

__all__ = ["THINKING_MODEL", "glance_chat", "glance_responses"]


def glance_chat(body: Body, context: Context) -> bool:
    """Whether a Chat body is plainly clean."""
    messages = as_list(body.get("messages"))
    if context.strict or context.reasoning != "auto" or context.prefill is False or not messages:
        return False
    try:
        return _chat_clean(messages) and _vendor_clean(messages, body, context)
    except OTHER_SHAPE:
        return False


def _chat_clean(messages: list[Any]) -> bool:
    waiting: list[str] = []
    before = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting or role not in _CHAT_ROLES:
            return False
        elif role == "assistant":
            if not _chat_answer_clean(message, content, waiting):
                return False
        elif type(content) is not str:
            if not _chat_blocks_clean(content):
                return False
        elif content[:LEAD] in LEADS and before == "assistant" and looks_like_recovery(content):
            return False
        before = role
    return not waiting


def _vendor_clean(messages: list[Any], body: Body, context: Context) -> bool:
    if context.vendor == "mistral":
        return messages[-1]["role"] != "assistant" and _mistral_ids_clean(messages)
    if context.vendor not in ("deepseek", "moonshot"):
        return not context.vendor
    if messages[-1]["role"] == "assistant" or as_map(body.get("thinking")).get("type") == "enabled":
        return False
    calls = [message for message in messages if message.get("tool_calls")]
    if any(message["content"] == "" for message in calls):
        return False
    told = sum(bool((message.get("reasoning_content") or "").strip()) for message in calls)
    if told == len(calls):
        return True
    silent = not any(message.get("reasoning_content") for message in messages)
    return silent and not THINKING_MODEL.search(context.model)


def _mistral_ids_clean(messages: list[Any]) -> bool:
    for message in messages:
        if "tool_calls" in message:
            for call in message["tool_calls"]:
                if not _MISTRAL_ID(call["id"]):
                    return False
    return True


_MISTRAL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}\Z").match

#: Models of these vendors that reason whether asked or not.
THINKING_MODEL: Final = re.compile(r"reasoner|thinking|-r1\b", re.IGNORECASE)


def _chat_answer_clean(message: Any, content: Any, waiting: list[str]) -> bool:
    calls = message.get("tool_calls")
    if calls is None:
        return type(content) is str and content != "" and not content.isspace()
    return _chat_calls_clean(content, calls, waiting)


_CHAT_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})


def _chat_calls_clean(content: Any, calls: list[Any], waiting: list[str]) -> bool:
    for call in calls:
        arguments = call["function"]["arguments"]
        if not call["id"] or call["id"] in waiting or not _is_object(arguments):
            return False
        waiting.append(call["id"])
    return bool(calls) and (content is None or type(content) is str)


def _is_object(arguments: str) -> bool:
    return arguments == "{}" or type(from_json(arguments.encode())) is dict


def _chat_blocks_clean(content: Any) -> bool:
    for block in content:
        kind = block["type"]
        if kind == "text":
            if block["text"][:LEAD] in LEADS:
                return False
        elif kind != "image_url" and kind != "input_audio" and kind != "file":
            return False
    return bool(content)


def glance_responses(body: Body, context: Context) -> bool:
    """Whether a Responses body is plainly clean."""
    if type(body.get("input")) is str:
        return True
    given = as_list(body.get("input"))
    if context.strict or not given:
        return False
    try:
        return _items_clean(given, stored=body.get("store") is not False)
    except OTHER_SHAPE:
        return False


def _items_clean(items: list[Any], *, stored: bool) -> bool:
    waiting: set[str] = set()
    seen: set[str] = set()
    before = ""
    for item in items:
        kind = item.get("type") or "message"
        if before == "reasoning" and kind != "function_call" and item.get("role") != "assistant":
            return False
        if kind == "message" and "id" not in item:
            if not _message_item_clean(item):
                return False
        elif not _item_clean(item, kind, waiting, seen, stored=stored):
            return False
        before = kind
    return not waiting and before != "reasoning"


def _item_clean(item: Any, kind: str, waiting: set[str], seen: set[str], *, stored: bool) -> bool:
    name = item.get("id")
    if name is not None and not _name_clean(name, kind, seen):
        return False
    if kind == "message":
        return _message_item_clean(item)
    if kind == "function_call":
        return _call_item_clean(item, waiting, seen)
    if kind == "function_call_output":
        waiting.remove(item["call_id"])
        return True
    return kind == "reasoning" and (stored or bool(item["encrypted_content"]))


def _name_clean(name: str, kind: str, seen: set[str]) -> bool:
    if name in seen or not name.startswith(_PREFIXES[kind]) or not _item_id(name):
        return False
    seen.add(name)
    return True


def _call_item_clean(item: Any, waiting: set[str], seen: set[str]) -> bool:
    call = item["call_id"]
    if call in seen or not call or not _is_object(item["arguments"]):
        return False
    waiting.add(call)
    seen.add(call)
    return True


_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "function_call_output": "",
}
_item_id: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z").match
_ITEM_TEXTS: Final = {
    "assistant": frozenset({"output_text"}),
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
}


def _message_item_clean(item: Any) -> bool:
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
