"""Responses by `previous_response_id`: when a chain may be replayed in full, and when not.

A server that has the history needs only the new items. If it has lost the history, the complete
input must be sent instead. That is possible only if the input has the call of every output. If only
the lost response has the call of an output, that output cannot be replayed: a guess would run a
tool twice or never. Then the chain is lost, and the caller gets an error that says so.

Sources: OpenAI's pages on conversation state; the rules of public gateways.
"""

from __future__ import annotations

import json
from typing import Any, Final

from continuation.history.tree import blank, text_of
from continuation.history.types import Body
from continuation.wire.json_values import as_list, as_map, as_text, is_list, is_map
from continuation.wire.responses_items import ANCHOR, OUTPUTS, PAIRED_CALLS, kind_of

_REMEDY: Final = f"send the whole conversation as `input` without `{ANCHOR}`, or start it again"


class ChainLost(Exception):  # noqa: N818 - says what happened, like StopIteration
    """The server's part of the history is gone and cannot be rebuilt from the kept entries."""

    def __init__(self, reason: str, calls: tuple[str, ...] = ()) -> None:
        super().__init__(f"{reason}; {_REMEDY}")
        self.calls = calls
        """Call ids of outputs without their call; "" for an output that names no call."""


MOST_ITEMS: Final = 4096
MOST_BYTES: Final = 16 * 1024 * 1024
"""The largest input of a turn that is kept and rebuilt: its items, and their bytes as JSON."""


def fits(items: list[Any]) -> bool:
    """Whether these items are within `MOST_ITEMS` and `MOST_BYTES`."""
    return len(items) <= MOST_ITEMS and len(_canonical(items).encode()) <= MOST_BYTES


def replayable(body: Body, history: list[Any] | None) -> list[Any]:
    """Return the full input of `body`: the history before it, then its own items.

    `history` is the input and output items before this request, None if unknown. If the input
    already repeats the history, or one of its calls, that is not doubled. Old calls that were never
    answered are dropped. Raises ValueError if the input is neither a string, an object nor an
    array.
    """
    current = as_items(body.get("input"))
    if not body.get(ANCHOR) or not history:
        return current
    if len(current) >= len(history) and _canonical(current[: len(history)]) == _canonical(history):
        return current
    before, now = (
        {_call_id(item) for item in items if kind_of(item) in OUTPUTS}
        for items in (history, current)
    )
    new_calls = {name for item in current if _is_call(item) for name in _names(item)}
    answered = before | (now - new_calls)
    history_items = [item for item in history if not _is_call(item) or _names(item) & answered]
    return _without_dangling(history_items) + current


def as_items(value: object) -> list[Any]:
    """Return the items of an `input`. Raises ValueError if it is not an input."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}] if value else []
    if is_map(value):
        return [value]
    if is_list(value):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    raise ValueError(f"input: a {type(value).__name__}; give a string, an object or an array")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _without_dangling(items: list[Any]) -> list[Any]:
    """Return the items. Reasoning stays only if an item of the model follows it."""
    result: list[Any] = []
    followed = False
    for item in reversed(items):
        if kind_of(item) != "reasoning":
            followed = _is_by_model(item)
        if followed or kind_of(item) != "reasoning":
            result.append(item)
    return result[::-1]


def _is_by_model(item: Any) -> bool:
    """Whether it is an item of the model: a message, a call, the output of a server tool."""
    kind = kind_of(item)
    if kind == "message":
        return as_map(item).get("role") == "assistant"
    return kind not in ("", "item_reference") and (kind not in OUTPUTS or _runs_on_server(item))


def _runs_on_server(item: Any) -> bool:
    return as_map(item).get("execution") == "server"


def _is_call(item: Any) -> bool:
    """Whether it is a call that the client answers."""
    return kind_of(item) in PAIRED_CALLS and not _runs_on_server(item)


def _call_id(item: Any) -> str:
    """Return the call id of an output, or the `id` of a local shell's; "" if there is none."""
    fields = as_map(item)
    shell = kind_of(item) == "local_shell_call_output"
    return as_text(fields.get("call_id") or (fields.get("id") if shell else ""))


def _names(item: Any) -> set[str]:
    """Return the ids by which an output may name this call."""
    keys = ("call_id", "id") if kind_of(item) == "local_shell_call" else ("call_id",)
    return {as_text(as_map(item).get(key)) for key in keys} - {""}


def uncovered(items: list[Any]) -> tuple[str, ...]:
    """Return the ids of missing calls that outputs name; "" for an output that names no call."""
    calls = {name for item in items if kind_of(item) in PAIRED_CALLS for name in _names(item)}
    outputs = (item for item in items if kind_of(item) in OUTPUTS and not _runs_on_server(item))
    return tuple(call for item in outputs if not (call := _call_id(item)) or call not in calls)


def references(items: list[Any]) -> tuple[str, ...]:
    """Return the ids of items that only refer to an item on the server, with or without a type."""
    maps = (as_map(item) for item in items)
    return tuple(
        str(item.get("id"))
        for item in maps
        if item.get("type") == "item_reference" or set(item) == {"id"}
    )


def replay(body: Body, history: list[Any] | None, *, base: str | None = None) -> dict[str, Any]:
    """Return the body with the full input and no anchor, for a server that has lost the chain.

    With `base`, the anchor moves back to that response, and `history` is what came after it. The
    server must not have any of that in the chain, or its calls would be there twice.

    Raises ChainLost if an output would be without its call, or if the input is too large. A turn is
    replayed once. If the server reports a second loss, the caller gets that error.
    """
    items = replayable(body, history)
    request = {**body, ANCHOR: base, "input": items}
    if base is None:
        if missing := uncovered(items):
            names = ", ".join(call or "(none)" for call in missing)
            reason = f"only the lost response has the calls of these outputs: {names}"
            raise ChainLost(reason, missing)
        if body.get(ANCHOR) and history is None:
            raise ChainLost("the earlier part of the conversation is unknown")
        del request[ANCHOR]
    if not fits(items):
        raise ChainLost(f"the history of {len(items)} items is too large to send again")
    return request


# -- which items ---------------------------------------------------------------------------------

_ID_OPTIONAL: Final = frozenset({"message", "function_call", "custom_tool_call"})
"""Kinds that need no id. A call is identified by its `call_id`."""


def carried(items: list[Any], *, stored: bool) -> list[Any]:
    """Return output items as input of another request, in a form that no server has to look up.

    A joined message is not the one that the server has under that id. So ids are removed, and with
    them reasoning without content of its own. Items that should have an id (a search, a shell call)
    keep it if no reasoning comes before them, or if the server has both (`stored`). Empty messages
    and incomplete calls are dropped.
    """
    result: list[Any] = []
    thoughts: list[Any] = []
    for item in items:
        if kind_of(item) == "reasoning":
            thoughts.append(item)
            continue
        if not _is_empty(item):
            keep = kind_of(item) not in _ID_OPTIONAL and (stored or not thoughts)
            if not (keep and _is_by_model(item)):
                thoughts = [_without_id(each) for each in thoughts if each.get("encrypted_content")]
            result += [*thoughts, item if keep else _without_id(item)]
        thoughts = []
    return _without_dangling(result)


def _without_id(item: Any) -> Any:
    return {key: value for key, value in as_map(item).items() if key != "id"}


def _is_empty(item: Any) -> bool:
    """Whether it is an assistant's message without content, or an incomplete call."""
    fields = as_map(item)
    if kind_of(item) == "message" and fields.get("role") == "assistant":
        content = fields.get("content")
        kinds = {as_map(part).get("type") for part in as_list(content)}
        return kinds <= {"output_text"} and blank(text_of(content))
    return _is_call(item) and fields.get("status") == "incomplete"
