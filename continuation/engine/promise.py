"""Whether a complete text announces a tool call that did not follow: evidence of form alone.

A text that stops where a call would begin ends with a colon, or names the tool. What its words mean
is never judged: each list of phrases is wrong in another language.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from continuation.logs import line

logger = logging.getLogger("continuation")

_COLONS = (":", "\N{FULLWIDTH COLON}", "\N{SMALL COLON}")
_ASKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}", "\N{GREEK QUESTION MARK}")
_SENTENCE_END = re.compile(
    r"[.!?]['\")\]*_]*\s+|[\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH EXCLAMATION MARK}"
    r"\N{FULLWIDTH QUESTION MARK}]\s*(?=\S)"
)
_EMPHASIS = "*_"
_DISTINCT = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]")
"""Matches in a name that is no word of a language: `read_file`, `readFile`."""


def announces_call(text: str, tools: Iterable[str]) -> bool:
    """Whether the text's last line ends with a colon, or its last sentence names one of `tools`.

    A name counts in code marks, or bare if no language has such a word. In a question it does not
    count: there the model waits for the user.
    """
    last = text.rstrip().rpartition("\n")[2].strip().rstrip(_EMPHASIS).rstrip()
    if last.endswith(_COLONS):
        return True
    if last.endswith(_ASKS):
        return False
    sentence = _SENTENCE_END.split(last)[-1]
    return any(_names(sentence, tool) for tool in tools)


def _names(sentence: str, tool: str) -> bool:
    name = re.escape(tool)
    if re.search(rf"`{name}(?:\([^`]*\))?`", sentence):
        return True
    bare = rf"(?<![\w./`-]){name}(?![\w/`-]|\.\w)"
    return bool(_DISTINCT.search(tool) and re.search(bare, sentence))


class Notes:
    """Says once per process that an answer announced a call, where policy does not ask for it."""

    left = 100
    """How many more answers are read for this. Reading one takes milliseconds."""

    @classmethod
    def wanted(cls) -> bool:
        """Whether an answer is to be read for the log."""
        return cls.left > 0 and logger.isEnabledFor(logging.INFO)

    @classmethod
    def note(cls, model: str | None, *, announced: bool) -> None:
        """Count an answer that was read, and log the first one that announced a call."""
        cls.left = 0 if announced else cls.left - 1
        if announced:
            remedy = 'set unkept_promise = "ask" to ask for the call in such a case'
            logger.info("%s", line("call announced but not made", model=model, remedy=remedy))
