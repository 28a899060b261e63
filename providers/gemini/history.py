"""Gemini `generateContent`: the `contents` that AI Studio and Vertex accept.

Sources: Google's page on thought signatures, and the error texts that public issues quote. Keys are
read in camelCase, as the wire has them, and in snake_case, as the Python SDK dumps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair, JoinTexts
from continuation.history.passes import merge_neighbours, side_fault, split_by_side
from continuation.history.rules import texts
from continuation.history.tree import (
    THOUGHT_KEYS,
    Fault,
    Kind,
    Message,
    Part,
    Role,
    blank,
    is_thought,
    text_of,
)
from continuation.history.types import Body, HistoryFormat, Violation
from continuation.history.wordings import LEAD, LEADS, looks_synthetic
from continuation.wire.json_values import as_list, as_map, as_text, is_map

_ROLES: Final[Mapping[str, Role]] = {"user": "user", "model": "assistant"}
_LOST_SIGNATURE: Final = "skip_thought_signature_validator"
"""The signature that Google documents for a call that has lost its signature."""
_SIGNS_CALLS: Final = re.compile(r"gemini-(?:[3-9]|\d\d)")
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z")
_CALL_KEYS: Final = ("functionCall", "function_call")
_RESPONSE_KEYS: Final = ("functionResponse", "function_response")
_MEDIA: Final = frozenset({"inlineData", "fileData", "inline_data", "file_data"})
_SIGNATURE_KEYS: Final = ("thoughtSignature", "thought_signature")


class GeminiGrammar(Grammar):
    """The grammar of `contents`."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.GEMINI
    not_text: ClassVar[frozenset[str]] = _MEDIA
    own_models: ClassVar[str] = "gemini"
    field: ClassVar[str] = "contents"
    content: ClassVar[str] = "parts"
    beside_kind: ClassVar[frozenset[str]] = frozenset({"thought", *_SIGNATURE_KEYS, "type"})
    rules: ClassVar[Mapping[str, str]] = texts(dialect)
    ordered: ClassVar[bool] = True
    named: ClassVar[tuple[Kind, ...]] = (Kind.CALL, Kind.RESULT)
    name_empty: ClassVar[str] = "Name cannot be empty"
    name_unfit: ClassVar[str] = ""

    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        waiting: list[str] = []
        role = messages[0]["role"]
        if role != "user":
            return False
        for content in messages:
            role = content["role"]
            if len(content) > 2 and not THOUGHT_KEYS.isdisjoint(content):
                return False
            if role == "model":
                if waiting or not _model(content["parts"], waiting):
                    return False
            elif role != "user" or not _user(content["parts"], waiting):
                return False
        return role == "user" and _loop_signed(messages, context)

    def read_message(self, index: int, native: Any) -> Message:
        fields = as_map(native)
        role = as_text(fields.get("role") or "user")
        message = Message(_ROLES.get(role, "user"), [], native, index)
        if not is_map(native):
            message.faults = (Fault("message_invalid"),)
        elif (
            role not in _ROLES
            or ("content" in fields and "parts" not in fields)
            or not THOUGHT_KEYS.isdisjoint(fields)
        ):
            message.faults = (Fault("role_invalid"),)
        parts = fields.get("parts")  # a single part need not be in a list
        for n, each in enumerate(
            [parts] if is_map(parts) or isinstance(parts, str) else as_list(parts)
        ):
            part = _read_part(index, n, each)
            part.faults += side_fault(message.role, part)
            message.parts.append(part)
        return message

    def write(self, message: Message) -> dict[str, Any]:
        role = "model" if message.role == "assistant" else "user"
        parts = [part.native for part in message.parts]
        return {**as_map(message.native), "role": role, "parts": parts}

    def text_message(self, role: str, text: str) -> Message:
        return Message(_ROLES[role], [Part(Kind.TEXT, {"text": text}, text=text)], touched=True)

    def synthetic_result(self, call: Part, text: str) -> Any:
        response = {"name": call.name, "response": {"error": text}}
        return {"functionResponse": {**response, "id": call.id} if call.id else response}

    def arguments(self, call: Part) -> Any:
        return as_map(_get(call.native, *_CALL_KEYS)).get("args")

    def result_text(self, result: Part) -> str:
        return _response_text(as_map(_get(result.native, *_RESPONSE_KEYS)).get("response"))

    def check(self, history: History) -> Iterator[Violation]:
        if _begins_wrong(history):
            yield history.violation("first_not_user", history.messages[0])
        for part in _unsigned_calls(history):
            yield history.violation("thought_signature_missing", part)
        if _ends_wrong(history):
            yield history.violation("prefill_unsupported", history.messages[-1])

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        """Return "message_empty" if all parts are blank or unsigned thoughts, or None."""
        says = any(
            not part.blank and (part.kind is not Kind.THINKING or part.signed)
            for part in message.parts
        )
        return None if says or message.faults else "message_empty"

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """Whether to merge two adjacent contents of one role.

        They are valid, because the SDK's chats have one content for each chunk. But a content with
        calls must be merged, because the responses must follow the calls at once, and so must those
        that a repair has changed.
        """
        if first.role != second.role:
            return False
        changed = first.touched or second.touched or second.index - first.index != 1
        calls = first.role == "assistant" and first.has(Kind.CALL)
        return context.strict or changed or calls

    def orphan_code(self, messages: list[Message], at: int) -> str:
        """Return "tool_result_surplus" directly after calls, or else "tool_result_orphan"."""
        called = at > 0 and messages[at - 1].role == "assistant" and messages[at - 1].has(Kind.CALL)
        return "tool_result_surplus" if called else "tool_result_orphan"

    def converted(self, native: Any) -> list[Any]:
        fields = as_map({"parts": [{"text": native}]} if isinstance(native, str) else native)
        role = "model" if fields.get("role") in ("assistant", "ai") else "user"
        if "content" in fields and "parts" not in fields:  # another dialect: keep only the texts
            blocks = as_list(content := fields["content"]) or [content]
            texts = [each for each in blocks if not is_thought(each)]
            fields = {"parts": [{"text": text_of([t] if is_map(t) else t)} for t in texts]}
        fields = {key: value for key, value in fields.items() if key not in THOUGHT_KEYS}
        return [{**fields, "role": role}] if fields else []

    def renamed(self, part: Part, name: str) -> Part:
        key = next(key for key in _CALL_KEYS + _RESPONSE_KEYS if as_map(part.native.get(key)))
        native = {**part.native, key: {**part.native[key], "name": name}}
        return replace(part, native=native, name=name, faults=part.faults[1:])

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        native = part.native
        match fault.code:
            case "block_invalid" if isinstance(native, str) and native:
                return [Part(Kind.TEXT, {"text": native}, part.index, part.path, text=native)]
            case "thought_signature_invalid":
                bare = _without_signature(as_map(native))
                return [_read_part(part.index, part.slot, bare)] if bare else []
            case "tool_use_in_user" | "tool_result_in_assistant":
                return [replace(part, faults=())]
            case _:
                return []

    def prepare(self, repair: HistoryRepair) -> None:
        if repair.policy.thinking != "keep":
            bare = {
                part: replace(part, native=_without_signature(part.native), signed=False)
                for message in repair.messages
                for part in message.parts
                if part.signed
            }
            repair.replace("strip_signature", "thought_signature_invalid", bare)
            thoughts = repair.parts(Kind.THINKING)
            repair.drop("drop_thinking", dict.fromkeys(thoughts, "thought_signature_invalid"))
        split_by_side(repair)
        merge_neighbours(repair)

    def finish(self, repair: HistoryRepair) -> None:
        if _begins_wrong(repair):
            repair.begin_with_user()
        signed = {
            part: replace(
                part, native={**part.native, "thoughtSignature": _LOST_SIGNATURE}, signed=True
            )
            for part in _unsigned_calls(repair)
        }
        repair.replace("sign_call", "thought_signature_missing", signed)
        if _ends_wrong(repair):
            repair.end_with_user("prefill_unsupported")

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        """Join two plain texts. None: one of them has a signature or other fields."""
        if set(first.native) != {"text"} or set(second.native) != {"text"}:
            return None
        text = join(first.text, second.text)
        return replace(first, native={"text": text}, text=text)


def _get(fields: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        if (value := fields.get(key)) is not None:
            return value
    return None


def _read_part(index: int, n: int, native: Any) -> Part:
    fields = as_map(native)
    part = Part(Kind.OTHER, native, index, f".parts[{n}]")
    if "type" in fields and is_thought(fields):  # it has another format: Gemini uses `thought`
        part.faults = (Fault("block_invalid"),)
        return part
    call, response = as_map(_get(fields, *_CALL_KEYS)), as_map(_get(fields, *_RESPONSE_KEYS))
    signature, text = _get(fields, *_SIGNATURE_KEYS), fields.get("text")
    part.signed = isinstance(signature, str) and bool(signature)
    if part.signed and not _SIGNATURE.match(str(signature)):
        part.faults = (Fault("thought_signature_invalid"),)
    if call or response:
        part.kind = Kind.CALL if call else Kind.RESULT
        part.id, part.name = (as_text((call or response).get(key)) for key in ("id", "name"))
        part.synthetic = looks_synthetic(_response_text(response.get("response")))
    elif isinstance(text, str):
        part.kind = Kind.THINKING if fields.get("thought") else Kind.TEXT
        part.text, part.blank = text, blank(text) and not part.signed
        if not text and not part.signed:
            part.faults += (Fault("text_empty"),)
    elif not fields.keys() - {*_SIGNATURE_KEYS, "thought"}:
        part.faults += (Fault("block_invalid"),)
    return part


def _response_text(response: object) -> str:
    fields = as_map(response)
    values = (fields.get(key) for key in ("error", "output", "result", "content"))
    return next((value for value in values if isinstance(value, str)), "")


def _without_signature(native: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in native.items() if key not in _SIGNATURE_KEYS}


# -- whole histories -----------------------------------------------------------------------------


def _begins_wrong(history: History) -> bool:
    if not history.messages:
        return False
    return history.messages[0].role == "assistant"


def _ends_wrong(history: History) -> bool:
    if not history.messages or history.context.prefill is not False:
        return False
    last = history.messages[-1]
    return last.role == "assistant" and not last.has(Kind.CALL)


def _unsigned_calls(history: History) -> list[Part]:
    """Return the first call of each step of the open tool loop that lacks Gemini 3's signature.

    The loop, which Google calls the current turn, begins after the last user message without a
    function response. A user message with a response and a text belongs to the loop before it.
    """
    if not _SIGNS_CALLS.search(history.context.model.lower()):
        return []
    unsigned: list[Part] = []
    for message in reversed(history.messages):
        if message.role == "user" and not message.has(Kind.RESULT):
            break
        calls = message.of(Kind.CALL) if message.role == "assistant" else []
        if calls and not calls[0].signed:
            unsigned.insert(0, calls[0])
    return unsigned


# -- the fast check ------------------------------------------------------------------------------


def _model(parts: Iterable[Any], waiting: list[str]) -> bool:
    content = ""
    for part in parts:
        if len(part) > 1:
            if part.get("thought") is True and len(part) == 2 and part["text"]:
                continue  # unsigned thinking is valid, but it is not content
            if len(part) > 2 or not _SIGNATURE.match(part["thoughtSignature"]):
                return False
        if "text" in part:
            content = part["text"]
            if not content or content.isspace():
                return False
        else:
            call = part["functionCall"]
            content = call["name"] and (call.get("id") or call["name"])
            if not content:
                return False
            waiting.append(content)
    return content != ""


def _user(parts: Iterable[Any], waiting: list[str]) -> bool:
    kind, answered = "", 0
    for part in parts:
        (kind,) = part
        if kind == "functionResponse":
            answer = part[kind]
            if not answer["name"] or waiting[answered] != (answer.get("id") or answer["name"]):
                return False
            answered += 1
        elif answered != len(waiting):
            return False
        elif kind == "text":
            text = part[kind]
            if not text or text[:LEAD] in LEADS:
                return False
        elif kind not in _MEDIA:
            return False
    if answered != len(waiting):
        return False
    waiting.clear()
    return kind != ""


def _loop_signed(contents: list[Any], context: HistoryContext) -> bool:
    """Whether the first call of each step of the open tool loop is signed, if the model signs.

    Models before Gemini 3 do not.
    """
    if not context.model or "gemini-2" in context.model:
        return True
    for content in reversed(contents):
        parts = content["parts"]
        if content["role"] == "user":
            if "functionResponse" not in parts[0]:
                return True
        else:
            first = next((part for part in parts if "functionCall" in part), None)
            if first is not None and "thoughtSignature" not in first:
                return False
    return True
