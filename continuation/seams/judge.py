"""Finds in the head of a later attempt where it continues the answer.

Theory
------

The input. `before` is all text that was delivered or will be. It stopped anywhere: in a word, a
table row, a JSON string, a code fence. `head` is the beginning of the model's continuation. It may
continue exactly, repeat the anchor as requested, repeat some other end of the text, address the
reader first, open the fence again, begin the answer again, or do several of these in a row. A
`Finding` says how many characters at the start of the head to drop, and what, if anything, to
insert in their place.

In doubt the text stays. Two mistakes are possible, and they are not equal. A reader sees doubled
text and can delete it, but cannot see that text was lost. So nothing is dropped only because it
*looks* like an echo or a preamble. The evidence must outweigh the chance that the document really
continues like that. Where two readings stay possible, the finding is ASSUMED. A rule here may keep
a few doubled characters; it must not lose one.

What counts as evidence, strongest first. The checks have the same order:

1. The attempt adds nothing: it is a statement that the answer is complete (which must refer to the
   answer, at a place where an answer may end), the text from its top, or a part of the anchor.
2. The head begins with the anchor. The prompt requested it and it has enough bits. So it needs no
   other evidence, however often the same words follow. White space and typography may differ. White
   space at the anchor's end counts as missing if the text has such a gap only with it. The prompt
   never requests an anchor that is a run.
3. The text ends in a run (rows of equal cells, a ladder of braces) and the head stays in it. Then
   a repetition cannot be recognized, and the head is kept.
4. The head begins with some other end of the text: an echo. `evidence.odds` measures how much more
   likely that is than a document that repeats itself; the threshold is in log odds. A plain sign
   decides alone: a repeated number where the text counts, an indentation that the text never has,
   new words twice in a row. After words to the reader, less evidence is needed.
5. The structure allows only one reading: otherwise a row has a cell too many, a mapping the same
   key twice, indented JSON an impossible step, or a text of equal lines a different one.
6. The head does 2 or 4 in disguise: without the white space at the end, in quotes, after an
   ellipsis or white space. A disguise needs more novelty (`_BARE_BITS`).
7. Something precedes the continuation: a fence line, the head of the open table, a preamble. Checks
   2 to 7 then apply to the rest, so that "Sure:", a fence and the anchor are dropped one by one.
   Before the anchor, words in any language are dropped. Without the anchor, a preamble must consist
   of the words with which models speak of continuing. In addition, the end of the text must be
   repeated after it, or no sentence can stand where the text stopped.
8. None of this: only white space is corrected, where syntax allows only one reading.

How evidence is weighed. There are two units. Bits (`text.novelty`) measure how unlikely words are
to occur again by chance. Log odds (`evidence.odds`) weigh a repetition by bits, length and the step
back to its start, with weights fitted on real texts. A preamble has no such measure: it is either
proven or kept. The first finding that reaches its own threshold wins; findings are not added up.

How it is called. `Judgement.look` is a pure function of the head; `None` means "call again with a
longer head". That happens only while a longer head could change the finding. Either the words so
far occur in the text near its end or at its top, so that an echo may be arriving; or they could
begin a preamble or a fence line. With `final`, it must decide with the head that it has. An
`EarlierText` has what is known about the text before, independent of the head. A `Judgement` is the
checks of one head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from continuation.seams.earlier import LINE_KNOWN, EarlierText
from continuation.seams.evidence import SENTENCE_END, THRESHOLD, odds
from continuation.seams.preamble import (
    LONGEST,
    cannot_stand,
    ends_of_openings,
    may_be_words,
    may_become_of_itself,
    may_begin_words,
    only_of_itself,
    only_says_complete,
    own_line_break,
)
from continuation.seams.syntax import (
    fits_only_without,
    joins_to_known_word,
    lacks,
    line_again,
    reopens,
    repeated_header,
    skips_ahead,
    superfluous,
    wanted,
)
from continuation.seams.text import common_prefix, common_suffix, fold, is_run, novelty

#: Log odds of a finding without doubt.
_SURE: Final = 12.0
#: Characters that are searched to find an echo's end; shorter echoes are tried one by one.
_PROBE: Final = 8
#: A restart that repeats this many characters of the answer's top needs no other evidence.
_TOP: Final = 200
#: If this many first characters do not occur in the earlier text, no echo has begun.
_FIRST: Final = 20
#: A longer echo with at least this many more bits is preferred to a more certain one.
_LONGER_BITS: Final = 24.0
#: Characters of a line that suffice to compare it with earlier lines.
_RECORD: Final = 200
#: Least bits of an echo that lacks the white space at the end, or has additional white space first.
_BARE_BITS: Final = 40.0
#: Least bits of an echo after words about continuing; after a blank line.
_SPOKEN_BITS: Final = 32.0
_APART_BITS: Final = 20.0
#: Log odds that words to the reader add to a repetition after them.
_SPOKEN: Final = 2.0
#: Least bits of a complete line that is repeated after an opening.
_LINE_BITS: Final = 48.0
_NUMBERS: Final = re.compile(r"\d+")
_LAST_WORD: Final = re.compile(r"\w+\W*\Z")
_NEXT_SENTENCE: Final = re.compile(r"(?:(?<!\.\.)[.!?:] +|[)\]*_]\s+|\n+)(\w)")
#: An opening with this many characters of the text may belong to it; longest one that breaks off.
_SHARED: Final = 12
_ONE_SENTENCE: Final = 100
#: If this many characters before a phrase are the same, the text has the phrase twice.
_SAME_WORDS: Final = 8
#: Least bits of a text that is repeated from its top.
_ALL_BITS: Final = 64.0
#: Marks that may stand before an echo, and those that close it.
_DECORATION: Final = re.compile(
    r"(\s*(?:\.{3}|…)?)(\s*(<anchor[-\d]*>|\*\*|[\"“„«「『'`\u2018*])?(?:\.{3}|…)?)([^\S\n]*)"
)
_CLOSING: Final = {"「": "」", "『": "』", "“": "”", "„": "“", "«": "»", "\u2018": "\u2019"}
_QUOTE: Final = re.compile(r"(?:\*\*|[\"“„«「『'`\u2018*])\Z")
_INSIDE_WORD: Final = re.compile(r"\w\w")
#: The tag around the anchor in our prompt.
_MARK: Final = re.compile(r"<(anchor(?:-\d+)?)>")


class SeamKind(StrEnum):
    """What was found where two attempts meet; those in `EXACT` are proven by repeated text."""

    #: It repeated nothing, so nothing proves that it continues at the right character. It is
    #: delivered unchanged. A character that the model dropped or added here cannot be noticed.
    ASSUMED = "assumed"
    #: It began by repeating the anchor that the recovery prompt requested.
    ANCHOR = "anchor"
    #: It repeated the end of the earlier text, or the head of the open table, without a request.
    ECHO = "echo"
    #: It began with words to the reader ("Continuing where I left off:").
    PREAMBLE = "preamble"
    #: It opened again a code fence that was still open.
    FENCE = "fence"
    #: It began the answer again, from the top or from an earlier place.
    RESTART = "restart"
    #: The server sent the prefilled text back before the continuation.
    PREFILL = "prefill"
    #: Only white space was dropped, or a newline inserted.
    WHITESPACE = "whitespace"
    #: There was no later text.
    EMPTY = "empty"
    #: It only stated that the answer was already complete.
    COMPLETE = "complete"
    #: It seems to continue further down, so something is missing. Nothing is dropped.
    SKIP = "skip"


EXACT: Final = frozenset({SeamKind.ANCHOR, SeamKind.ECHO, SeamKind.RESTART, SeamKind.PREFILL})
"""The kinds of seams that repeated text proves to be exact."""

_REPEATS: Final = frozenset({SeamKind.ANCHOR, SeamKind.ECHO, SeamKind.RESTART, SeamKind.FENCE})
"""Kinds that prove that the words before them are not part of the answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the head of an attempt shows, and what to do with it."""

    kind: SeamKind
    drop: int = 0
    """Characters at the start of the head to drop."""
    odds: float = _SURE
    """Log odds that this is right."""
    insert: str = ""
    """Text to insert in place of the dropped characters."""
    back: int = 0
    """Characters to remove from the end of the text before."""
    own_fence: bool = False
    """The dropped line opens a fence that the text does not have, so drop its end line too."""

    def after(self, skipped: int, kind: SeamKind) -> Finding:
        """Return the same finding after an opening of `skipped` characters."""
        return replace(self, kind=kind, drop=self.drop + skipped)


class _MoreNeededError(Exception):
    """A longer head may change the finding, so more of it is needed."""


class Judge:
    """Recognizes an attempt that only repeats earlier text, and an opening that is a preamble."""

    def __init__(self, before: EarlierText) -> None:
        self._before = before
        self._cut = before.cut
        self._text = before.text

    def adds_nothing(self, head: str, stop: str) -> Finding | None:
        """Return the finding that a complete attempt adds nothing; `None`: it adds something.

        All of such an attempt is dropped. If the text was truncated inside a stop sequence, the
        model completes that while it repeats the anchor, and ends there. Then the part of the stop
        sequence that is in the text is dropped too.
        """
        if only_says_complete(self._cut, head):
            return Finding(SeamKind.COMPLETE, len(head), 4.0)
        if head.strip() == self._text.strip() and novelty("", head) >= _ALL_BITS:
            return Finding(SeamKind.RESTART, len(head), 6.0)
        parted = self._before.anchor[len(head) :]
        if not parted or not self._before.anchor.startswith(head) or is_run(head):
            return None
        if novelty(self._text.removesuffix(parted), head, enough=_BARE_BITS) < _BARE_BITS:
            return None
        back = len(parted) if stop and stop.startswith(parted) else 0
        return Finding(SeamKind.ECHO, len(head), 4.0, back=back)

    def replays(self, head: str) -> tuple[int, int] | None:
        """Return the characters before a replay and its place in the text, for a long head."""
        for at in self._starts(head):
            body = head[at:]
            if len(body) < 2 * _PROBE or is_run(body) or novelty("", body) < _ALL_BITS:
                continue
            if self._before.unsure_in_run(body, len(self._text)):
                continue
            # Prefer a replay from the top of the text, then one from near its end.
            place = len(self._text) - len(self._text.lstrip())
            if not self._text.startswith(body, place):
                near = self._before.tail.find(body)
                place = len(self._text) - len(self._before.tail) + near if near >= 0 else -1
            if place >= 0 and self._is_before_replay(head[:at], place):
                return at, place
        return None

    def _is_before_replay(self, opening: str, place: int) -> bool:
        """Whether an opening before a replay from `place` on is empty, or a preamble."""
        if not opening.strip() or only_of_itself(opening):
            return True
        return place < 200 and may_be_words(opening) and self._is_new_line(opening)

    def opening(self, head: str, size: int) -> Finding | None:
        """Return the finding that the first `size` characters alone prove a preamble, or `None`."""
        own = only_of_itself(head[:size]) and cannot_stand(self._cut, head[:size], head[size:])
        return Finding(SeamKind.PREAMBLE, size, 4.0) if own else None

    def _is_new_line(self, opening: str) -> bool:
        """Whether the text does not contain the last line of an opening, or it is empty."""
        last = opening.rstrip().rpartition("\n")[2]
        return not last or last not in self._text

    def _starts(self, head: str) -> list[int]:
        lead = len(head) - len(head.lstrip())
        return list(dict.fromkeys([0, lead, *ends_of_openings(head)]))


class Judgement:
    """The checks of one head, or of its rest after an opening. `final`: the head is complete."""

    def __init__(self, before: EarlierText, *, final: bool) -> None:
        self._before = before
        self._cut = before.cut
        self._final = final
        self._text = before.text

    def look(self, head: str) -> Finding | None:
        """Return the finding about `head`; `None`: more of it is needed."""
        if not head:
            return Finding(SeamKind.EMPTY) if self._final else None
        try:
            found = self._anchored(head)
            found = found or self._anchor_after_words(head)
            if found is None and self._stays_in_run(head):
                return Finding(SeamKind.ASSUMED, 0, 0.0)
            found = found or self._repeats(head)
            found = found or self._opens(head, depth=2)
        except _MoreNeededError:
            return None
        if found is None and (self._final or not self._may_tell(head)):
            return self._plain(head)
        return found

    def _stays_in_run(self, head: str) -> bool:
        """Whether the text ends in a run that `head` continues. No echo can be recognized then."""
        period = self._before.period
        known = min(len(head), period)
        if not period or not (self._final or known == period):
            return False
        return head.startswith(self._text[-period:][:known])

    # The repetition of the end of the text ------------------------------------------------

    def _repeats(self, head: str, *, spoken: bool = False) -> Finding | None:
        """Return an echo at the start of `head`, exact or up to white space and quotes."""
        found = self._anchored(head)
        found = found or self._echo(head, self._text, spoken=spoken)
        found = found or self._proven(head)
        if found is None and self._before.line:
            found = self._loosely(head, self._before.line)
            found = found and replace(found, kind=SeamKind.ECHO)
        if found is None and len(self._before.bare) < len(self._text):
            found = self._echo_without_space(head)
        if found is None and head[0].isspace():
            found = self._behind_space(head)
        return found or self._decorated(head)

    def _anchored(self, head: str) -> Finding | None:
        anchor = self._before.anchor
        if not anchor:
            return None
        if self._before.half_mark and (marked := self._marked(head, anchor)):
            return marked
        if head.startswith(anchor):
            end, rest = anchor[len(anchor.rstrip()) :], head[len(anchor) :]
            # White space after it is the anchor's own, or new because the model left that out.
            left_out = end and lacks(self._cut, end, rest)
            if left_out and not rest.strip():
                if not self._final:
                    raise _MoreNeededError
                left_out = False  # no text follows it
            return Finding(SeamKind.ANCHOR, len(anchor) - (len(end) if left_out else 0))
        return self._loosely(head, anchor)

    def _anchor_after_words(self, head: str) -> Finding | None:
        """Return the anchor after other words. Those are not part of the answer, in any language.

        The anchor occurs nowhere else in the text. If it occurs in the head, the model repeats it
        as requested, unless the answer itself has the same words twice. In that case the words
        before them are the same too, or more lines are between than words to the reader have.
        """
        anchor = self._before.anchor
        if not anchor or not may_begin_words(self._text, head):
            return None
        if self._before.line and fold(head[:48])[0][:12] == fold(self._before.line[:48])[0][:12]:
            return None  # the complete line is repeated, in other white space or typography
        at = head.find(anchor, 1)
        if at < 0:
            words, ends = fold(head)
            place = words.find(fold(anchor.strip())[0], 1)
            at = ends[place - 1] if place > 0 else -1
        if at < 0:
            if not self._final and len(head) < LONGEST + len(anchor):
                raise _MoreNeededError
            return None
        inner = self._anchored(head[at:])
        if inner is not None and not self._final and len(head) < at + inner.drop + 5:
            raise _MoreNeededError
        if inner is None or not self._is_said_before_anchor(head[:at], head[at + inner.drop :]):
            return None
        drop = inner.drop
        mark = _QUOTE.search(head[:at])
        if (
            mark
            and head[:at].count(mark[0]) % 2
            and not self._text[: len(self._text) - len(anchor)].endswith(mark[0])
        ):
            closing = _CLOSING.get(mark[0], mark[0])
            drop += len(closing) * head.startswith(closing, at + drop)
        return replace(inner, drop=drop).after(at, SeamKind.PREAMBLE)

    def _is_said_before_anchor(self, opening: str, rest: str) -> bool:
        """Whether an opening before the anchor is words to the reader, not text between two copies.

        If the text has the same words twice, it also has the same before them or after them, or it
        stopped where these words end, and they are a line or sentence of their own.
        """
        anchor = self._before.anchor
        earlier = self._text[: len(self._text) - len(anchor)]
        same = common_suffix(earlier, opening)
        led, leads = (_NUMBERS.sub("0", one[-128:]) for one in (earlier, opening))
        word = _LAST_WORD.search(leads)
        again = word is not None and common_suffix(led, leads) >= min(len(word[0]), _SAME_WORDS)
        words = opening[: len(opening) - same] if again else opening
        echo = opening[len(words) :] + anchor
        if rest.strip() and echo.lstrip().startswith(rest.lstrip()[:5]):
            return False  # a run that repeats
        if only_of_itself(words):
            return True
        if not may_be_words(words) or (rest and rest[:5] in opening) or self._is_mixed(words):
            return False
        if not again and not (self._before.in_template and self._before.is_of_template(words)):
            return True
        if self._before.in_template or not self._text[-1].isalnum() or opening[0].isspace():
            return False
        led_by = earlier[: len(earlier) - same]
        begins = led_by[-1:] in ("", "\n") or SENTENCE_END.search(led_by[-3:]) is not None
        return same > 0 and begins and self._is_one_saying(words)

    def _is_mixed(self, words: str) -> bool:
        """Whether an opening may contain text of the answer after words to the reader.

        It does if it shares words with the text, or if a sentence in it begins with a small letter.
        It also does if it is longer than a sentence and breaks off, because the words before a
        repeated phrase do that.
        """
        phrase = words.strip()
        shared = (phrase[at : at + _SHARED] for at in range(len(phrase) - _SHARED + 1))
        if "  " in phrase or any(one in self._before.tail for one in shared):
            return True
        if any(after.islower() for after in _NEXT_SENTENCE.findall(phrase)):
            return True
        ended = words.endswith("\n") or not (phrase[-1].isalnum() or phrase[-1] in ",;")
        return not ended and (
            len(phrase) > _ONE_SENTENCE or _NEXT_SENTENCE.search(phrase) is not None
        )

    def _is_one_saying(self, words: str) -> bool:
        """Whether an opening is one line with an end that no line of the text would have."""
        phrase = words.strip()
        return "\n" not in phrase and not (words.endswith("\n") and phrase[-1] not in ".!?:…")

    def _marked(self, head: str, anchor: str) -> Finding | None:
        """Return the anchor inside our prompt's tag, if the text ends as that tag begins.

        A tag without the anchor in it could be the rest of the text's own tag.
        """
        mark = _MARK.match(head)
        size = mark.end() + len(anchor) if mark else 0
        if not self._final and len(head) < size + 12:
            if mark is None and len(head) >= 12:
                return None
            raise _MoreNeededError
        if mark is None or not head.startswith(anchor, mark.end()):
            return None
        closing = f"</{mark[1]}>"
        return Finding(SeamKind.ANCHOR, size + len(closing) * head.startswith(closing, size), 8.0)

    def _loosely(self, head: str, anchor: str) -> Finding | None:
        """Return the anchor in other white space or typography, or with a capital letter first.

        `anchor` can also be the unfinished line.
        """
        lead = len(head) - len(head.lstrip()) if anchor[0].isspace() else 0
        words, ends = fold(head[lead : lead + 4 * len(anchor) + 8])  # Hangul decomposes into three
        asked = fold(anchor.strip())[0]
        if asked[:1].islower() and words[:1].isupper():  # as a sentence would begin
            asked = asked[0].upper() + asked[1:]
        if not self._final and asked.startswith(words.rstrip()):
            raise _MoreNeededError
        size = len(asked)
        if not words.startswith(asked) or ends[size - 1 : size] == ends[size : size + 1]:
            return None  # the latter: both folded characters come from one character
        end = lead + ends[size - 1]
        if not self._final and len(head) < end + 8:
            raise _MoreNeededError
        goes_on = anchor[-1] == "\n" and _INSIDE_WORD.match(head, end - 1)
        whole_line = self._text[: -len(anchor)][-1:] in ("", "\n")
        if goes_on and whole_line and "\n" + head[end] not in self._before.tail:
            return None  # no line begins so: the anchor's last word is part of a longer word
        return Finding(SeamKind.ANCHOR, end + self._other_space(head[end:]), 8.0)

    def _echo(self, head: str, text: str, *, spoken: bool = False) -> Finding | None:
        """Return an echo of `text` at the start of `head`; `spoken`: after words to the reader."""
        best: Finding | None = None
        for size in _borders(text, head):
            if _goes_round_early(head, size) or self._before.unsure_in_run(head, size):
                continue
            # The text stops inside a line. A continuation of that line cannot repeat every line
            # from the first one up to this one, so the model has begun its answer again.
            least = 0 if self._cut.inside_line and "\n" in head[:size] else _TOP
            if size >= max(least, len(text.lstrip())) and novelty("", head[:size]) >= _ALL_BITS:
                score = _SURE
            else:
                score = self._weigh(text, head, size) + (_SPOKEN if spoken else 0.0)
                whole = len(text) == len(self._text)
                if score < THRESHOLD and size >= _PROBE and best is None and whole:
                    proven = fits_only_without(self._cut, head, size)
                    if proven is None and not self._final:
                        raise _MoreNeededError
                    score = _SURE / 2 if proven else score
            if score >= (best.odds if best else THRESHOLD) or (
                best is not None and score >= THRESHOLD and self._adds(head, best.drop, size)
            ):
                # A longer echo, the anchor or a replay may still be arriving.
                known = size + max(8, min(size, 64))
                if not self._final and (
                    len(head) < known or self._before.knows(head[: max(known, 2 * _FIRST)])
                ):
                    raise _MoreNeededError
                whole = size >= min(len(text.lstrip()), 600)
                best = Finding(SeamKind.RESTART if whole else SeamKind.ECHO, size, score)
        if best is None:
            return None
        rest = head[best.drop :].lstrip("\n")
        more = self._anchored(rest) if rest else None
        return more.after(len(head) - len(rest), more.kind) if more else best

    def _adds(self, head: str, shorter: int, size: int) -> bool:
        """Whether a longer echo has new words, which the text would otherwise contain twice."""
        new = novelty(self._text, head[:size]) - novelty(self._text, head[:shorter])
        return new >= _LONGER_BITS

    def _weigh(self, text: str, head: str, size: int) -> float:
        """Return log odds that the first `size` characters of `head` are an echo."""
        score = odds(text, head, size)
        if not self._before.asked or size < _PROBE:
            return score
        if size >= self._before.asked:
            return score + 6.0
        return score + (1.0 if "\n" not in head[:size] else 0.0)

    def _proven(self, head: str) -> Finding | None:
        """Return a repetition of the last line, if the syntax allows no other reading."""
        size = line_again(self._cut, head)
        if size == 0 or (size is None and self._final):
            return None
        if size is None or (
            not self._final and self._before.knows(head[: max(size + _PROBE, 2 * _FIRST)])
        ):
            raise _MoreNeededError
        return Finding(SeamKind.ECHO, size, 4.0)

    def _echo_without_space(self, head: str) -> Finding | None:
        bare = self._before.bare
        found = self._echo(head, bare) if bare else None
        if found is None:
            return None
        start = len(bare) - found.drop
        whole_line = "\n" in self._text[len(bare) :] and bare[:start][-1:] in ("", "\n")
        needed = LINE_KNOWN if whole_line else _BARE_BITS  # a complete line may come twice
        if novelty(bare, head[: found.drop]) < needed:
            return None
        if _INSIDE_WORD.match(head, found.drop - 1):
            return None
        drop = found.drop + self._same_space(head[found.drop :])
        # If the unit of a run ends in this white space, the run continues only after it.
        return None if _goes_round_early(head, drop) else replace(found, drop=drop)

    def _same_space(self, rest: str) -> int:
        """Return how many white space characters of `rest` the text already has at its end."""
        stripped = self._text[len(self._before.bare) :]
        lead = rest[: len(rest) - len(rest.lstrip())]
        if lead.startswith(stripped):
            return len(stripped)
        return len(lead) if stripped.startswith(lead) else 0

    def _other_space(self, rest: str) -> int:
        """Return the same for white space that may differ, as it did within the anchor.

        Drop spaces if the text has none like them: two in a row, or one before a line.
        """
        lead = len(rest) - len(rest.lstrip(" "))
        blank = "\n " if "\n" in self._text[len(self._before.bare) :] else "  "
        alone = self._text[-1:].isspace() and blank not in self._cut.near
        other = lead and alone and not rest[lead : lead + 1].isspace() and rest[lead:]
        return lead if other else self._same_space(rest)

    def _decorated(self, head: str) -> Finding | None:
        """Return an echo in quotes, or after an ellipsis."""
        opened = _DECORATION.match(head)
        if not opened or not opened[0].strip() or head.lstrip()[:3] == "```":
            return None
        # The echo itself may begin with such a mark, or with white space.
        begins = {opened.end(1): "", opened.end(2): opened[3] or "", opened.end(): opened[3] or ""}
        for at, mark in begins.items():
            if head[:at].strip() and (found := self._quoted(head, at, mark)):
                return found
        return None

    def _quoted(self, head: str, at: int, mark: str) -> Finding | None:
        """Return an echo from `at` on, after `mark`."""
        rest = head[at:]
        found = self._anchored(rest) if rest else None
        found = found or (self._echo(rest, self._text) if rest else None)
        if found is None:
            return None
        drop = found.drop
        if not self._final and len(rest) < drop + 12:
            raise _MoreNeededError
        if novelty(self._text, rest[:drop]) < _BARE_BITS or self._text.endswith(head[: at + drop]):
            return None  # the latter: the mark belongs to the text
        closing = _CLOSING.get(mark, mark.replace("<", "</"))
        if closing:
            if rest.startswith(closing, drop):
                drop += len(closing)
                after = rest[drop:].lstrip("\n")
                if self._cut.in_prose and self._cut.inside_word and after[:1].islower():
                    drop = len(rest) - len(after)  # the quotation was on a line of its own
            elif mark[0] != "<" and mark != "**":
                return None
        return Finding(found.kind, at + drop, found.odds)

    def _behind_space(self, head: str) -> Finding | None:
        """Return an echo after white space that does not belong to it."""
        rest = head.lstrip()
        lead = len(head) - len(rest)
        found = self._anchored(rest) if rest else None
        if found is None and rest and lead > 1:
            found = self._echo(rest, self._text)
            start = len(self._text) - found.drop if found else 0
            if not self._cut.inside_line and self._text[start - 1 : start].strip():
                return None  # it may be a new line: an indented copy of that line
        if found is None or self._text.endswith(head[: lead + found.drop]):
            return None
        novel = novelty(self._text, rest[: found.drop]) >= _BARE_BITS
        return found.after(lead, found.kind) if novel else None

    # What precedes the continuation ------------------------------------------------------

    def _opens(self, head: str, *, depth: int) -> Finding | None:
        """Return a fence, a table's head or a preamble before the continuation."""
        found = self._refenced(head, depth=depth) or self._headed(head)
        if found is None and depth:
            found = self._prefaced(head, depth=depth)
        return found

    def _refenced(self, head: str, *, depth: int) -> Finding | None:
        opened = reopens(self._cut, head)
        if opened is None:
            return None
        size, own = opened
        rest = head[size:]
        if own is not None and self._text[-_PROBE:] + head[:size] in self._before.tail:
            return None  # such a fence follows such a line elsewhere
        if own is None and self._cut.fence and self._cut.fence.nested:
            return None
        if own is None:
            undecided = self._cut.inside_line and rest.startswith("\n") and "\n```" not in rest
            if undecided and not self._final:
                raise _MoreNeededError  # the next fence line may decide
            # It closes the fence, unless the text after it continues a run or repeats earlier text.
            if not self._cut.fence or not rest:
                return None
            if self._stays_in_run(rest):
                return Finding(SeamKind.FENCE, size)
            found = self._repeats(rest)
            return found and found.after(size, SeamKind.FENCE)
        inner = self._within(rest, depth=depth)
        return replace(inner.after(size, SeamKind.FENCE), own_fence=own)

    def _headed(self, head: str) -> Finding | None:
        size = repeated_header(self._cut, head)
        if not size:
            return None
        rest = head[size:]
        inner = self._within(rest, depth=0)
        if inner.drop == 0 and not inner.insert and self._cut.inside_line:
            in_table = self._cut.last_line.lstrip().startswith("|")
            # The repeated block ended in a newline, but the text before it did not.
            ended = "" if in_table or rest[:1] in ("", "\n") else "\n"
            inner = replace(inner, insert=wanted(self._cut, rest) or ended)
        return inner.after(size, SeamKind.ECHO)

    def _prefaced(self, head: str, *, depth: int) -> Finding | None:
        best: Finding | None = None
        for at in ends_of_openings(head):
            opening, rest = head[:at], head[at:]
            if self._completes_word(opening, rest):
                return Finding(SeamKind.PREAMBLE, at, 4.0)
            if not only_of_itself(opening) or (not rest and not self._final):
                continue
            if not self._final and "\n" not in rest and len(rest) < _RECORD:
                raise _MoreNeededError  # the rest of a record shows what the opening is
            inner = self._within(rest, depth=depth - 1)
            needed = _APART_BITS if opening.endswith("\n\n") else _SPOKEN_BITS
            echo = rest[: inner.drop] if inner.kind is SeamKind.ECHO else ""
            novel = not echo or novelty(self._text, echo, enough=needed) >= needed
            if inner.kind in _REPEATS and novel:
                return inner.after(at, SeamKind.PREAMBLE)
            if not cannot_stand(self._cut, opening, rest):
                if self._stays_in_run(rest):
                    return best
                continue
            if inner.kind in _REPEATS and echo.strip() and not self._before.period:
                return inner.after(at, SeamKind.PREAMBLE)
            if inner.kind in _REPEATS:
                inner = Finding(SeamKind.ASSUMED)  # white space and runs repeat themselves
            at -= own_line_break(self._cut, opening, rest)
            best = replace(inner.after(at, SeamKind.PREAMBLE), odds=4.0)
        return best

    def _completes_word(self, opening: str, rest: str) -> bool:
        """Whether `rest` completes the truncated word to one that the text has.

        Then a line before it that begins with a capital letter is not part of the text.
        """
        cut = self._cut
        if not (cut.inside_word and opening[0].isupper() and rest[:1].islower()):
            return False
        if not self._final and rest.isalpha():
            raise _MoreNeededError
        return may_be_words(opening) and joins_to_known_word(cut, rest)

    def _within(self, rest: str, *, depth: int) -> Finding:
        """Return the finding after an opening: an echo, another opening, or the continuation."""
        found = self._anchored(rest) if rest else None
        if found is None and rest and self._stays_in_run(rest):
            return Finding(SeamKind.ASSUMED)
        found = found or (self._repeats(rest, spoken=True) if rest else None)
        found = found or self._line_again(rest)
        if found is None and rest and depth >= 0:
            found = self._opens(rest, depth=depth)
        if found is not None:
            return found
        if not self._final and self._may_tell(rest):
            raise _MoreNeededError
        return self._plain(rest) if rest.strip() else Finding(SeamKind.ASSUMED)

    def _line_again(self, rest: str) -> Finding | None:
        """Return a repeated last line after an opening. There even a short one is an echo."""
        line = self._cut.line or self._cut.last_line + "\n"
        begun = self._text.endswith(line) and rest.startswith(line) and len(rest) > len(line)
        if not begun or is_run(line) or not line.strip():
            return None
        if not self._cut.line and novelty(self._text, line) < _LINE_BITS:
            return None  # a complete line may come twice
        if not any(map(str.isalpha, line)):
            return None
        if not self._before.knows(rest[: max(len(line) + _PROBE, 2 * _FIRST)]):
            return Finding(SeamKind.ECHO, len(line), THRESHOLD)
        if not self._final:
            raise _MoreNeededError
        return None

    # No repetition -----------------------------------------------------------------------

    def _plain(self, head: str) -> Finding:
        if drop := superfluous(self._cut, head):
            return Finding(SeamKind.WHITESPACE, drop, 3.0)
        if insert := wanted(self._cut, head):
            return Finding(SeamKind.WHITESPACE, 0, 3.0, insert)
        if skips_ahead(self._cut, head):
            return Finding(SeamKind.SKIP, 0, 0.0)
        return Finding(SeamKind.ASSUMED, 0, 0.0)

    def _may_tell(self, head: str) -> bool:
        """Whether a longer `head` may reveal an echo, a preamble or a fence at its start."""
        body = head.lstrip()
        if len(body) < _FIRST + 4:
            return True
        line = body[:_FIRST].partition("\n")[0]
        if self._before.knows(line if len(line) >= _PROBE else body[:_FIRST]):
            return True
        if body[:3] in ("```", "~~~") and "\n" not in body.rstrip():
            return True
        ends = ends_of_openings(head)
        if not ends and len(head) <= LONGEST and may_begin_words(self._text, head):
            return True  # the attempt may end with a refusal
        for at in ends:  # before the text from its top
            rest = head[at : at + _FIRST + 4]
            if rest.strip() and self._before.top.startswith(rest) and may_be_words(head[:at]):
                return True
        return len(head) <= LONGEST and may_become_of_itself(head)


def _borders(text: str, head: str) -> list[int]:
    """Return the sizes, in ascending order, of all beginnings of `head` that end `text`."""
    sizes = [n for n in range(1, min(_PROBE, len(head) + 1)) if text.endswith(head[:n])]
    if len(text) < _PROBE:
        return sizes
    probe = text[-_PROBE:]
    at = head.find(probe)
    while at >= 0 and len(sizes) < 24:
        if text.endswith(head[: at + _PROBE]):
            sizes.append(at + _PROBE)
        at = head.find(probe, at + 1)
    return sizes


def _goes_round_early(head: str, size: int) -> bool:
    """Whether `head` seems to repeat its first `size` characters over and over."""
    known = min(size, 64)
    following = head[size : size + known]
    if head.startswith(following) and len(following) >= min(known, 3):
        return True
    # Or `head` repeats a part of them: the same text follows after them as within them.
    again = head.find(head[:_PROBE], 1, size + _PROBE - 1)
    while again > 0:
        same = common_prefix(head[again:], head)
        undecided = again + same == len(head)
        if again + same >= size + 3 and (same >= 24 or undecided):
            return True
        again = head.find(head[:_PROBE], again + 1, size + _PROBE - 1)
    return False
