"""Thinking blocks in a Messages history: where they may stand, and what is safe to do about them.

A signed block is Anthropic's word about Anthropic's thought: it may be left out, never be changed,
moved or made up. So every repair here drops blocks, or changes the request so that they are not
needed: thinking off for this request, or, where a model always thinks, a tool loop that is closed
by a turn of ours, after which a new turn begins without debts.

Sources: Anthropic's pages on extended thinking, on thinking errors and on preserved thinking, and
the error texts quoted in public issues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from continuation.history.grammar import History, Work
from continuation.history.tree import Fault, Kind, Message, Part, as_map, blank, is_list
from continuation.history.types import Violation

__all__ = ["check", "finish", "prepare", "read_redacted", "read_thinking"]

_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/_=-]+\Z")
#: Google's stand-in for a lost signature, and how OpenAI's encrypted reasoning begins.
_FOREIGN: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way", "gAAAA")
_BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"


def read_thinking(block: Mapping[str, Any], index: int, place: str) -> Part:
    """A `thinking` block; without a plausible signature it is nothing a provider will take back."""
    signature, text = block.get("signature"), block.get("thinking")
    says = isinstance(text, str) and not blank(text)
    if not signature or not isinstance(signature, str):
        code = "thinking_unsigned" if says else "thinking_blank"
    elif not _SIGNATURE.match(signature) or signature.startswith(_FOREIGN):
        code = "thinking_foreign"
    else:
        return Part(Kind.THINKING, block, index, place, name="thinking", signed=True)
    return Part(Kind.THINKING, block, index, place, name="thinking", faults=(Fault(code),))


def read_redacted(block: Mapping[str, Any], index: int, place: str) -> Part:
    """A `redacted_thinking` block: opaque, and signed by being so."""
    data = block.get("data")
    signed = isinstance(data, str) and bool(data)
    faults = () if signed else (Fault("thinking_redacted_invalid"),)
    name = "redacted_thinking"
    return Part(Kind.THINKING, block, index, place, name=name, signed=signed, faults=faults)


# -- what the rules say --------------------------------------------------------------------------


def check(history: History) -> Iterator[Violation]:
    """Report thinking that stands where it may not, or is missing where it must."""
    for code, part in _misplaced(history):
        fault = Fault(code, _kind_of_first(history, part))
        yield history.violation(code, part, fault)
    if (mode := _wrong_mode(history)) is not None:
        yield history.violation("thinking_mode_unsupported", "thinking", Fault("", mode))
    first = _unthought_loop(history)
    if first is not None:
        found = str(as_map(first.parts[0].native).get("type", "text"))
        yield history.violation("thinking_missing", first, Fault("", found))


def _kind_of_first(history: History, part: Part) -> str:
    first = as_map(history.body[history.grammar.field][part.index]).get("content")
    return str(as_map(first[0]).get("type", "text")) if is_list(first) and first else "text"


def _misplaced(history: History) -> Iterator[tuple[str, Part]]:
    """Thinking parts to be dropped, each with the rule that says so."""
    unable = history.context.thinking == "none"
    off = {id(message) for message in _loop(history)} if _must_be_silent(history) else set[int]()
    for n, message in enumerate(history.messages):
        thoughts = message.of(Kind.THINKING) if message.role == "assistant" else []
        if not thoughts:
            continue
        if unable or id(message) in off:
            code = "thinking_unsupported" if unable else "thinking_when_off"
            yield from ((code, part) for part in thoughts)
        else:
            yield from _misplaced_in(history, n, thoughts)


def _misplaced_in(history: History, n: int, thoughts: list[Part]) -> Iterator[tuple[str, Part]]:
    message = history.messages[n]
    behind = history.messages[n + 1] if n + 1 < len(history.messages) else None
    if behind is None or behind.role != "assistant":
        trailing = _trailing_thoughts(message)
        yield from (("thinking_last", part) for part in trailing)
        thoughts = [part for part in thoughts if part not in trailing]
    if message.parts[0].kind is not Kind.THINKING and _keeps_first(history):
        yield from (("thinking_not_first", part) for part in thoughts)
    elif message.has(Kind.CALL):
        yield from (("thinking_modified", part) for part in _side_by_side(message))


def _trailing_thoughts(message: Message) -> list[Part]:
    trailing: list[Part] = []
    for part in reversed(message.parts):
        if part.kind is not Kind.THINKING:
            break
        trailing.insert(0, part)
    return trailing


def _keeps_first(history: History) -> bool:
    """Thinking must open its message where it is manual; adaptive thinking may come in between."""
    mode = _mode(history)
    return mode == "enabled" or history.context.strict or history.context.thinking == "manual"


def _side_by_side(message: Message) -> list[Part]:
    """Signed blocks with nothing between them, which no response has: some client merged them."""
    parts, found = message.parts, list[Part]()
    for n, part in enumerate(parts):
        near = parts[max(n - 1, 0) : n + 2]
        if _plain_thought(part) and sum(_plain_thought(other) for other in near) > 1:
            found.append(part)
    return found


def _plain_thought(part: Part) -> bool:
    return part.signed and part.name == "thinking"


def _mode(history: History) -> str:
    return str(as_map(history.body.get("thinking")).get("type", ""))


_REFUSED_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("enabled", "adaptive"),
    "manual": ("adaptive",),
    "always": ("disabled", "enabled"),
}


def _wrong_mode(history: History) -> str | None:
    mode = _mode(history)
    refused = _REFUSED_MODES.get(history.context.thinking or "", ())
    return mode if mode in refused else None


def _must_be_silent(history: History) -> bool:
    """Whether thinking is off and the server minds thinking in the open tool loop."""
    mode, able = _mode(history), history.context.thinking
    off = mode == "disabled" or (not mode and able in ("manual", "none"))
    return history.context.strict and off


# -- the open tool loop --------------------------------------------------------------------------


def _loop(history: History) -> list[Message]:
    """The assistant messages of a tool loop that waits for its next step; empty if none does.

    The loop begins behind the last message of the user that brings no result.
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
            loop.insert(0, message)
    return loop


def _unthought_loop(history: History) -> Message | None:
    """The message that must begin with thinking and does not; manual thinking asks for it."""
    loop = _loop(history) if _mode(history) == "enabled" else []
    if not loop or not loop[0].parts or loop[0].parts[0].kind is Kind.THINKING:
        return None
    return loop[0]


# -- passes --------------------------------------------------------------------------------------


def prepare(work: Work) -> None:
    """Drop the thinking that may not stay, before anything is paired."""
    wanted = list(_misplaced(work))
    if work.policy.thinking != "keep":
        every = (part for message in work.messages for part in message.of(Kind.THINKING))
        wanted = [("thinking_foreign", part) for part in every]
    _drop(work, {id(part): code for code, part in wanted})
    if work.policy.thinking == "off" and _mode(work) in ("enabled", "adaptive"):
        _turn_off(work, "thinking_foreign")


def finish(work: Work) -> None:
    """Settle what the request asks of thinking, once the messages stand."""
    _unbind(work)
    if _loop_is_stuck(work):
        _free_loop(work)
    if (mode := _wrong_mode(work)) is not None and "thinking" not in work.settings:
        may = work.may("thinking_off", "thinking", "thinking_mode_unsupported")
        if may:
            adaptive = mode == "enabled" and work.context.thinking == "always"
            work.settings["thinking"] = {"type": "adaptive"} if adaptive else None


def _loop_is_stuck(work: Work) -> bool:
    """Whether the open loop lacks its thinking, or must do without but the model always thinks."""
    if work.policy.thinking == "off" and work.context.thinking == "always":
        return bool(_loop(work))
    return _unthought_loop(work) is not None and not work.settings.get("thinking")


def _free_loop(work: Work) -> None:
    """Make thinking unnecessary: turn it off, or close the loop where it cannot be turned off."""
    if work.context.thinking != "always":
        _turn_off(work, "thinking_missing")
    elif work.may("close_loop", work.messages[-1], "thinking_missing"):
        work.messages.append(work.grammar.say("assistant", work.policy.loop_text))
        work.messages.append(work.grammar.say("user", work.policy.continue_text))


def _turn_off(work: Work, why: str) -> None:
    if work.context.thinking != "always" and work.may("thinking_off", "thinking", why):
        work.settings["thinking"] = {"type": "disabled"}


def _drop(work: Work, codes: Mapping[int, str]) -> None:
    _drop_where(work, work.messages, lambda part: codes.get(id(part)))


def _drop_where(work: Work, messages: list[Message], code_of: Callable[[Part], str | None]) -> None:
    for message in messages:
        kept = [part for part in message.parts if not _goes(work, part, code_of(part))]
        if len(kept) < len(message.parts):
            message.keep(kept)


def _goes(work: Work, part: Part, code: str | None) -> bool:
    return code is not None and work.may("drop_thinking", part, code)


def _unbind(work: Work) -> None:
    """Where thinking is bound to what precedes it, deal with the blocks behind the first change."""
    if not work.context.binding or work.policy.binding == "keep":
        return
    behind = _behind_change(work.messages)
    if not any(message.has(Kind.THINKING) for message in behind):
        return
    if work.policy.binding == "strip":
        _drop_where(work, behind, _bound)
    elif work.may("let_server_drop_thinking", "thinking", "thinking_bound"):
        setting = {"prefix_mismatch_behavior": "drop_block"}
        given = as_map(work.body.get("thinking")) or {"type": "adaptive"}
        work.settings["thinking"] = {**given, "block_binding": setting}
        work.headers["anthropic-beta"] = _BINDING_BETA


def _bound(part: Part) -> str | None:
    return "thinking_bound" if part.kind is Kind.THINKING else None


def _behind_change(messages: list[Message]) -> list[Message]:
    """The messages behind the first that was changed, made, or has lost its predecessor."""
    for n, message in enumerate(messages):
        if message.touched or message.index != n:
            start = n if message.index > n and not message.touched else n + 1
            return messages[start:]
    return []
