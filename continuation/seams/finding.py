"""What the head of a later attempt shows, and how it is searched."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import exp
from typing import Final

from continuation.seams.preamble import LONGEST
from continuation.seams.verdict import SeamKind

__all__ = [
    "PROBE",
    "SURE",
    "TOP",
    "Finding",
    "bonus",
    "borders",
    "could_be_said",
    "ends_of_openings",
    "goes_round_early",
]

#: Characters by which an echo's end is found; shorter echoes are tried one by one.
PROBE: Final = 8
#: A restart shown by this much of the top of the answer needs no other evidence.
TOP: Final = 200
#: Log odds of what leaves no doubt.
SURE: Final = 12.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a head shows: `drop` characters to leave out, `insert` to put in their place."""

    kind: SeamKind
    drop: int = 0
    odds: float = SURE
    insert: str = ""
    own_fence: bool = False
    stalled: bool = False

    @property
    def confidence(self) -> float:
        """The odds as a probability."""
        return round(1 / (1 + exp(-max(-20.0, min(20.0, self.odds)))), 4)

    def after(self, skipped: int, kind: SeamKind) -> Finding:
        """The same finding behind an opening of `skipped` characters."""
        return replace(self, kind=kind, drop=self.drop + skipped)


def borders(text: str, head: str) -> list[int]:
    """Sizes, ascending, of the beginnings of `head` with which `text` ends."""
    short = [n for n in range(1, min(PROBE, len(head) + 1)) if text.endswith(head[:n])]
    if len(text) < PROBE:
        return short
    probe, at = text[-PROBE:], head.find(text[-PROBE:])
    while at >= 0 and len(short) < 24:
        if text.endswith(head[: at + PROBE]):
            short.append(at + PROBE)
        at = head.find(probe, at + 1)
    return short


def goes_round_early(head: str, size: int) -> bool:
    """Whether `head` seems to repeat its first `size` characters over and over."""
    known = min(size, 64)
    following = head[size : size + known]
    if len(following) == known:
        return head.startswith(following)
    return len(following) >= 3 and head.startswith(following)


def ends_of_openings(head: str) -> list[int]:
    """Where a preamble at the start of `head` may end: after lines, or after a colon."""
    ends = [found.end() for found in re.finditer(r"\n[ \t\r]*\n|\n", head[: LONGEST + 20])]
    colon = re.match(r"[^\n:\uff1a]{2,160}[:\uff1a…][^\S\n]+(?=\S)", head)
    if colon:
        ends.append(colon.end())
    return sorted(set(ends))[:6]


def could_be_said(head: str) -> bool:
    said = head.lstrip()
    return bool(said) and (said[0].isupper() or ord(said[0]) >= 0x590 or said[0] in "[(*_")


def bonus(inner: Finding, length: int) -> float:
    """Points for what a preamble is followed by."""
    if inner.kind is SeamKind.ANCHOR or inner.drop >= max(length, TOP):
        return 5.0
    return 3.0 if inner.kind in (SeamKind.ECHO, SeamKind.FENCE, SeamKind.RESTART) else 0.0
