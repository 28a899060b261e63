"""The seam: where the text of a later attempt is joined onto the text before it.

What the head of that attempt shows is for the `Judge` to say. `Seam` takes the pieces as they
arrive, decides by what the judge finds, and gives back what may be shown. It is in one of three
states:

- The **head** is held. It is looked at whenever it has one of a fixed list of lengths, so that the
  pieces in which it came make no difference; most continuations are let go after 24 to 48
  characters.
- A head that is as long as it may get (the anchor and `hold` more) and repeats earlier text word
  for word is **replayed**: followed by position until it leaves that text or goes on from its end.
  Any other must be judged as it is.
- After the **verdict** text passes through.

After a prefill there is hardly anything to decide, and `_after_prefill` does it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from math import exp
from typing import Final

from continuation.seams.judge import Finding, Judge, SeamKind
from continuation.seams.text import common_prefix, is_run

#: Lengths of the head at which it is looked at, whatever pieces it came in.
_LOOKS: Final = (24, 48, 80, 128, 200, 320, 480)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was done at one seam: counts only, never message text."""

    kind: SeamKind
    """What was found there."""
    dropped: int = 0
    """Characters of the later attempt that were not shown."""
    taken_back: int = 0
    """Characters removed from the end of the earlier text."""
    inserted: int = 0
    """Characters we added between the two."""
    confidence: float = 1.0
    """How sure the finding is, from 0 to 1."""


class Seam:
    """Joins one later attempt's text onto the text before it, piece by piece.

    before: the visible text of the turn so far, exactly as generated.
    anchor: the words with which it ends and which the recovery prompt asked for, if it asked.
    prefilled: the text sent as the trailing assistant message, when the attempt is a prefill.
    unshown: how many characters at the end of `before` may still be taken back.
    """

    def __init__(
        self,
        before: str,
        *,
        anchor: str | None = None,
        prefilled: str | None = None,
        unshown: int = 0,
        hold: int = 600,
    ) -> None:
        self._before = before
        self._prefilled = prefilled
        self._unshown = unshown
        known = len(anchor or "")
        self._hold = hold + known
        looks = sorted({0, *_LOOKS, known, known + 24})
        self._looks = [*looks[1 : bisect_left(looks, self._hold)], self._hold]
        self._judge = Judge(before, anchor)
        self._head = ""
        self._replay: Replay | None = None
        self._opening = ""
        """What stood before a replay began."""
        self._fence: str | None = None
        """What may be the line that closes a fence whose opening line was dropped."""
        self.restarted = False
        """Whether the attempt only said again how the answer began, and got no further."""
        self.verdict: Verdict | None = None
        """What was done, once it is decided."""

    def feed(self, piece: str) -> str:
        """Take a piece of the attempt's text; return what may be shown now."""
        if self.verdict is not None:
            return self._pass(piece)
        if self._replay is not None:
            return self._follow(self._replay, piece)
        at = 0
        while at < len(piece):
            look = self._looks[bisect_right(self._looks, len(self._head))]
            upto = min(len(piece), at + look - len(self._head))
            self._head += piece[at:upto]
            at = upto
            if len(self._head) < look:
                continue
            found = self._find(final=False)
            if found is None and look == self._hold:
                if self._replays():
                    return self.feed(piece[at:])
                found = self._find(final=True) or Finding(SeamKind.EXACT)
            if found is not None:
                return self._decide(found) + self.feed(piece[at:])
        return ""

    def finish(self, stop: str = "") -> str:
        """The attempt's text has ended: return what was held and must be shown after all.

        `stop` is the stop sequence at which it ended, if the provider named one.
        """
        if self._replay is not None:
            return self._leave(self._replay, ended=True)
        shown = ""
        if self.verdict is None:
            found = self._judge.adds_nothing(self._head, stop) if self._prefilled is None else None
            self.restarted = found is not None and self._judge.restarted(self._head)
            found = found or self._find(final=True) or Finding(SeamKind.EXACT)
            shown = self._decide(found)
        held, self._fence = self._fence or "", None
        if held.strip() in ("```", "~~~"):
            self._drop_more(len(held))
            held = ""
        return shown + held

    # While the head is held --------------------------------------------------------------

    def _find(self, *, final: bool) -> Finding | None:
        if self._prefilled is not None:
            return _after_prefill(self._before, self._prefilled, self._head, final=final)
        return self._judge.look(self._head, final=final)

    def _replays(self) -> bool:
        """Whether a head that is as long as it may get repeats earlier text, to be followed."""
        if self._prefilled is not None:
            self._replay = Replay(self._prefilled, 0, len(self._head))
        elif place := self._judge.replays(self._head):
            at, start = place
            self._opening = self._head[:at]
            self._replay = Replay(self._judge.text, start, start + len(self._head) - at)
        return self._replay is not None

    # While a replay of the earlier text is followed ----------------------------------------

    def _follow(self, replay: Replay, piece: str) -> str:
        rest = replay.feed(piece)
        if not rest:
            return ""
        if replay.lost:
            return self._leave(replay) + self.feed(rest)
        self._replay = None
        taken = len(self._opening) + replay.at - replay.start
        if self._prefilled is not None:
            # The prefill came back whole: what follows is held until its white space is known.
            self._head = replay.source[: replay.at]
            self._looks = [taken + n for n in (1, 2, 3, 4, 8, 16, 32)]
            self._hold = self._looks[-1]
            return self.feed(rest)
        self._head = ""
        return self._decide(Finding(SeamKind.RESTART, taken)) + self.feed(rest)

    def _leave(self, replay: Replay, *, ended: bool = False) -> str:
        """The replay stopped short of the text's end: it is shown, unless it was all."""
        self._replay = None
        self._head = self._opening + replay.source[replay.start : replay.at]
        if ended and not replay.source[: replay.start].strip():
            self.restarted = True
            kind = SeamKind.RESTART if self._prefilled is None else SeamKind.PREFILL
            return self._decide(Finding(kind, len(self._head), 6.0))
        found = self._judge.opening(self._head, len(self._opening)) if self._opening else None
        return self._decide(found or Finding(SeamKind.EXACT, 0, 0.0))

    # Once it is decided ------------------------------------------------------------------

    def _decide(self, found: Finding) -> str:
        rest, self._head = self._head[found.drop :], ""
        # Half a character arrived with each attempt: the first half's sign is taken back.
        broken = len(self._before) - len(self._before.rstrip("\ufffd"))
        takes = bool(rest) and not rest.startswith("\ufffd") and broken <= 3
        back = found.back + (broken if takes else 0)
        self.verdict = Verdict(
            kind=found.kind,
            dropped=found.drop,
            taken_back=min(back, self._unshown),
            inserted=len(found.insert),
            confidence=round(1 / (1 + exp(-max(-20.0, min(20.0, found.odds)))), 4),
        )
        self._fence = "" if found.own_fence else None
        return self._pass(found.insert + rest)

    def _pass(self, text: str) -> str:
        return text if self._fence is None else self._without_own_fence(self._fence + text)

    def _without_own_fence(self, held: str) -> str:
        """Hold back the line that closes a fence whose opening line was dropped."""
        places = (held.find(marker) for marker in ("\n```", "\n~~~"))
        bare = [at for at in places if at >= 0 and not held[at + 4 :].partition("\n")[0].strip()]
        at = bare[0] if bare else held.rfind("\n")
        end = held.find("\n", at + 1)
        if bare and end >= 0:
            self._fence = None
            self._drop_more(end - at)
            return held[:at] + held[end:]
        if not bare and (at < 0 or held[at + 1 :] not in ("", "`", "``", "~", "~~")):
            at = len(held)
        self._fence = held[at:]
        return held[:at]

    def _drop_more(self, count: int) -> None:
        assert self.verdict is not None
        self.verdict = replace(self.verdict, dropped=self.verdict.dropped + count)


def join(
    before: str,
    after: str,
    *,
    anchor: str | None = None,
    prefilled: str | None = None,
    unshown: int | None = None,
) -> tuple[str, Verdict]:
    """Join two whole texts: the same as a `Seam` that was fed with `after` in any pieces.

    `unshown=None` means that none of `before` has reached the caller yet. Returns the joined
    text and the verdict.
    """
    unshown = len(before) if unshown is None else unshown
    seam = Seam(before, anchor=anchor, prefilled=prefilled, unshown=unshown)
    shown = seam.feed(after) + seam.finish()
    assert seam.verdict is not None
    return before[: len(before) - seam.verdict.taken_back] + shown, seam.verdict


def _after_prefill(before: str, prefilled: str, head: str, *, final: bool) -> Finding | None:
    """The finding about `head` where the model goes on right after `prefilled`, or None for more.

    Some servers send the prefilled text back before going on. White space at the end of `before`
    was stripped on the wire: it is shown already, so it is dropped when the model writes it
    again, and stays when the model does not.
    """
    if not head:
        return Finding(SeamKind.EMPTY) if final else None
    echoed = 0
    # A shorter one may well be repeated by chance, and one unit over and over goes on like that.
    repeats = len(prefilled) >= 16 and head.startswith(prefilled[: len(head)])
    if repeats and not is_run(prefilled):
        again = head[len(prefilled) :]
        if not final and prefilled.startswith(again):
            return None
        if head.startswith(prefilled) and not (again and again.startswith(prefilled)):
            echoed = len(prefilled)
    rest, stripped = head[echoed:], before[len(prefilled) :]
    space = rest[: len(rest) - len(rest.lstrip())]
    if not final and stripped and space == rest and len(space) <= len(stripped):
        return None
    same = common_prefix(stripped, space)
    kind = SeamKind.PREFILL if echoed else SeamKind.WHITESPACE if same else SeamKind.EXACT
    return Finding(kind, echoed + same)


class Replay:
    """Follows a text that says `source` again from `start` on, and has said it up to `at`."""

    def __init__(self, source: str, start: int = 0, at: int = 0) -> None:
        self.source = source
        self.start = start
        self.at = at
        self.lost = False
        """Whether the text left the source before its end."""

    @property
    def done(self) -> bool:
        """Whether the source was said to its end, so that all that follows is new."""
        return self.at >= len(self.source) and not self.lost

    def feed(self, piece: str) -> str:
        """Take a piece of the text; return what of it the source does not say here."""
        if self.lost:
            return piece
        expected = self.source[self.at : self.at + len(piece)]
        same = len(piece) if piece == expected else common_prefix(piece, expected)
        self.at += same
        self.lost = same < len(expected)
        return piece[same:]
