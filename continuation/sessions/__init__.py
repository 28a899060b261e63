"""Read saved sessions of agents, say what is wrong with them, and write repaired copies."""

from continuation.sessions.copies import repairing, write_repaired
from continuation.sessions.lines import Problem
from continuation.sessions.store import SavedSession, check, checked, load

__all__ = ["Problem", "SavedSession", "check", "checked", "load", "repairing", "write_repaired"]
