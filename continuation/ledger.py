"""What a turn has spent: its upstream calls, their tokens, its time, and what it learned.

The engine writes the ledger, call by call. The budget reads from it what is left, and the report
is made from it when the turn has ended. It never holds message text, keys, or headers other than a
request id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from continuation.types import AttemptResult, Head, Mode, Stop, StreamError, TimeUp, Usage, short

_COUNTS = tuple(name for name in Usage.__slots__ if name not in {"tools", "estimated"})
_UNNAMED = {Stop.REPETITION: "repetition"}
"""What stands for the provider's stop reason where we ended the attempt."""
_REQUEST_IDS = ("request-id", "x-request-id", "apim-request-id")


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the request id in a response's headers (names in lower case); `None`: it has none."""
    for name in _REQUEST_IDS:
        if headers.get(name):
            return headers[name]
    return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One upstream call."""

    number: int
    """Its place among the calls of the turn, from 1."""
    mode: Mode
    """How it joined the turn: `first`, `replace`, `append_tail`, `recovery`,
    `native_continuation` or `argument`."""
    limit: int | None
    """The output limit it was sent with, in tokens; `None`: none was set."""
    stop: str | None
    """The provider's stop reason; `None`: none arrived."""
    usage: Usage | None
    """Its tokens, as the provider counted them or as we estimate; `None`: none are known."""
    request_id: str | None
    """The id in the response's headers (`request-id`, `x-request-id`, `apim-request-id`)."""
    seconds: float
    """Seconds from sending the request to the end of the answer."""
    error: str | None = None
    """Why it failed: a status or an exception's name; `None`: it did not."""
    discarded: bool = False
    """A later attempt's answer counts in its place; it was billed all the same."""
    estimated: bool = False
    """`usage` is our estimate: the provider gave no count."""
    answered: bool = False
    """The provider answered with a 2xx status, so the call was billed."""
    begun: float = 0.0
    """Seconds from the turn's beginning to the sending of this call."""
    answer_id: str | None = None
    """The id in the answer itself (`msg_...`, `chatcmpl-...`, `resp_...`); `None`: not read."""
    saved: bool = False
    """The call was made before this turn, elsewhere or by a process that was stopped; its output
    was reused and not paid for again."""
    shown: float | None = None
    """Of a later attempt: seconds from the turn's beginning until its first bytes reached the
    caller's stream; they were held until then. `None`: unknown, or all of it was held."""
    kept: int = 0
    """Of a `discarded` one: characters of its text that the caller had been given already, so that
    they are in the turn's answer; the later attempt's answer follows them."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was learned about a model's limits in this turn; later turns of the client use it."""

    kind: str
    """`ceiling`: the model's largest output limit; `needed`: the tokens of an answer that was cut
    and completed; `prefill`: a trailing assistant message is refused."""
    value: int
    """A limit in tokens; 0 for `prefill`."""
    source: str
    """What it was learned from: `refusal`, `models endpoint`, `escalation` or `recovery`."""


class Ledger:
    """The accounts of one turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Open the accounts. `now` is a clock in seconds that never goes back."""
        self.attempts: list[Attempt] = []
        """The calls that have ended, in the order they were sent."""
        self.live: Attempt | None = None
        """The call under way, as far as it is known; `None`: no call is under way."""
        self.sent = 0
        """How many calls this process has begun for the turn."""
        self.before = 0
        """How many calls earlier processes have begun for the turn."""
        self.played = False
        """The first call was made by an earlier process or elsewhere, and is not repeated."""
        self.paused = 0
        """How many of the calls the provider ended before their output limit, to be continued."""
        self.limit: int | None = None
        """The output limit of the last call that was answered; before that, the caller's own."""
        self.lessons: list[Lesson] = []
        self.error: str | None = None
        """The error of the last call that failed; `None`: none has."""
        self.holds: Callable[[], bool] = bool
        """Whether output is held back; the engine sets it."""
        self._now = now
        self._started = now()

    @property
    def held(self) -> bool:
        """Whether output of the call under way has arrived that the caller does not have yet."""
        return self.live is not None and self.holds()

    @property
    def seconds(self) -> float:
        """Seconds that the turn has taken so far."""
        return self._now() - self._started

    @property
    def so_far(self) -> list[Attempt]:
        """All calls, the one under way as if it ended now; until it is shown, it counts as held."""
        if (live := self.live) is None:
            return self.attempts
        seconds = self.seconds - live.begun
        held = live.begun + seconds if live.shown is None and live.number > 1 else live.shown
        return [*self.attempts, replace(live, seconds=seconds, shown=held)]

    # --- one call after another ------------------------------------------------------------------

    def begin(self, mode: Mode, limit: int | None) -> None:
        """Note that a call is sent; `limit`: its output limit in tokens."""
        self.sent += 1
        saved = self.played and self.sent == 1
        self.live = Attempt(
            self.sent, mode, limit, None, None, None, 0.0, begun=self.seconds, saved=saved
        )

    def answered(self, head: Head) -> None:
        """Note that the head of the answer to the call under way has arrived."""
        if self.live is not None:
            found = request_id_in(head.headers)
            request_id = found and short(found)
            self.live = replace(self.live, request_id=request_id, answered=head.ok)
            self.limit = self.live.limit if head.ok else self.limit

    def watching(self, feed: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """Return `feed`, noting when the call under way first returns bytes for the caller."""

        def noting(data: bytes) -> bytes:
            out = feed(data)
            if out and self.live is not None and self.live.shown is None:
                self.live = replace(self.live, shown=self.seconds)
            return out

        return noting

    def record(self, result: AttemptResult | None = None, error: str | None = None) -> None:
        """Note that the call under way has ended, with `result` or with `error`."""
        if self.live is None:
            return
        fields: dict[str, Any] = {"seconds": self.seconds - self.live.begun}
        if result is not None:
            if result.error is not None:
                named = isinstance(result.error, (StreamError, TimeUp))
                error = str(result.error) if named else type(result.error).__name__
            fields |= {
                "stop": short(result.raw) if result.raw else _UNNAMED.get(result.stop),
                "usage": result.usage,
                "estimated": result.estimated,
                "answer_id": short(result.id) if result.id else None,
            }
            self.paused += result.stop is Stop.PAUSED
        error = error and short(error)
        self.attempts.append(replace(self.live, error=error, **fields))
        self.live = None
        self.error = error or self.error

    def discard(self, start: int, end: int | None = None) -> None:
        """Mark the calls in `attempts[start:end]` as replaced by the answer of a later one."""
        self.attempts[start:end] = [replace(a, discarded=True) for a in self.attempts[start:end]]

    def keep(self, starts: Mapping[int, int], end: int) -> None:
        """Note how many characters of each call so far are in the answer, if it is discarded.

        `starts`: where the text of a call begins in the answer, by its number; the first begins it.
        `end`: the characters of the answer so far.
        """
        for index in reversed(range(len(self.attempts))):
            attempt = self.attempts[index]
            start = starts.get(attempt.number, 0 if attempt.mode is Mode.FIRST else end)
            if attempt.error is None or attempt.answered:
                self.attempts[index] = replace(attempt, kept=max(0, end - start))
                end = min(end, start)

    def most_billed(self, ceiling: int, hop_ceiling: int | None) -> int:
        """Return the most output tokens that the turn can have been billed so far.

        A call without a final count from the provider counts with its whole limit, but with no more
        than `hop_ceiling`: what one request can bring, where its limit does not bound that.
        """
        billed = 0
        for attempt in self.attempts:
            if not attempt.answered:
                continue
            counted = attempt.usage if attempt.stop is not None and not attempt.estimated else None
            if counted is not None and counted.output is not None:
                billed += counted.output
            else:
                most = attempt.limit or ceiling
                billed += most if hop_ceiling is None else min(most, hop_ceiling)
        return billed


def delivered(attempts: Sequence[Attempt]) -> Usage:
    """Return the tokens of the turn as if uncut: the first prompt, and all output delivered."""
    first, kept = None, list[Attempt]()
    for attempt in attempts:
        first = attempt.usage if first is None else first
        if not attempt.discarded:
            kept.append(attempt)
    made = total(kept)
    first = first or made
    return replace(
        first,
        output=made.output,
        thinking=made.thinking,
        tools=made.tools,
        estimated=made.estimated,
    )


def total(attempts: Sequence[Attempt]) -> Usage:
    """Return the sum of all usages; a count that is unknown for every attempt stays `None`."""
    sums: dict[str, int] = {}
    tools: dict[str, int] = {}
    estimated = False
    for attempt in attempts:
        if (usage := attempt.usage) is None:
            continue
        estimated = estimated or usage.estimated
        for name in _COUNTS:
            if (count := getattr(usage, name)) is not None:
                sums[name] = sums.get(name, 0) + count
        for name, count in (usage.tools or {}).items():
            tools[name] = tools.get(name, 0) + count
    return Usage(**sums, tools=tools or None, estimated=estimated)
