"""Uncut answers, wrapped against unwrapped: the time, CPU and memory that we add."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial

from lanes import CALLS, Direct, Lanes
from measure import Figure, Race, options, peak, race, report
from upstream import raw, upstream
from wires import WIRES

EVENTS, FEW = 20_000, 5_000
"""Of a stream; a quick run sends few over sockets, where each is parsed by the SDK."""
RATIO, PER_EVENT, MEMORY = 1.05, 1.0, 2.0
STREAMS = {
    "stream": "a chunk per event",
    "blocks": "chunks of 16 kB",
    "call": "one function call",
}
LARGE = "body/1000000"
CALLED = {
    "answer 2 kB": (2_000, "Go."),
    "answer 50 kB": (50_000, "Go."),
    "answer 1 MB": (1_000_000, "Go."),
    "request 1 MB": (2_000, "So we went on. " * 66_667),
}


def streams(lanes: Lanes, rounds: int, events: int) -> Iterator[Figure]:
    for name, how in STREAMS.items():
        found = _race(lanes, partial(lanes.stream, f"{name}/{events}"), rounds)
        what = f"{lanes.label}create(stream=True), {how}"
        yield Figure(f"{what}: wall ratio", found.ratio, "", RATIO)
        yield _cpu(what, found, events)


def calls(lanes: Lanes, rounds: int) -> Iterator[Figure]:
    """Judged: a provider that takes 20 ms. One that takes no time at all is only told."""
    for how, (size, history) in CALLED.items():
        for kind, when, target in (("late", "after 20 ms", RATIO), ("body", "at once", None)):
            found = _race(lanes, partial(lanes.call, f"{kind}/{size}", history), rounds)
            plain, added = (seconds / CALLS * 1e6 for seconds in (found.wall, found.added_cpu))
            note = f"plain: {plain:.0f} µs; CPU added: {added:.0f} µs"
            what = f"{lanes.label}create(), {how}, {when}: wall ratio"
            yield Figure(what, found.ratio, "", target, note)


def relays(lanes: Lanes, rounds: int) -> Iterator[Figure]:
    """Our HTTP client against a bare one: what a chunk costs when nobody parses it."""
    for name in ("stream", "blocks"):
        found = _race(lanes, partial(lanes.relay, f"{name}/{EVENTS}"), rounds)
        yield _cpu(f"{lanes.label}http_client(), {STREAMS[name]}", found)


def memory(lanes: Lanes, dialect: str, events: int) -> Iterator[Figure]:
    for name, how in STREAMS.items():
        what, sent = f"{lanes.label}create(stream=True), {how}", f"{name}/{events}"
        yield _memory(what, raw(sent, dialect), partial(lanes.stream, sent))
    what = f"{lanes.label}create(), answer 1 MB"
    yield _memory(what, raw(LARGE, dialect), partial(lanes.call, LARGE, "Go."))


def _race(lanes: Lanes, lane: Callable[..., Iterator[object]], rounds: int) -> Race:
    lanes.outcomes.clear()
    found = race(partial(lane, ours=False), partial(lane, ours=True), rounds)
    assert lanes.outcomes == {"complete"}, f"not watched, or not whole: {lanes.outcomes}"
    return found


def _cpu(what: str, found: Race, events: int = EVENTS) -> Figure:
    added, plain = (seconds / events * 1e6 for seconds in (found.added_cpu, found.wall))
    return Figure(
        f"{what}: CPU added", added, "µs/event", PER_EVENT, f"plain: {plain:.2f} µs/event"
    )


def _memory(what: str, answer: list[bytes], lane: Callable[..., Iterator[object]]) -> Figure:
    size = sum(map(len, answer))
    plain, ours = (peak(partial(_exhaust, partial(lane, ours=ours))) for ours in (False, True))
    note = f"answer {size / 1e6:.2f} MB, peak {plain / 1e6:.2f} -> {ours / 1e6:.2f} MB"
    return Figure(f"{what}: memory added", (ours - plain) / size, "x raw", MEMORY, note)


def _exhaust(lane: Callable[[], Iterator[object]]) -> None:
    for _ in lane():
        pass


def directly(lanes: Lanes, rounds: int) -> Iterator[Figure]:
    """The same per event where no socket and no second process disturbs: the steadiest figure."""
    for lane, what in ((lanes.stream, "create(stream=True)"), (lanes.relay, "http_client()")):
        found = _race(lanes, partial(lane, f"stream/{EVENTS}"), rounds)
        yield _cpu(f"{lanes.label}{what}, {STREAMS['stream']}", found)


def main() -> int:
    quick, dialect = options(str(__doc__), WIRES)
    wire, (rounds, events) = WIRES[dialect], (2, FEW) if quick else (8, EVENTS)
    figures: list[Figure] = []
    with upstream(dialect) as url, asyncio.Runner() as runner:
        direct = Direct(dialect)
        for lanes in (Lanes(url, wire, None, direct), Lanes(url, wire, runner, direct)):
            figures += directly(lanes, rounds)
        for lanes in (Lanes(url, wire), Lanes(url, wire, runner)):
            figures += streams(lanes, rounds, events)
            figures += calls(lanes, rounds)
            figures += relays(lanes, rounds)
            figures += memory(lanes, dialect, events)
    return report(f"uncut answers, {wire.what}", figures)


if __name__ == "__main__":
    sys.exit(main())
