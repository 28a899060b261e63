"""Drives a turn without sockets: a few lines of shell over a scripted provider, in any format."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from continuation import Event, Policy, Report
from continuation.engine.commands import (
    Attach,
    Command,
    Emit,
    PassRest,
    PassThrough,
    Raise,
    Read,
    Reply,
    Send,
    StreamBody,
    Wait,
)
from continuation.engine.turn import Engine, Turn
from continuation.limits import Learned
from continuation.registry import dialects
from continuation.types import Enough, Head, Request

Answered = tuple[int, dict[str, str], Sequence[bytes], Exception | None]
"""Status, headers, chunks of the body, and the error at its end; status 0: only the error."""

Provider = Callable[[dict[str, Any]], Answered]
Said = bytes | list[bytes] | Answered
"""A stream, the same in chunks, or any other answer."""
Attempt = Said | Callable[[dict[str, Any]], Said]
T = TypeVar("T")
_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


@dataclass
class Driven:
    """What the caller got, chunk by chunk, and what the provider was asked."""

    pieces: list[bytes] = field(default_factory=list[bytes])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    events: list[Event] = field(default_factory=list[Event])
    error: BaseException | None = None
    waits: list[float] = field(default_factory=list[float])
    ended: Report | None = None

    @property
    def report(self) -> Report:
        """Return the report of the turn, which has ended."""
        assert self.ended is not None
        return self.ended

    @property
    def told(self) -> list[dict[str, Any]]:
        """Return the server-sent events that reached the caller."""
        raw = b"".join(self.pieces).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = raw.split(b"\n\n")[:-1]
        lines = [line for block in blocks for line in block.split(b"\n")]
        data = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [json.loads(text) for text in data if text != b"[DONE]"]

    def joined(self, accumulate: Callable[[list[dict[str, Any]]], T]) -> T:
        """Return the answer that an SDK's `accumulate` builds."""
        return accumulate(self.told)

    @property
    def message(self) -> Message:
        """Return the message of a Messages stream."""
        return self.joined(accumulate_message)

    @property
    def shown(self) -> str:
        """Return all text deltas, joined."""
        deltas = [e["delta"] for e in self.told if e["type"] == "content_block_delta"]
        return "".join(d["text"] for d in deltas if d["type"] == "text_delta")


def accumulate_message(events: list[dict[str, Any]]) -> Message:
    """Return the message as the SDK's own accumulation builds it."""
    snapshot, buffers = None, dict[int, bytes]()
    for event in events:
        if event["type"] in {"ping", "novel", "error"}:
            continue
        parsed = _EVENT.validate_python(event)
        snapshot = accumulate_event(event=parsed, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return snapshot


def check_stream(events: Sequence[Mapping[str, Any]]) -> None:
    """Assert one opening, blocks without gaps that open and close in turn, and one end."""
    kinds = [event["type"] for event in events]
    assert kinds.count("message_start") == kinds.count("message_stop") == 1
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    count, is_open = 0, False
    for event in events:
        if event["type"].startswith("content_block_"):
            assert event["index"] == count
            assert is_open is (event["type"] != "content_block_start")
            is_open = event["type"] != "content_block_stop"
            count += not is_open
    assert not is_open


def drive(
    provider: Provider,
    request: dict[str, Any],
    policy: Policy | None = None,
    *,
    path: str = "/v1/messages",
    server: Mapping[str, object] | None = None,
    timeout: float | None = None,
    clock: Clock | None = None,
    learned: Learned | None = None,
) -> Driven:
    """Run a turn to its end. `path`: chooses the dialect; `server`: the upstream's settings."""
    clock = clock or Clock(tick=0.001)
    driven = Driven()
    engine = Engine(dialects(), policy or Policy(), driven.events.append, clock, learned=learned)
    dialect = engine.claims("POST", path)
    assert dialect is not None
    asked = Request("host", path, {}, json.dumps(request).encode(), server or {})
    turn = engine.begin(dialect, asked, timeout)
    shell = _Shell(provider, request, turn, driven, clock)
    script, reply = turn.run(), None
    with contextlib.suppress(StopIteration):
        while driven.error is None:
            reply = shell.perform(script.send(reply))
    driven.ended = turn.recorder.finished
    return driven


@dataclass
class Clock:
    """A clock that is moved by `tick` seconds at each call, and by waits."""

    tick: float = 0.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@dataclass
class _Shell:
    """Performs the engine's commands, as the clients of `attach/` do over sockets."""

    provider: Provider
    request: dict[str, Any]
    turn: Turn
    driven: Driven
    clock: Clock
    live: Answered = (0, {}, [], None)
    body: Iterator[bytes] = field(default_factory=lambda: iter(()))
    until: float = math.inf
    """The time at which the attempt under way is broken off."""

    def perform(self, command: Command) -> Reply:
        match command:
            case Send():
                return self.send(command)
            case Read():
                return b"".join(self.live[2])
            case StreamBody():
                return self.relay(command)
            case PassRest():
                self.driven.pieces[-1] += b"".join(self.turn.replay.pieces())
                self.driven.pieces += self.body
                return self.live[3]
            case PassThrough():
                self.driven.pieces += [*self.turn.replay.pieces(), *self.body]
            case Emit():
                self.driven.pieces.append(command.data)
            case Wait():
                self.driven.waits.append(command.seconds)
                self.clock.now += command.seconds
            case Raise():
                self.driven.error = command.error
            case Attach():
                pass
        return None

    def send(self, command: Send) -> Reply:
        self.until = math.inf
        if command.bounded and command.seconds is not None:
            self.until = self.clock.now + command.seconds
        sent, outgoing = self.request, command.outgoing
        if outgoing is not None:
            sent = json.loads(outgoing.body) if outgoing.body else {}
        self.driven.requests.append(sent)
        self.live = self.provider(sent) if sent else (404, {}, [], None)
        self.body = iter(self.live[2])
        if self.clock.now >= self.until:
            return TimeoutError()
        return Head(self.live[0], self.live[1]) if self.live[0] else self.live[3]

    def relay(self, command: StreamBody) -> Reply:
        for chunk in self.body:
            if self.clock.now >= self.until:
                return TimeoutError()
            if command.replay is not None:
                command.replay.raw += chunk
            try:
                self.driven.pieces.append(command.feed(chunk))
            except Enough as enough:
                self.driven.pieces.append(enough.show)
                return enough.result
        return self.live[3]


# --- a provider in small ------------------------------------------------------------------------


def streams(*attempts: Attempt, broken: Exception | None = None) -> Provider:
    """Return a provider that gives these answers in turn; `broken`: the error after each."""
    left = iter(attempts)

    def provider(body: dict[str, Any]) -> Answered:
        told = next(left)
        told = told(body) if callable(told) else told
        if isinstance(told, tuple):
            return told
        return 200, STREAM, [told] if isinstance(told, bytes) else told, broken

    return provider


def body(told: Any, status: int = 200) -> Answered:
    """Return an answer that is JSON; bytes are sent as they are."""
    return status, JSON, [told if isinstance(told, bytes) else json.dumps(told).encode()], None


def bodies(*answers: Any) -> Provider:
    """Return a provider that answers with these bodies in turn."""
    return streams(*map(body, answers))


def sse(events: Iterable[dict[str, Any]], newline: str = "\n") -> bytes:
    """Encode events as a stream."""
    return b"".join(
        f"event: {e['type']}{newline}data: {json.dumps(e)}{newline}{newline}".encode()
        for e in events
    )


def opening(tokens: int = 10) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": 1},
    }
    return {"type": "message_start", "message": message}


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a block, from its start to its end."""
    place = {"index": index}
    return [
        {"type": "content_block_start", **place, "content_block": begun},
        *({"type": "content_block_delta", **place, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **place},
    ]


def text_block(index: int, pieces: Sequence[str]) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def call_block(index: int, pieces: Sequence[str], name: str = "Write") -> list[dict[str, Any]]:
    begun = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, begun, *deltas)


def thinking_block(index: int, thought: str, *signature: str) -> list[dict[str, Any]]:
    signed = ({"type": "signature_delta", "signature": each} for each in signature)
    begun = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, begun, {"type": "thinking_delta", "thinking": thought}, *signed)


def closing(stop: str, tokens: int) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}},
        {"type": "message_stop"},
    ]


def split(raw: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Cut bytes at the given places."""
    places = [0, *sorted({c for c in cuts if 0 < c < len(raw)}), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(places)]


def combs(raw: bytes, size: int) -> Iterator[list[bytes]]:
    """Yield a stream in chunks of `size` bytes, `size` times, so that a chunk ends at each byte.

    If it were split in two at each byte, a stream of ten thousand bytes would take as many turns.
    """
    for first in range(1, size + 1):
        yield split(raw, range(first, len(raw), size))


STREAM = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
