"""The other way two texts meet: a regenerated text behind one that was shown already."""

from __future__ import annotations


class Follow:
    """Of a regenerated text, lets pass only what follows the text already shown."""

    def __init__(self, shown: str) -> None:
        self._rest = shown
        self.lost = False

    @property
    def done(self) -> bool:
        """The shown text has been matched to its end: all that follows is new."""
        return not self._rest and not self.lost

    def feed(self, piece: str) -> str:
        if self.lost or not self._rest:
            return "" if self.lost else piece
        common = min(len(piece), len(self._rest))
        if piece[:common] != self._rest[:common]:
            self.lost = True
            return ""
        self._rest = self._rest[common:]
        return piece[common:]
