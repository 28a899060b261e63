"""The start of an attempt made by prefill, where the model goes on right after the text sent."""

from __future__ import annotations

from typing import Final

from continuation.seams.finding import Finding
from continuation.seams.verdict import SeamKind

__all__ = ["look_after_prefill"]

#: A shorter prefill may well be repeated by chance.
_TELLING: Final = 16


def look_after_prefill(before: str, prefilled: str, head: str, *, final: bool) -> Finding | None:
    """The finding about `head`, or None while more of it is needed.

    Some servers send the prefilled text back before going on. White space at the end of `before`
    was stripped on the wire: it is shown already, so it is dropped when the model writes it
    again, and stays when the model does not.
    """
    if not head:
        return Finding(SeamKind.EMPTY) if final else None
    echoed = 0
    if len(prefilled) >= _TELLING:
        if head.startswith(prefilled):
            echoed = len(prefilled)
        elif not final and prefilled.startswith(head):
            return None
    rest, stripped = head[echoed:], before[len(prefilled) :]
    space = rest[: len(rest) - len(rest.lstrip())]
    if not final and stripped and space == rest and len(space) <= len(stripped):
        return None
    same = _shared(stripped, space)
    kind = SeamKind.PREFILL if echoed else SeamKind.WHITESPACE if same else SeamKind.EXACT
    return Finding(kind, echoed + same)


def _shared(stripped: str, space: str) -> int:
    """How much of `space`, written after a prefill, stands in `stripped` already."""
    if stripped.startswith(space):
        return len(space)
    same = 0
    while same < len(stripped) and stripped[same] == space[same]:
        same += 1
    return same
