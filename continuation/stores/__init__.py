"""How stores reach SQLite files and PostgreSQL servers: connections, locks, formats, errors.

What a store holds is the matter of its own room, which writes its statements for each database.
"""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 60.0
"""Seconds that a lock is waited for; a journal holds one for milliseconds at most."""

_left_behind: list[object] = []


def leave_behind(*connections: object) -> None:
    """Keep the connections of the process that this one was forked from.

    They must not be closed, nor collected, in another process than their own.
    """
    _left_behind.extend(connections)
