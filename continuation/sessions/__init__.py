"""Reads saved sessions of agents, reports what is wrong with them, writes repaired copies."""

from continuation.sessions.copies import repairing
from continuation.sessions.lines import Problem
from continuation.sessions.store import SAVED, SavedPolicy, SavedSession, checked, read
from continuation.wire.collector import resting

__all__ = [
    "SAVED",
    "Problem",
    "SavedPolicy",
    "SavedSession",
    "checked",
    "read",
    "repairing",
    "resting",
]
