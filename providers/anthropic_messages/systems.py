"""System messages among the others in a Messages history: where they are allowed.

Claude accepts a system message after the user or after a server tool's result, if it is followed by
the assistant or ends the history. A system message without content only changes settings and is
accepted anywhere. After an interrupted answer, one may be in a wrong place: it stands between the
question and the next question. Older models and some other servers accept none
(`RepairPolicy.system_messages`).

Sources: Anthropic's page on mid-conversation system messages, the error texts that public issues
and tests quote, and a public probe of all positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from continuation.history.grammar import History, HistoryRepair
from continuation.history.tree import Fault, Kind, Message
from continuation.history.types import Violation
from continuation.providers.anthropic_messages.thinking import strange
from continuation.wire.json_values import as_list

_FIRST = "use the top-level 'system' parameter for the initial system prompt"
_BEHIND = (
    "role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool"
    " result"
)
_BEFORE = "role 'system' must precede an 'assistant' message or end the array"


def check(history: History) -> Iterator[Violation]:
    """Yield a violation for each system message that is in a wrong place."""
    for message, detail in _strays(history).items():
        yield history.violation(Fault("system_misplaced", detail), message)


def place(repair: HistoryRepair) -> None:
    """Repair misplaced system messages.

    Move them into the system prompt, or after the user's next message, or make them user messages.
    """
    strays = {
        message: detail
        for message, detail in _strays(repair).items()
        if repair.may("place_system", message, "system_misplaced")
    }
    first = [part.native for m, detail in strays.items() if detail == _FIRST for part in m.parts]
    if first:
        system: Any = repair.body.get("system")
        blocks = [*([system] if system and isinstance(system, str) else as_list(system)), *first]
        repair.settings["system"] = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
        ]
    held: list[Message] = []
    after: list[Message] = []
    speaker = ""
    for message in repair.messages:
        if message in strays:
            held += [message] if strays[message] != _FIRST else []
            continue
        if message.role == "assistant":
            after += _behind(speaker, held)
            held = []
        speaker = message.role if message.role != "system" else speaker
        after.append(message)
    repair.messages = after + _behind(speaker, held)


def _behind(speaker: str, held: list[Message]) -> list[Message]:
    """Return these system messages in the form that is allowed after a message of `speaker`."""
    if speaker == "user":
        return held
    return [Message("user", m.of(Kind.TEXT), {}, m.index, touched=True) for m in held]


def _strays(history: History) -> dict[Message, str]:
    """Return the misplaced system messages, each with the detail of the error text."""
    strays: dict[Message, str] = {}
    if strange(history.context) and history.context.system_messages == "keep":
        return strays
    runs = [list(run) for _, run in itertools.groupby(history.messages, lambda each: each.role)]
    for before, run, after in zip([[], *runs], runs, [*runs[1:], []], strict=False):
        detail = ""
        if run[0].role != "system":
            continue
        if not before:  # a body without `max_tokens` has no other place for it
            detail = _FIRST if "max_tokens" in history.body else ""
        elif before[-1].role == "assistant" and not _ends_on_server(before[-1]):
            detail = _BEHIND
        elif after and after[0].role == "user":
            detail = _BEFORE
        strays |= dict.fromkeys((m for m in run if m.parts), detail) if detail else {}
    return strays


def _ends_on_server(message: Message) -> bool:
    return bool(message.parts) and message.parts[-1].kind is Kind.SERVER_RESULT
