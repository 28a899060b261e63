"""The rules for a Chat history, as OpenAI and other vendors enforce them.

They are written only from the vendors' pages and error texts. They share nothing with the code that
repairs histories, so that a wrong rule there is not confirmed here. Sources: the error texts of
OpenAI, DeepSeek, Moonshot, Mistral and Cerebras that public issues quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from continuation.simulator.common import HistoryFault, Rulebook, is_object, is_reasoning
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_list, is_list, is_map, mapping, objects

RULES = Rulebook(
    {
        "message_invalid": "Invalid type for 'messages[{n}]': expected an object",
        "role_invalid": "Invalid value for 'messages[{n}].role'. Supported values are: 'system',"
        " 'assistant', 'user', 'function', 'tool', and 'developer'.",
        "message_foreign": "Invalid value for 'messages[{n}].content': a block of another dialect",
        "tool_calls_empty": "[] is too short - 'messages.{n}.tool_calls'",
        # This is Moonshot's text. It has a double space if the id is empty. Mistral refuses all ids
        # except those of nine letters or digits.
        "tool_use_id_invalid": "Invalid request: tool_call_id {id} is not found",
        "tool_use_duplicate_id": "Duplicate value for 'tool_call_id' of {id} in message[{n}]",
        "tool_result_duplicate": "Duplicate value for 'tool_call_id' of {id} in message[{n}]",
        "tool_result_missing": "An assistant message with 'tool_calls' must be followed by tool"
        " messages responding to each 'tool_call_id'. The following tool_call_ids did not have"
        " response messages: {ids}",
        "tool_result_orphan": "Invalid parameter: messages with role 'tool' must be a response to a"
        " preceeding message with 'tool_calls'.",
        "content_invalid": "Invalid value for 'content': expected a string, got null.",
        "user_after_tool": "Unexpected role 'user' after role 'tool'",
        "tool_name_invalid": "Invalid 'messages[{n}].tool_calls[{m}].function.name': empty string."
        " Expected a string with minimum length 1, but got an empty string instead.",
        "tool_input_invalid": "messages.{n}.tool_calls.{m}.function.arguments: arguments must be a"
        " valid JSON object string",
        "history_empty": "Invalid 'messages': empty array. Expected an array with minimum length 1,"
        " but got an empty array instead.",
        "message_empty": "Invalid assistant message: content or tool_calls must be set",
        "content_empty_with_calls": "Invalid assistant message: content must not be an empty"
        " string",
        "reasoning_missing": "The `reasoning_content` in the thinking mode must be passed back to"
        " the API.",
        "reasoning_refused": "property 'messages.{n}.assistant.reasoning_content' is unsupported",
    }
)
_fault = RULES.fault

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_FOREIGN = ("tool_use", "tool_result", "image", "input_image")
"""Types of blocks, other than thinking, that only other formats have in `content`."""
_INSTEAD = ("tool_calls", "refusal", "audio", "function_call")
"""Fields of assistant messages that may replace `content`."""
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
_REASONS = re.compile(r"reasoner|thinking|-r1\b", re.IGNORECASE)
"""Matches the names of DeepSeek's and Moonshot's models that always reason."""


def faults(body: Json, vendor: str) -> list[HistoryFault]:
    """Return the rules that a history breaks. It must end so that the model can answer."""
    natives = as_list(body.get("messages"))
    messages = [mapping(native) for native in natives]
    found = [] if natives else [_fault("history_empty")]
    for n, native in enumerate(natives):
        if not is_map(native):
            found.append(_fault("message_invalid", n))
        elif native.get("role") not in _ROLES:
            found.append(_fault("role_invalid", n))
        elif native["role"] == "tool":
            content = native.get("content")
            if not isinstance(content, str) and not (is_list(content) and content):
                found.append(_fault("content_invalid", n))
        elif native["role"] != "function":
            found += _content(n, mapping(native), last=n == len(natives) - 1)
            found += _each_call(n, mapping(native), vendor)
    found += _pairs(messages)
    found += _vendors(body, messages, vendor)
    return RULES.ranked(found)


def _calls(message: Json) -> list[Json]:
    return objects(message.get("tool_calls")) if message.get("role") == "assistant" else []


def _content(n: int, message: Json, *, last: bool) -> Iterator[HistoryFault]:
    content, calls = message.get("content"), message.get("tool_calls")
    if is_map(content) or (content == [] and calls):
        yield _fault("content_invalid", n)
        return
    if message["role"] == "assistant" and calls == []:
        yield _fault("tool_calls_empty", n)
        return
    blocks = as_list(content)
    if any(str(mapping(b).get("type")) in _FOREIGN or is_reasoning(b) for b in blocks):
        yield _fault("message_foreign", n)
        return
    if message["role"] != "assistant":
        empty = not isinstance(content, str) and not blocks
    else:
        texts = [content] if isinstance(content, str) else list(map(_text, blocks))
        says = any(text is None or text.strip() for text in texts)
        prefill = last and (message.get("prefix") or message.get("partial"))
        empty = not says and not prefill and not any(message.get(key) for key in _INSTEAD)
    if empty:
        yield _fault("message_empty", n)


def _text(block: Any) -> str | None:
    """Return the text of a text block, or None for another block."""
    text = mapping(block).get("text")
    return text if mapping(block).get("type") == "text" and isinstance(text, str) else None


def _each_call(n: int, message: Json, vendor: str) -> Iterator[HistoryFault]:
    seen = set[str]()
    for m, call in enumerate(_calls(message)):
        name, function = str(call.get("id") or ""), mapping(call.get("function"))
        if not name or (vendor == "mistral" and not _MISTRAL_ID.match(name)):
            yield _fault("tool_use_id_invalid", n, m, id=name)
        elif name in seen:
            yield _fault("tool_use_duplicate_id", n, m, id=name)
        seen.add(name)
        if not function.get("name") and not mapping(call.get("custom")).get("name"):
            yield _fault("tool_name_invalid", n, m)
        if call.get("type", "function") == "function" and not is_object(function.get("arguments")):
            yield _fault("tool_input_invalid", n, m)


def _pairs(messages: list[Json]) -> Iterator[HistoryFault]:
    """Check that each message with calls is followed by one tool message for each call."""
    asked, answered, at = list[str](), list[str](), 0
    for n, message in enumerate([*messages, Json()]):
        if message.get("role") == "tool":
            name = str(message.get("tool_call_id") or "")
            if name not in asked:
                yield _fault("tool_result_orphan", n)
            elif answered.count(name) >= asked.count(name):
                yield _fault("tool_result_duplicate", n, id=name)
            answered.append(name)
            continue
        if missing := [name for name in asked if name not in answered]:
            yield _fault("tool_result_missing", at, ids=", ".join(missing[:50]))
        asked, answered, at = [str(call.get("id") or "") for call in _calls(message)], [], n


def _vendors(body: Json, messages: list[Json], vendor: str) -> Iterator[HistoryFault]:
    """Check the rules that only some vendors have."""
    spoken = [(n, each) for n, each in enumerate(messages) if each.get("role") == "assistant"]
    if vendor == "mistral":
        roles = pairwise(message.get("role") for message in messages)
        late = [n + 1 for n, pair in enumerate(roles) if pair == ("tool", "user")]
        yield from (_fault("user_after_tool", n) for n in late)
    if vendor == "cerebras":
        sent_back = [n for n, each in spoken if each.get("reasoning_content") is not None]
        yield from (_fault("reasoning_refused", n) for n in sent_back)
    calling = [(n, message) for n, message in spoken if _calls(message)]
    if vendor == "deepseek":
        for n, message in calling:
            if "" in [message.get("content"), *map(_text, as_list(message.get("content")))]:
                yield _fault("content_empty_with_calls", n)
    if vendor in ("deepseek", "moonshot") and _must_return_reasoning(body, spoken):
        silent = [n for n, message in calling if not _reasoning(message)]
        yield from (_fault("reasoning_missing", n) for n in silent)


def _must_return_reasoning(body: Json, spoken: list[tuple[int, Json]]) -> bool:
    mode = mapping(body.get("thinking")).get("type")
    shown = any(_reasoning(message) for _, message in spoken)
    always = _REASONS.search(str(body.get("model") or ""))
    return mode != "disabled" and bool(mode == "enabled" or shown or always)


def _reasoning(message: Json) -> bool:
    text = message.get("reasoning_content")
    return isinstance(text, str) and bool(text.strip())
