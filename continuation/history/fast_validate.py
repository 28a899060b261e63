"""A history that is plainly clean is told in one tight loop, without being taken apart.

Nearly every history is clean, and a repair that runs before each request must not cost more than
reading the body did. These functions only recognise the common shapes; whatever else they meet,
valid or not, they leave to the full check. That they never call a history clean that the full check
faults is a property of the tests, which is why they may be this terse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from continuation.history.tree import Context, as_list, as_map
from continuation.history.types import Body
from continuation.history.wordings import looks_like_recovery
from continuation.prompts import Cause, recovery_prompt

__all__ = ["LEAD", "LEADS", "OTHER_SHAPE", "glance_anthropic", "glance_gemini"]

OTHER_SHAPE: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What a loop that expects the common shape raises where it meets another."""
LEAD: Final = 8
"""Characters that tell nearly every text from a recovery prompt."""
LEADS: Final = frozenset(
    {recovery_prompt("", None, cause)[:LEAD] for cause in Cause} | {"Output t", "The conn"}
)
"""How recovery prompts begin; what begins so is looked at closely."""
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+\Z").match
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z").match


def glance_anthropic(body: Body, context: Context) -> bool:
    """Whether a Messages body is plainly clean."""
    messages = as_list(body.get("messages"))
    if context.strict or context.thinking == "none" or not messages:
        return False
    if not _mode_clean(body, context):
        return False
    try:
        return _system_clean(body.get("system")) and _messages_clean(messages, body, context)
    except OTHER_SHAPE:
        return False


def _system_clean(system: Any) -> bool:
    if system is None or type(system) is str:
        return not (system and system.isspace())
    return all(block["type"] == "text" and block["text"].strip() for block in system)


def _messages_clean(messages: list[Any], body: Body, context: Context) -> bool:
    seen: set[str] = set()
    waiting: list[str] = []
    before = "assistant"
    for message in messages:
        role, content = message["role"], message["content"]
        if role == before or role not in _SPEAKERS or "tool_calls" in message:
            return False
        if type(content) is str:
            if waiting or not content or content.isspace() or _recovers(role, content):
                return False
        elif role == "assistant":
            if not _assistant_clean(content, waiting, seen):
                return False
        elif not _user_clean(content, waiting):
            return False
        before = role
    ends_well = before == "user" or _ends_well(messages[-1]["content"], body, context)
    if as_map(body.get("thinking")).get("type") == "enabled" and not _loop_thinks(messages):
        return False
    return not waiting and ends_well and (not seen or _declared(body))


def _mode_clean(body: Body, context: Context) -> bool:
    mode = as_map(body.get("thinking")).get("type")
    if context.thinking == "manual":
        return mode != "adaptive"
    return context.thinking != "always" or mode not in ("disabled", "enabled")


def _loop_thinks(messages: list[Any]) -> bool:
    """Whether an open tool loop, if there is one, began with thinking."""
    first = None
    for message in reversed(messages):
        content = message["content"]
        if message["role"] == "assistant":
            first = content
        elif type(content) is str or content[0]["type"] != "tool_result":
            break
    return first is None or first[0]["type"] == "thinking"


_SPEAKERS: Final = frozenset({"user", "assistant"})


def _recovers(role: str, text: str) -> bool:
    return text[:LEAD] in LEADS and role == "user" and looks_like_recovery(text)


def _declared(body: Body) -> bool:
    return bool(body.get("tools")) or "max_tokens" not in body


def _ends_well(content: Any, body: Body, context: Context) -> bool:
    """Whether the assistant may have the last word, and in this form."""
    if context.prefill is False or body.get("thinking") is not None:
        return False
    return type(content) is str and content == content.rstrip()


def _assistant_clean(content: Iterable[Any], waiting: list[str], seen: set[str]) -> bool:
    kind = ""
    for block in content:
        before, kind = kind, block["type"]
        if kind == "text":
            text = block["text"]
            if waiting or not text or text.isspace():
                return False
        elif kind == "tool_use":
            if not _call_clean(block, waiting, seen):
                return False
        elif kind != "thinking" or before or not _thought_clean(block):
            return False
    return kind == "tool_use" or kind == "text"


def _call_clean(block: Any, waiting: list[str], seen: set[str]) -> bool:
    call = block["id"]
    if call in seen or not _ID(call) or type(block["input"]) is not dict:
        return False
    seen.add(call)
    waiting.append(call)
    return True


def _thought_clean(block: Any) -> bool:
    signature = block["signature"]
    return bool(_SIGNATURE(signature)) and not signature.startswith(("gAAAA", "skip_", "context_"))


def _user_clean(content: Iterable[Any], waiting: list[str]) -> bool:
    kind = ""
    texts = 0
    for block in content:
        kind = block["type"]
        if kind == "tool_result":
            if texts or not _result_clean(block, waiting):
                return False
        elif kind == "text":
            text = block["text"]
            texts += 1
            if waiting or not text or text.isspace() or text[:LEAD] in LEADS:
                return False
        elif kind != "image" and kind != "document":
            return False
        else:
            texts += 1
    return kind != "" and not waiting


def _result_clean(block: Any, waiting: list[str]) -> bool:
    call = block["tool_use_id"]
    if call not in waiting:
        return False
    waiting.remove(call)
    content = block.get("content")
    return content is None or type(content) is str or _inner_clean(content)


def _inner_clean(content: Any) -> bool:
    for block in content:
        if block["type"] == "text":
            text = block["text"]
            if not text or text.isspace():
                return False
    return type(content) is list


def glance_gemini(body: Body, context: Context) -> bool:
    """Whether a generateContent body is plainly clean."""
    contents = as_list(body.get("contents"))
    if context.strict or not contents:
        return False
    try:
        return _contents_clean(contents, context)
    except OTHER_SHAPE:
        return False


def _contents_clean(contents: list[Any], context: Context) -> bool:
    waiting: list[str] = []
    role = contents[0]["role"]
    if role != "user":
        return False
    for content in contents:
        role = content["role"]
        if role == "model":
            if waiting or not _model_clean(content["parts"], waiting):
                return False
        elif role != "user" or not _answers_clean(content["parts"], waiting):
            return False
    return role == "user" and _loop_signed(contents, context)


def _loop_signed(contents: list[Any], context: Context) -> bool:
    """Whether the first calls in an open tool loop are signed; before Gemini 3 they need not be."""
    if not context.model or "gemini-2" in context.model:
        return True
    for content in reversed(contents):
        parts = content["parts"]
        if content["role"] == "user":
            if "functionResponse" not in parts[0]:
                return True
        elif not _first_call_signed(parts):
            return False
    return True


def _first_call_signed(parts: list[Any]) -> bool:
    for part in parts:
        if "functionCall" in part:
            return "thoughtSignature" in part
    return True


def _model_clean(parts: Iterable[Any], waiting: list[str]) -> bool:
    kind = ""
    for part in parts:
        if len(part) > 1:
            if part.get("thought") is True and len(part) == 2 and part["text"]:
                continue  # thinking nobody signed says nothing by itself, and is no fault
            if len(part) > 2 or not _SIGNATURE(part["thoughtSignature"]):
                return False
        if "text" in part:
            kind = part["text"]
            if not kind or kind.isspace():
                return False
        else:
            call = part["functionCall"]
            kind = call.get("id") or call["name"]
            waiting.append(kind)
    return kind != ""


def _answers_clean(parts: Iterable[Any], waiting: list[str]) -> bool:
    kind, at = "", 0
    for part in parts:
        (kind,) = part
        if kind == "functionResponse":
            answer = part[kind]
            if at < 0 or waiting[at] != (answer.get("id") or answer["name"]):
                return False
            at += 1
        elif kind == "text":
            text = part[kind]
            if at != len(waiting) or not text or text[:LEAD] in LEADS:
                return False
    if at != len(waiting):
        return False
    waiting.clear()
    return kind != ""
