"""What can be found at a seam, and the record of it that a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["SeamKind", "Verdict"]


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
    """What was done at one seam: counts only, never message text.

    `dropped` counts characters of the later attempt that were not shown, `taken_back` characters
    removed from the end of the earlier text, `inserted` characters we added. `confidence` runs
    from 0 to 1.
    """

    kind: SeamKind
    dropped: int = 0
    taken_back: int = 0
    inserted: int = 0
    confidence: float = 1.0
