"""Views of a Messages request body that its rules, its signatures and its costs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

Json = dict[str, Any]
THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class Placed:
    """A content block and where the request has it: `messages.{message}.content.{place}`."""

    message: int
    place: int
    block: Json

    @property
    def kind(self) -> str:
        return str(self.block.get("type"))

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.place}"


@dataclass(frozen=True)
class Turn:
    """What the API makes of one or more messages of the same role in a row."""

    role: str
    message: int
    blocks: list[Placed]

    def of(self, *kinds: str) -> list[Placed]:
        return [placed for placed in self.blocks if placed.kind in kinds]

    @property
    def text(self) -> str:
        return "".join(str(placed.block.get("text", "")) for placed in self.of("text"))


def items(value: Any) -> list[Any]:
    """Return a JSON array; anything else counts as empty."""
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


def objects(value: Any) -> list[Json]:
    """Return the objects of a JSON array."""
    return [cast("Json", item) for item in items(value) if isinstance(item, dict)]


def mapping(value: Any) -> Json:
    """Return a JSON object; anything else counts as empty."""
    return cast("Json", value) if isinstance(value, dict) else {}


def blocks(content: Any) -> list[Json]:
    """Return content as blocks; a text that is not empty is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return objects(content)


def messages(body: Json) -> list[Json]:
    return objects(body.get("messages"))


def placed_blocks(body: Json) -> Iterator[tuple[str, Placed]]:
    """Yield every block with its message's role."""
    for number, message in enumerate(messages(body)):
        yield from ((str(message.get("role")), placed) for placed in _placed(number, message))


def _placed(number: int, message: Json) -> Iterator[Placed]:
    for place, block in enumerate(blocks(message.get("content"))):
        yield Placed(number, place, block)


def turns(body: Json) -> list[Turn]:
    """Return user and assistant turns; messages of one role in a row are one turn."""
    found: list[Turn] = []
    for number, message in enumerate(messages(body)):
        role = str(message.get("role"))
        if role == "system":
            continue
        if not found or found[-1].role != role:
            found.append(Turn(role, number, []))
        found[-1].blocks.extend(_placed(number, message))
    return found


def system_blocks(body: Json) -> list[Json]:
    return blocks(body.get("system"))


def without(value: Any, *names: str) -> Any:
    """Copy JSON without the named keys and without nulls, at every depth."""
    if isinstance(value, dict):
        kept = ((k, v) for k, v in mapping(value).items() if k not in names and v is not None)
        return {key: without(item, *names) for key, item in kept}
    if isinstance(value, list):
        return [without(item, *names) for item in items(value)]
    return value
