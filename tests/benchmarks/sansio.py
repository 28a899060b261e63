"""One turn with no sockets: the engine is driven by hand with answers made beforehand."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from wires import Wire

from continuation.engine.commands import Command, Emit, Reply, Script, Send, StreamBody
from continuation.engine.turn import Engine, Turn
from continuation.policy import Policy
from continuation.registry import dialects
from continuation.reports.report import Report
from continuation.types import Enough, Head, Request

LIMIT = 64_000
STREAM = Head(200, {"content-type": "text/event-stream"})
JSON = Head(200, {"content-type": "application/json"})


@dataclass(slots=True)
class Driven:
    """What one turn gave, and what it took."""

    shown: list[bytes] = field(default_factory=list[bytes])
    seconds: list[float] = field(default_factory=list[float])
    """CPU of each attempt: its bytes, and all that follows until the next is sent."""
    report: Report | None = None


def begin(wire: Wire, *, streamed: bool) -> Turn:
    """Begin a turn whose limit is at the ceiling, so that every cut is followed by a recovery."""
    policy = Policy(model_max_output_tokens=LIMIT, models_endpoint=False)
    engine = Engine(dialects(), policy, None, time.monotonic)
    path = wire.path.partition("?")[0]
    if not streamed:
        path = path.replace("streamGenerateContent", "generateContent")
    dialect = engine.claims("POST", path)
    assert dialect is not None
    body = json.dumps({**wire.said(LIMIT), "stream": streamed}).encode()
    return engine.begin(dialect, Request("bench", path, {"x-api-key": "k"}, body), None)


def drive(wire: Wire, attempts: Sequence[Sequence[bytes]], *, streamed: bool) -> Driven:
    """Run a turn to its end; each attempt is given as the chunks its body comes in.

    Without `streamed` the first of them is a JSON body; later ones are streams either way.
    """
    turn = begin(wire, streamed=streamed)
    driven, script, bodies = Driven(), turn.run(), iter(attempts)
    reply: Reply = None
    chunks: Sequence[bytes] = ()
    begun = time.thread_time()
    while (command := _next(script, reply)) is not None:
        reply = None
        if isinstance(command, Send):
            driven.seconds.append(time.thread_time() - begun)
            chunks = next(bodies)
            reply = STREAM if streamed or len(driven.seconds) > 1 else JSON
            begun = time.thread_time()
        elif isinstance(command, StreamBody):
            reply = _relay(command, chunks, driven.shown)
        elif isinstance(command, Emit):
            driven.shown.append(command.data)
    driven.seconds = [*driven.seconds[1:], time.thread_time() - begun]
    driven.report = turn.recorder.finished
    return driven


def _next(script: Script, reply: Reply) -> Command | None:
    try:
        return script.send(reply)
    except StopIteration:
        return None


def _relay(relay: StreamBody, chunks: Sequence[bytes], shown: list[bytes]) -> Reply:
    feed, raw = relay.feed, relay.replay.raw if relay.replay is not None else None
    try:
        for chunk in chunks:
            if raw is not None:
                raw += chunk
            shown.append(feed(chunk))
    except Enough as enough:
        shown.append(enough.show)
        return enough.result
    return None
