"""A call that was cut, on its way to be whole.

The call stays held. What the string that it was cut in says so far is read as a text of its own, by
a message builder beside the answer's: the model is asked for the rest of it as plain text, and that
text passes the same seam as any other. The last words that arrived are not quoted to the model: if
it goes on with them all the same, there is no doubt where it goes on. A sign that it is asked to
write behind the last character tells where the text ends. What the objects that are open around the
string still need, and what follows in arrays, is asked for by a call.

Cut anywhere else, the members that are whole are kept, and the others are asked for by a call.

Whether what came of it is a call is proven, never guessed: each seam repeats what was quoted, or
what was not, the arguments are whole JSON, and the tool's schema takes them.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

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
from continuation.types import AttemptResult, Enough, Head, Json, Proof, Resume, Stop
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.dialect import Feed
    from continuation.seams.seam import Verdict

_SURE = frozenset({SeamKind.ANCHOR, SeamKind.PREFILL})
_LEAST, _LONGEST = 80, 400
"""Characters that the model is asked to repeat."""
_REMARK = re.compile(
    r"\W{0,3}(?:I(?:\W(?:m|ve|ll|d)| am| have| can(?:not|\Wt)?| could| will| hope| stopped)\b"
    r"|sorry\b|unfortunately\b|let me know\b|would you like\b|please note\b"
    r"|(?:that|this)(?:\Ws| is| was| completes| concludes) (?:the|all)\b"
    r"|the (?:\w+ )?(?:file|argument|rest|content) is (?:now )?(?:complete|whole|finished)\b)",
    re.IGNORECASE,
)
"""A line to the reader."""
_ELISION = re.compile(
    r"^[^\w\n]*(?:\.\.\.|\u2026|\[)[^\n]*\b(?:(?:rest|remainder) of (?:the|this|your)\b|unchanged\b"
    r"|(?:omitted|truncated|shortened)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line in place of what a text leaves out."""


class CallCompletion:
    """One cut call: what its string says, and what proves that it is whole."""

    def __init__(self, answer: MessageBuilder, call: Block) -> None:
        self.call = call
        self.name = as_text(call.start.get("name"))
        self._answer = answer
        arrived = answer.arrived(call)
        self.unread = arrived is None
        """The server has parsed what arrived of the arguments."""
        raw = arrived or ""
        self._place = open_string(raw) if not call.free else None
        self._members = whole_members(raw) if not call.free else None
        self.dropped: str | None = None
        """What is asked for anew if the members that are whole are kept; `None`: it cannot be."""
        if self._members is not None:
            kept, shown = self._members.head + self._members.joint, answer.shown_of(call)
            self.dropped = raw[len(self._members.head) :] if kept.startswith(shown) else None
        self.proof = Proof()
        """What is known of it so far; `engine.table` says what that makes of the call."""
        self.in_text = False
        """The text that it broke off in is gone on with; else members are asked for."""
        self.argument = self._place.name if self._place is not None else "input"
        """The argument that it was cut in."""
        self.anchor: str | None = None
        """The words that the model is asked to repeat."""
        self._arrived = self._place.text if self._place is not None else raw
        """What the string says so far, the words that are not quoted with it..."""
        self._unquoted = ""
        """...and these words, its last ones."""
        self.text = answer.aside(self._arrived)
        """Reads the text of the string."""
        self.asked = answer.aside("")
        """Reads the call that is asked for the members that are missing."""
        self.lacking: list[str] = []
        """Their names."""
        self.allowed: list[str] = []
        """The names of others that it may have."""
        self._begun: set[str] | None = None
        """The names that a member which broke off may have; `None`: none did."""
        self._more: dict[Path, Any] = {}
        """Those members, and what follows in arrays, by where they stand."""
        self._places: dict[str, tuple[Path, str | None]] = {}
        """Where what is asked for stands, by the name it is asked for under; `None`: it follows."""
        self.sign = ""
        """What the model is asked to write behind the text's last character."""

    def know(self, **facts: Any) -> None:
        """Take in what became known."""
        self.proof = replace(self.proof, **facts)

    def quote(self, *, again: bool) -> None:
        """Choose the words that the model is asked to repeat next, and those it is not told.

        `again`: where there is no text to go on with, what was dropped may be asked for anew.
        """
        text = self._arrived
        unquoted = _quotable(text) or ""
        if len(text) - len(unquoted) < self._shown[1]:
            unquoted = ""  # what was shown of a live call is not taken back
        self.anchor = _quotable(text.removesuffix(unquoted))
        if self.anchor is None:
            unquoted, self.anchor = "", _quotable(text)
        self._unquoted, before = unquoted, text.removesuffix(unquoted)
        self.text = self._answer.aside(before)
        self.sign = f"<end-{zlib.crc32(before.encode(errors='surrogatepass')):08x}>"
        inside, quotable = self.call.free or self._place is not None, self.anchor is not None
        listed = any(isinstance(key, int) for key in self._place.keys) if self._place else False
        self.in_text = inside and quotable and not (listed and again)  # a small list comes anew
        self.know(in_text=inside or again, quotable=quotable or again)

    @property
    def _shown(self) -> tuple[OpenString | None, int]:
        """The string as far as the caller has been shown it, and how many characters that is."""
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

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read what the model goes on with, and to show it as it comes, in a live call."""
        feed, (place, known) = self.text.begin(resume, head), self._shown
        if not self.call.begun or (not self.call.free and (place is None or place.half)):
            return feed

        def flow() -> bytes:
            nonlocal known
            verdict = next((found for _, found in self.text.seams()), None)
            if verdict is None or not self._exact(verdict):
                return b""
            text = self._ended(self.text.text, cut=True)[0]
            new = text[known : max(known, len(text) - BEHIND)]
            known += len(new)  # behind, as the sign may be coming, or a word to the reader
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
        """Whether the words that were quoted came again, to the letter."""
        moved = verdict.taken_back or verdict.inserted
        return verdict.kind in _SURE and verdict.confidence == 1 and not moved

    def take(self, result: AttemptResult, *, sure: bool) -> None:
        """Take what an attempt came to; `sure`: only what repeats known words is trusted."""
        verdicts, before, words = self.text.seams(), self.text.before, self.anchor or ""
        verdict, cut = verdicts[-1][1] if verdicts else None, result.stop is not Stop.END
        reply, ended = self._ended(self.text.attempt_text, cut=cut)
        body, lead, fence = bared(reply, words)
        plain = as_written(body, words, cut=cut) if self._place is not None else None
        decoded = plain is not None
        if plain is None and body.startswith(words):
            plain = body[len(words) :]
        elif plain is None and (at := self._goes_on(reply, before)) is not None:
            plain, words, lead, fence = reply[at:], self._unquoted, "", ""
        self.know(refused=result.stop is Stop.REFUSED, decoded=decoded or self._plain(reply, words))
        if plain is not None:
            self.text = self._answer.aside(before + plain)
            # Whether the line break before a fence's end is the text's, only the sign tells.
            if fence == "closed" or (fence and not (ended or cut)):
                kind, trusted = SeamKind.FENCE, not sure
            elif lead and not _to_reader(lead, words, before):
                kind, trusted = SeamKind.PREAMBLE, not sure
            else:
                kind, trusted = SeamKind.ANCHOR, True
            self.know(added=bool(plain) or ended, seam=str(kind))
        else:
            text = self._ended(self.text.text, cut=cut)[0]
            if text != self.text.text:
                self.text = self._answer.aside(text)
            trusted = verdict is not None and (not sure or self._exact(verdict))
            self.know(
                added=verdict is not None and result.made_progress,
                exact=verdict is not None and not (verdict.taken_back or verdict.inserted),
                seam=str(verdict.kind) if verdict is not None else "",
            )
        self._arrived = self.text.text
        new = self._arrived[len(before) :]
        self.know(trusted=trusted, remarks=not cut and _adds_remark(new, before))
        if len(new) < len(self._unquoted) + cut:  # more than that had arrived
            self.know(added=False)

    def _ended(self, text: str, *, cut: bool) -> tuple[str, bool]:
        """Return a text up to the sign of its end, and whether that is there; `cut`: half is."""
        if (at := text.rfind(self.sign)) >= 0:
            return text[:at], True
        sizes = range(len(self.sign) - 1, 0, -1) if cut else ()
        half = next((size for size in sizes if text.endswith(self.sign[:size])), 0)
        return text[: len(text) - half], False

    def _goes_on(self, reply: str, before: str) -> int | None:
        """Return where the words that were not quoted come, at once or behind an echo."""
        at = reply.find(self._unquoted) if self._unquoted else -1
        return at if at >= 0 and before.endswith(reply[:at]) else None

    def _plain(self, reply: str, words: str) -> bool:
        """Whether what an attempt said is known to be plain text: JSON has no bare line breaks."""
        tells = self._place is None or (words in reply and escaped(words) != words)
        return tells or "\\" not in reply or "\n" in reply.strip()

    @property
    def arguments(self) -> str:
        """The whole argument text: the string as it stands, and all closed that is open."""
        if not self.in_text:
            more = dumps(self._more.get((), {})).decode()
            return self._members.with_more(more) if self._members is not None else ""
        place = self._shown[0] or self._place
        return self._arrived if place is None else place.with_text(self._arrived, self._more)

    def missing(self, schema: Json | None) -> Json | None:
        """Return the schema of the members that the call needs and lacks; `None`: it has all."""
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
        """Return what is asked for behind a string at each level that is open around it."""
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
        """Names of those of `lacking` that are lists of which a part is there."""
        return [name for name in self.lacking if self._places[name][1] is None]

    def add(self, members: AttemptResult) -> None:
        """Take the members that were asked for, of a call that has just those."""
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
                # One that is there comes again: nobody knows whether it is meant twice.
                good = good and follow == given[asked] and not any(one in there for one in follow)
        self._more = more
        if not good:
            self.know(lacking=", ".join(self.lacking) or "what was to follow")

    def close(self, schema: Json | None) -> None:
        """Put the call together; `schema`: what the tool takes, where the request says it."""
        whole: object = {} if self.call.free else parsed(self.arguments)
        if not isinstance(whole, dict):  # what stands before the string is no strict JSON
            self.know(parses=False)
        elif schema is not None and not self.call.free:
            self.know(mistake=mistake(whole, schema))

    def deliver(self) -> AttemptResult | None:
        """Make the call whole; `None`: the caller has seen what it does not begin with."""
        if self._answer.complete_call(self.call, self.arguments):
            return self._answer.ended()
        self.know(seen=True)
        return None


def _quotable(before: str) -> str | None:
    """Return the end of a text that the model is asked to repeat; `None`: there is none fit."""
    anchor = choose_anchor(before)
    if anchor is None:
        return None
    least = start = max(0, len(before) - max(len(anchor), _LEAST))
    # By whole lines: what follows a gap hardly begins with two of them. And with a sign in
    # it that JSON escapes, it tells whether plain text came or JSON.
    while start > 0 and (before[start - 1] != "\n" or escaped(before[start:]) == before[start:]):
        start = before.rfind("\n", 0, start - 1) + 1
    return before[start if len(before) - start <= _LONGEST else least :]


def _to_reader(lead: str, words: str, before: str) -> bool:
    """Whether a line before the words that were asked for speaks of them to the reader."""
    found = Judge(before, words).look(f"{lead}\n\n{words}", final=True)
    return found is not None and found.kind is SeamKind.PREAMBLE


def _adds_remark(new: str, before: str) -> bool:
    """Whether a new text says at its end, or leaves out, what no text before it did."""
    last, known = new.strip().rsplit("\n", 3)[-3:], before.split("\n")
    if any(map(_REMARK.match, last)) and not any(map(_REMARK.match, known)):
        return True
    return _ELISION.search(new) is not None and _ELISION.search(before) is None


def mistake(arguments: Any, schema: Json) -> str | None:
    """Say where the arguments are not what the schema asks for; never what they hold."""
    # Only whoever asks for completed calls pays for what this imports.
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
