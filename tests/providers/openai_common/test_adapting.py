"""Reading a refusal changes nothing; only `adapt` gives later requests another form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from continuation.registry import dialects
from continuation.types import ClassifiedError, ErrorKind, Head, Request

PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Write."}],
    "input": "Write.",
}


def request(name: str, host: str) -> Any:
    dialect = next(dialect for dialect in dialects() if dialect.name == name)
    return dialect.call(Request(host, PATHS[name], {}, json.dumps(ASKED).encode()))


@pytest.mark.parametrize(
    ("name", "text", "lost"),
    [
        (
            "openai-chat",
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
        ("openai-chat", "Unrecognized request argument supplied: stream_options", "stream_options"),
        ("openai-chat", "extra fields are not what I like", "stream_options"),
        (
            "openai-responses",
            "Your organization must be verified to stream this model.",
            "stream",
        ),
    ],
)
def test_a_refusal_is_read_without_effect(name: str, text: str, lost: str) -> None:
    asked = request(name, f"{lost}.{len(text)}.test")
    before = json.loads(asked.again(2000).body)
    error = json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode()
    read: list[ClassifiedError] = [asked.refused(Head(400, {}), error) for _ in range(2)]
    assert read[0] == read[1]
    assert read[0].kind is ErrorKind.UNSUPPORTED_PARAMETER
    assert json.loads(asked.again(2000).body) == before
    asked.adapt(read[0])
    after = json.loads(asked.again(2000).body)
    assert lost in before
    assert lost not in after


def test_items_that_a_server_refuses_are_left_out_only_after_adapting() -> None:
    asked = request("openai-responses", "items.test")
    text = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    error = json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode()
    content = [
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "content": "One", "id": "msg_1"},
    ]

    def carried() -> list[Any]:
        turns = list[Any]()
        asked._add_model(turns, content)
        return turns

    read = asked.refused(Head(400, {}), error)
    assert carried() == content
    asked.adapt(read)
    assert carried() == [{"type": "message", "role": "assistant", "content": "One"}]
    assert asked.refused(Head(400, {}), error).kind is ErrorKind.FINAL
