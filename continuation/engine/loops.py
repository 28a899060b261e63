"""Runaway repetition: how many copies a request asks for, and what the log says about the rest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from continuation.limits.tokens import estimate
from continuation.logs import line
from continuation.seams.repetition import copies_asked, runaway

if TYPE_CHECKING:
    from collections.abc import Callable

    from continuation.providers.contract import ProviderRequest

logger = logging.getLogger("continuation")


def allowing(request: ProviderRequest) -> Callable[[str], float]:
    """Return a function that says how many copies of a text the request asks for."""

    def allows(unit: str) -> float:
        return copies_asked(unit, request.prompt_text, request.last_text)

    return allows


class LoopNotes:
    """Says once per process that an answer ran away, where policy does not stop it."""

    left = 100
    """How many more truncated answers are searched for this. A search takes milliseconds."""

    @classmethod
    def note(cls, text: str, request: ProviderRequest) -> None:
        """Log what the policy would have saved, if a truncated answer ends in a repetition."""
        if cls.left < 1 or not logger.isEnabledFor(logging.INFO):
            return
        cls.left -= 1
        if (start := runaway(text, allowing(request))) is None:
            return
        cls.left = 0
        saved = f"~{estimate(text[start:], request.model):,}"
        remedy = "set stop_repetition = true to end such an answer early"
        logger.info(
            "%s", line("repetition not stopped", model=request.model, tokens=saved, remedy=remedy)
        )
