"""Functions for all formats: turns, history and signatures of requests; the blocks of a reply."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from continuation.simulator.model import PromptTurn, tokens
from continuation.simulator.scenario import Block, Raw, Reply, Text, Thinking, ToolUse
from continuation.simulator.wire import Json
from continuation.wire.json_values import mapping, objects

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encodes JSON without spaces, as the providers do."""

# -- the conversation


def merged(turns: Iterable[PromptTurn]) -> list[PromptTurn]:
    """Join adjacent turns of one role, so that roles alternate."""
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


class HistoryFault(NamedTuple):
    """A broken rule of a history: its code, its place (message, block), the provider's text."""

    code: str
    where: tuple[int, ...]
    text: str


class Rulebook:
    """A format's error texts by the codes of rules, in the order in which the provider checks."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._ranks = {code: rank for rank, code in enumerate(texts)}

    def fault(self, code: str, *where: int, **named: object) -> HistoryFault:
        """Return a fault. `{n}` in its text is the message, and `{m}` is the block or 0."""
        n, m = (*where, 0, 0)[:2]
        return HistoryFault(code, where, self.texts[code].format(n=n, m=m, **named))

    def ranked(self, faults: Iterable[HistoryFault]) -> list[HistoryFault]:
        """Sort faults in the provider's order: by rule, and by position for one rule."""
        return sorted(faults, key=lambda fault: (self._ranks[fault.code], fault.where))


def numbers_in(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


def text_of(content: Any) -> str:
    """Return the text of a content field: a string, or the joined `text` of its blocks."""
    if isinstance(content, str):
        return content
    found = (block.get("text") for block in objects(content))
    return "".join(text for text in found if isinstance(text, str))


def is_object(text: Any) -> bool:
    """Whether a value is the JSON text of an object, which the arguments of a call must be."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


REASONING_KEYS = frozenset(
    {
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "reasoning_text",
        "thinking",
        "thoughts",
    }
)
"""Fields in which Chat servers and frameworks store thinking. Other formats refuse them."""
_REASONING = REASONING_KEYS | {
    *("redacted_thinking", "thought"),
    *("reasoning.text", "reasoning.summary", "reasoning.encrypted"),
}


def is_reasoning(block: Any) -> bool:
    """Whether a block is thinking, by the type or the flag of any format or framework."""
    fields = mapping(block)
    return fields.get("thought") is True or str(fields.get("type")) in _REASONING


# -- signatures

DIGEST = 12
"""The length of a digest in bytes."""


def digest(value: Any) -> bytes:
    """Return a short digest of a text or a JSON value. The order of keys does not matter."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:DIGEST]


def seal(mark: bytes, *digests: bytes) -> str:
    """Return digests as one opaque text. It begins with `mark`, which identifies the maker."""
    return base64.b64encode(mark + b"".join(digests)).decode()


def unseal(mark: bytes, text: str, count: int) -> list[bytes] | None:
    """Return the digests in a text that `seal` made with this mark; None for another text."""
    raw = decoded(text) or b""
    if not raw.startswith(mark) or len(raw) != len(mark) + count * DIGEST:
        return None
    return [raw[start : start + DIGEST] for start in range(len(mark), len(raw), DIGEST)]


def decoded(text: str) -> bytes | None:
    """Decode Base64 in either of its alphabets, padded or not; None: it is invalid."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# -- the blocks of a reply


def arrived(call: ToolUse) -> str:
    """Return a call's arguments as JSON text, truncated at its `cut`."""
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
    """Return the tokens of a reply's blocks, or only of its blocks of these kinds."""
    return sum(cost(block) for block in reply.blocks if not kinds or isinstance(block, kinds))


def usage_of(counted: Mapping[str, Any], reply: Reply) -> Json:
    """Return the counted usage, overridden by the reply's. None in the reply's removes a field."""
    usage = {**counted, **(reply.usage or {})}
    return {name: value for name, value in usage.items() if value is not None}


def pieces(text: str, size: int | None) -> Iterator[str]:
    """Split a text into deltas of `size` characters, by default 24."""
    size = size or 24
    return (text[start : start + size] for start in range(0, len(text), size))


def whole_members(text: str) -> Json:
    """Return the complete top-level members of a JSON object. Its text may be truncated."""
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
        # A number or a literal at the end of the text may be truncated: 12 may have been 123.
        if not after and rest.rstrip()[-1] not in '"]}':
            break
        members[name] = value
        rest = after.removeprefix(",").lstrip()
    return members
