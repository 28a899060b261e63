"""A call that was never cut is never touched, though its arguments are no strict JSON.

Models write them and agents read them leniently. Only argument text that breaks off was cut,
whatever the label says; an answer that was not goes out as it came, and nothing is paid twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support import drive_chat, drive_responses
from support.drive import Driven, bodies, call_block, closing, drive, opening, sse, streams

from continuation import Policy
from continuation.types import Outcome

ODD = {
    "a raw line break": '{"path": "a", "content": "one\ntwo"}',
    "a raw tab": '{"path": "a\tb"}',
    "null": "null",
    "a list": "[]",
    "a trailing comma": '{"path": "a",}',
    "a path of Windows": r'{"path": "C:\Users\me"}',
    "a folder of Windows": '{"path": "C:\\Users\\"}',
    "encoded twice": json.dumps(json.dumps({"path": "a"})),
    "nothing": "",
    "single quotes": "{'path': 'a'}",
    "a number": "12",
    "prose": "let me write",
    "two objects": '{"a": 1}{"b": 2}',
}
CUT = {
    "inside a string": '{"path": "a", "content": "one',
    "behind a comma": '{"path": "a",',
    "at the first brace": "{",
    "behind a raw line break": '{"path": "a", "content": "one\ntwo',
    "behind a path of Windows": r'{"path": "C:\Users\me", "content": "x',
}
WHOLE = '{"path": "b"}'
LIMIT = 1000
FAST = Policy(backoff_seconds=0.0, models_endpoint=False)


def pieces(arguments: str) -> list[str]:
    return [arguments[at : at + 7] for at in range(0, len(arguments), 7)]


# Each takes argument text and a finish reason, and returns a provider's answer.
Write = Callable[[str, str], bytes]


def chat(arguments: str, finish: str) -> bytes:
    called = drive_chat.call(pieces(arguments))
    return drive_chat.sse([drive_chat.OPENING, *called, *drive_chat.closing(finish)])


def chat_body(arguments: str, finish: str) -> bytes:
    return drive_chat.completed(Driven([chat(arguments, finish)])).to_json().encode()


def responses(arguments: str, _: str) -> bytes:
    return sse(drive_responses.answer("1", [drive_responses.written(arguments)]))


def responses_body(arguments: str, _: str) -> bytes:
    whole = drive_responses.response("1", [drive_responses.written(arguments)])
    return json.dumps(whole).encode()


def messages(arguments: str, finish: str) -> bytes:
    reason = "max_tokens" if finish == "length" else "tool_use"
    return sse([opening(), *call_block(0, pieces(arguments)), *closing(reason, 50)])


FUNCTION = {"name": "Write", "parameters": {"type": "object"}}
CHAT = drive_chat.asking(LIMIT, tools=[{"type": "function", "function": FUNCTION}])
RESPONSES = {**drive_responses.REQUEST, "tools": [{"type": "function", **FUNCTION}]}
MESSAGES = {
    "model": "claude-opus-5",
    "max_tokens": LIMIT,
    "messages": CHAT["messages"],
    "tools": [{"name": "Write", "input_schema": FUNCTION["parameters"]}],
}
WAYS: dict[str, tuple[Write, str, Any, bool]] = {
    "chat, streamed": (chat, "/v1/chat/completions", CHAT, True),
    "chat": (chat_body, "/v1/chat/completions", CHAT, False),
    "responses, streamed": (responses, "/v1/responses", RESPONSES, True),
    "responses": (responses_body, "/v1/responses", RESPONSES, False),
    "messages, streamed": (messages, "/v1/messages", MESSAGES, True),
}
"""A body of Messages is left out: in it the server has parsed them."""
ways = pytest.mark.parametrize("way", WAYS)


def asked(way: str, arguments: str, finish: str, policy: Policy = FAST) -> tuple[bytes, Driven]:
    """Return what the provider first said, and the turn: it would say a whole call next."""
    write, path, body, streamed = WAYS[way]
    first, again = write(arguments, finish), write(WHOLE, "tool_calls")
    provider = streams(first, again) if streamed else bodies(first, again)
    return first, drive(provider, {**body, "stream": streamed}, policy, path=path)


def arguments_in(answer: bytes) -> str:
    """Return the argument text in a body, or the joined pieces in a stream."""
    found = re.findall(rb'"(?:arguments|partial_json)":\s*"((?:[^"\\]|\\.)*)"', answer)
    return "".join(json.loads(b'"' + piece + b'"') for piece in found)


@ways
@pytest.mark.parametrize("name", ODD)
def test_a_call_that_was_not_cut_passes_byte_for_byte(name: str, way: str) -> None:
    said, driven = asked(way, ODD[name], "tool_calls")
    assert (b"".join(driven.pieces), len(driven.requests)) == (said, 1)
    assert driven.report.outcome is Outcome.COMPLETE


@ways
@pytest.mark.parametrize("name", [name for name in ODD if name != "nothing"])
def test_a_call_that_stood_there_when_the_limit_came_is_kept(name: str, way: str) -> None:
    """Unless the server may have parsed it: strict JSON, in one piece."""
    no_way_out = replace(FAST, model_max_output_tokens=LIMIT)
    said, driven = asked(way, ODD[name], "length", no_way_out)
    limited = not way.startswith("responses")
    one = not way.endswith("streamed") or len(pieces(ODD[name])) == 1
    kept = "" if limited and one and strict(ODD[name]) else arguments_in(said)
    assert arguments_in(b"".join(driven.pieces)) == kept
    assert len(driven.requests) == 1


def strict(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@ways
@pytest.mark.parametrize("finish", ["tool_calls", "length"])
@pytest.mark.parametrize("name", CUT)
def test_a_call_whose_arguments_break_off_is_asked_for_again_whatever_the_label(
    name: str, finish: str, way: str
) -> None:
    _, driven = asked(way, CUT[name], finish)
    assert arguments_in(b"".join(driven.pieces)).endswith(WHOLE)
    assert len(driven.requests) == 2
    assert driven.report.outcome is Outcome.HEALED
