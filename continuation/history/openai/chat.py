"""OpenAI Chat Completions, and what its compatible servers add to it.

Sources: the error texts of OpenAI, DeepSeek, Moonshot, Mistral and Cerebras as public issues quote
them. The vendor is told from the model's name, or by the policy.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.fast_validate_openai import THINKING_MODEL, glance_chat
from continuation.history.grammar import Grammar, History, Rule, Weld, Work
from continuation.history.openai.foreign import FOREIGN_BLOCKS, from_anthropic
from continuation.history.openai.rules import CHAT_RULES
from continuation.history.tree import (
    Context,
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
from continuation.history.types import Body, Dialect, Violation
from continuation.history.wordings import looks_synthetic

__all__ = ["ChatGrammar"]

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
    "function": "system",  # results without ids, which nothing can pair
}
_REASONS: Final = ("deepseek", "moonshot")
"""Vendors that want the reasoning of tool calls back."""
_MISTRAL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}\Z")


class ChatGrammar(Grammar):
    """The grammar of `/v1/chat/completions`."""

    dialect: ClassVar[Dialect] = Dialect.OPENAI_CHAT
    field: ClassVar[str] = "messages"
    rules: ClassVar[Mapping[str, Rule]] = CHAT_RULES
    one_message: ClassVar[bool] = False

    def read(self, body: Body, context: Context) -> list[Message]:
        found = [_message(n, native) for n, native in enumerate(as_list(body.get("messages")))]
        _note_reasoning(body, context, found)
        return found

    def write(self, message: Message) -> Any:
        if message.role == "tool":
            return message.parts[0].native
        given = dict(as_map(message.native)) or {"role": message.role}
        given["content"] = _content(message)
        if message.role == "assistant":
            _set(given, "tool_calls", [part.native for part in message.of(Kind.CALL)])
            thoughts = message.of(Kind.THINKING)
            _set(given, "reasoning_content", thoughts[0].native if thoughts else None)
        return given

    def glance(self, body: Body, context: Context) -> bool:
        return glance_chat(body, context)

    def check(self, history: History) -> Iterator[Violation]:
        if _must_end_with_user(history):
            yield history.violation("last_not_user", history.messages[-1])

    def vacuous(self, message: Message, *, last: bool) -> str | None:
        if message.faults or message.role in ("tool", "system"):
            return None
        if message.role == "user":
            return None if message.parts else "message_empty"
        prefill = last and any(as_map(message.native).get(key) for key in ("prefix", "partial"))
        says = any(part.kind is not Kind.THINKING and not part.blank for part in message.parts)
        return None if says or prefill else "message_empty"

    def unique_ids(self, context: Context) -> bool:
        return context.strict

    def id_fault(self, call: str, context: Context) -> str | None:
        bad = not call or (context.vendor == "mistral" and not _MISTRAL_ID.match(call))
        return "tool_use_id_invalid" if bad else None

    def mint(self, old: str, context: Context) -> str:
        digest = hashlib.sha256(old.encode()).hexdigest()
        if context.vendor == "mistral":
            return old if _MISTRAL_ID.match(old) else digest[:9]
        return old or f"call_{digest[:16]}"

    # -- repair ----------------------------------------------------------------------------------

    def reshape(self, work: Work, message: Message, fault: Fault) -> Iterable[Message]:
        del work
        if fault.code == "tool_calls_empty":
            return [replace(message, faults=message.faults[1:], touched=True)]
        made = [_message(message.index, native) for native in _converted(message.native)]
        for each in made:
            each.touched = True
        return made

    def mend(self, work: Work, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        del work
        if fault.code == "reasoning_missing":
            message.extra["fill"] = True
            return [replace(part, faults=part.faults[1:])]
        if fault.code != "tool_input_invalid":
            return ()
        function = {**as_map(part.native.get("function")), "arguments": "{}"}
        return [replace(part, native={**part.native, "function": function}, faults=part.faults[1:])]

    def prepare(self, work: Work) -> None:
        if work.policy.thinking != "keep":
            _drop_all_reasoning(work)

    def finish(self, work: Work) -> None:
        _fill_reasoning(work)
        if _must_end_with_user(work) and work.may(
            "add_last_user", work.messages[-1], "last_not_user"
        ):
            work.messages.append(self.say("user", work.policy.continue_text))

    def answer(self, call: Part, text: str) -> Part:
        native = {"role": "tool", "tool_call_id": call.id, "content": text}
        return Part(Kind.RESULT, native, id=call.id, stand_in=True)

    def results(self, parts: list[Part]) -> list[Message]:
        return [Message("tool", [part], part.native, part.index, touched=True) for part in parts]

    def say(self, role: str, text: str) -> Message:
        native = {"role": role, "content": text}
        part = Part(Kind.TEXT, text, place=".content", text=text)
        return Message(_ROLES[role], [part], native, touched=True)

    def with_id(self, part: Part, new: str) -> Part:
        key = "id" if part.kind is Kind.CALL else "tool_call_id"
        return replace(part, native={**part.native, key: new}, id=new)

    def joined(self, first: Part, second: Part, weld: Weld) -> Part | None:
        text = weld(first.text, second.text)
        if isinstance(first.native, str) and isinstance(second.native, str):
            return replace(first, native=text, text=text)
        return replace(first, native={"type": "text", "text": text}, text=text)

    def arguments(self, call: Part) -> Any:
        return as_map(call.native.get("function")).get("arguments")


# -- reading -------------------------------------------------------------------------------------


def _message(index: int, native: Any) -> Message:
    given = as_map(native)
    role = word(given.get("role"))
    message = Message(_ROLES.get(role, "user"), [], native, index)
    if not is_map(native):
        message.faults = (Fault("message_invalid"),)
    elif role not in _ROLES:
        message.faults = (Fault("role_invalid"),)
    elif role == "tool":
        message.parts = [_result(given, index)]
    elif role == "function":
        message.parts = [Part(Kind.OTHER, native, index)]
    else:
        message.parts = _parts(given, index)
        message.faults = _message_faults(given)
    return message


def _message_faults(given: Mapping[str, Any]) -> tuple[Fault, ...]:
    if given.get("role") == "assistant" and given.get("tool_calls") == []:
        return (Fault("tool_calls_empty"),)
    blocks = given.get("content")
    if is_list(blocks) and any(
        word(as_map(block).get("type")) in FOREIGN_BLOCKS for block in as_list(blocks)
    ):
        return (Fault("message_foreign"),)
    return ()


def _parts(given: Mapping[str, Any], index: int) -> list[Part]:
    parts: list[Part] = []
    if given.get("reasoning_content") is not None and given["role"] == "assistant":
        text = given["reasoning_content"]
        says = isinstance(text, str) and not blank(text)
        parts.append(Part(Kind.THINKING, text, index, ".reasoning_content", signed=says))
    content = given.get("content")
    if isinstance(content, str):
        parts.append(_text(content, content, index, ".content"))
    parts += [_block(block, index, n) for n, block in enumerate(as_list(content))]
    if given["role"] == "assistant":
        kept = ("refusal", "audio", "function_call")
        parts += [Part(Kind.OTHER, given[k], index, f".{k}") for k in kept if given.get(k)]
        calls = as_list(given.get("tool_calls"))
        parts += [_call(as_map(call), index, n) for n, call in enumerate(calls)]
    return parts


def _text(text: str, native: Any, index: int, place: str) -> Part:
    return Part(Kind.TEXT, native, index, place, text=text, blank=blank(text))


def _block(block: Any, index: int, n: int) -> Part:
    place, text = f".content[{n}]", as_map(block).get("text")
    if as_map(block).get("type") == "text" and isinstance(text, str):
        return _text(text, block, index, place)
    return Part(Kind.OTHER, block, index, place)


def _call(given: Mapping[str, Any], index: int, n: int) -> Part:
    function = as_map(given.get("function"))
    part = Part(Kind.CALL, given, index, f".tool_calls[{n}]")
    part.id = word(given.get("id"))
    part.name = word(function.get("name") or as_map(given.get("custom")).get("name"))
    if given.get("type", "function") == "function":
        arguments = function.get("arguments")
        part.cut = not is_object(arguments) and bool(arguments)
        part.faults = () if is_object(arguments) else (Fault("tool_input_invalid"),)
    return part


def is_object(arguments: object) -> bool:
    """Whether a call's arguments are the JSON text of an object."""
    if not isinstance(arguments, str):
        return False
    try:
        return is_map(json.loads(arguments))
    except ValueError:
        return False


def _result(given: Mapping[str, Any], index: int) -> Part:
    return Part(
        Kind.RESULT,
        given,
        index,
        id=word(given.get("tool_call_id")),
        name=word(given.get("name")),
        stand_in=looks_synthetic(text_of(given.get("content"))),
    )


def _converted(native: Any) -> list[dict[str, Any]]:
    """A message that is not in Chat's form as messages that are."""
    if isinstance(native, str):
        return [{"role": "user", "content": native}]
    given = as_map(native)
    if not given:
        return []
    role = word(given.get("role"))
    role = "assistant" if role == "model" else role
    return from_anthropic({**given, "role": role if role in _ROLES else "user"})


# -- writing -------------------------------------------------------------------------------------


def _content(message: Message) -> Any:
    said = [part for part in message.parts if part.place.startswith(".content")]
    if not said:
        return None
    if all(isinstance(part.native, str) for part in said):
        return "".join(part.native for part in said)
    return [
        {"type": "text", "text": part.native} if isinstance(part.native, str) else part.native
        for part in said
    ]


def _set(given: dict[str, Any], key: str, value: Any) -> None:
    if value:
        given[key] = value
    else:
        given.pop(key, None)


# -- reasoning and the last word -----------------------------------------------------------------


def _note_reasoning(body: Body, context: Context, messages: list[Message]) -> None:
    """Note on each message what the vendor's rule about `reasoning_content` says of it."""
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


def _reasoning_needed(body: Body, context: Context, assistants: list[Message]) -> bool:
    mode = as_map(body.get("thinking")).get("type")
    if context.vendor not in _REASONS or mode == "disabled":
        return False
    shown = any(part.signed for message in assistants for part in message.of(Kind.THINKING))
    return mode == "enabled" or shown or bool(THINKING_MODEL.search(context.model))


def _fill_reasoning(work: Work) -> None:
    text = work.policy.reasoning_text
    for message in work.messages:
        kept = [p for p in message.parts if p.kind is not Kind.THINKING or p.signed]
        if message.extra.pop("fill", None):
            kept.insert(0, Part(Kind.THINKING, text, place=".reasoning_content", signed=True))
            message.keep(kept)


def _drop_all_reasoning(work: Work) -> None:
    for message in work.messages:
        for part in message.of(Kind.THINKING):
            if work.may("drop_thinking", part, "reasoning_refused"):
                message.keep([other for other in message.parts if other is not part])


def _must_end_with_user(history: History) -> bool:
    context, messages = history.context, history.messages
    strict_end = (
        context.prefill is False
        or context.vendor == "mistral"
        or "deepseek-reasoner" in context.model
    )
    if not strict_end or not messages or messages[-1].role != "assistant":
        return False
    last = messages[-1]
    return not last.has(Kind.CALL) and not as_map(last.native).get("prefix")
