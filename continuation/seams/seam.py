"""The seam: where the text of a later attempt is joined onto the text before it.

A `Seam` is fed with the attempt's text as it arrives and gives back what may be shown. It is in
one of three states. While the **head** is held, it is looked at whenever it has one of a fixed list
of lengths, so that the pieces in which it came make no difference. A head that is as long as it
may get and repeats earlier text word for word is **replayed**: followed by position, without
keeping it twice, until it leaves that text or goes on from its end. After the **verdict** text
passes through, and is only watched for bringing nothing new.

What the head shows is decided in `judge`, where the theory is; after a prefill there is hardly
anything to decide, and `_after_prefill` here does it.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Final

from continuation.seams.evidence import common_prefix, common_suffix, novelty
from continuation.seams.judge import Judge
from continuation.seams.verdict import Finding, SeamKind, Verdict

__all__ = ["Follow", "Seam", "SeamKind", "Verdict", "choose_anchor", "is_loop", "join"]

#: Lengths of the head at which it is looked at, whatever pieces it came in.
_LOOKS: Final = (24, 48, 80, 128, 200, 320, 480)
#: The same behind a prefill that was sent back, where only white space is to be decided.
_SPACE_LOOKS: Final = (1, 2, 3, 4, 8, 16, 32)
#: A shorter prefill may well be repeated by chance.
_TELLING_PREFILL: Final = 16
#: Sizes of an anchor, and the bits that make one unlikely to follow by chance.
_SIZES: Final = (24, 40, 64, 100, 160, 250, 400)
_BITS: Final = 56.0
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
        known = len(anchor or "")
        self._hold = hold + known
        looks = {*_LOOKS, known, known + 24}
        self._looks = [*sorted(n for n in looks if 0 < n < self._hold), self._hold]
        self._judge = Judge(before, anchor)
        self._head = ""
        self._replay: _Replay | None = None
        self._watch = _ProgressWatch(before)
        self._fence: str | None = None
        """What may be the line that closes a fence whose opening line was dropped."""
        self._nothing_new = False
        self.verdict: Verdict | None = None
        """What was done, once it is decided."""

    @property
    def take_back(self) -> int:
        """Characters to remove from the end of `before`; 0 until the seam is decided."""
        return self.verdict.taken_back if self.verdict else 0

    @property
    def stalled(self) -> bool:
        """Whether the text brings nothing new, so that the attempt should be stopped."""
        return self._nothing_new or self._watch.stalled

    def feed(self, piece: str) -> str:
        """Take a piece of the attempt's text; return what may be shown now."""
        if self.verdict is not None:
            return self._pass(piece)
        if self._replay is not None:
            return self._follow(self._replay, piece)
        at = 0
        while at < len(piece):
            look = next(n for n in self._looks if n > len(self._head))
            upto = min(len(piece), at + look - len(self._head))
            self._head += piece[at:upto]
            at = upto
            if len(self._head) == look and (shown := self._consider()) is not None:
                return shown + self.feed(piece[at:])
        return ""

    def finish(self) -> str:
        """The attempt's text has ended: return what was held and must be shown after all."""
        if self._replay is not None:
            return self._leave(self._replay, ended=True)
        shown = ""
        if self.verdict is None:
            shown = self._decide(self._find(final=True) or Finding(SeamKind.EXACT))
        return shown + self._last_line()

    # While the head is held --------------------------------------------------------------

    def _consider(self) -> str | None:
        """Look at the head; one that is as long as it may get is a replay, or decided now."""
        found = self._find(final=False)
        if found is None:
            if len(self._head) < self._hold:
                return None
            if self._prefilled is not None:
                self._replay = _Replay(self._prefilled, self._head, 0, 0, SeamKind.PREFILL)
                return ""
            if place := self._judge.replays(self._head):
                self._replay = _Replay(self._judge.text, self._head, *place, SeamKind.RESTART)
                return ""
            found = self._find(final=True) or Finding(SeamKind.EXACT)
        return self._decide(found)

    def _find(self, *, final: bool) -> Finding | None:
        if self._prefilled is not None:
            return _after_prefill(self._before, self._prefilled, self._head, final=final)
        if final and self._judge.restarted(self._head):
            self._nothing_new = True
            return Finding(SeamKind.RESTART, len(self._head), 6.0)
        return self._judge.look(self._head, final=final)

    # While a replay of the earlier text is followed ----------------------------------------

    def _follow(self, replay: _Replay, piece: str) -> str:
        rest = replay.feed(piece)
        if rest is None:
            return ""
        if replay.diverged:
            return self._leave(replay) + self.feed(rest)
        self._replay = None
        if replay.kind is SeamKind.PREFILL:
            # The prefill came back whole: what follows is held until its white space is known.
            self._head = replay.text
            self._looks = [replay.taken + n for n in _SPACE_LOOKS]
            self._hold = self._looks[-1]
            return self.feed(rest)
        self._head = ""
        return self._decide(Finding(replay.kind, replay.taken)) + self.feed(rest)

    def _leave(self, replay: _Replay, *, ended: bool = False) -> str:
        """The replay stopped short of the text's end: all of it is shown, unless it was all."""
        self._replay = None
        self._head = replay.text
        if ended and replay.began_at_top:
            self._nothing_new = True
            return self._decide(Finding(replay.kind, len(self._head), 6.0))
        return self._decide(Finding(SeamKind.EXACT, 0, 0.0))

    # Once it is decided ------------------------------------------------------------------

    def _decide(self, found: Finding) -> str:
        rest, self._head = self._head[found.drop :], ""
        # Half a character arrived with each attempt: the first half's sign is taken back.
        broken = len(self._before) - len(self._before.rstrip("\ufffd"))
        takes = bool(rest) and not rest.startswith("\ufffd") and broken <= 3
        self.verdict = Verdict(
            kind=found.kind,
            dropped=found.drop,
            taken_back=min(broken, self._unshown) if takes else 0,
            inserted=len(found.insert),
            confidence=round(1 / (1 + exp(-max(-20.0, min(20.0, found.odds)))), 4),
        )
        self._fence = "" if found.own_fence else None
        return self._pass(found.insert + rest)

    def _pass(self, text: str) -> str:
        shown = text if self._fence is None else self._without_own_fence(self._fence + text)
        if shown:
            self._watch.feed(shown)
        return shown

    def _without_own_fence(self, held: str) -> str:
        """Hold back the line that closes a fence whose opening line was dropped."""
        places = (held.find(marker) for marker in ("\n```", "\n~~~"))
        bare = [at for at in places if at >= 0 and not held[at + 4 :].partition("\n")[0].strip()]
        if not bare:
            at = held.rfind("\n")
            open_end = at >= 0 and held[at + 1 :] in ("", "`", "``", "~", "~~")
            keep = at if open_end else len(held)
            self._fence = held[keep:]
            return held[:keep]
        at = bare[0]
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
    for size in _SIZES:
        if size > len(text):
            break
        tail = text[_word_start(text, len(text) - size) :]
        if near.count(tail) == 1 and novelty(text, tail) >= _BITS:
            # Where the text before ends much as the anchor does, more of the same may follow.
            run = common_suffix(text, text[: len(text) - len(tail)])
            if run * 4 <= len(tail):
                return tail
    return None


def _word_start(text: str, at: int) -> int:
    """The start of the word at `at`, looked for a few characters back."""
    start = at
    while start > max(0, at - 16) and not text[start - 1].isspace():
        start -= 1
    return start if start == 0 or text[start - 1].isspace() else at


def _after_prefill(before: str, prefilled: str, head: str, *, final: bool) -> Finding | None:
    """The finding about `head` where the model goes on right after `prefilled`, or None for more.

    Some servers send the prefilled text back before going on. White space at the end of `before`
    was stripped on the wire: it is shown already, so it is dropped when the model writes it
    again, and stays when the model does not.
    """
    if not head:
        return Finding(SeamKind.EMPTY) if final else None
    echoed = 0
    if len(prefilled) >= _TELLING_PREFILL:
        if head.startswith(prefilled):
            echoed = len(prefilled)
        elif not final and prefilled.startswith(head):
            return None
    rest, stripped = head[echoed:], before[len(prefilled) :]
    space = rest[: len(rest) - len(rest.lstrip())]
    if not final and stripped and space == rest and len(space) <= len(stripped):
        return None
    same = common_prefix(stripped, space)
    kind = SeamKind.PREFILL if echoed else SeamKind.WHITESPACE if same else SeamKind.EXACT
    return Finding(kind, echoed + same)


# Texts that say again what was said ----------------------------------------------------------


class Follow:
    """Of a regenerated text, lets pass only what follows the text already shown."""

    def __init__(self, shown: str) -> None:
        self._rest = shown
        self.lost = False
        """Whether the text left what was shown; then nothing of it passes."""

    @property
    def done(self) -> bool:
        """Whether what was shown has been matched to its end, so that all that follows is new."""
        return not self._rest and not self.lost

    def feed(self, piece: str) -> str:
        """Take a piece of the text; return what of it is new."""
        if self.lost or not self._rest:
            return "" if self.lost else piece
        common = min(len(piece), len(self._rest))
        if piece[:common] != self._rest[:common]:
            self.lost = True
            return ""
        self._rest = self._rest[common:]
        return piece[common:]


class _Replay:
    """Follows an attempt that says `source` again from `place` on, `start` characters into it."""

    def __init__(self, source: str, head: str, start: int, place: int, kind: SeamKind) -> None:
        self._source = source
        self._opening = head[:start]
        self._place = place
        self._reached: int = place + len(head) - start
        self.kind = kind
        self.diverged = False

    @property
    def taken(self) -> int:
        """Characters of the attempt that were taken so far."""
        return len(self._opening) + self._reached - self._place

    @property
    def began_at_top(self) -> bool:
        """Whether the replay began at the top of the text, so that it holds nothing new so far."""
        return not self._source[: self._place].strip()

    @property
    def text(self) -> str:
        """What was taken, again."""
        return self._opening + self._source[self._place : self._reached]

    def feed(self, piece: str) -> str | None:
        """Take a piece; return None while the replay lasts, and then what follows it.

        It is over when it reaches the end of the source or leaves it; then it has `diverged`.
        """
        expected = self._source[self._reached : self._reached + len(piece)]
        if piece == expected:
            self._reached += len(piece)
            return None
        same = common_prefix(piece, expected)
        self._reached += same
        self.diverged = same < len(expected)
        return piece[same:]


# Whether text brings something new ------------------------------------------------------------

#: Characters of one unit said over and over from which on it is a loop, and at least this often.
_LONG: Final = 4000
_OFTEN: Final = 4
#: Longest unit looked for.
_UNIT: Final = 2000
_KEPT: Final = _UNIT * (_OFTEN + 2)
#: New characters between two looks, and new characters a loop begun earlier still gets.
_STEP: Final = 512
#: Characters copied from the text before, without a break, from which on it is a repetition.
_COPY: Final = 1024
_COPIES: Final = 4
#: Characters of the blocks by which a copy is first looked for.
_BLOCK: Final = 64


def is_loop(text: str) -> bool:
    """Whether `text` ends in one unit (up to 2,000 characters) repeated for 4,000 or more."""
    tail = text[-_KEPT:]
    probe = tail[-64:]
    before = tail.rfind(probe, 0, len(tail) - 1)
    if before < 0 or len(tail) < _LONG:
        return False
    unit = len(tail) - len(probe) - before
    extent = common_suffix(tail, tail[: len(tail) - unit], most=_KEPT) + unit
    return unit <= _UNIT and extent >= max(_LONG, _OFTEN * unit)


class _ProgressWatch:
    """Takes the text that is shown after a seam, and notices when it brings nothing new.

    Two things are noticed: one unit repeated without end (also when the earlier text had begun
    it), and long stretches copied from the earlier text. Looks are taken every 512 characters of
    text, wherever the pieces end.
    """

    def __init__(self, before: str) -> None:
        self._before = before
        self._tail = before[-_KEPT:]
        self._waiting = 0
        self._unread = 0
        self._copies = 0
        self._blocks: set[int] = set()
        self.stalled = False

    def feed(self, text: str) -> None:
        """Take shown text."""
        at = 0
        while at < len(text) and not self.stalled:
            step = min(len(text) - at, _STEP - self._waiting)
            self._tail += text[at : at + step]
            self._waiting += step
            at += step
            if self._waiting == _STEP:
                self._waiting = 0
                self._tail = self._tail[-_KEPT:]
                self._unread += _STEP
                self.stalled = is_loop(self._tail) or self._copied()

    def _copied(self) -> bool:
        """Whether the last thousands of characters all stand in the earlier text.

        Where that repeated itself at length already, more of it is no surprise.
        """
        if self._unread < _COPY:
            return False
        self._unread = 0
        self._copies = self._copies + 1 if self._stands_earlier(self._tail[-_COPY:]) else 0
        if self._copies < _COPIES:
            return False
        before, tail = self._before, self._before[-_COPY:]
        return len(tail) < _COPY or before.find(tail) == len(before) - _COPY

    def _stands_earlier(self, text: str) -> bool:
        """Whether the earlier text holds this one.

        A copy this long covers a whole block of the earlier text, at one of the first `_BLOCK`
        places; only if one of those is known is the earlier text searched. So that a look costs
        the same however long the earlier text is.
        """
        if not self._blocks:
            before = self._before
            ends = range(_BLOCK, len(before) + 1, _BLOCK)
            self._blocks = {hash(before[end - _BLOCK : end]) for end in ends} or {0}
        places = range(min(_BLOCK, max(0, len(text) - _BLOCK + 1)))
        known = any(hash(text[i : i + _BLOCK]) in self._blocks for i in places)
        return known and text in self._before
