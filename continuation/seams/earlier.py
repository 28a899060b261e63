"""The text before a seam, and what is known about it independent of what follows."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from continuation.seams.text import Cut, common_suffix, is_run, novelty

#: Least bits and most characters of an unfinished line that is recognized even in other white
#: space and typography.
LINE_KNOWN: Final = 64.0
_LONGEST_LINE: Final = 480
#: Characters at the end of the text that are searched for lines like the anchor.
_TEMPLATE: Final = 32768
_NUMBERS: Final = re.compile(r"\d+")
#: A text's end that may be the beginning of the tag around the anchor in our prompt.
_HALF_MARK: Final = re.compile(r"<(?:a|an|anc|anch|ancho|anchor(?:-\d*)?)?\Z")


class EarlierText:
    """The text before a seam, and the anchor that the model was asked to repeat."""

    def __init__(self, before: str, anchor: str | None) -> None:
        self.text = text = before.rstrip("\ufffd")
        """The text before, without U+FFFD at its end, which stands for half a character."""
        self.cut = Cut(text)
        self.bare = text.rstrip()
        """`text` without white space at its end."""
        self.tail = text[-16384:]
        """The end of `text`, in which an echo that is still arriving begins."""
        self.top = text[:4096].lstrip()
        """The beginning of `text`."""
        asked = anchor.rstrip("\ufffd") if anchor else ""
        self.asked = len(asked)
        """Characters of the anchor that the prompt requested; 0: it requested none."""
        # Only an anchor of twelve bits or more is evidence enough on its own.
        tells = asked.strip() and text.endswith(asked) and not is_run(asked)
        tells = tells and novelty(text, asked, enough=12.0) >= 12.0
        self.anchor = asked if tells else ""
        """The anchor; `""`: the prompt requested none, or it is no evidence."""
        self.half_mark = _HALF_MARK.search(text[-12:]) is not None
        """Whether the text ends like the beginning of the tag around the anchor in our prompt."""
        self.period = 0
        """The length of a unit that the text repeats at its end; 0: it repeats none."""
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
        """The unfinished line, if it has enough bits to be recognized in other white space."""
        line = self.cut.line
        tells = len(line) <= _LONGEST_LINE and not is_run(line)
        return line if tells and novelty(self.text, line, enough=LINE_KNOWN) >= LINE_KNOWN else ""

    @cached_property
    def in_template(self) -> bool:
        """Whether the text has the anchor elsewhere too, with other numbers.

        Such a text may continue with more lines of this kind.
        """
        text, anchor = _NUMBERS.sub("0", self.text[-_TEMPLATE:]), _NUMBERS.sub("0", self.anchor)
        return text.count(anchor) > 1

    def is_of_template(self, words: str) -> bool:
        """Whether an opening begins or ends like a part of the text, except for numbers."""
        text, words = (_NUMBERS.sub("0", one) for one in (self.text[-_TEMPLATE:], words.strip()))
        return words[:12] in text or words[-8:] in text

    def unsure_in_run(self, head: str, size: int) -> bool:
        """Whether it is unclear how much of a run `head` repeats.

        An echo that is shorter by a unit fits too. Or `head` may open the fence around the run
        again, or begin the text again.
        """
        if self.period < size <= self.run:
            return True
        return head[:3] in ("```", "~~~") and self.run * 2 >= size

    def knows(self, words: str) -> bool:
        """Whether the text has `words` near its end or at its top."""
        return words in self.tail or words in self.top
