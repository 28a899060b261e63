"""How likely a repetition is an echo: the measured evidence on which a seam drops text.

A repetition at a seam has two explanations. Either the model repeated itself (an echo), or the
text really has the same words twice. Real text repeats words in a run: a ladder of `}`, equal
lines, equal cells. Then the step from the end of the first copy to the start of the second also
occurs elsewhere in the document. An echo can start anywhere: a line can start inside another line
or inside a word. So we measure this step, the run before it, the length, and how new the repeated
words are, and we add up log odds. The weights (below) are fitted on real files: their own
repetitions against echoes of every length.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import log2
from typing import Final

from continuation.seams.text import (
    WINDOW,
    common_suffix,
    is_indentation,
    is_run,
    novelty,
    seen_with,
    shape,
)

#: A repetition with at least these log odds counts as an echo. That is wrong about once in ten
#: thousand texts that repeat themselves far more than answers do, and less often in ordinary texts.
THRESHOLD: Final = 2.5
#: The log odds of a repetition that is no evidence of an echo.
NEVER: Final = -99.0
#: A repetition with fewer characters, or fewer bits of novelty, is no evidence.
_SHORTEST, _TRITE = 4, 10.0
#: The start of a list item or heading, with the first letter of its text.
_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,3}[.)]|#{1,6}) \w")
#: Closing tags, brackets and marks: they carry no words.
_PLAIN: Final = re.compile(r"</\w+>|[^\w]+")
#: A complete number: on each side is a character that is not a digit.
_NUMBER: Final = re.compile(r"(?<=[^\d.])\d{1,9}(?=[^\d.])")
#: The end of a sentence before the next one begins.
SENTENCE_END: Final = re.compile(r"(?:[.!?:] |[。！？]|[.!?][\"”]? )$")  # noqa: RUF001 - their marks


def odds(before: str, head: str, size: int) -> float:
    """Return log odds that the first `size` characters of `head` are an echo.

    `before` must end with them.
    """
    known = foregone(before, head, size)
    if known is not None:
        return known
    measured = features(before, head, size)
    table = AFTER if before.endswith("\n") else INSIDE
    return measured["short"] + sum(weight * measured[name] for name, weight in table.items())


def foregone(before: str, head: str, size: int) -> float | None:
    """Return the log odds if a guard or a plain sign decides; `None`: they must be measured."""
    if size == len(before) == len(head) and size < 200:
        return NEVER
    if is_run(head[:size]) or (
        _is_next_line(before, head, size) and novelty(before, head[:size]) < 64
    ):
        return NEVER
    if _begins_as_this_line(before, head, size):
        return NEVER
    if _begins_again(before, head, size) or _counts_again(before, size):
        return 2 * THRESHOLD
    if _misindents(before, head, size) or _says_words_again(before, head[:size]):
        return 2 * THRESHOLD
    if _is_trite(before, head[:size]):
        return NEVER
    if len(before) < 400:  # too short to distinguish a rare step from a common one
        return _odds_in_little(before, head, size)
    window = before[-WINDOW:]
    in_run = common_suffix(window, window[: len(window) - size]) >= size
    return NEVER if in_run else None


def features(before: str, head: str, size: int) -> dict[str, float]:
    """Return the features of the first `size` characters of `head`; `before` ends with them."""
    window = before[-WINDOW:]
    echo, rest = head[:size], head[size : size + 4]
    previous = before[-size - 1 : -size]
    sentence = bool(SENTENCE_END.search(before[max(0, len(before) - size - 3) : -size]))
    run = common_suffix(window, window[: len(window) - size])
    pair = seen_with(window, head[:2])
    quad = seen_with(window, head[:4])
    word = before[-1].isalnum() and head[0].isalnum()
    new = novelty(before, echo, enough=48.0)
    # A character of Chinese, Japanese or Korean counts as two or three letters.
    weight = size if echo.isascii() else size + 1.5 * sum(char >= "\u2e80" for char in echo)
    return {
        "const": 1.0,
        # The length, and how new the words are.
        "length": log2(min(weight, 512)),
        "short": -1.0 if size < 12 else 0.0,
        "new": new,
        "full": new >= 48,
        "long_new": log2(max(1.0, min(weight, 192) / 48)) if new >= 40 else 0.0,
        # The run before the echo, with the same period.
        "run": log2(1 + run),
        "run_any": run >= 1,
        # The step from the end of the text to the echo's start: how much of it occurs elsewhere.
        "pair_0": pair < 1,
        "pair_1": pair < 2,
        "pair_2": pair < 3,
        "quad_0": quad < 1,
        # Where the echo starts, and where the text stopped.
        "line_start": previous in ("\n", ""),
        "sentence_start": sentence and new >= 24,
        "in_word": previous.isalnum() and echo[0].isalnum(),
        "word_start": word and not previous.isalnum(),
        "stutter": word and echo.isalpha() and not previous.isalnum(),
        "retyped": _retyped(before, echo, rest),
        "word_step": word,
        "lines": "\n" in echo,
        "space_last": before[-1].isspace(),
        # Whether the word continues after the echo.
        "goes_on": before[-1].isalnum() and rest[:1].isalnum(),
    }


# Signs that need no weights -------------------------------------------------------------------


def _is_next_line(before: str, head: str, size: int) -> bool:
    """Whether the echo may end this line and begin the next, with a word that continues after it.

    For example, "LAUNCH_ERROR" may follow "LAUNCH" in a list. The text must have another line of
    that shape.
    """
    found = re.match(r"([^\w\n]*\n)([^\n]*[a-zA-Z_])\Z", head[:size])
    if found is None or not re.match("[a-zA-Z_]", head[size:]):
        return False
    lines = (before[-WINDOW:] + found[1]).split("\n")[:-1]
    like = shape(lines[-1])
    return any(shape(line) == like for line in lines[:-1])


def _begins_as_this_line(before: str, head: str, size: int) -> bool:
    """Whether the echo may end a record and begin the next, which begins as this one.

    The next record's word continues after the echo. For example, "a/reader_source.py" may follow
    "a/reader.py" in a list of files.
    """
    ending, newline, begun = head[:size].rpartition("\n")
    if not newline or begun != before[before.rfind("\n") + 1 :] or not begun:
        return False
    ended = ending.rpartition("\n")[2]
    continues = re.match(r"\w\w", begun[-1] + head[size : size + 1]) is not None
    alike = rf"\w{re.escape(ended)}\n"
    return continues and bool(ended.strip()) and len(re.findall(alike, before)) >= 2


def _begins_again(before: str, head: str, size: int) -> bool:
    """Whether the head begins the unfinished line or sentence again from its start.

    If the step back to that start occurs nowhere in the text, even a short repetition is evidence.
    """
    start = len(before) - size
    if start == 0 and size < 24:
        return False  # an answer may consist of two equal words
    line_start = before[start - 1 : start] in ("\n", "")
    if not (line_start or SENTENCE_END.search(before[max(0, start - 2) : start])):
        return False
    unit, window = head[:size], before[-WINDOW:]
    indent = size - len(unit.lstrip())
    if len(head) == size or not unit.strip() or "\n" in (unit[0], unit[-1]) or is_run(unit):
        return False
    if "\n" in unit and "|" in unit:
        return False  # the next row may be the same
    if line_start and indent >= 2:
        return seen_with(window, head[: indent + 1]) < 1
    if before[-2:] + head[:2] in window:
        return False
    # The repeated part must be more than a sign or a number.
    following = head[size]
    if ord(unit[0]) >= 0x2E80:
        return len(unit) >= 5 or (len(unit) >= 2 and unit + following in window)
    if len(set(unit)) < 2 or not any(map(str.isalpha, unit)):
        return False
    if (len(unit) >= 4 and not unit.isalnum()) or _ITEM.match(unit):
        return True
    return len(unit) >= 3 and not following.isalnum() and unit + following in window


def _counts_again(before: str, size: int) -> bool:
    """Whether the echo repeats a number where the text counts: 13, 14, 15, 15.

    Three numbers after the same words must lead to that number in equal steps.
    """
    echo = before[len(before) - size :]
    for number in _NUMBER.finditer(echo) if size >= _SHORTEST else ():
        at = len(before) - size + number.start()
        words = before[max(0, at - 6, before.rfind("\n", 0, at)) : at]
        if len(words) < 4 and words[:1] != "\n":
            continue
        same = re.findall(rf"{re.escape(words)}(\d{{1,9}})(?!\d)", before[max(0, at - 4096) : at])
        counted = [int(value) for value in (*same[-3:], number[0])]
        steps = {later - earlier for earlier, later in pairwise(counted)}
        if len(counted) == 4 and len(steps) == 1 and 0 not in steps:
            return True
    return False


def _misindents(before: str, head: str, size: int) -> bool:
    """Whether the echo would put spaces where the text never has any: in a line or indentation."""
    echo, line, window = head[:size], before.rpartition("\n")[2], before[-WINDOW:]
    space = echo[: len(echo) - len(echo.lstrip(" \t"))]
    if size < _SHORTEST or len(space) < 2 or not echo.strip() or "\n" in echo[: len(space) + 1]:
        return False
    if line.strip():
        return not re.search(rf"\S{space[:2]}", window)
    return not is_indentation(window, line + space)


def _says_words_again(before: str, echo: str) -> bool:
    """Whether the echo is new words only. No measured file has such words twice in a row."""
    words = echo.split(" ")
    wide = sum(char >= "\u2e80" for char in echo)
    if "".join(words).isalpha() and (wide >= _SHORTEST or len([*filter(None, words)]) > 1):
        return not is_run(echo) and "  " not in echo and novelty(before, echo, enough=24) >= 24
    return False


def _is_trite(before: str, echo: str) -> bool:
    """Whether an echo is too short, too plain or too much of a run to be evidence."""
    if len(echo) < _SHORTEST or is_run(echo) or not _PLAIN.sub("", echo):
        return True
    letters = sum(map(str.isalpha, echo))
    plain_line = before.endswith("\n") and echo.count("\n") < 2 and len(echo) < 24
    needed = 2 * _TRITE + 4 if plain_line or (len(echo) < 12 and letters < _SHORTEST) else _TRITE
    return novelty(before, echo, enough=needed) < needed


def _retyped(before: str, echo: str, rest: str) -> bool:
    """Whether the head begins a truncated word again and finishes it: "impor", then "important"."""
    word = len(echo) >= 4 and echo.isalpha() and rest[:1].isalpha()
    return word and not before[-len(echo) - 1 : -len(echo)].isalnum() and ord(echo[0]) < 0x2E80


def _odds_in_little(before: str, head: str, size: int) -> float:
    if _retyped(before, head[:size], head[size : size + 4]):
        return THRESHOLD + 2
    if size < 8:
        return -9.0
    at_line = before[-size - 1 : -size] in ("\n", "")
    if "\n" in head[:size] and ("|" in head[:size] or common_suffix(before, before[:-size]) >= 2):
        return NEVER  # the next line or row may be the same
    needed = 64.0 if before.endswith("\n") else 24.0 if at_line else 32.0  # bits of novelty
    return THRESHOLD + (novelty(before, head[:size]) - needed) / 4


# The weights ------------------------------------------------------------------------------------

# These weights are from a logistic fit on 1.6 million tokens of real files, rounded by hand. They
# are older than `scripts/fit_seams.py`, which writes everything after this line.

#: If the text stopped inside a line.
INSIDE: Final = {
    "const": -7.1,
    "length": 1.3,
    "new": 0.026,
    "full": 1.0,
    "run": -0.34,
    "run_any": 0.43,
    "pair_0": 0.81,
    "pair_1": 0.96,
    "pair_2": 0.67,
    "quad_0": 1.19,
    "line_start": 1.73,
    "in_word": 0.84,
    "word_start": 1.21,
    "stutter": 1.42,
    "retyped": 1.36,
    "word_step": 1.99,
    "lines": -1.15,
    "space_last": 1.59,
    "goes_on": -1.48,
    "sentence_start": 0.88,
}

#: If the text stopped after a line. The step to a line's start is then not rare.
AFTER: Final = {
    "const": -2.4,
    "run": -0.9,
    "pair_1": 2.1,
    "quad_0": 3.0,
    "line_start": 4.4,
    "new": 0.085,
    "long_new": 0.5,
}
