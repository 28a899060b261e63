"""A history as the rules read it: messages of parts, each with the JSON from which it was read."""

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
"""The roles of messages. In OpenAI's dialects a result is a message, and its role is "tool"."""


class Kind(Enum):
    """The kind of a part for the pairing rules. Its dialect knows all other details."""

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
    """Fills `{id}`; `""`: the part's id does."""
    call: int = 0
    """Fills `{call}`: the index of the message with the call."""


@dataclass(slots=True, eq=False)  # compared by identity, so that parts can be keys
class Part:
    """A part of a message, such as a text block or a call."""

    kind: Kind
    native: Any
    """The JSON from which it was read. A repair replaces it, but never changes it."""
    index: int = MADE_HERE
    """Index of its message in the body."""
    path: str = ""
    """Path inside the message, such as ".content[1]"."""
    id: str = ""
    """The id of a call, or of a result's call; "" if it has none."""
    name: str = ""
    """The tool's name. For other parts the dialect decides what it means."""
    text: str = ""
    """The text of a text part."""
    signed: bool = False
    """Whether it has the provider's signature, as thinking may."""
    blank: bool = False
    """Whether it is a text that is empty or has only white space."""
    synthetic: bool = False
    """Whether it is a result that was made because the real one is missing."""
    cut: bool = False
    """Whether it is a call with truncated arguments, which never ran."""
    superseded: bool = False
    """Whether it is a call whose id was used again before it had a result."""
    faults: tuple[Fault, ...] = ()

    @property
    def slot(self) -> int:
        """Its index within the message, or 0 if it is the complete content."""
        match = re.search(r"\d+", self.path)
        return int(match[0]) if match else 0


@dataclass(slots=True, eq=False)
class Message:
    """One message, with its parts in order."""

    role: Role
    parts: list[Part]
    native: Any = None
    """The JSON from which it was read; None if a repair made it."""
    index: int = MADE_HERE
    touched: bool = False
    """Whether its parts or its role differ from those of `native`."""
    faults: tuple[Fault, ...] = ()
    lacks_reasoning: bool = False
    """Whether the reasoning of its calls was dropped. The dialect decides what follows from it."""

    def has(self, *kinds: Kind) -> bool:
        """Whether it has a part of one of these kinds."""
        return any(part.kind in kinds for part in self.parts)

    def of(self, *kinds: Kind) -> list[Part]:
        """Return its parts of these kinds, in order."""
        return [part for part in self.parts if part.kind in kinds]

    def keep(self, parts: list[Part]) -> None:
        """Set its parts, and mark it as touched."""
        self.parts = parts
        self.touched = True


def blank(text: str) -> bool:
    """Whether a text is empty or has only white space."""
    return not text or text.isspace()


def unbroken(value: Any) -> Any:
    """Return JSON with each lone surrogate replaced, or the same object if it has none."""
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
    """Return a value that should be a text as a text.

    None and an empty list become `""`, and any other value becomes its JSON.
    """
    if isinstance(value, str) or value in (None, []):
        return value if isinstance(value, str) else ""
    return json.dumps(value, ensure_ascii=False)


_THOUGHTS: Final = frozenset(
    {
        *("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text"),
        *("reasoning.text", "reasoning.summary", "reasoning.encrypted", "thought", "thoughts"),
    }
)
"""Types of blocks that contain thinking, in all formats and frameworks."""
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
"""Keys of a message that contain thinking, in formats that do not put it into the content."""


def is_thought(block: object) -> bool:
    """Whether a block is thinking in any format. Thinking must never become visible text."""
    fields = as_map(block)
    kind = fields.get("type")
    return fields.get("thought") is True or (isinstance(kind, str) and kind in _THOUGHTS)


def text_of(content: object) -> str:
    """Return the text of a content field: a string, or the joined `text` of its blocks."""
    if isinstance(content, str):
        return content
    texts = (as_map(block).get("text") for block in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
