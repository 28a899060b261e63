"""The wire formats there are: built-in ones by name, those of other packages by entry point."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from continuation.providers.contract import Dialect, Shape

BUILT_IN = {
    "anthropic": "continuation.providers.anthropic_messages.request",
    "openai-chat": "continuation.providers.openai_chat.request",
    "gemini": "continuation.providers.gemini.request",
    "openai-responses": "continuation.providers.openai_responses.request",
}
"""Name of a dialect -> module with its `DIALECT`. A built-in name wins over an entry point."""

GROUP = "continuation.providers"


@cache
def dialects() -> tuple[Dialect, ...]:
    """Return all dialects: built-in ones first, then those of the entry-point group."""
    from importlib.metadata import entry_points  # slow to import, and `config` imports this module

    found = {name: importlib.import_module(path).DIALECT for name, path in BUILT_IN.items()}
    for point in entry_points(group=GROUP):
        if point.name not in found:
            try:
                found[point.name] = point.load()
            except Exception as error:
                error.add_note(f"while loading the dialect {point.name!r} of {point.value!r}")
                raise
    return tuple(cast("Dialect", dialect) for dialect in found.values())


def shapes() -> Mapping[str, Shape]:
    """Return name of each dialect -> its shape."""
    return {dialect.name: dialect.shape for dialect in dialects()}


def upstreams() -> Mapping[str, Shape]:
    """Return name of each kind of provider, as the gateway's configuration has it -> its shape."""
    named: dict[str, Shape] = {}
    for shape in shapes().values():
        if shape.upstream:
            named.setdefault(shape.upstream, shape)
    return named


def server_mistakes(settings: Mapping[str, object]) -> Iterator[ValueError]:
    """Yield an error for each wrong setting of a `[vendors.NAME]` table.

    The code that reads the settings checks them; it is imported only if there is such a table.
    """
    readers = importlib.import_module("continuation.providers.openai_common.vendors")
    return cast("Iterator[ValueError]", readers.mistakes(settings))
