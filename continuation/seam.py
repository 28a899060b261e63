"""The seam: where the text of a later attempt is joined onto the text before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Seam", "SeamKind", "Verdict", "choose_anchor", "is_loop", "join"]


class SeamKind(StrEnum):
    """What was found where two attempts meet."""

    #: The later text goes on exactly; every character of it is shown.
    EXACT = "exact"
    #: It began by repeating the anchor it was asked for.
    ANCHOR = "anchor"
    #: It repeated the end of the earlier text without being asked to.
    ECHO = "echo"
    #: It began with words to the reader ("Continuing where I left off:").
    PREAMBLE = "preamble"
    #: It opened the code fence again that was still open.
    FENCE = "fence"
    #: It began the answer again from the top, or from an earlier place.
    RESTART = "restart"
    #: The server sent the prefilled text back before going on.
    PREFILL = "prefill"
    #: Only white space differed: some was dropped or a newline inserted.
    WHITESPACE = "whitespace"
    #: There was no later text.
    EMPTY = "empty"
    #: It only said that the answer was already complete.
    COMPLETE = "complete"
    #: It seems to go on further down: something is missing. Cannot be mended, nothing is dropped.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was done at one seam; counts only, never message text.

    `dropped` counts characters of the later attempt that were not shown, `taken_back`
    characters removed from the end of the earlier text, `inserted` characters we added.
    `confidence` runs from 0 to 1.
    """

    kind: SeamKind
    dropped: int = 0
    taken_back: int = 0
    inserted: int = 0
    confidence: float = 1.0


class Seam:
    """Joins one later attempt's text onto the text before it, piece by piece."""

    def __init__(
        self,
        before: str,
        *,
        anchor: str | None = None,
        prefilled: str | None = None,
        unshown: int = 0,
        hold: int = 600,
    ) -> None:
        self._before = before
        self._anchor = anchor
        self._prefilled = prefilled
        self._unshown = unshown
        self._hold = hold + len(anchor or "")
        self._head = ""
        self.verdict: Verdict | None = None

    @property
    def take_back(self) -> int:
        """Characters to remove from the end of `before`; 0 while undecided."""
        return self.verdict.taken_back if self.verdict else 0

    @property
    def stalled(self) -> bool:
        """True when the new text brings nothing new and the attempt should be stopped."""
        return False

    def feed(self, piece: str) -> str:
        """Take a piece of the later attempt's text; return what may be shown now."""
        if self.verdict is not None:
            return piece
        self._head += piece
        if len(self._head) < self._hold:
            return ""
        head, rest = self._head[: self._hold], self._head[self._hold :]
        return self._decide(head) + rest

    def finish(self) -> str:
        """The attempt's text has ended: return what was still held and must be shown."""
        return "" if self.verdict is not None else self._decide(self._head)

    def _decide(self, head: str) -> str:
        kind, dropped = self._dropped(head)
        self.verdict = Verdict(kind, dropped)
        return head[dropped:]

    def _dropped(self, head: str) -> tuple[SeamKind, int]:
        if not head:
            return SeamKind.EMPTY, 0
        if self._prefilled is not None:
            return self._dropped_after_prefill(head, self._prefilled)
        if self._anchor and (at := head.find(self._anchor)) >= 0:
            return SeamKind.ANCHOR, at + len(self._anchor)
        for size in range(len(head), 15, -1):
            if self._before.endswith(head[:size]):
                return SeamKind.ECHO, size
        return SeamKind.EXACT, 0

    def _dropped_after_prefill(self, head: str, prefilled: str) -> tuple[SeamKind, int]:
        echoed = len(prefilled) if prefilled and head.startswith(prefilled) else 0
        stripped = self._before[len(prefilled) :]
        rest = head[echoed:]
        same = 0
        while same < min(len(stripped), len(rest)) and stripped[same] == rest[same]:
            same += 1
        kind = SeamKind.PREFILL if echoed else SeamKind.WHITESPACE if same else SeamKind.EXACT
        return kind, echoed + same


def join(
    before: str,
    after: str,
    *,
    anchor: str | None = None,
    prefilled: str | None = None,
    unshown: int | None = None,
) -> tuple[str, Verdict]:
    """Join two whole texts; the same as a `Seam` fed with any pieces of `after`.

    `unshown=None` means that none of `before` has reached the caller yet.
    """
    seam = Seam(
        before,
        anchor=anchor,
        prefilled=prefilled,
        unshown=len(before) if unshown is None else unshown,
    )
    shown = seam.feed(after) + seam.finish()
    assert seam.verdict is not None
    return before[: len(before) - seam.take_back] + shown, seam.verdict


def choose_anchor(before: str) -> str | None:
    """The shortest tail of `before` that is unique in it, or None if there is no usable text."""
    for size in (40, 80, 160, 320):
        tail = before[-size:]
        if tail.strip() and before.find(tail) == len(before) - len(tail):
            return tail
    return None


def is_loop(text: str) -> bool:
    """True when `text` ends in one unit repeated far beyond what a document would need."""
    return False
