"""Converts the parts of a Gemini answer to blocks, and blocks to parts.

A part with a signature, or with any field besides its text, is kept unchanged, as `part` in the
block's start. All other parts are plain text, which is visible or a thought.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from continuation.types import Json
from continuation.wire.blocks import TEXT, THINKING, TOOL_CALL, Block
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps, loads

SIGNATURE = "signature"
"""The kind of a part with a signature and without a text, or with an empty text."""
RESULTS = {"executableCode": "codeExecutionResult", "toolCall": "toolResponse"}
"""The kinds of calls that the provider runs itself -> the kind of their result."""
IMAGE = "inlineData"
"""The kind of an image drawn by code that the provider ran. A chat sends it back unchanged."""
KNOWN = frozenset({TEXT, TOOL_CALL, SIGNATURE, IMAGE, *RESULTS, *RESULTS.values()}) | THINKING
_BESIDE = frozenset({"thought", "thoughtSignature", "partMetadata"})
_THOUGHT = "thinking"


def kind_of(part: Json) -> str:
    """Return the kind of a part's block."""
    text = part.get("text")
    if isinstance(text, str):
        if not text and part.get("thoughtSignature"):
            return SIGNATURE
        return _THOUGHT if part.get("thought") else TEXT
    if isinstance(part.get("functionCall"), dict):
        return TOOL_CALL
    return next((key for key in part if key not in _BESIDE), SIGNATURE)


def plain(part: Json) -> bool:
    """Whether a part is only text, so that other text can be joined to it."""
    return isinstance(part.get("text"), str) and part.keys() <= {"text", "thought"}


def block_of(part: Json) -> Json:
    """Return the start of a part's block. Plain text is not in the start, but in its deltas."""
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
"""Matches one step of a JSON path into a call's arguments: a member or an element."""
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_NAME = re.compile(r"[^\W\d]\w*")


def put_together(call: Block) -> tuple[Json, bool] | None:
    """Join arguments that arrived in pieces; return them, and whether a string is still open.

    The last member is the one to which the last piece was added. `None`: a piece has an unknown
    form.
    """
    whole: Any = loads(dumps(call.start.get("input") or {}))
    before: object = None
    """The path of the string that the next piece may continue; `None`: no string is open."""
    steps, text = list[str | int](), list[str]()
    """The path of the last value, and the pieces that continue it. They are joined at its end."""
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
    """Append pieces of text to the value at the path `steps`."""
    for step in steps[:-1] if text else ():
        node = node[step]
    if text:
        node[steps[-1]] = "".join((node[steps[-1]], *text))


def _put(node: Any, steps: Sequence[str | int], value: Any) -> bool:
    """Set the value at the path `steps`; return `False` if such a path is impossible."""
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
    """Yield `partialArgs` pieces for the part of the arguments `whole` that `had` lacks."""
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
    """Join adjacent plain texts of one kind, and drop empty texts."""
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
    """Return an answer's blocks as joined parts, without calls for which nothing arrived."""
    return joined(part_of(b) for b in blocks if b.kind != TOOL_CALL or "part" in b.start)


def spoken(parts: Iterable[Json]) -> list[Json]:
    """Return the parts of an answer that a later request may have if no call was run.

    Thoughts without a signature are dropped: they are a summary, not a part of the message.
    """
    kept = joined(
        part
        for part in parts
        if "functionCall" not in part and (part.get("thoughtSignature") or not part.get("thought"))
    )
    return kept if any(not plain(part) or as_text(part["text"]).strip() for part in kept) else []


# --- a candidate's fields beside its content -----------------------------------------------------
#
# Grounding, citations and ratings of several attempts are merged. Their positions refer to the text
# and lists of one attempt. In the merged answer that text follows the text of earlier attempts.

Place = tuple[int, int]
"""The number of a part, and a count of bytes in its text."""


class Shift:
    """Moves the positions in an attempt's fields to the merged answer.

    `own`: the attempt's parts. `turn`: the parts of the turn so far, including the attempt's.
    `before`: the candidates' fields of earlier attempts. The attempt's text ends where the turn's
    text ends, so its parts are counted from the end.
    """

    def __init__(self, own: Sequence[Json], turn: Sequence[Json], before: Iterable[Json]) -> None:
        self._own, self._turn = _texts(own), _texts(turn)
        grounding = (as_json(item.get("groundingMetadata")) for item in before)
        self._chunks = sum(len(as_list(meta.get("groundingChunks"))) for meta in grounding)
        """The number of grounding chunks of earlier attempts."""
        before_it = sum(size for _, size in self._turn) - sum(size for _, size in self._own)
        self._bytes = max(0, before_it)
        """The bytes of visible text in the turn before the attempt's text."""

    def _place(self, part: int) -> Place:
        """Return a part's number in the merged answer, and the bytes before its text there."""
        rank = sum(1 for number, _ in self._own if number < part)
        at = len(self._turn) - len(self._own) + rank
        if rank >= len(self._own) or not 0 <= at < len(self._turn):
            return part, 0
        return self._turn[at][0], max(0, self._turn[at][1] - self._own[rank][1])

    def moved(self, beside: Json) -> Json:
        """Return an attempt's candidate fields with their positions in the merged answer."""
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
    """Merge the fields of several candidates.

    Lists are joined. Of other values, and of the ratings of one category, the last one is kept.
    """
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
    """Return a span moved by `size` bytes. If `startIndex` is 0, the wire does not have it."""
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
