"""How a recovery begins: the text that the model writes first, and where the answer continues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DONE = "The answer above is already complete."
PREAMBLE = "Continuing from where I left off:\n\n"
MANNERS = (
    *("exact", "anchor", "echo", "echo-word", "echo-line", "preamble", "fence", "restart"),
    *("whitespace", "skip", "prefill-echo", "done", "empty"),
)


@dataclass(frozen=True)
class RecoveryHead:
    """A recovery: the text `head`, and then, if `goes_on`, the answer from character `position`."""

    head: str
    position: int
    goes_on: bool = True


def recovery_head(manner: str, answer: str, position: int, prompt: str) -> RecoveryHead:
    """Return the beginning of a recovery.

    `position`: the characters of the answer so far. `prompt`: the user's turn before the recovery.
    """
    name, _, count = manner.partition(":")
    written, rest = answer[:position], answer[position:]
    match name:
        case "anchor":
            # Repeat the quoted words, and then white space that the quotation lacks.
            quotation = next(_quotations(prompt, written), "")
            whole = written.endswith(quotation)
            return RecoveryHead(quotation, position if whole else len(written.rstrip()))
        case "restart":
            return RecoveryHead("", 0)
        case "whitespace":
            eaten = len(rest) - len(rest.lstrip())
            return RecoveryHead("" if eaten else "\n", position + eaten)
        case "skip":
            return RecoveryHead("", min(len(answer), position + int(count)))
        case "done" | "empty":
            return RecoveryHead(DONE if name == "done" else "", position, goes_on=False)
        case "echo":
            return RecoveryHead(written[max(0, position - int(count)) :], position)
        case _:
            return RecoveryHead(_HEADS[name](written) if name in _HEADS else "", position)


def _fence(written: str) -> str:
    """Return the opening of a code fence, with the language of the fence that is still open."""
    opened = re.findall(r"^```([^\n`]*)$", written, re.MULTILINE)
    return f"```{opened[-1] if len(opened) % 2 else ''}\n"


_HEADS: dict[str, Callable[[str], str]] = {
    "echo-word": lambda written: "".join(re.findall(r"\S+\s*\Z", written)),
    "echo-line": lambda written: written[written.rstrip("\n").rfind("\n") + 1 :],
    "preamble": lambda _: PREAMBLE,
    "fence": _fence,
}
"""A manner -> a function from the text written so far to the text before the rest."""

_DELIMITED = (
    re.compile(r"<([A-Za-z][\w.-]*)[^<>]*>(.*?)</\1>", re.DOTALL),
    re.compile(r"(`{3,}|~{3,}|<<<+|\"{3}|'{3}|={3,}|-{3,})[^\n]*\n(.*?)\n?(?:\1|>>>+)", re.DOTALL),
    re.compile(r"([\"“«'`\[])(.*)[\"”»'`\]]", re.DOTALL),
)


def _quotations(prompt: str, written: str) -> Iterator[str]:
    """Yield the quotations of the text's end in the prompt.

    The delimited ones come first, the last of them before the others; then the longest one.
    """
    for delimiters in _DELIMITED:
        quoted = [match[2] for match in delimiters.finditer(prompt)]
        for text in reversed(quoted):
            for form in (text, text.strip("\r\n")):
                if form.strip() and (written.endswith(form) or written.rstrip().endswith(form)):
                    yield form
    longest = longest_tail(written, prompt)
    if len(longest.strip()) >= 4:
        yield longest


def longest_tail(text: str, whole: str) -> str:
    """Return the longest tail of `text` that `whole` contains, or `""`."""
    low, high = 0, min(len(text), len(whole))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[-middle:] in whole else (low, middle - 1)
    return text[len(text) - low :]
