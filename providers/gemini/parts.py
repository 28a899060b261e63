"""The parts of a Gemini answer: which kind of block each is, and how blocks become parts again.

A part under a signature, or with any field but its text, is kept as it came (`part` in the block's
beginning). Everything else is plain text, visible or thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block
from continuation.types import Json
from continuation.wire.json_values import as_json, as_text

SIGNATURE = "signature"
"""A signature that stands beside no text: an empty text under one, or the signature alone."""
RESULTS = {"executableCode": "codeExecutionResult", "toolCall": "toolResponse"}
"""What the provider runs itself -> what came of it."""
IMAGE = "inlineData"
"""What code that the provider ran has drawn; a chat sends it back as it came."""
KNOWN = frozenset({TEXT, TOOL_CALL, SIGNATURE, IMAGE, *RESULTS, *RESULTS.values()}) | THINKING
_BESIDE = frozenset({"thought", "thoughtSignature", "partMetadata"})
_THOUGHT = "thinking"


def kind_of(part: Json) -> str:
    """Return the kind of block that a part is."""
    text = part.get("text")
    if isinstance(text, str):
        if not text and part.get("thoughtSignature"):
            return SIGNATURE
        return _THOUGHT if part.get("thought") else TEXT
    if isinstance(part.get("functionCall"), dict):
        return TOOL_CALL
    return next((key for key in part if key not in _BESIDE), SIGNATURE)


def plain(part: Json) -> bool:
    """Whether a part is nothing but text, which other text can be joined to."""
    return isinstance(part.get("text"), str) and part.keys() <= {"text", "thought"}


def block_of(part: Json) -> Json:
    """Return the beginning of the block that a part is; plain text comes as deltas."""
    kind = kind_of(part)
    if plain(part):
        return {"type": kind, "text": ""} if kind == TEXT else {"type": kind}
    block: Json = {"type": kind, "part": part}
    if kind == TOOL_CALL:
        call = as_json(part["functionCall"])
        block |= {"name": as_text(call.get("name")), "input": call.get("args") or {}}
    return block


def part_of(block: Block) -> Json:
    """Return a block as one part."""
    if "part" in block.start:
        return as_json(block.start["part"])
    if block.kind in THINKING:
        return {"text": block.pieces("thinking_delta", "thinking"), "thought": True}
    return {"text": block.text}


def joined(parts: Iterable[Json]) -> list[Json]:
    """Join plain texts that stand side by side, and leave out empty ones."""
    found: list[Json] = []
    for part in parts:
        last = found[-1] if found else {}
        if plain(part) and not part["text"]:
            continue
        if plain(part) and plain(last) and bool(part.get("thought")) == bool(last.get("thought")):
            text = as_text(last["text"]) + as_text(part["text"])
            found[-1] = {**last, "text": text}
        else:
            found.append(part)
    return found


def merged(blocks: Sequence[Block]) -> list[Json]:
    """Return the parts of an answer in one piece, without a call of which nothing arrived."""
    return joined(part_of(b) for b in blocks if b.kind != TOOL_CALL or "part" in b.start)


def spoken(parts: Iterable[Json]) -> list[Json]:
    """Return what of an answer a later request may carry when no call of it has been run.

    Thoughts only under a signature: without one they are a summary, no part of the model's turn.
    """
    kept = joined(
        part
        for part in parts
        if "functionCall" not in part and (part.get("thoughtSignature") or not part.get("thought"))
    )
    return kept if any(not plain(part) or as_text(part["text"]).strip() for part in kept) else []
