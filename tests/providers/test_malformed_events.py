"""Malformed answers: no reader raises, and an answer whose needed fields are intact is completed.

Values at any depth are replaced, dropped, added or exchanged, in streams and in bodies, and whole
events that mean nothing come between the others. A provider, a proxy or an attacker may send such
answers; what the caller has received until then must not be lost to it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from support import recorded_chat as chat
from support import recorded_gemini as gemini
from support import recorded_messages as messages
from support import recorded_responses as responses
from support.drive import STREAM, Answered, Driven, body, drive
from support.drive_chat import accumulate
from support.examples import examples
from support.recorded import POLICY, Events, Json, Wire

CALLING = 'th:Hm t:The_|quick_|fox. c:read|{"a":|1}'
STREAMS: dict[str, tuple[Wire, Events]] = {
    "chat": (chat.WIRE, chat.stream(CALLING)),
    "chat, text": (chat.WIRE, chat.stream("t:The_|quick_|brown_|fox_jumps.")),
    "responses": (responses.WIRE, responses.stream(CALLING.replace("t:", "m:"))),
    "responses, text": (responses.WIRE, responses.stream("m:The_|quick_|brown_|fox.")),
    "messages": (messages.WIRE, messages.stream(CALLING)),
    "messages, text": (messages.WIRE, messages.stream("t:The_|quick_|brown_|fox.")),
    "gemini": (
        gemini.WIRE,
        gemini.stream(
            'th:Hm t:The_ t:quick c:read|{"a":1} c>:to a:$.q=Bos> a:$.q=n a.:$.n#2 =STOP'
        ),
    ),
    "gemini, text": (gemini.WIRE, gemini.stream("t:The_ t:quick_ t:brown_ t:fox. =STOP")),
}
streams = pytest.mark.parametrize("name", STREAMS)


def _gemini_body(events: Events) -> Json:
    parts = [p for e in events for p in e["candidates"][0].get("content", {}).get("parts", [])]
    ended = events[-1]
    content = {"role": "model", "parts": parts}
    return {**ended, "candidates": [{**ended["candidates"][0], "content": content}]}


def _chat_body(events: Events) -> Json:
    return accumulate([e for e in events if e != chat.DONE]).model_dump(mode="json")


WHOLE: dict[str, Callable[[Events], Json]] = {
    "chat": _chat_body,
    "responses": lambda events: events[-1]["response"],
    "messages": messages.message_of,
    "gemini": _gemini_body,
}
"""Makes a body of a stream's events."""
WRONG: tuple[Any, ...] = (
    *(None, [], {}, [1], [[]], [{}], {"a": 1}, 0, -1, 1.5, 10**30, -(10**30), True, False, "", "x"),
    *("\ud83d", float("inf")),
)
_FIELDS = """
type index delta content usage error choices finish_reason message role text tool_calls function id
function_call custom arguments name refusal logprobs reasoning_content content_block stop_reason
partial_json thinking signature input citations response item item_id part status output summary
annotations output_index content_index sequence_number incomplete_details candidates parts args
functionCall willContinue partialArgs jsonPath promptFeedback finishReason continuationToken
groundingMetadata safetyRatings citationMetadata usageMetadata thought thoughtSignature unknown
"""
FIELDS = _FIELDS.split()


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


def wrong(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(WRONG))


def at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def damaged(events: Events, rng: random.Random) -> list[Any]:
    """Return the events with one to three values of them changed."""
    copied: list[Any] = copy.deepcopy([*events])
    for _ in range(rng.choice((1, 1, 2, 3))):
        number = rng.randrange(len(copied))
        found = [*places(copied[number])]
        if not found or rng.random() < 0.02:
            copied[number] = wrong(rng)
            continue
        *path, last = rng.choice(found)
        holder = at(copied[number], path)
        match rng.choice(("replace", "replace", "drop", "add", "exchange")):
            case "replace":
                holder[last] = wrong(rng)
            case "drop":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[rng.choice(FIELDS)] = wrong(rng)
            case "add":
                holder.insert(last, wrong(rng))
            case _:
                holder[last] = copy.deepcopy(at(copied[number], rng.choice(found)))
    return copied


def encoded(wire: Wire, events: Sequence[Any]) -> bytes:
    """Encode events, which may be no objects, or of a type that is no text."""
    newline = b"\r\n\r\n" if wire is gemini.WIRE else b"\n\n"
    whole = b""
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        if isinstance(kind, str):
            whole += b"event: %b\n" % kind.encode(errors="replace")
        plain = b"[DONE]" if event == chat.DONE else json.dumps(event).encode()
        whole += b"data: " + plain + newline
    return whole


def turn(wire: Wire, events: Events, *told: Answered, rng: random.Random | None = None) -> Driven:
    """Run a turn; after the given answers, the model answers what it is asked for."""
    left = [*told]

    def provider(asked: Json) -> Answered:
        if left:
            return left.pop(0)
        try:
            later: Sequence[Any] = wire.again(events, asked)
        except (AttributeError, LookupError, TypeError, ValueError):
            later = events  # what the caller was given, and so what is asked, is malformed as well
        return streamed(wire, later if rng is None else damaged(later, rng))

    request = {**wire.request, "stream": True}
    return drive(provider, wire.request if wire is gemini.WIRE else request, POLICY, path=wire.path)


def streamed(wire: Wire, events: Sequence[Any], error: Exception | None = None) -> Answered:
    return 200, STREAM, [encoded(wire, events)], error


@streams
def test_a_malformed_stream_never_raises(name: str) -> None:
    wire, events = STREAMS[name]
    for number in range(examples(2500)):
        rng = random.Random(f"malformed {name} {number}")
        cut = rng.randrange(1, len(events) + 1)
        said = wire.limited(events, cut) if cut < len(events) else events
        first = damaged(said, rng) if number % 4 else said
        dropped = ConnectionError("reset") if rng.random() < 0.2 else None
        try:
            driven = turn(wire, events, streamed(wire, first, dropped), rng=rng)
        except Exception as error:
            error.add_note(f"case {number}, first attempt: {json.dumps(first)[:2000]}")
            raise
        assert driven.report is not None


BODIES: dict[str, tuple[Wire, Events, Json]] = {
    name: (wire, events, body_of(wire.limited(events, cut)))
    for name, (wire, events) in STREAMS.items()
    for body_of, cut in [(WHOLE[name.partition(",")[0]], len(events) - 1)]
}


@pytest.mark.parametrize("name", BODIES)
def test_a_malformed_body_never_raises(name: str) -> None:
    wire, events, whole = BODIES[name]
    for number in range(examples(1500)):
        rng = random.Random(f"malformed body {name} {number}")
        (first,) = damaged([whole], rng)
        asked = {**wire.request, "stream": False}
        path = wire.path.replace("streamG", "g")
        later = streamed(wire, damaged(events, rng))
        left = [body(json.dumps(first).encode()), *[later] * 8]

        def provider(_: Json, left: list[Answered] = left) -> Answered:
            return left.pop(0)

        try:
            driven = drive(provider, asked, POLICY, path=path)
        except Exception as error:
            error.add_note(f"case {number}: {json.dumps(first)[:2000]}")
            raise
        assert driven.report is not None


# --- what is needed is intact ---------------------------------------------------------------------

NOTHING: tuple[Any, ...] = (
    *({}, None, [], [1], 3, "x", True, {"type": None}, {"type": []}, {"type": {"a": 1}}),
    *({"type": "content_block_delta", "index": [0], "delta": {}}, {"type": "novel", "index": {}}),
    {"type": "content_block_delta", "index": 99, "delta": {"type": "text_delta"}},
    {"type": "response.output_text.delta", "output_index": [], "delta": []},
    {"type": "response.output_item.done", "output_index": 7, "item": []},
    {"type": "response.in_progress", "response": []},
    *({"choices": "x"}, {"choices": [None]}, {"choices": [[]]}, {"choices": [{"delta": []}]}),
    {"choices": [{"index": [], "delta": {"content": []}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [[]], "function_call": []}}]},
    *({"candidates": "x"}, {"candidates": [[]]}, {"candidates": [{"content": []}]}),
    {"candidates": [{"content": {"parts": [None, [], "x", {}]}}]},
    *({"usage": [1]}, {"usage": {"completion_tokens": []}}, {"usageMetadata": []}),
    *({"error": None}, {"error": []}),
)
"""Events without a meaning, for any format."""


@streams
def test_events_without_a_meaning_change_nothing(name: str) -> None:
    wire, events = STREAMS[name]
    tries = [(cut, at) for cut in range(1, len(events)) for at in range(len(events))]
    rng = random.Random(name)
    for cut, place in rng.sample(tries, min(len(tries), examples(40))):
        said = [*wire.limited(events, cut)]
        wanted = turn(wire, events, streamed(wire, said)).report
        for nothing in NOTHING:
            first = [*said[:place], nothing, *said[place:]]
            found = turn(wire, events, streamed(wire, first)).report
            assert (found.outcome, found.rows) == (wanted.outcome, wanted.rows), (nothing, place)


_NEEDED = """
type index delta content choices tool_calls function arguments name finish_reason id text item
reasoning_content output_index content_index part response status incomplete_details reason
output item_id call_id content_block partial_json stop_reason message input thinking signature
candidates parts functionCall args finishReason thought partialArgs jsonPath stringValue done
numberValue willContinue usage usageMetadata role
"""
NEEDED = frozenset(_NEEDED.split())


def spoiled(events: Events, rng: random.Random) -> tuple[list[Any], str] | None:
    """Return the events with one field spoiled that is not needed; `None`: none was found."""
    copied: list[Any] = copy.deepcopy([*events])
    event = rng.choice(copied)
    holders = [path for path in [(), *places(event)] if isinstance(at(event, path), dict)]
    if rng.random() < 0.3:
        free = [path for path in holders if not {"args", "input", "parts"} & {*path}]
        at(event, rng.choice(free))["unknown_field"] = wrong(rng)
        return copied, "a new field"
    found = [
        path
        for path in places(event)
        if isinstance(path[-1], str)
        and not NEEDED & {*path[-1:], *names(at(event, path))}
        and "args" not in path
        and not {"usage", "usageMetadata"} & {*path}
    ]
    if not found:
        return None
    *path, last = rng.choice(found)
    at(event, path)[last] = wrong(rng)
    return copied, str(last)


def names(value: Any) -> Iterator[Any]:
    return (path[-1] for path in places(value))


@streams
def test_an_answer_is_completed_whatever_its_other_fields_hold(name: str) -> None:
    wire, events = STREAMS[name]
    for number in range(examples(500)):
        rng = random.Random(f"spoiled {name} {number}")
        said = wire.limited(events, rng.randrange(1, len(events)))
        if (changed := spoiled(said, rng)) is None:
            continue
        wanted = turn(wire, events, streamed(wire, said)).report
        found = turn(wire, events, streamed(wire, changed[0])).report
        seen = [(r.outcome, r.rows, r.characters) for r in (found, wanted)]
        assert seen[0] == seen[1], (number, changed[1])
