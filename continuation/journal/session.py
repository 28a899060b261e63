"""The state of a session, as its records define it: the messages, the calls, the open turn.

Records are only appended. `SessionState.apply` processes each record, read from the store or new.
So the meaning of a record is defined in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, parsed


@dataclass(slots=True)
class RecordedMessage:
    """One message of the conversation."""

    number: int
    """The number of its record."""
    digest: str
    kind: str
    """`message`: of a request; `answer`: of the model; `interrupted`: a half-written answer."""


@dataclass(slots=True)
class Call:
    """A tool call that has begun, or that has a recorded result."""

    intent: dict[str, Any]
    """The intent's fields: `name` and `idempotent`; empty if only a result was recorded."""
    number: int
    active: float
    """When it was last known to be running, in seconds since 1970."""
    result: int | None = None
    """The number of its result's record; `None`: it has none."""
    previous: Call | None = None
    """Its state before it was begun again; `None`: it was begun once."""


@dataclass(slots=True)
class OpenTurn:
    """A turn that has begun and not ended."""

    request_digest: str
    """Digest of its request."""
    since: float
    framed: bool = False


@dataclass(slots=True)
class SessionState:
    """The state of one session."""

    number: int = 0
    """The number of the last record."""
    form: str = ""
    model: str = ""
    messages: list[RecordedMessage] = field(default_factory=list[RecordedMessage])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    turn: OpenTurn | None = None
    repaired: set[str] = field(default_factory=set[str])
    ended_turns: int = 0
    at: float = 0.0
    """Time of the last record, in seconds since 1970."""
    request_digest: str = ""
    """Digest of the last turn's request."""
    limit: object = None
    """That request's output limit, in tokens; `None`: it had none."""
    turn_start: int = 0
    """The number of the record with which the last turn began."""
    outcome: str = ""
    """The outcome of the last turn that ended; empty if it ended without an answer."""
    stopped_short: bool = False
    """Whether that turn's answer ended for another reason than a normal end or tool calls."""
    envelope: Json | None = None
    """The last answer's body without its content; `None` once a record follows it."""

    def apply(self, number: int, kind: str, key: str, at: float, data: bytes | None = None) -> None:
        """Apply the next record. `data`: its content, if `kind` is one of `STATE_KINDS`."""
        self.number, self.at = number, at
        fields = as_json(parsed(data.decode())) if data else {}
        self.envelope = as_json(fields.get("around")) if kind == "end" else None
        if kind in {"message", "answer", "interrupted"}:
            self.messages.append(RecordedMessage(number, key, kind))
        elif kind == "rewind":
            del self.messages[int(key) :]
        elif kind == "turn":
            self.form, self.model = as_text(fields.get("form")), as_text(fields.get("model"))
            self.turn, self.turn_start = OpenTurn(key, at, fields.get("framed") is True), number
            self.request_digest, self.limit = key, fields.get("limit")
        elif kind in {"end", "drop"}:
            self.turn = None
            self.ended_turns += kind == "end"
            self.outcome = as_text(fields.get("outcome"))
            self.stopped_short = fields.get("short") is True
        elif kind == "intent":
            self.calls[key] = Call(fields, number, at, previous=self.calls.get(key))
        elif kind == "active":
            self.calls[key].active = at
        elif kind == "result":
            call = self.calls.setdefault(key, Call({}, number, at))
            call.result = number
        elif kind == "repair":
            self.repaired.add(key)

    def cancel_intent(self, key: str) -> None:
        """Remove a call's last intent. It could not be recorded, so the call did not begin."""
        if (previous := self.calls.pop(key).previous) is not None:
            self.calls[key] = previous

    def unmatched(self, digests: list[str], *, chained: bool) -> tuple[int | None, int]:
        """Compare a request's messages with those recorded.

        Return how many of the recorded ones stay (`None`: all), and the index of the first new
        message. A request may lack an `interrupted` message; it stays in its place.
        """
        if chained:  # the server keeps the rest of the conversation
            return None, 0
        matched = 0
        for position, message in enumerate(self.messages):
            if matched < len(digests) and message.digest == digests[matched]:
                matched += 1
            elif message.kind != "interrupted":
                return position, matched
        return None, matched


CONTENT_KINDS = frozenset({"message", "answer", "interrupted", "result"})
"""Kinds of records with a part of the conversation as their content."""
STATE_KINDS = frozenset({"turn", "end", "intent"})
"""Kinds of records with the session's state as their content."""


def characters(events: list[Json]) -> int:
    """Return how many characters of content the deltas of block events hold."""
    deltas = [as_json(event.get("delta")).items() for event in events]
    return sum(
        len(text) for d in deltas for key, text in d if isinstance(text, str) and key != "type"
    )
