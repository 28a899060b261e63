"""Reads a Messages request: its turns, its thinking settings, its size in tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from continuation.limits import ModelLimits
from continuation.simulator.format import Context
from continuation.simulator.model import tokens
from continuation.simulator.wire import Json, Recorded
from continuation.wire.json_values import is_list, is_map, mapping, objects

THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class Placed:
    """A content block, its kind, and its path in the request: `messages.{n}.content.{n}`."""

    path: str
    kind: str
    block: Json


@dataclass(frozen=True)
class RoleTurn:
    """A turn: one or more adjacent messages of one role. The API merges them."""

    role: str
    message: int
    blocks: list[Placed]

    def of(self, *kinds: str) -> list[Placed]:
        return [placed for placed in self.blocks if placed.kind in kinds]


class AnthropicContext(Context):
    """A Messages request, and what its model can do.

    `requested`: the output limit in the request, of any type. `thinking`: the kind of thinking that
    the request names (enabled, adaptive, between_tools, disabled), or None. `budget`: the budget of
    manual mode in tokens.
    """

    def __init__(self, request: Recorded, model: ModelLimits, known: bool) -> None:
        super().__init__(request, model, known)
        self.requested: Any = self.body.get("max_tokens")
        self.turns = turns(self.body)
        betas = request.headers.get("anthropic-beta", "")
        self.betas = [name.strip() for name in betas.split(",")]
        thinking = mapping(self.body.get("thinking"))
        kind, budget = thinking.get("type"), thinking.get("budget_tokens")
        self.thinking = None if kind is None else str(kind)
        self.budget = budget if kind == "enabled" and isinstance(budget, int) else None
        # If the request does not mention thinking, adaptive models think.
        self.thinks = model.thinking in ("adaptive", "always")
        if self.thinking is not None:
            self.thinks = kind != "disabled" and model.thinking != "none"


def blocks(content: Any) -> list[Json]:
    """Return content as a list of blocks. A text is one text block; an empty text is no block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return objects(content)


def messages(body: Json) -> list[Json]:
    return objects(body.get("messages"))


def turns(body: Json) -> list[RoleTurn]:
    """Return user and assistant turns. Adjacent messages of one role are one turn."""
    merged_turns: list[RoleTurn] = []
    for number, message in enumerate(messages(body)):
        role = str(message.get("role"))
        if role == "system":
            continue
        if not merged_turns or merged_turns[-1].role != role:
            merged_turns.append(RoleTurn(role, number, []))
        for index, block in enumerate(blocks(message.get("content"))):
            path = f"messages.{number}.content.{index}"
            merged_turns[-1].blocks.append(Placed(path, str(block.get("type")), block))
    return merged_turns


def without(value: Any, *names: str) -> Any:
    """Return a copy of JSON without the named keys and without nulls, at every depth."""
    if is_map(value):
        pairs = ((k, v) for k, v in value.items() if k not in names and v is not None)
        return {key: without(item, *names) for key, item in pairs}
    if is_list(value):
        return [without(item, *names) for item in value]
    return value


# -- what it costs


def input_tokens(body: Json) -> int:
    """Return the input tokens of system, tools and messages: their JSON, four characters each."""
    heads = [[None, block] for block in (*objects(body.get("tools")), *blocks(body.get("system")))]
    body_blocks = (
        [message.get("role"), block]
        for message in messages(body)
        for block in blocks(message.get("content"))
    )
    shown = without([*heads, *body_blocks], "cache_control")
    return sum(tokens(json.dumps(part, sort_keys=True, ensure_ascii=False)) for part in shown)
