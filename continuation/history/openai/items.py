"""The items of a Responses `input`: which are calls, outputs, reasoning, and how each is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from continuation.history.tree import (
    Fault,
    Kind,
    Part,
    Role,
    as_list,
    as_map,
    blank,
    is_map,
    text_of,
    word,
)
from continuation.history.wordings import looks_synthetic

__all__ = [
    "CALLS",
    "OUTPUTS",
    "answer",
    "answerable",
    "from_chat",
    "joined",
    "kind_of",
    "lives_on_server",
    "read",
    "retyped",
]

CALLS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "computer_call": "computer_call_output",
    "mcp_tool_call": "mcp_tool_call_output",
    "tool_call": "function_call_output",
}
"""Kinds of calls that the client answers, and the kind of the answer."""

OUTPUTS: Final = frozenset(CALLS.values())
_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def kind_of(native: object) -> str:
    """The item's type; a message may leave it out."""
    given = as_map(native)
    kind = given.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in given else ""


def lives_on_server(native: Mapping[str, Any]) -> bool:
    """Whether the item is only a name for something that the server would have to keep."""
    kind = kind_of(native)
    return kind == "item_reference" or (kind == "reasoning" and not native.get("encrypted_content"))


# -- reading -------------------------------------------------------------------------------------


def read(native: Any, index: int, aliases: dict[str, str]) -> tuple[Role, Part]:
    """Who says an item, and the item as a part.

    A part of kind OTHER from the user is one that must be reshaped; its `name` is the fault.
    `aliases` learns the ids of shell calls, whose outputs name the item, not the call.
    """
    given, kind = as_map(native), kind_of(native)
    if not kind:
        return "user", Part(Kind.OTHER, native, index, name="message_invalid")
    if kind == "message":
        return _message(given, index)
    if kind in OUTPUTS:
        return _output(given, kind, index, aliases)
    if kind == "reasoning":
        name = word(given.get("id"))
        return "assistant", Part(Kind.THINKING, native, index, id=name, signed=True)
    if kind in CALLS and given.get("execution") != "server":
        return "assistant", _call(given, kind, index, aliases)
    return "assistant", Part(Kind.OTHER, native, index, id=word(given.get("id")))


def _message(given: Mapping[str, Any], index: int) -> tuple[Role, Part]:
    role, content = word(given.get("role")), given.get("content")
    if role not in _ROLES or "tool_calls" in given:
        return "user", Part(Kind.OTHER, given, index, name="role_invalid")
    text = text_of(content)
    part = Part(Kind.TEXT, given, index, id=word(given.get("id")), text=text)
    part.blank = blank(text) and not _shows(content)
    if (part.blank and role == "assistant") or content is None or content == []:
        part.faults = (Fault("message_empty"),)
    elif wrong := _wrong_type(role, content):
        code = "content_type_invalid" if role == "assistant" else "input_type_invalid"
        part.faults = (Fault(code, wrong),)
    return _ROLES[role], part


def _shows(content: object) -> bool:
    """Whether content has something beside text."""
    kinds = {word(as_map(block).get("type")) for block in as_list(content)}
    return bool(kinds - {"text", "input_text", "output_text"})


def _wrong_type(role: str, content: object) -> str:
    refused = ("input_text", "text") if role == "assistant" else ("output_text", "text", "refusal")
    kinds = (word(as_map(block).get("type")) for block in as_list(content))
    return next((kind for kind in kinds if kind in refused), "")


def _call(given: Mapping[str, Any], kind: str, index: int, aliases: dict[str, str]) -> Part:
    call = given.get("call_id") or given.get("id")
    part = Part(Kind.CALL, given, index, id=word(call))
    part.name = word(given.get("name")) or kind
    if isinstance(given.get("id"), str):
        aliases[given["id"]] = part.id
    if kind == "function_call" and not is_object(given.get("arguments")):
        part.cut = bool(given.get("arguments"))
        stopped = given.get("status") == "incomplete"
        part.faults = (Fault("call_incomplete" if stopped else "tool_input_invalid"),)
    return part


def is_object(arguments: object) -> bool:
    """Whether a call's arguments are the JSON text of an object."""
    if not isinstance(arguments, str):
        return False
    try:
        return is_map(json.loads(arguments))
    except ValueError:
        return False


def _output(
    given: Mapping[str, Any], kind: str, index: int, aliases: dict[str, str]
) -> tuple[Role, Part]:
    if kind == "tool_search_output" and given.get("execution") == "server":
        return "assistant", Part(Kind.OTHER, given, index)
    call = given.get("call_id") or aliases.get(str(given.get("id")), "")
    output = given.get("output")
    part = Part(Kind.RESULT, given, index, id=word(call))
    part.stand_in = looks_synthetic(output if isinstance(output, str) else text_of(output))
    return "tool", part


# -- making --------------------------------------------------------------------------------------


def answerable(native: Mapping[str, Any]) -> bool:
    """Whether an answer can be put in words; a computer call wants a picture of the screen."""
    return kind_of(native) != "computer_call"


def answer(native: Mapping[str, Any], call: str, text: str) -> dict[str, Any]:
    """An output item for a call, of the kind the call asks for."""
    kind = kind_of(native)
    made: dict[str, Any] = {"type": CALLS[kind], "call_id": call}
    if kind == "tool_search_call":
        return {**made, "execution": "client", "status": "completed", "tools": []}
    if kind == "shell_call":
        failed = {"type": "exit", "exit_code": 1}
        return {**made, "output": [{"stdout": "", "stderr": text, "outcome": failed}]}
    if kind == "apply_patch_call":
        return {**made, "status": "failed", "output": text}
    if kind == "local_shell_call":  # its own output type has no call_id; codex answers it this way
        return {**made, "type": "function_call_output", "output": text}
    return {**made, "output": text}


def retyped(native: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content types are those of its role."""
    own = "output_text" if native.get("role") == "assistant" else "input_text"
    content = [_retyped_block(as_map(block), own) for block in as_list(native.get("content"))]
    return {**native, "content": content}


def _retyped_block(block: Mapping[str, Any], own: str) -> Mapping[str, Any]:
    if block.get("type") == "refusal" and own == "input_text":
        return {"type": own, "text": block.get("refusal", "")}
    if block.get("type") in ("text", "input_text", "output_text") and block.get("type") != own:
        return {"type": own, "text": block.get("text", "")}
    return block


def joined(
    first: Mapping[str, Any], second: Mapping[str, Any], weld: Callable[[str, str], str]
) -> dict[str, Any]:
    """Two message items as one, with the texts at the seam made one text."""
    head, tail = first.get("content"), second.get("content")
    if isinstance(head, str) and isinstance(tail, str):
        return {**first, "content": weld(head, tail)}
    blocks, more = _blocks(head), _blocks(tail)
    if blocks and more and blocks[-1].get("type") == more[0].get("type") == "output_text":
        text = weld(str(blocks[-1].get("text", "")), str(more[0].get("text", "")))
        blocks[-1:], more[:1] = [{**blocks[-1], "text": text}], []
    return {**first, "content": [*blocks, *more]}


def _blocks(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    return [as_map(block) for block in as_list(content)]


def from_chat(native: object) -> list[dict[str, Any]]:
    """A message that is not in this dialect's form as items that are; none if nothing remains."""
    if isinstance(native, str):
        return [{"role": "user", "content": native}]
    given = as_map(native)
    if not given or kind_of(given) != "message":
        return []
    if given.get("role") == "tool":
        output = text_of(given.get("content"))
        call = given.get("tool_call_id", "")
        return [{"type": "function_call_output", "call_id": call, "output": output}]
    role = "assistant" if given.get("role") in ("assistant", "model") else "user"
    said = given.get("content")
    made: list[dict[str, Any]] = [{"role": role, "content": said}] if said else []
    return made + [_from_chat_call(as_map(call)) for call in as_list(given.get("tool_calls"))]


def _from_chat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = as_map(call.get("function"))
    return {
        "type": "function_call",
        "call_id": call.get("id", ""),
        "name": function.get("name", ""),
        "arguments": function.get("arguments", "{}"),
    }
