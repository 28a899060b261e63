"""What the server and a wire format exchange."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from continuation.simulator.scenario import Scenario

Json = dict[str, Any]
Route = Literal["model", "other"]


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
    scenario: Scenario = field(default_factory=Scenario, repr=False)
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


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused; without `kind` and `code` the server's usual ones are used.

    `more` is laid over the error that is written.
    """

    text: str
    status: int = 400
    kind: str | None = None
    code: str | None = None
    param: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
