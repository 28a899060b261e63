"""The quick look at a Messages body; what it is for, `Grammar.fast_validate` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from continuation.history.anthropic.blocks import FOREIGN_SIGNATURES, ID, SIGNATURE
from continuation.history.tree import HistoryContext
from continuation.history.types import Body
from continuation.history.wordings import LEAD, LEADS, looks_like_recovery
from continuation.wire.json_values import as_map

_REFUSED_MODES = {"manual": ("adaptive",), "always": ("disabled", "enabled")}


def plainly_valid(messages: list[Any], body: Body, context: HistoryContext) -> bool:
    """Whether common shapes, all valid, are all there is."""
    mode = as_map(body.get("thinking")).get("type")
    if context.thinking == "none" or mode in _REFUSED_MODES.get(context.thinking or "", ()):
        return False
    seen: set[str] = set()
    if not _system(body.get("system")) or not _messages(messages, seen):
        return False
    if messages[-1]["role"] == "assistant":
        # It may have the last word, but not to every model, and not in every form.
        last = messages[-1]["content"]
        if context.prefill is False or body.get("thinking") is not None:
            return False
        if type(last) is not str or last != last.rstrip():
            return False
    if mode == "enabled" and not _loop_thinks(messages):
        return False
    return not seen or bool(body.get("tools")) or "max_tokens" not in body


def _system(system: Any) -> bool:
    if system is None or type(system) is str:
        return not (system and system.isspace())
    return all(block["type"] == "text" and block["text"].strip() for block in system)


def _messages(messages: list[Any], seen: set[str]) -> bool:
    waiting: list[str] = []
    before = "assistant"
    for message in messages:
        role, content = message["role"], message["content"]
        if role == before or (role != "user" and role != "assistant") or "tool_calls" in message:
            return False
        if type(content) is str:
            if waiting or not content or content.isspace():
                return False
            if content[:LEAD] in LEADS and role == "user" and looks_like_recovery(content):
                return False
        elif role == "assistant":
            if not _assistant(content, waiting, seen):
                return False
        elif not _user(content, waiting):
            return False
        before = role
    return not waiting


def _assistant(content: Iterable[Any], waiting: list[str], seen: set[str]) -> bool:
    kind = ""
    for block in content:
        before, kind = kind, block["type"]
        if kind == "text":
            text = block["text"]
            if waiting or not text or text.isspace():
                return False
        elif kind == "tool_use":
            call = block["id"]
            if call in seen or not ID.match(call) or type(block["input"]) is not dict:
                return False
            seen.add(call)
            waiting.append(call)
        else:
            if kind != "thinking" or before:
                return False
            signature = block["signature"]
            if not SIGNATURE.match(signature) or signature.startswith(FOREIGN_SIGNATURES):
                return False
    return kind == "tool_use" or kind == "text"


def _user(content: Iterable[Any], waiting: list[str]) -> bool:
    kind = ""
    says = False
    for block in content:
        kind = block["type"]
        if kind == "tool_result":
            if says or not _result(block, waiting):
                return False
        elif kind == "text":
            text = block["text"]
            says = True
            if waiting or not text or text.isspace() or text[:LEAD] in LEADS:
                return False
        elif kind == "image" or kind == "document":
            says = True
        else:
            return False
    return kind != "" and not waiting


def _result(block: Any, waiting: list[str]) -> bool:
    call, content = block["tool_use_id"], block.get("content")
    if call not in waiting:
        return False
    waiting.remove(call)
    if content is None or type(content) is str:
        return True
    for inner in content:
        if inner["type"] == "text":
            text = inner["text"]
            if not text or text.isspace():
                return False
    return type(content) is list


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
