"""Thinking of another format, in every spelling, in the history of each format.

It never becomes visible text. A block of a type that the server calls unknown is left out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.notation import DIALECTS
from support.sdks.histories import MODELS, send

from continuation import Policy
from continuation.history import classify, repair, repair_refused, validate
from continuation.simulator import Reply, Simulator, Text

SECRET = "What I thought."
SPELLINGS: dict[str, Any] = {
    "reasoning": {"type": "reasoning", "text": SECRET},
    "reasoning with a field of its own": {"type": "reasoning", "reasoning": SECRET},
    "reasoning_content": {"type": "reasoning_content", "reasoning_content": SECRET},
    "reasoning_content as text": {"type": "reasoning_content", "text": SECRET},
    "reasoning_text": {"type": "reasoning_text", "text": SECRET},
    "reasoning.text": {"type": "reasoning.text", "text": SECRET, "format": "x", "index": 0},
    "reasoning.summary": {"type": "reasoning.summary", "summary": SECRET, "text": SECRET},
    "reasoning.encrypted": {"type": "reasoning.encrypted", "data": SECRET},
    "thought": {"type": "thought", "text": SECRET},
    "thoughts": {"type": "thoughts", "text": SECRET},
    "marked": {"type": "text", "text": SECRET, "thought": True},
    "thinking of a stranger": {"type": "thinking", "thinking": SECRET, "signature": "gAAAA-x"},
    "thinking as text": {"type": "thinking", "text": SECRET},
    "thinking unsigned": {"type": "thinking", "thinking": SECRET},
    "redacted": {"type": "redacted_thinking", "text": SECRET},
}
BESIDE: dict[str, Any] = {
    "reasoning_content": SECRET,
    "reasoning": SECRET,
    "thinking": SECRET,
    "reasoning_details": [{"type": "reasoning.text", "text": SECRET}],
}


def body(dialect: str, block: Any, *, role: str = "assistant") -> dict[str, Any]:
    """Return a history whose second message has the block before a visible text."""
    model = {"model": MODELS[dialect]}
    if dialect == "gemini":
        said = {"user": "user", "assistant": "model"}[role]
        parts = [block, {"text": "Said."}]
        talk = [{"role": "user", "parts": [{"text": "x"}]}, {"role": said, "parts": parts}]
        return {**model, "contents": [*talk, {"role": "user", "parts": [{"text": "y"}]}]}
    if dialect == "openai-responses":
        kind = {"type": "output_text" if role == "assistant" else "input_text", "text": "Said."}
        talk = [{"role": "user", "content": "x"}, {"role": role, "content": [block, kind]}]
        return {**model, "input": [*talk, {"role": "user", "content": "y"}]}
    content = [block, {"type": "text", "text": "Said."}]
    talk = [{"role": "user", "content": "x"}, {"role": role, "content": content}]
    return {**model, "messages": [*talk, {"role": "user", "content": "y"}]}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_foreign_thinking_never_becomes_visible_text(dialect: str, name: str) -> None:
    given = body(dialect, SPELLINGS[name])
    made = repair(given, dialect)
    assert SECRET not in json.dumps(made.body)
    assert "Said." in json.dumps(made.body)
    assert validate(made.body, dialect) == []
    assert repair(made.body, dialect).body is made.body


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_nor_where_it_is_all_of_a_message(dialect: str, name: str) -> None:
    given = body(dialect, SPELLINGS[name])
    turns = given[next(key for key in ("messages", "contents", "input") if key in given)]
    turns[1]["parts" if dialect == "gemini" else "content"].pop()
    made = repair(given, dialect)
    assert SECRET not in json.dumps(made.body)
    assert validate(made.body, dialect) == []


@pytest.mark.parametrize("name", SPELLINGS)
def test_nor_as_an_item_of_responses(name: str) -> None:
    given = body("openai-responses", {"type": "output_text", "text": "Said."})
    given["input"].insert(1, SPELLINGS[name])
    made = repair(given, "openai-responses")
    assert SECRET not in json.dumps(made.body)


@pytest.mark.parametrize("key", BESIDE)
@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses", "gemini"])
def test_nor_beside_the_content(dialect: str, key: str) -> None:
    """In Chat it is where it belongs, for many vendors."""
    given = body(dialect, SPELLINGS["reasoning"])
    field = next(key for key in ("messages", "contents", "input") if key in given)
    message = given[field][1]
    message["parts" if dialect == "gemini" else "content"].pop(0)
    message[key] = BESIDE[key]
    made = repair(given, dialect)
    assert SECRET not in json.dumps(made.body)
    assert "Said." in json.dumps(made.body)
    assert validate(made.body, dialect) == []


def test_thinking_of_the_format_itself_stays() -> None:
    signed = {"type": "thinking", "thinking": SECRET, "signature": "c2lnbmF0dXJl"}
    redacted = {"type": "redacted_thinking", "data": "c2lnbmF0dXJl"}
    for block in (signed, redacted):
        given = body("anthropic", block)
        assert repair(given, "anthropic").body is given
    thought = body("gemini", {"text": SECRET, "thought": True})
    assert repair(thought, "gemini").body is thought
    items = body("openai-responses", {"type": "output_text", "text": "Said."})
    items["input"].insert(1, {"type": "reasoning", "id": "rs_1", "summary": []})
    assert repair(items, "openai-responses").body is items


def test_a_tag_within_visible_text_is_text() -> None:
    """It was said as text, and every server takes it: nothing that is valid is changed."""
    for dialect in DIALECTS:
        kind = "output_text" if dialect == "openai-responses" else "text"
        block = {"text": f"<think>{SECRET}</think>Said."}
        given = body(dialect, block if dialect == "gemini" else {"type": kind, **block})
        assert repair(given, dialect).body is given


REFUSALS = {
    "anthropic": (
        "messages.1.content.0: Input tag 'cot_block' found using 'type' does not match any of the"
        " expected tags: 'document', 'image', 'redacted_thinking', 'text', 'thinking', 'tool_use'"
    ),
    "openai-chat": (
        "Invalid value: 'cot_block'. Supported values are: 'text', 'image_url', 'input_audio',"
        " 'refusal', 'audio', and 'file'."
    ),
    "openai-responses": (
        "Invalid value: 'cot_block'. Supported values are: 'output_text' and 'refusal'."
    ),
    "gemini": (
        "Invalid JSON payload received. Unknown name \"cot_block\" at 'contents[1].parts[0]':"
        " Cannot find field."
    ),
}
UNKNOWN = {"type": "cot_block", "text": SECRET}


def unknown(dialect: str) -> dict[str, Any]:
    return {"cot_block": {"text": SECRET}} if dialect == "gemini" else dict(UNKNOWN)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_block_that_the_server_does_not_know_is_dropped(dialect: str) -> None:
    given = body(dialect, unknown(dialect))
    error = classify(400, json.dumps({"error": {"message": REFUSALS[dialect]}}))
    assert error is not None
    assert error.tag == "cot_block"
    made = repair_refused(given, error, dialect)
    assert SECRET not in json.dumps(made.body)
    assert "Said." in json.dumps(made.body)
    assert [change.what for change in made.changes].count("drop_block") == 1
    assert validate(made.body, dialect) == []


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each != "gemini"])
def test_in_a_turn_it_costs_one_request_and_is_logged(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Gemini's SDK lets no unknown field leave."""
    error = ("invalid_request_error", REFUSALS[dialect])
    asked = body(dialect, unknown(dialect))
    del asked["model"]
    with Simulator() as sim:
        sim.script([Reply(status=400, error=error), Reply([Text("Yes.")])])
        ran = send(sim, dialect, asked, policy=Policy(backoff_seconds=0.0))
        assert (ran.statuses, ran.text) == ([400, 200], "Yes.")
        assert SECRET not in json.dumps(ran.sent[-1])
    assert "unknown_blocks='cot_block'" in caplog.text
    assert SECRET not in caplog.text
