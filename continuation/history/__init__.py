"""Makes a conversation history valid for its provider: `validate`, `plan`, `repair`."""

from continuation.history.api import (
    Plan,
    plan,
    repair,
    repair_beginning,
    repair_refused,
    unanswered_tool_calls,
    validate,
)
from continuation.history.classify import HistoryError, classify
from continuation.history.types import (
    Body,
    Decision,
    DecisionError,
    Facts,
    HistoryFormat,
    NewSessionWanted,
    OpenCall,
    Repaired,
    RepairPolicy,
    Violation,
)
from continuation.history.wordings import Reason
from continuation.types import Change

__all__ = [
    "Body",
    "Change",
    "Decision",
    "DecisionError",
    "Facts",
    "HistoryError",
    "HistoryFormat",
    "NewSessionWanted",
    "OpenCall",
    "Plan",
    "Reason",
    "RepairPolicy",
    "Repaired",
    "Violation",
    "classify",
    "plan",
    "repair",
    "repair_beginning",
    "repair_refused",
    "unanswered_tool_calls",
    "validate",
]
