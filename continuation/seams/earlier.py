"""The text before a seam, and what is known about it whatever follows."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from continuation.seams.text import Cut, common_suffix, is_run, novelty

#: Bits and characters of an unfinished line that is known in other white space and typography.
LINE_KNOWN: Final = 64.0
_LONGEST_LINE: Final = 480
#: Characters of the text that are searched for lines like the anchor.
_TEMPLATE: Final = 32768
_NUMBERS: Final = re.compile(r"\d+")
#: The end of a text that may be half of the tag around the anchor in our prompt.
_HALF_MARK: Final = re.compile(r"<(?:a|an|anc|anch|ancho|anchor(?:-\d*)?)?\Z")


class EarlierText:
    """The text before a seam, and the anchor that the model was asked to repeat."""

    def __init__(self, before: str, anchor: str | None) -> None:
        self.text = text = before.rstrip("\ufffd")
        """The text before, without the sign (U+FFFD) of half a character at its end."""
        self.cut = Cut(text)
        self.bare = text.rstrip()
        """The same without white space at its end."""
        self.tail = text[-16384:]
        """Its end; an echo that is still arriving began in it."""
        self.top = text[:4096].lstrip()
        """Its beginning."""
        asked = anchor.rstrip("\ufffd") if anchor else ""
        self.asked = len(asked)
        """Characters of the anchor that was asked for; 0: none was."""
        # Only an anchor of twelve bits or more is evidence enough on its own.
        tells = asked.strip() and text.endswith(asked) and not is_run(asked)
        tells = tells and novelty(text, asked, enough=12.0) >= 12.0
        self.anchor = asked if tells else ""
        """The anchor; `""`: none was asked for, or it is no evidence."""
        self.half_mark = _HALF_MARK.search(text[-12:]) is not None
        """Whether the text ends like the beginning of the tag around the anchor in our prompt."""
        self.period = 0
        """The length of the unit of which the text ends in two or more; 0: it does not."""
        self.run = 0
        """How many characters at the end of the text repeat this unit."""
        tail, probe = text[-1200:], text[-16:]
        again = tail.rfind(probe, 0, len(tail) - 1)
        unit = len(tail) - len(probe) - again
        if again >= 0 and tail[-unit:].strip():
            same = common_suffix(tail, tail[:-unit])
            if same >= unit and same + unit >= 8:
                self.period = unit
                self.run = common_suffix(text, text[:-unit], most=65536) + unit

    @cached_property
    def line(self) -> str:
        """The unfinished line, where it carries bits enough to be known in other white space."""
        line = self.cut.line
        tells = len(line) <= _LONGEST_LINE and not is_run(line)
        return line if tells and novelty(self.text, line, enough=LINE_KNOWN) >= LINE_KNOWN else ""

    @cached_property
    def in_template(self) -> bool:
        """Whether the text has the anchor elsewhere with other numbers, so that it may come again.

        Such a text may continue with more lines of the same kind.
        """
        text, anchor = _NUMBERS.sub("0", self.text[-_TEMPLATE:]), _NUMBERS.sub("0", self.anchor)
        return text.count(anchor) > 1

    def is_of_template(self, words: str) -> bool:
        """Whether an opening begins or ends like some line of the text, but for its numbers."""
        text, words = (_NUMBERS.sub("0", one) for one in (self.text[-_TEMPLATE:], words.strip()))
        return words[:12] in text or words[-8:] in text

    def unsure_in_run(self, head: str, size: int) -> bool:
        """Whether it cannot be known how much of a run was repeated.

        An echo shorter by a unit fits as well; or `head` may open the fence around the run again,
        or begin the text again.
        """
        if self.period < size <= self.run:
            return True
        return head[:3] in ("```", "~~~") and self.run * 2 >= size

    def knows(self, words: str) -> bool:
        """Whether the text has `words` near its end or at its top."""
        return words in self.tail or words in self.top
