"""What makes a Chat request body malformed, whatever model it asks; the texts are OpenAI's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from continuation.simulator.anthropic.body import Json, items, mapping
from continuation.simulator.openai_chat.body import messages
from continuation.simulator.openai_chat.errors import Refusal

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
LIMITS = ("max_tokens", "max_completion_tokens")
_PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")
_FORMATS = ("json_object", "json_schema", "text")
_CHOICES = ("none", "auto", "required")
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)
_WANTED: dict[str, tuple[type, str]] = {
    "max_tokens": (int, "an integer"),
    "max_completion_tokens": (int, "an integer"),
    "n": (int, "an integer"),
    "stream": (bool, "a boolean"),
    "stream_options": (dict, "an object"),
    "response_format": (dict, "an object"),
    "tools": (list, "an array of objects"),
}


def first_fault(body: Json) -> Refusal | None:
    """Return what is wrong with the form of the body, before its meaning is looked at."""
    return next(chain.from_iterable(rule(body) for rule in _RULES), None)


def wrong_type(path: str, wanted: str, value: Any) -> Refusal:
    got = next((name for kind, name in _KINDS if isinstance(value, kind)), "null")
    text = f"Invalid type for '{path}': expected {wanted}, but got {got} instead."
    return Refusal(text, code="invalid_type", param=path)


def missing(path: str) -> Refusal:
    text = f"Missing required parameter: '{path}'."
    return Refusal(text, code="missing_required_parameter", param=path)


def wrong_value(path: str, value: Any, possible: tuple[str, ...]) -> Refusal:
    listed = ", ".join(f"'{word}'" for word in possible[:-1]) + f", and '{possible[-1]}'"
    text = f"Invalid value: '{value}'. Supported values are: {listed}."
    return Refusal(text, code="invalid_value", param=path)


def empty(path: str) -> Refusal:
    text = (
        f"Invalid '{path}': empty array. Expected an array with minimum length 1, "
        "but got an empty array instead."
    )
    return Refusal(text, code="empty_array", param=path)


# -- the body's own members


def _members(body: Json) -> Iterator[Refusal]:
    if "messages" not in body:
        yield missing("messages")
    elif not isinstance(body["messages"], list):
        yield wrong_type("messages", "an array of objects", body["messages"])
    elif not items(body["messages"]):
        yield empty("messages")
    for name, (kind, wanted) in _WANTED.items():
        value = body.get(name)
        if value is not None and (not isinstance(value, kind) or _is_false_integer(kind, value)):
            yield wrong_type(name, wanted, value)


def _is_false_integer(kind: type, value: Any) -> bool:
    return kind is int and isinstance(value, bool)


def _numbers(body: Json) -> Iterator[Refusal]:
    for name in (*LIMITS, "n"):
        value = body.get(name)
        if value is not None and value < 1:
            text = (
                f"Invalid '{name}': integer below minimum value. "
                f"Expected a value >= 1, but got {value} instead."
            )
            yield Refusal(text, code="integer_below_min_value", param=name)


def _stop(body: Json) -> Iterator[Refusal]:
    given = body.get("stop")
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, list) or not all(isinstance(word, str) for word in items(given)):
        yield wrong_type("stop", "one of a string or array of strings", given)
    elif len(items(given)) > 4:
        text = (
            "Invalid 'stop': array too long. Expected an array with maximum length 4, "
            f"but got an array with length {len(items(given))} instead."
        )
        yield Refusal(text, code="array_above_max_length", param="stop")


def _tools(body: Json) -> Iterator[Refusal]:
    if body.get("tools") == []:
        yield empty("tools")
    for number, tool in enumerate(items(body.get("tools"))):
        path = f"tools[{number}]"
        if not isinstance(tool, dict):
            yield wrong_type(path, "an object", tool)
        elif "type" not in tool:
            yield missing(f"{path}.type")
        elif mapping(tool)["type"] == "function" and not _named(mapping(tool)):
            yield missing(f"{path}.function.name")
    choice = body.get("tool_choice")
    if choice is not None and not body.get("tools"):
        text = (
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are "
            "specified."
        )
        yield Refusal(text, param="tool_choice")
    elif isinstance(choice, str) and choice not in _CHOICES:
        yield wrong_value("tool_choice", choice, _CHOICES)


def _named(tool: Json) -> bool:
    return isinstance(mapping(tool.get("function")).get("name"), str)


def _response_format(body: Json) -> Iterator[Refusal]:
    given = body.get("response_format")
    if given is None:
        return
    kind = mapping(given).get("type")
    if kind is None:
        yield missing("response_format.type")
    elif kind not in _FORMATS:
        yield wrong_value("response_format.type", kind, _FORMATS)
    elif kind == "json_schema" and not isinstance(mapping(given).get("json_schema"), dict):
        yield missing("response_format.json_schema")


# -- messages


def _messages(body: Json) -> Iterator[Refusal]:
    for number, message in enumerate(items(body["messages"])):
        path = f"messages[{number}]"
        if not isinstance(message, dict):
            yield wrong_type(path, "an object", message)
            return
        yield from _message(path, mapping(message))


def _message(path: str, message: Json) -> Iterator[Refusal]:
    role = message.get("role")
    if role is None:
        yield missing(f"{path}.role")
    elif role not in ROLES:
        yield wrong_value(f"{path}.role", role, ROLES)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield missing(f"{path}.tool_call_id")
    yield from _content(path, message)
    yield from _calls(path, message)


def _content(path: str, message: Json) -> Iterator[Refusal]:
    content = message.get("content")
    if content is None:
        if not _may_be_silent(message):
            text = "Invalid value for 'content': expected a string, got null."
            yield Refusal(text, param=f"{path.replace('[', '.[')}.content")
    elif not isinstance(content, str | list):
        yield wrong_type(f"{path}.content", "one of a string or array of objects", content)
    elif content == []:
        yield empty(f"{path}.content")
    for place, part in enumerate(items(content)):
        yield from _part(f"{path}.content[{place}]", part)


def _may_be_silent(message: Json) -> bool:
    others = ("tool_calls", "function_call", "refusal", "audio")
    return message.get("role") == "assistant" and any(message.get(name) for name in others)


def _part(path: str, part: Any) -> Iterator[Refusal]:
    if not isinstance(part, dict):
        yield wrong_type(path, "an object", part)
        return
    kind, text = mapping(part).get("type"), mapping(part).get("text")
    if kind is None:
        yield missing(f"{path}.type")
    elif kind not in _PARTS:
        yield wrong_value(f"{path}.type", kind, _PARTS)
    elif kind == "text" and text is None:
        yield missing(f"{path}.text")
    elif kind == "text" and not isinstance(text, str):
        yield wrong_type(f"{path}.text", "a string", text)


def _calls(path: str, message: Json) -> Iterator[Refusal]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        yield wrong_type(f"{path}.tool_calls", "an array of objects", calls)
    for place, call in enumerate(items(calls)):
        where = f"{path}.tool_calls[{place}]"
        if not isinstance(call, dict):
            yield wrong_type(where, "an object", call)
            continue
        for name in ("id", "type"):
            if not isinstance(mapping(call).get(name), str):
                yield missing(f"{where}.{name}")
        if mapping(call).get("type") == "function":
            yield from _function(f"{where}.function", mapping(call).get("function"))


def _function(path: str, function: Any) -> Iterator[Refusal]:
    if not isinstance(function, dict):
        yield missing(path)
        return
    for name in ("name", "arguments"):
        value = mapping(function).get(name)
        if value is None:
            yield missing(f"{path}.{name}")
        elif not isinstance(value, str):
            yield wrong_type(f"{path}.{name}", "a string", value)


def says_json(body: Json) -> bool:
    """Tell whether the word "json" is in the messages, as JSON mode wants it."""
    texts = (message.get("content") for message in messages(body))
    return any("json" in str(text).lower() for text in texts)


_Rule = Callable[[Json], Iterator[Refusal]]
_RULES: tuple[_Rule, ...] = (
    _members,
    _messages,
    _numbers,
    _stop,
    _tools,
    _response_format,
)
