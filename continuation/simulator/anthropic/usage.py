"""What a Messages request costs: an estimate of its input, and what a cache makes of it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from continuation.simulator.anthropic.body import (
    Json,
    blocks,
    mapping,
    messages,
    objects,
    system_blocks,
    without,
)
from continuation.simulator.model import tokens

_LOOKBACK = 20
"""Blocks the cache looks back from a breakpoint for an earlier entry."""


def input_tokens(body: Json) -> int:
    """Estimate the input: the four-character tokens of system, tools and messages as JSON."""
    return sum(part.tokens for part in _parts(body))


@dataclass(frozen=True)
class _Part:
    """A cacheable piece of the request: a tool, a system block or a content block."""

    text: str
    breakpoint: str | None

    @property
    def tokens(self) -> int:
        return tokens(self.text)


def _parts(body: Json) -> list[_Part]:
    found = [*_listed(body)]
    if body.get("cache_control") and found:
        automatic = _ttl(mapping(body["cache_control"]))
        found[-1] = _Part(found[-1].text, found[-1].breakpoint or automatic)
    return found


def _listed(body: Json) -> Iterator[_Part]:
    for block in (*objects(body.get("tools")), *system_blocks(body)):
        yield _part(block)
    for message in messages(body):
        yield from (_part(block, message.get("role")) for block in blocks(message.get("content")))


def _part(block: Json, role: Any = None) -> _Part:
    text = json.dumps([role, without(block, "cache_control")], sort_keys=True, ensure_ascii=False)
    return _Part(
        text, _ttl(mapping(block["cache_control"])) if block.get("cache_control") else None
    )


def _ttl(control: Json) -> str:
    return str(control.get("ttl", "5m"))


class PromptCache:
    """Remembers the prefixes written at breakpoints; they do not expire, and none is too small."""

    def __init__(self) -> None:
        self._written: set[bytes] = set()
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._written.clear()

    def usage(self, body: Json) -> Json:
        """Return the input side of `usage`, and write this request's prefixes."""
        parts = _parts(body)
        marks = [place for place, part in enumerate(parts) if part.breakpoint]
        prefixes = _prefixes(body, parts)
        with self._lock:
            read_to = self._found(prefixes, marks)
            self._written.update(prefixes[mark] for mark in marks)
        return _split(parts, read_to, marks[-1] + 1 if marks else 0)

    def _found(self, prefixes: list[bytes], marks: list[int]) -> int:
        """Return how many parts an earlier request wrote, looking back from the last breakpoint."""
        for mark in reversed(marks):
            for place in range(mark, max(-1, mark - _LOOKBACK - 1), -1):
                if prefixes[place] in self._written:
                    return place + 1
        return 0


def _prefixes(body: Json, parts: list[_Part]) -> list[bytes]:
    key = [
        body.get(name) for name in ("model", "thinking", "tool_choice", "output_config", "speed")
    ]
    seen = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    found: list[bytes] = []
    for part in parts:
        seen.update(part.text.encode(errors="surrogatepass"))
        found.append(seen.digest())
    return found


def _split(parts: list[_Part], read_to: int, written_to: int) -> Json:
    counts = [part.tokens for part in parts]
    written = sum(counts[read_to:written_to])
    ttl = next((part.breakpoint for part in reversed(parts) if part.breakpoint), "5m")
    return {
        "input_tokens": sum(counts[max(read_to, written_to) :]),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": sum(counts[:read_to]),
        "cache_creation": {
            "ephemeral_5m_input_tokens": written if ttl == "5m" else 0,
            "ephemeral_1h_input_tokens": written if ttl == "1h" else 0,
        },
    }
