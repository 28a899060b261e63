"""The messages and blocks of an Anthropic history: read into parts, and mended one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from continuation.history.anthropic import thinking
from continuation.history.tree import (
    Fault,
    Kind,
    Message,
    Part,
    Role,
    as_list,
    as_map,
    blank,
    is_list,
    is_map,
    text_of,
    word,
)
from continuation.history.wordings import looks_synthetic

__all__ = ["MENDERS", "ROLES", "blank_block", "read_message"]

ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}


def read_message(index: int, native: Any) -> Message:
    """Take one message apart and note what is wrong with it and with each block alone."""
    given = as_map(native)
    role, content = word(given.get("role")), given.get("content")
    faults: list[Fault] = []
    if not is_map(native):
        faults.append(Fault("message_invalid"))
    elif role not in ROLES or "tool_calls" in given:
        faults.append(Fault("role_invalid"))
    message = Message(ROLES.get(role, "user"), [], native, index, faults=tuple(faults))
    if isinstance(content, str):
        message.parts = [_text(content, content, index, ".content", whole=True)]
    else:
        message.parts = [_part(index, n, block) for n, block in enumerate(as_list(content))]
    if message.role == "system":
        return message
    for part in message.parts:
        part.faults += _side_fault(message.role, part)
    return message


def _side_fault(role: Role, part: Part) -> tuple[Fault, ...]:
    if role == "user" and part.kind is Kind.CALL:
        return (Fault("tool_use_in_user"),)
    if role == "user" and part.kind is Kind.THINKING:
        return (Fault("thinking_in_user"),)
    if role == "assistant" and part.kind is Kind.RESULT:
        return (Fault("tool_result_in_assistant"),)
    return ()


def _text(text: str, native: Any, index: int, place: str, *, whole: bool = False) -> Part:
    code = ("message_empty" if whole else "text_empty") if not text else "text_blank"
    faults = (Fault(code),) if blank(text) else ()
    return Part(Kind.TEXT, native, index, place, text=text, blank=bool(faults), faults=faults)


def _part(index: int, n: int, block: Any) -> Part:
    place = f".content[{n}]"
    if not is_map(block):
        return Part(Kind.OTHER, block, index, place, faults=(Fault("block_invalid"),))
    given = as_map(block)
    kind = given.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader(given, index, place)
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        return Part(Kind.ASIDE_RESULT, block, index, place, id=word(given.get("tool_use_id")))
    faults = () if isinstance(kind, str) and kind not in _FOREIGN else (Fault("block_invalid"),)
    return Part(Kind.OTHER, block, index, place, faults=faults)


_FOREIGN: Final = frozenset({"input_text", "output_text", "refusal", "image_url", "reasoning"})
"""Blocks of other dialects, for certain; what we merely do not know may be new, and stays."""


def _read_text(block: Mapping[str, Any], index: int, place: str) -> Part:
    text = block.get("text")
    if not isinstance(text, str):
        return Part(Kind.OTHER, block, index, place, faults=(Fault("block_invalid"),))
    return _text(text, block, index, place)


def _read_call(block: Mapping[str, Any], index: int, place: str) -> Part:
    value, call = block.get("input"), word(block.get("id"))
    bad = not is_map(value)
    return Part(
        Kind.CALL,
        block,
        index,
        place,
        id=call,
        name=word(block.get("name")),
        cut=bad and isinstance(value, str) and _parsed(value) is None,
        faults=(Fault("tool_input_invalid"),) if bad else (),
    )


def _read_result(block: Mapping[str, Any], index: int, place: str) -> Part:
    content = block.get("content")
    bad = is_list(content) and any(blank_block(inner) for inner in as_list(content))
    return Part(
        Kind.RESULT,
        block,
        index,
        place,
        id=word(block.get("tool_use_id")),
        stand_in=looks_synthetic(text_of(content)),
        faults=(Fault("result_text_empty"),) if bad else (),
    )


def _read_aside(block: Mapping[str, Any], index: int, place: str) -> Part:
    name = word(block.get("name"))
    return Part(Kind.ASIDE, block, index, place, id=word(block.get("id")), name=name)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], int, str], Part]]] = {
    "text": _read_text,
    "thinking": thinking.read_thinking,
    "redacted_thinking": thinking.read_redacted,
    "tool_use": _read_call,
    "tool_result": _read_result,
    "server_tool_use": _read_aside,
    "mcp_tool_use": _read_aside,
}


def blank_block(block: object) -> bool:
    """Whether a block is a text that says nothing."""
    given = as_map(block)
    text = given.get("text")
    return given.get("type") == "text" and isinstance(text, str) and blank(text)


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if is_map(value) else None


# -- mending single parts ------------------------------------------------------------------------


def _fix_input(part: Part) -> list[Part]:
    value = part.native.get("input")
    parsed = _parsed(value) if isinstance(value, str) else None
    return [replace(part, native={**part.native, "input": parsed or {}}, faults=())]


def _fix_result(part: Part) -> list[Part]:
    kept = [block for block in part.native["content"] if not blank_block(block)]
    native = {**part.native, "content": kept}
    if not kept:
        del native["content"]
    return [replace(part, native=native, faults=())]


def _fix_block(part: Part) -> list[Part]:
    native = part.native
    text = native if isinstance(native, str) else as_map(native).get("text")
    if not isinstance(text, str):
        text = as_map(native).get("refusal")
    if not isinstance(text, str) or blank(text):
        return []
    return [Part(Kind.TEXT, {"type": "text", "text": text}, part.index, part.place, text=text)]


def _as_is(part: Part) -> list[Part]:
    """A part on the wrong side is sound in itself; `_by_side` sees the whole message."""
    return [replace(part, faults=())]


MENDERS: Final[Mapping[str, Callable[[Part], list[Part]]]] = {  # what a faulty part becomes
    "tool_input_invalid": _fix_input,
    "result_text_empty": _fix_result,
    "block_invalid": _fix_block,
    "tool_use_in_user": _as_is,
    "tool_result_in_assistant": _as_is,
}
