"""Read saved sessions of agents, say what is wrong with them, and write repaired copies."""

from continuation.sessions.lines import Problem
from continuation.sessions.store import SavedSession, check, load, write_repaired

__all__ = ["Problem", "SavedSession", "check", "load", "write_repaired"]
