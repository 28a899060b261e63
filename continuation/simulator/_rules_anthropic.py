"""What makes a Messages request body invalid by itself, whatever the model: one rule per refusal.

A rule takes the body and yields error texts. They are the provider's own, as quoted in public bug
reports, but for those of the body's mere form, which follow its manner. A rule may rely on the
rules before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

from ._anthropic_body import (
    THINKING,
    Json,
    Placed,
    Turn,
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


def first_error(body: Json) -> str | None:
    """Return the text of the first rule the body breaks."""
    return next(chain.from_iterable(rule(body) for rule in (*SHAPE, *RULES)), None)


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


def first_role(body: Json) -> Iterator[str]:
    if messages(body)[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'


# -- content


def no_empty_message(body: Json) -> Iterator[str]:
    last = len(messages(body)) - 1
    for number, message in enumerate(messages(body)):
        optional = number == last and message["role"] == "assistant"
        if not message["content"] and not optional:
            yield (
                f"messages.{number}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )


def no_blank_text(body: Json) -> Iterator[str]:
    yield from _blank("messages", (placed.block for _, placed in placed_blocks(body)))
    yield from _blank("system", system_blocks(body))


def _blank(where: str, found: Any) -> Iterator[str]:
    for block in found:
        if block.get("type") == "text" and not block.get("text"):
            yield f"{where}: text content blocks must be non-empty"
        elif block.get("type") == "text" and not str(block["text"]).strip():
            yield f"{where}: text content blocks must contain non-whitespace text"


def no_trailing_whitespace(body: Json) -> Iterator[str]:
    last = turns(body)[-1]
    text = str(last.blocks[-1].block.get("text", "")) if last.blocks else ""
    if last.role == "assistant" and text != text.rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


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


# -- tools


def tool_use_form(body: Json) -> Iterator[str]:
    for _, placed in placed_blocks(body):
        if placed.kind != "tool_use":
            continue
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", str(placed.block.get("id", ""))):
            yield f"{placed.path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not isinstance(placed.block.get("input"), dict):
            yield f"{placed.path}.tool_use.input: Input should be a valid dictionary"


def tools_declared(body: Json) -> Iterator[str]:
    used = any(placed.kind in ("tool_use", "tool_result") for _, placed in placed_blocks(body))
    if used and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools."


def unique_ids(body: Json) -> Iterator[str]:
    counts = Counter(str(p.block.get("id")) for _, p in placed_blocks(body) if p.kind == "tool_use")
    if any(count > 1 for count in counts.values()):
        yield "messages: `tool_use` ids must be unique"


def calls_answered(body: Json) -> Iterator[str]:
    """Want each call's result at the head of the next turn, and no text after a call in its own."""
    listed = turns(body)
    for turn, following in pairwise([*listed, Turn("user", len(listed), [])]):
        answered = {str(p.block.get("tool_use_id")) for p in _leading_results(following)}
        calls = turn.of("tool_use")
        buried = {str(p.block["id"]) for p in calls if _text_after(turn, p)}
        open_ids = [
            str(p.block["id"])
            for p in calls
            if str(p.block["id"]) in buried or p.block["id"] not in answered
        ]
        if open_ids:
            yield (
                f"messages.{calls[0].message}: `tool_use` ids were found without `tool_result` "
                f"blocks immediately after: {', '.join(open_ids)}. Each `tool_use` block must have "
                "a corresponding `tool_result` block in the next message."
            )


def _leading_results(turn: Turn) -> Iterator[Placed]:
    for placed in turn.blocks:
        if placed.kind != "tool_result":
            return
        yield placed


def _text_after(turn: Turn, call: Placed) -> bool:
    where = (call.message, call.place)
    return any((p.message, p.place) > where for p in turn.of("text"))


def results_have_calls(body: Json) -> Iterator[str]:
    listed = turns(body)
    for before, turn in pairwise([Turn("assistant", -1, []), *listed]):
        called = {str(p.block.get("id")) for p in before.of("tool_use")}
        for placed in turn.of("tool_result"):
            if str(placed.block.get("tool_use_id")) not in called:
                yield (
                    f"{placed.path}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{placed.block.get('tool_use_id')}. Each `tool_result` block must have a "
                    "corresponding `tool_use` block in the previous message."
                )


def one_result_each(body: Json) -> Iterator[str]:
    for turn in turns(body):
        counts: Counter[str] = Counter()
        for placed in turn.of("tool_result"):
            name = str(placed.block.get("tool_use_id"))
            counts[name] += 1
            if counts[name] > 1:
                yield (
                    f"{placed.path}: each tool_use must have a single result. "
                    f"Found multiple `tool_result` blocks with id: {name}"
                )


def server_tools_paired(body: Json) -> Iterator[str]:
    """Want a server tool's result in its own turn, unless that turn was paused.

    Paused is a turn that is the last one, or is followed by nothing but tool results.
    """
    listed = turns(body)
    for turn, following in pairwise(listed):
        results = {
            str(p.block.get("tool_use_id")) for p in turn.blocks if p.kind.endswith("_tool_result")
        }
        waiting = all(p.kind == "tool_result" for p in following.blocks)
        for placed in turn.of("server_tool_use"):
            name, key = placed.block.get("name"), str(placed.block.get("id"))
            if key not in results and not waiting:
                yield (
                    f"{placed.path}: `{name}` tool use with id `{key}` was found without a "
                    f"corresponding `{name}_tool_result` block"
                )


# -- thinking


def thinking_form(body: Json) -> Iterator[str]:
    for _, placed in placed_blocks(body):
        if placed.kind != "thinking":
            continue
        if placed.block.get("signature") is None:
            yield f"{placed.path}.thinking.signature: Field required"
        elif not placed.block["signature"]:
            empty = not placed.block.get("thinking")
            yield (
                f"{placed.path}.thinking: each thinking block must contain thinking"
                if empty
                else (f"{placed.path}: Invalid `signature` in `thinking` block")
            )


def thinking_first(body: Json) -> Iterator[str]:
    """Want thinking first in a turn that has any; a server tool's turn may begin without."""
    for turn in turns(body):
        first = turn.blocks[0].kind if turn.role == "assistant" and turn.blocks else ""
        if turn.of(*THINKING) and first not in THINKING and not turn.of("server_tool_use"):
            yield (
                f"{turn.blocks[0].path}.type: If an assistant message contains any thinking "
                "blocks, the first block must be `thinking` or `redacted_thinking`. "
                f"Found `{first}`."
            )


def thinking_not_last(body: Json) -> Iterator[str]:
    for turn in turns(body):
        if turn.blocks and turn.blocks[-1].kind in THINKING:
            yield (
                f"messages.{turn.message}: The final block in an assistant message "
                "cannot be `thinking`."
            )


def thinking_budget(body: Json) -> Iterator[str]:
    budget = thinking_tokens(body)
    if budget is not None and budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"


def thinking_tokens(body: Json) -> int | None:
    """Return the thinking budget of manual mode, if the request sets one."""
    thinking = mapping(body.get("thinking"))
    budget = thinking.get("budget_tokens")
    return budget if thinking.get("type") == "enabled" and isinstance(budget, int) else None


def thinking_opens_tool_turn(body: Json) -> Iterator[str]:
    """Want thinking first in the turn whose tool results are being sent (manual mode only)."""
    listed = turns(body)
    if (
        mapping(body.get("thinking")).get("type") != "enabled"
        or len(listed) < 2
        or not listed[-1].of("tool_result")
    ):
        return
    first = listed[-2].blocks[0]
    if first.kind not in THINKING:
        yield (
            f"{first.path}.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{first.kind}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` "
            "blocks). We recommend you include thinking blocks from previous turns. To avoid this "
            f"requirement, disable `thinking`. Please consult our documentation at {THINKING_DOCS}"
        )


SHAPE: tuple[Rule, ...] = (
    required_fields,
    field_types,
    message_list,
    message_forms,
    block_forms,
    roles,
    first_role,
)
RULES: tuple[Rule, ...] = (
    no_empty_message,
    no_blank_text,
    cache_breakpoints,
    thinking_budget,
    tool_use_form,
    tools_declared,
    unique_ids,
    thinking_first,
    thinking_not_last,
    thinking_form,
    calls_answered,
    results_have_calls,
    one_result_each,
    server_tools_paired,
    thinking_opens_tool_turn,
    no_trailing_whitespace,
)
