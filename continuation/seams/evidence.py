"""How likely a repetition is an echo: the measured evidence on which a seam drops text.

A repetition at a seam has two explanations. Either the model repeated itself, or the text
really says the same thing twice. Real text does so where it is in a run (a ladder of `}`, equal
lines, equal cells), and where it does, the step from the end of the first copy to the start of
the second is a step the document takes elsewhere too. An echo starts anywhere: at the start of
a line in the middle of another, in the middle of a word. So we look at that step, at the run
before it, at the length and at how new the repeated words are, and add up log odds. The
weights (`weights.py`) are fitted on repetitions of real files against echoes of every length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log2
from typing import Final

from continuation.seams import weights

__all__ = [
    "NEVER",
    "THRESHOLD",
    "common_prefix",
    "common_suffix",
    "features",
    "foregone",
    "is_run",
    "novelty",
    "odds",
    "seen_with",
]

#: Characters of earlier text looked at: bounds the time, whatever the size of the answer.
_WINDOW: Final = 8192
#: Characters of context that make the next ones predictable when they occurred together before.
_CONTEXT: Final = 5
#: Cost in bits of going on as a known context predicts, and of copying from anywhere.
_PREDICTED: Final = 4.0
_COPIED: Final = 13.0
#: Longest single copy we look for; a longer one just counts again.
_PHRASE: Final = 64

#: From these log odds on a repetition counts as an echo: about one wrong cut in ten thousand of
#: texts that repeat themselves far more than answers do, and fewer in ordinary ones.
THRESHOLD: Final = 2.5
#: The log odds of what shows nothing.
NEVER: Final = -99.0
#: Below so many characters, or so many bits of novelty, a repetition shows nothing.
_SHORTEST, _TRITE = 4, 10.0
#: Shorter echoes must be clearer by so many log odds.
_SHORT, _SHORT_PENALTY = 12, 1.0
#: Characters of a whole answer so far that, said again, are no accident.
_WHOLE: Final = 24
#: A shorter text before the seam cannot tell a rare step from a common one.
_ENOUGH_TEXT: Final = 400
#: Bits of novelty that a short text demands instead.
_NOVEL_LINE, _NOVEL_WORDS, _NOVEL_LINES = 24.0, 32.0, 64.0

#: The start of a list item or heading, with the first letter of its text.
_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,3}[.)]|#{1,6}) \w")
#: What closes something says nothing of its own: tags, brackets, marks.
_PLAIN: Final = re.compile(r"</\w+>|[^\w]+")
#: The end of a sentence before the next one begins.
_SENTENCE_END: Final = re.compile(r"(?:[.!?:] |[。！？]|[.!?][\"”]? )$")  # noqa: RUF001 - their marks


def odds(before: str, head: str, size: int) -> float:
    """Log odds that the first `size` characters of `head` are an echo of the end of `before`.

    `before` must end with them.
    """
    known = foregone(before, head, size)
    if known is not None:
        return known
    measured = features(before, head, size)
    table = weights.AFTER if before.endswith("\n") else weights.INSIDE
    return measured["short"] + sum(weight * measured[name] for name, weight in table.items())


def foregone(before: str, head: str, size: int) -> float | None:
    """The odds where they need no weights, as a guard or a plain sign decides; otherwise None."""
    if size == len(before) == len(head) and size < 200:
        return NEVER
    if _begins_again(before, head, size):
        return 2 * THRESHOLD
    if _is_trite(before, head[:size]):
        return NEVER
    if len(before) < _ENOUGH_TEXT:
        return _odds_in_little(before, head, size)
    window = before[-_WINDOW:]
    in_run = common_suffix(window, window[: len(window) - size]) >= size
    return NEVER if in_run else None


def features(before: str, head: str, size: int) -> dict[str, float]:
    """What is measured about the first `size` characters of `head`, which `before` ends with."""
    window = before[-_WINDOW:]
    echo, rest = head[:size], head[size : size + 4]
    previous = before[-size - 1 : -size]
    sentence = bool(_SENTENCE_END.search(before[max(0, len(before) - size - 3) : -size]))
    run = common_suffix(window, window[: len(window) - size])
    pair = seen_with(window, window, head[:2])
    quad = seen_with(window, window, head[:4])
    joined = seen_with(window, window, rest)
    doubled = seen_with(window, window + echo, rest)
    word = before[-1].isalnum() and head[0].isalnum()
    new = novelty(before, echo, enough=48.0)
    # A character of Chinese, Japanese or Korean says as much as two or three letters.
    weight = size if echo.isascii() else size + 1.5 * sum(char >= "\u2e80" for char in echo)
    return {
        "const": 1.0,
        # How long it is, how new its words are, and whether it stands alone.
        "length": log2(min(weight, 512)),
        "short": -_SHORT_PENALTY if size < _SHORT else 0.0,
        "new": new,
        "long_new": log2(max(1.0, min(weight, 192) / 48)) if new >= 40 else 0.0,
        "whole": size == len(head) and new >= 32,
        # The run before it, with the same period.
        "run": log2(1 + run),
        "run_any": run >= 1,
        # The step from the end of the text to its start: how much of it occurs elsewhere.
        "pair_0": pair < 1,
        "pair_1": pair < 2,
        "pair_2": pair < 3,
        "quad_0": quad < 1,
        "quad_3": quad < 4,
        # Where it starts, and where the text stopped.
        "line_start": previous in ("\n", ""),
        "sentence_start": sentence and new >= 24,
        "in_word": previous.isalnum() and echo[0].isalnum(),
        "word_start": word and not previous.isalnum(),
        "stutter": word and echo.isalpha() and not previous.isalnum(),
        "retyped": _retyped(before, echo, rest),
        "word_step": word,
        "lines": "\n" in echo,
        "newline_first": echo[0] == "\n",
        "space_last": before[-1].isspace(),
        # What follows it: whether that fits the end of the text better than its own end.
        "goes_on": before[-1].isalnum() and rest[:1].isalnum(),
        "fit": min(4, max(0, joined - size)) - min(4, max(0, doubled - size)),
    }


# Signs that need no weights -------------------------------------------------------------------


def _begins_again(before: str, head: str, size: int) -> bool:
    """Whether the unfinished line or sentence is begun again from its start.

    The step back to that start must be one that the text takes nowhere: then such a thing is
    telling even where it is short.
    """
    start = len(before) - size
    if start == 0 and size < _WHOLE:
        return False  # two words said twice may well be the answer
    line_start = before[start - 1 : start] in ("\n", "")
    if not (line_start or _SENTENCE_END.search(before[max(0, start - 2) : start])):
        return False
    unit, window = head[:size], before[-_WINDOW:]
    indent = size - len(unit.lstrip())
    if len(head) == size or not unit.strip() or unit.endswith("\n"):
        return False
    if line_start and indent >= 2:
        return seen_with(window, window, head[: indent + 1]) < 1
    step = before[-2:] + head[:2]
    return step not in window and _is_telling(unit, head[size], window)


def _is_telling(unit: str, following: str, window: str) -> bool:
    """Whether a short first part of a line or sentence is more than a sign or a number."""
    if ord(unit[0]) >= 0x2E80:
        return len(unit) >= 5 or (len(unit) >= 3 and unit + following in window)
    if len(set(unit)) < 2 or not any(map(str.isalpha, unit)):
        return False
    if (len(unit) >= 4 and not unit.isalnum()) or _ITEM.match(unit):
        return True
    return len(unit) >= 3 and not following.isalnum() and unit + following in window


def _is_trite(before: str, echo: str) -> bool:
    """Whether an echo is too short, too plain or too much of a run to show anything."""
    if len(echo) < _SHORTEST or is_run(echo) or not _PLAIN.sub("", echo):
        return True
    letters = sum(map(str.isalpha, echo))
    plain_line = before.endswith("\n") and echo.count("\n") < 2 and len(echo) < 24
    needed = 2 * _TRITE + 4 if plain_line or (len(echo) < 12 and letters < _SHORTEST) else _TRITE
    return novelty(before, echo, enough=needed) < needed


def is_run(echo: str) -> bool:
    """Whether `echo` itself repeats one unit: then the text is in a run and may stay in it."""
    unit = echo.find(echo[: len(echo) // 3], 1)
    return 0 < unit <= len(echo) * 2 // 3 and echo.startswith(echo[unit:])


def _retyped(before: str, echo: str, rest: str) -> bool:
    """Whether a cut word was begun again and finished: "impor" and then "important"."""
    word = len(echo) >= 4 and echo.isalpha() and rest[:1].isalpha()
    return word and not before[-len(echo) - 1 : -len(echo)].isalnum() and ord(echo[0]) < 0x2E80


def _odds_in_little(before: str, head: str, size: int) -> float:
    if _retyped(before, head[:size], head[size : size + 4]):
        return THRESHOLD + 2
    new = novelty(before, head[:size])
    if before.endswith("\n"):
        needed = _NOVEL_LINES
    elif before[-size - 1 : -size] in ("\n", ""):
        needed = _NOVEL_LINE
    else:
        needed = _NOVEL_WORDS
    return THRESHOLD + (new - needed) / 4 if size >= 8 else -9.0


# Measuring --------------------------------------------------------------------------------------


def novelty(before: str, repeated: str, *, enough: float = 96.0) -> float:
    """Bits it takes to write `repeated`, with which `before` ends, given what came before it.

    Coded the way a small compressor would; counting stops at `enough` bits.
    """
    known = before[max(0, len(before) - len(repeated) - _WINDOW) : len(before) - len(repeated)]
    led_by = before[-_CONTEXT:] + repeated
    literal = max(0.5, 0.75 * log2(len(set(before[-512:] or repeated[:512])) or 1))
    bits, at = 0.0, 0
    while at < len(repeated) and bits < enough:
        text = known + repeated[:at]
        length = _copied(text, led_by[at : at + _CONTEXT], repeated, at)
        if length:
            bits += _PREDICTED
        else:
            length = max(1, _copied(text, "", repeated, at))
            bits += min(length * literal, _COPIED)
        at += length
    return bits


def _copied(known: str, context: str, text: str, at: int) -> int:
    """How many characters of `text` from `at` on occur in `known` right after `context`."""
    most = min(_PHRASE, len(text) - at)
    return _longest(most, lambda n: context + text[at : at + n] in known)


def seen_with(known: str, left: str, right: str, most: int = 12) -> int:
    """The longest ending of `left` (at most `most`) that `right` follows in `known`.

    -1 when `right` does not occur at all.
    """
    if not right or right not in known:
        return -1
    return _longest(min(most, len(left)), lambda n: left[len(left) - n :] + right in known)


def common_suffix(left: str, right: str, most: int = 1024) -> int:
    """Length of the longest common ending, at most `most`."""
    most = min(len(left), len(right), most)
    return _longest(most, lambda n: left.endswith(right[len(right) - n :]))


def common_prefix(left: str, right: str) -> int:
    """Length of the longest common beginning."""
    return _longest(min(len(left), len(right)), lambda n: left.startswith(right[:n]))


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest length up to `most` that fits: found by doubling, then by halving."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
