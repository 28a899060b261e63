"""A call that was never cut is never touched, though its arguments are no strict JSON.

Models write them and agents read them leniently. Only argument text that breaks off was cut,
whatever the label says; an answer that was not goes out as it came, and nothing is paid twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

import continuation
from continuation.simulator import Reply, Simulator
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
PIECE = 7
"""Characters of arguments in a delta."""

Write = Callable[[str, str, bool], Reply]


def pieces(arguments: str) -> list[str]:
    return [arguments[at : at + PIECE] for at in range(0, len(arguments), PIECE)]


def chat(arguments: str, finish: str, streamed: bool) -> Reply:
    function = {"name": "Write", "arguments": arguments}
    call: dict[str, Any] = {"id": "call_1", "type": "function", "function": function}
    head = {"id": "c1", "created": 1, "model": "gpt-4o"}
    usage = {"prompt_tokens": 5, "completion_tokens": 50, "total_tokens": 55}
    if not streamed:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        answer = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return Reply(raw_body=answer)

    def chunk(delta: Any, reason: str | None = None) -> tuple[None, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return None, {**head, "object": "chat.completion.chunk", "choices": [choice]}

    begun = {"index": 0, **call, "function": {"name": "Write", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": piece}} for piece in pieces(arguments)]
    events = [
        chunk({"role": "assistant", "content": None, "tool_calls": [begun]}),
        *(chunk({"tool_calls": [piece]}) for piece in more),
        chunk({}, finish),
        (None, "[DONE]"),
    ]
    return Reply(raw_events=events)


def responses(arguments: str, finish: str, streamed: bool) -> Reply:
    item = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "Write",
        "arguments": arguments,
        "status": "completed",
    }
    usage = {"input_tokens": 5, "output_tokens": 50, "total_tokens": 55}
    answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.4",
        "status": "completed",
        "output": [item],
        "usage": usage,
    }
    if not streamed:
        return Reply(raw_body=answer)
    begun = {**item, "arguments": "", "status": "in_progress"}
    about = {"item_id": "fc_1", "output_index": 0}
    told: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": {**answer, "status": "in_progress", "output": [], "usage": None}}),
        ("output_item.added", {"output_index": 0, "item": begun}),
        *(
            ("function_call_arguments.delta", {**about, "delta": piece})
            for piece in pieces(arguments)
        ),
        ("function_call_arguments.done", {**about, "arguments": arguments}),
        ("output_item.done", {"output_index": 0, "item": item}),
        ("completed", {"response": answer}),
    ]
    events = [
        (f"response.{kind}", {"type": f"response.{kind}", "sequence_number": number, **event})
        for number, (kind, event) in enumerate(told)
    ]
    return Reply(raw_events=events)


def messages(arguments: str, finish: str, streamed: bool) -> Reply:
    assert streamed, "in a body the server has parsed them"
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
    call: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
    reason = "max_tokens" if finish == "length" else "tool_use"
    told: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": call}),
        *(
            (
                "content_block_delta",
                {"index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}},
            )
            for piece in pieces(arguments)
        ),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": 50},
            },
        ),
        ("message_stop", {}),
    ]
    return Reply(raw_events=[(kind, {"type": kind, **event}) for kind, event in told])


GO = [{"role": "user", "content": "Go."}]
SCHEMA = {"type": "object"}
FUNCTION = {"name": "Write", "parameters": SCHEMA}
ASKED: dict[str, tuple[Write, str, dict[str, Any]]] = {
    "chat": (
        chat,
        "/v1/chat/completions",
        {
            "model": "gpt-4o",
            "max_completion_tokens": LIMIT,
            "messages": GO,
            "tools": [{"type": "function", "function": FUNCTION}],
        },
    ),
    "responses": (
        responses,
        "/v1/responses",
        {
            "model": "gpt-5.4",
            "max_output_tokens": LIMIT,
            "input": "Go.",
            "tools": [{"type": "function", **FUNCTION}],
        },
    ),
    "messages": (
        messages,
        "/v1/messages",
        {
            "model": "claude-opus-5",
            "max_tokens": LIMIT,
            "messages": GO,
            "tools": [{"name": "Write", "input_schema": SCHEMA}],
        },
    ),
}
KEYS = {"x-api-key": "k", "anthropic-version": "2026-10-21", "authorization": "Bearer k"}
WAYS = [(kind, streamed) for kind in ASKED for streamed in (False, True)]
WAYS.remove(("messages", False))
ways = pytest.mark.parametrize(("kind", "streamed"), WAYS)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Simulator, httpx2.Client]]:
    with Simulator() as sim, httpx2.Client(trust_env=False) as bare:
        yield sim, bare


Asked = Callable[[str, str], tuple[bytes, bytes, int]]


@pytest.fixture
def asked(server: tuple[Simulator, httpx2.Client], kind: str, streamed: bool) -> Asked:
    """Ask for a call: the answer without us and with us, and how often the model was asked."""
    sim, bare = server
    write, path, body = ASKED[kind]

    def ask(arguments: str, finish: str) -> tuple[bytes, bytes, int]:
        answers: list[bytes] = []
        for client in (bare, continuation.http_client(bare)):
            sim.reset()
            sim.script([write(arguments, finish, streamed), write(WHOLE, "tool_calls", streamed)])
            sent = {**body, "stream": streamed}
            answers.append(client.post(sim.url + path, json=sent, headers=KEYS).content)
        return answers[0], answers[1], len(sim.posts)

    return ask


def arguments_in(answer: bytes) -> list[str]:
    """Return the argument texts in a body, or the joined ones of a stream."""
    found = re.findall(rb'"(?:arguments|partial_json)":\s*"((?:[^"\\]|\\.)*)"', answer)
    return ["".join(json.loads(b'"' + piece + b'"') for piece in found)]


@ways
@pytest.mark.parametrize("name", ODD)
def test_a_call_that_was_not_cut_passes_byte_for_byte(name: str, asked: Asked) -> None:
    plain, got, asks = asked(ODD[name], "tool_calls")
    assert (got, asks) == (plain, 1)
    report = continuation.last_report()
    assert report is not None
    assert report.outcome is Outcome.COMPLETE


@ways
@pytest.mark.parametrize("name", [name for name in ODD if name != "nothing"])
def test_a_call_that_stood_there_when_the_limit_came_is_kept(name: str, asked: Asked) -> None:
    with continuation.override(model_max_output_tokens=LIMIT):  # a larger limit is no way out
        plain, got, asks = asked(ODD[name], "length")
    assert (arguments_in(got), asks) == (arguments_in(plain), 1)


@ways
@pytest.mark.parametrize("finish", ["tool_calls", "length"])
@pytest.mark.parametrize("name", CUT)
def test_a_call_whose_arguments_break_off_is_asked_for_again_whatever_the_label(
    name: str, finish: str, asked: Asked
) -> None:
    _, got, asks = asked(CUT[name], finish)
    assert asks == 2
    assert b'\\"b\\"' in got or b'\\"b' in got
    report = continuation.last_report()
    assert report is not None
    assert report.outcome is Outcome.HEALED
