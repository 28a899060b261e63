"""What the server and a wire format tell each other."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from continuation.simulator.model import Ask
    from continuation.simulator.scenario import Reply, Scenario

Json = dict[str, Any]


@dataclass
class Recorded:
    """One request as it arrived and what became of it.

    `path` ends where `query` begins; header names are lower-case. `status` is 0 until an answer
    begins, and stays 0 if none ever does. `sent` counts the events handed to the socket, `hung_up`
    says that the client went before the answer was whole, `done` is set when the exchange is over.
    `scenario` is what held for it, its own settings included.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw: bytes
    body: Json | None
    asks_model: bool = False
    status: int = 0
    sent: int = 0
    hung_up: bool = False
    scenario: Scenario | None = field(default=None, repr=False)
    done: threading.Event = field(default_factory=threading.Event, repr=False)


@dataclass(frozen=True)
class Event:
    """One server-sent event; `data` is the text after `data: `, `name` may be missing.

    `framed`: its very bytes, where a format frames in a way of its own.
    """

    name: str | None
    data: str
    framed: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: a body of bytes, or events."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: Sequence[Event] | None = None


Route = Literal["model", "other"]


class WireFormat(Protocol):
    """One provider's wire format: everything the server does not know.

    The server asks in this order: `route` (is the request ours, and does it ask the model?), then
    either `other`, or `refuse`, `ask` and, once the model has spoken, `answer`.
    """

    def route(self, method: str, path: str) -> Route | None:
        """Say whether a path asks the model, asks something else, or is none of ours."""
        ...

    def error(self, status: int, message: str, kind: str | None = None) -> Answer:
        """Write an error the provider's way; `kind` is its type if it is not the status's own."""
        ...

    def error_event(self, kind: str, message: str) -> Event:
        """Write an error that comes in the middle of a stream."""
        ...

    def refuse(self, request: Recorded, scenario: Scenario) -> Answer | None:
        """Refuse what the provider would refuse; None lets the request through."""
        ...

    def ask(self, request: Recorded, scenario: Scenario) -> Ask:
        """Put a request the provider accepts into the model's terms."""
        ...

    def answer(self, request: Recorded, reply: Reply) -> Answer:
        """Write the model's reply, as events or as one body, whichever the request asked for."""
        ...

    def other(self, request: Recorded, scenario: Scenario) -> Answer:
        """Answer a request that does not ask the model."""
        ...

    def forget(self) -> None:
        """Forget what earlier requests left behind (caches, counters)."""
        ...
