"""Runaway repetition: a text that repeats its own end, again and again, up to the output limit.

A `Repetition` follows a text as it grows. While the new text is equal to the text one period before
it, the new text is held: it may be a copy that nobody needs. If it then differs, it is released,
so a text that only resembles itself arrives a little later and complete. If the copies are long
enough and many enough, and the request did not ask for them, the text runs away.

A period is looked for where a line repeats an earlier line from its first character, or where the
last `_MATCH` characters occur earlier. Before that is the case, the beginning of a second copy may
be shown; if one piece of text brings several copies, all of them may be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

LEAST_CHARACTERS = 4_000
"""A repetition shorter than this never ends an attempt."""
LEAST_COPIES = 20
"""Fewer copies than this never end an attempt."""
_MATCH = 16
_WINDOW = 20_000
"""Characters before the end in which a period is looked for; no period is longer."""
_SLICE = 200
"""How many characters are compared at once."""
_WORDS = 8
"""How many of the repeated words, in a row, the request must contain to have asked for them."""

_word = re.compile(r"\w+")
_number = re.compile(r"\d+(?:[,.'_ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]\d{3})*")


class Repetition:
    """Follows one text. `period` and `copied` describe the repetition that its end is part of."""

    def __init__(self, allows: Callable[[str], float]) -> None:
        """Begin. `allows` returns how many copies the request asks for; it is given two of them."""
        self._allows = allows
        self._end = "\n"
        """The end of the text, at most `_WINDOW` characters; a text begins a line."""
        self.period = 0
        """After how many characters the text repeats itself; 0: it does not."""
        self.copied = 0
        """How many characters at the text's end are equal to those one period earlier."""
        self._most: float | None = None
        """How many copies are allowed; `None`: this was not asked yet."""
        self.holds = False
        """Whether the end of the text repeats what precedes it, and may be superfluous."""

    @property
    def runs_away(self) -> bool:
        """Whether the text repeats itself for so long that the answer should end."""
        if self._copies < LEAST_COPIES or self.copied + self.period < LEAST_CHARACTERS:
            return False
        if self._most is None:
            self._most = self._allows(self._end[-2 * self.period :])
            self.holds = self.holds and self._superfluous
        return self._superfluous

    @property
    def _superfluous(self) -> bool:
        return self._most is None or self._copies > self._most

    @property
    def _copies(self) -> int:
        return self.copied // self.period + 1 if self.period else 0

    def feed(self, piece: str) -> None:
        """Add a piece to the text."""
        held, same = self.holds, True
        for at in range(0, len(piece), _SLICE):
            same = self._add(piece[at : at + _SLICE]) and same
        # What was held is no copy if the period has changed, so it is released with this piece.
        self.holds = self.copied > 0 and self._superfluous and (same or not held)

    def _add(self, piece: str) -> bool:
        """Add a piece; return whether it repeats what is one period before it."""
        length, text = len(self._end), self._end + piece
        # If the period is shorter than the piece, the slices overlap: the piece repeats itself.
        if self.period and text[length:] == text[length - self.period : -self.period]:
            self.copied += len(piece)
            same = True
        else:
            self._look(text)
            same = False
        self._end = text[-_WINDOW:]
        return same

    def _look(self, text: str) -> None:
        """Look for the shortest period with which the end of `text` can repeat what precedes it."""
        self.period, self.copied, self._most = 0, 0, None
        line = text.rfind("\n") + 1
        found = text.rfind(text[line - 1 :], 0, len(text) - 1) if 0 < line < len(text) else -1
        matched, start = len(text) - line, line - 1
        if found < 0:
            matched, start = _MATCH, len(text) - _MATCH
            found = text.rfind(text[start:], 0, len(text) - 1) if start > 0 else -1
        # What has no letters is data, such as a table of zeros or a rule: it is never held.
        if found >= 0 and any(map(str.isalpha, text[found - start :])):
            self.period, first = start - found, len(text) - matched
            while first > self.period and text[first - 1] == text[first - 1 - self.period]:
                first -= 1
            self.copied = len(text) - first


def runaway(text: str, allows: Callable[[str], float], shown: int = 0) -> int | None:
    """Return the length of `text` without the copies with which it runs away; `None`: it does not.

    Only a repetition that lasts up to the end of the text counts. The first copy is kept, and each
    whose beginning is among the first `shown` characters, which were delivered.
    """
    watch = Repetition(allows)
    watch.feed(text)
    if not watch.runs_away:
        return None
    # The line break that is assumed before the text may count as copied.
    first = max(len(text) - watch.copied, watch.period)
    start = _boundary(text, first, watch.period)
    begun = math.ceil(max(shown - start, 0) / watch.period)
    return min(start + begun * watch.period, len(text))


def _boundary(text: str, start: int, period: int) -> int:
    """Return where a line or a word ends at or after `start`: a copy may seem to begin in one."""
    line = text.find("\n", start - 1, start + period)
    if line >= 0:
        return line + 1
    last = min(start + period, len(text) - 1)
    while start < last and text[start - 1].isalnum() and text[start].isalnum():
        start += 1
    while start < last and text[start].isspace():
        start += 1
    return start


def copies_asked(two: str, request: str, last: str) -> float:
    """Return how many copies of a text a request asks for; infinity: as many as it gets.

    `two`: two copies in a row, which may begin anywhere, even in a word.

    Only the form of the request counts. If it contains the repeated words itself, it may ask for
    them: a loop cannot be told from a copy. Otherwise the largest number in `last`, the texts of
    its last message, is taken for the number of copies; `request`: all of its texts.
    """
    words = _word.findall(two.casefold())
    wanted = min(len(words) // 2, _WORDS)
    if not wanted:
        return math.inf
    if wanted == 1:
        runs = {max(words, key=len)}
    else:
        runs = {" ".join(words[at : at + wanted]) for at in range(1, len(words) - wanted)}
    words_asked = " ".join(_word.findall(request.casefold()))
    if any(run in words_asked for run in runs):
        return math.inf
    numbers = [re.sub(r"\D", "", each) for each in _number.findall(last)]
    return max(map(float, filter(None, numbers)), default=0.0)
