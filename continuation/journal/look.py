"""For commands: list a store's sessions, show a session's timeline, copy a store, prune it.

All functions but `prune` read in a transaction that cannot write. So they do not disturb a process
that has the store open, and take over no session. They read only states, unless `content` is set.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from continuation.journal.errors import JournalError
from continuation.journal.forms import shape_of
from continuation.journal.owner import is_dead
from continuation.journal.session import SessionState
from continuation.journal.store import Connection, JournalStore, kind_of
from continuation.wire.json_values import as_json, as_text, parsed

_SILENT = 3600.0
"""Seconds of silence after which an owner has lost any lease, if it cannot be checked from here."""


@dataclass(frozen=True, slots=True)
class OpenTool:
    """A tool that began and has no result."""

    id: str
    name: str
    seconds: float
    """Seconds since it began."""


@dataclass(slots=True)
class Listed:
    """One session and its present state."""

    session: str
    state: str = "idle"
    """`running`; `interrupted`: a turn is half written, and no owner is known to be alive;
    `calls open`: calls have no result, and no owner is known to be alive; or `idle`."""
    owner: str | None = None
    """`alive`, `gone`, or `unknown` if it cannot be checked from here; `None`: no owner."""
    process: str | None = None
    """The owner's pid and host; `None`: there is no owner."""
    seen: float = 0.0
    """When the session was last known to be in use, in seconds since 1970."""
    dialect: str = ""
    model: str = ""
    turns: int = 0
    """How many turns have ended."""
    characters: int = 0
    """Characters of the half-written answer. The next two fields: its saves and upstream calls."""
    saves: int = 0
    attempts: int = 0
    calls: list[OpenTool] = field(default_factory=list[OpenTool])
    waiting: int = 0
    """How many calls of the last answer never began; 0 if a codec has encoded them."""

    def silent(self, seconds: float) -> bool:
        """Whether the session has no living owner and was not written to for `seconds`."""
        since = time.time() - self.seen
        free = self.owner in {None, "gone"} or (self.owner == "unknown" and since > _SILENT)
        return free and since > seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a session's timeline."""

    at: float
    """Seconds since the session's first record."""
    what: str
    seconds: float | None = None
    """Seconds that a turn or a call took, on the line of its end; else `None`."""
    content: Any = None
    """Its text or JSON, if content was requested."""


def reading(target: str | os.PathLike[str]) -> AbstractContextManager[Connection]:
    """Open a store for reading. Raises `JournalError` if it is missing or is no journal."""
    return kind_of(target).reading(target)


def sessions(connection: Connection, name: str | None = None) -> list[Listed]:
    """Return the sessions of a store, the most recent first. `name`: return only that one.

    Raises `JournalError` if no session has that name.
    """
    rows = connection.execute(connection.sql.listed, (name,)).fetchall()
    if name is not None and not rows:
        raise JournalError(f"session {name!r}: not found; `continuation sessions list` lists them")
    return sorted((_listed(connection, *row) for row in rows), key=lambda each: -each.seen)


def _listed(
    connection: Connection, number: int, name: str, owner: str | None, beat: float, now: float
) -> Listed:
    state, began = SessionState(), dict[str, float]()
    for record in connection.execute(connection.sql.states, (number,)):
        state.apply(*record)
        if record[1] == "intent":
            began[record[2]] = record[3]
    # The store's clock may be that of another machine.
    seen = max(beat, state.at) + time.time() - now
    listed = Listed(name, seen=seen, dialect=state.form, model=state.model)
    listed.turns = state.ended_turns
    if owner is not None:
        process = as_json(json.loads(owner))
        listed.owner = {True: "gone", False: "alive", None: "unknown"}[is_dead(process)]
        listed.process = f"{process.get('pid')} on {process.get('host')}"
    saved = connection.execute(connection.sql.progress, (number,)).fetchone()
    listed.saves, listed.characters, listed.attempts = (count or 0 for count in saved)
    listed.calls = [
        OpenTool(call_id, as_text(call.intent.get("name")), now - began.get(call_id, 0.0))
        for call_id, call in state.calls.items()
        # For a call before that, a later request already has a result.
        if call.result is None and call.number > state.turn_start
    ]
    listed.waiting = _waiting(connection, number, state)
    calls = bool(listed.calls or listed.waiting)
    if state.turn is not None or calls:
        listed.state = "calls open" if state.turn is None else "interrupted"
        if listed.owner == "alive":
            listed.state = "running"
    return listed


def _waiting(connection: Connection, number: int, state: SessionState) -> int:
    """Count the calls of the last answer that never began."""
    answers = list(takewhile(lambda each: each.kind == "answer", reversed(state.messages)))
    if not answers or state.turn is not None:
        return 0
    from continuation.history import unanswered_tool_calls

    first, messages = answers[-1].number, list[Any]()
    query = connection.sql.answers
    with suppress(JournalError):
        messages = [decoded("", row[0]) for row in connection.execute(query, (number, first))]
    unanswered = unanswered_tool_calls(
        {shape_of(state.form).messages: [as_json(each) for each in messages]}, state.form
    )
    begun = sum(call.number > first for call in state.calls.values())
    return max(0, len(unanswered) - begun)


def timeline(connection: Connection, name: str, *, content: bool) -> list[Moment]:
    """Return what happened in a session, in order. `content`: include texts and results.

    Raises `JournalError` for content that only a codec can read.
    """
    query = connection.sql.timeline_with_content if content else connection.sql.timeline
    moments, began, owner, first = list[Moment](), dict[str, tuple[float, str]](), 1, None
    for _, epoch, kind, key, at, data in connection.execute(query, (name,)):
        first = at if first is None else first
        if epoch != owner:
            moments.append(Moment(at - first, f"owner {epoch} takes over"))
            owner = epoch
        record, shown = decoded(name, data), None
        if kind in {"turn", "intent"}:
            began[key if kind == "intent" else kind] = at, as_text(as_json(record).get("name"))
        source = {"end": "turn", "drop": "turn", "result": key}.get(kind, "")
        since, tool = began.pop(source, (None, ""))
        if content and kind in {"message", "answer", "interrupted", "result"}:
            shown = as_json(record).get("value") if kind == "result" else record
        if kind in _TEXTS:
            fields = {key: as_json(record).get(key) for key in ("model", "outcome", "name")}
            what = _TEXTS[kind].format(key=key, tool=tool, **fields)
            seconds = None if since is None else at - since
            moments.append(Moment(at - first, what, seconds, shown))
    return moments


_TEXTS = {
    "turn": "turn begins: {model}",
    "end": "turn ends: {outcome}",
    "drop": "turn ends without an answer",
    "message": "new message in the request",
    "answer": "answer of the model",
    "interrupted": "incomplete answer stays in the history",
    "rewind": "request returns to turn {key}",
    "intent": "tool {name} begins ({key})",
    "result": "result of tool {tool} ({key})",
    "repair": "history repaired: open calls closed",
}


def decoded(name: str, data: bytes | None) -> Any:
    """Return content as JSON; `None`: no content. Raises `JournalError` if it needs a codec."""
    if data is None:
        return None
    with suppress(UnicodeDecodeError):
        if (value := parsed(data.decode())) is not None:
            return value
    raise JournalError(
        f"session {name!r}: its content is encoded; read it in a program with the "
        "codec: Journal(..., codec=..., readonly=True)"
    )


def content_mode(connection: Connection, name: str) -> Literal["full", "none"]:
    """Return whether a session keeps its content ("full") or not. Raises as `decoded` does."""
    row = connection.execute(connection.sql.first_message, (name,)).fetchone()
    return "none" if row is not None and decoded(name, row[0]) is None else "full"


def copy(target: str | os.PathLike[str], to: Path) -> int:
    """Copy the state of a journal's file at one moment, even while it is in use; return the size.

    No session of the copy has an owner. Raises `JournalError` for a database on a server, and
    `FileExistsError`.
    """
    kind = kind_of(target)
    with kind.reading(target) as source:
        kind.copy(source, to)
    return to.stat().st_size


def prune(target: str | os.PathLike[str], older: float) -> tuple[list[str], int]:
    """Remove sessions that have no living owner and were not written to for `older` seconds.

    Return their names, and by how many bytes the file shrank. Raises `JournalError`.
    """
    with reading(target):
        store = JournalStore.of(target, make=False)
        size = store.size()
    with store.transaction(exclusive=True) as db:
        removed = [each.session for each in sessions(db) if each.silent(older)]
        for name in removed:
            db.execute(db.sql.prune_records, (name,))
            db.execute(db.sql.prune_running, (name,))
            # Keep the last row. Otherwise its id would be used again, and a former owner that wakes
            # up would count as the owner of the new session.
            db.execute(db.sql.prune_retired)
            db.execute(db.sql.retire, (name,))
            db.execute(db.sql.prune_session, (name,))
    if removed:
        store.shrink()
    return removed, max(0, size - store.size())
