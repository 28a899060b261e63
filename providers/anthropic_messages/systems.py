"""System messages among the others in a Messages history: where they may stand.

Claude takes one behind the user, or behind a result of the server's, and before the assistant or at
the end; one without content, which only changes settings, anywhere. So an interrupted answer, whose
question is followed by the next one, leaves one astray. Older models, and some other servers, take
none at all (`RepairPolicy.system_messages`).

Sources: Anthropic's page on mid-conversation system messages, the texts of its refusals that public
issues and tests quote, and a public probe of all positions.
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
    """Report system messages that stand where they may not."""
    for message, detail in _strays(history).items():
        yield history.violation(Fault("system_misplaced", detail), message)


def place(repair: HistoryRepair) -> None:
    """Bring them to the system prompt, behind the user's next message, or give them to the user."""
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
    """These system messages as they may stand behind what this side has said."""
    if speaker == "user":
        return held
    return [Message("user", m.of(Kind.TEXT), {}, m.index, touched=True) for m in held]


def _strays(history: History) -> dict[Message, str]:
    """System messages that stand where they may not, with what is said of each."""
    strays: dict[Message, str] = {}
    if strange(history.context) and history.context.system_messages == "keep":
        return strays
    runs = [list(run) for _, run in itertools.groupby(history.messages, lambda each: each.role)]
    for before, run, after in zip([[], *runs], runs, [*runs[1:], []], strict=False):
        detail = ""
        if run[0].role != "system":
            continue
        if not before:  # a bare history has no other place for it
            detail = _FIRST if "max_tokens" in history.body else ""
        elif before[-1].role == "assistant" and not _ends_on_server(before[-1]):
            detail = _BEHIND
        elif after and after[0].role == "user":
            detail = _BEFORE
        strays |= dict.fromkeys((m for m in run if m.parts), detail) if detail else {}
    return strays


def _ends_on_server(message: Message) -> bool:
    return bool(message.parts) and message.parts[-1].kind is Kind.SERVER_RESULT
