"""OpenAI Responses: what `/v1/responses` accepts as `input`.

The list is flat: what other dialects put into one message are neighbouring items here. They are
read as groups: a run of the assistant's items is one message, and is written back item by item.

Sources: OpenAI's error texts as public issues quote them; codex for the kinds of calls and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.fast_validate_openai import glance_responses
from continuation.history.grammar import Grammar, History, Rule, Weld, Work
from continuation.history.openai import items
from continuation.history.openai.rules import RESPONSES_RULES
from continuation.history.tree import (
    Context,
    Fault,
    Kind,
    Message,
    Part,
    Role,
    as_list,
    as_map,
    text_of,
)
from continuation.history.types import Body, Dialect, Violation

__all__ = ["ResponsesGrammar"]

_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


class ResponsesGrammar(Grammar):
    """The grammar of `input`."""

    dialect: ClassVar[Dialect] = Dialect.OPENAI_RESPONSES
    field: ClassVar[str] = "input"
    rules: ClassVar[Mapping[str, Rule]] = RESPONSES_RULES
    adjacent: ClassVar[bool] = False
    one_message: ClassVar[bool] = False

    def read(self, body: Body, context: Context) -> list[Message]:
        del context
        messages: list[Message] = []
        aliases: dict[str, str] = {}
        for n, native in enumerate(as_list(body.get("input"))):
            role, part = items.read(native, n, aliases)
            faults = (Fault(part.name),) if part.kind is Kind.OTHER and role == "user" else ()
            if faults:
                messages.append(Message("user", [], native, n, faults=faults))
            elif role == "assistant" and messages and messages[-1].role == "assistant":
                messages[-1].parts.append(part)
            else:
                messages.append(Message(role, [part], native, n))
        _note_ids(body, messages)
        return messages

    def write(self, message: Message) -> Any:
        """Unused: items are written by `written`."""
        return message.native

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        if message.faults:
            return [(message.native, message.index)]
        del native
        return [(part.native, part.index) for part in message.parts]

    def glance(self, body: Body, context: Context) -> bool:
        return glance_responses(body, context)

    def check(self, history: History) -> Iterator[Violation]:
        for part in _dangling(history.messages):
            yield history.violation("reasoning_dangling", part)
        for part in _unreasoned(history):
            fault = Fault("reasoning_missing", id=str(part.native["id"]))
            yield history.violation("reasoning_missing", part, fault)

    def anchored(self, history: History) -> bool:
        return any(history.body.get(key) for key in ("previous_response_id", "conversation"))

    def id_fault(self, call: str, context: Context) -> str | None:
        del context
        return None if call else "tool_use_id_invalid"

    def mint(self, old: str, context: Context) -> str:
        del context
        return old or "call_unnamed"

    def answerable(self, call: Part) -> bool:
        return items.answerable(call.native)

    def same_call(self, first: Part, second: Part) -> bool:
        return all(
            first.native.get(k) == second.native.get(k) for k in ("name", "arguments", "input")
        )

    # -- repair ----------------------------------------------------------------------------------

    def reshape(self, work: Work, message: Message, fault: Fault) -> Iterable[Message]:
        del work, fault
        made: list[Message] = []
        for native in items.from_chat(message.native):
            role, part = items.read(native, message.index, {})
            made.append(Message(role, [part], native, message.index, touched=True))
        return made

    def mend(self, work: Work, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        del work
        rest = part.faults[1:]
        if fault.code == "tool_input_invalid":
            return [replace(part, native={**part.native, "arguments": "{}"}, faults=rest)]
        if fault.code in ("content_type_invalid", "input_type_invalid"):
            return [replace(part, native=items.retyped(part.native), faults=rest)]
        if fault.code in ("item_id_invalid", "item_id_reused"):
            return _without_id(part, rest)
        if part.kind is Kind.THINKING:
            message.extra["unreasoned"] = True
        return ()

    def prepare(self, work: Work) -> None:
        if work.policy.thinking != "keep":
            _drop_reasoning(work)
        for message in work.messages:
            if message.extra.pop("unreasoned", None):
                _strip_ids(work, message)

    def finish(self, work: Work) -> None:
        dangling = {id(part) for part in _dangling(work.messages)}
        for message in work.messages:
            kept = [
                part
                for part in message.parts
                if id(part) not in dangling
                or not work.may("drop_thinking", part, "reasoning_dangling")
            ]
            if len(kept) < len(message.parts):
                message.keep(kept)
        work.messages = [message for message in work.messages if message.parts or message.faults]
        for part in _unreasoned(work):
            _strip_id(work, part)

    def answer(self, call: Part, text: str) -> Part:
        return Part(
            Kind.RESULT, items.answer(call.native, call.id, text), id=call.id, stand_in=True
        )

    def results(self, parts: list[Part]) -> list[Message]:
        return [Message("tool", [part], part.native, part.index, touched=True) for part in parts]

    def result_text(self, result: Part) -> str:
        output = as_map(result.native).get("output")
        return output if isinstance(output, str) else ""

    def say(self, role: str, text: str) -> Message:
        kind = "output_text" if role == "assistant" else "input_text"
        native = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        speaker: Role = "assistant" if role == "assistant" else "user"
        return Message(speaker, [Part(Kind.TEXT, native, text=text)], native, touched=True)

    def with_id(self, part: Part, new: str) -> Part:
        return replace(part, native={**part.native, "call_id": new}, id=new)

    def joined(self, first: Part, second: Part, weld: Weld) -> Part | None:
        native = items.joined(first.native, second.native, weld)
        return replace(first, native=native, text=text_of(native["content"]))

    def continued(self, part: Part) -> Part:
        """Its reasoning is gone and its response forgotten, so an id would lead nowhere."""
        return _bare(part)

    def arguments(self, call: Part) -> Any:
        return call.native.get("arguments", call.native.get("input", call.native.get("action")))


# -- ids -----------------------------------------------------------------------------------------


def _note_ids(body: Body, messages: list[Message]) -> None:
    """Note what is wrong with the items' own ids."""
    first: dict[str, Any] = {}
    unstored = body.get("store") is False
    for part in (part for message in messages for part in message.parts):
        name = as_map(part.native).get("id")
        if not isinstance(name, str):
            continue
        if unstored and items.lives_on_server(part.native):
            part.faults += (Fault("item_not_stored", id=name),)
        elif name in first:
            same = first[name] == part.native
            part.faults += (Fault("item_duplicate" if same else "item_id_reused", id=name),)
        else:
            prefix = _PREFIXES.get(items.kind_of(part.native))
            if prefix is not None and not (name.startswith(prefix) and _ID.match(name)):
                part.faults += (Fault("item_id_invalid", prefix, name),)
        first.setdefault(name, part.native)


def _bare(part: Part) -> Part:
    native = {key: value for key, value in part.native.items() if key != "id"}
    return replace(part, native=native)


def _without_id(part: Part, faults: tuple[Fault, ...]) -> list[Part]:
    """The item without its id; reasoning without id or content of its own is nothing."""
    if part.kind is Kind.THINKING and not part.native.get("encrypted_content"):
        return []
    return [replace(_bare(part), faults=faults)]


def _strip_ids(work: Work, message: Message) -> None:
    """Items whose reasoning is gone must not be known as those of the response."""
    for part in message.parts:
        if part.kind is not Kind.THINKING:
            _strip_id(work, part)


def _strip_id(work: Work, part: Part) -> None:
    known = (
        isinstance(as_map(part.native).get("id"), str) and items.kind_of(part.native) in _PREFIXES
    )
    if known and work.may("strip_id", part, "reasoning_missing"):
        part.native = _bare(part).native


# -- reasoning -----------------------------------------------------------------------------------


def _dangling(messages: list[Message]) -> list[Part]:
    """Reasoning that no item of the assistant follows."""
    dangling: list[Part] = []
    for message in messages:
        for part in reversed(message.parts):
            if part.kind is not Kind.THINKING:
                break
            dangling.append(part)
    return dangling


def _unreasoned(history: History) -> list[Part]:
    """Items with an id but without reasoning before them, in a history that otherwise reasons.

    Only a server that has stored the response can mind, and some answers come without reasoning, so
    this is asked only where the caller wants to be strict.
    """
    groups = [message for message in history.messages if message.role == "assistant"]
    if not history.context.strict or not any(group.has(Kind.THINKING) for group in groups):
        return []
    return [
        part
        for group in groups
        if not group.has(Kind.THINKING)
        for part in group.parts
        if isinstance(part.native.get("id"), str) and items.kind_of(part.native) in _PREFIXES
    ]


def _drop_reasoning(work: Work) -> None:
    for message in work.messages:
        for part in message.of(Kind.THINKING):
            if work.may("drop_thinking", part, "encrypted_content_invalid"):
                message.keep([other for other in message.parts if other is not part])
                message.extra["unreasoned"] = True
