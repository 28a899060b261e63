"""Token counts of OpenAI's two formats. Both have the same counts under different names.

`prompt_tokens` and `input_tokens` include cached tokens; `Usage.input` does not.
"""

from __future__ import annotations

from typing import NamedTuple

from continuation.types import Json, Usage
from continuation.wire.json_values import as_int, as_json


class Names(NamedTuple):
    """One format's names for its counts. A name with `_details` has the details of that count."""

    prompt: str
    output: str

    def read(self, usage: Json) -> Usage | None:
        """Return the provider's counts as a `Usage`; `None`: it sent none."""
        if not usage:
            return None
        taken = as_json(usage.get(f"{self.prompt}_details"))
        cached = as_int(taken.get("cached_tokens"))
        written = as_int(taken.get("cache_write_tokens"))
        prompt = as_int(usage.get(self.prompt))
        output, thinking = self._made(usage)
        return Usage(
            input=None if prompt is None else max(0, prompt - (cached or 0) - (written or 0)),
            cached=cached,
            cache_write=written,
            output=output,
            thinking=thinking,
        )

    def _made(self, usage: Json) -> tuple[int | None, int | None]:
        """Return the output tokens, including thinking, and the thinking tokens.

        xAI's output count does not include thinking. Only the total shows that.
        """
        made = as_json(usage.get(f"{self.output}_details"))
        output, thinking = as_int(usage.get(self.output)), as_int(made.get("reasoning_tokens"))
        total, prompt = as_int(usage.get("total_tokens")), as_int(usage.get(self.prompt)) or 0
        if output is not None and thinking and total == prompt + output + thinking:
            output += thinking
        return output, thinking

    def write(self, native: Json, usage: Usage | None) -> Json:
        """Return the provider's usage object with our counts. Other fields do not change."""
        if usage is None:
            return native
        written = dict(native)
        if usage.prompt is not None:
            written[self.prompt] = usage.prompt
        if usage.output is not None:
            beside = self._made(native)[0] != as_int(native.get(self.output))
            written[self.output] = usage.output - ((usage.thinking or 0) if beside else 0)
        if usage.prompt is not None and usage.output is not None:
            written["total_tokens"] = usage.prompt + usage.output
        details = (
            (self.prompt, "cached_tokens", usage.cached),
            (self.prompt, "cache_write_tokens", usage.cache_write),
            (self.output, "reasoning_tokens", usage.thinking),
        )
        for name, key, count in details:
            group = f"{name}_details"
            details_before = as_json(written.get(group))
            if count is not None and (count or key in details_before):
                written[group] = {**details_before, key: count}
        return written


CHAT = Names("prompt_tokens", "completion_tokens")
RESPONSES = Names("input_tokens", "output_tokens")
