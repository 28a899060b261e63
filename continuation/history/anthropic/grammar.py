"""Anthropic Messages: what `/v1/messages` accepts as a history.

Sources: Anthropic's error page and the error texts that public issues quote; the rules on thinking
are in `anthropic_thinking`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from continuation.history.anthropic import thinking
from continuation.history.anthropic.blocks import MENDERS, ROLES, blank_block, read_message
from continuation.history.anthropic.foreign import from_chat
from continuation.history.anthropic.rules import RULES
from continuation.history.fast_validate import glance_anthropic
from continuation.history.grammar import Grammar, History, Rule, Weld, Work
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
)
from continuation.history.types import Body, Dialect, Violation

__all__ = ["AnthropicGrammar"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
_LONGEST_ID: Final = 64


class AnthropicGrammar(Grammar):
    """The grammar of the Messages API and what speaks it: Bedrock, Vertex, other servers."""

    dialect: ClassVar[Dialect] = Dialect.ANTHROPIC
    field: ClassVar[str] = "messages"
    rules: ClassVar[Mapping[str, Rule]] = RULES
    calls_last: ClassVar[bool] = True

    def read(self, body: Body, context: Context) -> list[Message]:
        del context
        found = [read_message(n, native) for n, native in enumerate(as_list(body.get("messages")))]
        last = found[-1] if found else None
        if last and last.role == "assistant" and as_map(last.native).get("content") == "":
            last.parts = []  # a message without content, which the last one may be
        return found

    def write(self, message: Message) -> dict[str, Any]:
        role = message.role if message.role in ROLES else "user"
        single = [part.native for part in message.parts]
        content: Any = [
            {"type": "text", "text": native} if isinstance(native, str) else native
            for native in single
        ]
        if len(single) == 1 and isinstance(single[0], str):
            content = single[0]
        return {**as_map(message.native), "role": role, "content": content}

    def glance(self, body: Body, context: Context) -> bool:
        return glance_anthropic(body, context)

    # -- checks of its own -----------------------------------------------------------------------

    def check(self, history: History) -> Iterator[Violation]:
        yield from _check_ends(history)
        yield from _check_call_order(history)
        for part in _unanswered_asides(history.messages):
            yield history.violation("server_result_missing", part)
        for part in _orphan_aside_results(history.messages):
            yield history.violation("server_result_orphan", part)
        if _undeclared_tools(history):
            yield history.violation("tools_undeclared", "tools")
        for n, block in _blank_system(history.body):
            yield history.violation("system_text_empty", f"system[{n}]" if block else "system")
        yield from thinking.check(history)

    def vacuous(self, message: Message, *, last: bool) -> str | None:
        if message.parts or message.faults or message.role == "system":
            return None
        prefill = last and message.role == "assistant" and not message.touched
        return None if prefill else "message_empty"

    def folds(self, first: Message, second: Message, context: Context) -> bool:
        """The API joins neighbours itself; others do not, and those a repair made are ours."""
        if first.role != second.role or first.role == "system":
            return False
        ours = first.touched or second.touched or second.index - first.index != 1
        return context.strict or (ours and not second.has(Kind.THINKING))

    def folded(self, first: Message, second: Message) -> Message:
        one = super().folded(first, second)
        if one.role == "user":
            one.parts = one.of(Kind.RESULT) + [p for p in one.parts if p.kind is not Kind.RESULT]
        return one

    def id_fault(self, call: str, context: Context) -> str | None:
        if not _ID.match(call):
            return "tool_use_id_invalid"
        return "tool_use_id_too_long" if context.strict and len(call) > _LONGEST_ID else None

    def mint(self, old: str, context: Context) -> str:
        del context
        if _ID.match(old) and len(old) <= _LONGEST_ID:
            return old
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", old)[:40]
        return f"{plain or 'call'}_{hashlib.sha256(old.encode()).hexdigest()[:12]}"

    # -- repair ----------------------------------------------------------------------------------

    def reshape(self, work: Work, message: Message, fault: Fault) -> Iterable[Message]:
        del work, fault
        return [
            Message(read.role, read.parts, read.native, message.index, touched=True)
            for native in from_chat(message.native)
            for read in [read_message(message.index, native)]
        ]

    def mend(self, work: Work, message: Message, part: Part, fault: Fault) -> Iterable[Part]:
        del work, message
        mender = MENDERS.get(fault.code)
        return mender(part) if mender else ()

    def prepare(self, work: Work) -> None:
        work.messages = [each for message in work.messages for each in _by_side(message)]
        thinking.prepare(work)
        work.messages = [each for message in work.messages for each in _calls_last(work, message)]

    def finish(self, work: Work) -> None:
        _drop_asides(work)
        thinking.finish(work)
        _mend_ends(work)
        _declare_tools(work)
        _mend_system(work)

    def answer(self, call: Part, text: str) -> Part:
        native = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": text,
            "is_error": True,
        }
        return Part(Kind.RESULT, native, id=call.id, stand_in=True)

    def say(self, role: str, text: str) -> Message:
        part = Part(Kind.TEXT, {"type": "text", "text": text}, text=text)
        return Message(ROLES[role], [part], touched=True)

    def with_id(self, part: Part, new: str) -> Part:
        key = "id" if part.kind is Kind.CALL else "tool_use_id"
        return replace(part, native={**part.native, key: new}, id=new)

    def joined(self, first: Part, second: Part, weld: Weld) -> Part | None:
        blocks = (first.native, second.native)
        if any(not isinstance(block, str) and block.keys() > {"type", "text"} for block in blocks):
            return None
        text = weld(first.text, second.text)
        return Part(Kind.TEXT, {"type": "text", "text": text}, first.index, first.place, text=text)

    def arguments(self, call: Part) -> Any:
        return call.native.get("input")


# -- passes --------------------------------------------------------------------------------------


def _by_side(message: Message) -> list[Message]:
    """Give calls to the assistant and results to the user where a message mixes them."""
    wrong = Kind.CALL if message.role == "user" else Kind.RESULT
    if message.role == "system" or not any(_strays(part, wrong) for part in message.parts):
        return [message]
    other: Role = "assistant" if message.role == "user" else "user"
    split: list[Message] = []
    for part in message.parts:
        role = other if _strays(part, wrong) else message.role
        if not split or split[-1].role != role:
            native = message.native if role == message.role and not split else None
            split.append(Message(role, [], native, message.index, touched=True))
        split[-1].parts.append(part)
    return split


def _strays(part: Part, wrong: Kind) -> bool:
    return part.kind is wrong and not part.faults


def _first_after_calls(message: Message) -> int | None:
    """Number of the first part that must not follow the calls of its message."""
    called = False
    for n, part in enumerate(message.parts):
        called = called or part.kind is Kind.CALL
        if called and part.kind in (Kind.TEXT, Kind.OTHER):
            return n
    return None


def _check_call_order(history: History) -> Iterator[Violation]:
    for message in history.messages:
        at = _first_after_calls(message) if message.role == "assistant" else None
        if at is not None:
            ids = ", ".join(part.id for part in message.parts[:at] if part.kind is Kind.CALL)
            fault = Fault("tool_use_not_last", ids, call=message.index)
            yield history.violation("tool_use_not_last", message.parts[at], fault)


def _calls_last(work: Work, message: Message) -> list[Message]:
    """Move what follows calls before them; with signed thinking, behind their results instead."""
    at = _first_after_calls(message) if message.role == "assistant" else None
    if at is None or not work.may("move_text", message.parts[at], "tool_use_not_last"):
        return [message]
    if not any(part.signed for part in message.parts):
        calls = message.of(Kind.CALL)
        message.keep([part for part in message.parts if part.kind is not Kind.CALL] + calls)
        return [message]
    rest = Message("assistant", message.parts[at:], None, message.index, touched=True)
    message.keep(message.parts[:at])
    return [message, *_calls_last(work, rest)]


def _unanswered_asides(messages: list[Message]) -> list[Part]:
    """Server calls without result whose turn is over.

    A turn goes on while only the assistant speaks or only client tools answer (`pause_turn`), so
    an open server call at the end of the history is paused, not abandoned.
    """
    abandoned: list[Part] = []
    waiting: dict[str, Part] = {}
    for message in messages:
        for part in message.parts:
            if part.kind is Kind.ASIDE:
                waiting[part.id] = part
            elif part.kind is Kind.ASIDE_RESULT:
                waiting.pop(part.id, None)
        if message.role == "user" and any(part.kind is not Kind.RESULT for part in message.parts):
            abandoned += waiting.values()
            waiting = {}
    return abandoned


def _orphan_aside_results(messages: list[Message]) -> list[Part]:
    asked = {part.id for message in messages for part in message.of(Kind.ASIDE)}
    return [
        part
        for message in messages
        for part in message.of(Kind.ASIDE_RESULT)
        if part.id not in asked
    ]


def _drop_asides(work: Work) -> None:
    codes = dict.fromkeys(map(id, _unanswered_asides(work.messages)), "server_result_missing")
    codes.update(
        dict.fromkeys(map(id, _orphan_aside_results(work.messages)), "server_result_orphan")
    )
    for message in work.messages:
        kept = [
            part
            for part in message.parts
            if id(part) not in codes or not work.may("drop_call", part, codes[id(part)])
        ]
        if len(kept) < len(message.parts):
            message.keep(kept)


def _undeclared_tools(history: History) -> bool:
    """Only a request can fail to declare tools; a bare history, without `max_tokens`, cannot."""
    body = history.body
    if body.get("tools") or "max_tokens" not in body:
        return False
    return any(message.has(Kind.CALL, Kind.RESULT) for message in history.messages)


def _declare_tools(work: Work) -> None:
    if _undeclared_tools(work) and work.may("declare_tools", "tools", "tools_undeclared"):
        names = {part.name: None for m in work.messages for part in m.of(Kind.CALL) if part.name}
        schema = {"type": "object", "additionalProperties": True}
        work.settings["tools"] = [{"name": name, "input_schema": schema} for name in names]
        work.settings["tool_choice"] = {"type": "none"}


def _blank_system(body: Body) -> list[tuple[int, bool]]:
    system = body.get("system")
    if isinstance(system, str):
        return [(0, False)] if system and blank(system) else []
    return [(n, True) for n, block in enumerate(as_list(system)) if blank_block(block)]


def _mend_system(work: Work) -> None:
    if _blank_system(work.body) and work.may("drop_text", "system", "system_text_empty"):
        blocks = [block for block in as_list(work.body["system"]) if not blank_block(block)]
        work.settings["system"] = blocks or None


# -- first and last message ----------------------------------------------------------------------


def _check_ends(history: History) -> Iterator[Violation]:
    if not history.messages:
        return
    first, last = history.messages[0], history.messages[-1]
    if first.role == "assistant":
        yield history.violation("first_not_user", first)
    text = _prefill(history)
    if text is None:
        return
    if _refuses_prefill(history):
        yield history.violation("prefill_unsupported", last)
    elif text.text != text.text.rstrip():
        yield history.violation("trailing_whitespace", text)


def _prefill(history: History) -> Part | None:
    """The text that ends a history which the assistant ends, if that is how it ends."""
    last = history.messages[-1]
    if last.role != "assistant" or not last.parts or last.parts[-1].blank:
        return None
    return last.parts[-1] if last.parts[-1].kind is Kind.TEXT else None


def _refuses_prefill(history: History) -> bool:
    thinks = as_map(history.body.get("thinking")).get("type") in ("enabled", "adaptive")
    return history.context.prefill is False or thinks


def _mend_ends(work: Work) -> None:
    if not work.messages:
        return
    if work.messages[0].role == "assistant" and work.may(
        "add_first_user", work.messages[0], "first_not_user"
    ):
        work.messages.insert(0, work.grammar.say("user", work.policy.head_text))
    text = _prefill(work)
    if text is None:
        return
    last = work.messages[-1]
    if _refuses_prefill(work):
        if work.may("add_last_user", last, "prefill_unsupported"):
            work.messages.append(work.grammar.say("user", work.policy.continue_text))
    elif text.text != text.text.rstrip() and work.may("trim_text", text, "trailing_whitespace"):
        last.keep([*last.parts[:-1], _trimmed(text)])


def _trimmed(part: Part) -> Part:
    text = part.text.rstrip()
    native = text if isinstance(part.native, str) else {**part.native, "text": text}
    return replace(part, native=native, text=text)
