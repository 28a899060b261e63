"""What can be found at a seam, and the record of it that a report shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

__all__ = ["SURE", "Finding", "SeamKind", "Verdict"]

#: Log odds of what leaves no doubt.
SURE: Final = 12.0


class SeamKind(StrEnum):
    """What was found where two attempts meet."""

    #: The later text goes on; every character of it is shown.
    EXACT = "exact"
    #: It began by repeating the anchor it was asked for.
    ANCHOR = "anchor"
    #: It repeated the end of the earlier text, or the head of the open table, unasked.
    ECHO = "echo"
    #: It began with words to the reader ("Continuing where I left off:").
    PREAMBLE = "preamble"
    #: It opened a code fence again that was still open.
    FENCE = "fence"
    #: It began the answer again, from the top or from an earlier place.
    RESTART = "restart"
    #: The server sent the prefilled text back before going on.
    PREFILL = "prefill"
    #: White space alone was dropped, or a newline inserted.
    WHITESPACE = "whitespace"
    #: There was no later text.
    EMPTY = "empty"
    #: It only said that the answer was already complete.
    COMPLETE = "complete"
    #: It seems to go on further down, so something is missing. Nothing is dropped.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was done at one seam: counts only, never message text."""

    kind: SeamKind
    """What was found there."""
    dropped: int = 0
    """Characters of the later attempt that were not shown."""
    taken_back: int = 0
    """Characters removed from the end of the earlier text."""
    inserted: int = 0
    """Characters we added between the two."""
    confidence: float = 1.0
    """How sure the finding is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the head of an attempt shows, while the seam is being decided."""

    kind: SeamKind
    drop: int = 0
    """Characters at the start of the head to leave out."""
    odds: float = SURE
    """Log odds that this is right."""
    insert: str = ""
    """What to put in the place of what is left out."""
    own_fence: bool = False
    """The fence line left out wraps what has none, so the line that closes it goes as well."""

    def after(self, skipped: int, kind: SeamKind) -> Finding:
        """The same finding behind an opening of `skipped` characters."""
        return replace(self, kind=kind, drop=self.drop + skipped)
