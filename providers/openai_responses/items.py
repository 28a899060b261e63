"""Output items of a Responses answer: what of one may be sent again, how it is written."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block
from continuation.types import Json
from continuation.wire.json_values import as_int, as_json, as_list, as_text, breaks_off
from continuation.wire.responses_items import CALLS, is_call

REFUSAL: Final = "refusal"
PARTS: Final = frozenset({TEXT, REFUSAL})
"""Blocks that are a part of a message item; every other block is an item."""
REASONING: Final = "thinking"

TYPED: Final = {kind: call.text for kind, call in CALLS.items() if call.text}
"""Calls whose arguments come as text, and the field that holds it."""
LIVE: Final = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call"),
        *("image_generation_call", "mcp_call"),
    }
)
"""What the provider runs itself and tells how it goes on, and in the end how it went: a status."""
SERVER_ITEMS: Final = LIVE | {
    *("mcp_list_tools", "tool_search_call", "tool_search_output", "shell_call_output"),
    *("program", "program_output", "compaction"),
}
"""All that it runs itself; it is kept, and an answer with it can be gone on from."""
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
"""Kinds of items that are known by what they hold, so that they may have any id."""
ALONE: Final = frozenset({"web_search_call", "compaction"})
"""Items of the provider's that any server can read, under no id. A program needs its own."""
RESENT: Final = PARTS | THINKING | ALONE


def kind_of(item: Json) -> str:
    """Return the kind of block that an item is; a message's parts are blocks of their own."""
    kind = as_text(item.get("type"))
    return REASONING if kind == "reasoning" else TOOL_CALL if is_call(item) else kind


def at_start(item: Json) -> Json:
    """Return an item as it is announced, before anything of it was said."""
    grown = ("content", "summary", *TYPED.values())
    begun = {key: type(value)() if key in grown and value else value for key, value in item.items()}
    begun.pop("encrypted_content", None)
    if "status" in begun:
        begun["status"] = "in_progress"
    return begun


def renamed(item: Json, *, used: bool) -> Json:
    """Return the item under an id that no server knows, but for one that needs its own.

    No id stands twice in an answer: one that is `used` never stays.
    """
    prefix = _PREFIXES.get(as_text(item.get("type")))
    if used and not prefix:
        prefix = as_text(item.get("id")).partition("_")[0]
    return {**item, "id": f"{prefix}_{uuid.uuid4().hex}"} if prefix else item


def half(item: Json) -> bool:
    """Whether an item is a call that was cut."""
    if item.get("type") != "function_call":
        return False
    return item.get("status") == "incomplete" or breaks_off(as_text(item.get("arguments")))


# --- as a later request carries them ------------------------------------------------------------


def replayed(block: Block) -> Json:
    """Return a block as input of another request, in a form that no server has to look up."""
    if block.kind in PARTS:
        content: object = block.text
        if block.kind == REFUSAL:
            content = [{"type": REFUSAL, REFUSAL: as_text(final_part(block).get(REFUSAL))}]
        phase = {"phase": block.phase} if block.phase else {}
        return {"type": "message", "role": "assistant", "content": content, **phase}
    item = final(block)
    if block.kind == REASONING:
        kept = ("type", "summary", "encrypted_content")
        return {"summary": [], **{key: item[key] for key in kept if key in item}}
    return {key: value for key, value in item.items() if key not in {"id", "status", "created_by"}}


# --- as the caller gets them --------------------------------------------------------------------


def final(block: Block) -> Json:
    """Return the item of a block as its attempt told it last, or as it began."""
    items = [as_json(delta["item"]) for delta in block.deltas if "item" in delta]
    return items[-1] if items else as_json(block.start.get("item"))


def final_part(block: Block) -> Json:
    """Return a part of a message with the text that the caller has."""
    parts = [as_json(delta["part"]) for delta in block.deltas if "part" in delta]
    part = {**as_json(block.start.get("part")), **(parts[-1] if parts else {})}
    if block.kind == REFUSAL and not parts:
        events = (as_json(delta.get("event")) for delta in block.deltas)
        part[REFUSAL] = "".join(as_text(event.get("delta")) for event in events)
    if block.kind != TEXT:
        return part
    annotations = [placed(delta) for delta in block.deltas if delta.get("type") == "annotation"]
    if parts and as_text(part.get("text")) == block.text and len(annotations) in {0, _noted(part)}:
        return part
    part = {"type": "output_text", **part, "text": block.text, "annotations": annotations}
    if "logprobs" in part:
        part["logprobs"] = [entry for d in block.deltas for entry in as_list(d.get("logprobs"))]
    return part


def _noted(part: Json) -> int:
    return len(as_list(part.get("annotations")))


def placed(delta: Json) -> Json:
    """Return the annotation of a delta; its place is the delta's, which moves with the text."""
    by, annotation = as_int(delta.get("by")) or 0, as_json(delta.get("annotation"))
    places = {key: as_int(annotation.get(key)) for key in ("start_index", "end_index")}
    return {**annotation, **{key: at + by for key, at in places.items() if at is not None}}


def written(blocks: Sequence[Block], *, ended: bool) -> list[Json]:
    """Return the output that blocks make. `ended`: none of them was cut."""
    groups, output = list[list[Block]](), list[Json]()  # the blocks of each item
    for block in blocks:
        if groups and block.kind in PARTS and same_item(groups[-1][0], block):
            groups[-1].append(block)
        else:
            groups.append([block])
    for group in groups:
        if group[0].kind not in PARTS:
            output.append(_item(group[0]))
            continue
        item = _message(group)
        if ended or group[-1] is not blocks[-1]:
            item = {**item, "status": "completed"} if item.get("status") in _UNSURE else item
        elif item.get("status") == "in_progress":
            item = {**item, "status": "incomplete"}
        output.append(item)
    return output


_UNSURE = frozenset({"in_progress", "incomplete"})


def same_item(first: Block, second: Block) -> bool:
    """Whether two blocks are parts of one message."""
    item = first.start.get("item")
    return item is not None and item is second.start.get("item")


def _message(group: Sequence[Block]) -> Json:
    began = as_json(group[0].start.get("item"))
    last = final(group[-1])
    built = [final_part(block) for block in group]
    sent = [as_json(part) for part in as_list(last.get("content"))]
    # The last word on it stands if it says the same, and nothing that annotates ours is missing.
    if len(built) == len(sent) and all(
        as_text(own.get("text")) == as_text(part.get("text"))
        and as_text(own.get(REFUSAL)) == as_text(part.get(REFUSAL))
        and _noted(own) in {0, _noted(part)}
        for own, part in zip(built, sent, strict=True)
    ):
        return {**last, "id": began.get("id")}
    status = last.get("status", began.get("status"))
    return {**began, "status": status, "content": built}


def _item(block: Block) -> Json:
    item = {**final(block), "id": as_json(block.start.get("item")).get("id")}
    field = TYPED.get(as_text(item.get("type")))
    if field is not None:
        item[field] = block.arguments
    broken = item.get("type") == "function_call" and breaks_off(block.arguments)
    if item.get("status") in _UNSURE or broken:
        # It is not said to be whole, whatever becomes of the answer: what policy has shown of a
        # call that was cut never is.
        announced = any("item" in delta for delta in block.deltas)
        whole = announced and item.get("status") == "in_progress"
        if item.get("type") == "function_call" and block.arguments.strip():
            whole = not broken
        # Of what the provider runs itself not every kind can be incomplete; all can fail.
        fell = "failed" if block.kind in LIVE and not announced else "incomplete"
        item["status"] = "completed" if whole else fell
    return item
