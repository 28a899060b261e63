"""The rules for the input of a Responses request, as OpenAI's API enforces them.

They are written only from the provider's reference and error texts. They share nothing with the
code that repairs histories, so that a wrong rule there is not confirmed here. Sources: the API
reference, and the error texts that public issues quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from continuation.simulator.common import (
    REASONING_KEYS,
    HistoryFault,
    Rulebook,
    is_object,
    is_reasoning,
    text_of,
)
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_list, is_map, mapping
from continuation.wire.responses_items import OUTPUTS, PAIRED_CALLS, kind_of

RULES = Rulebook(
    {
        "message_invalid": "Invalid type for 'input[{n}]': expected an object",
        "role_invalid": "Invalid value for 'input[{n}].role'. Supported values are: 'assistant',"
        " 'system', 'developer', and 'user'.",
        "block_invalid": "Invalid value: '{detail}'. Supported values are: 'message', 'reasoning',"
        " 'function_call', 'item_reference'.",
        "content_type_invalid": "Invalid value: '{detail}'. Supported values are: 'output_text' and"
        " 'refusal'.",
        "input_type_invalid": "Invalid value: '{detail}'. Supported values are: 'input_text',"
        " 'input_image', and 'input_file'.",
        "message_empty": "Invalid 'input[{n}].content': empty",
        "item_id_invalid": "Invalid 'input[{n}].id': '{id}'. Expected an ID that begins with"
        " '{detail}'.",
        "item_not_stored": "Item with id '{id}' not found. Items are not persisted when `store` is"
        " set to false. Try again with `store` set to true, or remove this item from your input.",
        "item_duplicate": "Duplicate item found with id {id}.",
        "tool_use_id_invalid": "Missing required parameter: 'input[{n}].call_id'.",
        "tool_name_invalid": "Invalid 'input[{n}].name': empty string. Expected a string with"
        " minimum length 1, but got an empty string instead.",
        "tool_input_invalid": "Invalid 'input[{n}].arguments': expected a JSON object string",
        "reasoning_dangling": "Item '{id}' of type 'reasoning' was provided without its required"
        " following item.",
        "tool_use_duplicate_id": "Duplicate 'call_id': {id}",
        "tool_result_duplicate": "Duplicate 'call_id': {id}",
        "tool_result_orphan": "No tool call found for function call output with call_id {id}.",
        "tool_result_missing": "No tool output found for function call {ids}.",
        "output_invalid": "Invalid type for 'input[{n}].output': expected one of a string or array"
        " of objects, but got null instead.",
        "output_type_invalid": "No tool call found for {detail} output with call_id {id}.",
        "history_empty": "Invalid 'input': empty array. Expected an array with minimum length 1,"
        " but got an empty array instead.",
    }
)
_fault = RULES.fault

_ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
"""The types of items for which the server checks the prefix of the id -> the prefix."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_NOT_OUTPUT = ("input_text", "text")
_NOT_INPUT = ("output_text", "text", "refusal", "image", "image_url")
_REASONING_FIELDS = frozenset({"id", "encrypted_content", "summary", "content"})
"""Reasoning of this format has at least one of these fields."""
_WITH_OUTPUT = ("function_call_output", "custom_tool_call_output")


def faults(body: Json) -> list[HistoryFault]:
    """Return the rules that an input breaks. It must end so that the model can answer."""
    items = as_list(body.get("input"))
    found = [] if items else [_fault("history_empty")]
    for n, item in enumerate(items):
        kind = kind_of(item)
        if not kind:
            found.append(_fault("message_invalid", n))
        elif kind == "message":
            found += _message(n, mapping(item))
        else:
            found += _item(n, kind, mapping(item))
    found += _ids(items, stored=body.get("store") is not False)
    found += _dangling(items)
    found += _pairs(items)
    return RULES.ranked(found)


def _message(n: int, item: Json) -> Iterator[HistoryFault]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES or is_map(content) or (REASONING_KEYS | {"tool_calls"}) & item.keys():
        yield _fault("role_invalid", n)
        return
    kinds = [str(mapping(block).get("type") or "") for block in as_list(content)]
    texts_only = {"text", "input_text", "output_text"}.issuperset(kinds)
    silent = role == "assistant" and texts_only and not text_of(content).strip()
    refused = _NOT_OUTPUT if role == "assistant" else _NOT_INPUT
    wrong = next((kind for kind in kinds if kind in refused), "")
    if any(map(is_reasoning, as_list(content))):
        wrong = "thinking"
    if silent or content is None or content == []:
        yield _fault("message_empty", n)
    elif wrong:
        code = "content_type_invalid" if role == "assistant" else "input_type_invalid"
        yield _fault(code, n, detail=wrong)


def _item(n: int, kind: str, item: Json) -> Iterator[HistoryFault]:
    if is_reasoning(item) and (kind != "reasoning" or not _REASONING_FIELDS & item.keys()):
        yield _fault("block_invalid", n, detail=kind)
        return
    if kind in _WITH_OUTPUT and not isinstance(item.get("output"), (str, list)):
        yield _fault("output_invalid", n)
    if kind in ("function_call", "custom_tool_call") and item.get("execution") != "server":
        if not item.get("name"):
            yield _fault("tool_name_invalid", n)
        if kind == "function_call" and not is_object(item.get("arguments")):
            yield _fault("tool_input_invalid", n)


def _ids(items: list[Any], *, stored: bool) -> Iterator[HistoryFault]:
    """Check the items' ids: their form, their uniqueness, and whether the server can know them."""
    seen = set[str]()
    for n, item in enumerate(items):
        fields, kind = mapping(item), kind_of(item)
        name = fields.get("id")
        if not kind or not isinstance(name, str):
            continue
        sealed = kind == "reasoning" and fields.get("encrypted_content")
        if not stored and kind in ("item_reference", "reasoning") and not sealed:
            yield _fault("item_not_stored", n, id=name)
        elif name in seen:
            yield _fault("item_duplicate", n, id=name)
        elif kind in _PREFIXES and not (name.startswith(_PREFIXES[kind]) and _ID.match(name)):
            yield _fault("item_id_invalid", n, id=name, detail=_PREFIXES[kind])
        seen.add(name)


def _by_assistant(item: Any) -> bool:
    """Whether the model wrote an item: reasoning, a call, or a message of the assistant."""
    kind, fields = kind_of(item), mapping(item)
    if kind == "message":
        return fields.get("role") == "assistant"
    searched = kind == "tool_search_output" and fields.get("execution") == "server"
    return bool(kind) and (kind not in OUTPUTS or searched)


def _dangling(items: list[Any]) -> Iterator[HistoryFault]:
    """Check that another item of the model follows each reasoning item."""
    for by_model, run in groupby(enumerate(items), lambda pair: _by_assistant(pair[1])):
        for n, item in reversed(list(run)) if by_model else ():
            if kind_of(item) != "reasoning" or not _REASONING_FIELDS & mapping(item).keys():
                break
            yield _fault("reasoning_dangling", n, id=mapping(item).get("id", ""))


def _fits(output: str, call: str) -> bool:
    """Whether a type of output is for a type of call. Codex answers shell calls as functions."""
    as_function = call == "local_shell_call" and output == "function_call_output"
    return as_function or output == PAIRED_CALLS[call]


def _pairs(items: list[Any]) -> Iterator[HistoryFault]:
    """Check that each call has one output of the right type anywhere after it."""
    asked: dict[str, tuple[int, str]] = {}
    answered = set[str]()
    aliases: dict[str, str] = {}  # the output of a local shell call names the item
    for n, item in enumerate(items):
        kind, fields = kind_of(item), mapping(item)
        on_server = fields.get("execution") == "server"
        if kind in PAIRED_CALLS and not on_server:
            name = str(fields.get("call_id") or fields.get("id") or "")
            if isinstance(fields.get("id"), str):
                aliases[fields["id"]] = name
            if not name or name in asked:
                code = "tool_use_duplicate_id" if name else "tool_use_id_invalid"
                yield _fault(code, n, id=name)
            asked[name] = n, kind
        elif kind in OUTPUTS and not on_server:
            name = str(fields.get("call_id") or aliases.get(str(fields.get("id") or ""), ""))
            yield from _output(n, kind, name, asked, answered)
            answered.add(name)
    yield from _unanswered(items, {name: asked[name][0] for name in asked if name not in answered})


def _output(
    n: int, kind: str, name: str, asked: dict[str, tuple[int, str]], answered: set[str]
) -> Iterator[HistoryFault]:
    if not name or name not in asked:
        yield _fault("tool_result_orphan", n, id=name)
        return
    if name in answered:
        yield _fault("tool_result_duplicate", n, id=name)
    if not _fits(kind, asked[name][1]):
        words = kind.removesuffix("_output").replace("_", " ")
        yield _fault("output_type_invalid", n, id=name, detail=words)


def _unanswered(items: list[Any], missing: dict[str, int]) -> Iterator[HistoryFault]:
    """Yield the calls without an output. The text names all such calls of one answer."""
    runs = groupby(enumerate(items), lambda pair: _by_assistant(pair[1]))
    for run in [{n for n, _ in pairs} for _, pairs in runs]:
        names = [name for name, n in missing.items() if n in run]
        ids = ", ".join(names[:50])
        yield from (_fault("tool_result_missing", missing[name], ids=ids) for name in names)
