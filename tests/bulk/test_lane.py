"""The pace of many workers, in virtual time: one is refused and all wait; then nobody is a herd."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from continuation.bulk import lane
from continuation.bulk.lane import Pace
from continuation.testing import set_testing

TRIP = 0.002
"""Seconds that a request takes to the server, and a refusal back."""


@dataclass
class Provider:
    """A server with a token bucket, and the workers of a batch before it, in virtual time."""

    rate: float
    burst: int
    workers: int
    latency: float
    hint: Callable[[float], float | None]
    down: tuple[float, float] = 0.0, 0.0
    """From when to when it refuses all."""
    now: float = 0.0
    sent: list[float] = field(default_factory=list[float])
    refusals: list[float] = field(default_factory=list[float])
    done: int = 0

    def __post_init__(self) -> None:
        self.pace = Pace(lambda: self.now)
        self.left, self.at, self.begun = float(self.burst), 0.0, 0
        self.events, self.number = list[tuple[float, int, Callable[[], None]]](), 0

    def serve(self, total: int) -> None:
        """Answer so many requests."""
        self.total = total
        for _ in range(self.workers):
            self.begin()
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, act))

    def begin(self) -> None:
        if self.begun < self.total:
            self.begun += 1
            self.wait(self.pace.waits())

    def wait(self, waits: Iterator[float]) -> None:
        if (seconds := next(waits, None)) is not None:
            self.later(seconds + 1e-9, partial(self.wait, waits))
            return
        self.sent.append(self.now)
        self.later(TRIP, partial(self.arrive, self.now))

    def arrive(self, sent: float) -> None:
        self.left += (self.now - self.at) * self.rate
        self.left, self.at = min(self.burst, self.left), self.now
        first, last = self.down
        if self.left >= 1 and not first <= self.now < last:
            self.left -= 1
            self.pace.taken()
            self.later(self.latency, self.end)
            return
        self.refusals.append(self.now)
        seconds = max(1 - self.left, 0.0) / self.rate
        self.later(TRIP, partial(self.refuse, sent, self.hint(seconds)))

    def refuse(self, sent: float, seconds: float | None) -> None:
        assert self.pace.refused(sent, seconds)
        self.wait(self.pace.waits())

    def end(self) -> None:
        self.done += 1
        self.begin()


@pytest.mark.parametrize(
    ("hint", "share"), [(float, 0.95), (math.ceil, 0.85), (lambda _: None, 0.85)],
    ids=["to the millisecond", "whole seconds", "none"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("rate", "burst", "workers", "latency"),
    [(60, 4, 20, 0.05), (66, 66, 100, 1.0), (8, 8, 100, 10.0), (200, 10, 32, 0.02)],
)
def test_the_servers_own_rate_is_found_and_kept(
    rate: float,
    burst: int,
    workers: int,
    latency: float,
    hint: Callable[[float], float | None],
    share: float,
) -> None:
    server = Provider(rate, burst, workers, latency, hint)
    rate = min(rate, workers / latency)
    total = int(rate * 150)
    server.serve(total)
    assert server.done == total
    assert total / rate / (server.now - latency) >= share
    assert len(server.refusals) < workers + total / 20


@pytest.mark.parametrize(
    ("hint", "beyond", "refused"),
    [(lambda _: 1.0, 5, 800), (lambda _: 0.0, 5, 1_300), (lambda _: None, 60, 40)],
    ids=["a second", "no need to wait", "none"],
)
@pytest.mark.parametrize("begins", [0.0, 20.0])
def test_an_outage_is_no_rate(
    begins: float, hint: Callable[[float], float | None], beyond: float, refused: int
) -> None:
    """All are refused for minutes; then all goes on as it did before."""
    server = Provider(1_000, 1_000, 8, 1.0, hint, down=(begins, begins + 300))
    server.serve(8 * 100)
    assert server.done == 800
    assert server.now < 100 + 300 + beyond
    assert len(server.refusals) < refused


def test_nothing_is_sent_while_all_wait_and_no_herd_comes_after() -> None:
    server = Provider(10, 10, 50, 2.0, math.ceil)
    server.serve(400)
    begun = 0
    for refusal in server.refusals[40:]:  # those of the first herd are all there is of it
        quiet = [at for at in server.sent if refusal + TRIP < at < refusal + TRIP + 0.99]
        begun += len(quiet)
        after = [at for at in server.sent if refusal + 1.0 <= at < refusal + 1.2]
        assert len(after) <= 20
    assert begun == 0


def test_without_a_refusal_nobody_waits() -> None:
    pace = Pace(lambda: 0.0)
    for _ in range(1_000):
        assert list(pace.waits()) == []
        pace.taken()


def test_without_a_word_of_the_servers_all_wait_longer_each_time() -> None:
    now = [0.0]
    pace, told = Pace(lambda: now[0]), list[float]()
    for _ in range(8):
        now[0] += 1e-6
        assert pace.refused(now[0], None)
        seconds = next(pace.waits())
        told.append(seconds)
        now[0] += seconds
    assert all(later > 1.1 * before for before, later in itertools.pairwise(told[:6]))
    assert max(told) <= 60


def test_a_refusal_that_lasts_is_told_in_the_end() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace.refused(0.0, 60.0)
    assert not pace.refused(1.0, 3_600.0), "a quota of the day"
    now[0] = lane.PATIENCE + 1
    assert not pace.refused(now[0], 1.0)
    pace.taken()
    assert pace.refused(now[0], 1.0)


def test_patience_is_counted_from_the_first_refusal() -> None:
    """Whoever has long answers, or was long over the last one, has not been refused for long."""
    now = [0.0]
    pace = Pace(lambda: now[0])
    pace.taken()
    now[0] = 2 * lane.PATIENCE
    assert pace.refused(now[0], 1.0)
    now[0] += lane.PATIENCE / 2
    assert pace.refused(now[0], 1.0)
    now[0] += lane.PATIENCE / 2
    assert not pace.refused(now[0], 1.0)


def test_a_rehearsal_does_not_wait() -> None:
    with set_testing():
        pace = Pace()
        assert pace.refused(pace.now(), 60.0)
        assert next(pace.waits(), 0.0) < 0.1
