"""Signatures of thinking blocks. They are invalid if the block or its conversation was changed.

A signature has three digests: of the block's text, of everything before its turn (system, tools and
messages, without thinking and cache_control), and of the thinking block before it. Models that bind
thinking refuse a block after a changed conversation. A client may drop the oldest thinking blocks,
but none in the middle. Source: the provider's "preserved thinking" pages (prefix checks) of October
2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from continuation.simulator.anthropic.request import THINKING, Placed, messages, turns, without
from continuation.simulator.common import DIGEST, digest, seal, unseal
from continuation.simulator.wire import Json

_MARK = b"SIM"


class Signer:
    """Signs the thinking blocks of one answer, in order."""

    def __init__(self, body: Json) -> None:
        listed = turns(body)
        answered = bool(listed) and listed[-1].role == "assistant"
        self._prefix = _prefix(body, listed[-1].message if answered else len(messages(body)))
        thought = [placed.block for turn in listed for placed in turn.of(*THINKING)]
        self._chain = _chain(thought[-1]) if thought else bytes(DIGEST)

    def sign(self, text: str) -> str:
        signature = seal(_MARK, digest(text), self._prefix, self._chain)
        self._chain = _chain({"signature": signature})
        return signature


def errors(body: Json, *, binding: bool, strict: bool) -> Iterator[tuple[str, Placed]]:
    """Yield the codes of the rules that thinking blocks break, each with its block.

    `binding`: whether the model checks the conversation before a block. `strict`: whether to refuse
    signatures that the simulator did not make.
    """
    listed = turns(body)
    before: Json | None = None
    latest = max((turn.message for turn in listed if turn.role == "assistant"), default=-1)
    for turn in listed:
        for placed in turn.of(*THINKING):
            block = placed.block
            if placed.kind == "thinking":
                signed = unseal(_MARK, str(block.get("signature")), 3)
                if signed is None:
                    fault = "thinking_foreign" if strict else None
                elif signed[0] != digest(str(block.get("thinking"))):
                    last = turn.message == latest
                    fault = "thinking_modified" if last else "thinking_foreign"
                else:
                    unchanged = before is None or signed[2] == _chain(before)
                    unchanged = unchanged and signed[1] == _prefix(body, turn.message)
                    fault = "thinking_bound" if binding and not unchanged else None
                if fault is not None:
                    yield fault, placed
            before = block


def _prefix(body: Json, stop: int) -> bytes:
    """Return a digest of everything before message `stop`. Turns are merged as the API does."""
    head = {**body, "messages": messages(body)[:stop]}
    listed = [
        [turn.role, *(p.block for p in turn.blocks if p.kind not in THINKING)]
        for turn in turns(head)
    ]
    mid = [message for message in messages(head) if message.get("role") == "system"]
    parts: list[Any] = [body.get("system"), body.get("tools"), listed, mid]
    return digest(without(parts, "cache_control"))


def _chain(block: Json) -> bytes:
    return digest(str(block.get("signature") or block.get("data")))
