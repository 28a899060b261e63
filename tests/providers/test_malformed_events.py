"""Events with values of the wrong type: no reader raises, and the answer stays completed.

One value of one event is replaced, anywhere in it. A provider, a proxy or an attacker may send such
an event; what the caller has received until then must not be lost to it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support import recorded_chat as chat
from support import recorded_gemini as gemini
from support import recorded_messages as messages
from support import recorded_responses as responses
from support.drive import STREAM, Answered, drive
from support.examples import examples
from support.recorded import POLICY, Events, Json, Wire

STREAMS: dict[str, tuple[Wire, Events]] = {
    "chat": (chat.WIRE, chat.stream('th:Hm|_so t:The_|quick_|fox. c:read|{"a":|1}')),
    "chat, old call": (chat.WIRE, chat.stream("t:The_|quick_|brown_|fox_jumps.")),
    "responses": (responses.WIRE, responses.stream('th:Hm m:The_|quick_|fox. c:read|{"a":|1}')),
    "messages": (messages.WIRE, messages.stream('th:Hm t:The_|quick_|fox. c:read|{"a":|1}')),
    "gemini": (gemini.WIRE, gemini.stream("t:The t:quick t:brown t:fox =STOP")),
}
WRONG: tuple[Any, ...] = (None, [], {}, [1], [[]], {"a": 1}, 0, -1, 1.5, 10**30, True, "", "x")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a JSON value."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


def damaged(events: Events, rng: random.Random) -> list[Json]:
    """Return the events with one value of one of them replaced."""
    copied = copy.deepcopy([*events])
    at = rng.randrange(len(copied))
    *path, last = rng.choice([*places(copied[at])] or [("type",)])
    target: Any = copied[at]
    for key in path:
        target = target[key]
    target[last] = rng.choice(WRONG)
    return copied


@pytest.mark.parametrize("name", STREAMS)
def test_a_value_of_the_wrong_type_never_raises(name: str) -> None:
    wire, events = STREAMS[name]
    rng = random.Random(f"malformed {name}")
    for number in range(examples(4000)):
        cut = rng.randrange(1, len(events))
        served = [
            damaged(wire.limited(events, cut), rng) if number % 2 else wire.limited(events, cut)
        ]

        def provider(asked: Json, served: list[Any] = served) -> Answered:
            if served:
                return 200, STREAM, [wire.encode(served.pop())], None
            later = wire.again(events, asked)
            return 200, STREAM, [wire.encode(damaged(later, rng))], None

        told = json.dumps(served[0])
        try:
            driven = drive(provider, wire.request, POLICY, path=wire.path)
        except Exception as error:
            error.add_note(f"case {number}, first attempt: {told[:2000]}")
            raise
        assert driven.report is not None
