"""Whatever parses as JSON is read without a crash, and repaired until nothing is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import FIELDS
from support.examples import examples
from support.notation import DIALECTS, Json

from continuation.history import RepairPolicy, repair, unanswered_tool_calls, validate
from continuation.history.detect import detect

_KEYS = st.sampled_from(
    [
        *("role", "content", "type", "text", "id", "name", "input", "tool_use_id", "tool_calls"),
        *("tool_call_id", "function", "arguments", "reasoning_content", "thinking", "signature"),
        *("data", "parts", "functionCall", "functionResponse", "args", "response", "thought"),
        *("thoughtSignature", "call_id", "output", "status", "summary", "encrypted_content"),
    ]
)
_WORDS = st.sampled_from(
    [
        *("user", "assistant", "tool", "system", "model", "developer", "text", "tool_use"),
        *("tool_result", "thinking", "redacted_thinking", "server_tool_use", "function_call"),
        *("web_search_tool_result", "function_call_output", "reasoning", "message", "output_text"),
        *("input_text", "item_reference", "local_shell_call", "a", "b", "{}", "{", "incomplete"),
        *("server", "Zm9v", "fc_1", "rs_1", "msg_1", "", " ", "two words"),
    ]
)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | _WORDS
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)


@st.composite
def _shaped(draw: st.DrawFn) -> Any:
    """Something that has the look of a message of some dialect."""
    role = draw(st.sampled_from(["user", "assistant", "model", "tool", "system", None]))
    inner = draw(st.lists(st.dictionaries(_KEYS, _JSON, max_size=4) | _JSON, max_size=3))
    key = draw(st.sampled_from(["content", "parts", "tool_calls"]))
    made: Json = {"role": role, key: inner, **draw(st.dictionaries(_KEYS, _JSON, max_size=2))}
    return made


_BODIES = st.lists(_shaped() | _JSON, max_size=6)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(messages=_BODIES)
def test_any_list_of_json_is_repaired(dialect: str, strict: bool, messages: list[Any]) -> None:
    body = {FIELDS[dialect]: messages}
    before = json.dumps(body)
    policy = RepairPolicy(strict=strict, live=not strict)
    repaired = repair(body, dialect, policy=policy)
    assert json.dumps(body) == before
    assert validate(repaired.body, dialect, strict=strict, live=not strict) == []
    assert repair(repaired.body, dialect, policy=policy).body is repaired.body
    unanswered_tool_calls(body, dialect)


@given(_BODIES, st.dictionaries(_KEYS, _JSON, max_size=2))
def test_a_dialect_is_told_for_any_body_with_a_list(messages: list[Any], more: Json) -> None:
    for field in ("messages", "contents", "input"):
        assert detect({**more, field: messages}) is not None
