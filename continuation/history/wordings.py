"""The texts that a repair may add to a history, and how such texts of agents are recognized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from continuation.history.rules import TABLE
from continuation.prompts import Cause, looks_like_recovery_prompt, recovery_prompt


class Reason(StrEnum):
    """Why a tool call has no real result."""

    NOT_STARTED = "not_started"
    STARTED_UNKNOWN = "started_unknown"
    """The call was running when the session ended. Its effect is unknown."""
    CANCELLED = "cancelled_by_user"
    REJECTED = "rejected_by_user"
    ARGS_TRUNCATED = "args_truncated"
    RESULT_LOST = "result_lost"
    SUPERSEDED = "superseded"
    """The same call id was used again before this call had a result."""
    NOT_IN_CONTEXT = "not_in_context"
    """The result exists, but it is not in the part of the history that is sent."""


WORDINGS: Final[Mapping[Reason, str]] = MappingProxyType(
    {Reason(name): f"[no result] {text}" for name, text in TABLE["wordings"].items()}
)

HEAD: Final = "[The beginning of this conversation is not available.]"
CONTINUE: Final = "Continue."
LOOP_CLOSED: Final = "The tool calls above have been made."
REASONING: Final = "(reasoning not recorded)"
LATE: Final = "Late result of the call {id}:"

#: Placeholder texts of agents for missing results (from their source code).
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

#: The beginnings of recovery prompts of qwen-code and agents derived from it.
_RECOVERY_LEADS: Final = (
    "Output token limit hit. Resume directly",
    "The connection dropped mid-response. Resume directly",
)

LEAD: Final = 8
"""The number of a text's first characters by which most texts are recognized as other texts."""
LEADS: Final = frozenset(
    {recovery_prompt("", None, cause)[:LEAD] for cause in Cause}
    | {lead[:LEAD] for lead in _RECOVERY_LEADS}
)
"""The beginnings of recovery prompts. A text with one of them gets a full check."""


def looks_synthetic(text: str) -> bool:
    """Whether a tool result's text is our placeholder, or that of a known agent."""
    return _PLACEHOLDERS.match(text) is not None


def looks_like_recovery(text: str) -> bool:
    """Whether a user's text is our recovery prompt, or that of qwen-code."""
    return text.startswith(_RECOVERY_LEADS) or looks_like_recovery_prompt(text)


def quoted_anchor(text: str) -> str | None:
    """Return the anchor that our recovery prompt asks the model to repeat, or None."""
    match = _ANCHOR.match(text)
    return match[2] if match else None


_ANCHOR: Final = re.compile(r".*<(anchor[-\d]*)>(.+)</\1>\Z", re.DOTALL)
