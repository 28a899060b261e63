"""Make a conversation history valid for its provider again: validate, repair."""

from continuation.history.api import (
    repair,
    repair_refused,
    unanswered_tool_calls,
    validate,
)
from continuation.history.classify import HistoryError, classify
from continuation.history.types import (
    Body,
    Change,
    Decision,
    Facts,
    HistoryFormat,
    NewSessionWanted,
    OpenCall,
    Repaired,
    RepairPolicy,
    Violation,
)
from continuation.history.wordings import Reason

__all__ = [
    "Body",
    "Change",
    "Decision",
    "Facts",
    "HistoryError",
    "HistoryFormat",
    "NewSessionWanted",
    "OpenCall",
    "Reason",
    "RepairPolicy",
    "Repaired",
    "Violation",
    "classify",
    "repair",
    "repair_refused",
    "unanswered_tool_calls",
    "validate",
]
