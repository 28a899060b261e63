"""The seam: where the text of a later attempt is joined to the text before it.

The `Judge` reads the head, which is the beginning of that attempt. `Seam` receives the attempt's
pieces as they arrive, decides by the judge's finding, and returns text to deliver. It has three
states:

- It buffers the **head**. The head is judged at fixed lengths, so the result does not depend on the
  pieces. Most continuations are delivered after 24 to 48 characters.
- A head of the greatest length (the anchor and `hold` more) that repeats earlier text word for word
  is a **replay**. The seam follows it by position until it differs from that text, or continues
  after its end. Any other head of that length must be judged as it is.
- After the **verdict**, text passes through.

After a prefill there is little to decide; `_after_prefill` does it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from math import exp
from typing import Final

from continuation.seams.earlier import EarlierText
from continuation.seams.judge import Finding, Judge, Judgement, SeamKind
from continuation.seams.preamble import may_begin_words
from continuation.seams.text import common_prefix, is_run

#: How models write their thoughts into a text that no server parses.
_THOUGHTS: Final = ("<think>", "</think>")

#: Lengths of the head at which it is judged, independent of its pieces.
_LOOKS: Final = (24, 48, 80, 128, 200, 320, 480)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result at one seam: counts only, never message text."""

    kind: SeamKind
    """What was found at the seam."""
    dropped: int = 0
    """Characters of the later attempt that were dropped."""
    taken_back: int = 0
    """Characters removed from the end of the earlier text."""
    inserted: int = 0
    """Characters added between the two texts."""
    confidence: float = 1.0
    """The certainty of the finding, from 0 to 1."""


class Seam:
    """Joins one later attempt's text to the text before it, piece by piece.

    before: the visible text of the turn so far, exactly as generated.
    anchor: the end of `before` that the recovery prompt asked the model to repeat, if any.
    prefilled: the text sent as the trailing assistant message, if the attempt is a prefill.
    unshown: how many characters at the end of `before` are not delivered and can be removed.
    hold: how many characters of the head, besides the anchor, may be buffered.
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
        self._earlier = EarlierText(before, anchor)
        self._judge = Judge(self._earlier)
        self._anchor = anchor or ""
        self._follows: str | None = None
        """The text after the anchor, while it may be a second copy of the anchor."""
        thinks = prefilled is None and before.lstrip().startswith(_THOUGHTS[0])
        self._thoughts = _Thoughts() if thinks and _THOUGHTS[1] in before else None
        """Drops thoughts, if the text began with thoughts, so that this attempt may too."""
        self._skipped = 0
        """Characters of thoughts that were dropped."""
        self._head = ""
        self._replay: Replay | None = None
        self._opening = ""
        """The part of the head before a replay."""
        self._fence: str | None = None
        """Buffered text that may close a fence after its opening line was dropped."""
        self.restarted = False
        """Whether the attempt only repeated the answer's beginning."""
        self.verdict: Verdict | None = None
        """The result; `None` until it is decided."""

    def feed(self, piece: str) -> str:
        """Process a piece of the attempt's text; return the text to deliver now."""
        if self.verdict is not None:
            return self._pass(piece)
        if self._replay is not None:
            return self._follow(self._replay, piece)
        if self._thoughts is not None:
            piece = self._thoughts.feed(piece)
            if piece:
                self._skipped, self._thoughts = self._thoughts.skipped, None
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
                found = self._find(final=True) or Finding(SeamKind.ASSUMED, 0, 0.0)
            if found is not None:
                return self._decide(found) + self.feed(piece[at:])
        return ""

    def finish(self, stop: str = "", *, refused: bool = False) -> str:
        """End the attempt's text; return the buffered text that still has to be delivered.

        `stop` is the stop sequence at which the text ended, if the provider named one. `refused`:
        the attempt ended with a refusal. Buffered text that repeats nothing and begins a sentence
        is then the refusal, not the answer.
        """
        if self._replay is not None:
            return self._leave(self._replay, ended=True)
        if self._thoughts is not None:  # the thoughts did not end, or there were none
            self._skipped, self._head = self._thoughts.skipped, self._thoughts.finish()
        shown = ""
        if self.verdict is None:
            found = self._judge.adds_nothing(self._head, stop) if self._prefilled is None else None
            found = found or self._find(final=True) or Finding(SeamKind.ASSUMED, 0, 0.0)
            unproven = found.kind in (SeamKind.ASSUMED, SeamKind.WHITESPACE, SeamKind.SKIP)
            if refused and unproven and may_begin_words(self._before, self._head):
                found = Finding(SeamKind.EMPTY, len(self._head))
            shown = self._decide(found)
        held, self._fence = self._fence or "", None
        if held.strip() in ("```", "~~~"):
            self._drop_more(len(held))
            held = ""
        return shown + held

    # While the head is buffered ----------------------------------------------------------

    def _find(self, *, final: bool) -> Finding | None:
        if self._prefilled is not None:
            return _after_prefill(self._before, self._prefilled, self._head, final=final)
        return Judgement(self._earlier, final=final).look(self._head)

    def _replays(self) -> bool:
        """Whether a head of the greatest length repeats earlier text. If so, follow the replay."""
        if self._prefilled is not None:
            self._replay = Replay(self._prefilled, 0, len(self._head))
        elif place := self._judge.replays(self._head):
            at, start = place
            self._opening = self._head[:at]
            self._replay = Replay(self._earlier.text, start, start + len(self._head) - at)
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
            # The server sent the complete prefill back. Buffer the text after it until its white
            # space is decided.
            self._head = replay.source[: replay.at]
            self._looks = [taken + n for n in (1, 2, 3, 4, 8, 16, 32)]
            self._hold = self._looks[-1]
            return self.feed(rest)
        self._head = ""
        return self._decide(Finding(SeamKind.RESTART, taken)) + self.feed(rest)

    def _leave(self, replay: Replay, *, ended: bool = False) -> str:
        """Deliver a replay that differs from the text before the text's end.

        Do not if the attempt has ended and the replay is all of it.
        """
        self._replay = None
        self._head = self._opening + replay.source[replay.start : replay.at]
        if ended and not replay.source[: replay.start].strip():
            self.restarted = True
            kind = SeamKind.RESTART if self._prefilled is None else SeamKind.PREFILL
            return self._decide(Finding(kind, len(self._head), 6.0))
        found = self._judge.opening(self._head, len(self._opening)) if self._opening else None
        return self._decide(found or Finding(SeamKind.ASSUMED, 0, 0.0))

    # Once it is decided ------------------------------------------------------------------

    def _decide(self, found: Finding) -> str:
        rest, self._head = self._head[found.drop :], ""
        # Remove the U+FFFD of half a character from the end of `before`, unless the attempt begins
        # with one too.
        broken = len(self._before) - len(self._before.rstrip("\ufffd"))
        takes = bool(rest) and not rest.startswith("\ufffd") and broken <= 3
        back = found.back + (broken if takes else 0)
        self.verdict = Verdict(
            kind=found.kind,
            dropped=found.drop + self._skipped,
            taken_back=min(back, self._unshown),
            inserted=len(found.insert),
            confidence=round(1 / (1 + exp(-max(-20.0, min(20.0, found.odds)))), 4),
        )
        self._fence = "" if found.own_fence else None
        self._follows = "" if found.kind is SeamKind.ANCHOR else None
        return self._pass(found.insert + rest)

    def _pass(self, text: str) -> str:
        if self._follows is not None and self.verdict is not None:
            self._note_second_anchor(self._follows + text, self.verdict)
        return text if self._fence is None else self._without_own_fence(self._fence + text)

    def _note_second_anchor(self, follows: str, verdict: Verdict) -> None:
        """Withdraw the proof by the anchor if it comes twice: one copy may belong to the text."""
        again = follows.startswith(self._anchor)
        self._follows = follows if self._anchor.startswith(follows) and not again else None
        if again:
            self.verdict = replace(verdict, kind=SeamKind.ASSUMED, confidence=0.5)

    def _without_own_fence(self, held: str) -> str:
        """Return the text to deliver, without the end line of a fence with a dropped first line."""
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
    """Join two complete texts, as a `Seam` does with `after` in any pieces.

    `unshown=None`: nothing of `before` was delivered yet. Return the joined text and the verdict.
    """
    unshown = len(before) if unshown is None else unshown
    seam = Seam(before, anchor=anchor, prefilled=prefilled, unshown=unshown)
    shown = seam.feed(after) + seam.finish()
    assert seam.verdict is not None
    return before[: len(before) - seam.verdict.taken_back] + shown, seam.verdict


def _after_prefill(before: str, prefilled: str, head: str, *, final: bool) -> Finding | None:
    """Return the finding for `head` after the prefill `prefilled`; `None`: more text is needed.

    Some servers send the prefilled text back first. White space at the end of `before` is not part
    of `prefilled`, but it is delivered already. So it is dropped if the model writes it again, and
    stays otherwise.
    """
    if not head:
        return Finding(SeamKind.EMPTY) if final else None
    echoed = 0
    # A shorter prefill may be repeated by chance, and a run continues by repetition.
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
    kind = SeamKind.PREFILL if echoed else SeamKind.WHITESPACE if same else SeamKind.ASSUMED
    return Finding(kind, echoed + same, 0.0 if kind is SeamKind.ASSUMED else 12.0)


class _Thoughts:
    """Leaves out the thoughts that an attempt begins with, and the newlines after them."""

    def __init__(self) -> None:
        self.skipped = 0
        """Characters left out."""
        self._pieces: list[str] = []
        """All that came while it is unknown whether the attempt begins with thoughts."""
        self._end = ""
        """The last characters that came: the half of a tag, if they are one."""
        self._begun = self._ended = False

    def feed(self, piece: str) -> str:
        """Take a piece; return what follows the thoughts, or all if there are none; `""`: wait."""
        begin, end = _THOUGHTS
        if self._ended:
            rest = piece.lstrip("\n")
            self.skipped += len(piece) - len(rest)
            return rest
        text = self._end + piece
        if not self._begun:
            self._pieces.append(piece)
            text = text.lstrip()
            if not text.startswith(begin):
                self._end = text
                return "" if begin.startswith(text) else self.finish()
            self._begun, piece = True, self.finish()
        self.skipped += len(piece)
        thoughts, ended, rest = text.partition(end)
        if not ended:
            self._end = thoughts[1 - len(end) :]
            return ""
        self._ended = True
        rest = rest.lstrip("\n")
        self.skipped -= len(rest)
        return rest

    def finish(self) -> str:
        """Return the buffered text if it is not thoughts; `""`: there is none."""
        pieces, self._pieces = self._pieces, []
        return "".join(pieces)


class Replay:
    """Follows a text that repeats `source` from `start` on and has repeated it up to `at`."""

    def __init__(self, source: str, start: int = 0, at: int = 0) -> None:
        self.source = source
        self.start = start
        self.at = at
        self.lost = False
        """Whether the text differed from the source before the source's end."""

    @property
    def done(self) -> bool:
        """Whether the source was repeated to its end, so that all further text is new."""
        return self.at >= len(self.source) and not self.lost

    def feed(self, piece: str) -> str:
        """Process a piece of the text; return the part that does not repeat the source."""
        if self.lost:
            return piece
        expected = self.source[self.at : self.at + len(piece)]
        same = len(piece) if piece == expected else common_prefix(piece, expected)
        self.at += same
        self.lost = same < len(expected)
        return piece[same:]
