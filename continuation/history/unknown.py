"""Removes the blocks whose type a server calls unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from continuation.history.grammar import Grammar
from continuation.history.types import Repaired
from continuation.types import Change
from continuation.wire.json_values import as_list, as_map, is_list, is_map

_MISSING = object()
_SPOKEN = frozenset({"message", "text", "input_text", "output_text", "refusal"})
"""Types with text of the conversation, in any format. They are converted, never removed."""


def without_tag(done: Repaired, grammar: Grammar, tag: str) -> Repaired | None:
    """Return a repaired body without blocks of this type; `None`: it has none.

    In a format where a field's name is the part's kind, that field is removed. The part is removed
    if it has no content any more.
    """
    if tag in _SPOKEN:
        return None
    field = grammar.field
    changes: list[Change] = []
    kept: list[tuple[int, Any]] = []
    for index, message in enumerate(as_list(done.body.get(field))):
        left = _left(message, f"{field}[{index}]", tag, grammar, changes)
        if left is not _MISSING:
            kept.append((index, left))
    if not changes:
        return None
    origins = done.origins or range(len(as_list(done.body.get(field))))
    return replace(
        done,
        body={**done.body, field: [message for _, message in kept]},
        changes=(*done.changes, *changes),
        origins=tuple(origins[index] for index, _ in kept),
    )


def followed_by(first: Repaired, second: Repaired) -> Repaired:
    """Return two repairs as one; the second repaired the body of the first."""
    before = first.origins or ()
    origins = first.origins
    if second.origins is not None:
        origins = tuple(before[n] if n >= 0 else n for n in second.origins)
    return replace(second, changes=(*first.changes, *second.changes), origins=origins)


def _left(value: Any, path: str, tag: str, grammar: Grammar, changes: list[Change]) -> Any:
    """Return a message or block without parts of this tag; `_MISSING`: nothing is left of it."""
    if not is_map(value):
        return value
    fields = as_map(value)
    if fields.get("type") == tag:
        changes.append(Change("drop_block", path, "block_invalid"))
        return _MISSING
    made = dict(fields)
    key = grammar.content
    if grammar.beside_kind and tag in fields and f".{key}[" in path:
        changes.append(Change("drop_block", path, "block_invalid"))
        del made[tag]
        if not made.keys() - grammar.beside_kind:
            return _MISSING
    if is_list(made.get(key)):
        blocks = [
            _left(block, f"{path}.{key}[{n}]", tag, grammar, changes)
            for n, block in enumerate(as_list(made[key]))
        ]
        made[key] = [block for block in blocks if block is not _MISSING]
    return made if made != fields else value
