"""Spliced events: the CPU that the engine takes for each event of a recovery, without any I/O.

The best round counts: the same work is done each time, so what is above it is the machine's.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Sequence

from answers import CUT, text_of
from measure import Figure, options, report
from sansio import drive
from wires import WIRES, Wire

EVENTS = 10_000
TARGET = 10.0
"""Microseconds per event."""
BLOCK = 16_384


def main() -> int:
    quick, dialect = options(str(__doc__), WIRES)
    rounds, wire = 3 if quick else 15, WIRES[dialect]
    first = wire.answers.text_stream(text_of(20_000), CUT)
    figures = [
        _figure(wire, what, [first, chunks], events, rounds)
        for what, chunks, events in _recoveries(wire)
    ]
    return report(f"spliced events, {dialect}: engine time, no I/O", figures)


def _recoveries(wire: Wire) -> list[tuple[str, list[bytes], int]]:
    text = wire.answers.of_events(EVENTS)
    call = wire.answers.of_events(EVENTS, call=True)
    pings = [event for delta in text for event in (delta, wire.ping)]
    return [
        ("text, a chunk per event", text, len(text)),
        ("text, chunks of 16 kB", _blocks(text), len(text)),
        ("text, in pieces that split events", _blocks(text, 100), len(text)),
        ("text between pings", pings, len(pings)),
        ("a function call, held until whole", call, len(call)),
    ]


def _blocks(events: Sequence[bytes], size: int = BLOCK) -> list[bytes]:
    whole = b"".join(events)
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def _figure(wire: Wire, what: str, attempts: list[list[bytes]], events: int, rounds: int) -> Figure:
    taken: list[float] = []
    for _ in range(rounds):
        gc.collect()
        driven = drive(wire, attempts, streamed=True)
        assert len(driven.seconds) == 2, "one cut answer and one recovery"
        taken.append(driven.seconds[1] / events * 1e6)
    note = f"best of {rounds}; median {statistics.median(taken):.2f}"
    return Figure(what, min(taken), "µs/event", TARGET, note)


if __name__ == "__main__":
    sys.exit(main())
