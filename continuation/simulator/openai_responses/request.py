"""Parses a Responses request: the items that the model reads, the credential, the tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from continuation.limits import ModelLimits
from continuation.simulator.common import merged, text_of
from continuation.simulator.format import Context
from continuation.simulator.model import PromptTurn, tokens
from continuation.simulator.openai_responses.store import Archive
from continuation.simulator.wire import Json, Recorded
from continuation.wire.json_values import as_list, mapping
from continuation.wire.responses_items import OUTPUTS, kind_of


class ResponsesContext(Context):
    """A Responses request, its model's limits, and the storage of its credential.

    `anchor`: the id of the response that it continues. `brought`: the items of its `input`.
    `items`: all items that the model reads, the oldest first. `held`: the number of first items
    that are from storage. `new`: the other items, each with its index in `items`. References to
    items that are not stored are ignored.
    """

    def __init__(self, request: Recorded, model: ModelLimits, known: bool, store: Archive) -> None:
        super().__init__(request, model, known)
        self.store, self.credential = store, credential(request)
        anchor = self.body.get("previous_response_id")
        self.anchor = None if anchor is None else str(anchor)
        brought = self.body.get("input")
        if isinstance(brought, str):
            brought = [{"role": "user", "content": brought}]
        self.brought = as_list(brought)
        held = store.history(self.anchor)
        self.items, self.held = list[Any](held), len(held)
        for item in self.brought:
            named = store.items.get(str(item.get("id"))) if is_reference(item) else None
            self.items.append(named or item)
        self.new = [(n, mapping(self.items[n])) for n in range(self.held, len(self.items))]


def credential(request: Recorded) -> str:
    return request.headers.get("authorization") or request.headers.get("api-key", "")


def is_reference(item: Any) -> bool:
    """Whether an item is only a reference to another item. Its type may be missing."""
    fields = mapping(item)
    return fields.get("type") == "item_reference" or set(fields) == {"id"}


def turns(listed: list[Any]) -> list[PromptTurn]:
    """Return user and assistant turns. Adjacent items of one role are one turn.

    An assistant turn at the end is dropped. It is finished, so the model does not continue it: it
    answers the turn before.
    """
    prompt_turns: list[PromptTurn] = []
    for item in map(mapping, listed):
        kind, role = kind_of(item), item.get("role")
        if kind in OUTPUTS:
            prompt_turns.append(PromptTurn("user", "", results=True))
        elif kind != "message":
            prompt_turns.append(PromptTurn("assistant", ""))
        elif role in ("user", "assistant"):
            prompt_turns.append(PromptTurn(str(role), text_of(item.get("content"))))
    merged_turns = merged(prompt_turns)
    if merged_turns and merged_turns[-1].role == "assistant":
        merged_turns.pop()
    return merged_turns or [PromptTurn("user", "")]


def listed(items: list[Any], new_id: Callable[[str], str]) -> list[Json]:
    """Return input items as the API stores and lists them: with ids, and with blocks as content."""
    entries: list[Json] = []
    for item in map(mapping, items):
        kind, content = kind_of(item), item.get("content")
        entry: Json = {**item, "id": item_id(item, new_id), "type": kind}
        if kind == "message" and isinstance(content, str):
            block: Json = {"type": "input_text", "text": content}
            if item.get("role") == "assistant":
                block = {"type": "output_text", "text": content, "annotations": []}
            entry["content"] = [block]
        if kind == "message" or kind in OUTPUTS:
            entry.setdefault("status", "completed")
        entries.append(entry)
    return entries


def item_id(item: Mapping[str, Any], new_id: Callable[[str], str]) -> str:
    """Return the item's id, or a new id with the prefix of its type."""
    kind = kind_of(item)
    return str(item.get("id") or new_id(_PREFIXES.get(kind, kind.split("_")[0] or "item")))


_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "web_search_call": "ws",
}

# -- what it costs


def input_tokens(context: ResponsesContext) -> int:
    """Return the tokens of instructions, tools and items: their JSON, four characters each."""
    heads = [context.body[name] for name in ("instructions", "tools") if context.body.get(name)]
    read = (*heads, *context.items)
    return sum(tokens(json.dumps(part, sort_keys=True, ensure_ascii=False)) for part in read)
