"""The seam: where the text of a later attempt is joined onto the text before it.

Three tools, in this order. Where the attempt was made by prefill (or by a continuation token)
there is no seam: only a prefill sent back is cut off, and white space that was stripped on the
wire is reconciled. Where the recovery prompt asked for an anchor, the anchor is the cut. Where
the model did not oblige, an overlap is measured: text is dropped only on evidence that outweighs
the chance of the document repeating itself, and otherwise kept, because doubled text can be
seen and lost text cannot. `design/seams.md` has the reasoning and the figures.
"""

from __future__ import annotations

from typing import Final

from continuation.seams.evidence import common_suffix, novelty
from continuation.seams.finding import Finding
from continuation.seams.judge import Judge
from continuation.seams.loop import ProgressWatch, is_loop
from continuation.seams.prefill import look_after_prefill
from continuation.seams.replay import Replay
from continuation.seams.verdict import SeamKind, Verdict

__all__ = ["Seam", "SeamKind", "Verdict", "choose_anchor", "is_loop", "join"]

#: Lengths of the head at which it is looked at, whatever pieces it came in.
_LOOKS: Final = (24, 48, 80, 128, 200, 320, 480)
#: Shortest and longest anchor, and the bits that make one unlikely to follow by chance.
_SHORTEST, _LONGEST, _BITS = 24, 400, 56.0
#: How far back an anchor must be unique.
_UNIQUE_IN: Final = 262144


class Seam:
    """Joins one later attempt's text onto the text before it, piece by piece.

    Only the head of the attempt is held back: at most `hold` characters and the anchor, longer
    only while it replays the earlier text word for word. How the text is cut into pieces makes
    no difference to the result.

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
        self._hold = hold + len(anchor or "")
        known = len(anchor or "")
        looks = {*_LOOKS, known, known + 24}
        self._looks = [*sorted(n for n in looks if 0 < n < self._hold), self._hold]
        self._judge = Judge(before, anchor)
        self._head = ""
        self._replay: Replay | None = None
        self._watch: ProgressWatch | None = None
        self._fence: str | None = None
        self._nothing_new = False
        self.verdict: Verdict | None = None

    @property
    def take_back(self) -> int:
        """Characters to remove from the end of `before`; 0 until the seam is decided."""
        return self.verdict.taken_back if self.verdict else 0

    @property
    def stalled(self) -> bool:
        """Whether the text brings nothing new, so that the attempt should be stopped."""
        return self._nothing_new or (self._watch is not None and self._watch.stalled)

    def feed(self, piece: str) -> str:
        """Take a piece of the attempt's text; return what may be shown now."""
        if self.verdict is not None:
            return self._pass(piece)
        if self._replay is not None:
            return self._follow(piece)
        at = 0
        while at < len(piece):
            upto = min(len(piece), at + self._next_look() - len(self._head))
            self._head += piece[at:upto]
            at = upto
            shown = self._consider()
            if shown is not None:
                return shown + self.feed(piece[at:])
        return ""

    def finish(self) -> str:
        """The attempt's text has ended: return what was held and must be shown after all."""
        if self.verdict is not None:
            return self._last_line()
        if self._replay is not None:
            return self._give_up_replay(ended=True)
        found = self._find(final=True)
        return self._settle(found or Finding(SeamKind.EXACT)) + self._last_line()

    # While the head is held --------------------------------------------------------------

    def _next_look(self) -> int:
        return next(n for n in self._looks if n > len(self._head))

    def _consider(self) -> str | None:
        """Look at the head when it has reached one of the lengths for that."""
        if len(self._head) not in self._looks:
            return None
        full = len(self._head) >= self._hold
        found = self._find(final=False)
        if found is None and full:
            return self._decide_full()
        return None if found is None else self._settle(found)

    def _find(self, *, final: bool) -> Finding | None:
        if self._prefilled is not None:
            return look_after_prefill(self._before, self._prefilled, self._head, final=final)
        if final and self._judge.restarted(self._head):
            self._nothing_new = True
            return Finding(SeamKind.RESTART, len(self._head), 6.0)
        return self._judge.look(self._head, final=final)

    def _decide_full(self) -> str | None:
        """The head is as long as it may get: a replay is followed, all else is decided now."""
        if self._prefilled is not None:
            place: tuple[int, int] | None = 0, 0
            kind, source = SeamKind.PREFILL, self._prefilled
        else:
            place = self._judge.replays(self._head)
            kind, source = SeamKind.RESTART, self._judge.text
        if place is not None:
            self._replay = Replay(source, self._head, *place, kind)
            return ""
        return self._settle(self._find(final=True) or Finding(SeamKind.EXACT))

    # While a replay of the earlier text is followed ----------------------------------------

    def _follow(self, piece: str) -> str:
        replay = self._replay
        assert replay is not None
        rest = replay.feed(piece)
        if rest is None:
            return ""
        if replay.diverged:
            return self._give_up_replay() + self.feed(rest)
        self._replay = None
        if replay.kind is SeamKind.PREFILL:
            return self._after_prefill(replay, rest)
        return self._settle(Finding(replay.kind, replay.taken), rest_only=True) + self.feed(rest)

    def _after_prefill(self, replay: Replay, rest: str) -> str:
        """The prefill came back whole; what follows is held until its white space is known."""
        self._head = replay.text()
        self._looks = [replay.taken + n for n in (1, 2, 3, 4, 8, 16, 32)]
        self._hold = self._looks[-1]
        return self.feed(rest)

    def _give_up_replay(self, *, ended: bool = False) -> str:
        replay = self._replay
        assert replay is not None
        self._replay = None
        self._head = replay.text()
        if ended and replay.brings_nothing:
            self._nothing_new = True
            return self._settle(Finding(replay.kind, len(self._head), 6.0))
        return self._settle(Finding(SeamKind.EXACT, 0, 0.0))

    # Once it is decided ------------------------------------------------------------------

    def _settle(self, found: Finding, *, rest_only: bool = False) -> str:
        rest = "" if rest_only else self._head[found.drop :]
        self._head = ""
        self.verdict = Verdict(
            kind=found.kind,
            dropped=found.drop,
            taken_back=self._half_character(rest),
            inserted=len(found.insert),
            confidence=found.confidence,
        )
        self._watch = ProgressWatch(self._before)
        self._fence = "" if found.own_fence else None
        return self._pass(found.insert + rest)

    def _half_character(self, rest: str) -> int:
        """Replacement characters at the end of the earlier text that may be taken back."""
        broken = len(self._before) - len(self._before.rstrip("\ufffd"))
        if not rest or rest.startswith("\ufffd") or broken > 3:
            return 0
        return min(broken, self._unshown)

    def _pass(self, text: str) -> str:
        shown = text if self._fence is None else self._without_own_fence(text)
        if self._watch is not None and shown:
            self._watch.feed(shown)
        return shown

    def _without_own_fence(self, text: str) -> str:
        """Hold back the line that closes a fence whose opening line was dropped."""
        assert self._fence is not None
        held = self._fence + text
        at = _closing_fence(held)
        if at < 0:
            keep = _open_end(held)
            self._fence = held[keep:]
            return held[:keep]
        end = held.find("\n", at + 1)
        if end < 0:
            self._fence = held[at:]
            return held[:at]
        self._fence = None
        self._drop_more(end - at)
        return held[:at] + held[end:]

    def _last_line(self) -> str:
        held, self._fence = self._fence or "", None
        if held.strip() in ("```", "~~~"):
            self._drop_more(len(held))
            return ""
        return held

    def _drop_more(self, count: int) -> None:
        verdict = self.verdict
        assert verdict is not None
        self.verdict = Verdict(
            verdict.kind,
            verdict.dropped + count,
            verdict.taken_back,
            verdict.inserted,
            verdict.confidence,
        )


def _closing_fence(text: str) -> int:
    """Where the newline before a bare fence line stands in `text`, or -1."""
    for marker in ("\n```", "\n~~~"):
        at = text.find(marker)
        if at >= 0 and not text[at + 4 :].partition("\n")[0].strip():
            return at
    return -1


def _open_end(text: str) -> int:
    """Where the last line begins that may still become a closing fence line."""
    at = text.rfind("\n")
    line = text[at + 1 :]
    return at if at >= 0 and line in ("", "`", "``", "~", "~~") else len(text)


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
    seam = Seam(
        before,
        anchor=anchor,
        prefilled=prefilled,
        unshown=len(before) if unshown is None else unshown,
    )
    shown = seam.feed(after) + seam.finish()
    assert seam.verdict is not None
    return before[: len(before) - seam.take_back] + shown, seam.verdict


def choose_anchor(before: str) -> str | None:
    """The shortest end of `before` that is long, rare and surprising enough to be asked for.

    It starts at a word or a line. None when the text is too short, or repeats itself up to its
    end, so that no anchor would tell a repetition from a continuation.
    """
    text = before.rstrip("\ufffd")
    near = text[-_UNIQUE_IN:]
    for size in (_SHORTEST, 40, 64, 100, 160, 250, _LONGEST):
        if size > len(text):
            break
        tail = text[_word_start(text, len(text) - size) :]
        if near.count(tail) == 1 and novelty(text, tail) >= _BITS and not _in_run(text, tail):
            return tail
    return None


def _word_start(text: str, at: int) -> int:
    """The start of the word at `at`, looked for a few characters back."""
    start = at
    while start > max(0, at - 16) and not text[start - 1].isspace():
        start -= 1
    return start if start == 0 or text[start - 1].isspace() else at


def _in_run(text: str, tail: str) -> bool:
    """Whether the text before `tail` ends much as `tail` does: then more of it may follow."""
    return common_suffix(text, text[: len(text) - len(tail)]) * 4 > len(tail)
