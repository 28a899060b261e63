"""A call that was cut inside a string of its arguments, on its way to be whole.

The call stays held. What the string says so far is read as a text of its own, by a message builder
beside the answer's: the model is asked for the rest of it as plain text, and that text passes the
same seam as any other. Whether what came of it is a call is proven, never guessed: each seam
repeats what it was asked to repeat, the arguments are whole JSON, and the tool's schema takes them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from continuation.answer.blocks import Block
from continuation.answer.open_string import as_written, escaped, open_string, unfenced
from continuation.seams.judge import SeamKind
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
        self._place = open_string(arrived or "") if not call.free else None
        self._before = self._place.text if self._place is not None else arrived or ""
        self.proof = Proof(in_text=call.free or self._place is not None)
        """What is known of it so far; `engine.table` says what that makes of the call."""
        self.argument = self._place.name if self._place is not None else "input"
        """The argument that it was cut in."""
        self.anchor: str | None = None
        """The words that the model is asked to repeat."""
        self.text = answer.aside(self._before)
        """Reads the text of the string."""
        self.asked = answer.aside("")
        """Reads the call that is asked for the members that are missing at its end."""
        self.lacking: list[str] = []
        """Their names."""
        self._more: Json = {}
        """Those members."""

    def know(self, **facts: Any) -> None:
        """Take in what became known."""
        self.proof = replace(self.proof, **facts)

    def quote(self) -> None:
        """Choose the words that the model is asked to repeat next."""
        before = self.text.text
        anchor = choose_anchor(before)
        if anchor is not None:
            size = max(len(anchor), _LEAST)
            start = max(0, len(before) - size)
            # By whole lines: what follows a gap hardly begins with two of them. And with a sign in
            # it that JSON escapes, it tells whether plain text came or JSON.
            while start > 0 and (
                before[start - 1] != "\n" or escaped(before[start:]) == before[start:]
            ):
                start = before.rfind("\n", 0, start - 1) + 1
            anchor = before[start:] if len(before) - start <= _LONGEST else before[-size:]
        self.anchor = anchor
        self.know(quotable=anchor is not None)

    def begin(self, resume: Resume, head: Head) -> Feed:
        """Begin to read what the model goes on with, and to show it as it comes, in a live call."""
        feed, half = self.text.begin(resume, head), self._place is not None and self._place.half
        if not self.call.begun or half:
            return feed
        known = len(self.text.text)

        def flow() -> bytes:
            nonlocal known
            verdict = next((found for _, found in self.text.seams()), None)
            if verdict is None or not self._exact(verdict):
                return b""
            new, known = self.text.text[known:], len(self.text.text)
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
        """Take what an attempt came to; `sure`: only what repeated its anchor is trusted."""
        verdicts, said, before = self.text.seams(), self.text.said, self.text.before
        verdict = verdicts[-1][1] if verdicts else None
        anchor, cut = self.anchor or "", result.stop is not Stop.END
        body = unfenced(said, anchor)
        plain = as_written(body, anchor, cut=cut) if self._place is not None else None
        self.know(refused=result.stop is Stop.REFUSED, told=plain is not None or self._plain(said))
        if plain is None and body.startswith(anchor):
            plain = body[len(anchor) :]
        if plain is not None:
            self.text = self._answer.aside(before + plain)
            # Whether the line break before the fence's end belongs to the text, nobody knows.
            trusted = body is said or not sure
            self.know(added=bool(plain), seam="fence" if body is not said else "anchor")
        else:
            trusted = verdict is not None and (not sure or self._exact(verdict))
            self.know(
                added=verdict is not None and result.made_progress,
                exact=verdict is not None and not (verdict.taken_back or verdict.inserted),
                seam=str(verdict.kind) if verdict is not None else "",
            )
        new = self.text.text[len(before) :]
        self.know(trusted=trusted, remarks=not cut and _speaks(new, before))

    def _plain(self, said: str) -> bool:
        """Whether what an attempt said is known to be plain text: JSON has no bare line breaks."""
        tells = self._place is None or escaped(self.anchor or "") != self.anchor
        return tells or "\\" not in said or "\n" in said.strip()

    @property
    def arguments(self) -> str:
        """The whole argument text: the string as it stands, and all closed that is open."""
        rest = self.text.text[len(self._before) :]
        if self._place is None:
            return self._before + rest
        whole = self._place.with_rest(rest)
        if self._more:
            whole = f"{whole[:-1]},{dumps(self._more).decode()[1:]}"
        return whole

    def missing(self, schema: Json | None) -> Json | None:
        """Return the schema of the members that the call needs and lacks; `None`: it has all."""
        required = as_list(schema.get("required")) if schema is not None else []
        if schema is None or self.call.free or not required:
            return None
        have = as_json(parsed(self.arguments))
        lacking = self.lacking = [str(name) for name in required if name not in have]
        if not lacking:
            return None
        known = as_json(schema.get("properties"))
        return {
            **schema,
            "properties": {name: known[name] for name in lacking if name in known},
            "required": lacking,
        }

    def add(self, members: AttemptResult) -> None:
        """Take the members that were asked for, of a call that has just those."""
        told, names = as_json(parsed(self.asked.last_arguments)), self.lacking
        if members.stop is not Stop.END or not told.keys() >= set(names):
            self.know(lacking=", ".join(names))
        self._more = {name: told[name] for name in names if name in told}

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


def _speaks(new: str, before: str) -> bool:
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
