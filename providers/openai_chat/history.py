"""OpenAI Chat Completions: the histories that OpenAI and compatible servers accept.

Sources: the error texts of OpenAI, DeepSeek, Moonshot, Mistral and Cerebras that public issues
quote. The model's name or the policy shows the vendor.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from jiter import from_json

from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair, JoinTexts
from continuation.history.images import image_url
from continuation.history.rules import texts
from continuation.history.tree import (
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
from continuation.history.wordings import LEAD, LEADS, looks_like_recovery, looks_synthetic
from continuation.wire.json_values import as_list, as_map, as_text, is_list, is_map, parsed

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
    "function": "system",  # results without ids, which cannot be paired
}
_SYSTEM: Final = ("system", "developer")
_PLAIN_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_LONGEST_ID: Final = 40
"""OpenAI's bound in characters. Other servers accept longer ids, and make them."""
_MISTRAL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}\Z")
#: Models of DeepSeek and Moonshot that always reason.
_THINKING_MODEL: Final = re.compile(r"reasoner|thinking|-r1\b", re.IGNORECASE)
_FOREIGN_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "input_image"}
)
"""Types of Anthropic's blocks that Chat does not have in `content`."""


class ChatGrammar(Grammar):
    """The grammar of `/v1/chat/completions`."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.OPENAI_CHAT
    not_text: ClassVar[frozenset[str]] = frozenset({"image_url", "file_data"})
    has_vendors: ClassVar[bool] = True
    field: ClassVar[str] = "messages"
    rules: ClassVar[Mapping[str, str]] = texts(dialect)
    one_message: ClassVar[bool] = False
    unique_ids: ClassVar[bool] = False
    id_keys: ClassVar[tuple[str, str] | None] = ("id", "tool_call_id")

    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        usual = context.reasoning == "auto" and context.system_messages == "keep"
        if not usual or context.prefill is False:
            return False
        waiting: set[str] = set()
        before = ""
        for message in messages:
            role, content = message["role"], message["content"]
            if role == "tool":
                sound = type(content) is str or (type(content) is list and content != [])
                waiting.remove(message["tool_call_id"] if sound else "")
            elif waiting or role not in _PLAIN_ROLES:
                return False
            elif role == "assistant":
                if not _plain_assistant(content, message.get("tool_calls"), waiting):
                    return False
            elif type(content) is not str:
                if not _plain_blocks(content):
                    return False
            elif content[:LEAD] in LEADS and before == "assistant" and looks_like_recovery(content):
                return False
            before = role
        return not waiting and (not context.vendor or _vendor(messages, body, context))

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        messages = super().read(body, context)
        _note_reasoning(body, context, messages)
        return messages

    def read_message(self, index: int, native: Any) -> Message:
        fields = as_map(native)
        role = as_text(fields.get("role"))
        message = Message(_ROLES.get(role, "user"), [], native, index)
        if not is_map(native):
            message.faults = (Fault("message_invalid"),)
        elif role not in _ROLES:
            message.faults = (Fault("role_invalid"),)
        elif role == "tool":
            part = Part(Kind.RESULT, fields, index, id=as_text(fields.get("tool_call_id")))
            part.name = as_text(fields.get("name"))
            part.synthetic = looks_synthetic(text_of(fields.get("content")))
            content = fields.get("content")
            sound = isinstance(content, str) or (is_list(content) and bool(content))
            part.faults = () if sound else (Fault("content_invalid"),)
            message.parts = [part]
        elif role == "function":
            message.parts = [Part(Kind.OTHER, native, index)]
        else:
            message.parts = list(_read_parts(fields, index))
            content = fields.get("content")
            if is_map(content) or (content == [] and fields.get("tool_calls")):
                message.faults = (Fault("content_invalid"),)
            elif role == "assistant" and fields.get("tool_calls") == []:
                message.faults = (Fault("tool_calls_empty"),)
            elif any(map(_is_foreign, as_list(content))):
                message.faults = (Fault("message_foreign"),)
        return message

    def write(self, message: Message) -> Any:
        if message.role == "tool":
            return message.parts[0].native
        fields = dict(as_map(message.native)) or {"role": message.role}
        content = [part.native for part in message.parts if part.path.startswith(".content")]
        if not content:
            fields["content"] = None
        elif all(isinstance(native, str) for native in content):
            fields["content"] = "".join(content)
        else:
            fields["content"] = [
                {"type": "text", "text": native} if isinstance(native, str) else native
                for native in content
            ]
        if message.role == "assistant":
            thoughts = [part.native for part in message.of(Kind.THINKING)]
            optional = {
                "tool_calls": [part.native for part in message.of(Kind.CALL)],
                "reasoning_content": thoughts[0] if thoughts else None,
            }
            fields.update(optional)
            for key in [key for key, value in optional.items() if not value]:
                del fields[key]
        return fields

    def text_message(self, role: str, text: str) -> Message:
        native = {"role": role, "content": text}
        part = Part(Kind.TEXT, text, path=".content", text=text)
        return Message(_ROLES[role], [part], native, touched=True)

    def synthetic_result(self, call: Part, text: str) -> Any:
        return {"role": "tool", "tool_call_id": call.id, "content": text}

    def arguments(self, call: Part) -> Any:
        return as_map(call.native.get("function")).get("arguments")

    def check(self, history: History) -> Iterator[Violation]:
        first, others = _systems(history)
        yield from (history.violation("role_invalid", message) for message in first[1:] + others)
        for message in _users_after_tools(history):
            yield history.violation("user_after_tool", message)
        if _must_end_with_user(history):
            yield history.violation("last_not_user", history.messages[-1])

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """Whether to merge two messages of one role. OpenAI accepts them; see `alternate`."""
        if not context.alternate or first.role != second.role or first.has(Kind.CALL):
            return False
        return first.role in ("user", "assistant")

    def merged(self, run: list[Message]) -> Message:
        for message in run[1:]:
            if message.parts and isinstance(text := message.parts[0].native, str):
                message.parts[0] = replace(message.parts[0], native=f"\n\n{text}")
        return super().merged(run)

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        if message.faults or message.role == "tool":
            return None
        if message.role in ("user", "system"):
            return None if message.parts else "message_empty"
        prefill = last and any(as_map(message.native).get(key) for key in ("prefix", "partial"))
        says = any(part.kind is not Kind.THINKING and not part.blank for part in message.parts)
        return None if says or prefill else "message_empty"

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        if context.strict and len(call) > _LONGEST_ID:
            return "tool_use_id_too_long"
        bad = not call or (context.vendor == "mistral" and not _MISTRAL_ID.match(call))
        return "tool_use_id_invalid" if bad else None

    def new_id(self, old: str, context: HistoryContext) -> str:
        digest = hashlib.sha256(old.encode()).hexdigest()
        if context.vendor == "mistral":
            return old if _MISTRAL_ID.match(old) else digest[:9]
        return old if 0 < len(old) <= _LONGEST_ID else f"call_{digest[:16]}"

    def convert(self, message: Message, fault: Fault) -> Iterable[Message]:
        if fault.code == "tool_calls_empty":
            return [replace(message, faults=message.faults[1:], touched=True)]
        return super().convert(message, fault)

    def converted(self, native: Any) -> list[Any]:
        """Convert strings, messages of unknown roles, and Anthropic's messages.

        The results come first. A message with the content, the calls and the images of the results
        follows, because results cannot have images. Thinking is dropped, because no other provider
        accepts it.
        """
        fields = {"role": "user", "content": native} if isinstance(native, str) else as_map(native)
        if not fields:
            return []
        role, content = as_text(fields.get("role")), fields.get("content")
        role = "assistant" if role == "model" else role
        rest: dict[str, Any] = {**fields, "role": role if role in _ROLES else "user"}
        if is_map(content):
            content = [content]
        if not is_list(content):
            return [rest]
        messages: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        blocks: list[Any] = []
        for block in map(as_map, content):
            if url := image_url(block):
                blocks.append(_image(url))
            elif not _is_foreign(block):
                blocks.append(block)
            elif block.get("type") == "tool_result":
                call, inner = block.get("tool_use_id", ""), block.get("content")
                messages.append({"role": "tool", "tool_call_id": call, "content": text_of(inner)})
                blocks += [_image(url) for each in as_list(inner) if (url := image_url(each))]
            elif block.get("type") == "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                function = {"name": block.get("name", ""), "arguments": arguments}
                calls.append({"id": block.get("id", ""), "type": "function", "function": function})
        if blocks or calls or not messages:
            rest = {**rest, "content": blocks or None}
            messages.append({**rest, "tool_calls": calls} if calls else rest)
        return messages

    def renamed(self, part: Part, name: str) -> Part:
        kind = "custom" if "custom" in part.native else "function"
        native = {**part.native, kind: {**as_map(part.native.get(kind)), "name": name}}
        return replace(part, native=native, name=name, faults=part.faults[1:])

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        if fault.code == "reasoning_missing":
            message.lacks_reasoning = True
            return [replace(part, faults=part.faults[1:])]
        if fault.code == "content_invalid":
            text = plain_text(part.native.get("content"))
            return [replace(part, native={**part.native, "content": text}, faults=())]
        if fault.code != "tool_input_invalid":
            return []
        function = as_map(part.native.get("function"))
        function = {**function, "arguments": plain_text(as_map(function.get("arguments")))}
        return [replace(part, native={**part.native, "function": function}, faults=part.faults[1:])]

    def prepare(self, repair: HistoryRepair) -> None:
        if repair.policy.thinking != "keep":
            codes = dict.fromkeys(repair.parts(Kind.THINKING), "reasoning_refused")
            repair.drop("drop_thinking", codes)
        first, others = _systems(repair)
        if len(first) > 1 and repair.may("merge_messages", first[1], "role_invalid"):
            repair.messages[: len(first)] = [self.merged(first)]
        for message in others:
            if repair.may("convert_message", message, "role_invalid"):
                message.role, message.touched = "user", True
                message.native = {**as_map(message.native), "role": "user"}

    def finish(self, repair: HistoryRepair) -> None:
        for message in repair.messages:
            if message.lacks_reasoning:
                parts = [p for p in message.parts if p.kind is not Kind.THINKING or p.signed]
                text, path = repair.policy.reasoning_text, ".reasoning_content"
                message.keep([Part(Kind.THINKING, text, path=path, signed=True), *parts])
        late = set(_users_after_tools(repair))
        after: list[Message] = []
        for message in repair.messages:
            if message in late and repair.may("add_assistant", message, "user_after_tool"):
                after.append(self.text_message("assistant", repair.policy.loop_text))
            after.append(message)
        repair.messages = after
        if _must_end_with_user(repair):
            repair.end_with_user("last_not_user")

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        text = join(first.text, second.text)
        if isinstance(first.native, str) and isinstance(second.native, str):
            return replace(first, native=text, text=text)
        return replace(first, native={"type": "text", "text": text}, text=text)


def _read_parts(fields: Mapping[str, Any], index: int) -> Iterator[Part]:
    assistant, content = fields["role"] == "assistant", fields.get("content")
    if assistant and fields.get("reasoning_content") is not None:
        text = fields["reasoning_content"]
        says = isinstance(text, str) and not blank(text)
        yield Part(Kind.THINKING, text, index, ".reasoning_content", signed=says)
    if isinstance(content, str):
        yield Part(Kind.TEXT, content, index, ".content", text=content, blank=blank(content))
    for n, block in enumerate(as_list(content)):
        part = Part(Kind.OTHER, block, index, f".content[{n}]")
        text = as_map(block).get("text")
        if as_map(block).get("type") == "text" and isinstance(text, str):
            part.kind, part.text, part.blank = Kind.TEXT, text, blank(text)
        yield part
    for key in ("refusal", "audio", "function_call") if assistant else ():
        if fields.get(key):
            yield Part(Kind.OTHER, fields[key], index, f".{key}")
    for n, call in enumerate(map(as_map, as_list(fields.get("tool_calls")) if assistant else ())):
        function = as_map(call.get("function"))
        part = Part(Kind.CALL, call, index, f".tool_calls[{n}]", id=as_text(call.get("id")))
        part.name = as_text(function.get("name") or as_map(call.get("custom")).get("name"))
        arguments = function.get("arguments")
        if call.get("type", "function") == "function" and not is_map(parsed(as_text(arguments))):
            part.cut = bool(arguments) and not is_map(arguments)
            part.faults = (Fault("tool_input_invalid"),)
        yield part


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _is_foreign(block: object) -> bool:
    return as_text(as_map(block).get("type")) in _FOREIGN_BLOCKS or is_thought(block)


# -- reasoning, and the end of a history ---------------------------------------------------------


def _note_reasoning(body: Body, context: HistoryContext, messages: list[Message]) -> None:
    """Add the faults of the vendor's rules about `reasoning_content` to parts and messages."""
    assistants = [message for message in messages if message.role == "assistant"]
    if context.vendor == "deepseek":
        for part in (part for m in assistants if m.has(Kind.CALL) for part in m.of(Kind.TEXT)):
            part.faults = (Fault("content_empty_with_calls"),) if not part.text else ()
    if context.reasoning == "strip" or context.vendor == "cerebras":
        for part in (part for m in assistants for part in m.of(Kind.THINKING)):
            part.faults = (Fault("reasoning_refused"),)
    elif context.reasoning == "fill" or _reasoning_needed(body, context, assistants):
        for message in assistants:
            if message.has(Kind.CALL) and not any(p.signed for p in message.of(Kind.THINKING)):
                message.parts[-1].faults += (Fault("reasoning_missing"),)


def _reasoning_needed(body: Body, context: HistoryContext, assistants: list[Message]) -> bool:
    mode = as_map(body.get("thinking")).get("type")
    if context.vendor not in ("deepseek", "moonshot") or mode == "disabled":
        return False
    shown = any(part.signed for message in assistants for part in message.of(Kind.THINKING))
    return mode == "enabled" or shown or bool(_THINKING_MODEL.search(context.model))


def _systems(history: History) -> tuple[list[Message], list[Message]]:
    """Return the system messages at the beginning, and those after other messages.

    Both are empty unless the policy says that the server accepts only one.
    """
    if history.context.system_messages == "keep":
        return [], []
    asked = [m for m in history.messages if as_map(m.native).get("role") in _SYSTEM]
    first = list(itertools.takewhile(lambda message: message in asked, history.messages))
    return first, asked[len(first) :]


def _users_after_tools(history: History) -> list[Message]:
    """Return user messages directly after results, if an assistant message must be between them."""
    if history.context.vendor != "mistral":
        return []
    pairs = itertools.pairwise(history.messages)
    return [second for first, second in pairs if (first.role, second.role) == ("tool", "user")]


def _must_end_with_user(history: History) -> bool:
    context, messages = history.context, history.messages
    asked = context.prefill is False or context.vendor == "mistral"
    if not asked and "deepseek-reasoner" not in context.model:
        return False
    if not messages or messages[-1].role != "assistant" or messages[-1].has(Kind.CALL):
        return False
    return not as_map(messages[-1].native).get("prefix")


# -- the fast check ------------------------------------------------------------------------------


def _plain_assistant(content: Any, calls: list[Any] | None, waiting: set[str]) -> bool:
    if calls is None:
        return type(content) is str and content != "" and not content.isspace()
    for call in calls:
        arguments = call["function"]["arguments"].encode()
        if not call["function"]["name"] or not call["id"] or call["id"] in waiting:
            return False
        if type(from_json(arguments)) is not dict:
            return False
        waiting.add(call["id"])
    return bool(calls) and (content is None or type(content) is str)


def _plain_blocks(content: Any) -> bool:
    for block in content:
        kind = block["type"]
        if kind == "text":
            if block["text"][:LEAD] in LEADS:
                return False
        elif kind != "image_url" and kind != "input_audio" and kind != "file":
            return False
    return bool(content)


def _vendor(messages: list[Any], body: Body, context: HistoryContext) -> bool:
    """Whether the messages also follow the rules of the vendor's servers."""
    calls = [message for message in messages if message.get("tool_calls")]
    if messages[-1]["role"] == "assistant":
        return False
    if context.vendor == "mistral":
        roles = [message["role"] for message in messages]
        if ("tool", "user") in itertools.pairwise(roles):
            return False
        return all(_MISTRAL_ID.match(c["id"]) for message in calls for c in message["tool_calls"])
    thinks = as_map(body.get("thinking")).get("type") == "enabled"
    if context.vendor not in ("deepseek", "moonshot") or thinks:
        return False
    if any(message["content"] == "" for message in calls):
        return False
    if all((message.get("reasoning_content") or "").strip() for message in calls):
        return True
    silent = not any(message.get("reasoning_content") for message in messages)
    return silent and not _THINKING_MODEL.search(context.model)
