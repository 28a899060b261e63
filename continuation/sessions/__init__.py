"""Read saved sessions of agents, say what is wrong with them, and write repaired copies."""

from continuation.sessions.copies import repairing
from continuation.sessions.lines import Problem
from continuation.sessions.store import SavedSession, checked, read
from continuation.wire.collector import resting

__all__ = ["Problem", "SavedSession", "checked", "read", "repairing", "resting"]
