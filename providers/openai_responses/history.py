"""OpenAI Responses: the `input` that `/v1/responses` accepts.

The list is flat: what other dialects have as parts of a message are adjacent items here. A run of
the assistant's items is read as one message, and written back item by item.

Sources: the error texts of OpenAI that public issues quote, and codex for the kinds of calls and
outputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from jiter import from_json

from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair, JoinTexts
from continuation.history.images import image_url
from continuation.history.rules import REPAIRS, texts
from continuation.history.tree import (
    THOUGHT_KEYS,
    Fault,
    Kind,
    Message,
    Part,
    Role,
    blank,
    is_thought,
    plain_text,
    text_of,
)
from continuation.history.types import Body, HistoryFormat, Violation
from continuation.history.wordings import LEAD, LEADS, looks_synthetic
from continuation.wire.json_values import as_list, as_map, as_text, is_map, parsed
from continuation.wire.responses_items import OUTPUTS, PAIRED_CALLS, kind_of

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
"""The types of items for which the server checks the prefix of the id -> the prefix."""
_ITEM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_LONGEST_ID: Final = 64
_ITEM_TEXTS: Final = {
    "assistant": frozenset({"output_text"}),
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
}


_KNOWN_BY: Final = frozenset({"id", "encrypted_content", "summary", "content"})
"""Reasoning of this format has at least one of these fields."""
_OUTPUTS: Final = (str, list)
_ALIKE: Final = frozenset({"function_call_output", "custom_tool_call_output"})
"""The types of outputs that differ in nothing except the type."""


class ResponsesGrammar(Grammar):
    """The grammar of `input`."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.OPENAI_RESPONSES
    not_text: ClassVar[frozenset[str]] = frozenset(
        {"image_url", "file_data", "file_url", "encrypted_content"}
    )
    field: ClassVar[str] = "input"
    rules: ClassVar[Mapping[str, str]] = texts(dialect)
    repairs: ClassVar[Mapping[str, str]] = {**REPAIRS, "reasoning_missing": "strip_id"}
    adjacent: ClassVar[bool] = False
    one_message: ClassVar[bool] = False
    id_keys: ClassVar[tuple[str, str] | None] = ("call_id", "call_id")

    def fast_validate(self, body: Body, context: HistoryContext) -> bool:
        return type(body.get("input")) is str or super().fast_validate(body, context)

    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        stored = body.get("store") is not False
        waiting: set[str] = set()
        seen: set[str] = set()
        before = ""
        for item in messages:
            kind = item.get("type") or "message"
            if (
                before == "reasoning"
                and kind != "function_call"
                and item.get("role") != "assistant"
            ):
                return False
            if "id" in item and not _id(item["id"], kind, seen):
                return False
            if kind == "message":
                if not _message(item):
                    return False
            elif kind == "function_call":
                call, arguments = item["call_id"], item["arguments"].encode()
                if (
                    call in seen
                    or not call
                    or not item["name"]
                    or type(from_json(arguments)) is not dict
                ):
                    return False
                waiting.add(call)
                seen.add(call)
            elif kind == "function_call_output":
                waiting.remove(item["call_id"] if type(item["output"]) in _OUTPUTS else "")
            elif kind != "reasoning" or not _reasoning(item, stored=stored):
                return False
            before = kind
        return not waiting and before != "reasoning"

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        messages: list[Message] = []
        aliases: dict[str, str] = {}
        for n, native in enumerate(as_list(body.get("input"))):
            message = _read_item(native, n, aliases)
            if message.role == "assistant" and messages and messages[-1].role == "assistant":
                messages[-1].parts += message.parts
            else:
                messages.append(message)
        _note_ids(body, messages)
        _note_outputs(messages)
        return messages

    def read_message(self, index: int, native: Any) -> Message:
        return _read_item(native, index, {})

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        if message.faults:
            return [(message.native, message.index)]
        return [(part.native, part.index) for part in message.parts]

    def text_message(self, role: str, text: str) -> Message:
        kind = "output_text" if role == "assistant" else "input_text"
        native = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return Message(_ROLES[role], [Part(Kind.TEXT, native, text=text)], native, touched=True)

    def synthetic_result(self, call: Part, text: str) -> Any:
        """Return a new output item of the type that the call needs."""
        kind = kind_of(call.native)
        output_item: dict[str, Any] = {"type": PAIRED_CALLS[kind], "call_id": call.id}
        if kind == "tool_search_call":
            return {**output_item, "execution": "client", "status": "incomplete", "tools": []}
        if kind == "shell_call":
            failed = {"type": "exit", "exit_code": 1}
            output = [{"stdout": "", "stderr": text, "outcome": failed}]
            return {**output_item, "status": "incomplete", "output": output}
        if kind == "apply_patch_call":
            return {**output_item, "status": "failed", "output": text}
        if kind == "local_shell_call":  # its own output type has no call_id; codex sends this one
            return {**output_item, "type": "function_call_output", "output": text}
        return {**output_item, "output": text}

    def arguments(self, call: Part) -> Any:
        return call.native.get("arguments", call.native.get("input", call.native.get("action")))

    def result_text(self, result: Part) -> str:
        return as_text(as_map(result.native).get("output"))

    def check(self, history: History) -> Iterator[Violation]:
        for part in _dangling(history):
            yield history.violation("reasoning_dangling", part)
        for part in _without_reasoning(history):
            fault = Fault("reasoning_missing", id=str(part.native["id"]))
            yield history.violation(fault, part)

    def calls_on_server(self, history: History) -> bool:
        return any(history.body.get(key) for key in ("previous_response_id", "conversation"))

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        if context.strict and len(call) > _LONGEST_ID:
            return "tool_use_id_too_long"
        return None if call else "tool_use_id_invalid"

    def new_id(self, old: str, context: HistoryContext) -> str:
        if len(old) > _LONGEST_ID:
            return f"call_{hashlib.sha256(old.encode()).hexdigest()[:16]}"
        return old or "call_unnamed"

    def can_answer(self, call: Part) -> bool:
        """Whether a result can be made. It cannot for a computer call, which needs a screenshot."""
        return kind_of(call.native) != "computer_call"

    def same_call(self, first: Part, second: Part) -> bool:
        keys = ("name", "arguments", "input")
        return all(first.native.get(key) == second.native.get(key) for key in keys)

    def converted(self, native: Any) -> list[Any]:
        if isinstance(native, str):
            return [{"role": "user", "content": native}]
        fields = as_map(native)
        if not fields or kind_of(fields) != "message":
            return []
        content = fields.get("content")
        content = [content] if is_map(content) else content
        if fields.get("role") == "tool":
            call = fields.get("tool_call_id", "")
            return [{"type": "function_call_output", "call_id": call, "output": text_of(content)}]
        role = "assistant" if fields.get("role") in ("assistant", "model") else "user"
        items: list[dict[str, Any]] = [{"role": role, "content": content}] if content else []
        for each in map(as_map, as_list(fields.get("tool_calls"))):
            function = as_map(each.get("function"))
            named = {"call_id": each.get("id", ""), "name": function.get("name", "")}
            arguments = function.get("arguments", "{}")
            items.append({"type": "function_call", **named, "arguments": arguments})
        return items

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        rest = part.faults[1:]
        if fault.code == "tool_input_invalid":
            whole = plain_text(as_map(part.native.get("arguments")))
            return [replace(part, native={**part.native, "arguments": whole}, faults=rest)]
        if fault.code == "output_invalid":
            text = plain_text(part.native.get("output"))
            return [replace(part, native={**part.native, "output": text}, faults=rest)]
        if fault.code == "output_type_invalid":
            return [replace(part, native={**part.native, "type": part.name}, name="", faults=rest)]
        if fault.code == "block_invalid":
            return []
        if fault.code in ("content_type_invalid", "input_type_invalid"):
            native = _retyped(part.native)
            return [replace(part, native=native, faults=rest)] if native["content"] else []
        if fault.code in ("item_id_invalid", "item_id_reused"):
            if part.kind is Kind.THINKING and not part.native.get("encrypted_content"):
                return []  # reasoning without an id and without content cannot be sent
            return [replace(self.after_join(part), faults=rest)]
        message.lacks_reasoning = message.lacks_reasoning or part.kind is Kind.THINKING
        return []

    def prepare(self, repair: HistoryRepair) -> None:
        if repair.policy.thinking != "keep":
            codes = dict.fromkeys(repair.parts(Kind.THINKING), "encrypted_content_invalid")
            for message in repair.drop("drop_thinking", codes):
                message.lacks_reasoning = True
        for message in repair.messages:
            if message.lacks_reasoning:  # for items with ids the server would require the reasoning
                _strip_ids(repair, filter(_has_known_id, message.parts))

    def finish(self, repair: HistoryRepair) -> None:
        repair.drop("drop_thinking", dict.fromkeys(_dangling(repair), "reasoning_dangling"))
        repair.messages = [each for each in repair.messages if each.parts or each.faults]
        _strip_ids(repair, _without_reasoning(repair))

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        """Return two message items as one, in which the two texts at the seam are joined."""
        head, tail = first.native.get("content"), second.native.get("content")
        if isinstance(head, str) and isinstance(tail, str):
            text = join(head, tail)
            return replace(first, native={**first.native, "content": text}, text=text)
        head = [{"type": "output_text", "text": head}] if isinstance(head, str) else as_list(head)
        tail = [{"type": "output_text", "text": tail}] if isinstance(tail, str) else as_list(tail)
        blocks, more = list(map(as_map, head)), list(map(as_map, tail))
        if blocks and more and blocks[-1].get("type") == more[0].get("type") == "output_text":
            text = join(str(blocks[-1].get("text", "")), str(more[0].get("text", "")))
            blocks[-1:], more[:1] = [{**blocks[-1], "text": text}], []
        made = [*blocks, *more]
        return replace(first, native={**first.native, "content": made}, text=text_of(made))

    def after_join(self, part: Part) -> Part:
        """Return the part without its id, by which the server would require dropped reasoning."""
        return replace(part, native={k: v for k, v in part.native.items() if k != "id"})


# -- items ---------------------------------------------------------------------------------------


def _read_item(native: Any, index: int, aliases: dict[str, str]) -> Message:
    """Return an item as a message with one part.

    An item that must be converted becomes a message without parts and with a fault. `aliases`: this
    adds the item's id -> the call's id, because the outputs of shell calls name the item.
    """
    fields, kind = as_map(native), kind_of(native)
    if not kind:
        return Message("user", [], native, index, faults=(Fault("message_invalid"),))
    if kind == "message":
        return _read_message(fields, native, index)
    on_server = fields.get("execution") == "server"
    part = Part(Kind.OTHER, native, index, id=as_text(fields.get("id")))
    if kind in OUTPUTS and not (on_server and kind == "tool_search_output"):
        part.kind, part.synthetic = Kind.RESULT, looks_synthetic(text_of(fields.get("output")))
        part.id = as_text(fields.get("call_id") or aliases.get(str(fields.get("id")), ""))
        if kind in _ALIKE and not isinstance(fields.get("output"), _OUTPUTS):
            part.faults = (Fault("output_invalid"),)
        return Message("tool", [part], native, index)
    if is_thought(fields) and (kind != "reasoning" or _KNOWN_BY.isdisjoint(fields)):
        part.faults = (Fault("block_invalid", kind),)
    elif kind == "reasoning":
        part.kind, part.signed = Kind.THINKING, True
    elif kind in PAIRED_CALLS and not on_server:
        named = kind in ("function_call", "custom_tool_call")  # others have their kind as name
        part.kind, part.name = Kind.CALL, as_text(fields.get("name")) or ("" if named else kind)
        part.id = as_text(fields.get("call_id") or fields.get("id"))
        if isinstance(fields.get("id"), str):
            aliases[fields["id"]] = part.id
        if kind == "function_call" and not is_map(parsed(as_text(fields.get("arguments")))):
            part.cut = bool(fields.get("arguments")) and not is_map(fields.get("arguments"))
            stopped = fields.get("status") == "incomplete"
            part.faults = (Fault("call_incomplete" if stopped else "tool_input_invalid"),)
    return Message("assistant", [part], native, index)


def _read_message(fields: Mapping[str, Any], native: Any, index: int) -> Message:
    role = as_text(fields.get("role"))
    foreign = "tool_calls" in fields or not THOUGHT_KEYS.isdisjoint(fields)
    if role not in _ROLES or foreign or is_map(fields.get("content")):
        return Message("user", [], native, index, faults=(Fault("role_invalid"),))
    return Message(_ROLES[role], [_read_text(fields, role, index)], native, index)


def _read_text(fields: Mapping[str, Any], role: str, index: int) -> Part:
    content, text = fields.get("content"), text_of(fields.get("content"))
    kinds = [as_text(as_map(block).get("type")) for block in as_list(content)]
    part = Part(Kind.TEXT, fields, index, id=as_text(fields.get("id")), text=text)
    part.blank = blank(text) and {"text", "input_text", "output_text"}.issuperset(kinds)
    if role == "assistant":
        refused: tuple[str, ...] = ("input_text", "text")
    else:
        refused = ("output_text", "text", "refusal", "image", "image_url")
    thought = next(("thinking" for block in as_list(content) if is_thought(block)), "")
    wrong = thought or next((kind for kind in kinds if kind in refused), "")
    if (part.blank and role == "assistant") or content is None or content == []:
        part.faults = (Fault("message_empty"),)
    elif wrong:
        code = "content_type_invalid" if role == "assistant" else "input_type_invalid"
        part.faults = (Fault(code, wrong),)
    return part


def _retyped(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the content types that its role needs."""
    own = "output_text" if native.get("role") == "assistant" else "input_text"
    content: list[Mapping[str, Any]] = []
    for block in map(as_map, as_list(native.get("content"))):
        kind = block.get("type")
        if is_thought(block):
            continue
        if kind == "refusal" and own == "input_text":
            content.append({"type": own, "text": block.get("refusal", "")})
        elif kind in ("text", "input_text", "output_text") and kind != own:
            content.append({"type": own, "text": block.get("text", "")})
        elif kind != "input_image" and (url := image_url(block)):
            content.append({"type": "input_image", "image_url": url})
        else:
            content.append(block)
    return {**native, "content": content}


def _note_ids(body: Body, messages: list[Message]) -> None:
    """Add the faults of the items' ids."""
    first: dict[str, Any] = {}
    unstored = body.get("store") is False
    for part in (part for message in messages for part in message.parts):
        name, kind = as_map(part.native).get("id"), kind_of(part.native)
        if not isinstance(name, str):
            continue
        sealed = kind == "reasoning" and part.native.get("encrypted_content")
        if unstored and kind in ("item_reference", "reasoning") and not sealed:
            part.faults += (Fault("item_not_stored", id=name),)
        elif name in first:
            same = first[name] == part.native
            part.faults += (Fault("item_duplicate" if same else "item_id_reused", id=name),)
        else:
            prefix = _PREFIXES.get(kind)
            if prefix and not (name.startswith(prefix) and _ITEM_ID.match(name)):
                part.faults += (Fault("item_id_invalid", prefix, name),)
        first.setdefault(name, part.native)


def _note_outputs(messages: list[Message]) -> None:
    """Add a fault to each output of another type than its call needs."""
    wanted: dict[str, list[str]] = {}
    for part in (part for message in messages for part in message.parts):
        kind = kind_of(part.native)
        if part.kind is Kind.CALL:
            local = ["function_call_output"] if kind == "local_shell_call" else []
            wanted.setdefault(part.id, []).extend([*local, PAIRED_CALLS[kind]])
        elif part.kind is Kind.RESULT and kind not in wanted.get(part.id, kind):
            part.name = wanted[part.id][-1]  # a repair gives the output this type
            words = kind.removesuffix("_output").replace("_", " ")
            alike = {kind, part.name} <= _ALIKE
            part.faults += (Fault("output_type_invalid" if alike else "output_foreign", words),)


def _has_known_id(part: Part) -> bool:
    """Whether a part has an id that a server may know, but that it does not need."""
    fields = as_map(part.native)
    has_id = isinstance(fields.get("id"), str) and kind_of(fields) in _PREFIXES
    return has_id and part.kind is not Kind.THINKING


def _strip_ids(repair: HistoryRepair, parts: Iterable[Part]) -> None:
    for part in parts:
        if repair.may("strip_id", part, "reasoning_missing"):
            part.native = repair.grammar.after_join(part).native


def _dangling(history: History) -> list[Part]:
    """Return the reasoning that is not followed by another item of the assistant."""
    dangling: list[Part] = []
    for message in history.messages:
        for part in reversed(message.parts):
            if part.kind is not Kind.THINKING:
                break
            dangling.append(part)
    return dangling


def _without_reasoning(history: History) -> list[Part]:
    """Return items that have an id but no reasoning before them, if other items have reasoning.

    This is checked only with `strict`, because only a server that has stored the response can
    refuse such items, and because some answers have no reasoning.
    """
    groups = [message for message in history.messages if message.role == "assistant"]
    silent = [message for message in groups if not message.has(Kind.THINKING)]
    if not history.context.strict or len(silent) == len(groups):
        return []
    return [part for message in silent for part in message.parts if _has_known_id(part)]


# -- the fast check ------------------------------------------------------------------------------


def _id(name: str | None, kind: str, seen: set[str]) -> bool:
    if name is None:
        return True
    prefix = "" if kind == "function_call_output" else _PREFIXES[kind]
    if name in seen or not name.startswith(prefix) or not _ITEM_ID.match(name):
        return False
    seen.add(name)
    return True


def _reasoning(item: Any, *, stored: bool) -> bool:
    return not _KNOWN_BY.isdisjoint(item) and bool(stored or item["encrypted_content"])


def _message(item: Any) -> bool:
    content, kinds = item["content"], _ITEM_TEXTS[item["role"]]
    if len(item) > 2 and not THOUGHT_KEYS.isdisjoint(item):
        return False
    if type(content) is str:
        return bool(content) and not content.isspace() and content[:LEAD] not in LEADS
    text = ""
    for block in content:
        if block["type"] not in kinds or "thought" in block:
            return False
        text = block.get("text") or "image"
        if text.isspace() or text[:LEAD] in LEADS:
            return False
    return text != ""
