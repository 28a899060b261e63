"""Completion of a truncated call.

The call stays buffered. If it was truncated inside a string, the string's text is read separately,
by another message builder than the answer's. The model is asked to write the rest of the text as
plain text, and a seam joins that as usual. The last words that arrived are not quoted to the model.
If its text contains them anyway, it certainly continues there. The model is also asked to write a
sign after the last character, which marks the end of the text. A second call requests the members
that the objects around the string still need, and further elements of the arrays around it.

If a call was truncated anywhere else, its complete members are kept, and a second call requests the
others.

The result is proven, never guessed. At each seam, the model repeats what was quoted, or writes what
was not quoted. The arguments are complete JSON, and the tool's schema accepts them.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from continuation.answer.argument_rest import Known
from continuation.answer.gate import BEHIND
from continuation.answer.open_string import (
    OpenString,
    Path,
    declared,
    dotted,
    escaped,
    open_string,
    shapes,
    whole_members,
)
from continuation.seams.judge import SeamKind
from continuation.seams.text import choose_anchor
from continuation.types import AttemptResult, Enough, Head, JoinPlan, Json, Proof, Stop
from continuation.wire.blocks import Block
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder
    from continuation.providers.contract import Feed, WireCodec
    from continuation.seams.seam import Verdict

_SURE = frozenset({SeamKind.ANCHOR, SeamKind.PREFILL})
_LEAST, _LONGEST = 80, 400
"""The least and most characters that the model is asked to repeat."""
_REMARK = re.compile(
    r"\W{0,3}(?:I(?:\W(?:m|ve|ll|d)| am| have| can(?:not|\Wt)?| could| will| hope| stopped)\b"
    r"|(?:all )?done[.!]|end of (?:the )?file\b"
    r"|sorry\b|unfortunately\b|let me know\b|would you like\b|please note\b"
    r"|(?:that|this)(?:\Ws| is| was| completes| concludes) (?:the|all)\b"
    r"|the (?:\w+ )?(?:file|argument|rest|content) is (?:now )?(?:complete|whole|finished)\b)",
    re.IGNORECASE,
)
"""A line that addresses the reader."""
_BARE = re.compile(r"(?<!\r)\n")
_ELISION = re.compile(
    r"^[^\w\n]*(?:\.\.\.|\u2026|\[)[^\n]*\b(?:(?:rest|remainder) of (?:the|this|your)\b|unchanged\b"
    r"|(?:omitted|truncated|shortened)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that replaces omitted text."""
_MEMBERS = 4000
"""Most characters after a text that are searched for the end of the call."""


class CallCompletion:
    """The completion of one truncated call, with the evidence for and against its result."""

    def __init__(self, answer: MessageBuilder, codec: WireCodec, call: Block) -> None:
        self.call = call
        self.name = as_text(call.start.get("name"))
        self._answer = answer
        self._codec = codec
        arrived = codec.arrived(call)
        self.unread = arrived is None
        """Whether the server parsed the arguments, so that the original text is unknown."""
        raw = arrived or ""
        self._place = open_string(raw) if not call.free else None
        self._members = whole_members(raw) if not call.free else None
        self.dropped: str | None = None
        """The JSON text to generate again if only complete members are kept; `None`: impossible."""
        if self._members is not None:
            kept, shown = self._members.head + self._members.joint, self._shown_text
            self.dropped = raw[len(self._members.head) :] if kept.startswith(shown) else None
        self.proof = Proof()
        """The evidence so far. With it, `engine.table.PROOFS` decides about the call."""
        self.in_text = False
        """Whether the truncated text of the call is continued; `False`: members are requested."""
        self.argument = self._place.name if self._place is not None else "input"
        """The argument in which the call was truncated."""
        self.anchor: str | None = None
        """The words that the model is asked to repeat; `None`: no words are suitable."""
        self._arrived = self._place.text if self._place is not None else raw
        """The string's text so far, including the words that are not quoted."""
        self._unquoted = ""
        """The last words of that text, which are not quoted to the model."""
        self.text = answer.aside(self._arrived)
        """Reads the text of the string."""
        self.asked = answer.aside("")
        """Reads the call in which the missing members arrive."""
        self.lacking: list[str] = []
        """The names of the missing members."""
        self.allowed: list[str] = []
        """The names of optional members that are absent."""
        self._begun: set[str] | None = None
        """The possible names of the member that broke off; `None`: no member broke off."""
        self._more: dict[Path, Any] = {}
        """Members and array elements that arrived, by the path of their object or array."""
        self._places: dict[str, tuple[Path, str | None]] = {}
        """Name under which a value is requested -> path of its object, and its name there. The name
        is `None` for further elements of the array at that path."""
        self.sign = ""
        """The sign that the model is asked to write after the last character of the text."""
        self.whole = False
        """The text ended, and its end is marked."""

    def know(self, **facts: Any) -> None:
        """Set facts of `proof`."""
        self.proof = replace(self.proof, **facts)

    def quote(self, *, again: bool) -> None:
        """Choose the words that the model is asked to repeat, and those that are not quoted.

        `again`: `dropped` may be generated again if there is no text to continue.
        """
        text = self._arrived
        unquoted = _quotable(text) or ""
        if len(text) - len(unquoted) < self._shown[1]:
            unquoted = ""  # the delivered part of a live call cannot be retracted
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
    def _shown_text(self) -> str:
        """The argument text that was delivered; `""`: none."""
        call = self.call
        if not call.shown:
            return ""
        shown = Block(call.start, call.deltas[: call.shown], free=call.free)
        return self._codec.arrived(shown) or ""

    @property
    def _shown(self) -> tuple[OpenString | None, int]:
        """The string as it was delivered (`None`: it was not), and how many characters of it."""
        shown = self._shown_text
        if self.call.free or not shown:
            return None, len(shown)
        place = open_string(shown)
        same = place is not None and self._place is not None and place.keys == self._place.keys
        return (place, len(place.text)) if place is not None and same else (None, 0)

    @property
    def kept(self) -> str:
        """The JSON text of the complete members."""
        return self._members.head + "}" if self._members is not None else ""

    def begin(self, plan: JoinPlan, head: Head) -> Feed:
        """Return the feed for the model's continuation. In a live call, it delivers text."""
        feed, (place, known) = self.text.begin(plan, head), self._shown
        if not self.call.begun or (not self.call.free and (place is None or place.half)):
            return feed

        def flow() -> bytes:
            nonlocal known
            verdict = next((found for _, found in self.text.seams()), None)
            met = self.text.text.startswith(self._unquoted, len(self.text.before))
            if verdict is None or not (met and self._exact(verdict)):
                return b""  # not certain, and delivered text cannot be retracted
            text = self._known.ended(self.text.text, cut=True, after=len(self.text.before))[0]
            new = text[known : max(known, len(text) - BEHIND)]
            known += len(new)  # buffer the rest: it may be the sign, or address the reader
            return self._show(new) if new else b""

        def show(chunk: bytes) -> bytes:
            try:
                feed(chunk)
            except Enough as enough:
                raise Enough(flow(), enough.result) from None
            return flow()

        return show

    def _show(self, new: str) -> bytes:
        """Add text to the string in which the live call broke off; return the bytes to deliver."""
        if not self.call.begun or self.call.closed:
            return b""
        self.call.done = False  # the provider may have ended the truncated block
        self._forget_unshown()
        self.call.deltas += self._codec.goes_on(self.call, new)
        return self._answer.show()

    def _forget_unshown(self) -> None:
        del self.call.deltas[self.call.shown :]
        self.call.forget()

    @staticmethod
    def _exact(verdict: Verdict) -> bool:
        """Whether the model repeated the quoted words exactly."""
        return verdict.kind in _SURE and verdict.confidence == 1 and not _moved(verdict)

    def take(self, result: AttemptResult, *, sure: bool) -> None:
        """Add an attempt's text to the string. `sure`: trust only seams that repeat known words."""
        verdicts, before = self.text.seams(), self.text.before
        verdict, cut = verdicts[-1][1] if verdicts else None, result.stop is not Stop.END
        known = self._known
        rest = known.read(self.text.attempt_text, cut=cut)
        self.know(refused=result.stop is Stop.REFUSED, decoded=rest.decoded)
        if rest.text is not None:
            new, ended, trusted = rest.text, rest.ended, not (sure and rest.fenced)
            same = not rest.proven and self._in_other_signs(new)
            self.know(added=bool(new) or ended, exact=not same, seam=str(rest.kind))
        else:
            text, ended = known.ended(self.text.text, cut=cut, after=len(before))
            new, trusted = text[len(before) :], verdict is not None and not sure
            self.know(
                added=verdict is not None and result.made_progress,
                exact=not sure and verdict is not None and not _moved(verdict),
                seam=str(verdict.kind) if verdict is not None else "",
            )
        if "\r\n" in before and not _BARE.search(before) and _BARE.search(new):
            self.know(exact=False)
        if before + new != self.text.text:
            self.text = self._answer.aside(before + new)
        self._arrived = self.text.text
        self.whole = ended or not cut
        keys = self._place.keys if self._place is not None else ("",)
        self.know(
            trusted=trusted,
            ended=ended or cut or not sure,
            remarks=self.whole and _adds_remark(new, before, keys),
        )
        if len(new) < len(self._unquoted) + (not self.whole):  # more than this had arrived
            self.know(added=False)

    @property
    def _known(self) -> Known:
        """What is known before an answer is read."""
        return Known(self.text.before, self.anchor or "", self._unquoted, self.sign)

    def _in_other_signs(self, new: str) -> bool:
        """Whether a text begins with the unquoted words in other line ends, blanks or escapes."""
        known = self._unquoted
        same = _letters(new[: 4 * len(known)]).startswith(_letters(known))
        return bool(known) and (same or new.startswith(escaped(known)))

    @property
    def arguments(self) -> str:
        """The complete argument text: the string with its text so far, and all brackets closed."""
        if not self.in_text:
            more = dumps(self._more.get((), {})).decode()
            return self._members.with_more(more) if self._members is not None else ""
        place = self._shown[0] or self._place
        return self._arrived if place is None else place.with_text(self._arrived, self._more)

    def missing(self, schema: Json | None) -> Json | None:
        """Return a JSON schema for the members that the call lacks; `None`: request none."""
        if self.call.free:
            return None
        shape, have = schema or {}, as_json(parsed(self.arguments))
        if self.in_text and self._place is not None:
            members, lacking = self._behind(self._place.keys, shape, have) if have else ({}, [])
            begun = set[str]()
        else:
            known, required = declared(shape, ())
            lacking = [name for name in required if name not in have]
            if self._members is not None:
                self._begun = self._members.begun([*lacking, *known])
            begun = self._begun or set()
            if self._begun is not None and not begun:
                self.know(lacking="what was to follow")
                return None
            lacking += begun.difference(lacking) if len(begun) == 1 else ()
            may = [name for name in known if name not in have and name not in lacking]
            members = {name: known.get(name, {}) for name in (*lacking, *may)}
        if not members:
            return None
        self._places = {name: self._places.get(name, ((), name)) for name in members}
        self.lacking, self.allowed = lacking, [name for name in members if name not in lacking]
        return {"type": "object", **shape, "properties": members, "required": lacking}

    def _behind(self, keys: Path, schema: Json, value: Any) -> tuple[dict[str, Any], list[str]]:
        """Return what the open objects and arrays around a string may lack, and what they do lack.

        The first result is name -> JSON schema. The second is the names that the schema requires.
        """
        members, lacking = dict[str, Any](), list[str]()
        for depth, key in enumerate(keys):
            path = keys[:depth]
            known, required = declared(schema, path)
            if isinstance(key, int):
                arrays = (one["items"] for one in shapes(schema, path) if "items" in one)
                members[dotted(path)] = {"type": "array", "items": next(arrays, dict[str, Any]())}
                self._places[dotted(path)] = path, None
                lacking.append(dotted(path))
            for name in known if isinstance(key, str) else ():
                if name not in value:
                    asked = dotted((*path, name))
                    members[asked], self._places[asked] = known[name], (path, name)
                    lacking += [asked] if name in required else []
            value = value[key]
        return dict(sorted(members.items(), key=lambda member: member[0] not in lacking)), lacking

    @property
    def lists(self) -> list[str]:
        """The names in `lacking` of arrays that have their first elements."""
        return [name for name in self.lacking if self._places[name][1] is None]

    @property
    def begun(self) -> bool:
        """Whether one of `allowed` had begun to arrive."""
        return bool(self._begun) and not self.lacking

    def add(self, members: AttemptResult) -> None:
        """Take the missing members from the requested call. `members`: how that call ended."""
        text = self.asked.last_arguments
        made = None if text is None else parsed(text or "{}")
        given, needed, begun = as_json(made), {*self.lacking}, self._begun
        good = members.stop is Stop.END and isinstance(made, dict) and given.keys() >= needed
        good = good and given.keys() <= self._places.keys()
        good = good and (not begun or bool(given.keys() & begun))
        have: Any = parsed(self.arguments)
        more = dict[Path, Any]()
        for asked, (path, name) in self._places.items():
            if asked in given and name is not None:
                more.setdefault(path, {})[name] = given[asked]
            elif name is None:
                there = reduce(lambda value, key: value[key], path, have)
                more[path] = follow = as_list(given.get(asked))
                # If an element occurs again, it is unknown whether it is meant twice.
                good = good and follow == given[asked] and not any(one in there for one in follow)
        self._more = more
        if not good:
            self.do_without()

    def do_without(self) -> None:
        """Note that the requested members did not arrive."""
        names = ", ".join(self.lacking or self.allowed)
        known = "what was to follow" if self._begun else f"an answer about {names}"
        self.know(lacking=names if self.lacking else known)

    def close(self, schema: Json | None) -> None:
        """Check the completed arguments against JSON and `schema`, if the tool has one."""
        whole: object = {} if self.call.free else parsed(self.arguments)
        if not isinstance(whole, dict):  # the text before the string is not strict JSON
            self.know(parses=False)
        elif schema is not None and not self.call.free:
            self.know(mistake=mistake(whole, schema))

    def deliver(self) -> AttemptResult | None:
        """Complete the call; return the result; `None`: it differs from what was delivered."""
        call, arguments, known = self.call, self.arguments, self._codec.arrived(self.call) or ""
        anew = not arguments.startswith(known)
        if anew:
            known = self._shown_text
        if call.closed or not arguments.startswith(known):
            self.know(seen=True)
            return None
        if anew:
            self._forget_unshown()
        call.deltas += self._codec.rest_of(call, known, arguments)
        call.done = call.finished = True
        return self._answer.called()


def _quotable(before: str) -> str | None:
    """Return the end of a text that the model is asked to repeat; `None`: none is suitable."""
    anchor = choose_anchor(before)
    if anchor is None:
        return None
    least = start = max(0, len(before) - max(len(anchor), _LEAST))
    # Take complete lines: a model that skips text will hardly begin with two of them. Include a
    # character that JSON escapes: its repetition reveals whether the answer is plain text or JSON.
    while start > 0 and (before[start - 1] != "\n" or escaped(before[start:]) == before[start:]):
        start = before.rfind("\n", 0, start - 1) + 1
    if len(before) - start > _LONGEST:  # take only as much of a long line as has such a character
        near = range(least, max(-1, len(before) - _LONGEST), -1)
        start = next((at for at in near if escaped(before[at:]) != before[at:]), least)
    return before[start:]


def _moved(verdict: Verdict) -> bool:
    """Whether text was removed or inserted at a seam."""
    return bool(verdict.taken_back or verdict.inserted)


def _letters(text: str) -> str:
    """Return the letters and digits of a text, which no way of writing changes."""
    return re.sub(r"\W", "", normalize("NFKD", text))


def _closes_too_much(text: str) -> bool:
    """Whether a text ends a tag or a fence that it did not begin."""
    last = text.rstrip().rpartition("\n")[2].lstrip()
    if tag := re.search(r"</([\w.:-]+)>\Z", last):
        return re.search(rf"<{re.escape(tag[1])}\b", text) is None
    if last in ("```", "~~~"):
        return len(re.findall(rf"^[ \t]*{last}", text, re.MULTILINE)) % 2 == 1
    return False


def _ends_call(new: str, before: str, keys: Path) -> bool:
    """Whether a text ends like the JSON around it: with a quote, members, and brackets.

    That may be the text's own end, but only if the text itself is complete JSON.
    """
    if new.rstrip(" \t\r\n`~")[-1:] not in ("}", "]"):
        return False
    new = new.rstrip(" \t\r\n`~")
    around = ["[" if isinstance(key, int) else '{"":' for key in keys]
    opened = {"".join(around[depth:]) + '"' for depth in range(len(keys))} | {'["', '{"":"'}
    quotes = [match.start() for match in re.finditer('"', new[-_MEMBERS:])]
    ends = [new[-_MEMBERS:][at:] for at in quotes]
    if not any(parsed(head + end) is not None for head in opened for end in ends):
        return False
    whole, last = before + new, (before + new).rpartition("\n")[2]
    return parsed(whole) is None and parsed(last) is None


def _adds_remark(new: str, before: str, keys: Path) -> bool:
    """Whether a new text has a remark at its end, or an omission, and the text before has none."""
    if re.search(r"<end\b[^\n]{,12}\Z", new.rstrip()) or _closes_too_much(before + new):
        return True
    if _ends_call(new, before, keys):
        return True
    last, known = new.strip().rsplit("\n", 3)[-3:], before.split("\n")
    if any(map(_REMARK.match, last)) and not any(map(_REMARK.match, known)):
        return True
    return _ELISION.search(new) is not None and _ELISION.search(before) is None


def mistake(arguments: Any, schema: Json) -> str | None:
    """Return where arguments break a schema, without their content; `None`: nowhere."""
    # Imported here, because only completed calls need it.
    from jsonschema import Draft202012Validator, exceptions
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        validator = Draft202012Validator(schema, registry=Registry())  # fetches nothing
        for error in validator.iter_errors(arguments):  # pyright: ignore[reportUnknownMemberType]
            place = ".".join(map(str, error.absolute_path)) or "the arguments"
            return f"{place}: the tool's schema says {error.validator!r}"
    except Unresolvable:
        return "the tool's schema refers to what is not in it"
    except (exceptions.UnknownType, TypeError, ValueError):
        return "the tool's schema cannot be read"
    return None
