"""How a model begins when it is asked to go on: what it says first, and where the rest begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DONE = "The answer above is already complete."
PREAMBLE = "Continuing from where I left off:\n\n"


@dataclass(frozen=True)
class RecoveryHead:
    """`head` is said first; then, if `goes_on`, the answer from character `position`."""

    head: str
    position: int
    goes_on: bool = True


@dataclass(frozen=True)
class _Seam:
    answer: str
    position: int
    prompt: str
    count: int

    @property
    def said(self) -> str:
        return self.answer[: self.position]

    @property
    def rest(self) -> str:
        return self.answer[self.position :]


def recovery_head(manner: str, answer: str, position: int, prompt: str) -> RecoveryHead:
    """Open a recovery that goes on at `position` after the user turn `prompt`, in a manner."""
    name, _, count = manner.partition(":")
    return _OPENINGS[name](_Seam(answer, position, prompt, int(count or 0)))


def _anchor(seam: _Seam) -> RecoveryHead:
    """Repeat the quoted words, and then the white space that the quotation may have lost."""
    quotation = next(_quotations(seam), "")
    trimmed = len(seam.said) - len(seam.said.rstrip())
    whole = seam.said.endswith(quotation)
    return RecoveryHead(quotation, seam.position if whole else seam.position - trimmed)


_DELIMITED = (
    re.compile(r"<([A-Za-z][\w.-]*)[^<>]*>(.*?)</\1>", re.DOTALL),
    re.compile(r"(`{3,}|~{3,}|<<<+|\"{3}|'{3}|={3,}|-{3,})[^\n]*\n(.*?)\n?(?:\1|>>>+)", re.DOTALL),
    re.compile(r"([\"“«'`\[])(.*)[\"”»'`\]]", re.DOTALL),
)


def _quotations(seam: _Seam) -> Iterator[str]:
    """Yield what the prompt quotes of the text so far: the last delimited, else the longest."""
    for delimiters in _DELIMITED:
        quoted = [match[2] for match in delimiters.finditer(seam.prompt)]
        for text in reversed(quoted):
            yield from (form for form in (text, text.strip("\r\n")) if _is_tail(form, seam.said))
    longest = _longest_tail_in(seam.prompt, seam.said)
    if len(longest.strip()) >= 4:
        yield longest


def _is_tail(text: str, said: str) -> bool:
    return bool(text.strip()) and (said.endswith(text) or said.rstrip().endswith(text))


def _longest_tail_in(prompt: str, said: str) -> str:
    low, high = 0, min(len(said), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if said[-middle:] in prompt else (low, middle - 1)
    return said[len(said) - low :]


def _echo_word(seam: _Seam) -> RecoveryHead:
    found = re.search(r"\S+\s*\Z", seam.said)
    return RecoveryHead(found[0] if found else "", seam.position)


def _echo_line(seam: _Seam) -> RecoveryHead:
    start = seam.said.rstrip("\n").rfind("\n") + 1
    return RecoveryHead(seam.said[start:], seam.position)


def _fence(seam: _Seam) -> RecoveryHead:
    """Open a code fence again, in the language of the one that is still open."""
    opened = re.findall(r"^```([^\n`]*)$", seam.said, re.MULTILINE)
    language = opened[-1] if len(opened) % 2 else ""
    return RecoveryHead(f"```{language}\n", seam.position)


def _whitespace(seam: _Seam) -> RecoveryHead:
    eaten = len(seam.rest) - len(seam.rest.lstrip())
    return RecoveryHead("" if eaten else "\n", seam.position + eaten)


_OPENINGS: dict[str, Callable[[_Seam], RecoveryHead]] = {
    "exact": lambda seam: RecoveryHead("", seam.position),
    "anchor": _anchor,
    "echo": lambda seam: RecoveryHead(
        seam.said[max(0, seam.position - seam.count) :], seam.position
    ),
    "echo-word": _echo_word,
    "echo-line": _echo_line,
    "preamble": lambda seam: RecoveryHead(PREAMBLE, seam.position),
    "fence": _fence,
    "restart": lambda seam: RecoveryHead("", 0),
    "whitespace": _whitespace,
    "skip": lambda seam: RecoveryHead("", min(len(seam.answer), seam.position + seam.count)),
    "prefill-echo": lambda seam: RecoveryHead("", seam.position),
    "done": lambda seam: RecoveryHead(DONE, seam.position, goes_on=False),
    "empty": lambda seam: RecoveryHead("", seam.position, goes_on=False),
}
MANNERS = tuple(_OPENINGS)
