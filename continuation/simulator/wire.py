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
    """One request as it arrived, and the state of its answer.

    `path` has no query; header names are lower-case. `body`: None if it is no JSON object.
    `status`: 0 until an answer begins. `sent`: the number of events written to the socket.
    `hung_up`: the client closed the connection before the answer was whole. `done`: set when the
    exchange is over. `scenario`: the one that held for it, its own settings included.
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
    """One server-sent event; `data`: the text after `data: `; `name`: None if it has none.

    `framed`: all its bytes, if a format does not frame it as a server-sent event.
    """

    name: str | None
    data: str
    framed: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: its body is `body`, or `events` if that is not None."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: Sequence[Event] | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused; without `kind` and `code` the server's usual ones are used.

    `more`: fields that are added to the error, or replace its own.
    """

    text: str
    status: int = 400
    kind: str | None = None
    code: str | None = None
    param: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
