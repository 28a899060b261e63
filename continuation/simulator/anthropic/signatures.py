"""Signatures of thinking blocks, which tell a changed block and a changed conversation before it.

A signature carries three digests: of the block's text, of everything before its turn (system,
tools, messages; thinking and cache_control left out), and of the thinking block before it. Models
that bind thinking refuse a block whose conversation changed; leaving out the oldest thinking blocks
is allowed, leaving out one in the middle is not.
Source: the provider's "preserved thinking" pages (prefix checks) of October 2026.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from continuation.simulator.anthropic.body import (
    THINKING,
    Json,
    Placed,
    Turn,
    messages,
    turns,
    without,
)

_MARK = b"SIM"
_SIZE = 12
MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
INVALID = "Invalid `signature` in `thinking` block"
BOUND = (
    f"{INVALID}. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


class _Signature(NamedTuple):
    text: bytes
    prefix: bytes
    chain: bytes

    def written(self) -> str:
        return base64.b64encode(_MARK + b"".join(self)).decode()


class Signer:
    """Signs the thinking blocks of one answer, in order."""

    def __init__(self, body: Json) -> None:
        listed = turns(body)
        last_is_ours = listed[-1].role == "assistant"
        self._prefix = _prefix(body, listed[-1].message if last_is_ours else len(messages(body)))
        thought = [placed.block for turn in listed for placed in turn.of(*THINKING)]
        self._chain = _chain(thought[-1]) if thought else bytes(_SIZE)

    def sign(self, text: str) -> str:
        signature = _Signature(_digest(text), self._prefix, self._chain).written()
        self._chain = _chain({"signature": signature})
        return signature


def errors(body: Json, *, binding: bool, strict: bool) -> Iterator[str]:
    """Yield what is wrong with the thinking blocks of a request.

    `binding`: the model checks the conversation before a block. `strict`: signatures made
    elsewhere are refused.
    """
    listed = turns(body)
    latest = max((turn.message for turn in listed if turn.role == "assistant"), default=-1)
    before: Json | None = None
    for turn in listed:
        for placed in turn.of(*THINKING):
            if placed.kind == "thinking":
                yield from _block_errors(
                    body, turn, placed, before, latest=latest, binding=binding, strict=strict
                )
            before = placed.block


def _block_errors(
    body: Json,
    turn: Turn,
    placed: Placed,
    before: Json | None,
    *,
    latest: int,
    binding: bool,
    strict: bool,
) -> Iterator[str]:
    signature = _read(str(placed.block.get("signature")))
    if signature is None:
        if strict:
            yield f"{placed.path}: {INVALID}"
    elif signature.text != _digest(str(placed.block.get("thinking"))):
        yield f"{placed.path}: {MODIFIED if turn.message == latest else INVALID}"
    elif binding and not _belongs(signature, _prefix(body, turn.message), before):
        yield f"{placed.path}: {BOUND}"


def _belongs(signature: _Signature, prefix: bytes, before: Json | None) -> bool:
    return signature.prefix == prefix and (before is None or signature.chain == _chain(before))


def _read(text: str) -> _Signature | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if not raw.startswith(_MARK) or len(raw) != len(_MARK) + 3 * _SIZE:
        return None
    parts = (raw[start : start + _SIZE] for start in range(len(_MARK), len(raw), _SIZE))
    return _Signature(*parts)


def _prefix(body: Json, stop: int) -> bytes:
    """Digest everything before message `stop`, combined as the API combines it."""
    head = {**body, "messages": messages(body)[:stop]}
    listed = [
        [turn.role, *(p.block for p in turn.blocks if p.kind not in THINKING)]
        for turn in turns(head)
    ]
    mid = [message for message in messages(head) if message.get("role") == "system"]
    known: list[Any] = [body.get("system"), body.get("tools"), listed, mid]
    return _digest(json.dumps(without(known, "cache_control"), sort_keys=True))


def _chain(block: Json) -> bytes:
    return _digest(str(block.get("signature") or block.get("data")))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:_SIZE]
