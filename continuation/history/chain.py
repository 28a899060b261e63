"""Responses by `previous_response_id`: when a chain may be replayed in full, and when not.

A server that holds the history needs only what is new. If it has lost it, the whole input must be
sent instead, and that is possible only if every output in it finds its call: an output whose call
is known to the lost response alone cannot be replayed, and guessing would run a tool twice or
never. Then the chain is over, and saying so is the only honest answer.

Sources: OpenAI's pages on conversation state; the rules that public gateways arrived at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from continuation.history.openai_items import CALLS, OUTPUTS, kind_of
from continuation.history.tree import as_map, is_list, is_map
from continuation.history.types import Body

__all__ = [
    "ChainLost",
    "ReplayLimits",
    "anchor_reason",
    "infer_anchor",
    "realign",
    "replay",
    "replayable",
    "uncovered",
]

_ANCHOR: Final = "previous_response_id"


class ChainLost(Exception):  # noqa: N818 - says what happened, like StopIteration
    """The server's part of the history is gone and cannot be rebuilt from what we hold."""

    def __init__(self, why: str, calls: tuple[str, ...] = ()) -> None:
        super().__init__(f"{why}; start the conversation again")
        self.calls = calls
        """Ids of the calls whose outputs have no call, "" for an output without id."""


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """The largest input that is rebuilt, in bytes of JSON and in items."""

    size: int = 16 * 1024 * 1024
    items: int = 4096


def replayable(body: Body, history: list[Any] | None) -> list[Any]:
    """The full input that `body` means: what went before it, then what it brings.

    `history` is the input and output items before this request, None if unknown. Input that already
    repeats the history is not doubled, and old calls that were never answered are left out. Raises
    ValueError if the input is neither a string, an object nor an array.
    """
    current = _items(body.get("input"))
    if not body.get(_ANCHOR) or not history:
        return current
    if len(current) >= len(history) and _canon(current[: len(history)]) == _canon(history):
        return current
    return _answered_only(history, current) + current


def _items(given: object) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}] if given else []
    if is_map(given):
        return [given]
    if is_list(given):
        return list(given)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    msg = f"input: a {type(given).__name__}; give a string, an object or an array"
    raise ValueError(msg)


def _canon(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _answered_only(history: list[Any], current: list[Any]) -> list[Any]:
    answered = {_call_id(item) for item in [*history, *current] if kind_of(item) in OUTPUTS}
    kept = [item for item in history if kind_of(item) not in CALLS or _call_id(item) in answered]
    return [item for n, item in enumerate(kept) if not _dangles(kept, n)]


def _dangles(items: list[Any], n: int) -> bool:
    """Whether reasoning has lost the item it led to."""
    behind = (kind_of(item) for item in items[n:])
    after = next((kind for kind in behind if kind != "reasoning"), "")
    follows = n + 1 < len(items) and as_map(items[n + 1]).get("role") == "assistant"
    return kind_of(items[n]) == "reasoning" and after not in CALLS and not follows


def _call_id(item: Any) -> str:
    given = as_map(item)
    value = given.get("call_id") or given.get("id")
    return value if isinstance(value, str) else ""


def uncovered(items: list[Any]) -> tuple[str, ...]:
    """Call ids of outputs whose call is not among the items, "" for an output that names none."""
    calls = {_call_id(item) for item in items if kind_of(item) in CALLS}
    return tuple(
        call
        for item in items
        if kind_of(item) in OUTPUTS and as_map(item).get("execution") != "server"
        for call in [str(as_map(item).get("call_id") or "")]
        if not call or call not in calls
    )


def replay(
    body: Body, history: list[Any] | None, *, limits: ReplayLimits | None = None
) -> dict[str, Any]:
    """The body without its anchor, with the full input; for a server that has lost the chain.

    Raises ChainLost if an output would stand without its call, or if the input grows beyond
    `limits`. A caller replays once per turn: a second loss is the server's, and is reported.
    """
    limits = limits if limits is not None else ReplayLimits()
    items = replayable(body, history)
    missing = uncovered(items)
    if missing:
        named = ", ".join(call or "(none)" for call in missing)
        why = f"the lost response alone knows the calls of these outputs: {named}"
        raise ChainLost(why, missing)
    if body.get(_ANCHOR) and history is None:
        why = "nothing is known of what went before"
        raise ChainLost(why)
    if len(items) > limits.items or len(_canon(items).encode()) > limits.size:
        why = f"the history of {len(items)} items is too large to send again"
        raise ChainLost(why)
    return {**{key: value for key, value in body.items() if key != _ANCHOR}, "input": items}


# -- which anchor --------------------------------------------------------------------------------


def infer_anchor(body: Body, expected: str | None) -> Body:
    """Name the last response where outputs arrive without their calls and without an anchor.

    Only with `store: false`, where the connection holds the chain, and only if every output names
    its call. The same object comes back when there is nothing to infer.
    """
    items = _items(body.get("input"))
    outputs = [item for item in items if kind_of(item) in OUTPUTS]
    calls = [item for item in items if kind_of(item) in CALLS]
    if expected is None or body.get("store") is not False or body.get(_ANCHOR):
        return body
    if not outputs or calls or not all(as_map(item).get("call_id") for item in outputs):
        return body
    return {**body, _ANCHOR: expected}


def realign(body: Body, expected: str | None) -> Body:
    """Replace an anchor that is not the last response of this chain."""
    anchor = body.get(_ANCHOR)
    return {**body, _ANCHOR: expected} if anchor and expected and anchor != expected else body


def anchor_reason(body: Body, before: Body | None, last: str | None) -> str:
    """Why the anchor of a request must stay or may not: "incremental" is the one that is sound.

    `before` is the request that got the response `last`. Outputs always need their chain.
    """
    if any(kind_of(item) in OUTPUTS for item in _items(body.get("input"))):
        return "has_output"
    anchor = body.get(_ANCHOR)
    if not anchor or last is None:
        return "no_anchor" if not anchor else "no_last_response"
    if anchor != last:
        return "anchor_mismatch"
    if before is None:
        return "no_previous_request"
    apart = ("input", _ANCHOR)
    now, then = (_canon({k: v for k, v in b.items() if k not in apart}) for b in (body, before))
    return "incremental" if now == then else "other_fields_changed"
