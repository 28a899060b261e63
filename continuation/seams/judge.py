"""The decision at a seam: how much of the head of a later attempt is no new text.

Theory
------

What there is. `before` is all the text the caller has, or is about to have; it stopped anywhere,
in a word, a table row, a JSON string, a code fence. `head` is the beginning of what the model
wrote when it was asked to go on. It may go on exactly, repeat the anchor it was asked for, repeat
some other end of the text, speak to the reader first, open the fence again, begin the whole answer
again, or do several of these one after the other. A `Finding` says how many characters at the
start of the head to leave out and what, if anything, to put in their place.

In doubt the text stays. Two mistakes are possible and they are not equal: doubled text is seen and
can be deleted, lost text is not seen at all. So nothing is left out because it *looks* like an
echo or a preamble. It needs evidence that outweighs the chance of the document really going on
like that, and where two readings stay possible the finding is EXACT. The other way round, keeping
a few doubled characters is no defect of a rule here; losing one is.

What counts as evidence, strongest first, which is also the order of the questions:

1. The whole attempt says nothing new: it is complete, or the text from its top (`final` only).
2. The text ends in a run (rows of equal cells, a ladder of braces) and the head stays in it. Then
   nothing can be told, and the head is kept, unless it is the anchor.
3. The head begins with the anchor. That was asked for and carries bits enough, so it needs no
   other evidence, however often the same words follow. White space may differ.
4. The head begins with some other end of the text: an echo. `evidence.odds` says how much more
   likely that is than a document that repeats itself; the threshold is in log odds.
5. Syntax leaves one reading: a row would get a cell too many, a mapping the same key twice.
6. The same as 3 and 4 in disguise: without the white space at the end, in quotes, behind an
   ellipsis or white space. A disguise must be paid for with novelty (`_BARE_BITS`).
7. Something stands before the continuation: a fence line, the head of the open table, a preamble.
   Behind each the questions 3 to 7 are asked again of the rest, so that "Sure:", a fence and the
   anchor are taken off one by one. What follows an opening speaks for it: a preamble before an
   anchor needs fewer signs of its own.
8. Nothing of this: only white space is put right, where syntax leaves one reading.

How much is held. `look` is a pure function of the head, and None means "ask again with more of
it". More is asked for only while a longer head could change the answer: the words so far stand in
the text near its end or at its top, so that an echo may be arriving, or they could be the start of
a preamble or of a fence line. Most continuations are let go after 24 to 48 characters. The longest
head is the anchor and `hold` more (`Seam`); then the answer is given with what there is (`final`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from continuation.seams.evidence import THRESHOLD, is_run, novelty, odds
from continuation.seams.preamble import (
    ENOUGH,
    LONGEST,
    could_begin_one,
    ends_of_openings,
    only_says_complete,
    preamble_evidence,
)
from continuation.seams.state import Cut
from continuation.seams.syntax import (
    fence_opening,
    line_again,
    reopens,
    repeated_header,
    skips_ahead,
    superfluous,
    wanted,
)
from continuation.seams.verdict import SURE, Finding, SeamKind

__all__ = ["Judge", "borders"]

#: Characters by which an echo's end is found; shorter echoes are tried one by one.
_PROBE: Final = 8
#: A restart shown by this much of the top of the answer needs no other evidence.
_TOP: Final = 200
#: Characters whose absence from the earlier text shows that no echo has begun.
_FIRST: Final = 20
#: How far back an echo may begin while it is still arriving.
_BACK: Final = 16384
#: Bits an anchor must carry to be believed on its own.
_ANCHOR_BITS: Final = 12.0
#: Bits of an echo that leaves out the white space at the end, or puts some before it.
_BARE_BITS: Final = 40.0
#: Points that a preamble gets at most for what follows it.
_MOST: Final = 5.0
#: Bits of all that was written, said again from the top.
_ALL_BITS: Final = 64.0
#: What may stand around an echo, and what closes it.
_DECORATION: Final = re.compile(
    r"\s*(?:\.{3}|…)?\s*(<anchor>|\*\*|[\"“„«'`\u2018*_])?(?:\.{3}|…)?[^\S\n]*"
)
_CLOSING: Final = {"<anchor>": "</anchor>", "“": "”", "„": "“", "«": "»", "\u2018": "\u2019"}


class _MoreNeededError(Exception):
    """A longer head may change what is found; whoever looks asks again when there is one."""


class Judge:
    """Reads the head of a later attempt against the text before it."""

    def __init__(self, before: str, anchor: str | None) -> None:
        self.text = before.rstrip("\ufffd")
        """The text before, without the sign of half a character at its end."""
        self._cut = Cut(self.text)
        self._bare = self.text.rstrip()
        self._tail = self.text[-_BACK:]
        self._top = self.text[:4096].lstrip()
        asked = anchor.rstrip("\ufffd") if anchor else ""
        self._asked = len(asked)
        tells = (
            asked
            and self.text.endswith(asked)
            and novelty(self.text, asked, enough=_ANCHOR_BITS) >= _ANCHOR_BITS
        )
        self._anchor = asked if tells else ""

    def look(self, head: str, *, final: bool) -> Finding | None:
        """The finding about `head`, or None while more of it is needed."""
        if not head:
            return Finding(SeamKind.EMPTY) if final else None
        if final and only_says_complete(head):
            return Finding(SeamKind.COMPLETE, len(head), 4.0)
        if final and head.strip() == self.text.strip() and novelty("", head) >= _ALL_BITS:
            return Finding(SeamKind.RESTART, len(head), 6.0)  # from the top to the same place
        if self._stays_in_run(head, final=final):
            return Finding(SeamKind.EXACT, 0, 2.0)
        try:
            found = self._repeats(head, final=final) or self._opens(head, final=final, depth=2)
        except _MoreNeededError:
            return None
        if found is None and (final or (self._settled(head) and not self._may_open(head))):
            return self._plain(head)
        return found

    def replays(self, head: str) -> tuple[int, int] | None:
        """Where in the text a long head replays it: (characters before the replay, place)."""
        for at in self._starts(head):
            body = head[at:]
            if len(body) < 2 * _PROBE or is_run(body) or novelty("", body) < _ALL_BITS:
                continue
            # From the top of the text if it says so there, otherwise from near its end.
            place = len(self.text) - len(self.text.lstrip())
            if not self.text.startswith(body, place):
                near = self._tail.find(body)
                place = len(self.text) - len(self._tail) + near if near >= 0 else -1
            if place >= 0 and (
                at == 0 or place < 200 or preamble_evidence(self._cut, head[:at], body) > 0
            ):
                return at, place
        return None

    def restarted(self, head: str) -> bool:
        """Whether a whole attempt only says again how the answer began."""
        return any(
            self._top.startswith(head[at:]) and len(head) - at >= 2 * _TOP
            for at in self._starts(head)
        )

    def _stays_in_run(self, head: str, *, final: bool) -> bool:
        """Whether the text ends in a run that `head` goes on with: then nothing can be told."""
        period = self._cut.period
        known = min(len(head), period)
        if not period or not (final or known == period):
            return False
        asked = self._anchor and head.startswith(self._anchor)
        return not asked and head.startswith(self.text[-period:][:known])

    # The repetition of the end of the text ------------------------------------------------

    def _repeats(self, head: str, *, final: bool) -> Finding | None:
        """An echo at the start of `head`: exact, or up to white space and quotes."""
        found = self._anchored(head, final=final) or self._echo(head, self.text, final=final)
        if found is None:
            found = self._proven(head, final=final)
        if found is None and len(self._bare) < len(self.text):
            found = self._echo_without_space(head, final=final)
        if found is None and (opened := _DECORATION.match(head)):
            found = self._decorated(head, opened, final=final)
        if found is None and head[0].isspace():
            found = self._behind_space(head, final=final)
        return found

    def _proven(self, head: str, *, final: bool) -> Finding | None:
        """The last line said again, where the syntax leaves no other reading."""
        size = line_again(self._cut, head)
        if size == 0 or (size is None and final):
            return None
        if size is None or (not final and self._knows(head[: max(size + _PROBE, 2 * _FIRST)])):
            raise _MoreNeededError
        return Finding(SeamKind.ECHO, size, 4.0)

    def _behind_space(self, head: str, *, final: bool) -> Finding | None:
        """An echo behind white space that does not belong to it."""
        rest = head.lstrip()
        lead = len(head) - len(rest)
        found = self._anchored(rest, final=final) if rest else None
        if found is None and rest and lead > 1:
            found = self._echo(rest, self.text, final=final)
        if found is None:
            return None
        belongs = self.text.endswith(head[: lead + found.drop])
        if belongs or novelty(self.text, rest[: found.drop]) < _BARE_BITS:
            return None
        return found.after(lead, found.kind)

    def _anchored(self, head: str, *, final: bool) -> Finding | None:
        anchor = self._anchor
        if not anchor:
            return None
        if head.startswith(anchor):
            return Finding(SeamKind.ANCHOR, len(anchor))
        words = " ".join(head.split())
        if not final and " ".join(anchor.split()).startswith(words):
            raise _MoreNeededError
        if head[:1] != anchor[:1]:
            return None
        loose = re.match(r"\s+".join(map(re.escape, anchor.split())), head)
        if loose is None:
            return None
        if not final and len(head) < loose.end() + 8:
            raise _MoreNeededError
        return Finding(SeamKind.ANCHOR, loose.end() + self._same_space(head[loose.end() :]), 8.0)

    def _echo(self, head: str, text: str, *, final: bool) -> Finding | None:
        best: Finding | None = None
        for size in borders(text, head):
            if _goes_round_early(head, size):
                continue
            score = self._score(text, head, size)
            if score >= (best.odds if best else THRESHOLD):
                # A longer echo, the anchor or a replay may still be arriving.
                known = size + max(8, min(size, 64))
                if not final and (len(head) < known or self._knows(head[: max(known, 2 * _FIRST)])):
                    raise _MoreNeededError
                whole = size >= min(len(text.lstrip()), 600)
                best = Finding(SeamKind.RESTART if whole else SeamKind.ECHO, size, score)
        if best is None:
            return None
        rest = head[best.drop :].lstrip("\n")
        more = self._anchored(rest, final=final) if rest else None
        return more.after(len(head) - len(rest), more.kind) if more else best

    def _score(self, text: str, head: str, size: int) -> float:
        if size >= max(_TOP, len(text.lstrip())) and novelty("", head[:size]) >= 64:
            return SURE
        asked = 0.0
        if self._asked and size >= 8:
            asked = 6.0 if size >= self._asked else 1.0
        return odds(text, head, size) + asked

    def _echo_without_space(self, head: str, *, final: bool) -> Finding | None:
        found = self._echo(head, self._bare, final=final) if self._bare else None
        if found is None:
            return None
        drop = found.drop + self._same_space(head[found.drop :])
        # A run whose unit ends in the white space goes on only behind it.
        if novelty(self._bare, head[: found.drop]) < _BARE_BITS or _goes_round_early(head, drop):
            return None
        return replace(found, drop=drop)

    def _same_space(self, rest: str) -> int:
        """White space at the start of `rest` that the text ends with already."""
        stripped = self.text[len(self._bare) :]
        lead = rest[: len(rest) - len(rest.lstrip())]
        if lead.startswith(stripped):
            return len(stripped)
        return len(lead) if stripped.startswith(lead) else 0

    def _decorated(self, head: str, opened: re.Match[str], *, final: bool) -> Finding | None:
        """An echo in quotes, or behind an ellipsis."""
        rest = head[opened.end() :]
        if not opened[0].strip() or not rest:
            return None
        found = self._anchored(rest, final=final) or self._echo(rest, self.text, final=final)
        if found is None:
            return None
        if not final and len(rest) < found.drop + 12:
            raise _MoreNeededError
        if novelty(self.text, rest[: found.drop]) < _BARE_BITS:
            return None
        mark = opened[1] or ""
        closing = _CLOSING.get(mark, mark)
        drop = found.drop
        if closing and rest.startswith(closing, drop):
            drop += len(closing)
            after = rest[drop:]
            if self._cut.inside_line and after.startswith("\n"):
                drop += len(after) - len(after.lstrip("\n"))
        elif mark and mark not in ("<anchor>", "**"):
            return None
        return Finding(found.kind, opened.end() + drop, found.odds)

    # What comes before going on ----------------------------------------------------------

    def _opens(self, head: str, *, final: bool, depth: int) -> Finding | None:
        """A fence, a table's head or a preamble before the text goes on."""
        found = self._refenced(head, final=final, depth=depth)
        found = found or self._headed(head, final=final)
        if found is None and depth:
            found = self._prefaced(head, final=final, depth=depth)
        return found

    def _refenced(self, head: str, *, final: bool, depth: int) -> Finding | None:
        fence = fence_opening(head)
        if fence is None:
            return None
        size, rest = len(fence[0]), head[len(fence[0]) :]
        own = reopens(self._cut, *fence, rest)
        if own is None:
            # A closing fence, unless what follows it was said before it.
            inner = self._repeats(rest, final=final) if self._cut.fence and rest else None
            return inner and inner.after(size, SeamKind.FENCE)
        inner = self._within(rest, final=final, depth=depth)
        return replace(inner.after(size, SeamKind.FENCE), own_fence=own)

    def _headed(self, head: str, *, final: bool) -> Finding | None:
        size = repeated_header(self._cut, head)
        if not size:
            return None
        rest = head[size:]
        inner = self._within(rest, final=final, depth=0)
        if inner.drop == 0 and not inner.insert and self._cut.inside_line:
            in_table = self._cut.last_line.lstrip().startswith("|")
            # The block ended in a newline, and the text before it did not.
            ended = "" if in_table or rest[:1] in ("", "\n") else "\n"
            inner = replace(inner, insert=wanted(self._cut, rest) or ended)
        return inner.after(size, SeamKind.ECHO)

    def _within(self, rest: str, *, final: bool, depth: int) -> Finding:
        """What follows an opening: an echo, another opening, or simply the text."""
        found = self._repeats(rest, final=final) if rest else None
        if found is None:
            found = self._line_again(rest, final=final)
        if found is None and rest and depth >= 0:
            found = self._opens(rest, final=final, depth=depth)
        if found is not None:
            return found
        if not final and (self._may_open(rest) or not self._settled(rest)):
            raise _MoreNeededError
        return self._plain(rest) if rest.strip() else Finding(SeamKind.EXACT)

    def _line_again(self, rest: str, *, final: bool) -> Finding | None:
        """The last line, begun again after an opening: however short it is, that is one."""
        line = self._cut.line or self._cut.last_line + "\n"
        if not self.text.endswith(line) or not rest.startswith(line) or len(rest) == len(line):
            return None
        if is_run(line) or not line.strip():
            return None
        if self._knows(rest[: max(len(line) + _PROBE, 2 * _FIRST)]):
            if final:
                return None
            raise _MoreNeededError
        return Finding(SeamKind.ECHO, len(line), THRESHOLD)

    def _prefaced(self, head: str, *, final: bool, depth: int) -> Finding | None:
        best: tuple[float, int, Finding] | None = None
        for at in ends_of_openings(head):
            rest = head[at:]
            points = preamble_evidence(self._cut, head[:at], rest)
            if points <= 0 or (not rest and not final):
                continue
            try:
                inner = self._within(rest, final=final, depth=depth - 1)
            except _MoreNeededError:
                if points + _MOST >= ENOUGH:
                    raise
                continue
            points += _bonus(inner, len(self.text))
            repeats = inner.kind in (SeamKind.ANCHOR, SeamKind.RESTART)
            if points >= ENOUGH and (best is None or (repeats and best[2].drop == 0)):
                best = points, at, inner
        if best is None:
            return None
        points, at, inner = best
        return replace(inner.after(at, SeamKind.PREAMBLE), odds=points - ENOUGH + THRESHOLD)

    # No repetition -----------------------------------------------------------------------

    def _plain(self, head: str) -> Finding:
        drop = superfluous(self._cut, head)
        if drop:
            return Finding(SeamKind.WHITESPACE, drop, 3.0)
        insert = wanted(self._cut, head)
        if insert:
            return Finding(SeamKind.WHITESPACE, 0, 3.0, insert)
        if skips_ahead(self._cut, head):
            return Finding(SeamKind.SKIP, 0, 0.0)
        return Finding(SeamKind.EXACT, 0, 4.0)

    def _settled(self, rest: str) -> bool:
        """Whether no echo can have begun at the start of `rest`."""
        body = rest.lstrip()
        if len(body) < _FIRST + 4:
            return False
        line = body[:_FIRST].partition("\n")[0]
        return not self._knows(line if len(line) >= _PROBE else body[:_FIRST])

    def _knows(self, words: str) -> bool:
        """Whether the text says `words` near its end or at its top."""
        return words in self._tail or words in self._top

    def _may_open(self, head: str) -> bool:
        """Whether a preamble or a fence may still turn out to stand at the start of `head`."""
        if head.lstrip()[:3] in ("```", "~~~") and "\n" not in head.strip():
            return True
        ends = ends_of_openings(head)
        if not ends:
            return could_begin_one(head) and len(head) <= LONGEST
        points = (preamble_evidence(self._cut, head[:at], head[at:]) for at in ends)
        return any(some > 0 and some + _MOST >= ENOUGH for some in points)

    def _starts(self, head: str) -> list[int]:
        lead = len(head) - len(head.lstrip())
        return list(dict.fromkeys([0, lead, *ends_of_openings(head)]))


def borders(text: str, head: str) -> list[int]:
    """Sizes, ascending, of the beginnings of `head` with which `text` ends."""
    short = [n for n in range(1, min(_PROBE, len(head) + 1)) if text.endswith(head[:n])]
    if len(text) < _PROBE:
        return short
    probe, at = text[-_PROBE:], head.find(text[-_PROBE:])
    while at >= 0 and len(short) < 24:
        if text.endswith(head[: at + _PROBE]):
            short.append(at + _PROBE)
        at = head.find(probe, at + 1)
    return short


def _goes_round_early(head: str, size: int) -> bool:
    """Whether `head` seems to repeat its first `size` characters over and over."""
    known = min(size, 64)
    following = head[size : size + known]
    return head.startswith(following) and len(following) >= min(known, 3)


def _bonus(inner: Finding, length: int) -> float:
    """Points for what a preamble is followed by; `_MOST` at most."""
    if inner.kind is SeamKind.ANCHOR or inner.drop >= max(length, _TOP):
        return _MOST
    return 3.0 if inner.kind in (SeamKind.ECHO, SeamKind.FENCE, SeamKind.RESTART) else 0.0
