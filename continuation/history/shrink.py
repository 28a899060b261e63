"""Shortens tool results, so that a history fits into a context window again.

The beginning and the end of a long text stay. A note between them says how much was left out.
Results keep their places and their ids, so calls stay paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from continuation.history.tree import Part
from continuation.wire.json_values import as_list, as_map, is_encoded, is_list, is_map, texts_in

_KEPT: Final = 500
"""Characters that stay at each end of a shortened text."""
_LEAST: Final = 1_200
"""Characters of the longest text that is not shortened. A shortened text has fewer."""
_NAMES: Final = frozenset({"type", "name"})
"""The keys of names in all formats, besides ids."""


def tokens_in(value: object, model: str) -> int:
    """Return an estimate of the tokens of a value's texts. Images count as 0."""
    from continuation.limits.tokens import estimate  # reads a vocabulary

    return sum(estimate(text, model) for text in texts_in(value))


def shortened(
    results: list[Part], tokens: int, most: int, model: str, not_text: frozenset[str]
) -> dict[Part, Any]:
    """Shorten results in order until the history has at most `most` tokens; return their JSON.

    `tokens`: the tokens of the complete history. `not_text`: the keys of values to leave unchanged.
    """
    new = dict[Part, Any]()
    for part in results:
        if tokens <= most:
            break
        native = _shortened(part.native, not_text | _NAMES)
        if native is not part.native:
            new[part] = native
            tokens -= tokens_in(part.native, model) - tokens_in(native, model)
    return new


def _shortened(value: Any, fixed: frozenset[str]) -> Any:
    """Return a value with its long texts shortened, or the same object if it has none."""
    if isinstance(value, str):
        left_out = len(value) - 2 * _KEPT
        if len(value) <= _LEAST or is_encoded(value):
            return value
        note = f"[{left_out:,} characters were left out here, to fit the context window]"
        return f"{value[:_KEPT]}\n{note}\n{value[-_KEPT:]}"
    if is_map(value):
        fields = as_map(value)
        made: Mapping[str, Any] = {
            key: each if key in fixed or key.endswith("id") else _shortened(each, fixed)
            for key, each in fields.items()
        }
        return made if any(made[key] is not fields[key] for key in fields) else value
    if is_list(value):
        items = [_shortened(each, fixed) for each in as_list(value)]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
