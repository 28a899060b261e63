"""Responses by `previous_response_id`: when a chain may be replayed in full, and when not.

A server that holds the history needs only what is new. If it has lost it, the whole input must be
sent instead, and that is possible only if every output in it finds its call: an output whose call
is known to the lost response alone cannot be replayed, and guessing would run a tool twice or
never. Then the chain is over, and saying so is the only honest answer.

Sources: OpenAI's pages on conversation state; the rules that public gateways arrived at.
"""

from __future__ import annotations

import json
from typing import Any, Final

from continuation.history.tree import blank, text_of
from continuation.history.types import Body
from continuation.wire.json_values import as_list, as_map, as_text, is_list, is_map
from continuation.wire.responses_items import OUTPUTS, PAIRED_CALLS, kind_of

ANCHOR: Final = "previous_response_id"
_REMEDY: Final = f"send the whole conversation as `input` without `{ANCHOR}`, or start it again"


class ChainLost(Exception):  # noqa: N818 - says what happened, like StopIteration
    """The server's part of the history is gone and cannot be rebuilt from what we hold."""

    def __init__(self, reason: str, calls: tuple[str, ...] = ()) -> None:
        super().__init__(f"{reason}; {_REMEDY}")
        self.calls = calls
        """Ids of the calls whose outputs have no call, "" for an output without id."""


MOST_ITEMS: Final = 4096
MOST_BYTES: Final = 16 * 1024 * 1024
"""The largest input that is kept of a turn, and rebuilt: items, and bytes of them as JSON."""


def fits(items: list[Any]) -> bool:
    """Whether these items are no more than is kept and sent again."""
    return len(items) <= MOST_ITEMS and len(_canonical(items).encode()) <= MOST_BYTES


def replayable(body: Body, history: list[Any] | None) -> list[Any]:
    """The full input that `body` means: what went before it, then what it brings.

    `history` is the input and output items before this request, None if unknown. Input that already
    repeats the history is not doubled, nor a call that it brings along; old calls that were never
    answered are left out. Raises ValueError if the input is neither a string, an object nor an
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
    """The items that an `input` means. Raises ValueError for what is no input at all."""
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
    """The items without reasoning that has lost the item it led to."""
    result: list[Any] = []
    followed = False
    for item in reversed(items):
        if kind_of(item) != "reasoning":
            followed = _is_by_model(item)
        if followed or kind_of(item) != "reasoning":
            result.append(item)
    return result[::-1]


def _is_by_model(item: Any) -> bool:
    """Whether the model made it: its message, its call, what a tool of the server's found."""
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
    """The call that an output answers; that of a local shell names it by `id`."""
    fields = as_map(item)
    shell = kind_of(item) == "local_shell_call_output"
    return as_text(fields.get("call_id") or (fields.get("id") if shell else ""))


def _names(item: Any) -> set[str]:
    """What an output may call this call."""
    keys = ("call_id", "id") if kind_of(item) == "local_shell_call" else ("call_id",)
    return {as_text(as_map(item).get(key)) for key in keys} - {""}


def uncovered(items: list[Any]) -> tuple[str, ...]:
    """Call ids of outputs whose call is not among the items, "" for an output that names none."""
    calls = {name for item in items if kind_of(item) in PAIRED_CALLS for name in _names(item)}
    outputs = (item for item in items if kind_of(item) in OUTPUTS and not _runs_on_server(item))
    return tuple(call for item in outputs if not (call := _call_id(item)) or call not in calls)


def references(items: list[Any]) -> tuple[str, ...]:
    """Ids of items that are only named, for the server to look up; the type may be left out."""
    maps = (as_map(item) for item in items)
    return tuple(
        str(item.get("id"))
        for item in maps
        if item.get("type") == "item_reference" or set(item) == {"id"}
    )


def replay(body: Body, history: list[Any] | None, *, base: str | None = None) -> dict[str, Any]:
    """The body without its anchor, with the full input; for a server that has lost the chain.

    With `base` the anchor is moved back to that response, and `history` is what came after it: the
    server must not hold any of it in that chain, or its calls would be there twice.

    Raises ChainLost if an output would stand without its call, or if the input is too large. A
    caller replays once per turn: a second loss is the server's, and is reported.
    """
    items = replayable(body, history)
    request = {**body, ANCHOR: base, "input": items}
    if base is None:
        if missing := uncovered(items):
            names = ", ".join(call or "(none)" for call in missing)
            reason = f"the lost response alone knows the calls of these outputs: {names}"
            raise ChainLost(reason, missing)
        if body.get(ANCHOR) and history is None:
            raise ChainLost("nothing is known of what went before")
        del request[ANCHOR]
    if not fits(items):
        raise ChainLost(f"the history of {len(items)} items is too large to send again")
    return request


# -- which items ---------------------------------------------------------------------------------

_ID_OPTIONAL: Final = frozenset({"message", "function_call", "custom_tool_call"})
"""Kinds whose id may be left out; a call is known by its `call_id`."""


def carried(items: list[Any], *, stored: bool) -> list[Any]:
    """Output items as input of another request, in a form that no server has to look up.

    A merged message is not the one that the server knows by that id, so ids go, and with them
    reasoning that has no content of its own. Items that should have an id (a search, a shell call)
    keep it as long as they keep the reasoning that the server knows before them; it does have both
    if this is `stored`. What was cut or says nothing is left out.
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
    """Whether it is an assistant's message without content, or a call that was cut."""
    fields = as_map(item)
    if kind_of(item) == "message" and fields.get("role") == "assistant":
        content = fields.get("content")
        kinds = {as_map(part).get("type") for part in as_list(content)}
        return kinds <= {"output_text"} and blank(text_of(content))
    return _is_call(item) and fields.get("status") == "incomplete"
