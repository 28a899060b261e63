"""A history as the rules see it: messages of parts, each remembering the JSON it was read from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeGuard

__all__ = [
    "MADE_HERE",
    "Context",
    "Fault",
    "Kind",
    "Message",
    "Part",
    "Role",
    "as_list",
    "as_map",
    "blank",
    "is_list",
    "is_map",
    "text_of",
    "word",
]

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
    ASIDE = "aside"
    """A call that the provider answers itself, inside the same turn."""
    ASIDE_RESULT = "aside result"
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


@dataclass(slots=True, eq=False)
class Part:
    """A piece of a message."""

    kind: Kind
    native: Any
    """The JSON it was read from; a repair replaces it, never changes it."""
    index: int = MADE_HERE
    """Index of its message in the body."""
    place: str = ""
    """Path inside the message, such as ".content[1]"."""
    id: str = ""
    """Of a call, or of the call that a result answers; "" where the dialect gave none."""
    name: str = ""
    text: str = ""
    """What a text part says."""
    signed: bool = False
    """Thinking that carries the provider's signature."""
    blank: bool = False
    """Text that says nothing."""
    stand_in: bool = False
    """A result that somebody made up in place of the real one."""
    cut: bool = False
    """A call whose arguments were cut off: it never ran."""
    superseded: bool = False
    """A call whose id was used again before it was answered."""
    faults: tuple[Fault, ...] = ()

    @property
    def slot(self) -> int:
        """Its number within the message, 0 if it is all of it."""
        numbers: list[str] = re.findall(r"\d+", self.place)
        return int(numbers[0]) if numbers else 0


@dataclass(slots=True, eq=False)
class Message:
    """One speaker's say, with its parts in order."""

    role: Role
    parts: list[Part]
    native: Any = None
    """The JSON it was read from; None if a repair made it."""
    index: int = MADE_HERE
    touched: bool = False
    """Its parts or its role are no longer those of `native`."""
    faults: tuple[Fault, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields to set (or, if None, to delete) when it is written."""

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


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the history itself."""

    model: str = ""
    prefill: bool | None = None
    thinking: str | None = None
    binding: bool = False
    strict: bool = False
    live: bool = True
    vendor: str = ""
    reasoning: str = "auto"


def is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a decoded JSON value is an object."""
    return type(value) is dict or isinstance(value, Mapping)  # the first is much faster


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)


def as_map(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if is_map(value) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if is_list(value) else []


def word(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def blank(text: str) -> bool:
    """Whether a text is empty or white space only."""
    return not text or text.isspace()


def text_of(content: object) -> str:
    """The text of a content field: a string, or blocks with a `text` of their own."""
    if isinstance(content, str):
        return content
    texts = (as_map(block).get("text") for block in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
