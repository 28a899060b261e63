"""Completion of a call that was cut.

The call stays held. The text of the string that it was cut in is read as a text of its own, by a
message builder beside the answer's: the model is asked for the rest of it as plain text, which is
joined by a seam like any other. The last words that arrived are not quoted to the model: if its
text contains them all the same, it surely continues there. The model is asked to write a sign after
the last character, which tells where the text ends. Members that the objects around the string
still need, and further elements of arrays around it, are asked for by a second call.

If a call was cut anywhere else, its whole members are kept and a call asks for the others.

That the result is the call is proven, never guessed: the model repeats at each seam what was
quoted, or writes what was not, the arguments are whole JSON, and the tool's schema accepts them.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from continuation.answer.blocks import Block
from continuation.answer.message_builder import BEHIND
from continuation.answer.open_string import (
    OpenString,
    Path,
    as_written,
    bared,
    dotted,
    escaped,
    open_string,
    whole_members,
    within,
)
from continuation.seams.judge import Judge, SeamKind
from continuation.seams.text import choose_anchor
from continuation.types import AttemptResult, Enough, Head, JoinPlan, Json, Proof, Stop
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.dialect import Feed
    from continuation.seams.seam import Verdict

_SURE = frozenset({SeamKind.ANCHOR, SeamKind.PREFILL})
_LEAST, _LONGEST = 80, 400
"""Least and most characters that the model is asked to repeat."""
_REMARK = re.compile(
    r"\W{0,3}(?:I(?:\W(?:m|ve|ll|d)| am| have| can(?:not|\Wt)?| could| will| hope| stopped)\b"
    r"|(?:all )?done[.!]|end of (?:the )?file\b"
    r"|sorry\b|unfortunately\b|let me know\b|would you like\b|please note\b"
    r"|(?:that|this)(?:\Ws| is| was| completes| concludes) (?:the|all)\b"
    r"|the (?:\w+ )?(?:file|argument|rest|content) is (?:now )?(?:complete|whole|finished)\b)",
    re.IGNORECASE,
)
"""A line to the reader."""
_TAG = re.compile(r"</?(?:anchor|arrived)[-\d]*>")
"""What our prompt sets words apart by."""
_BARE = re.compile(r"(?<!\r)\n")
_ELISION = re.compile(
    r"^[^\w\n]*(?:\.\.\.|\u2026|\[)[^\n]*\b(?:(?:rest|remainder) of (?:the|this|your)\b|unchanged\b"
    r"|(?:omitted|truncated|shortened)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that stands for something left out."""


class CallCompletion:
    """The completion of one cut call, and what is known for and against its result."""

    def __init__(self, answer: MessageBuilder, call: Block) -> None:
        self.call = call
        self.name = as_text(call.start.get("name"))
        self._answer = answer
        arrived = answer.arrived(call)
        self.unread = arrived is None
        """The server parsed the arguments, so the text that arrived is unknown."""
        raw = arrived or ""
        self._place = open_string(raw) if not call.free else None
        self._members = whole_members(raw) if not call.free else None
        self.dropped: str | None = None
        """The JSON text to generate again if only whole members are kept; `None`: it cannot be."""
        if self._members is not None:
            kept, shown = self._members.head + self._members.joint, answer.shown_of(call)
            self.dropped = raw[len(self._members.head) :] if kept.startswith(shown) else None
        self.proof = Proof()
        """What is known so far; `engine.table.PROOFS` decides what becomes of the call."""
        self.in_text = False
        """The text that the call broke off in is continued; `False`: members are asked for."""
        self.argument = self._place.name if self._place is not None else "input"
        """The argument that the call was cut in."""
        self.anchor: str | None = None
        """The words that the model is asked to repeat; `None`: no words are fit for that."""
        self._arrived = self._place.text if self._place is not None else raw
        """The string's text so far, with the words that are not quoted."""
        self._unquoted = ""
        """The last words of that text, which are not quoted to the model."""
        self.text = answer.aside(self._arrived)
        """Reads the text of the string."""
        self.asked = answer.aside("")
        """Reads the call in which the missing members arrive."""
        self.lacking: list[str] = []
        """The names of the missing members."""
        self.allowed: list[str] = []
        """The names of optional members that are not there."""
        self._begun: set[str] | None = None
        """The names that the member which broke off may have; `None`: no member broke off."""
        self._more: dict[Path, Any] = {}
        """Members and array elements that arrived, by the path of their object or array."""
        self._places: dict[str, tuple[Path, str | None]] = {}
        """Name under which a value is asked for -> path of its object, and its name there; `None`
        for further elements of the array at that path."""
        self.sign = ""
        """The sign that the model is asked to write after the text's last character."""

    def know(self, **facts: Any) -> None:
        """Set facts of `proof`."""
        self.proof = replace(self.proof, **facts)

    def quote(self, *, again: bool) -> None:
        """Choose the words that the model is asked to repeat, and those that are not quoted.

        `again`: if there is no text to continue, `dropped` may be generated again.
        """
        text = self._arrived
        unquoted = _quotable(text) or ""
        if len(text) - len(unquoted) < self._shown[1]:
            unquoted = ""  # what was shown of a live call cannot be taken back
        self.anchor = _quotable(text.removesuffix(unquoted))
        if self.anchor is None:
            unquoted, self.anchor = "", _quotable(text)
        self._unquoted, before = unquoted, text.removesuffix(unquoted)
        self.text = self._answer.aside(before)
        self.sign = f"<end-{zlib.crc32(before.encode(errors='surrogatepass')):08x}>"
        inside, quotable = self.call.free or self._place is not None, self.anchor is not None
        listed = any(isinstance(key, int) for key in self._place.keys) if self._place else False
        self.in_text = inside and quotable and not (listed and again)  # a small list: ask again
        self.know(in_text=inside or again, quotable=quotable or again)

    @property
    def _shown(self) -> tuple[OpenString | None, int]:
        """The string as the caller has been shown it, if it was, and how many characters of it."""
        shown = self._answer.shown_of(self.call)
        if self.call.free or not shown:
            return None, len(shown)
        place = open_string(shown)
        same = place is not None and self._place is not None and place.keys == self._place.keys
        return (place, len(place.text)) if place is not None and same else (None, 0)

    @property
    def kept(self) -> str:
        """The JSON text of the members that are whole."""
        return self._members.head + "}" if self._members is not None else ""

    def begin(self, plan: JoinPlan, head: Head) -> Feed:
        """Return the feed for the model's continuation; in a live call it shows what comes."""
        feed, (place, known) = self.text.begin(plan, head), self._shown
        if not self.call.begun or (not self.call.free and (place is None or place.half)):
            return feed

        def flow() -> bytes:
            nonlocal known
            verdict = next((found for _, found in self.text.seams()), None)
            met = self.text.text.startswith(self._unquoted, len(self.text.before))
            if verdict is None or not (met and self._exact(verdict)):
                return b""  # what is shown is not taken back
            text = self._ended(self.text.text, cut=True)[0]
            new = text[known : max(known, len(text) - BEHIND)]
            known += len(new)  # the rest stays held: it may be the sign, or address the reader
            return self._answer.go_on(self.call, new) if new else b""

        def show(chunk: bytes) -> bytes:
            try:
                feed(chunk)
            except Enough as enough:
                raise Enough(flow(), enough.result) from None
            return flow()

        return show

    @staticmethod
    def _exact(verdict: Verdict) -> bool:
        """Whether the model repeated the quoted words exactly."""
        moved = verdict.taken_back or verdict.inserted
        return verdict.kind in _SURE and verdict.confidence == 1 and not moved

    def take(self, result: AttemptResult, *, sure: bool) -> None:
        """Add an attempt's text to the string; `sure`: trust only seams that repeat known words."""
        verdicts, before, words = self.text.seams(), self.text.before, self.anchor or ""
        verdict, cut = verdicts[-1][1] if verdicts else None, result.stop is not Stop.END
        reply, ended = self._ended(self.text.attempt_text, cut=cut)
        new, decoded, lead, fence = self._after(reply, words, cut=cut)
        if new is None and self._unquoted:  # perhaps it began with what follows
            words, at = self._unquoted, reply.find(self._unquoted)
            echo = at >= 0 and before.endswith(reply[:at])
            if not echo:
                new, decoded, lead, fence = self._after(reply, words, cut=cut)
            if echo or (new is None and at >= 0 and _echoes(reply[:at], before)):
                new, lead, fence = reply[at + len(words) :], "", ""
            new = words + new if new is not None else None
        self.know(refused=result.stop is Stop.REFUSED, decoded=decoded or self._plain(reply))
        if new is not None:
            again = before.endswith(
                reply.partition(words)[0] + words
            )  # it repeated all the text before
            # Whether the line break before a fence's end is the text's, only the sign tells.
            if fence == "closed" or (fence and not (ended or cut)):
                kind, trusted = SeamKind.FENCE, not sure
            elif lead and not (again or _to_reader(lead, words, before)):
                kind, trusted = SeamKind.PREAMBLE, not sure
            else:
                kind, trusted = SeamKind.ANCHOR, True
            self.know(added=bool(new) or ended, exact=True, seam=str(kind))
        else:
            new = self._ended(self.text.text, cut=cut)[0][len(before) :]
            trusted = verdict is not None and (not sure or self._exact(verdict))
            self.know(
                added=verdict is not None and result.made_progress,
                exact=verdict is not None and not (verdict.taken_back or verdict.inserted),
                seam=str(verdict.kind) if verdict is not None else "",
            )
        new = self._met(new, before)
        if before + new != self.text.text:
            self.text = self._answer.aside(before + new)
        self._arrived = self.text.text
        self.know(trusted=trusted, remarks=not cut and _adds_remark(new, before))
        if len(new) < len(self._unquoted) + cut:  # more than that had arrived
            self.know(added=False)

    def _ended(self, text: str, *, cut: bool) -> tuple[str, bool]:
        """Return a text up to the sign of its end, and whether that is there; `cut`: half is."""
        if (at := text.find(self.sign, max(0, text.find(self.anchor or "")))) >= 0:
            quoted = "`" if text.startswith("`", at + len(self.sign)) else ""
            return text[:at].removesuffix(quoted), True
        sizes = range(len(self.sign) - 1, 0, -1) if cut else ()
        half = next((size for size in sizes if text.endswith(self.sign[:size])), 0)
        return text[: len(text) - half], False

    def _after(self, reply: str, words: str, *, cut: bool) -> tuple[str | None, bool, str, str]:
        """Return what follows known words that an answer begins with, and whether it was JSON.

        Also the line of words and the fence before them.
        """
        body, lead, fence = bared(reply, words)
        plain = as_written(body, words, cut=cut) if self._place is not None else None
        if plain is None and body.startswith(words):
            return body[len(words) :], False, lead, fence
        return plain, plain is not None, lead, fence

    def _met(self, new: str, before: str) -> str:
        """Return what is new from where the words are that had arrived and were not quoted."""
        known = self._unquoted
        if (at := new.find(known)) > 0:
            new, between = new[at:], new[:at]
            self.know(exact=self.proof.exact and _echoes(between, before))
        elif at < 0:  # the same in other characters: line ends, blanks, escapes
            head = _letters(new[: 4 * len(known)])
            same = new.startswith(escaped(known)) or head.startswith(_letters(known))
            self.know(exact=self.proof.exact and not same)
        if "\r\n" in before and not _BARE.search(before) and _BARE.search(new):
            self.know(exact=False)
        return new

    def _plain(self, reply: str) -> bool:
        """Whether what an attempt reply is known to be plain text: JSON has no bare line breaks."""
        known = self.anchor or "", self._unquoted
        tells = self._place is None or any(w in reply and escaped(w) != w for w in known)
        return tells or "\\" not in reply or "\n" in reply.strip()

    @property
    def arguments(self) -> str:
        """The whole argument text: the string with its text so far, and all that is open closed."""
        if not self.in_text:
            more = dumps(self._more.get((), {})).decode()
            return self._members.with_more(more) if self._members is not None else ""
        place = self._shown[0] or self._place
        return self._arrived if place is None else place.with_text(self._arrived, self._more)

    def missing(self, schema: Json | None) -> Json | None:
        """Return a JSON schema for the members that the call lacks; `None`: ask for none."""
        if self.call.free:
            return None
        shape = schema or {}
        have, known = as_json(parsed(self.arguments)), as_json(shape.get("properties"))
        if self.in_text and self._place is not None:
            members = self._behind(self._place.keys, shape, have) if have else {}
            lacking, may, begun = list(members), [], set[str]()
        else:
            lacking = [str(name) for name in as_list(shape.get("required")) if name not in have]
            if self._members is not None:
                self._begun = self._members.begun([*lacking, *known])
            begun = self._begun or set()
            if self._begun is not None and not begun:
                self.know(lacking="what was to follow")
                return None
            lacking += begun.difference(lacking) if len(begun) == 1 else ()
            may = [name for name in known if name not in have and name not in lacking]
            members = {name: known.get(name, {}) for name in (*lacking, *may)}
        if not (lacking or begun):
            return None
        self._places = {name: self._places.get(name, ((), name)) for name in members}
        self.lacking, self.allowed = lacking, may
        return {"type": "object", **shape, "properties": members, "required": lacking}

    def _behind(self, keys: Path, shape: Json, value: Any) -> dict[str, Any]:
        """Return what each object and array open around a string lacks: name -> JSON schema."""
        members = dict[str, Any]()
        for depth, key in enumerate(keys):
            path, here = keys[:depth], within(shape, keys[:depth])
            if isinstance(key, int):
                members[dotted(path)] = {"type": "array", "items": here.get("items", {})}
                self._places[dotted(path)] = path, None
            names = as_list(here.get("required")) if isinstance(key, str) else []
            for name in [str(name) for name in names if name not in value]:
                members[dotted((*path, name))] = as_json(here.get("properties")).get(name, {})
                self._places[dotted((*path, name))] = path, name
            value = value[key]
        return members

    @property
    def lists(self) -> list[str]:
        """The names in `lacking` of arrays whose first elements are there."""
        return [name for name in self.lacking if self._places[name][1] is None]

    def add(self, members: AttemptResult) -> None:
        """Take the missing members from the call that was asked for; `members`: how that ended."""
        given = as_json(parsed(self.asked.last_arguments))
        needed = {*self.lacking}
        begun = self._begun or needed
        good = members.stop is Stop.END and given.keys() >= needed and bool(given.keys() & begun)
        have: Any = parsed(self.arguments)
        more = dict[Path, Any]()
        for asked, (path, name) in self._places.items():
            if asked in given and name is not None:
                more.setdefault(path, {})[name] = given[asked]
            elif name is None:
                there = reduce(lambda value, key: value[key], path, have)
                more[path] = follow = as_list(given.get(asked))
                # If an element comes again, it is unknown whether it is meant twice.
                good = good and follow == given[asked] and not any(one in there for one in follow)
        self._more = more
        if not good:
            self.know(lacking=", ".join(self.lacking) or "what was to follow")

    def close(self, schema: Json | None) -> None:
        """Check the completed arguments against JSON and `schema`, if the tool has one."""
        whole: object = {} if self.call.free else parsed(self.arguments)
        if not isinstance(whole, dict):  # the text before the string is not strict JSON
            self.know(parses=False)
        elif schema is not None and not self.call.free:
            self.know(mistake=mistake(whole, schema))

    def deliver(self) -> AttemptResult | None:
        """Make the call whole, return the result; `None`: it does not begin with what was shown."""
        if self._answer.complete_call(self.call, self.arguments):
            return self._answer.ended()
        self.know(seen=True)
        return None


def _quotable(before: str) -> str | None:
    """Return the end of a text that the model is asked to repeat; `None`: no end is fit."""
    anchor = choose_anchor(before)
    if anchor is None:
        return None
    least = start = max(0, len(before) - max(len(anchor), _LEAST))
    # Whole lines: a model that skips text will hardly begin with two of them. And with a character
    # that JSON escapes, the repetition tells whether plain text or JSON came.
    while start > 0 and (before[start - 1] != "\n" or escaped(before[start:]) == before[start:]):
        start = before.rfind("\n", 0, start - 1) + 1
    if len(before) - start > _LONGEST:  # of a long line as much as has such a sign
        near = range(least, max(-1, len(before) - _LONGEST), -1)
        start = next((at for at in near if escaped(before[at:]) != before[at:]), least)
    return before[start:]


def _to_reader(lead: str, words: str, before: str) -> bool:
    """Whether a line before the words that were asked for is a preamble to the reader."""
    found = Judge(before, words).look(f"{lead}\n\n{words}", final=True)
    return found is not None and found.kind is SeamKind.PREAMBLE


def _echoes(text: str, before: str) -> bool:
    """Whether a text says nothing but what was reply, in our tags or a fence perhaps."""
    return _TAG.sub("", text).strip(" \t\r\n`~") in before


def _letters(text: str) -> str:
    """Return what of a text no manner of writing it changes."""
    return re.sub(r"\W", "", normalize("NFKD", text))


def _closes_too_much(text: str) -> bool:
    """Whether a text ends what nothing in it began: a tag, a fence, the object it stood in."""
    last = text.rstrip().rpartition("\n")[2].lstrip()
    if tag := re.search(r"</([\w.:-]+)>\Z", last):
        return re.search(rf"<{re.escape(tag[1])}\b", text) is None
    if last in ("```", "~~~"):
        return len(re.findall(rf"^[ \t]*{last}", text, re.MULTILINE)) % 2 == 1
    ends = re.search(r'"\s*[}\]]+\Z', last) is not None
    return ends and text.count(last[-1]) > text.count("{" if last[-1] == "}" else "[")


def _adds_remark(new: str, before: str) -> bool:
    """Whether a new text says at its end, or leaves out, what no text before it did."""
    if re.search(r"<end\b[^\n]{,12}\Z", new.rstrip()) or _closes_too_much(before + new):
        return True
    last, known = new.strip().rsplit("\n", 3)[-3:], before.split("\n")
    if any(map(_REMARK.match, last)) and not any(map(_REMARK.match, known)):
        return True
    return _ELISION.search(new) is not None and _ELISION.search(before) is None


def mistake(arguments: Any, schema: Json) -> str | None:
    """Return where arguments break a schema, without their content; `None`: nowhere."""
    # Imported here: only completed calls need it.
    from jsonschema import Draft202012Validator, exceptions
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        validator = Draft202012Validator(schema, registry=Registry())  # which fetches nothing
        for error in validator.iter_errors(arguments):  # pyright: ignore[reportUnknownMemberType]
            place = ".".join(map(str, error.absolute_path)) or "the arguments"
            return f"{place}: the tool's schema says {error.validator!r}"
    except Unresolvable:
        return "the tool's schema refers to what is not in it"
    except (exceptions.UnknownType, TypeError, ValueError):
        return "the tool's schema cannot be read"
    return None
