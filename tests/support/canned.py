"""A server on 127.0.0.1 that gives canned answers, and a dialect that only watches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from continuation.attach import common as _attach_common
from support.local import Handler, Local


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    """What to say: JSON, or JSON values as server-sent events with `gap` seconds between them."""

    body: Any = None
    events: list[Any] = field(default_factory=list[Any])
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    gap: float = 0.0


Rule = Callable[[Asked], Answer]


class Canned(Local):
    """Answers each request by a rule, and remembers it."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(_Handler)
        self.rule = rule
        self.asked: list[Asked] = []


class _Handler(Handler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        canned = cast("Canned", self.owner)
        raw = self.sent()
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, json.loads(raw) if raw else None)
        canned.asked.append(asked)
        answer = canned.rule(asked)
        if answer.events:
            self._begin(answer, "text/event-stream", {"transfer-encoding": "chunked"})
            self._stream(answer)
        else:
            whole = json.dumps(answer.body).encode()
            self._begin(answer, "application/json", {"content-length": str(len(whole))})
            self.wfile.write(whole)

    do_GET = do_POST = _answer  # noqa: N815 - the base's names

    def _begin(self, answer: Answer, kind: str, headers: dict[str, str]) -> None:
        self.send_response_only(answer.status)
        for name, value in {"content-type": kind, **headers, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, answer: Answer) -> None:
        for event in answer.events:
            text = event if isinstance(event, str) else json.dumps(event)
            piece = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(answer.gap)
        self.wfile.write(b"0\r\n\r\n")


class Watcher:
    """Stands in the place of the dialects: claims nothing, and notes what it could have claimed.

    Only `send` of an HTTP client of ours asks it, so that what it saw went through one.
    """

    name = "watcher"

    def __init__(self) -> None:
        self.seen: list[str] = []

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch) -> Watcher:
        """Return the one that all clients wrapped from now on have."""
        watcher = cls()
        monkeypatch.setattr(_attach_common, "dialects", lambda: (watcher,))
        return watcher

    def claims(self, method: str, path: str) -> bool:
        self.seen.append(f"{method} {path}")
        return False
