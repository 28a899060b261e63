"""What makes a Messages request body invalid by itself: its form, its counts and its history.

A rule takes the body and yields error texts. They are the provider's own, as quoted in public bug
reports, but for those of the body's mere form, which follow its manner. A rule may rely on the
rules before it. What makes a history invalid is told by `continuation.history.validate`, so that a
repair is tested against the very rules it is made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from continuation.history import Facts, Violation, validate
from continuation.simulator.anthropic.body import (
    THINKING,
    Json,
    blocks,
    items,
    mapping,
    messages,
    objects,
    placed_blocks,
    system_blocks,
    turns,
)

Rule = Callable[[Json], Iterator[str]]
THINKING_DOCS = "https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking"
MAX_MESSAGES = 100_000
MAX_BREAKPOINTS = 4
_OWNERS = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "server_tool_use": "assistant",
    "tool_result": "user",
}


_ORDER = (
    "first_not_user",
    "message_empty",
    "text_empty",
    "text_blank",
    "result_text_empty",
    "system_text_empty",
    "tool_use_id_invalid",
    "tool_input_invalid",
    "tools_undeclared",
    "tool_use_duplicate_id",
    "thinking_not_first",
    "thinking_last",
    "thinking_unsigned",
    "thinking_blank",
    "thinking_redacted_invalid",
    "thinking_foreign",
    "thinking_modified",
    "tool_use_not_last",
    "tool_result_missing",
    "tool_result_not_first",
    "tool_results_split",
    "tool_result_displaced",
    "tool_result_orphan",
    "tool_result_duplicate",
    "server_result_missing",
    "server_result_orphan",
    "thinking_missing",
    "trailing_whitespace",
)


def first_error(body: Json, facts: Facts | None = None) -> str | None:
    """Return the text of the first rule the body breaks; `facts` tell what its model can do."""
    by_rules = chain.from_iterable(rule(body) for rule in (*SHAPE, *RULES))
    return next(chain(by_rules, history_errors(body, facts)), None)


def shape_error(body: Json) -> str | None:
    """Return what is wrong with the form of the body, before its meaning is looked at."""
    return next(chain.from_iterable(rule(body) for rule in SHAPE), None)


# -- form


def required_fields(body: Json) -> Iterator[str]:
    for name in ("model", "messages", "max_tokens"):
        if body.get(name) is None:
            yield f"{name}: Field required"


def field_types(body: Json) -> Iterator[str]:
    limit = body["max_tokens"]
    if not isinstance(body["model"], str):
        yield "model: Input should be a valid string"
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield "max_tokens: Input should be a valid integer"
    elif limit < 0:
        yield "max_tokens: Input should be greater than or equal to 0"


def message_list(body: Json) -> Iterator[str]:
    listed = items(body["messages"])
    if not isinstance(body["messages"], list):
        yield "messages: Input should be a valid list"
    elif not listed:
        yield "messages: at least one message is required"
    elif len(listed) > MAX_MESSAGES:
        yield (
            f"messages: List should have at most {MAX_MESSAGES} items after validation, "
            f"not {len(listed)}"
        )


def message_forms(body: Json) -> Iterator[str]:
    for number, message in enumerate(items(body["messages"])):
        if not isinstance(message, dict):
            yield (
                f"messages.{number}: Input should be a valid dictionary "
                "or object to extract fields from"
            )
            return
        yield from _message_form(number, mapping(message))


def _message_form(number: int, message: Json) -> Iterator[str]:
    for name in ("role", "content"):
        if message.get(name) is None:
            yield f"messages.{number}.{name}: Field required"
            return
    content: Any = message["content"]
    if not isinstance(content, str | list):
        yield f"messages.{number}.content: Input should be a valid list"
    elif len(objects(content)) != len(items(content)):
        yield f"messages.{number}.content: Input should be a valid list of content blocks"
    for place, block in enumerate(blocks(content)):
        if not isinstance(block.get("type"), str):
            yield f"messages.{number}.content.{place}.type: Field required"


def block_forms(body: Json) -> Iterator[str]:
    """Want a text in text blocks, and each kind of block with those who may write it."""
    for role, placed in placed_blocks(body):
        if placed.kind == "text" and "text" not in placed.block:
            yield f"{placed.path}.text.text: Field required"
        elif placed.kind == "text" and not isinstance(placed.block["text"], str):
            yield f"{placed.path}.text.text: Input should be a valid string"
        owner = _OWNERS.get(placed.kind, role)
        if owner != role:
            yield f"{placed.path}: `{placed.kind}` blocks can only be in `{owner}` messages"


def roles(body: Json) -> Iterator[str]:
    """Refuse strange roles; a `system` message may follow a user turn (since 2026)."""
    before = ""
    for message in messages(body):
        role = message["role"]
        if role == "system" and before != "user":
            yield (
                'messages: Unexpected role "system". The Messages API accepts a top-level '
                '`system` parameter, not "system" as an input message role.'
            )
        if role not in ("user", "assistant", "system"):
            yield f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant".'
        before = str(role)


# -- counts


def cache_breakpoints(body: Json) -> Iterator[str]:
    """Allow four; the automatic one at the top level counts, and thinking takes none."""
    count = int(bool(body.get("cache_control")))
    tools = objects(body.get("tools"))
    for block in (
        *tools,
        *system_blocks(body),
        *(placed.block for _, placed in placed_blocks(body)),
    ):
        count += bool(block.get("cache_control"))
    if count > MAX_BREAKPOINTS:
        yield (
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. "
            f"Found {count}."
        )
    for _, placed in placed_blocks(body):
        if placed.kind in THINKING and placed.block.get("cache_control"):
            yield f"{placed.path}.{placed.kind}.cache_control: Extra inputs are not permitted"


# -- thinking


def thinking_budget(body: Json) -> Iterator[str]:
    budget = thinking_tokens(body)
    if budget is not None and budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"


def thinking_tokens(body: Json) -> int | None:
    """Return the thinking budget of manual mode, if the request sets one."""
    thinking = mapping(body.get("thinking"))
    budget = thinking.get("budget_tokens")
    return budget if thinking.get("type") == "enabled" and isinstance(budget, int) else None


def signature_given(body: Json) -> Iterator[str]:
    for _, placed in placed_blocks(body):
        if placed.kind == "thinking" and placed.block.get("signature") is None:
            yield f"{placed.path}.thinking.signature: Field required"


def thinking_first(body: Json) -> Iterator[str]:
    """Want thinking first in a turn that has any; a server tool's turn may begin without.

    Stricter than `validate`, which allows models that think in between to begin with text.
    """
    for turn in turns(body):
        first = turn.blocks[0].kind if turn.role == "assistant" and turn.blocks else ""
        if turn.of(*THINKING) and first not in THINKING and not turn.of("server_tool_use"):
            yield (
                f"{turn.blocks[0].path}.type: If an assistant message contains any thinking "
                "blocks, the first block must be `thinking` or `redacted_thinking`. "
                f"Found `{first}`."
            )


# -- history


def history_errors(body: Json, facts: Facts | None) -> Iterator[str]:
    """Yield what is wrong with the conversation; it is about to be answered, so no call is live."""
    found = validate(body, "anthropic", facts=facts, live=False)
    for violation in sorted(found, key=_rank):
        yield violation.message


def _rank(violation: Violation) -> tuple[int, list[int]]:
    """Of several faults, the provider names the one it looks for first, then the foremost."""
    code = violation.code
    rank = _ORDER.index(code) if code in _ORDER else len(_ORDER)
    return rank, [int(number) for number in re.findall(r"\d+", violation.path)]


SHAPE: tuple[Rule, ...] = (
    required_fields,
    field_types,
    message_list,
    message_forms,
    block_forms,
    roles,
)
RULES: tuple[Rule, ...] = (
    cache_breakpoints,
    thinking_budget,
    signature_given,
    thinking_first,
)
