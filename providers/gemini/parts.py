"""The parts of a Gemini answer: which kind of block each is, and how blocks become parts again.

A part under a signature, or with any field but its text, is kept as it came (`part` in the block's
beginning). Everything else is plain text, visible or thought.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from continuation.answer.blocks import TEXT, THINKING, TOOL_CALL, Block
from continuation.types import Json
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads

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
    block: Json = {"type": kind, "part": part, "awaits": RESULTS.get(kind)}
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


_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[(\"(?:[^\"\\]|\\.)*\")\]")
"""One step of a path into the arguments of a call: a member or an element."""
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_NAME = re.compile(r"[^\W\d]\w*")


def put_together(call: Block) -> tuple[Json, bool] | None:
    """Return the arguments that came in pieces, and whether the last breaks off inside a string.

    What a piece went on in stands last. `None`: a piece is of a kind that is not known.
    """
    whole: Any = loads(dumps(call.start.get("input") or {}))
    before: object = None
    """The path that the next piece may go on in."""
    steps, text = list[str | int](), list[str]()
    """Where the last value was put, and what follows it there: joined once, however many come."""
    for delta in call.deltas:
        function_call = as_json(as_json(delta.get("part")).get("functionCall"))
        for piece in map(as_json, as_list(function_call.get("partialArgs"))):
            path = as_text(piece.get("jsonPath"))
            kind = next((name for name in _VALUES if name in piece), "")
            value = None if kind == "nullValue" else piece.get(kind)
            if kind and path == before:
                text.append(str(value))
            else:
                found = list(_STEP.finditer(path))
                if not (found and kind and path == "$" + "".join(step[0] for step in found)):
                    return None
                _append(whole, steps, text)
                steps, text = list(map(_step, found)), []
                if not _put(whole, steps, value):
                    return None
            before = path if piece.get("willContinue") and isinstance(value, str) else None
    _append(whole, steps, text)
    return whole, before is not None


def _step(found: re.Match[str]) -> str | int:
    member, element, quoted, text = found.groups()
    if element is not None:
        return int(element)
    if text is not None:
        return str(loads(text))
    return member if member is not None else re.sub(r"\\(.)", r"\1", quoted)


def _append(node: Any, steps: Sequence[str | int], text: Sequence[str]) -> None:
    """Add text to the value where the steps lead."""
    for step in steps[:-1] if text else ():
        node = node[step]
    if text:
        node[steps[-1]] = "".join((node[steps[-1]], *text))


def _put(node: Any, steps: Sequence[str | int], value: Any) -> bool:
    """Put a value where the steps lead; `False`: they lead nowhere."""
    for step, more in zip(steps, (*steps[1:], None), strict=True):
        empty: Any = value if more is None else [] if isinstance(more, int) else {}
        if isinstance(node, list) and isinstance(step, int) and step in {len(node) - 1, len(node)}:
            node[step:] = node[step:] or [empty]
        elif isinstance(node, dict) and isinstance(step, str):
            node[step] = node.pop(step, empty)
        else:
            return False
        if more is None:
            node[step] = value
        node = node[step]
    return True


def pieces(whole: Any, had: Any, path: str = "$") -> Iterator[Json]:
    """Yield the pieces that arguments have beyond those that came."""
    if isinstance(whole, (dict, list)):
        known = dict(_items(had))
        for key, value in _items(whole):
            named = f".{key}" if _NAME.fullmatch(str(key)) else f"[{key!r}]"
            yield from pieces(value, known.get(key), path + named)
    elif isinstance(whole, str) and isinstance(had, str) and whole.startswith(had):
        if whole != had:
            yield {"jsonPath": path, "stringValue": whole[len(had) :]}
    elif whole != had or had is None:
        kinds = {str: "stringValue", bool: "boolValue", type(None): "nullValue"}
        kind = kinds.get(type(whole), "numberValue")
        yield {"jsonPath": path, kind: "NULL_VALUE" if whole is None else whole}


def _items(node: object) -> Iterable[tuple[str | int, Any]]:
    return as_json(node).items() if isinstance(node, dict) else enumerate(as_list(node))


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


# --- what stands beside the content --------------------------------------------------------------
#
# Grounding, citations, ratings of several attempts, as one. Places in it speak of one attempt's own
# text and lists. In the merged answer that text stands behind what came before it.

Place = tuple[int, int]
"""Number of a part, and bytes of text that stand before in it."""


class Shift:
    """How the places of one attempt move: of `own`, its parts, in `turn`, those of the turn so far.

    `before` is what stood beside the attempts before it. The attempt's text ends where the turn's
    text ends, so its parts are counted from there.
    """

    def __init__(self, own: Sequence[Json], turn: Sequence[Json], before: Iterable[Json]) -> None:
        self._own, self._turn = _texts(own), _texts(turn)
        grounding = (as_json(item.get("groundingMetadata")) for item in before)
        self._chunks = sum(len(as_list(meta.get("groundingChunks"))) for meta in grounding)
        """Grounding chunks of earlier attempts."""
        before_it = sum(size for _, size in self._turn) - sum(size for _, size in self._own)
        self._bytes = max(0, before_it)
        """Bytes of visible text before the attempt's own."""

    def _place(self, part: int) -> Place:
        """Return where a part of the attempt is in the merged answer."""
        rank = sum(1 for number, _ in self._own if number < part)
        at = len(self._turn) - len(self._own) + rank
        if rank >= len(self._own) or not 0 <= at < len(self._turn):
            return part, 0
        return self._turn[at][0], max(0, self._turn[at][1] - self._own[rank][1])

    def moved(self, beside: Json) -> Json:
        """Return what stood beside the attempt with its places in the merged answer."""
        found = dict(beside)
        if grounding := as_json(beside.get("groundingMetadata")):
            listed = as_list(grounding.get("groundingSupports"))
            supports = [self._support(as_json(support)) for support in listed]
            found["groundingMetadata"] = {**grounding, "groundingSupports": supports}
        if cited := as_json(beside.get("citationMetadata")):
            found["citationMetadata"] = {
                key: [_span(as_json(item), self._bytes) for item in as_list(value)]
                if key in {"citationSources", "citations"}
                else value
                for key, value in cited.items()
            }
        return found

    def _support(self, support: Json) -> Json:
        found = dict(support)
        if indices := as_list(support.get("groundingChunkIndices")):
            moved = [i + self._chunks for i in indices if isinstance(i, int)]
            found["groundingChunkIndices"] = moved
        if segment := as_json(support.get("segment")):
            part, size = self._place(as_int(segment.get("partIndex")) or 0)
            numbered = {"partIndex": part} if part else {}
            found["segment"] = {**_span(segment, size), **numbered}
        return found


def gathered(items: Iterable[Json]) -> Json:
    """Return several of them as one: lists are joined, of ratings and single values the last."""
    found: Json = {}
    for key, value in ((key, value) for item in items for key, value in item.items()):
        before = found.get(key)
        if key == "safetyRatings":
            ratings = [*as_list(before), *as_list(value)]
            found[key] = list({as_text(as_json(r).get("category")): r for r in ratings}.values())
        elif as_json(before) and as_json(value):
            found[key] = gathered((as_json(before), as_json(value)))
        elif as_list(before):
            found[key] = [*as_list(before), *as_list(value)]
        else:
            found[key] = value
    return found


def _span(item: Json, size: int) -> Json:
    """Move a span of bytes; a beginning of 0 is absent on the wire."""
    if not size or "endIndex" not in item:
        return item
    start, end = (as_int(item.get(key)) or 0 for key in ("startIndex", "endIndex"))
    return {**item, "startIndex": start + size, "endIndex": end + size}


def _texts(parts: Sequence[Json]) -> list[Place]:
    """Return the number and the size in bytes of each part of visible text."""
    visible = enumerate(joined(parts))
    return [
        (number, len(as_text(part["text"]).encode("utf-8", "surrogatepass")))
        for number, part in visible
        if isinstance(part.get("text"), str) and not part.get("thought")
    ]
