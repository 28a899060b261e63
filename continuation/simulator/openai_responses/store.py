"""The storage of the Responses API, and the encrypted content of its reasoning.

It stores responses with their context, and their items, separately for each credential.

The `encrypted_content` of reasoning is opaque to callers, and is checked when a request has it. It
has digests of the item's id, of the credential and of the reasoning, and a digest of these three.
So the simulator recognizes content that was changed, moved to another item, or made for another
organization. It cannot check content that it did not write.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from continuation.simulator.common import digest, seal, unseal
from continuation.simulator.wire import Json
from continuation.wire.responses_items import kind_of


@dataclass(frozen=True)
class StoredResponse:
    """A stored response. `context` is its complete input."""

    response: Json
    context: list[Json]


@dataclass
class Archive:
    """The storage of one credential.

    `items`: the items in the output or the input of stored responses, by id. `reasoning`: an item's
    id -> the id of the reasoning item that must directly precede it.
    """

    responses: dict[str, StoredResponse] = field(default_factory=dict[str, StoredResponse])
    items: dict[str, Json] = field(default_factory=dict[str, Json])
    reasoning: dict[str, str] = field(default_factory=dict[str, str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, stored: StoredResponse) -> None:
        with self._lock:
            self.responses[stored.response["id"]] = stored
            output = stored.response["output"]
            self.items.update({item["id"]: item for item in (*stored.context, *output)})
            for before, item in itertools.pairwise(output):
                if before["type"] == "reasoning":
                    self.reasoning[item["id"]] = before["id"]

    def remove(self, name: str) -> None:
        with self._lock:
            stored = self.responses.pop(name)
            for item in stored.response["output"]:
                self.items.pop(item["id"], None)

    def history(self, response: str | None) -> list[Json]:
        """Return the context of a stored response and its items; `[]`: it is not stored."""
        stored = self.responses.get(response or "")
        if stored is None:
            return []
        # Truncated reasoning, which no item follows, is stored, but the model does not read it.
        output = list(stored.response["output"])
        while output and kind_of(output[-1]) == "reasoning":
            output.pop()
        return [*stored.context, *output]


# -- sealed reasoning

_PREFIX = "gAAAAABsimulated"
"""The beginning of sealed content. OpenAI's content begins in the same way."""
_MARK = base64.b64decode(_PREFIX)
_KEY = "the simulator's own key"
_UNREADABLE = "Encrypted content could not be decrypted or parsed."
_OTHER_OWNER = "Encrypted content organization_id did not match the target organization."
_OTHER_ITEM = "Encrypted content item_id did not match the target item id."


def seal_reasoning(item: str, credential: str, text: str) -> str:
    digests = [digest(item), digest(credential), digest(text)]
    return seal(_MARK, *digests, _over(digests))


def reasoning_error(item: Mapping[str, Any], credential: str, *, strict: bool) -> str | None:
    """Return why an input item's encrypted content is refused; None: it is accepted.

    `strict`: whether to refuse content that the simulator did not make.
    """
    content, name = item.get("encrypted_content"), item.get("id")
    if item.get("type") != "reasoning" or content is None:
        return None
    opened = unseal(_MARK, str(content), 4)
    if not str(content).startswith(_PREFIX):
        why = _UNREADABLE if strict else None
    elif opened is None or opened[3] != _over(opened[:3]):
        why = _UNREADABLE
    elif name is not None and opened[0] != digest(str(name)):
        why = _OTHER_ITEM
    else:
        why = None if opened[1] == digest(credential) else _OTHER_OWNER
    if why is None:
        return None
    return f"The encrypted content for item {name} could not be verified. Reason: {why}"


def _over(digests: Sequence[bytes]) -> bytes:
    return digest(_KEY + b"".join(digests).hex())
