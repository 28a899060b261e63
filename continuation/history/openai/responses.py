"""OpenAI Responses: what `/v1/responses` accepts as `input`.

The list is flat: what other dialects put into one message are neighbouring items here. They are
read as groups: a run of the assistant's items is one message, and is written back item by item.

Sources: OpenAI's error texts as public issues quote them; codex for the kinds of calls and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from continuation.history.grammar import Grammar, History, JoinTexts, Rule, Work
from continuation.history.openai import fast_path, items
from continuation.history.openai.rules import RESPONSES_RULES
from continuation.history.tree import Fault, HistoryContext, Kind, Message, Part, Role, text_of
from continuation.history.types import Body, HistoryFormat, Violation
from continuation.wire.json_values import as_list, as_map


class ResponsesGrammar(Grammar):
    """The grammar of `input`."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.OPENAI_RESPONSES
    field: ClassVar[str] = "input"
    rules: ClassVar[Mapping[str, Rule]] = RESPONSES_RULES
    adjacent: ClassVar[bool] = False
    one_message: ClassVar[bool] = False

    def fast_validate(self, body: Body, context: HistoryContext) -> bool:
        return type(body.get("input")) is str or super().fast_validate(body, context)

    def plainly_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        return fast_path.responses_plainly_valid(messages, body)

    # -- reading and writing ---------------------------------------------------------------------

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        messages: list[Message] = []
        aliases: dict[str, str] = {}
        for n, native in enumerate(as_list(body.get("input"))):
            message = items.read_item(native, n, aliases)
            if message.role == "assistant" and messages and messages[-1].role == "assistant":
                messages[-1].parts += message.parts
            else:
                messages.append(message)
        _note_ids(body, messages)
        return messages

    def read_message(self, index: int, native: Any) -> Message:
        return items.read_item(native, index, {})

    def written(self, message: Message, native: list[Any]) -> list[tuple[Any, int]]:
        if message.faults:
            return [(message.native, message.index)]
        return [(part.native, part.index) for part in message.parts]

    def text_message(self, role: str, text: str) -> Message:
        kind = "output_text" if role == "assistant" else "input_text"
        native = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        speaker: Role = "assistant" if role == "assistant" else "user"
        return Message(speaker, [Part(Kind.TEXT, native, text=text)], native, touched=True)

    def synthetic_result(self, call: Part, text: str) -> Part:
        native = items.answer(call.native, call.id, text)
        return Part(Kind.RESULT, native, id=call.id, synthetic=True)

    def with_id(self, part: Part, new: str) -> Part:
        return replace(part, native={**part.native, "call_id": new}, id=new)

    def arguments(self, call: Part) -> Any:
        return call.native.get("arguments", call.native.get("input", call.native.get("action")))

    def result_text(self, result: Part) -> str:
        output = as_map(result.native).get("output")
        return output if isinstance(output, str) else ""

    # -- rules -----------------------------------------------------------------------------------

    def check(self, history: History) -> Iterator[Violation]:
        for part in _dangling(history.messages):
            yield history.violation("reasoning_dangling", part)
        for part in _without_reasoning(history):
            fault = Fault("reasoning_missing", id=str(part.native["id"]))
            yield history.violation("reasoning_missing", part, fault)

    def calls_on_server(self, history: History) -> bool:
        return any(history.body.get(key) for key in ("previous_response_id", "conversation"))

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        return None if call else "tool_use_id_invalid"

    def new_id(self, old: str, context: HistoryContext) -> str:
        return old or "call_unnamed"

    def can_answer(self, call: Part) -> bool:
        """A computer call wants a picture of the screen, which no words can stand for."""
        return items.kind_of(call.native) != "computer_call"

    def same_call(self, first: Part, second: Part) -> bool:
        return all(
            first.native.get(k) == second.native.get(k) for k in ("name", "arguments", "input")
        )

    # -- repair ----------------------------------------------------------------------------------

    def converted(self, native: Any) -> list[Any]:
        return items.from_chat(native)

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        rest = part.faults[1:]
        if fault.code == "tool_input_invalid":
            return [replace(part, native={**part.native, "arguments": "{}"}, faults=rest)]
        if fault.code in ("content_type_invalid", "input_type_invalid"):
            return [replace(part, native=items.retyped(part.native), faults=rest)]
        if fault.code in ("item_id_invalid", "item_id_reused"):
            if part.kind is Kind.THINKING and not part.native.get("encrypted_content"):
                return []  # reasoning without id or content of its own is nothing
            return [replace(self.after_join(part), faults=rest)]
        message.lacks_reasoning = message.lacks_reasoning or part.kind is Kind.THINKING
        return []

    def prepare(self, work: Work) -> None:
        if work.policy.thinking != "keep":
            codes = dict.fromkeys(work.parts(Kind.THINKING), "encrypted_content_invalid")
            for message in work.drop("drop_thinking", codes):
                message.lacks_reasoning = True
        for message in work.messages:
            if message.lacks_reasoning:  # then its items must not be known as the response's own
                _strip_ids(work, [part for part in message.parts if _has_known_id(part)])

    def finish(self, work: Work) -> None:
        dangling = _dangling(work.messages)
        work.drop("drop_thinking", dict.fromkeys(dangling, "reasoning_dangling"))
        work.messages = [message for message in work.messages if message.parts or message.faults]
        _strip_ids(work, _without_reasoning(work))

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        native = items.joined(first.native, second.native, join)
        return replace(first, native=native, text=text_of(native["content"]))

    def after_join(self, part: Part) -> Part:
        """Its reasoning is gone and its response forgotten, so an id would lead nowhere."""
        return replace(part, native={k: v for k, v in part.native.items() if k != "id"})


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
            prefix = items.PREFIXES.get(items.kind_of(part.native))
            if prefix and not (name.startswith(prefix) and items.ITEM_ID.match(name)):
                part.faults += (Fault("item_id_invalid", prefix, name),)
        first.setdefault(name, part.native)


def _has_known_id(part: Part) -> bool:
    """Whether it has an id by which a server knows it, and need not have one."""
    given = as_map(part.native)
    known = isinstance(given.get("id"), str) and items.kind_of(given) in items.PREFIXES
    return known and part.kind is not Kind.THINKING


def _strip_ids(work: Work, parts: list[Part]) -> None:
    for part in parts:
        if work.may("strip_id", part, "reasoning_missing"):
            part.native = work.grammar.after_join(part).native


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


def _without_reasoning(history: History) -> list[Part]:
    """Items with an id but without reasoning before them, in a history that otherwise reasons.

    Only a server that has stored the response can mind, and some answers come without reasoning, so
    this is asked only where the caller wants to be strict.
    """
    groups = [message for message in history.messages if message.role == "assistant"]
    silent = [message for message in groups if not message.has(Kind.THINKING)]
    if not history.context.strict or len(silent) == len(groups):
        return []
    return [part for message in silent for part in message.parts if _has_known_id(part)]
