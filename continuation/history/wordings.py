"""Every sentence that a repair may put into a history, and how those of others are recognised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from continuation.history.rules import TABLE
from continuation.prompts import Cause, looks_like_recovery_prompt, recovery_prompt


class Reason(StrEnum):
    """Why a tool call has no result of its own."""

    NOT_STARTED = "not_started"
    STARTED_UNKNOWN = "started_unknown"
    """It was running when the session broke; nobody knows what it did."""
    CANCELLED = "cancelled_by_user"
    REJECTED = "rejected_by_user"
    ARGS_TRUNCATED = "args_truncated"
    RESULT_LOST = "result_lost"
    SUPERSEDED = "superseded"
    """The same call id was used again before this call was answered."""
    NOT_IN_CONTEXT = "not_in_context"
    """The result exists, but lies outside the part of the history that is sent."""


WORDINGS: Final[Mapping[Reason, str]] = MappingProxyType(
    {Reason(name): f"[no result] {text}" for name, text in TABLE["wordings"].items()}
)

HEAD: Final = "[The beginning of this conversation is not available.]"
CONTINUE: Final = "Continue."
LOOP_CLOSED: Final = "The tool calls above have been made."
REASONING: Final = "(reasoning not recorded)"
LATE: Final = "Late result of the call {id}:"

#: How agents known to us word a result that they made up (facts read in their sources).
_PLACEHOLDERS: Final = re.compile(
    r"\[no result\]"
    r"|Tool execution was interrupted before its result was recorded"
    r"|This tool call was not executed: the model response ended"
    r"|Operation cancelled by user \(ESC pressed\)"
    r"|Tool response was lost during context processing"
    r"|\[Tool \"[^\"]*\" execution was cancelled or failed\]"
    r"|No result provided\Z"
    r"|aborted\Z"
)

#: How qwen-code and its relatives begin the user turn that asks for the rest of a cut answer.
_RECOVERY_LEADS: Final = (
    "Output token limit hit. Resume directly",
    "The connection dropped mid-response. Resume directly",
)

LEAD: Final = 8
"""So many characters at the start show of nearly every text that it is no recovery prompt."""
LEADS: Final = frozenset(
    {recovery_prompt("", None, cause)[:LEAD] for cause in Cause}
    | {lead[:LEAD] for lead in _RECOVERY_LEADS}
)
"""How recovery prompts begin; what begins so is looked at closely."""


def looks_synthetic(text: str) -> bool:
    """Whether a tool result's text is a placeholder: ours, or of an agent known to us."""
    return _PLACEHOLDERS.match(text) is not None


def looks_like_recovery(text: str) -> bool:
    """Whether a user turn only asks the model to go on after a cut: ours, or qwen-code's."""
    return text.startswith(_RECOVERY_LEADS) or looks_like_recovery_prompt(text)


def quoted_anchor(text: str) -> str | None:
    """The words that a recovery prompt of ours asks the model to repeat first, if it asks."""
    match = _ANCHOR.match(text)
    return match[2] if match else None


_ANCHOR: Final = re.compile(r".*<(anchor[-\d]*)>(.+)</\1>\Z", re.DOTALL)
