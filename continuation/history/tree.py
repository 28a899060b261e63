"""A history as the rules see it: messages of parts, each remembering the JSON it was read from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from continuation.wire.json_values import as_list, as_map, is_list, is_map

MADE_HERE: Final = -1
"""Index of what a repair made."""

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
"""Who speaks; "tool" where results are messages of their own (both OpenAI dialects)."""


class Kind(Enum):
    """What a part is to the pairing rules; everything else about it is its dialect's affair."""

    TEXT = "text"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    SERVER_CALL = "server call"
    """A call that the provider answers itself, inside the same turn."""
    SERVER_RESULT = "server result"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one message or part taken alone."""

    code: str
    detail: str = ""
    """Fills `{detail}` in the provider's error text."""
    id: str = ""
    """Fills `{id}`, where it is not the part's own."""
    call: int = 0
    """Fills `{call}`: index of the message that holds the call it is about."""


@dataclass(slots=True, eq=False)  # compared by identity, so that parts can be keys
class Part:
    """A piece of a message."""

    kind: Kind
    native: Any
    """The JSON it was read from; a repair replaces it, never changes it."""
    index: int = MADE_HERE
    """Index of its message in the body."""
    path: str = ""
    """Path inside the message, such as ".content[1]"."""
    id: str = ""
    """Of a call, or of the call that a result answers; "" where the dialect gave none."""
    name: str = ""
    """Of the tool; of other parts whatever their dialect tells them apart by."""
    text: str = ""
    """What a text part says."""
    signed: bool = False
    """Thinking that carries the provider's signature."""
    blank: bool = False
    """Text that says nothing."""
    synthetic: bool = False
    """A result that somebody made up in place of the real one."""
    cut: bool = False
    """A call whose arguments were cut off: it never ran."""
    superseded: bool = False
    """A call whose id was used again before it was answered."""
    faults: tuple[Fault, ...] = ()

    @property
    def slot(self) -> int:
        """Its number within the message, 0 if it is all of it."""
        match = re.search(r"\d+", self.path)
        return int(match[0]) if match else 0


@dataclass(slots=True, eq=False)
class Message:
    """What one side says at a time, with its parts in order."""

    role: Role
    parts: list[Part]
    native: Any = None
    """The JSON it was read from; None if a repair made it."""
    index: int = MADE_HERE
    touched: bool = False
    """Its parts or its role are no longer those of `native`."""
    faults: tuple[Fault, ...] = ()
    lacks_reasoning: bool = False
    """The reasoning of its calls is gone; what follows from that is up to its dialect."""

    def has(self, *kinds: Kind) -> bool:
        """Whether it holds a part of one of these kinds."""
        return any(part.kind in kinds for part in self.parts)

    def of(self, *kinds: Kind) -> list[Part]:
        """Its parts of these kinds, in order."""
        return [part for part in self.parts if part.kind in kinds]

    def keep(self, parts: list[Part]) -> None:
        """Make these its parts."""
        self.parts = parts
        self.touched = True


def blank(text: str) -> bool:
    """Whether a text is empty or white space only."""
    return not text or text.isspace()


def unbroken(value: Any) -> Any:
    """JSON with another character for each half of one; the same object if there is none."""
    if isinstance(value, str):
        if value.isascii():
            return value
        whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value if whole == value else whole
    if is_list(value):
        items = [unbroken(each) for each in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if is_map(value):
        new = {key: unbroken(each) for key, each in value.items()}
        return new if any(new[key] is not each for key, each in value.items()) else value
    return value


def plain_text(value: object) -> str:
    """What stands where a text belongs, as a text: of an object its JSON, of nothing none."""
    if isinstance(value, str) or value in (None, []):
        return value if isinstance(value, str) else ""
    return json.dumps(value, ensure_ascii=False)


def text_of(content: object) -> str:
    """The text of a content field: a string, or blocks with a `text` of their own."""
    if isinstance(content, str):
        return content
    texts = (as_map(block).get("text") for block in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
