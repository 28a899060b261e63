"""What requests that are made at once share: one rate limit, and for each of them its journal.

One request is refused for its rate, and all wait: for as long as the server says, or twice as long
each time. What would come then is a herd, so from there on requests go one by one, at the rate at
which they were taken before. Refused again at once, they go half as fast; refused after a while,
hardly slower; and as long as none is, they come closer: soon to the gap that was refused last, and
from there on slowly, for each refusal costs a wait. So the limit is found, whether it counts by the
second or by the minute, and nobody has to name it.
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
from continuation.engine.attempts import capped, retry_after
from continuation.types import ErrorKind, Head
from continuation.wire.json_values import dumps

if TYPE_CHECKING:
    import httpx2

    from continuation.attach.journaled import Refused, TurnLog
    from continuation.dialect import ProviderRequest
    from continuation.journal import Journal
    from continuation.ledger import Ledger

logger = logging.getLogger("continuation")

PATIENCE = 600.0
"""Seconds without an answer after which a refusal goes to the caller."""
_LATER = frozenset({429, 503, 529})
"""Statuses of a server that has too much to do, or was asked too often."""
_FIRST, _LONGEST = 0.5, 60.0
"""Seconds to wait where the server does not say: at first, and at most."""
_LEAST = 0.001
"""Seconds to wait where it says that there is no need, and refuses: at first; then longer."""
_SLOWER, _HARDLY = 2.0, 1.06
"""What a refusal makes of the gap between two requests: one at once, one after a while."""
_SOON, _SLOWLY = 0.04, 0.002
"""How much closer they come in the time of one wait: far from the last refusal, near it."""
_COUNTED = 0.2, 5.0
"""Seconds of a wait that count in that, at least and at most."""


class StoppedError(Exception):
    """The batch was left; this request is not sent any more."""


class Pace:
    """Says when the next request may go; it does no I/O, and any thread may ask."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._lock = threading.Lock()
        self._gap = self._bad = 0.0
        """Seconds between two requests, and with how many they were refused last."""
        self._next = self._opened = self._taken_at = now()
        """When the next one may go; since when they may; when one was taken last."""
        self._shut, self._wait = -math.inf, 1.0
        """When a refusal came last, and how long all waited."""
        self._taken = self._tries = 0
        """How many were taken since they may go; refusals in a row."""
        self._since: float | None = None
        """When the first of these refusals came."""

    def waits(self) -> Iterator[float]:
        """Yield seconds to wait, one after the other; then a request may go."""
        while True:
            with self._lock:
                refusal, at = self._shut, max(self.now(), self._next)
                self._next = at + self._gap
            while (left := at - self.now()) > 0:
                yield left
            if refusal == self._shut:  # else one came meanwhile: wait anew
                return

    def taken(self) -> None:
        """The server has taken a request."""
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
        """The server has refused a request; `False`: it is no use to wait.

        `sent`: when that left; `seconds`: to wait, if the server says.
        """
        with self._lock:
            now = self.now()
            self._since = now if self._since is None else self._since
            if now + (seconds or 0.0) - self._since > PATIENCE:
                return False
            if sent <= self._shut:  # it left before the others were told to wait
                return True
            longer = 2.0 ** min(self._tries, 16)
            if seconds is None:
                seconds = min(_FIRST * longer, _LONGEST) * (1 - 0.25 * random.random())
            self._wait = max(capped(seconds), min(_LEAST * longer, _FIRST))
            went = now - self._opened
            if not self._gap:
                self._gap = went / max(self._taken, 1)
            elif self._taken:  # none taken: it is no rate limit, and slower is no help
                self._bad = self._gap
                self._gap *= _SLOWER if went < 4 * self._wait else _HARDLY
            self._shut, self._tries, self._taken = now, self._tries + 1, 0
            self._opened = self._next = now + self._wait
            return True


class Lane:
    """One request on its way: recorded by a journal, if any, and sent when the pace allows it."""

    def __init__(self, pace: Pace, stopped: threading.Event, *, streams: bool) -> None:
        self.streams = streams
        self.session: Any = None
        self.journal: Journal | None = None
        self._pace, self._stopped = pace, stopped

    # --- its journal ------------------------------------------------------------------------------

    def check(self) -> None:
        if self._stopped.is_set():
            raise StoppedError
        if self.journal is not None:
            self.journal.check()

    def failed(self, error: BaseException) -> None:
        if self.journal is not None:
            self.journal.failed(error)

    def begin(self, form: str | None, request: ProviderRequest, *, framed: bool) -> TurnLog | None:
        turn: TurnLog | None = None
        if self.journal is not None:
            try:
                turn = self.journal.begin(form, request, framed=framed, once=True)
            except Exception as error:  # the answer is assembled all the same
                self.failed(error)
        codec = getattr(request, "codec", None)
        if turn is not None or codec is None or not self.streams:
            return turn
        return Gathered(codec(), framed=framed)

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
        """Whether a refused request is to wait, and all others with it."""
        head = Head(response.status_code, dict(response.headers.items()))
        error = refused(head, body)
        lasting = error.kind is not ErrorKind.RETRYABLE or error.maximum is not None
        if lasting or head.headers.get("x-should-retry") == "false":
            return False
        seconds = retry_after(head.headers, time.time())
        return self._pace.refused(sent, error.wait if seconds is None else seconds)


class Gathered:
    """A turn that no journal records: assembles the answer that its caller is given."""

    replay: bytes | None = None
    is_complete = is_body = repeated = False
    attempts = 0
    ledger: Ledger | None = None
    fault: str | None = None

    def __init__(self, codec: Any, *, framed: bool) -> None:
        self._given = Given(codec, framed=framed)

    def give(self, chunk: bytes) -> None:
        self._given.read([chunk])

    def end(self, outcome: str) -> Future[None] | None:
        self._given.eof()
        return None

    def keep(self, body: bytes) -> Future[None] | None:
        return None

    def drop(self) -> None: ...

    def leave(self) -> None: ...

    def answer(self) -> bytes | None:
        """Return the whole answer as a JSON body; `None`: its end has not come."""
        return dumps(self._given.body()) if self._given.segment.reason else None
