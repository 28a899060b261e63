"""Views of a Responses request that its rules, its costs and the model share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from continuation.history.openai.items import kind_of
from continuation.history.tree import text_of
from continuation.simulator.model import Said
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_list, as_map
from continuation.wire.responses_items import OUTPUTS


@dataclass(frozen=True)
class Input:
    """Everything the model reads, oldest first; the first `held` items came from the server."""

    items: list[Any]
    held: int = 0

    @property
    def new(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What the request brings, each item with its place in `items`."""
        return ((n, as_map(self.items[n])) for n in range(self.held, len(self.items)))


def brought(body: Json) -> list[Any]:
    """Return the items of `input`; a text is one message of the user."""
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)


def is_reference(item: Any) -> bool:
    """Tell whether an item only names another; the type may be left out."""
    given = as_map(item)
    return given.get("type") == "item_reference" or set(given) == {"id"}


def conversation_id(body: Json) -> str | None:
    """Return the conversation a request belongs to, written as an id or as an object."""
    given = body.get("conversation")
    name = given if isinstance(given, str) else as_map(given).get("id")
    return None if name is None else str(name)


def turns(items: list[Any]) -> list[Said]:
    """Return user and assistant turns; neighbouring items of one speaker are one turn.

    An assistant turn at the end is left out: it is a finished turn, so the model does not go on
    where it stops but answers what was asked before it.
    """
    found: list[Said] = []
    for said in filter(None, map(_said, items)):
        if found and found[-1].role == said.role:
            found[-1] = _joined(found[-1], said)
        else:
            found.append(said)
    if found and found[-1].role == "assistant":
        found.pop()
    return found or [Said("user", "")]


def _joined(first: Said, second: Said) -> Said:
    results = first.results or second.results
    return replace(first, text=first.text + second.text, results=results)


def _said(item: Any) -> Said | None:
    given, kind = as_map(item), kind_of(item)
    if kind in OUTPUTS:
        return Said("user", "", results=True)
    if kind != "message":
        return Said("assistant", "")
    text, role = text_of(given.get("content")), given.get("role")
    if role in ("user", "assistant"):
        return Said("assistant" if role == "assistant" else "user", text)
    return None


def listed(items: list[Any], new_id: Callable[[str], str]) -> list[Json]:
    """Return input items the way the API keeps and lists them: with ids, content as blocks."""
    return [_kept(as_map(item), new_id) for item in items]


def _kept(item: Mapping[str, Any], new_id: Callable[[str], str]) -> Json:
    kind = kind_of(item)
    kept: Json = {**item, "id": item_id(item, new_id), "type": kind}
    if kind == "message" and isinstance(item.get("content"), str):
        kept["content"] = [_block(str(item.get("role")), str(item["content"]))]
    if kind == "message" or kind in OUTPUTS:
        kept.setdefault("status", "completed")
    return kept


def _block(role: str, text: str) -> Json:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def item_id(item: Mapping[str, Any], new_id: Callable[[str], str]) -> str:
    """Return the item's id, or a new one of its kind."""
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
