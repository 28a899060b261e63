"""How the engine learns that the first answer has ended: by the reply to its command."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from support.drive import STREAM, closing, opening, sse, text_block

from continuation import Policy
from continuation.engine.commands import Command, Emit, PassRest, Script, Send, StreamBody
from continuation.engine.turn import Engine, Turn
from continuation.registry import dialects
from continuation.types import Enough, Head, Request

ASK = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": True, "messages": []}


def begun(policy: Policy) -> tuple[Turn, Script, StreamBody]:
    """Begin a turn up to the body of its first answer."""
    clock = itertools.count().__next__
    engine = Engine(dialects(), policy, None, lambda: clock() / 1000)
    dialect = engine.claims("POST", "/v1/messages")
    assert dialect is not None
    request = Request("host", "/v1/messages", {}, json.dumps(ASK).encode())
    turn = engine.begin(dialect, request, None)
    script = turn.run()
    command: Command = next(script)
    while not isinstance(command, StreamBody):
        command = script.send(Head(200, STREAM) if isinstance(command, Send) else None)
    return turn, script, command


def stream(stop: str, *events: dict[str, Any]) -> bytes:
    return sse([opening(), *text_block(0, ["It is ", "so."]), *closing(stop, 5), *events])


def fed(turn: Turn, body: StreamBody, raw: bytes) -> Enough:
    turn.replay.raw += raw
    with pytest.raises(Enough) as signal:
        body.feed(raw)
    return signal.value


def test_a_whole_answer_is_reported_before_its_last_bytes_may_leave() -> None:
    turn, script, body = begun(Policy())
    raw = stream("end_turn")
    signal = fed(turn, body, raw)
    assert turn.recorder.finished is None, "nothing is decided while the body is read"
    assert b"message_stop" not in signal.show
    assert isinstance(script.send(signal.result), PassRest)
    assert turn.recorder.finished is not None
    assert turn.recorder.finished.outcome == "complete"
    assert turn.replay.rest(signal.show) == raw
    with pytest.raises(StopIteration):
        script.send(None)


def test_a_cut_answer_is_gone_on_from_instead() -> None:
    turn, script, body = begun(Policy(models_endpoint=False))
    signal = fed(turn, body, stream("max_tokens"))
    assert signal.result is not None
    assert signal.result.raw == "max_tokens"
    command = script.send(signal.result)
    while isinstance(command, Emit):
        command = script.send(None)
    assert isinstance(command, Send)
    assert turn.recorder.finished is None


def test_an_error_in_the_stream_says_nothing_of_an_end() -> None:
    turn, _, body = begun(Policy())
    error: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error"}}
    signal = fed(turn, body, sse([opening(), *text_block(0, ["It is "]), error]))
    assert signal.result is None


def test_a_connection_that_breaks_behind_a_whole_answer_harms_nobody() -> None:
    turn, script, body = begun(Policy())
    signal = fed(turn, body, stream("end_turn"))
    assert isinstance(script.send(signal.result), PassRest)
    assert turn.replay.rest(signal.show) == turn.replay.raw
    with pytest.raises(StopIteration):
        script.send(ConnectionError())
    assert turn.recorder.finished is not None
    assert turn.recorder.finished.outcome == "complete"
