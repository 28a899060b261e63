"""Whether text still brings something new, or goes round."""

from __future__ import annotations

from typing import Final

from continuation.seams.evidence import common_suffix

__all__ = ["ProgressWatch", "is_loop"]

#: Characters of one unit said over and over from which on it is a loop, and at least this often.
_LONG: Final = 4000
_OFTEN: Final = 4
#: Longest unit looked for.
_UNIT: Final = 2000
_KEPT: Final = _UNIT * (_OFTEN + 2)
#: New characters between two looks, and new characters a loop begun earlier still gets.
_STEP: Final = 512
#: Characters copied from the text before, without a break, from which on it is a repetition.
_COPY: Final = 1024
_COPIES: Final = 4
#: Characters of the blocks by which a copy is first looked for.
_BLOCK: Final = 64


def is_loop(text: str) -> bool:
    """Whether `text` ends in one unit (up to 2,000 characters) repeated for 4,000 or more."""
    tail = text[-_KEPT:]
    probe = tail[-64:]
    before = tail.rfind(probe, 0, len(tail) - 1)
    if before < 0 or len(tail) < _LONG:
        return False
    unit = len(tail) - len(probe) - before
    extent = common_suffix(tail, tail[: len(tail) - unit], most=_KEPT) + unit
    return unit <= _UNIT and extent >= max(_LONG, _OFTEN * unit)


class ProgressWatch:
    """Takes the text that is shown after a seam, and notices when it brings nothing new.

    Two things are noticed: one unit repeated without end (also when the earlier text had begun
    it), and long stretches copied from the earlier text. Looks are taken every 512 characters of
    text, wherever the pieces end.
    """

    def __init__(self, before: str) -> None:
        self._before = before
        self._tail = before[-_KEPT:]
        self._waiting = 0
        self._unread = 0
        self._copies = 0
        self._blocks: set[int] = set()
        self.stalled = False

    def feed(self, text: str) -> None:
        """Take shown text."""
        at = 0
        while at < len(text) and not self.stalled:
            step = min(len(text) - at, _STEP - self._waiting)
            self._tail += text[at : at + step]
            self._waiting += step
            at += step
            if self._waiting == _STEP:
                self._look()

    def _look(self) -> None:
        self._waiting = 0
        self._tail = self._tail[-_KEPT:]
        self._unread += _STEP
        self.stalled = is_loop(self._tail) or self._copied()

    def _copied(self) -> bool:
        if self._unread < _COPY:
            return False
        self._unread = 0
        self._copies = self._copies + 1 if self._earlier(self._tail[-_COPY:]) else 0
        return self._copies >= _COPIES and not self._repetitive()

    def _repetitive(self) -> bool:
        """Whether the earlier text repeated itself at length: then more of it is no surprise."""
        tail = self._before[-_COPY:]
        return len(tail) == _COPY and self._before.find(tail) < len(self._before) - _COPY

    def _earlier(self, text: str) -> bool:
        """Whether the earlier text holds this one.

        A copy this long covers a whole block of the earlier text, at one of the first `_BLOCK`
        places; only if one of those is known is the earlier text searched. So that a look costs
        the same however long the earlier text is.
        """
        if not self._blocks:
            before = self._before
            ends = range(_BLOCK, len(before) + 1, _BLOCK)
            self._blocks = {hash(before[end - _BLOCK : end]) for end in ends} or {0}
        places = range(min(_BLOCK, max(0, len(text) - _BLOCK + 1)))
        known = any(hash(text[i : i + _BLOCK]) in self._blocks for i in places)
        return known and text in self._before
