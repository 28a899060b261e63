"""The live line while an answer arrives: characters, tokens per second, attempt, cost."""

from __future__ import annotations

import time

from continuation.cli.screen import ShowLine
from continuation.reports.account import price
from continuation.reports.report import Escalating, Event, Recovering, Truncated
from continuation.types import Usage

_EVERY = 0.1
"""Seconds between two updates. A price's look-up takes too long to do it for each delta."""


class Live:
    """Follows one answer. Tokens of the attempt under way are estimated as characters / 4.

    `show` is called with the line. `total`: the characters of the complete answer, if known.
    """

    def __init__(self, show: ShowLine, model: str, prompt: str, total: int | None = None) -> None:
        self._show, self._model, self._total = show, model, total
        self._prompt = len(prompt) // 4
        self._characters = self._before = 0
        self._attempt, self._ended = 1, list[Usage]()
        self._began = self._last = time.monotonic()

    def on_event(self, event: Event) -> None:
        """Note that an attempt was truncated, or that another one begins."""
        if isinstance(event, Truncated):
            output = event.output_tokens or (self._characters - self._before) // 4
            self._ended.append(Usage(input=self._prompt_tokens(), output=output))
            self._before = self._characters
        elif isinstance(event, Escalating | Recovering):
            self._attempt = event.attempt

    def arrived(self, count: int) -> None:
        """Set the total of characters that have arrived; show the line if `_EVERY` has passed."""
        self._characters = count
        if (now := time.monotonic()) >= self._last + _EVERY:
            self._last = now
            self._show(self.line(now))

    def end(self) -> None:
        """Show the line for the last time."""
        self._show(self.line(time.monotonic()))

    def line(self, now: float) -> str:
        """Return the line at `now` (`time.monotonic`). It has a cost if prices are known."""
        coming = (self._characters - self._before) // 4
        made = sum(usage.output or 0 for usage in self._ended) + coming
        of = "" if self._total is None else f" of {self._total:,}"
        speed = f"~{made / max(now - self._began, 0.001):,.0f} tokens/s"
        parts = [f"{self._characters:,}{of} characters", speed, f"attempt {self._attempt}"]
        under_way = Usage(input=self._prompt_tokens(), output=coming)
        if (paid := price(self._model, None, [*self._ended, under_way])) is not None:
            parts.append(f"~${paid:.4f}")
        return ", ".join(parts)

    def _prompt_tokens(self) -> int:
        """Estimate the prompt tokens of an attempt. A later prompt contains the text so far."""
        return self._prompt + self._before // 4
