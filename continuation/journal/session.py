"""A session as its records tell it: the turns, the calls, the turn that is not over.

Records are only appended. What a session is follows from them by `Session.apply`, whether they are
read from the file or were made just now; so there is one account of what a record means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from continuation.types import Json
from continuation.wire.json_values import as_json, as_text, parsed


@dataclass(slots=True)
class Said:
    """One turn of the conversation."""

    number: int
    """Of its record."""
    digest: str
    kind: str
    """`message`: a request brought it; `answer`: the model made it; `interrupted`: it began to."""


@dataclass(slots=True)
class Call:
    """A tool's call, as far as this journal ran it."""

    begun: dict[str, Any]
    """Name and terms, as the intent has them."""
    number: int
    active: float
    """When it was last known to run."""
    result: int | None = None
    """The number of the record of its result."""
    before: Call | None = None
    """What was known of it before it was begun again."""


@dataclass(slots=True)
class OpenTurn:
    """A turn that was begun and has not ended."""

    asked: str
    """What its request asks, as a digest."""
    since: float
    framed: bool = False


@dataclass(slots=True)
class Session:
    """The state of one session."""

    number: int = 0
    """Of the last record."""
    form: str = ""
    model: str = ""
    said: list[Said] = field(default_factory=list[Said])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    turn: OpenTurn | None = None
    repaired: set[str] = field(default_factory=set[str])
    turns: int = 0
    at: float = 0.0
    """When something was last recorded."""
    asked: str = ""
    """What the last turn's request asked, as a digest."""
    limit: object = None
    """How long the answer to that could be, in tokens, if it said so."""
    began: int = 0
    """The number of the record with which the last turn began."""
    outcome: str = ""
    """What became of the last turn that has an answer."""
    around: Json | None = None
    """What the last answer said of itself, where nothing was said since."""

    def apply(self, number: int, kind: str, key: str, at: float, told: bytes | None = None) -> None:
        """Take the next record. `told`: what stands beside the key, unless it is content."""
        self.number, self.at = number, at
        more = as_json(parsed(told.decode())) if told else {}
        self.around = as_json(more.get("around")) if kind == "end" else None
        if kind in {"message", "answer", "interrupted"}:
            self.said.append(Said(number, key, kind))
        elif kind == "rewind":
            del self.said[int(key) :]
        elif kind == "turn":
            self.form, self.model = as_text(more.get("form")), as_text(more.get("model"))
            self.turn, self.began = OpenTurn(key, at, more.get("framed") is True), number
            self.asked, self.limit = key, more.get("limit")
        elif kind in {"end", "drop"}:
            self.turn = None
            self.turns += kind == "end"
            self.outcome = as_text(more.get("outcome"))
        elif kind == "intent":
            self.calls[key] = Call(more, number, at, before=self.calls.get(key))
        elif kind == "active":
            self.calls[key].active = at
        elif kind == "result":
            call = self.calls.setdefault(key, Call({}, number, at))
            call.result = number
        elif kind == "repair":
            self.repaired.add(key)

    def refused(self, key: str) -> None:
        """The last intent of a call could not be recorded, so it did not begin."""
        if (before := self.calls.pop(key).before) is not None:
            self.calls[key] = before

    def unmatched(self, digests: list[str], *, chained: bool) -> tuple[int | None, int]:
        """Compare a request's turns with what was said.

        Return how much of what was said stays (`None`: all of it), and the first new turn. Half an
        answer that was kept may be missing from the request: it stays where it was.
        """
        if chained:  # the rest of the conversation is with the server
            return None, 0
        known = 0
        for place, said in enumerate(self.said):
            if known < len(digests) and said.digest == digests[known]:
                known += 1
            elif said.kind != "interrupted":
                return place, known
        return None, known


CONTENT = frozenset({"message", "answer", "interrupted", "result"})
"""Kinds of records whose content is the conversation's."""
PLAIN = frozenset({"turn", "end", "intent"})
"""Kinds of records whose content tells of the session and is no content of the conversation."""


def characters(events: list[Json]) -> int:
    """Count the characters of what block events say."""
    told = [as_json(event.get("delta")).items() for event in events]
    return sum(
        len(value) for d in told for key, value in d if isinstance(value, str) and key != "type"
    )
