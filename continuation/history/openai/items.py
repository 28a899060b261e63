"""The items of a Responses `input`: which are calls, outputs, reasoning, and how each is made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from continuation.history.tree import Fault, Kind, Message, Part, Role, blank, text_of
from continuation.history.wordings import looks_synthetic
from continuation.wire.json_values import as_list, as_map, as_text, is_map
from continuation.wire.responses_items import CALLS, OUTPUTS

PAIRED_CALLS: Final = {kind: call.output for kind, call in CALLS.items() if call.paired}
"""Kinds of calls that a history may not leave open, and the kind of the answer."""
PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
"""How the id of an item begins, where the server minds."""
ITEM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
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


def is_object_text(arguments: object) -> bool:
    """Whether a call's arguments are the JSON text of an object."""
    if not isinstance(arguments, str):
        return False
    try:
        return is_map(json.loads(arguments))
    except ValueError:
        return False


# -- reading -------------------------------------------------------------------------------------


def read_item(native: Any, index: int, aliases: dict[str, str]) -> Message:
    """An item as a message of one part, or of none, with a fault, if it must be converted.

    `aliases` learns the ids of shell calls, whose outputs name the item, not the call.
    """
    given, kind = as_map(native), kind_of(native)
    role = as_text(given.get("role"))
    if not kind:
        return Message("user", [], native, index, faults=(Fault("message_invalid"),))
    if kind == "message":
        if role not in _ROLES or "tool_calls" in given:
            return Message("user", [], native, index, faults=(Fault("role_invalid"),))
        return Message(_ROLES[role], [_read_message(given, role, index)], native, index)
    on_server = given.get("execution") == "server"
    part = Part(Kind.OTHER, native, index, id=as_text(given.get("id")))
    if kind in OUTPUTS and not (on_server and kind == "tool_search_output"):
        output = given.get("output")
        part.kind, part.synthetic = Kind.RESULT, looks_synthetic(text_of(output))
        part.id = as_text(given.get("call_id") or aliases.get(str(given.get("id")), ""))
        return Message("tool", [part], native, index)
    if kind == "reasoning":
        part.kind, part.signed = Kind.THINKING, True
    elif kind in PAIRED_CALLS and not on_server:
        _read_call(part, given, kind, aliases)
    return Message("assistant", [part], native, index)


def _read_message(given: Mapping[str, Any], role: str, index: int) -> Part:
    content, text = given.get("content"), text_of(given.get("content"))
    kinds = [as_text(as_map(block).get("type")) for block in as_list(content)]
    part = Part(Kind.TEXT, given, index, id=as_text(given.get("id")), text=text)
    part.blank = blank(text) and {"text", "input_text", "output_text"}.issuperset(kinds)
    refused = ("input_text", "text") if role == "assistant" else ("output_text", "text", "refusal")
    wrong = next((kind for kind in kinds if kind in refused), "")
    if (part.blank and role == "assistant") or content is None or content == []:
        part.faults = (Fault("message_empty"),)
    elif wrong:
        code = "content_type_invalid" if role == "assistant" else "input_type_invalid"
        part.faults = (Fault(code, wrong),)
    return part


def _read_call(part: Part, given: Mapping[str, Any], kind: str, aliases: dict[str, str]) -> None:
    part.kind, part.id = Kind.CALL, as_text(given.get("call_id") or given.get("id"))
    part.name = as_text(given.get("name")) or kind
    if isinstance(given.get("id"), str):
        aliases[given["id"]] = part.id
    if kind == "function_call" and not is_object_text(given.get("arguments")):
        part.cut = bool(given.get("arguments"))
        stopped = given.get("status") == "incomplete"
        part.faults = (Fault("call_incomplete" if stopped else "tool_input_invalid"),)


# -- making --------------------------------------------------------------------------------------


def answer(native: Mapping[str, Any], call: str, text: str) -> dict[str, Any]:
    """An output item for a call, of the kind the call asks for."""
    kind = kind_of(native)
    made: dict[str, Any] = {"type": PAIRED_CALLS[kind], "call_id": call}
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
    content: list[Mapping[str, Any]] = []
    for block in map(as_map, as_list(native.get("content"))):
        kind = block.get("type")
        if kind == "refusal" and own == "input_text":
            content.append({"type": own, "text": block.get("refusal", "")})
        elif kind in ("text", "input_text", "output_text") and kind != own:
            content.append({"type": own, "text": block.get("text", "")})
        else:
            content.append(block)
    return {**native, "content": content}


def joined(
    first: Mapping[str, Any], second: Mapping[str, Any], join: Callable[[str, str], str]
) -> dict[str, Any]:
    """Two message items as one, with the texts at the seam made one text."""
    head, tail = first.get("content"), second.get("content")
    if isinstance(head, str) and isinstance(tail, str):
        return {**first, "content": join(head, tail)}
    blocks, more = (
        [{"type": "output_text", "text": content}] if isinstance(content, str) else as_list(content)
        for content in (head, tail)
    )
    blocks, more = list(map(as_map, blocks)), list(map(as_map, more))
    if blocks and more and blocks[-1].get("type") == more[0].get("type") == "output_text":
        text = join(str(blocks[-1].get("text", "")), str(more[0].get("text", "")))
        blocks[-1:], more[:1] = [{**blocks[-1], "text": text}], []
    return {**first, "content": [*blocks, *more]}


def from_chat(native: object) -> list[dict[str, Any]]:
    """A message that is not in this dialect's form as items that are; none if nothing remains."""
    if isinstance(native, str):
        return [{"role": "user", "content": native}]
    given = as_map(native)
    if not given or kind_of(given) != "message":
        return []
    content = given.get("content")
    if given.get("role") == "tool":
        call = given.get("tool_call_id", "")
        return [{"type": "function_call_output", "call_id": call, "output": text_of(content)}]
    role = "assistant" if given.get("role") in ("assistant", "model") else "user"
    made: list[dict[str, Any]] = [{"role": role, "content": content}] if content else []
    for call in map(as_map, as_list(given.get("tool_calls"))):
        function = as_map(call.get("function"))
        named = {"call_id": call.get("id", ""), "name": function.get("name", "")}
        arguments = function.get("arguments", "{}")
        made.append({"type": "function_call", **named, "arguments": arguments})
    return made
