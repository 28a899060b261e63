"""Anthropic Messages: the histories that `/v1/messages` accepts.

Sources: Anthropic's error page, and the error texts that public issues quote. `thinking` has the
rules about thinking.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.grammar import Grammar, History, HistoryContext, HistoryRepair, JoinTexts
from continuation.history.images import anthropic_image, image_url
from continuation.history.passes import side_fault, split_by_side
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
    plain_text,
    text_of,
)
from continuation.history.types import Body, HistoryFormat, Violation
from continuation.history.wordings import LEAD, LEADS, looks_like_recovery, looks_synthetic
from continuation.providers.anthropic_messages import systems, thinking
from continuation.wire.json_values import as_list, as_map, as_text, is_map, parsed

_ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/_=-]+\Z")
#: Google's placeholders for a lost signature, and the prefix of OpenAI's encrypted reasoning.
_FOREIGN_SIGNATURES: Final = (
    "skip_thought_signature_validator",
    "context_engineering_is_the_way",
    "gAAAA",
)
_LONGEST_ID: Final = 64
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_FOREIGN_BLOCKS: Final = frozenset(
    {"input_text", "output_text", "refusal", "image_url", "input_image", "reasoning", "text"}
)
"""Types of blocks of other dialects, and "text" (for a block without a text). Unknown types are
kept, because they may be new."""
_UNSIGNED: Final = frozenset({"thinking_unsigned", "thinking_blank", "thinking_foreign"})
_CHAT_ONLY: Final = THOUGHT_KEYS | {
    *("tool_calls", "refusal", "annotations", "audio", "function_call"),
}
_SYSTEM_ONLY: Final = frozenset({"output_config", "clear_at"})


class AnthropicGrammar(Grammar):
    """The grammar of the Messages API, on Anthropic's server, Bedrock, Vertex and others."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.ANTHROPIC
    not_text: ClassVar[frozenset[str]] = frozenset({"source", "data", "url", "cache_control"})
    own_models: ClassVar[str] = "claude"
    may_lack_thinking: ClassVar[bool] = True
    field: ClassVar[str] = "messages"
    rules: ClassVar[Mapping[str, str]] = texts(dialect)
    calls_last: ClassVar[bool] = True
    longest_name: ClassVar[int] = 200
    name_empty: ClassVar[str] = "have at least 1 character"
    name_unfit: ClassVar[str] = "match pattern '^[a-zA-Z0-9_-]{1,64}$'"
    id_keys: ClassVar[tuple[str, str] | None] = ("id", "tool_use_id")

    def common_shapes_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        mode = as_map(body.get("thinking")).get("type")
        if context.thinking == "none" or mode in thinking.REFUSED_MODES.get(
            context.thinking or "", ()
        ):
            return False
        system = body.get("system") or ()
        blocks = system if type(system) is not str else [{"type": "text", "text": system}]
        seen: set[str] = set()
        if not all(block["type"] == "text" and block["text"].strip() for block in blocks):
            return False
        if not _messages(messages, seen):
            return False
        if messages[-1]["role"] == "assistant":
            # The full check handles a trailing assistant message: not every model accepts one.
            last = messages[-1]["content"]
            if context.prefill is False or body.get("thinking") is not None:
                return False
            if type(last) is not str or last != last.rstrip():
                return False
        if mode == "enabled" and not _loop_thinks(messages):
            return False
        return not seen or bool(body.get("tools")) or "max_tokens" not in body

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        messages = super().read(body, context)
        last = messages[-1] if messages else None
        if last and last.role == "assistant" and as_map(last.native).get("content") == "":
            last.parts = []  # the last message may have no content
        if context.system_messages == "user":  # the first ones go into the system prompt instead
            for message in itertools.dropwhile(lambda each: each.role == "system", messages):
                if message.role == "system":
                    message.faults = (Fault("role_invalid"),)
        if thinking.strange(context):
            # Other vendors' models do not sign thinking, and some require it in later requests.
            for part in (part for message in messages for part in message.of(Kind.THINKING)):
                part.faults = tuple(f for f in part.faults if f.code not in _UNSIGNED)
        return messages

    def read_message(self, index: int, native: Any) -> Message:
        fields = as_map(native)
        role, content = as_text(fields.get("role")), fields.get("content")
        message = Message(_ROLES.get(role, "user"), [], native, index)
        if not is_map(native):
            message.faults = (Fault("message_invalid"),)
        elif role not in _ROLES or not _CHAT_ONLY.isdisjoint(fields):
            message.faults = (Fault("role_invalid"),)
        elif is_map(content):
            message.faults = (Fault("content_invalid"),)
        if isinstance(content, str):
            whole = Part(Kind.TEXT, content, index, ".content", text=content, blank=blank(content))
            if whole.blank:
                whole.faults = (Fault("text_blank" if content else "message_empty"),)
            message.parts = [whole]
        else:
            blocks = enumerate(as_list(content))
            message.parts = [_read_block(block, index, f".content[{n}]") for n, block in blocks]
        for part in message.parts if message.role != "system" else ():
            part.faults += side_fault(message.role, part)
            if message.role == "user" and part.kind is Kind.THINKING:
                part.faults += (Fault("thinking_in_user"),)
        return message

    def write(self, message: Message) -> dict[str, Any]:
        natives = [part.native for part in message.parts]
        content: Any = [
            {"type": "text", "text": native} if isinstance(native, str) else native
            for native in natives
        ]
        if len(natives) == 1 and isinstance(natives[0], str):
            content = natives[0]
        role = message.role if message.role in _ROLES else "user"
        return {**as_map(message.native), "role": role, "content": content}

    def text_message(self, role: str, text: str) -> Message:
        part = Part(Kind.TEXT, {"type": "text", "text": text}, text=text)
        return Message(_ROLES[role], [part], touched=True)

    def synthetic_result(self, call: Part, text: str) -> Any:
        return {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": True}

    def arguments(self, call: Part) -> Any:
        return call.native.get("input")

    def check(self, history: History) -> Iterator[Violation]:
        if history.messages and history.messages[0].role == "assistant":
            yield history.violation("first_not_user", history.messages[0])
        text = _prefill(history)
        if text is not None and _refuses_prefill(history):
            yield history.violation("prefill_unsupported", history.messages[-1])
        elif text is not None and text.text != text.text.rstrip():
            yield history.violation("trailing_whitespace", text)
        for message in history.messages:
            if (at := _first_after_calls(message)) is not None:
                ids = ", ".join(part.id for part in message.parts[:at] if part.kind is Kind.CALL)
                fault = Fault("tool_use_not_last", ids, call=message.index)
                yield history.violation(fault, message.parts[at])
        for part, code in _unpaired_on_server(history).items():
            yield history.violation(code, part)
        if _undeclared_tools(history):
            yield history.violation("tools_undeclared", "tools")
        for path in _blank_system(history.body.get("system")):
            yield history.violation("system_text_empty", path)
        yield from systems.check(history)
        yield from thinking.check(history)

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        if message.parts or message.faults:
            return None
        if message.role == "system" and "output_config" in as_map(message.native):
            return None  # it has settings, so it is not empty
        prefill = last and message.role == "assistant" and not message.touched
        content = as_map(message.native).get("content")
        return None if prefill and isinstance(content, (str, list)) else "message_empty"

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """Whether to merge two messages of one role: if `strict`, or if a repair changed them.

        The API joins other such messages itself.
        """
        if first.role != second.role or first.role == "system":
            return False
        changed = first.touched or second.touched or second.index - first.index != 1
        return context.strict or (changed and not second.has(Kind.THINKING))

    def merged(self, run: list[Message]) -> Message:
        one = super().merged(run)
        if one.role == "user":
            one.parts = one.of(Kind.RESULT) + [p for p in one.parts if p.kind is not Kind.RESULT]
        return one

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        if not _ID.match(call):
            return "tool_use_id_invalid"
        return "tool_use_id_too_long" if context.strict and len(call) > _LONGEST_ID else None

    def new_id(self, old: str, context: HistoryContext) -> str:
        if _ID.match(old) and len(old) <= _LONGEST_ID:
            return old
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", old)[:40]
        return f"{plain or 'call'}_{hashlib.sha256(old.encode()).hexdigest()[:12]}"

    def converted(self, native: Any) -> list[Any]:
        """Convert strings, Chat's `tool` messages and `tool_calls`, and unknown roles."""
        if isinstance(native, str):
            return [{"role": "user", "content": native}]
        fields = as_map(native)
        if not fields:
            return []
        content = fields.get("content")
        if fields.get("role") in ("tool", "function"):
            call = fields.get("tool_call_id", "")
            parts = [anthropic_image(url) if (url := image_url(b)) else b for b in as_list(content)]
            result = {"type": "tool_result", "tool_use_id": call, "content": parts or content or ""}
            return [{"role": "user", "content": [result]}]
        blocks: list[Any] = [*as_list(content)]
        if is_map(content):
            blocks = [content]
        texts = (content, fields.get("refusal"))
        blocks += [{"type": "text", "text": each} for each in texts if each and type(each) is str]
        for call in map(as_map, as_list(fields.get("tool_calls"))):
            function = as_map(call.get("function"))
            arguments = function.get("arguments")
            if isinstance(arguments, str):
                with suppress(ValueError):  # `_read_block` finds invalid arguments
                    arguments = json.loads(arguments)
            named = {"id": call.get("id", ""), "name": function.get("name", "")}
            blocks.append({"type": "tool_use", **named, "input": arguments})
        role = "assistant" if fields.get("role") in ("assistant", "model") else "user"
        rest = {k: value for k, value in fields.items() if k not in _CHAT_ONLY | _SYSTEM_ONLY}
        return [{**rest, "role": role, "content": blocks}]

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        native = part.native
        match fault.code:
            case "tool_input_invalid":
                value = as_map(parsed(as_text(native.get("input"))))
                return [replace(part, native={**native, "input": value}, faults=())]
            case "result_text_empty":
                blocks = [block for block in native["content"] if not _blank_block(block)]
                native = {**native, "content": blocks}
                if not blocks:
                    del native["content"]
                return [replace(part, native=native, faults=())]
            case "content_invalid":
                given = native["content"]
                content = [given] if "type" in given else plain_text(given)
                return [replace(part, native={**native, "content": content}, faults=())]
            case "error_result_not_text":
                kept = [block for block in native["content"] if _is_text(block)]
                rest = [block for block in native["content"] if not _is_text(block)]
                made = [replace(part, native={**native, "content": kept}, faults=())]
                return made + [Part(Kind.OTHER, block, part.index, part.path) for block in rest]
            case "block_invalid":
                return _own_form(part)
            case "tool_use_in_user" | "tool_result_in_assistant":
                # Only the role of its message is wrong; `split_by_side` repairs that.
                return [replace(part, faults=())]
            case _:
                return []

    def prepare(self, repair: HistoryRepair) -> None:
        split_by_side(repair)
        systems.place(repair)
        thinking.prepare(repair)
        repair.messages = [
            each for message in repair.messages for each in _calls_last(repair, message)
        ]

    def finish(self, repair: HistoryRepair) -> None:
        repair.drop("drop_call", _unpaired_on_server(repair))
        thinking.finish(repair)
        if repair.messages and repair.messages[0].role == "assistant":
            repair.begin_with_user()
        last = _prefill(repair)
        if last is not None and _refuses_prefill(repair):
            repair.end_with_user("prefill_unsupported")
        elif last is not None and last.text != last.text.rstrip():
            text = last.text.rstrip()
            native = text if isinstance(last.native, str) else {**last.native, "text": text}
            trimmed = replace(last, native=native, text=text)
            repair.replace("trim_text", "trailing_whitespace", {last: trimmed})
        if _undeclared_tools(repair) and repair.may("declare_tools", "tools", "tools_undeclared"):
            names = dict.fromkeys(part.name for part in repair.parts(Kind.CALL) if part.name)
            schema = {"type": "object", "additionalProperties": True}
            repair.settings["tools"] = [{"name": name, "input_schema": schema} for name in names]
            repair.settings["tool_choice"] = {"type": "none"}
        system = repair.settings.get("system", repair.body.get("system"))
        if _blank_system(system) and repair.may("drop_text", "system", "system_text_empty"):
            blocks = [block for block in as_list(system) if not _blank_block(block)]
            repair.settings["system"] = blocks or None

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        blocks = (first.native, second.native)
        if any(not isinstance(block, str) and block.keys() > {"type", "text"} for block in blocks):
            return None
        text = join(first.text, second.text)
        return Part(Kind.TEXT, {"type": "text", "text": text}, first.index, first.path, text=text)


# -- blocks --------------------------------------------------------------------------------------


def _read_block(block: Any, index: int, path: str) -> Part:
    fields = as_map(block)
    kind, text = fields.get("type"), fields.get("text")
    part = Part(Kind.OTHER, block, index, path, id=as_text(fields.get("id")))
    fault = ""
    match kind:
        case _ if is_thought(block) and kind not in _THINKING:
            fault = "block_invalid"
        case "text" if isinstance(text, str):
            part.kind, part.text, part.blank = Kind.TEXT, text, blank(text)
            empty = "text_blank" if text else "text_empty"
            fault = empty if part.blank else ""
        case "thinking" | "redacted_thinking":
            fault = _thinking_fault(fields)
            part.kind, part.name, part.signed = Kind.THINKING, str(kind), not fault
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            part.kind = Kind.CALL if kind == "tool_use" else Kind.SERVER_CALL
            part.name, value = as_text(fields.get("name")), fields.get("input")
            if part.kind is Kind.CALL and not is_map(value):
                part.cut = isinstance(value, str) and not is_map(parsed(value))
                fault = "tool_input_invalid"
        case "tool_result":
            content = fields.get("content")
            part.kind, part.synthetic = Kind.RESULT, looks_synthetic(text_of(content))
            fault = _result_fault(fields)
        case str() if kind.endswith("_tool_result"):
            part.kind = Kind.SERVER_RESULT
        case _:
            known = isinstance(kind, str) and kind not in _FOREIGN_BLOCKS
            fault = "" if known else "block_invalid"
    if part.kind in (Kind.RESULT, Kind.SERVER_RESULT):
        part.id = as_text(fields.get("tool_use_id"))
    part.faults = (Fault(fault),) if fault else ()
    return part


def _own_form(part: Part) -> list[Part]:
    """Convert a block of another format to an image or a text; `[]`: it is dropped."""
    native = part.native
    if url := image_url(native):
        return [Part(Kind.OTHER, anthropic_image(url), part.index, part.path)]
    text = native if isinstance(native, str) else as_map(native).get("text")
    if not isinstance(text, str):
        text = as_text(as_map(native).get("refusal"))
    block = {"type": "text", "text": text}
    plain = Part(Kind.TEXT, block, part.index, part.path, text=text)
    return [] if is_thought(native) or blank(text) else [plain]


def _result_fault(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if is_map(content):
        return "content_invalid"
    if any(map(_blank_block, as_list(content))):
        return "result_text_empty"
    alone = block.get("is_error") and not all(map(_is_text, as_list(content)))
    return "error_result_not_text" if alone else ""


def _thinking_fault(block: Mapping[str, Any]) -> str:
    """Return the code of the rule that a thinking block's signature breaks; `""`: none."""
    if block["type"] == "redacted_thinking":  # its data is its signature
        return "" if as_text(block.get("data")) else "thinking_redacted_invalid"
    signature = as_text(block.get("signature"))
    if not signature:
        return "thinking_blank" if blank(as_text(block.get("thinking"))) else "thinking_unsigned"
    plausible = _SIGNATURE.match(signature) and not signature.startswith(_FOREIGN_SIGNATURES)
    return "" if plausible else "thinking_foreign"


def _is_text(block: object) -> bool:
    return as_map(block).get("type") == "text"


def _blank_block(block: object) -> bool:
    """Whether a block is a text that is empty or has only white space."""
    fields = as_map(block)
    text = fields.get("text")
    return fields.get("type") == "text" and isinstance(text, str) and blank(text)


# -- calls ---------------------------------------------------------------------------------------


def _first_after_calls(message: Message) -> int | None:
    """Return the index of the first part that must not follow calls in its message, or None."""
    called = False
    for n, part in enumerate(message.parts if message.role == "assistant" else ()):
        called = called or part.kind is Kind.CALL
        if called and part.kind in (Kind.TEXT, Kind.OTHER):
            return n
    return None


def _calls_last(repair: HistoryRepair, message: Message) -> list[Message]:
    """Move parts that follow calls before the calls.

    If the message has signed thinking, move them into another message instead: the parts of the
    signed message keep their order.
    """
    messages = [message]
    while (at := _first_after_calls(messages[-1])) is not None:
        last = messages[-1]
        if not repair.may("move_text", last.parts[at], "tool_use_not_last"):
            break
        if not any(part.signed for part in last.parts):
            plain = [part for part in last.parts if part.kind is not Kind.CALL]
            last.keep(plain + last.of(Kind.CALL))
            break
        messages.append(Message("assistant", last.parts[at:], None, last.index, touched=True))
        last.keep(last.parts[:at])
    return messages


def _unpaired_on_server(history: History) -> dict[Part, str]:
    """Return server calls without a result and results without a call, each with the rule's code.

    An answer continues while only the assistant or client tools write (`pause_turn`). So an open
    server call at the end of the history is paused, and its result will follow.
    """
    unpaired: dict[Part, str] = {}
    if not any(message.has(Kind.SERVER_CALL, Kind.SERVER_RESULT) for message in history.messages):
        return unpaired  # the usual case
    waiting: dict[str, Part] = {}
    for message in history.messages:
        for part in message.of(Kind.SERVER_CALL, Kind.SERVER_RESULT):
            if part.kind is Kind.SERVER_CALL:
                waiting[part.id] = part
            else:
                waiting.pop(part.id, None)
        if message.role == "user" and any(part.kind is not Kind.RESULT for part in message.parts):
            unpaired.update(dict.fromkeys(waiting.values(), "server_result_missing"))
            waiting = {}
    call_ids = {part.id for part in history.parts(Kind.SERVER_CALL)}
    results = history.parts(Kind.SERVER_RESULT)
    orphans = [part for part in results if part.id not in call_ids]
    return unpaired | dict.fromkeys(orphans, "server_result_orphan")


def _undeclared_tools(history: History) -> bool:
    """Whether a request has calls but no tools. A body without `max_tokens` is not a request."""
    body = history.body
    if body.get("tools") or "max_tokens" not in body:
        return False
    return any(message.has(Kind.CALL, Kind.RESULT) for message in history.messages)


def _blank_system(system: Any) -> list[str]:
    """Return the paths of empty system texts."""
    if isinstance(system, str):
        return ["system"] if system and blank(system) else []
    return [f"system[{n}]" for n, block in enumerate(as_list(system)) if _blank_block(block)]


def _prefill(history: History) -> Part | None:
    """Return the text at the end of a history if the assistant wrote it, or None."""
    last = history.messages[-1] if history.messages else None
    if last is None or last.role != "assistant" or not last.parts or last.parts[-1].blank:
        return None
    return last.parts[-1] if last.parts[-1].kind is Kind.TEXT else None


def _refuses_prefill(history: History) -> bool:
    thinks = as_map(history.body.get("thinking")).get("type") in ("enabled", "adaptive")
    return history.context.prefill is False or thinks


# -- the fast check ------------------------------------------------------------------------------


def _messages(messages: list[Any], seen: set[str]) -> bool:
    waiting: set[str] = set()
    before = "assistant"
    for message in messages:
        role, content = message["role"], message["content"]
        if role == before or (role != "user" and role != "assistant"):
            return False
        if len(message) > 2 and not _CHAT_ONLY.isdisjoint(message):
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


def _assistant(content: Iterable[Any], waiting: set[str], seen: set[str]) -> bool:
    kind = ""
    for block in content:
        before, kind = kind, block["type"]
        if kind == "text":
            text = block["text"]
            if waiting or not text or text.isspace() or "thought" in block:
                return False
        elif kind == "tool_use":
            call = block["id"]
            if call in seen or not _ID.match(call) or type(block["input"]) is not dict:
                return False
            if not 0 < len(block["name"]) <= AnthropicGrammar.longest_name:
                return False
            seen.add(call)
            waiting.add(call)
        else:
            if kind != "thinking" or before:
                return False
            signature = block["signature"]
            if not _SIGNATURE.match(signature) or signature.startswith(_FOREIGN_SIGNATURES):
                return False
    return kind == "tool_use" or kind == "text"


def _user(content: Iterable[Any], waiting: set[str]) -> bool:
    kind = ""
    says = False
    for block in content:
        kind = block["type"]
        if kind == "tool_result":
            waiting.remove(block["tool_use_id"])
            inner = block.get("content")
            if says or not (inner is None or type(inner) is str or _says(inner)):
                return False
            if block.get("is_error") and not all(map(_is_text, as_list(inner))):
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


def _says(blocks: Any) -> bool:
    for block in blocks:
        if block["type"] == "text" and (not block["text"] or block["text"].isspace()):
            return False
    return type(blocks) is list


def _loop_thinks(messages: list[Any]) -> bool:
    """Whether the open tool loop begins with thinking, or there is no open loop."""
    first = None
    for message in reversed(messages):
        content = message["content"]
        if message["role"] == "assistant":
            first = content
        elif type(content) is str or content[0]["type"] != "tool_result":
            break
    return first is None or first[0]["type"] == "thinking"
