"""What stands beside the content of several attempts, as one: grounding, citations, ratings.

Places in it speak of one attempt's own text and lists. In the merged answer that text stands
behind what came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from continuation.providers.gemini.parts import joined
from continuation.types import Json
from continuation.wire.json_values import as_int, as_json, as_list, as_text

Place = tuple[int, int]
"""Number of a part, and bytes of text that stand before in it."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How the places of one attempt move."""

    chunks: int
    """Grounding chunks of earlier attempts."""
    bytes: int
    """Bytes of visible text before the attempt's own."""
    place: Callable[[int], Place]
    """Where a part of the attempt is in the merged answer."""


def shift(own: Sequence[Json], turn: Sequence[Json], before: Iterable[Json]) -> Shift:
    """Return how an attempt's places move: its parts, those of the turn so far, what was beside.

    The attempt's text ends where the turn's text ends, so its parts are counted from there.
    """
    mine, all_ = _texts(own), _texts(turn)

    def place(part: int) -> Place:
        rank = sum(1 for number, _ in mine if number < part)
        at = len(all_) - len(mine) + rank
        if not (mine and 0 <= at < len(all_)) or rank >= len(mine):
            return part, 0
        return all_[at][0], max(0, all_[at][1] - mine[rank][1])

    grounding = (as_json(item.get("groundingMetadata")) for item in before)
    chunks = sum(len(as_list(meta.get("groundingChunks"))) for meta in grounding)
    moved = sum(size for _, size in all_) - sum(size for _, size in mine)
    return Shift(chunks, max(0, moved), place)


def moved(beside: Json, by: Shift) -> Json:
    """Return what stood beside an attempt with its places in the merged answer."""
    found = dict(beside)
    if grounding := as_json(beside.get("groundingMetadata")):
        supports = [_support(as_json(s), by) for s in as_list(grounding.get("groundingSupports"))]
        found["groundingMetadata"] = {**grounding, "groundingSupports": supports}
    if cited := as_json(beside.get("citationMetadata")):
        found["citationMetadata"] = {
            key: [_span(as_json(item), by.bytes) for item in as_list(value)]
            if key in {"citationSources", "citations"}
            else value
            for key, value in cited.items()
        }
    return found


def gathered(items: Iterable[Json]) -> Json:
    """Return several of them as one: lists are joined, of ratings and single values the last."""
    found: Json = {}
    for item in items:
        found = _merge(found, item)
    return found


def _merge(first: Json, second: Json) -> Json:
    found = dict(first)
    for key, value in second.items():
        before = found.get(key)
        if key == "safetyRatings":
            ratings = [*as_list(before), *as_list(value)]
            found[key] = list({as_text(as_json(r).get("category")): r for r in ratings}.values())
        elif as_json(before) and as_json(value):
            found[key] = _merge(as_json(before), as_json(value))
        elif as_list(before):
            found[key] = [*as_list(before), *as_list(value)]
        else:
            found[key] = value
    return found


def _support(support: Json, by: Shift) -> Json:
    found = dict(support)
    if indices := as_list(support.get("groundingChunkIndices")):
        found["groundingChunkIndices"] = [i + by.chunks for i in indices if isinstance(i, int)]
    if segment := as_json(support.get("segment")):
        part, size = by.place(as_int(segment.get("partIndex")) or 0)
        numbered = {"partIndex": part} if part else {}
        found["segment"] = {**_span(segment, size), **numbered}
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
