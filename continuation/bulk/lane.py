"""What the requests of a batch share: one rate limit, and a journal with a session for each.

If one request is refused for its rate, all wait: as long as the server says, or twice as long each
time. After that they are sent one by one, at the rate at which they were accepted before, because
all at once would be refused again. A refusal soon after the wait halves the rate; a later one
lowers it only a little. Without refusals, the gap between requests shrinks. It shrinks fast down to
the gap at the last refusal, and then slowly, because each refusal costs a wait. So the limit is
found without configuration, for servers that count per second and per minute.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import anyio

from continuation.answer.given import Given
from continuation.engine.waits import capped, retry_after
from continuation.types import ErrorKind, Head
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    import httpx2

    from continuation.attach.journaled import Refused, TurnLog
    from continuation.journal import Journal
    from continuation.ledger import Ledger
    from continuation.providers.contract import ProviderRequest

logger = logging.getLogger("continuation")

PATIENCE = 600.0
"""Seconds of refusals without an accepted request after which the caller gets the refusal."""
_LATER = frozenset({429, 503, 529})
"""HTTP statuses that mean too many requests or an overloaded server."""
_FIRST, _LONGEST = 0.5, 60.0
"""Seconds to wait if the server says nothing: after the first refusal, and at most."""
_LEAST = 0.001
"""The shortest wait in seconds, even if the server says 0. It doubles with each refusal."""
_SLOWER, _HARDLY = 2.0, 1.06
"""Factors by which a refusal widens the gap between requests: soon after a wait, and later."""
_SOON, _SLOWLY = 0.04, 0.002
"""How fast the gap shrinks per length of a wait: far above the last refused gap, and near it."""
_COUNTED = 0.2, 5.0
"""Limits, in seconds, of the length of a wait for this purpose."""


class StoppedError(Exception):
    """The batch has ended, so this request is not sent."""


class Pace:
    """Decides when the next request may be sent. Does no I/O, and is safe in any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._lock = threading.Lock()
        self._gap = self._bad = 0.0
        """Seconds between two requests: now, and at the last refusal."""
        self._next = self._opened = self._taken_at = now()
        """Times: of the next request, of the end of the last wait, of the last accepted request."""
        self._shut, self._wait = -math.inf, 1.0
        """The time of the last refusal, and the length of the wait after it."""
        self._taken = self._tries = 0
        """Requests accepted since the last refusal; refusals in a row."""
        self._since: float | None = None
        """The time of the first of these refusals; None if the last request was accepted."""

    def waits(self) -> Iterator[float]:
        """Yield seconds to sleep. When the iterator ends, the request may be sent."""
        while True:
            with self._lock:
                refusal, at = self._shut, max(self.now(), self._next)
                self._next = at + self._gap
            while (left := at - self.now()) > 0:
                yield left
            if refusal == self._shut:  # otherwise there was another refusal: wait again
                return

    def taken(self) -> None:
        """Record that the server has accepted a request."""
        with self._lock:
            now = self.now()
            low, high = _COUNTED
            waits = (now - self._taken_at) / min(max(self._wait, low), high)
            near = self._bad * _HARDLY
            if self._gap > near:
                self._gap = max(near, self._gap * math.exp(-_SOON * waits))
            else:
                self._gap *= math.exp(-min(_SLOWLY * waits, _SOON))
            self._taken_at = now
            self._taken += 1
            self._tries, self._since = 0, None

    def refused(self, sent: float, seconds: float | None) -> bool:
        """Record a refusal; return False if it lasted too long, so that the caller gets it.

        `sent`: when the request was sent, by `now`. `seconds`: the wait that the server requests.
        """
        with self._lock:
            now = self.now()
            self._since = now if self._since is None else self._since
            if now + (seconds or 0.0) - self._since > PATIENCE:
                return False
            if sent <= self._shut:  # it was sent before the refusal after which all wait
                return True
            longer = 2.0 ** min(self._tries, 16)
            if seconds is None:
                seconds = min(_FIRST * longer, _LONGEST) * (1 - 0.25 * random.random())
            self._wait = max(capped(seconds), min(_LEAST * longer, _FIRST))
            went = now - self._opened
            if not self._gap:
                self._gap = went / max(self._taken, 1)
            elif self._taken:  # else none was accepted: not a rate limit, so slower is no help
                self._bad = self._gap
                self._gap *= _SLOWER if went < 4 * self._wait else _HARDLY
            self._shut, self._tries, self._taken = now, self._tries + 1, 0
            self._opened = self._next = now + self._wait
            return True


class Lane:
    """One request of a batch. A journal, if any, records it; it is sent when the pace allows."""

    def __init__(self, pace: Pace, stopped: threading.Event, *, streams: bool) -> None:
        self.streams = streams
        self.shell: Any = None
        self.journal: Journal | None = None
        self._pace, self._stopped = pace, stopped

    # --- its journal ------------------------------------------------------------------------------

    def check(self) -> None:
        if self._stopped.is_set():
            raise StoppedError
        if self.journal is not None:
            self.journal.check()

    def failed(self, error: BaseException) -> str:
        return "" if self.journal is None else self.journal.failed(error)

    def begin(self, form: str, request: ProviderRequest, *, framed: bool) -> TurnLog | None:
        turn: TurnLog | None = None
        if self.journal is not None:
            try:
                turn = self.journal.begin(form, request, framed=framed, once=True)
            except Exception as error:  # the answer is assembled anyway
                self.failed(error)
        if turn is not None or not self.streams:
            return turn
        return Gathered(request.codec(), framed=framed)

    # --- when it is sent --------------------------------------------------------------------------

    def send(
        self, refused: Refused, send: Callable[..., httpx2.Response], request: httpx2.Request
    ) -> httpx2.Response:
        while True:
            for seconds in self._pace.waits():
                self._stopped.wait(seconds)
                self.check()
            sent = self._pace.now()
            response = send(request)
            if response.status_code not in _LATER:
                self._pace.taken()
                return response
            if not self._again(refused, sent, response, response.read()):
                return response
            response.close()

    async def asend(
        self, refused: Refused, send: Callable[..., Any], request: httpx2.Request
    ) -> httpx2.Response:
        while True:
            for seconds in self._pace.waits():
                await anyio.sleep(seconds)
            sent = self._pace.now()
            response: httpx2.Response = await send(request)
            if response.status_code not in _LATER:
                self._pace.taken()
                return response
            if not self._again(refused, sent, response, await response.aread()):
                return response
            await response.aclose()

    def _again(self, refused: Refused, sent: float, response: httpx2.Response, body: bytes) -> bool:
        """Whether to send a refused request again, after a wait that applies to all requests."""
        head = Head(response.status_code, dict(response.headers.items()))
        error = refused(head, body)
        lasting = error.kind is not ErrorKind.RETRYABLE or error.maximum is not None
        if lasting or head.headers.get("x-should-retry") == "false":
            return False
        seconds = retry_after(head.headers, time.time())
        return self._pace.refused(sent, error.wait if seconds is None else seconds)


class Gathered:
    """Assembles the answer that is delivered, for a turn that no journal records."""

    replay: bytes | None = None
    is_complete = is_body = repeated = False
    attempts = 0
    ledger: Ledger | None = None
    fault: tuple[str, str] | None = None

    def __init__(self, codec: Any, *, framed: bool) -> None:
        self._given = Given(codec, framed=framed)

    def give(self, chunk: bytes) -> None:
        self._given.read([chunk])

    def end(self, outcome: str) -> Future[None] | None:
        self._given.eof()
        return None

    def keep(self, body: bytes) -> Future[None] | None:
        return None

    def drop(self, *, answered: bool = False) -> None: ...

    def leave(self) -> None: ...

    def answer(self) -> bytes | None:
        """Return the complete answer as a JSON body; `None`: its end has not arrived."""
        return dumps(self._given.body()) if self._given.segment.reason else None
