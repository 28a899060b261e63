"""Names of the statements that a journal executes. `sqlite.py` and `postgres.py` have the SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Write: TypeAlias = Literal["append", "save", "forget", "beat", "leave"]
"""A statement that writes for an owner. It is queued until the writer commits it."""
APPEND: Final = "append"
"""Append a record: session, number, epoch, kind, key, at, content."""
SAVE: Final = "save"
"""Save running text: session, number, characters, attempts, content."""
FORGET: Final = "forget"
"""Remove the running text of a session."""
BEAT: Final = "beat"
"""Record that an owner is alive: session, epoch."""
LEAVE: Final = "leave"
"""Give up a session: session, epoch."""

GATEWAY: Final = "gateway/"
"""Prefix of the names of a gateway's sessions."""

Statement: TypeAlias = "tuple[Write, tuple[Any, ...]]"
"""A queued write and its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of one database. A field's docstring ends with the values it takes, if any.

    Times are seconds since 1970 by the store's clock, which also measures leases.
    """

    mark: str
    """The placeholder of a value."""
    migrations: tuple[str, ...]
    """What each version of the format adds to the one before."""

    writes: Mapping[Write, str]
    """The SQL of each write. `APPEND` and `SAVE` may be repeated after a failure: they skip a row
    that already exists under its number."""
    guarded: Mapping[Write, str]
    """`APPEND` and `SAVE` that insert only if the owner's epoch is current. The owner's session and
    epoch follow the row's values. Each is one statement. A transaction of four statements would
    release the interpreter lock four times, and wait four times for it or for a server."""
    epochs: str
    """Lock sessions; return id and epoch of each. Ids."""

    session: str
    """Return id and epoch of a session. Name."""
    epoch: str
    """Return the epoch of a session. Id."""
    create: str
    """Create a session, unless one has that name. Name."""
    owner: str
    """Lock a session; return id, epoch, owner, since, beat, and the time now. Name."""
    own: str
    """Change the owner of a session. Epoch, owner, since, beat, id."""

    states: str
    """Return number, kind, key, at of all records, and the content of states, in order. Id."""
    contents: str
    """Return number, kind, content of all records. Id."""
    content: str
    """The same of one record. Id, number."""
    saves: str
    """Return number, attempts, content of the running text, in order. Id."""

    half: str
    """Return a row if a session has running text. Name."""
    expired: str
    """Lock the gateway's old sessions; return their ids.

    Seconds of silence; seconds of silence for those beyond the newest; how many are the newest.
    """
    drop_running: str
    """Remove the running text of sessions. Ids."""
    drop_records: str
    """Remove the records of sessions. Ids."""
    drop_sessions: str
    """Remove sessions, except the last row, so that its id is not used again. Ids."""
    outdate: str
    """Raise the epochs of sessions: their owners can write nothing any more. Ids."""

    listed: str
    """Return id, name, owner, beat, and the time now of all sessions, or one. Name or `None`."""
    progress: str
    """Return how many saves of running text there are, their characters, their attempts. Id."""
    answers: str
    """Return the content of answers. Id, number of the first."""
    timeline: str
    """Return number, epoch, kind, key, at of all records, and the content of states. Name."""
    timeline_with_content: str
    """The same, with the content of all. Name."""
    first_message: str
    """Return the content of one message. Name."""

    prune_records: str
    """Remove the records of a session. Name."""
    prune_running: str
    """Remove the running text of a session. Name."""
    prune_retired: str
    """Remove the rows of sessions that `retire` kept and that are not the last any more."""
    retire: str
    """If a session is the last row, take its name and owner from it, and raise its epoch. Name."""
    prune_session: str
    """Remove a session. Name."""

    def of_many(self, statement: str, values: int) -> str:
        """Return a statement in which `{}` stands for so many values."""
        return statement.format(", ".join([self.mark] * values))
