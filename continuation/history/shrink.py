"""Shortens the results of tools, so that a history fits into a context window again.

A result keeps its beginning and its end, between which a note says how much was left out. Results
stay where they are and keep their ids, so that calls stay paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from continuation.history.tree import Part
from continuation.wire.json_values import as_list, as_map, is_encoded, is_list, is_map, texts_in

_KEPT: Final = 500
"""Characters that stay of a text at each end."""
_LEAST: Final = 1_200
"""Characters; a text that is no longer than this stays as it is. A shortened text is shorter."""
_NO_TEXT: Final = frozenset(
    {
        *("type", "name", "source", "data"),
        *("image_url", "file_data", "file_url", "url", "encrypted_content", "inlineData"),
        *("inline_data", "fileData", "file_data", "cache_control"),
    }
)
"""Keys of values that must stay as they are, besides ids."""


def tokens_in(value: object, model: str) -> int:
    """Return an estimate of the tokens of a value's texts; images count nothing."""
    from continuation.limits.tokens import estimate  # reads a vocabulary

    return sum(estimate(text, model) for text in texts_in(value))


def shortened(results: list[Part], tokens: int, most: int, model: str) -> dict[Part, Any]:
    """Return the JSON of shortened results, from the first one on until `most` tokens are left.

    `tokens`: those of the whole history.
    """
    new = dict[Part, Any]()
    for part in results:
        if tokens <= most:
            break
        native = _shortened(part.native)
        if native is not part.native:
            new[part] = native
            tokens -= tokens_in(part.native, model) - tokens_in(native, model)
    return new


def _shortened(value: Any) -> Any:
    """Return a value with its long texts shortened; the same object if it has none."""
    if isinstance(value, str):
        left_out = len(value) - 2 * _KEPT
        if len(value) <= _LEAST or is_encoded(value):
            return value
        note = f"[{left_out:,} characters were left out here, to fit the context window]"
        return f"{value[:_KEPT]}\n{note}\n{value[-_KEPT:]}"
    if is_map(value):
        fields = as_map(value)
        made: Mapping[str, Any] = {
            key: each if key in _NO_TEXT or key.endswith("id") else _shortened(each)
            for key, each in fields.items()
        }
        return made if any(made[key] is not fields[key] for key in fields) else value
    if is_list(value):
        items = [_shortened(each) for each in as_list(value)]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
