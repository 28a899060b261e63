"""Read saved sessions of agents, say what is wrong with them, and write repaired copies."""

from continuation.sessions.lines import Problem
from continuation.sessions.store import Session, check, load, mend

__all__ = ["Problem", "Session", "check", "load", "mend"]
