"""Token counts of OpenAI's two formats: the same figures under two sets of names.

`prompt_tokens` and `input_tokens` count cached ones too; in the engine's words they stand apart.
"""

from __future__ import annotations

from typing import NamedTuple

from continuation.types import Json, Usage
from continuation.wire.json_values import as_int, as_json


class Names(NamedTuple):
    """Where one format keeps its counts."""

    prompt: str
    output: str
    prompt_details: str
    output_details: str


CHAT = Names(
    "prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"
)
RESPONSES = Names("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")


def read(usage: Json, names: Names) -> Usage | None:
    """Return the provider's counts in the engine's words; `None` when it gave none."""
    if not usage:
        return None
    taken = as_json(usage.get(names.prompt_details))
    cached, written = as_int(taken.get("cached_tokens")), as_int(taken.get("cache_write_tokens"))
    prompt = as_int(usage.get(names.prompt))
    made = as_json(usage.get(names.output_details))
    return Usage(
        input=None if prompt is None else max(0, prompt - (cached or 0) - (written or 0)),
        cached=cached,
        cache_write=written,
        output=as_int(usage.get(names.output)),
        thinking=as_int(made.get("reasoning_tokens")),
    )


def write(native: Json, usage: Usage, names: Names) -> Json:
    """Return the provider's usage object with our counts; other fields stay as they came."""
    written = dict(native)
    if usage.prompt is not None:
        written[names.prompt] = usage.prompt
    if usage.output is not None:
        written[names.output] = usage.output
    if usage.prompt is not None and usage.output is not None:
        written["total_tokens"] = usage.prompt + usage.output
    _detail(written, names.prompt_details, "cached_tokens", usage.cached)
    _detail(written, names.prompt_details, "cache_write_tokens", usage.cache_write)
    _detail(written, names.output_details, "reasoning_tokens", usage.thinking)
    return written


def _detail(usage: Json, group: str, key: str, count: int | None) -> None:
    details = as_json(usage.get(group))
    if count is not None and (count or key in details):
        usage[group] = {**details, key: count}
