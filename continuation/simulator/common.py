"""Functions for all formats: turns, history and signatures of requests; the blocks of a reply."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from continuation.history import Violation
from continuation.history.rules import texts
from continuation.simulator.model import PromptTurn, tokens
from continuation.simulator.scenario import Block, Raw, Reply, Text, Thinking, ToolUse
from continuation.simulator.wire import Json

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encodes JSON without spaces, as the providers do."""

# -- the conversation


def merged(turns: Iterable[PromptTurn]) -> list[PromptTurn]:
    """Return turns with alternating roles: adjacent turns of one role are joined."""
    merged_turns: list[PromptTurn] = []
    for turn in turns:
        if merged_turns and merged_turns[-1].role == turn.role:
            last = merged_turns.pop()
            turn = replace(turn, text=last.text + turn.text, results=last.results or turn.results)
        merged_turns.append(turn)
    return merged_turns


def conversation_key(*head: Any) -> str:
    """Return a key for a conversation, from its instructions and its first turn."""
    return hashlib.sha256(json.dumps(head).encode()).hexdigest()


def by_rank(violations: Iterable[Violation], dialect: str) -> list[Violation]:
    """Sort violations as the provider looks for them: by rule, and of one rule by position."""
    ranks = {code: rank for rank, code in enumerate(texts(dialect))}
    return sorted(violations, key=lambda v: (ranks[v.code], numbers_in(v.path)))


def numbers_in(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


# -- signatures

DIGEST = 12
"""Length of a digest, in bytes."""


def digest(value: Any) -> bytes:
    """Return a short digest of a text, or of a JSON value regardless of the order of its keys."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:DIGEST]


def seal(mark: bytes, *digests: bytes) -> str:
    """Return digests as one opaque text that begins with `mark`, which identifies its maker."""
    return base64.b64encode(mark + b"".join(digests)).decode()


def unseal(mark: bytes, text: str, count: int) -> list[bytes] | None:
    """Return the digests of a text that `seal` made with this mark; None if it did not."""
    raw = decoded(text) or b""
    if not raw.startswith(mark) or len(raw) != len(mark) + count * DIGEST:
        return None
    return [raw[start : start + DIGEST] for start in range(len(mark), len(raw), DIGEST)]


def decoded(text: str) -> bytes | None:
    """Decode Base64 in either of its alphabets, padded or not; None if it is not valid."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# -- the blocks of a reply


def arrived(call: ToolUse) -> str:
    """Return a call's arguments as JSON text, up to its `cut`."""
    raw = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
    return raw[: call.cut]


def cost(block: Block) -> int:
    match block:
        case Thinking(text, tokens=counted):
            return tokens(text) if counted is None else counted
        case Text(text):
            return tokens(text)
        case ToolUse():
            return tokens(arrived(block))
        case Raw(raw):
            return tokens(compact(raw))


def spent(reply: Reply, *kinds: type[Block]) -> int:
    """Return the tokens of a reply's blocks, or only of its blocks of some kinds."""
    return sum(cost(block) for block in reply.blocks if not kinds or isinstance(block, kinds))


def usage_of(counted: Mapping[str, Any], reply: Reply) -> Json:
    """Return the counted usage, updated with the reply's own; None there removes a field."""
    usage = {**counted, **(reply.usage or {})}
    return {name: value for name, value in usage.items() if value is not None}


def pieces(text: str, size: int | None) -> Iterator[str]:
    """Split a text into deltas of `size` characters; None: 24."""
    size = size or 24
    return (text[start : start + size] for start in range(0, len(text), size))


def whole_members(text: str) -> Json:
    """Return the complete top-level members of a JSON object whose text may be truncated."""
    members: Json = {}
    decoder = json.JSONDecoder()
    rest = text.lstrip().removeprefix("{").lstrip()
    while rest.startswith('"'):
        try:
            name, end = decoder.raw_decode(rest)
            value_text = rest[end:].lstrip().removeprefix(":").lstrip()
            value, end = decoder.raw_decode(value_text)
        except ValueError:
            break
        after = value_text[end:].lstrip()
        # A bare word or a number at the very end may be truncated: 12 may have been 123.
        if not after and rest.rstrip()[-1] not in '"]}':
            break
        members[name] = value
        rest = after.removeprefix(",").lstrip()
    return members
