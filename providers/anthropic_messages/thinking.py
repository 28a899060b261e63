"""Thinking blocks in a Messages history: where they are allowed or required, and their repair.

A signed block may be dropped, but it must not be changed or moved, and it cannot be made. So a
repair here drops blocks, or changes the request so that no block is required. It turns thinking off
for this request. If the model always thinks, it adds an assistant message that ends the open tool
loop, because the next user message begins a new loop, which requires no earlier thinking.

Sources: Anthropic's pages on extended thinking, on thinking errors and on preserved thinking, and
the error texts quoted in public issues.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from continuation.history.grammar import History, HistoryContext, HistoryRepair
from continuation.history.tree import Fault, Kind, Message, Part
from continuation.history.types import Violation
from continuation.wire.json_values import as_list, as_map

_BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
_NOTHING: Final = Part(Kind.OTHER, None)
REFUSED_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("enabled", "adaptive"),
    "manual": ("adaptive",),
    "always": ("disabled", "enabled"),
}
"""The modes of thinking that a model refuses, by `Facts.thinking`."""


def strange(context: HistoryContext) -> bool:
    """Whether the model is known not to be Claude: other vendors offer this API, too."""
    return bool(context.model) and "claude" not in context.model.lower()


def check(history: History) -> Iterator[Violation]:
    """Yield violations for thinking that is not allowed, and for thinking that is missing."""
    for part, code in _misplaced(history):
        native = as_map(history.body[history.grammar.field][part.index])
        blocks = as_list(native.get("content"))
        first = str(as_map(blocks[0]).get("type", "text")) if blocks else "text"
        yield history.violation(Fault(code, first), part)
    if _refused_mode(history):
        yield history.violation(Fault("thinking_mode_unsupported", _mode(history)), "thinking")
    if (message := _loop_without_thinking(history)) is not None:
        kind = str(as_map(message.parts[0].native).get("type", "text"))
        yield history.violation(Fault("thinking_missing", kind), message)


def prepare(repair: HistoryRepair) -> None:
    """Drop thinking that is not allowed, before calls and results are paired."""
    codes = dict(_misplaced(repair))
    if repair.policy.thinking != "keep":
        codes = dict.fromkeys(repair.parts(Kind.THINKING), "thinking_foreign")
    repair.drop("drop_thinking", codes)
    asked = _mode(repair) in ("enabled", "adaptive")
    if repair.policy.thinking == "off" and (
        asked or strange(repair.context)
    ):  # other vendors' models think by default
        _turn_off(repair, "thinking_foreign")


def finish(repair: HistoryRepair) -> None:
    """Repair missing thinking and a refused mode, after the messages have been repaired."""
    _unbind(repair)
    always = repair.context.thinking == "always"
    if repair.policy.thinking == "off" and always:
        debt = bool(_open_loop(repair))  # its thinking is lost, but the model will think
    else:
        debt = _loop_without_thinking(repair) is not None and not repair.settings.get("thinking")
    if debt and not always:
        _turn_off(repair, "thinking_missing")
    elif debt and repair.may("close_loop", repair.messages[-1], "thinking_missing"):
        repair.messages.append(repair.grammar.text_message("assistant", repair.policy.loop_text))
        repair.messages.append(repair.grammar.text_message("user", repair.policy.continue_text))
    if (
        _refused_mode(repair)
        and "thinking" not in repair.settings
        and repair.may("thinking_off", "thinking", "thinking_mode_unsupported")
    ):
        adaptive = _mode(repair) == "enabled" and always
        repair.settings["thinking"] = {"type": "adaptive"} if adaptive else None


def _mode(history: History) -> str:
    return str(as_map(history.body.get("thinking")).get("type", ""))


def _refused_mode(history: History) -> bool:
    return _mode(history) in REFUSED_MODES.get(history.context.thinking or "", ())


def _turn_off(repair: HistoryRepair, why: str) -> None:
    if repair.context.thinking != "always" and repair.may("thinking_off", "thinking", why):
        repair.settings["thinking"] = {"type": "disabled"}


def _misplaced(history: History) -> Iterator[tuple[Part, str]]:
    """Yield the thinking parts that are not allowed, each with the code of the rule."""
    mode, able, messages = _mode(history), history.context.thinking, history.messages
    off = mode == "disabled" or (not mode and able in ("manual", "none"))
    # If thinking is off, only some servers refuse thinking in the open tool loop.
    silent = set(_open_loop(history)) if history.context.strict and off else set[Message]()
    # Manual thinking must be first in its message. Adaptive thinking may be in the middle.
    leads = history.context.strict or able == "manual" or mode == "enabled"
    for n, (message, first) in enumerate(zip(messages, _openings(messages), strict=True)):
        thoughts = message.of(Kind.THINKING) if message.role == "assistant" else []
        if not thoughts:
            continue
        if able == "none" or message in silent:
            code = "thinking_unsupported" if able == "none" else "thinking_when_off"
            yield from ((part, code) for part in thoughts)
            continue
        parts = message.parts
        if n + 1 == len(messages) or messages[n + 1].role != "assistant":
            end = len(parts)
            while end and parts[end - 1].kind is Kind.THINKING:
                end -= 1
            yield from ((part, "thinking_last") for part in parts[end:])
            thoughts = thoughts[: len(thoughts) - len(parts[end:])]
        if first.kind is not Kind.THINKING and leads:
            yield from ((part, "thinking_not_first") for part in thoughts)
        elif message.has(Kind.CALL):
            # No response has adjacent signed blocks, so a client has merged messages.
            plain = [part.signed and part.name == "thinking" for part in parts]
            for at, part in enumerate(parts):
                if plain[at] and sum(plain[max(at - 1, 0) : at + 2]) > 1:
                    yield part, "thinking_modified"


def _openings(messages: list[Message]) -> Iterator[Part]:
    """Yield for each message the first part of its run of messages of one role.

    The API joins such a run to one message.
    """
    for _, run in itertools.groupby(messages, lambda message: message.role):
        joined = list(run)
        opening = next((part for message in joined for part in message.parts), _NOTHING)
        yield from [opening] * len(joined)


def _open_loop(history: History) -> list[Message]:
    """Return the assistant messages of a tool loop that waits for its next step; `[]`: none.

    The loop begins after the last user message that has no result.
    """
    messages = history.messages
    at = len(messages)
    while at and messages[at - 1].role == "user":
        at -= 1
    if not any(message.has(Kind.RESULT) for message in messages[at:]):
        return []
    loop: list[Message] = []
    for message in reversed(messages[:at]):
        if message.role == "user" and not message.has(Kind.RESULT):
            break
        if message.role == "assistant":
            loop.append(message)
    return loop[::-1]


def _loop_without_thinking(history: History) -> Message | None:
    """Return the message without the leading thinking that manual mode requires, or None."""
    loop = _open_loop(history) if _mode(history) == "enabled" else []
    if not loop or not loop[0].parts or loop[0].parts[0].kind is Kind.THINKING:
        return None
    return loop[0]


def _unbind(repair: HistoryRepair) -> None:
    """Repair bound thinking after the first changed message, where it is not valid any more."""
    if not repair.context.binding or repair.policy.binding == "keep":
        return
    bound: list[Part] = []
    for n, message in enumerate(repair.messages):
        if message.touched or message.index != n:  # it is changed or new, or one before it is gone
            start = n if message.index > n and not message.touched else n + 1
            bound = [part for each in repair.messages[start:] for part in each.of(Kind.THINKING)]
            break
    if repair.policy.binding == "strip":
        repair.drop("drop_thinking", dict.fromkeys(bound, "thinking_bound"))
    elif bound and repair.may("let_server_drop_thinking", "thinking", "thinking_bound"):
        setting = {"prefix_mismatch_behavior": "drop_block"}
        thinking = as_map(repair.body.get("thinking")) or {"type": "adaptive"}
        repair.settings["thinking"] = {**thinking, "block_binding": setting}
        repair.headers["anthropic-beta"] = _BINDING_BETA
