"""Reads the answer to a request for the rest of an argument: where it begins, where it ends.

An answer can be plain text or JSON text, with words, a fence or a quote around it. Two facts help
to read it: the text that arrived, and the sign that the model was asked to write at the end. The
last words of that text were not quoted to the model, so they prove the place if the answer has
them. If several readings are possible and they differ, the answer is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from continuation.answer.open_string import escaped, read_string
from continuation.seams.earlier import EarlierText
from continuation.seams.judge import Judgement, SeamKind
from continuation.seams.text import common_suffix

_LEAD = re.compile(
    r"(?P<words>.*?)(?:^[ \t]*(?P<mark>`{3,}|~{3,})[^`\n]*(?:\n|\Z))?\s*"
    r"(?P<quote>(?<![^\s:\[,])\")?\Z",
    re.DOTALL | re.MULTILINE,
)
"""What may precede the text: words, the first line of a fence, a quote."""
_TAG = re.compile(r"</?(?:anchor|arrived)[-\d]*>")
"""The tags with which our prompt marks words."""
_LONGEST = 300
"""Most characters of words before the anchor."""
_CLOSERS = re.compile(r'(?:"(?P<ends>[\s}\]]*))?\s*(?:`{3,}|~{3,}|`)?\s*')
"""What may follow a JSON string's text: its quote, brackets around it, the end of a fence."""
_BETWEEN = ("<", "`", '"', *" \t\r\n")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_BARE_QUOTE = re.compile(r'(?:^|[^\\])"')


@dataclass(frozen=True, slots=True)
class Rest:
    """The reading of an answer."""

    text: str | None = None
    """The text after the quoted text; `None`: it is unknown where the answer continues."""
    kind: SeamKind = SeamKind.ANCHOR
    """What identifies the place: the repeated words, or words and a fence before them."""
    ended: bool = False
    """Whether the end of the text is marked."""
    decoded: bool = True
    """Whether it is known that the text is plain, or that it is JSON."""
    fenced: bool = False
    """Whether the end of a fence was dropped. The line break before it may have been text."""
    proven: bool = True
    """Whether the words that were not quoted, if any, prove the place."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where known words are in an answer, and what is before them."""

    at: int
    form: str
    """The words as the answer has them."""
    as_json: bool | None
    """Whether they were written as in JSON; `None`: both forms are the same."""
    words: str
    """Words before the text, if they are not part of it."""
    sure: bool
    """Whether nothing is before them, or only text that had arrived before these words."""
    anchored: bool
    """Whether the anchor is directly before them."""
    whole: bool
    """Whether all of the quoted text is before them."""
    quote: bool
    mark: str
    """The marker of a fence that was opened, or `""`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before an answer is read."""

    before: str
    """The text that was quoted to the model."""
    anchor: str
    """The end of that text, which the model was asked to repeat."""
    unquoted: str
    """The words that had arrived after it, but were not quoted."""
    sign: str
    """The sign that the model was asked to write at the end."""

    def read(self, reply: str, *, cut: bool) -> Rest:
        """Read an answer. `cut`: it was truncated."""
        if self.unquoted:
            places = list(self._places(reply, self.unquoted))
            if found := self._chosen(places, self.unquoted):
                return self._read(reply, found, self.unquoted, cut=cut)
            if places:
                return Rest()
        if not self.anchor:
            return Rest()
        places = list(self._places(reply, self.anchor))
        found = self._chosen(places, self.anchor)
        if found is None or len(places) > 1:
            return Rest()
        rest = self._read(reply, found, self.anchor, cut=cut)
        text = None if rest.text is None else rest.text[len(self.anchor) :]
        if text is not None and not self.unquoted and text[:1] in _BETWEEN:
            return Rest()  # it may separate the anchor from the text
        return replace(rest, text=text, proven=not self.unquoted)

    def ended(self, text: str, *, cut: bool, after: int = 0) -> tuple[str, bool]:
        """Return a text without the sign of its end, and whether the complete sign is there.

        `cut`: the text may end with a part of the sign, which is dropped too.
        """
        if (at := text.find(self.sign, after)) >= 0:
            quoted = "`" if text.startswith("`", at + len(self.sign)) else ""
            return text[:at].removesuffix(quoted), True
        sizes = range(len(self.sign) - 1, 0, -1) if cut else ()
        half = next((size for size in sizes if text.endswith(self.sign[:size])), 0)
        return text[: len(text) - half], False

    def _places(self, reply: str, words: str) -> Iterator[_Place]:
        """Yield each place of known words in an answer, in any form."""
        for form in dict.fromkeys(write(words) for write in _FORMS):
            same = None if form == escaped(words) else False
            at = reply.find(form)
            while at >= 0:
                yield self._place(reply, at, form, True if form != words else same, words)
                at = reply.find(form, at + 1)

    def _place(self, reply: str, at: int, form: str, as_json: bool | None, words: str) -> _Place:
        """Return a place, with what is before it except text that arrived before these words."""
        hidden = words != self.anchor
        known = self.before if hidden else self.before.removesuffix(words)
        echo, size, write = 0, len(known), _FORMS[0]
        for way in _FORMS:
            written = way(known)
            if (length := common_suffix(reply[:at], written, most=len(written))) > echo:
                echo, size, write = length, len(written), way
        lead = _LEAD.match(reply[: at - echo])
        quote = lead is not None and lead["quote"] is not None
        if quote and write(self.anchor) != self.anchor and write is not _FORMS[0]:
            as_json = True if as_json is None else as_json
        lead_words = _TAG.sub("", lead["words"] if lead is not None else reply[:at]).strip(
            " \t\r\n`~"
        )
        arrived = any(way(self.before).rstrip().endswith(lead_words) for way in _FORMS)
        sure = not lead_words or (hidden and arrived)
        anchored = not hidden or echo >= len(write(self.anchor))
        whole = echo == size > 0
        mark = lead["mark"] if lead is not None else None
        return _Place(at, form, as_json, lead_words, sure, anchored, whole, quote, mark or "")

    def _chosen(self, places: list[_Place], words: str) -> _Place | None:
        """Return the place where the answer continues the text; `None`: it is not certain."""
        places.sort(key=lambda place: place.at)
        if sure := next((place for place in places if place.sure), None):
            return sure
        if len(places) != 1:
            return None
        (place,) = places
        if place.whole:
            return place
        if words != self.anchor and place.anchored and len(place.words) <= _LONGEST:
            return place
        line = "\n" not in place.words and len(place.words) <= _LONGEST
        earlier = EarlierText(self.before, words)
        found = Judgement(earlier, final=True).look(f"{place.words}\n\n{words}")
        to_reader = found is not None and found.kind is SeamKind.PREAMBLE
        return place if line and to_reader else None

    def _read(self, reply: str, place: _Place, words: str, *, cut: bool) -> Rest:
        """Read an answer from known words on, in each possible way."""
        body = reply[place.at :]
        kind = SeamKind.PREAMBLE if place.words and not place.sure else SeamKind.ANCHOR
        hidden = words != self.anchor
        known_form = place.as_json if hidden or place.quote else None  # a model may copy the anchor
        json_rest = self._as_json(body, place, words, cut=cut) if known_form is not False else None
        if known_form:
            return replace(json_rest, kind=kind) if json_rest else Rest(decoded=False)
        if place.as_json:
            return Rest(decoded=False)
        plain = self._as_plain(body, place, kind, cut=cut)
        if place.quote and plain.text is not None and plain.text.endswith('"'):
            return json_rest or Rest(decoded=False)
        if known_form is None and not _is_plain(plain.text or "", len(words)):
            return Rest(decoded=False)
        if json_rest is not None and (json_rest.text or "").rstrip() != (plain.text or "").rstrip():
            return Rest(decoded=False)
        return plain

    def _as_plain(self, body: str, place: _Place, kind: SeamKind, *, cut: bool) -> Rest:
        text, ended = self.ended(body, cut=cut, after=len(place.form))
        fenced = False
        if place.mark and (end := re.search(rf"\n?{place.mark}\s*\Z", text)):
            text, fenced = text[: end.start()], True
        fenced = fenced or (bool(place.mark) and not (ended or cut))
        # Some characters may be escaped, and others not.
        quotes = '\\"' in text and not _BARE_QUOTE.search(text)
        lines = "\n" not in text and "\\n" in text and "\\n" in _QUOTED.sub("", self.before + text)
        kind, half = SeamKind.FENCE if fenced else kind, quotes or lines
        return Rest(text, kind, ended, not half, fenced)

    def _as_json(self, body: str, place: _Place, words: str, *, cut: bool) -> Rest | None:
        """Read a text as the inside of a JSON string; `None`: it is not one, or text follows it."""
        end, value = read_string(body, 0)
        after = body[end:]
        text, ended = self.ended(value, cut=cut and not after, after=len(words))
        if not ended and not (cut and len(after) < 12 and after.startswith("\\")):
            tail, ended = self.ended(after, cut=False)
            closers = _CLOSERS.fullmatch(tail)
            if closers is None:
                return None
            closes = closers["ends"] is not None
            if closes and not (place.quote or closers["ends"].strip()):
                return None  # a lone quote may be text
            ended = ended or closes
        closed = place.quote and (cut or after.startswith('"'))
        shown, used = _escapes(body[: len(place.form)]), _escapes(body[len(place.form) : end])
        if '"' in used and _BARE_QUOTE.search(self.before):
            shown.add('"')  # if quotes were not escaped, there would be a bare one
        if not (closed or "\\" in shown or {"n", '"'} <= shown or used <= shown):
            return None  # some characters may be escaped, and others not
        return Rest(text, ended=ended) if text.startswith(words) else None


def in_ascii(text: str) -> str:
    """Return a text as written in a JSON string with only ASCII characters."""
    return json.dumps(text)[1:-1]


_FORMS: tuple[Callable[[str], str], ...] = (str, escaped, in_ascii)
"""The forms in which a text may be written: plain, or as in JSON."""


def _escapes(text: str) -> set[str]:
    """Return the characters after the backslashes of a JSON string."""
    return {match[1] for match in _ESCAPE.finditer(text)}


def _is_plain(text: str, known: int) -> bool:
    """Whether a text is certainly not JSON, or would be the same as JSON.

    It is not JSON if a line break precedes its last backslash, or a bare quote its first. The first
    `known` characters do not count, because the model may have copied them. Nor is it JSON if it
    has an escape that JSON does not have.
    """
    if "\\" not in text[known:]:
        return True
    first, last = text.index("\\", known), text.rindex("\\")
    if '"' in text[known:first] or "\n" in text[known:last].strip():
        return True
    end, _ = read_string(text[known:], 0)
    return text.startswith("\\", known + end) and len(text) - known - end >= 6
