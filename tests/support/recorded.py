"""Recorded shapes of provider streams: passed byte for byte, and cut at every event.

A format adds its streams in a test file of its own, in three steps:

1. One `Wire`: how its events are bytes, what the SDK makes of them, how a stream looks that stopped
   at its limit, and what a model that wrote a stream says to a later request (`again`).
2. The streams, by name, each a list of events. Shapes are recorded ones with made-up content; a
   notation in a line of text keeps them short (`support/recorded_messages.py`).
3. Two tests, parametrized over the names: `passes(wire, events)` and `cuts(wire, events)`.

    @pytest.mark.parametrize("name", STREAMS)
    def test_a_recorded_stream_passes_byte_for_byte(name: str) -> None:
        passes(WIRE, STREAMS[name])

    @steps
    @pytest.mark.parametrize("name", STREAMS)
    def test_a_recorded_stream_cut_at_every_event_is_healed(name: str, step: int) -> None:
        for cut in cuts(WIRE, STREAMS[name], step):
            assert cut.driven.report...        # what only this format promises

What holds of every cut is asserted here: the SDK reads what the caller got, no text is there twice
or lost, every call is one of the recorded ones, whole, and what stands beside the text is there
once (`Gist.kept`). The turn is healed, wherever anything was left to be said; behind a call that
had arrived whole it stays as it is, and nothing is asked for again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any, Literal

import pytest

from continuation import Policy
from continuation.history import validate
from continuation.types import Outcome
from support.drive import STREAM, Answered, Driven, drive, split

Json = dict[str, Any]
Events = Sequence[Json]
LIMIT = 1000
POLICY = Policy(backoff_seconds=0.0, models_endpoint=False, model_max_output_tokens=8 * LIMIT)
"""For a cut below the ceiling: calls are asked for again, a shown text is continued."""


@dataclass(frozen=True)
class Gist:
    """The content of an answer, as the format's own SDK reads its events."""

    text: str
    calls: Sequence[str] = ()
    """The calls that the caller is to run: name and arguments."""
    kept: Sequence[str] = ()
    """All else that may neither be lost nor repeated: citations, results, signatures."""


@dataclass(frozen=True)
class Wire:
    """The parts of a wire format that a recorded stream needs."""

    path: str
    history: str
    """The name of its history format, for `validate`."""
    request: Json
    """The caller's request, for a stream with the limit `LIMIT`."""
    encode: Callable[[Events], bytes]
    gist: Callable[[Events], Gist]
    """Reads events through the SDK; raises what the SDK raises."""
    limited: Callable[[Events, int], Events]
    """Returns the first N events, ended as the provider ends an answer at its limit."""
    again: Callable[[Events, Json], Events]
    """Returns the model's answer to a later request: all events if it is the caller's own, else
    those after the text that the request contains as said."""


STAYS = {"truncated after complete calls", "dropped after complete calls"}
How = Literal["limited", "dropped", "dropped in an event"]


@dataclass(frozen=True)
class Cut:
    """What the caller got of a stream that stopped after `at` events."""

    at: int
    how: How
    driven: Driven
    served: Sequence[Events]
    """The events of all attempts."""

    @property
    def kept(self) -> Sequence[Events]:
        """The events of the attempts that were not discarded."""
        attempts = zip(self.driven.report.attempts, self.served, strict=True)
        return [events for attempt, events in attempts if not attempt.discarded]


def passes(wire: Wire, events: Events, policy: Policy = POLICY) -> None:
    """Assert that a stream reaches the caller as it is, however its bytes arrive."""
    frames = [wire.encode([event]) for event in events]
    raw = b"".join(frames)
    ends = [*accumulate(map(len, frames))]
    for places in ([], ends, [end - 9 for end in ends], range(0, len(raw), 97)):
        driven = _drive(wire, lambda _: (raw, None), policy, [*places])
        assert b"".join(driven.pieces) == raw
        assert driven.report.outcome is Outcome.COMPLETE
    wire.gist(driven.told)


def cuts(wire: Wire, events: Events, step: int = 1, policy: Policy = POLICY) -> Iterator[Cut]:
    """Cut a stream after each event, by the limit and by a dropped connection; check each.

    `step`: only every `step`-th cut is tried.
    """
    whole = wire.gist(events)
    for at, how in [*product(range(1, len(events)), _WAYS)][::step]:
        cut = _cut(wire, events, at, how, policy)
        try:
            _check(wire, cut, whole, events)
        except Exception as error:
            error.add_note(f"{how} after {at} events, {json.dumps(events[at - 1])[:120]}")
            error.add_note(f"asked: {cut.driven.requests[1:]}")
            raise
        yield cut


_WAYS: tuple[How, ...] = ("limited", "dropped", "dropped in an event")
steps = pytest.mark.parametrize(
    "step", [8, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
"""How many of the cuts are tried: some, in changing ways, or in the slow part all."""


def _cut(wire: Wire, events: Events, at: int, how: How, policy: Policy) -> Cut:
    served: list[Events] = []

    def answer(asked: Json) -> tuple[bytes, Exception | None]:
        if served:
            served.append(wire.again(events, asked))
            return wire.encode(served[-1]), None
        served.append(wire.limited(events, at) if how == "limited" else events[:at])
        raw = wire.encode(served[-1])
        if how == "limited":
            return raw, None
        piece = wire.encode([events[at]])[:-9] if how == "dropped in an event" else b""
        return raw + piece, ConnectionError("peer closed the connection")

    return Cut(at, how, _drive(wire, answer, policy, []), served)


def behind(whole: str, said: str) -> int:
    """Return the index in `whole` after the text `said`, which may lack blanks of `whole`."""
    marks, blanks = len("".join(said.split())), len(said) - len(said.rstrip())
    for at, character in enumerate(whole):
        if marks and not character.isspace():
            marks -= 1
        elif not marks:
            if not (blanks and character.isspace()):
                return at
            blanks -= 1
    return len(whole)


def _drive(
    wire: Wire,
    answer: Callable[[Json], tuple[bytes, Exception | None]],
    policy: Policy,
    places: Sequence[int],
) -> Driven:
    def provider(asked: Json) -> Answered:
        raw, error = answer(asked)
        return 200, STREAM, split(raw, places), error

    return drive(provider, wire.request, policy, path=wire.path)


def _check(wire: Wire, cut: Cut, whole: Gist, events: Events) -> None:
    driven = cut.driven
    for body in driven.requests[1:]:
        assert [fault.message for fault in validate(body, wire.history, live=False)] == []
    assert driven.error is None
    got = wire.gist(driven.told)
    left = wire.gist(wire.limited(events, cut.at))  # what had arrived, perhaps all
    if driven.report.rows[-1] in STAYS:  # a call that was not cut is not changed
        assert (len(cut.served), got.text, got.calls) == (1, left.text, left.calls)
        assert left.calls
        assert {*left.calls} <= {*whole.calls}
        if cut.how == "limited":
            assert b"".join(driven.pieces) == wire.encode(cut.served[0])
        return
    if driven.report.outcome not in {Outcome.HEALED, Outcome.COMPLETE}:
        assert (left.text, left.calls) == (whole.text, whole.calls), driven.report.rows
    assert got.text == whole.text
    assert Counter(got.calls) == Counter(whole.calls)
    assert Counter(got.kept) == Counter(whole.kept)
