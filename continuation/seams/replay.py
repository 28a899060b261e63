"""A long replay of earlier text, followed character by character without keeping it twice."""

from __future__ import annotations

from continuation.seams.verdict import SeamKind

__all__ = ["Replay"]


class Replay:
    """Follows an attempt that says `source` again from `place` on, `start` characters into it.

    `feed` returns None while the replay lasts, and what follows it when it is over: it has
    either reached the end of the source, or `diverged`.
    """

    def __init__(self, source: str, head: str, start: int, place: int, kind: SeamKind) -> None:
        self._source = source
        self._opening = head[:start]
        self._place = place
        self._reached = place + len(head) - start
        self.kind = kind
        self.diverged = False

    @property
    def taken(self) -> int:
        """Characters of the attempt that were taken so far."""
        return len(self._opening) + self._reached - self._place

    @property
    def brings_nothing(self) -> bool:
        """Whether the replay began at the top, so that it holds nothing new so far."""
        return not self._source[: self._place].strip()

    def text(self) -> str:
        """What was taken, again."""
        return self._opening + self._source[self._place : self._reached]

    def feed(self, piece: str) -> str | None:
        """Take a piece; return what comes after the replay, or None while it lasts."""
        expected = self._source[self._reached : self._reached + len(piece)]
        if piece == expected:
            self._reached += len(piece)
            return None
        if not piece.startswith(expected) or len(expected) == len(piece):
            same = _common_prefix(piece, expected)
            self._reached += same
            self.diverged = True
            return piece[same:]
        self._reached += len(expected)
        return piece[len(expected) :]


def _common_prefix(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle
    return low
