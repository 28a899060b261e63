"""The messages and blocks of an Anthropic history: read into parts, and repaired one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from continuation.history.passes import side_fault
from continuation.history.tree import Fault, Kind, Message, Part, Role, blank, text_of
from continuation.history.wordings import looks_synthetic
from continuation.wire.json_values import as_list, as_map, as_text, is_map

ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
ID: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/_=-]+\Z")
#: Google's stand-in for a lost signature, and how OpenAI's encrypted reasoning begins.
FOREIGN_SIGNATURES: Final = (
    "skip_thought_signature_validator",
    "context_engineering_is_the_way",
    "gAAAA",
)
_FOREIGN_BLOCKS: Final = frozenset(
    {"input_text", "output_text", "refusal", "image_url", "reasoning"}
)
"""Blocks of other dialects, for certain; what we merely do not know may be new, and stays."""


# -- reading -------------------------------------------------------------------------------------


def read_message(index: int, native: Any) -> Message:
    """Take one message apart and note what is wrong with it and with each block alone."""
    given = as_map(native)
    role, content = as_text(given.get("role")), given.get("content")
    message = Message(ROLES.get(role, "user"), [], native, index)
    if not is_map(native):
        message.faults = (Fault("message_invalid"),)
    elif role not in ROLES or "tool_calls" in given:
        message.faults = (Fault("role_invalid"),)
    if isinstance(content, str):
        whole = Part(Kind.TEXT, content, index, ".content", text=content)
        _note_blank(whole, "message_empty")
        message.parts = [whole]
    else:
        blocks = enumerate(as_list(content))
        message.parts = [_read_block(block, index, f".content[{n}]") for n, block in blocks]
    for part in message.parts if message.role != "system" else ():
        part.faults += side_fault(message.role, part)
        if message.role == "user" and part.kind is Kind.THINKING:
            part.faults += (Fault("thinking_in_user"),)
    return message


def _note_blank(part: Part, empty: str) -> None:
    part.blank = blank(part.text)
    if part.blank:
        part.faults = (Fault("text_blank" if part.text else empty),)


def _read_block(block: Any, index: int, place: str) -> Part:
    given = as_map(block)
    kind, text = given.get("type"), given.get("text")
    part = Part(Kind.OTHER, block, index, place)
    match kind:
        case "text" if isinstance(text, str):
            part.kind, part.text = Kind.TEXT, text
            _note_blank(part, "text_empty")
        case "thinking" | "redacted_thinking":
            fault = _thinking_fault(given)
            part.kind, part.name, part.signed = Kind.THINKING, str(kind), fault is None
            part.faults = (Fault(fault),) if fault else ()
        case "tool_use":
            _read_call(part, given)
        case "tool_result":
            content = given.get("content")
            part.kind, part.id = Kind.RESULT, as_text(given.get("tool_use_id"))
            part.synthetic = looks_synthetic(text_of(content))
            if any(blank_block(inner) for inner in as_list(content)):
                part.faults = (Fault("result_text_empty"),)
        case "server_tool_use" | "mcp_tool_use":
            part.kind, part.id = Kind.SERVER_CALL, as_text(given.get("id"))
            part.name = as_text(given.get("name"))
        case str() if kind.endswith("_tool_result"):
            part.kind, part.id = Kind.SERVER_RESULT, as_text(given.get("tool_use_id"))
        case str() if kind != "text" and kind not in _FOREIGN_BLOCKS:
            pass
        case _:
            part.faults = (Fault("block_invalid"),)
    return part


def _read_call(part: Part, given: Mapping[str, Any]) -> None:
    value = given.get("input")
    part.kind, part.id = Kind.CALL, as_text(given.get("id"))
    part.name = as_text(given.get("name"))
    if not is_map(value):
        part.cut = isinstance(value, str) and _parsed_object(value) is None
        part.faults = (Fault("tool_input_invalid"),)


def _thinking_fault(block: Mapping[str, Any]) -> str | None:
    """Why no provider will take this thinking back: it has no plausible signature of its own."""
    if block["type"] == "redacted_thinking":  # opaque, and signed by being so
        data = block.get("data")
        return None if isinstance(data, str) and data else "thinking_redacted_invalid"
    signature, text = block.get("signature"), block.get("thinking")
    if not signature or not isinstance(signature, str):
        says = isinstance(text, str) and not blank(text)
        return "thinking_unsigned" if says else "thinking_blank"
    plausible = SIGNATURE.match(signature) and not signature.startswith(FOREIGN_SIGNATURES)
    return None if plausible else "thinking_foreign"


def blank_block(block: object) -> bool:
    """Whether a block is a text that says nothing."""
    given = as_map(block)
    text = given.get("text")
    return given.get("type") == "text" and isinstance(text, str) and blank(text)


def _parsed_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if is_map(value) else None


# -- repairing -----------------------------------------------------------------------------------


def repaired_part(part: Part, fault: Fault) -> list[Part]:
    """What a part with this fault becomes; nothing drops it."""
    native = part.native
    match fault.code:
        case "tool_input_invalid":
            value = native.get("input")
            parsed = _parsed_object(value) if isinstance(value, str) else None
            return [replace(part, native={**native, "input": parsed or {}}, faults=())]
        case "result_text_empty":
            kept = [block for block in native["content"] if not blank_block(block)]
            native = {**native, "content": kept}
            if not kept:
                del native["content"]
            return [replace(part, native=native, faults=())]
        case "block_invalid":
            text = native if isinstance(native, str) else as_map(native).get("text")
            if not isinstance(text, str):
                text = as_map(native).get("refusal")
            if not isinstance(text, str) or blank(text):
                return []
            block = {"type": "text", "text": text}
            return [Part(Kind.TEXT, block, part.index, part.place, text=text)]
        case "tool_use_in_user" | "tool_result_in_assistant":
            # It is sound in itself; `split_by_side` sees the whole message.
            return [replace(part, faults=())]
        case _:
            return []


# -- messages of another dialect, as a change of provider leaves them ----------------------------

_CHAT_ONLY = frozenset({"tool_calls", "reasoning_content", "refusal", "annotations", "audio"})


def from_chat(native: object) -> list[dict[str, Any]]:
    """A message that is not in Anthropic's form as one that is; none if nothing of it can be kept.

    Understood are plain strings, Chat's `tool` messages and `tool_calls`, and strange roles.
    """
    if isinstance(native, str):
        return [{"role": "user", "content": native}]
    given = as_map(native)
    if not given:
        return []
    content = given.get("content")
    if given.get("role") in ("tool", "function"):
        call = given.get("tool_call_id", "")
        result = {"type": "tool_result", "tool_use_id": call, "content": content or ""}
        return [{"role": "user", "content": [result]}]
    blocks = as_list(content)
    if isinstance(content, str) and content:
        blocks = [{"type": "text", "text": content}]
    calls = [_call_from_chat(as_map(call)) for call in as_list(given.get("tool_calls"))]
    role = "assistant" if given.get("role") in ("assistant", "model") else "user"
    rest = {key: value for key, value in given.items() if key not in _CHAT_ONLY}
    return [{**rest, "role": role, "content": [*blocks, *calls]}]


def _call_from_chat(call: Mapping[str, Any]) -> dict[str, Any]:
    function = as_map(call.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError):  # the reader will see what is wrong with it
            arguments = json.loads(arguments)
    named = {"id": call.get("id", ""), "name": function.get("name", "")}
    return {"type": "tool_use", **named, "input": arguments}
