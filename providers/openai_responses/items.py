"""Converts an answer's output items to input items for requests, and to the caller's output."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from continuation.types import Json
from continuation.wire.blocks import REFUSAL, TEXT, THINKING, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_key, as_list, as_text, breaks_off
from continuation.wire.responses_items import CALLS, is_call

PARTS: Final = frozenset({TEXT, REFUSAL})
"""The kinds of blocks that are a part of a message item. Every other block is an item."""
REASONING: Final = "thinking"

TYPED: Final = {kind: call.text for kind, call in CALLS.items() if call.text}
"""The types of calls with arguments as text -> the field with the text."""
LIVE: Final = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call"),
        *("image_generation_call", "mcp_call"),
    }
)
"""The items that the provider runs itself, with events for their progress and a final status."""
SERVER_ITEMS: Final = LIVE | {
    *("mcp_list_tools", "tool_search_call", "tool_search_output", "shell_call_output"),
    *("program", "program_output", "compaction"),
}
"""All items that the provider runs itself. An answer with them is kept and can be continued."""
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
"""The types of items that may have any id, because servers read their content -> the prefix of new
ids."""
ALONE: Final = frozenset({"web_search_call", "compaction"})
"""The items of the provider that a request may have without an id. A program needs its id."""
RESENT: Final = PARTS | THINKING | ALONE
JOINED: Final = "resp_joined_"
"""The beginning of the id of a response that no server has, because it joins several answers."""


def kind_of(item: Json) -> str:
    """Return the kind of an item's block. Parts of a message have blocks of other kinds."""
    kind = as_text(item.get("type"))
    return REASONING if kind == "reasoning" else TOOL_CALL if is_call(item) else kind


def at_start(item: Json) -> Json:
    """Return an item in the form of its `added` event: in progress, without text and arguments."""
    grown = ("content", "summary", *TYPED.values())
    begun = {key: type(value)() if key in grown and value else value for key, value in item.items()}
    begun.pop("encrypted_content", None)
    if "status" in begun:
        begun["status"] = "in_progress"
    return begun


def renamed(item: Json, *, used: bool) -> Json:
    """Return the item with a new id, unless it needs its own id.

    `used`: another item of the answer has its id, so it gets a new one in any case.
    """
    prefix = _PREFIXES.get(as_text(item.get("type")))
    if used and not prefix:
        prefix = as_text(item.get("id")).partition("_")[0]
    return {**item, "id": f"{prefix}_{uuid.uuid4().hex}"} if prefix else item


def half(item: Json) -> bool:
    """Whether an item is a truncated function call."""
    if item.get("type") != "function_call":
        return False
    return item.get("status") == "incomplete" or breaks_off(as_text(item.get("arguments")))


def held_as(response: Json, output: Sequence[object]) -> str:
    """Return the id under which the server has stored this output; `""`: it has not stored it.

    `response`: the server's response. The outputs may differ in the status of items.
    """
    own = [{**as_json(item), "status": None} for item in as_list(response.get("output"))]
    same = own == [{**as_json(item), "status": None} for item in output]
    stored = response.get("store") is not False and response.get("status") != "failed"
    return as_text(response.get("id")) if same and stored else ""


def joined_id() -> str:
    """Return an id for a response that no server has. Servers refuse requests that continue it."""
    return JOINED + uuid.uuid4().hex


# --- as input of a later request ----------------------------------------------------------------


def replayed(block: Block) -> Json:
    """Return a block as an input item. It has no id, which a server would have to look up."""
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


# --- as output for the caller -------------------------------------------------------------------


def final(block: Block) -> Json:
    """Return a block's item as its attempt last sent it, or as it was announced."""
    items = [as_json(delta["item"]) for delta in block.deltas if "item" in delta]
    return items[-1] if items else as_json(block.start.get("item"))


def final_part(block: Block) -> Json:
    """Return a part of a message with the text that the caller gets."""
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
    """Return a delta's annotation with positions in the turn's text, not in the attempt's."""
    by, annotation = as_int(delta.get("by")) or 0, as_json(delta.get("annotation"))
    places = {key: as_int(annotation.get(key)) for key in ("start_index", "end_index")}
    return {**annotation, **{key: at + by for key, at in places.items() if at is not None}}


def written(blocks: Sequence[Block], *, ended: bool) -> list[Json]:
    """Return blocks as a list of output items. `ended`: the answer ended, so none is truncated."""
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
            item = (
                {**item, "status": "completed"} if as_key(item.get("status")) in _UNSURE else item
            )
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
    # The server's final item is used if it has our text and all of our annotations.
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
    if as_key(item.get("status")) in _UNSURE or broken:
        # A truncated call that the policy delivered live is never marked as completed, even if the
        # answer is.
        announced = any("item" in delta for delta in block.deltas)
        whole = announced and item.get("status") == "in_progress"
        if item.get("type") == "function_call" and block.arguments.strip():
            whole = not broken
        # Some items that the provider runs itself cannot be "incomplete". All can be "failed".
        fell = "failed" if block.kind in LIVE and not announced else "incomplete"
        item["status"] = "completed" if whole else fell
    return item
