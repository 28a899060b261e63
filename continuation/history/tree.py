"""A history as the rules see it: messages of parts, each with the JSON it was read from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from continuation.wire.json_values import as_list, as_map, is_list, is_map

MADE_HERE: Final = -1
"""The index of a message or part that a repair has made."""

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
"""Roles; "tool" in dialects where results are messages of their own (both of OpenAI's)."""


class Kind(Enum):
    """The kind of a part for the pairing rules; all other details are the dialect's."""

    TEXT = "text"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    SERVER_CALL = "server call"
    """A call that the provider runs itself, inside the same answer."""
    SERVER_RESULT = "server result"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken rule that one message or part shows by itself."""

    code: str
    detail: str = ""
    """Fills `{detail}` in the provider's error text."""
    id: str = ""
    """Fills `{id}`; `""`: with the part's own."""
    call: int = 0
    """Fills `{call}`: the index of the message with the call."""


@dataclass(slots=True, eq=False)  # compared by identity, so that parts can be keys
class Part:
    """A part of a message, such as a text block or a call."""

    kind: Kind
    native: Any
    """The JSON it was read from; a repair replaces it, never changes it."""
    index: int = MADE_HERE
    """Index of its message in the body."""
    path: str = ""
    """Path inside the message, such as ".content[1]"."""
    id: str = ""
    """The id of a call, or of a result's call; "" if it has none."""
    name: str = ""
    """The tool's name; for other parts a dialect's own distinction."""
    text: str = ""
    """The text of a text part."""
    signed: bool = False
    """Whether it is thinking, or another part, with the provider's signature."""
    blank: bool = False
    """Whether it is a text of white space only, or empty."""
    synthetic: bool = False
    """Whether it is a result that was made in place of the real one."""
    cut: bool = False
    """Whether it is a call with truncated arguments, which never ran."""
    superseded: bool = False
    """Whether it is a call whose id was used again before it had a result."""
    faults: tuple[Fault, ...] = ()

    @property
    def slot(self) -> int:
        """Its index within the message; 0 if it is the whole content."""
        match = re.search(r"\d+", self.path)
        return int(match[0]) if match else 0


@dataclass(slots=True, eq=False)
class Message:
    """One message, with its parts in order."""

    role: Role
    parts: list[Part]
    native: Any = None
    """The JSON it was read from; None if a repair made it."""
    index: int = MADE_HERE
    touched: bool = False
    """Whether its parts or its role differ from those of `native`."""
    faults: tuple[Fault, ...] = ()
    lacks_reasoning: bool = False
    """Whether the reasoning of its calls was dropped; the dialect decides what follows."""

    def has(self, *kinds: Kind) -> bool:
        """Whether it holds a part of one of these kinds."""
        return any(part.kind in kinds for part in self.parts)

    def of(self, *kinds: Kind) -> list[Part]:
        """Return its parts of these kinds, in order."""
        return [part for part in self.parts if part.kind in kinds]

    def keep(self, parts: list[Part]) -> None:
        """Set its parts, and mark it as touched."""
        self.parts = parts
        self.touched = True


def blank(text: str) -> bool:
    """Whether a text is empty or white space only."""
    return not text or text.isspace()


def unbroken(value: Any) -> Any:
    """Return JSON with each lone surrogate replaced; the same object if there is none."""
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


_THOUGHTS: Final = frozenset(
    {
        *("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text"),
        *("reasoning.text", "reasoning.summary", "reasoning.encrypted", "thought", "thoughts"),
    }
)
"""Types of blocks that hold thinking, in all formats and frameworks."""
THOUGHT_KEYS: Final = frozenset(
    {
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "reasoning_text",
        "thinking",
        "thoughts",
    }
)
"""Keys of a message that hold thinking, in formats that have it beside the content."""


def is_thought(block: object) -> bool:
    """Whether a block is thinking in any format's spelling; it must never become visible text."""
    fields = as_map(block)
    kind = fields.get("type")
    return fields.get("thought") is True or (isinstance(kind, str) and kind in _THOUGHTS)


def text_of(content: object) -> str:
    """Return the text of a content field: a string, or the joined `text` of its blocks."""
    if isinstance(content, str):
        return content
    texts = (as_map(block).get("text") for block in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
