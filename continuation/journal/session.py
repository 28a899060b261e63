"""A session as its records tell it: the turns, the calls, the turn that is not over.

Records are only appended. What a session is follows from them by `SessionState.apply`, whether
they are read from the file or were made just now; so there is one account of what a record means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, parsed


@dataclass(slots=True)
class RecordedTurn:
    """One turn of the conversation."""

    number: int
    """Of its record."""
    digest: str
    kind: str
    """`message`: a request brought it; `answer`: the model made it; `interrupted`: it began to."""


@dataclass(slots=True)
class Call:
    """A tool's call, as far as this journal ran it."""

    intent: dict[str, Any]
    """Name and terms, as the intent has them."""
    number: int
    active: float
    """When it was last known to run."""
    result: int | None = None
    """The number of the record of its result."""
    previous: Call | None = None
    """What was known of it before it was begun again."""


@dataclass(slots=True)
class OpenTurn:
    """A turn that was begun and has not ended."""

    request_digest: str
    """What its request asks, as a digest."""
    since: float
    framed: bool = False


@dataclass(slots=True)
class SessionState:
    """The state of one session."""

    number: int = 0
    """Of the last record."""
    form: str = ""
    model: str = ""
    turns: list[RecordedTurn] = field(default_factory=list[RecordedTurn])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    turn: OpenTurn | None = None
    repaired: set[str] = field(default_factory=set[str])
    ended_turns: int = 0
    at: float = 0.0
    """When something was last recorded."""
    request_digest: str = ""
    """What the last turn's request asked, as a digest."""
    limit: object = None
    """That request's limit of output tokens; `None`: it had none."""
    turn_start: int = 0
    """The number of the record with which the last turn began."""
    outcome: str = ""
    """What became of the last turn that has an answer."""
    envelope: Json | None = None
    """The last answer's body without its content; `None` once a record follows it."""

    def apply(self, number: int, kind: str, key: str, at: float, data: bytes | None = None) -> None:
        """Take the next record. `data`: its content, unless that is the conversation's."""
        self.number, self.at = number, at
        fields = as_json(parsed(data.decode())) if data else {}
        self.envelope = as_json(fields.get("around")) if kind == "end" else None
        if kind in {"message", "answer", "interrupted"}:
            self.turns.append(RecordedTurn(number, key, kind))
        elif kind == "rewind":
            del self.turns[int(key) :]
        elif kind == "turn":
            self.form, self.model = as_text(fields.get("form")), as_text(fields.get("model"))
            self.turn, self.turn_start = OpenTurn(key, at, fields.get("framed") is True), number
            self.request_digest, self.limit = key, fields.get("limit")
        elif kind in {"end", "drop"}:
            self.turn = None
            self.ended_turns += kind == "end"
            self.outcome = as_text(fields.get("outcome"))
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
        """The last intent of a call could not be recorded, so it did not begin."""
        if (previous := self.calls.pop(key).previous) is not None:
            self.calls[key] = previous

    def unmatched(self, digests: list[str], *, chained: bool) -> tuple[int | None, int]:
        """Compare a request's turns with those recorded.

        Return how many of the recorded ones stay (`None`: all), and the first new turn. Half an
        answer that was kept may be missing from the request: it stays where it was.
        """
        if chained:  # the rest of the conversation is with the server
            return None, 0
        matched = 0
        for position, turn in enumerate(self.turns):
            if matched < len(digests) and turn.digest == digests[matched]:
                matched += 1
            elif turn.kind != "interrupted":
                return position, matched
        return None, matched


CONTENT_KINDS = frozenset({"message", "answer", "interrupted", "result"})
"""Kinds of records whose content is the conversation's."""
STATE_KINDS = frozenset({"turn", "end", "intent"})
"""Kinds of records whose content is about the session, not of the conversation."""


def characters(events: list[Json]) -> int:
    """Count the characters of what block events say."""
    deltas = [as_json(event.get("delta")).items() for event in events]
    return sum(
        len(text) for d in deltas for key, text in d if isinstance(text, str) and key != "type"
    )
