"""What the Responses API keeps: responses with their context, their items, conversations."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from continuation.history.openai.items import kind_of
from continuation.simulator.openai_responses.items import (
    Input,
    brought,
    conversation_id,
    is_reference,
)
from continuation.simulator.wire import Event, Json


@dataclass(frozen=True)
class Kept:
    """A stored response; `context` is all its input, `events` its stream if it can be resumed."""

    response: Json
    context: list[Json]
    events: Sequence[Event] = ()


@dataclass
class Shelf:
    """What is kept for one credential; nobody else finds it."""

    responses: dict[str, Kept] = field(default_factory=dict[str, Kept])
    conversations: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    _items: dict[str, Json] = field(default_factory=dict[str, Json])
    _reasoning: dict[str, str] = field(default_factory=dict[str, str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, kept: Kept) -> None:
        with self._lock:
            self.responses[kept.response["id"]] = kept
            self._note(kept)

    def delete(self, name: str) -> None:
        """Forget a response, and its items unless a later response read them."""
        with self._lock:
            self.responses.pop(name, None)
            self._items.clear()
            self._reasoning.clear()
            for kept in self.responses.values():
                self._note(kept)

    def extend(self, conversation: str, items: list[Json]) -> None:
        with self._lock:
            self.conversations[conversation] = [*self.conversations[conversation], *items]

    def read(self, body: Json) -> Input:
        """Return all input of a request; what it names but is not kept here counts for nothing."""
        held = self._held(body)
        return Input([*held, *map(self._referred, brought(body))], len(held))

    def item(self, name: str) -> Json | None:
        """Return the item of that id, from the output or the input of a kept response."""
        return self._items.get(name)

    def reasoning_of(self, name: str) -> str | None:
        """Return the id of the reasoning that the item of that id must not be parted from."""
        return self._reasoning.get(name)

    def _held(self, body: Json) -> list[Json]:
        kept = self.responses.get(str(body.get("previous_response_id")))
        if kept is not None:
            return [*kept.context, *_without_loose_end(kept.response["output"])]
        return self.conversations.get(str(conversation_id(body)), [])

    def _referred(self, item: Any) -> Any:
        return self._items.get(str(item.get("id")), item) if is_reference(item) else item

    def _note(self, kept: Kept) -> None:
        output = kept.response["output"]
        self._items.update({item["id"]: item for item in (*kept.context, *output)})
        for before, item in itertools.pairwise(output):
            if before["type"] == "reasoning":
                self._reasoning[item["id"]] = before["id"]


class Store:
    """A shelf for each credential."""

    def __init__(self) -> None:
        self._shelves: dict[str, Shelf] = {}
        self._lock = threading.Lock()

    def of(self, credential: str) -> Shelf:
        with self._lock:
            return self._shelves.setdefault(credential, Shelf())

    def forget(self) -> None:
        with self._lock:
            self._shelves.clear()


def _without_loose_end(output: list[Json]) -> list[Json]:
    """Reasoning that was cut before it led to an item is kept, but not read again."""
    stop = len(output)
    while stop and kind_of(output[stop - 1]) == "reasoning":
        stop -= 1
    return output[:stop]
