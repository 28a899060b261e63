"""Every rule of every dialect: what breaks it, where, in whose words, and that it is mended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from support.damage import FIELDS
from support.notation import Facts, Json, anthropic_block, chat_call, gemini_part, write

from continuation.history import RepairPolicy, classify, repair, repair_refused, validate
from continuation.history.rules import texts
from continuation.history.types import HistoryFormat


@dataclass(frozen=True)
class Case:
    code: str
    path: str
    text: str
    body: Json
    more: dict[str, Any]


def _case(
    dialect: str, what: str, text: str, history: str | list[Any], fields: Any = None, **more: Any
) -> Case:
    """A code and a place, the provider's words, a history: strings of it are in its notation."""
    given: list[Any] = []
    for message in [history] if isinstance(history, str) else history:
        noted = isinstance(message, str) and re.match(r"[AUR][:\[]", message)
        given += write(dialect, message)[FIELDS[dialect]] if noted else [message]
    code, path = what.split()
    return Case(code, path, text, {FIELDS[dialect]: given, **(fields or {})}, more)


def _noted(dialect: str, table: str) -> list[Case]:
    """Cases of two lines each: the code, the place and the history; the provider's words."""
    lines = [line.strip() for line in table.strip().splitlines()]
    heads = [head.split(maxsplit=2) for head in lines[::2]]
    return [
        _case(dialect, f"{code} {path}", text, history)
        for (code, path, history), text in zip(heads, lines[1::2], strict=True)
    ]


_an, _oc, _or, _ge = (partial(_case, dialect) for dialect in FIELDS)


def _user(*blocks: Any) -> Json:
    return {"role": "user", "content": list(blocks)}


def _says(*blocks: Any) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def _result(call: str = "a", content: Any = "ok") -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": content}


_T, _C = anthropic_block("t", "hi"), anthropic_block("c", "a")
_MANUAL = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
_SYSTEM = {"role": "system", "content": "be brief"}
_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}

ANTHROPIC_CASES = [
    *_noted(
        "anthropic",
        """
    tool_result_missing  messages[1].content[0]  U:x A[c:a] U:y
        messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a.
    tool_result_displaced  messages[3].content[0]  U:x A[c:a] U:y R:a
        without `tool_result` blocks immediately after: a
    tool_result_orphan  messages[2].content[0]  U:x A[t:y] R:q
        messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: q.
    tool_use_duplicate_id  messages[3].content[0]  U:x A[c:a] R:a A[c:a] R:a
        messages: `tool_use` ids must be unique
    server_result_orphan  messages[1].content[0]  U:x A[sr:w,t:y] U:z
        unexpected `tool_use_id`
    first_not_user  messages[0]  A[t:x] U:y
        first message must use the "user" role
    message_empty  messages[1]  U:x A[] U:y
        messages.1: all messages must have non-empty content
    thinking_unsigned  messages[1].content[0]  U:x A[th-,t:y] U:z
        messages.1.content.0: Invalid `signature` in `thinking` block
    thinking_last  messages[1].content[1]  U:x A[t:y,th+] U:z
        The final block in an assistant message cannot be `thinking`
        """,
    ),
    _an(
        "tool_results_split messages[3].content[0]",
        "without `tool_result` blocks immediately after: b",
        ["U:x A[c:a,c:b] R:a", "R:b"],
    ),
    _an(
        "tool_result_not_first messages[2].content[1]",
        "without `tool_result` blocks immediately after: a",
        ["U:x A[c:a]", _user(_T, _result())],
    ),
    _an(
        "tool_use_not_last messages[1].content[1]",
        "messages.1: `tool_use` ids were found without",
        ["U:x", _says(_C, _T), "R:a"],
    ),
    _an(
        "tool_result_duplicate messages[2].content[1]",
        "each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
        ["U:x A[c:a]", _user(_result(), _result())],
    ),
    _an(
        "tool_result_id_missing messages[2].content[0]",
        "unexpected `tool_use_id`",
        ["U:x A[c:a]", _user(_result(""))],
    ),
    _an(
        "tool_use_id_invalid messages[1].content[0]",
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ["U:x", _says({**_C, "id": "fc|1"}), _user(_result("fc|1"))],
    ),
    _an(
        "tool_use_id_too_long messages[1].content[0]",
        "at most 64 characters",
        ["U:x", _says({**_C, "id": "a" * 65}), _user(_result("a" * 65))],
        strict=True,
    ),
    _an(
        "error_result_not_text messages[2].content[0]",
        "messages.2.content.0.tool_result: all content must be type `text` if `is_error` is true",
        ["U:x A[c:a]", _user({**_result(content=[_T, _IMAGE]), "is_error": True})],
    ),
    _an(
        "tool_name_invalid messages[1].content[0]",
        "messages.1.content.0.tool_use.name: String should have at least 1 character",
        ["U:x", _says({**_C, "name": ""}), "R:a"],
    ),
    _an(
        "tool_name_invalid messages[1].content[0]",
        "tool_use.name: String should have at most 200 characters",
        ["U:x", _says({**_C, "name": "path=" * 50}), "R:a"],
    ),
    _an(
        "tool_name_invalid messages[1].content[0]",
        "tool_use.name: String should match pattern",
        ["U:x", _says({**_C, "name": "browser.tabs.open"}), "R:a"],
        strict=True,
    ),
    _an(
        "tool_input_invalid messages[1].content[0]",
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ["U:x", _says({**_C, "input": '{"path":"/a","content":"he'})],
    ),
    _an(
        "tool_use_in_user messages[0].content[1]",
        "can only be in `assistant` messages",
        [_user(_T, _C), "R:a"],
    ),
    _an(
        "tool_result_in_assistant messages[2].content[0]",
        "can only be in `user` messages",
        ["U:x A[c:a]", _says(_result())],
    ),
    _an(
        "server_result_missing messages[1].content[1]",
        "`web_search` tool use with id `w` was found without a corresponding"
        " `web_search_tool_result` block",
        "U:x A[t:y,s:w] U:z",
    ),
    _an("tools_undeclared tools", "must define tools", "U:x A[c:a] R:a", fields={"max_tokens": 9}),
    _an("history_empty messages", "at least one message is required", [], live=False),
    _an("text_surrogate messages[0].content", "low surrogate", ["U:cut\ud83d"], strict=True),
    _an(
        "content_invalid messages[0]",
        "messages.0.content: Input should be a valid list",
        [{"role": "user", "content": {"type": "text", "text": "y"}}],
    ),
    _an("message_invalid messages[1]", "messages.1: Input should be", ["U:x", "plain words"]),
    _an(
        "role_invalid messages[1]",
        "messages.1.role: Input should be 'user' or 'assistant'",
        ["U:x", {"role": "model", "content": "y"}, "U:z"],
    ),
    _an(
        "system_misplaced messages[1]",
        "messages.1: role 'system' must precede an 'assistant' message or end the array; the",
        ["U:x", _SYSTEM, "U:y"],
    ),
    _an(
        "system_misplaced messages[2]",
        "messages.2: role 'system' must follow a 'user' message or an 'assistant' message ending",
        ["U:x A[c:a]", _SYSTEM, "R:a"],
    ),
    _an(
        "system_misplaced messages[0]",
        "messages.0: use the top-level 'system' parameter for the initial system prompt",
        [_SYSTEM, "U:x"],
        fields={"max_tokens": 9},
    ),
    _an(
        "block_invalid messages[0].content[0]",
        "messages.0.content.0: Input tag",
        [_user({"type": "input_text", "text": "y"})],
    ),
    _an("roles_not_alternating messages[1]", "roles must alternate", "U:x U:y", strict=True),
    _an(
        "text_empty messages[0].content[1]",
        "text content blocks must be non-empty",
        [_user(_T, {"type": "text", "text": ""})],
    ),
    _an(
        "text_blank messages[0].content[1]",
        "must contain non-whitespace text",
        [_user(_T, {"type": "text", "text": " \n"})],
    ),
    _an(
        "result_text_empty messages[2].content[0]",
        "text content blocks must be non-empty",
        ["U:x A[c:a]", _user(_result(content=[{"type": "text", "text": ""}]))],
    ),
    _an(
        "system_text_empty system[0]",
        "system: text content blocks",
        "U:x",
        fields={"system": [{"type": "text", "text": ""}]},
    ),
    _an(
        "trailing_whitespace messages[1].content[0]",
        "final assistant content cannot end with trailing whitespace",
        ["U:x", _says({"type": "text", "text": "foo \n"})],
    ),
    _an(
        "prefill_unsupported messages[1]",
        "does not support assistant message prefill. The conversation must end with a user message",
        "U:x A[t:y]",
        facts=Facts(),
    ),
    _an(
        "thinking_missing messages[1]",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
        " `tool_use`. When `thinking` is enabled",
        "U:x A[c:a] R:a",
        fields=_MANUAL,
    ),
    _an(
        "thinking_not_first messages[1].content[1]",
        "the first block must be `thinking` or `redacted_thinking`. Found `text`.",
        "U:x A[t:y,th+,t:z] U:w",
        facts=Facts(thinking="manual"),
    ),
    _an(
        "thinking_not_first messages[2].content[0]",
        "the first block must be `thinking` or `redacted_thinking`.",
        ["U:x", _says(_T), _says(anthropic_block("th+", ""), _T), "U:w"],
        facts=Facts(thinking="manual"),
    ),
    _an(
        "thinking_modified messages[1].content[0]",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant"
        " message cannot be modified.",
        "U:x A[th+,th+,c:a] R:a",
    ),
    _an(
        "thinking_foreign messages[1].content[0]",
        "Invalid `signature` in `thinking` block",
        ["U:x", _says({"type": "thinking", "thinking": "hm", "signature": "gAAAAABo"}, _T), "U:z"],
    ),
    _an(
        "thinking_redacted_invalid messages[1].content[0]",
        "Invalid `data` in `redacted_thinking` block",
        ["U:x", _says({"type": "redacted_thinking"}, _T), "U:z"],
    ),
    _an(
        "thinking_blank messages[1].content[0]",
        "each thinking block must contain thinking",
        ["U:x", _says({**anthropic_block("th-", ""), "thinking": ""}, _T), "U:z"],
    ),
    _an(
        "thinking_in_user messages[0].content[1]",
        "can only be in `assistant`",
        [_user(_T, anthropic_block("th+", ""))],
    ),
    _an(
        "thinking_when_off messages[1].content[0]",
        "When thinking is disabled, an `assistant` message in the final position cannot contain",
        "U:x A[th+,c:a] R:a",
        fields={"thinking": {"type": "disabled"}},
        strict=True,
    ),
    _an(
        "thinking_unsupported messages[1].content[0]",
        "thinking is not supported",
        "U:x A[th+,t:y] U:z",
        facts=Facts(thinking="none"),
    ),
    _an(
        "thinking_mode_unsupported thinking",
        '"thinking.type.disabled" is not supported for this model',
        "U:x",
        fields={"thinking": {"type": "disabled"}},
        facts=Facts(thinking="always"),
    ),
]


def _calls(*calls: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


CHAT_CASES = [
    *_noted(
        "openai-chat",
        """
    tool_result_missing  messages[1].tool_calls[0]  U:x A[c:a] U:y
        The following tool_call_ids did not have response messages: a
    tool_result_displaced  messages[3]  U:x A[c:a] U:y R:a
        did not have
    tool_result_orphan  messages[1]  U:x R:a
        messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.
    tool_result_duplicate  messages[3]  U:x A[c:a] R:a R:a
        Duplicate value for 'tool_call_id' of a in message[3]
        """,
    ),
    _oc(
        "tool_result_id_missing messages[2]",
        "tool_call_id  is not found",
        ["U:x A[c:a]", {"role": "tool", "tool_call_id": "", "content": "ok"}],
    ),
    _oc(
        "tool_use_id_invalid messages[1].tool_calls[0]",
        "is not found",
        ["U:x", _calls(chat_call("")), {"role": "tool", "tool_call_id": "", "content": "ok"}],
    ),
    _oc(
        "tool_use_duplicate_id messages[3].tool_calls[0]",
        "Duplicate value",
        "U:x A[c:a] R:a A[c:a] R:a",
        strict=True,
    ),
    _oc(
        "tool_name_invalid messages[1].tool_calls[0]",
        "Invalid 'messages[1].tool_calls[0].function.name': empty string.",
        ["U:x", _calls({**chat_call("a"), "function": {"arguments": "{}"}}), "R:a"],
    ),
    _oc(
        "tool_name_invalid messages[1].tool_calls[0]",
        "function.name': string does not match pattern.",
        ["U:x", _calls({**chat_call("a"), "function": {"name": "a.b", "arguments": "{}"}}), "R:a"],
        strict=True,
    ),
    _oc(
        "tool_input_invalid messages[1].tool_calls[0]",
        "messages.1.tool_calls.0.function.arguments: arguments must be a valid JSON object string",
        ["U:x", _calls(chat_call("a", '{"a": 1, "b": "xx'))],
    ),
    _oc(
        "tool_calls_empty messages[1]",
        "[] is too short - 'messages.1.tool_calls'",
        ["U:x", {"role": "assistant", "content": "y", "tool_calls": []}],
    ),
    _oc("message_invalid messages[1]", "expected an object", ["U:x", 5]),
    _oc(
        "message_foreign messages[1]",
        "a block of another dialect",
        ["U:x", _says(_T, _C), _user(_result())],
    ),
    _oc("role_invalid messages[0]", "messages[0].role", [{"role": "model", "content": "y"}]),
    _oc(
        "message_empty messages[1]",
        "content or tool_calls must be set",
        ["U:x", {"role": "assistant", "content": None}, "U:y"],
    ),
    _oc(
        "content_empty_with_calls messages[1].content",
        "content must not be an empty string",
        ["U:x", _calls(chat_call("a"), content=""), "R:a"],
        fields={"model": "deepseek-chat"},
    ),
    _oc(
        "reasoning_missing messages[1].tool_calls[0]",
        "`reasoning_content` in the thinking mode must be passed back",
        "U:x A[c:a] R:a",
        fields={"model": "kimi-k2-thinking"},
    ),
    _oc(
        "reasoning_refused messages[1].reasoning_content",
        "is unsupported",
        "U:x A[th-,t:y] U:z",
        vendor="cerebras",
    ),
    _oc(
        "last_not_user messages[1]",
        "Expected last role User or Tool (or Assistant with prefix True)",
        "U:x A[t:y]",
        fields={"model": "mistral-large-latest"},
    ),
]

CHAT_CASES += [
    _oc("history_empty messages", "minimum length 1", [], live=False),
    _oc("text_surrogate messages[0].content", "low surrogate", ["U:cut\ud83d"], strict=True),
    _oc(
        "tool_use_id_too_long messages[1].tool_calls[0]",
        "string too long. Expected a string with maximum length 40",
        f"U:x A[c:{'a' * 41}] R:{'a' * 41}",
        strict=True,
    ),
    _oc(
        "content_invalid messages[2]",
        "expected a string, got null",
        ["U:x A[c:a]", {"role": "tool", "tool_call_id": "a", "content": None}],
    ),
    _oc("message_empty messages[0]", "set", [{"role": "system", "content": None}, "U:x"]),
    _oc(
        "content_invalid messages[2]",
        "expected a string, got null",
        ["U:x A[c:a]", {"role": "tool", "tool_call_id": "a", "content": []}],
    ),
    _oc(
        "user_after_tool messages[3]",
        "Unexpected role 'user' after role 'tool'",
        "U:x A[c:123456789] R:123456789 U:y",
        vendor="mistral",
    ),
]


def _call(call: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": call, "name": "t", "arguments": "{}", **more}


def _thought(name: str) -> Json:
    return {"type": "reasoning", "id": name, "summary": []}


def _output_text(text: str, **more: Any) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


RESPONSES_CASES = [
    *_noted(
        "openai-responses",
        """
    tool_result_missing  input[1]  U:x A[c:a] U:y
        No tool output found for function call a.
    tool_result_orphan  input[1]  U:x R:a
        No tool call found for function call output with call_id a.
    tool_result_duplicate  input[3]  U:x A[c:a] R:a R:a
        Duplicate 'call_id': a
    tool_use_duplicate_id  input[3]  U:x A[c:a] R:a A[c:a] R:a
        Duplicate
        """,
    ),
    _or(
        "tool_result_id_missing input[2]",
        "No tool call found",
        ["U:x A[c:a]", {"type": "function_call_output", "call_id": "", "output": "ok"}],
    ),
    _or("tool_use_id_invalid input[1]", "input[1].call_id", ["U:x", _call(""), "U:y"]),
    _or(
        "tool_name_invalid input[1]",
        "Invalid 'input[1].name': empty string. Expected a string with minimum length 1",
        ["U:x", _call("a", name=""), "R:a"],
    ),
    _or("tool_input_invalid input[1]", "arguments", ["U:x", _call("a", arguments='{"b')]),
    _or(
        "call_incomplete input[1]",
        "arguments",
        ["U:x", _call("a", arguments='{"b', status="incomplete"), "A[t:y] U:z"],
    ),
    _or("history_empty input", "minimum length 1", [], live=False),
    _or("text_surrogate input[0]", "low surrogate", ["U:cut\ud83d"], strict=True),
    _or(
        "tool_use_id_too_long input[1]",
        "input[1].call_id': string too long",
        f"U:x A[c:{'a' * 65}] R:{'a' * 65}",
        strict=True,
    ),
    _or(
        "output_type_invalid input[2]",
        "No tool call found for custom tool call output with call_id a.",
        ["U:x A[c:a]", {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}],
    ),
    _or(
        "output_invalid input[2]",
        "Invalid type for 'input[2].output': expected one of a string or array of objects",
        ["U:x A[c:a]", {"type": "function_call_output", "call_id": "a", "output": None}],
    ),
    _or(
        "output_foreign input[2]",
        "No tool call found for computer call output with call_id a.",
        ["U:x A[c:a]", {"type": "computer_call_output", "call_id": "a", "output": {}}],
    ),
    _or(
        "tool_result_duplicate input[1]",
        "Duplicate 'call_id': a",
        "R:a R:a",
        fields={"previous_response_id": "resp_1"},
    ),
    _or(
        "tool_result_orphan input[0]",
        "No tool call found for function call output with call_id .",
        [{"type": "function_call_output", "call_id": "", "output": "ok"}, "U:x"],
        fields={"previous_response_id": "resp_1"},
    ),
    _or("message_invalid input[1]", "expected an object", ["U:x", 7]),
    _or("message_empty input[1]", "empty", ["U:x", {"role": "assistant", "content": []}]),
    _or(
        "role_invalid input[2]",
        "input[2].role",
        ["U:x A[c:a]", {"role": "tool", "tool_call_id": "a", "content": "ok"}],
    ),
    _or(
        "block_invalid input[1]",
        "Invalid value: 'thinking'.",
        ["U:x", {"type": "thinking", "thinking": "y"}, "U:z"],
    ),
    _or(
        "content_type_invalid input[1]",
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ["U:x", {"role": "assistant", "content": [{"type": "input_text", "text": "y"}]}],
    ),
    _or(
        "input_type_invalid input[0]",
        "Supported values are: 'input_text', 'input_image', and 'input_file'.",
        [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}, "A[t:y] U:z"],
    ),
    _or(
        "reasoning_dangling input[1]",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ["U:x", _thought("rs_1"), "U:y"],
    ),
    _or(
        "reasoning_missing input[4]",
        "was provided without its required 'reasoning' item",
        ["U:x", _thought("rs_1"), "A[t:y] U:z", _output_text("w", id="msg_1"), "U:v"],
        strict=True,
    ),
    _or(
        "item_not_stored input[1]",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        ["U:x", _thought("rs_1"), "A[t:y] U:z"],
        fields={"store": False},
    ),
    _or(
        "item_duplicate input[2]",
        "Duplicate item found with id msg_1.",
        ["U:x", _output_text("y", id="msg_1"), _output_text("y", id="msg_1"), "U:z"],
    ),
    _or(
        "item_id_reused input[3]",
        "Duplicate item found with id fc_1.",
        ["U:x", _call("a", id="fc_1"), "R:a", _call("b", id="fc_1"), "R:b"],
    ),
    _or(
        "item_id_invalid input[1]",
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
        ["U:x", _call("a", id="call_1"), "R:a"],
    ),
]


def _model(*parts: Any) -> Json:
    return {"role": "model", "parts": list(parts)}


def _fr(call: str) -> Json:
    return {"functionResponse": {"id": call, "name": "tool", "response": {"output": "ok"}}}


_COUNT = "number of function response parts is equal to the number of function call parts"
GEMINI_CASES = [
    *_noted(
        "gemini",
        """
    tool_result_orphan  contents[2].parts[0]  U:x A[t:y] R:a
        function response turn comes immediately after a function call turn
    first_not_user  contents[0]  A[c:a] R:a
        function call turn comes immediately after a user turn
        """,
    ),
    _ge("tool_result_missing contents[1].parts[0]", _COUNT, "U:x A[c:a] U:y"),
    _ge(
        "tool_name_invalid contents[2].parts[0]",
        "Name cannot be empty",
        [
            "U:x A[c:a]",
            {"role": "user", "parts": [{"functionResponse": {"id": "a", "response": {}}}]},
        ],
    ),
    _ge("tool_result_displaced contents[4].parts[0]", _COUNT, "U:x A[c:a] U:y A[t:z] R:a"),
    _ge(
        "tool_results_split contents[3].parts[0]",
        _COUNT,
        [
            "U:x A[c:a,c:b]",
            {"role": "user", "parts": [_fr("a")]},
            {"role": "user", "parts": [_fr("b")]},
        ],
    ),
    _ge(
        "tool_result_not_first contents[2].parts[1]",
        _COUNT,
        ["U:x A[c:a]", {"role": "user", "parts": [{"text": "y"}, _fr("a")]}],
    ),
    _ge("tool_results_out_of_order contents[2].parts[1]", _COUNT, "U:x A[c:a,c:b] R:b R:a"),
    _ge("tool_result_duplicate contents[2].parts[1]", _COUNT, "U:x A[c:a] R:a R:a"),
    _ge("tool_result_surplus contents[2].parts[1]", _COUNT, "U:x A[c:a] R:a R:q"),
    _ge(
        "tool_use_in_user contents[0].parts[1]",
        "function call turn comes immediately after a user turn",
        [{"role": "user", "parts": [{"text": "y"}, gemini_part("c", "a")]}, "R:a"],
    ),
    _ge(
        "tool_result_in_assistant contents[2].parts[0]",
        "function response turn comes immediately",
        ["U:x A[c:a]", {"role": "model", "parts": [_fr("a")]}],
    ),
    _ge(
        "roles_not_alternating contents[1]",
        "multiturn requests alternate between user and model",
        "U:x U:y",
        strict=True,
    ),
    _ge("message_empty contents[1]", "at least one parts field", ["U:x", _model(), "U:y"]),
    _ge(
        "text_empty contents[1].parts[1]",
        "empty text parameter",
        ["U:x", _model({"text": "y"}, {"text": ""}), "U:z"],
    ),
    _ge(
        "block_invalid contents[1].parts[1]",
        "contents[1].parts[1]",
        ["U:x", _model({"text": "y"}, {"thoughtSignature": "Zm9v"}), "U:z"],
    ),
    _ge("history_empty contents", "contents is not specified", [], live=False),
    _ge("text_surrogate contents[0].parts[0]", "low surrogate", ["U:cut\ud83d"], strict=True),
    _ge("message_invalid contents[1]", "contents[1]", ["U:x", 5]),
    _ge(
        "role_invalid contents[1]",
        "Please use a valid role: user, model.",
        ["U:x", {"role": "assistant", "parts": [{"text": "y"}]}, "U:z"],
    ),
    _ge(
        "thought_signature_missing contents[1].parts[0]",
        "Function call is missing a thought_signature in functionCall parts.",
        "U:x A[c:a] R:a",
        model="gemini-3-pro-preview",
    ),
    _ge(
        "thought_signature_invalid contents[1].parts[0]",
        "Base64 decoding failed",
        ["U:x", _model({"text": "y", "thoughtSignature": "no base64!"}), "U:z"],
    ),
    _ge(
        "prefill_unsupported contents[1]",
        "Requests ending with a model turn are not supported",
        "U:x A[t:y]",
        facts=Facts(),
    ),
]

CASES = {
    "anthropic": ANTHROPIC_CASES,
    "openai-chat": CHAT_CASES,
    "openai-responses": RESPONSES_CASES,
    "gemini": GEMINI_CASES,
}


@pytest.mark.parametrize(
    ("dialect", "case"),
    [
        pytest.param(dialect, case, id=f"{dialect}-{case.code}")
        for dialect, cases in CASES.items()
        for case in cases
    ],
)
def test_a_rule_is_found_in_its_place_in_the_providers_words_and_mended(
    dialect: str, case: Case
) -> None:
    given = dict(case.more)
    strict, vendor = given.pop("strict", False), given.pop("vendor", None)
    found = validate(case.body, dialect, strict=strict, vendor=vendor, **given)
    violation = next((v for v in found if v.code == case.code), None)
    assert violation is not None, found
    assert violation.path == case.path
    assert case.text in violation.message
    live = given.pop("live", True)
    policy = RepairPolicy(strict=strict, vendor=vendor, live=live)
    repaired = repair(case.body, dialect, policy=policy, **given)
    assert validate(repaired.body, dialect, strict=strict, vendor=vendor, live=live, **given) == []
    assert repaired.changes
    assert repair(repaired.body, dialect, policy=policy, **given).body is repaired.body
    # What the provider says of it leads to the same repair.
    if (error := classify(400, violation.message)) is not None:
        again = repair_refused(case.body, error, dialect, policy=policy, **given)
        assert again.changes


@pytest.mark.parametrize("dialect", HistoryFormat)
def test_every_rule_has_a_case(dialect: HistoryFormat) -> None:
    only_the_provider_can_tell = {"thinking_bound", "encrypted_content_invalid"}
    if dialect == "openai-chat":  # a server's chat template has its say only when it refuses
        only_the_provider_can_tell.add("roles_not_alternating")
    covered = {case.code for case in CASES[dialect]}
    assert set(texts(dialect)) - only_the_provider_can_tell == covered
