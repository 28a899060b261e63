"""The data that the server and a wire format exchange."""

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

    `path` has no query. Header names are in lower case. `body`: None if it is not a JSON object.
    `status`: 0 until an answer begins. `sent`: the number of events written to the socket.
    `hung_up`: whether the client closed the connection before the answer was complete. `done`: set
    when the exchange is over. `scenario`: the one that applied to it, with the request's settings.
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
    """One server-sent event. `data`: the text after `data: `. `name`: None if it has none.

    `framed`: all of its bytes, if the format does not write it as a server-sent event.
    """

    name: str | None
    data: str
    framed: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. Its body is `events`, or `body` if `events` is None."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    events: Sequence[Event] | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused. If `kind` and `code` are None, the server's usual ones are used.

    `more`: fields that are added to the error, or that replace its fields.
    """

    text: str
    status: int = 400
    kind: str | None = None
    code: str | None = None
    param: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
