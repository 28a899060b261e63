"""What all formats do with a request: read its JSON, its turns, its history, its signatures."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from continuation.history import Violation
from continuation.simulator.model import Said

DIGEST = 12
"""Bytes of a digest."""


# -- the conversation


def merged(said: Iterable[Said]) -> list[Said]:
    """Return turns of alternating roles: what one speaker said in a row is one turn."""
    found: list[Said] = []
    for turn in said:
        if found and found[-1].role == turn.role:
            last = found.pop()
            turn = replace(turn, text=last.text + turn.text, results=last.results or turn.results)
        found.append(turn)
    return found


def conversation_key(*head: Any) -> str:
    """Name a conversation by how it begins: its instructions and its first turn."""
    return hashlib.sha256(json.dumps(head).encode()).hexdigest()


def by_rank(found: Iterable[Violation], order: str) -> list[Violation]:
    """Sort violations: a provider names what it looks for first, and of that the foremost.

    `order` names codes, the one that is looked for first before all others.
    """
    ranks = {code: rank for rank, code in enumerate(order.split())}

    def rank(violation: Violation) -> tuple[int, list[int]]:
        return ranks.get(violation.code, len(ranks)), numbers_in(violation.path)

    return sorted(found, key=rank)


def numbers_in(path: str) -> list[int]:
    """Return the places that a path names."""
    return [int(number) for number in re.findall(r"\d+", path)]


# -- signatures


def digest(value: Any) -> bytes:
    """Return a short digest of a text, or of a JSON value in whatever order its keys stand."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:DIGEST]


def seal(mark: bytes, *digests: bytes) -> str:
    """Return digests as one opaque text, which tells by `mark` who made it."""
    return base64.b64encode(mark + b"".join(digests)).decode()


def unseal(mark: bytes, text: str, count: int) -> list[bytes] | None:
    """Return the digests of a text that `seal` made with this mark; None if it did not."""
    raw = decoded(text) or b""
    if not raw.startswith(mark) or len(raw) != len(mark) + count * DIGEST:
        return None
    return [raw[start : start + DIGEST] for start in range(len(mark), len(raw), DIGEST)]


def decoded(text: str) -> bytes | None:
    """Decode Base64 in either of its alphabets, padded or not; None if it is none."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def prefixes(key: Any, parts: Iterable[str]) -> Iterator[bytes]:
    """Yield a digest of the prompt up to each of its parts; `key` is what else must be equal.

    A provider's cache is the set of those it has seen; none expires, and none is too small.
    """
    seen = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    for part in parts:
        seen.update(part.encode(errors="surrogatepass"))
        yield seen.digest()
