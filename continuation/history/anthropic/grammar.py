"""Anthropic Messages: what `/v1/messages` accepts as a history.

Sources: Anthropic's error page and the error texts that public issues quote; the rules on thinking
are in `thinking`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.anthropic import fast_path, thinking
from continuation.history.anthropic.blocks import (
    ID,
    ROLES,
    blank_block,
    from_chat,
    read_message,
    repaired_part,
)
from continuation.history.anthropic.rules import RULES
from continuation.history.grammar import Grammar, History, JoinTexts, Rule, Work
from continuation.history.passes import split_by_side
from continuation.history.tree import Fault, HistoryContext, Kind, Message, Part, blank
from continuation.history.types import Body, HistoryFormat, Violation
from continuation.wire.json_values import as_list, as_map

_LONGEST_ID: Final = 64


class AnthropicGrammar(Grammar):
    """The grammar of the Messages API and what speaks it: Bedrock, Vertex, other servers."""

    dialect: ClassVar[HistoryFormat] = HistoryFormat.ANTHROPIC
    field: ClassVar[str] = "messages"
    rules: ClassVar[Mapping[str, Rule]] = RULES
    calls_last: ClassVar[bool] = True

    def plainly_valid(self, messages: list[Any], body: Body, context: HistoryContext) -> bool:
        return fast_path.plainly_valid(messages, body, context)

    # -- reading and writing ---------------------------------------------------------------------

    def read(self, body: Body, context: HistoryContext) -> list[Message]:
        found = super().read(body, context)
        last = found[-1] if found else None
        if last and last.role == "assistant" and as_map(last.native).get("content") == "":
            last.parts = []  # a message without content, which the last one may be
        return found

    def read_message(self, index: int, native: Any) -> Message:
        return read_message(index, native)

    def write(self, message: Message) -> dict[str, Any]:
        natives = [part.native for part in message.parts]
        content: Any = [
            {"type": "text", "text": native} if isinstance(native, str) else native
            for native in natives
        ]
        if len(natives) == 1 and isinstance(natives[0], str):
            content = natives[0]
        role = message.role if message.role in ROLES else "user"
        return {**as_map(message.native), "role": role, "content": content}

    def text_message(self, role: str, text: str) -> Message:
        part = Part(Kind.TEXT, {"type": "text", "text": text}, text=text)
        return Message(ROLES[role], [part], touched=True)

    def synthetic_result(self, call: Part, text: str) -> Part:
        native = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": text,
            "is_error": True,
        }
        return Part(Kind.RESULT, native, id=call.id, synthetic=True)

    def with_id(self, part: Part, new: str) -> Part:
        key = "id" if part.kind is Kind.CALL else "tool_use_id"
        return replace(part, native={**part.native, key: new}, id=new)

    def arguments(self, call: Part) -> Any:
        return call.native.get("input")

    # -- rules -----------------------------------------------------------------------------------

    def check(self, history: History) -> Iterator[Violation]:
        yield from _check_ends(history)
        for message in history.messages:
            if (at := _first_after_calls(message)) is not None:
                ids = ", ".join(part.id for part in message.parts[:at] if part.kind is Kind.CALL)
                fault = Fault("tool_use_not_last", ids, call=message.index)
                yield history.violation("tool_use_not_last", message.parts[at], fault)
        for part, code in _unpaired_on_server(history).items():
            yield history.violation(code, part)
        if _undeclared_tools(history):
            yield history.violation("tools_undeclared", "tools")
        for path in _blank_system(history.body):
            yield history.violation("system_text_empty", path)
        yield from thinking.check(history)

    def empty_fault(self, message: Message, *, last: bool) -> str | None:
        if message.parts or message.faults or message.role == "system":
            return None
        prefill = last and message.role == "assistant" and not message.touched
        return None if prefill else "message_empty"

    def must_merge(self, first: Message, second: Message, context: HistoryContext) -> bool:
        """The API joins neighbours itself; others do not, and those a repair made are ours."""
        if first.role != second.role or first.role == "system":
            return False
        ours = first.touched or second.touched or second.index - first.index != 1
        return context.strict or (ours and not second.has(Kind.THINKING))

    def merged(self, first: Message, second: Message) -> Message:
        one = super().merged(first, second)
        if one.role == "user":
            one.parts = one.of(Kind.RESULT) + [p for p in one.parts if p.kind is not Kind.RESULT]
        return one

    def id_fault(self, call: str, context: HistoryContext) -> str | None:
        if not ID.match(call):
            return "tool_use_id_invalid"
        return "tool_use_id_too_long" if context.strict and len(call) > _LONGEST_ID else None

    def new_id(self, old: str, context: HistoryContext) -> str:
        if ID.match(old) and len(old) <= _LONGEST_ID:
            return old
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", old)[:40]
        return f"{plain or 'call'}_{hashlib.sha256(old.encode()).hexdigest()[:12]}"

    # -- repair ----------------------------------------------------------------------------------

    def converted(self, native: Any) -> list[Any]:
        return from_chat(native)

    def repaired_part(self, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        return repaired_part(part, fault)

    def prepare(self, work: Work) -> None:
        split_by_side(work)
        thinking.prepare(work)
        work.messages = [each for message in work.messages for each in _calls_last(work, message)]

    def finish(self, work: Work) -> None:
        work.drop("drop_call", _unpaired_on_server(work))
        thinking.finish(work)
        _repair_ends(work)
        if _undeclared_tools(work) and work.may("declare_tools", "tools", "tools_undeclared"):
            names = dict.fromkeys(part.name for part in work.parts(Kind.CALL) if part.name)
            schema = {"type": "object", "additionalProperties": True}
            work.settings["tools"] = [{"name": name, "input_schema": schema} for name in names]
            work.settings["tool_choice"] = {"type": "none"}
        if _blank_system(work.body) and work.may("drop_text", "system", "system_text_empty"):
            blocks = [block for block in as_list(work.body["system"]) if not blank_block(block)]
            work.settings["system"] = blocks or None

    def joined_text(self, first: Part, second: Part, join: JoinTexts) -> Part | None:
        blocks = (first.native, second.native)
        if any(not isinstance(block, str) and block.keys() > {"type", "text"} for block in blocks):
            return None
        text = join(first.text, second.text)
        return Part(Kind.TEXT, {"type": "text", "text": text}, first.index, first.place, text=text)


# -- calls ---------------------------------------------------------------------------------------


def _first_after_calls(message: Message) -> int | None:
    """Number of the first part that must not follow the calls of its message."""
    called = False
    for n, part in enumerate(message.parts if message.role == "assistant" else ()):
        called = called or part.kind is Kind.CALL
        if called and part.kind in (Kind.TEXT, Kind.OTHER):
            return n
    return None


def _calls_last(work: Work, message: Message) -> list[Message]:
    """Move what follows calls before them; with signed thinking, behind their results instead."""
    at = _first_after_calls(message)
    if at is None or not work.may("move_text", message.parts[at], "tool_use_not_last"):
        return [message]
    if not any(part.signed for part in message.parts):
        calls = message.of(Kind.CALL)
        message.keep([part for part in message.parts if part.kind is not Kind.CALL] + calls)
        return [message]
    rest = Message("assistant", message.parts[at:], None, message.index, touched=True)
    message.keep(message.parts[:at])
    return [message, *_calls_last(work, rest)]


def _unpaired_on_server(history: History) -> dict[Part, str]:
    """Calls that the server answers itself, without result though their turn is over; and results.

    A turn goes on while only the assistant speaks or only client tools answer (`pause_turn`), so
    an open server call at the end of the history is paused, not abandoned.
    """
    unpaired: dict[Part, str] = {}
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
    asked = {part.id for part in history.parts(Kind.SERVER_CALL)}
    results = history.parts(Kind.SERVER_RESULT)
    orphans = [part for part in results if part.id not in asked]
    return unpaired | dict.fromkeys(orphans, "server_result_orphan")


def _undeclared_tools(history: History) -> bool:
    """Only a request can fail to declare tools; a bare history, without `max_tokens`, cannot."""
    body = history.body
    if body.get("tools") or "max_tokens" not in body:
        return False
    return any(message.has(Kind.CALL, Kind.RESULT) for message in history.messages)


def _blank_system(body: Body) -> list[str]:
    """Paths of system texts that say nothing."""
    system = body.get("system")
    if isinstance(system, str):
        return ["system"] if system and blank(system) else []
    return [f"system[{n}]" for n, block in enumerate(as_list(system)) if blank_block(block)]


# -- first and last message ----------------------------------------------------------------------


def _prefill(history: History) -> Part | None:
    """The text that ends a history which the assistant ends, if that is how it ends."""
    last = history.messages[-1] if history.messages else None
    if last is None or last.role != "assistant" or not last.parts or last.parts[-1].blank:
        return None
    return last.parts[-1] if last.parts[-1].kind is Kind.TEXT else None


def _refuses_prefill(history: History) -> bool:
    thinks = as_map(history.body.get("thinking")).get("type") in ("enabled", "adaptive")
    return history.context.prefill is False or thinks


def _check_ends(history: History) -> Iterator[Violation]:
    if history.messages and history.messages[0].role == "assistant":
        yield history.violation("first_not_user", history.messages[0])
    text = _prefill(history)
    if text is not None and _refuses_prefill(history):
        yield history.violation("prefill_unsupported", history.messages[-1])
    elif text is not None and text.text != text.text.rstrip():
        yield history.violation("trailing_whitespace", text)


def _repair_ends(work: Work) -> None:
    if work.messages and work.messages[0].role == "assistant":
        work.begin_with_user()
    last = _prefill(work)
    if last is not None and _refuses_prefill(work):
        work.end_with_user("prefill_unsupported")
    elif last is not None and last.text != last.text.rstrip():
        text = last.text.rstrip()
        native = text if isinstance(last.native, str) else {**last.native, "text": text}
        trimmed = replace(last, native=native, text=text)
        work.replace("trim_text", "trailing_whitespace", {last: trimmed})
