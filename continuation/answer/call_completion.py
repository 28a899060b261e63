"""A call that was cut inside a string of its arguments, on its way to be whole.

The call stays held. What the string says so far is read as a text of its own, by a message builder
beside the answer's: the model is asked for the rest of it as plain text, and that text passes the
same seam as any other. Whether what came of it is a call is proven, never guessed: each seam
repeats what it was asked to repeat, the arguments are whole JSON, and the tool's schema takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from continuation.answer.blocks import Block
from continuation.answer.open_string import OpenString, as_written, escaped, open_string
from continuation.seams.judge import SeamKind
from continuation.seams.text import choose_anchor
from continuation.types import AttemptResult, Json, Stop
from continuation.wire.json_values import as_json, as_list, as_text, dumps, parsed

if TYPE_CHECKING:
    from continuation.answer.message_builder import MessageBuilder

_SURE = frozenset({SeamKind.ANCHOR, SeamKind.PREFILL})
_LONGEST = 400
"""Characters; as much of a line is quoted at most, to have a sign in it that JSON escapes."""


class CallCompletion:
    """One cut call: what its string says, and why it cannot be completed if it cannot."""

    def __init__(self, answer: MessageBuilder, call: Block) -> None:
        self.call = call
        self.name = as_text(call.start.get("name"))
        self.failed: str | None = None
        """Why the call stays cut, if it does."""
        self._answer = answer
        self._place: OpenString | None = None
        self._before = call.arguments
        if not call.free:
            # A server that parsed them closed what was open; the anchor tells whether it was.
            closed = call.arguments.rstrip("}").removesuffix('"')
            self._place = open_string(call.arguments if call.args_verified else closed)
            self._before = self._place.text if self._place is not None else ""
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
        self.quote()

    def quote(self) -> None:
        """Choose the words that the model is asked to repeat next."""
        before = self.text.text
        anchor = choose_anchor(before)
        if anchor and self._place is not None and escaped(anchor) == anchor:
            # With a sign in it that JSON escapes, it tells whether plain text came or JSON.
            line = before.rfind("\n", 0, len(before) - len(anchor))
            start = before.rfind("\n", 0, line) + 1 if line > 0 else 0
            if line >= 0 and len(before) - start <= _LONGEST:
                anchor = before[start:]
        self.anchor = anchor
        if self._place is None and not self.call.free:
            self.failed = "its arguments break off outside a string"
        elif anchor is None:
            self.failed = "too little of the argument arrived, or it only repeats itself"

    def take(self, result: AttemptResult, *, sure: bool) -> None:
        """Take what an attempt came to; `sure`: only what repeated its anchor is trusted."""
        verdicts, said = self.text.seams(), self.text.said
        verdict = verdicts[-1][1] if verdicts else None
        plain = as_written(said, self.anchor or "") if self._place is not None else None
        if result.stop is Stop.REFUSED:
            self.failed = "the model refused to go on with it"
        elif plain is not None:
            self.text = self._answer.aside(self.text.before + plain)
            self.quote()
        elif not self._plain(said):
            self.failed = "it cannot be told whether its rest came as JSON or as plain text"
        elif verdict is None or not result.made_progress:
            self.failed = "nothing was added to it"
        elif verdict.taken_back or verdict.inserted:
            self.failed = f"its parts do not meet exactly ({verdict.kind})"
        elif sure and not (verdict.kind in _SURE and verdict.confidence == 1):
            self.failed = f"the seam in it is not sure ({verdict.kind})"
        else:
            self.quote()

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
            self.failed = f"no {', '.join(names)} came for it"
        self._more = {name: told[name] for name in names if name in told}

    def close(self, schema: Json | None) -> AttemptResult | None:
        """Make the call whole, if it is one; `None`: it is not, and `failed` says why.

        `schema`: what the tool takes, where the request says it.
        """
        arguments = self.arguments
        if self.failed is None and not self.call.free:
            whole = parsed(arguments)
            if not isinstance(whole, dict):  # what stands before the string is no strict JSON
                self.failed = "its arguments are not whole JSON"
            elif schema is not None:
                self.failed = mistake(whole, schema)
        if self.failed is None and not self._answer.complete_call(self.call, arguments):
            self.failed = "what was shown of it cannot be gone on with"
        return self._answer.ended() if self.failed is None else None


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
