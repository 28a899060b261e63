"""The Messages format as values: blocks, one attempt's segment, and JSON answers as events.

An answer that came as one JSON body is told as the events it would have been streamed as, so that
all further logic exists once, on events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import jiter

from continuation.types import Json, Usage

CALL = "tool_use"
"""A call for the caller to run; server tools run at the provider."""
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
THINKING = frozenset({"thinking", "redacted_thinking"})
_KNOWN = frozenset({"text", CALL, "container_upload"}) | SERVER_CALLS | THINKING


_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(separators=(",", ":"))


def loads(data: bytes | bytearray | str) -> Any:
    """Decode JSON; the fast parser first, the lenient one for what it refuses (lone surrogates)."""
    raw = data.encode() if isinstance(data, str) else bytes(data)
    try:
        return jiter.from_json(raw)
    except ValueError:
        return json.loads(raw)


def dumps(value: object) -> bytes:
    """Encode compact JSON as UTF-8; what UTF-8 cannot carry (half an emoji) is escaped."""
    try:
        return _PLAIN.encode(value).encode()
    except UnicodeEncodeError:
        return _ESCAPED.encode(value).encode()


def as_json(value: object) -> Json:
    """Return `value` if it is a JSON object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return `value` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


@dataclass(slots=True)
class Block:
    """One content block: how it began, its deltas, and whether its stop event came."""

    start: Json
    deltas: list[Json] = field(default_factory=list[Json])
    done: bool = False
    proven: bool = True
    """A call's argument text came raw; `False` in a JSON body, where the server has parsed it."""
    begun: bool = False
    """The caller has seen its beginning..."""
    shown: int = 0
    """...and this many of its deltas..."""
    closed: bool = False
    """...and its end."""

    @property
    def kind(self) -> str:
        return as_text(self.start.get("type"))

    def pieces(self, kind: str, key: str) -> str:
        """Join what the deltas of one type carry."""
        return "".join(as_text(d.get(key)) for d in self.deltas if d.get("type") == kind)

    @property
    def text(self) -> str:
        return as_text(self.start.get("text")) + self.pieces("text_delta", "text")

    @property
    def arguments(self) -> str:
        """A call's argument text as far as it arrived."""
        raw = self.pieces("input_json_delta", "partial_json")
        if raw or not self.start.get("input"):
            return raw
        return dumps(self.start["input"]).decode()

    @property
    def signed(self) -> bool:
        """A thinking block that the next request may carry."""
        if self.kind == "redacted_thinking":
            return bool(self.start.get("data"))
        signature = self.pieces("signature_delta", "signature")
        return bool(signature or self.start.get("signature"))

    def whole(self, *, ended: bool) -> bool:
        """Whether a call's arguments are proven whole; `ended`: the message ended as it should."""
        raw = self.arguments.strip()
        if not raw:
            return ended and self.done
        return (self.proven or ended) and isinstance(_parsed(raw), dict)

    def wire(self) -> Json:
        """Return the block as one JSON value, as a non-streamed answer would hold it."""
        block = dict(self.start)
        if self.kind == "text":
            block["text"] = self.text
        for delta in self.deltas:
            _FOLD.get(as_text(delta.get("type")), _ignore)(block, delta)
        if raw := self.pieces("input_json_delta", "partial_json"):
            block["input"] = _arguments(raw)
        return block


def _parsed(raw: str) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _arguments(raw: str) -> object:
    try:
        return jiter.from_json(raw.encode(), partial_mode=True)
    except (ValueError, UnicodeEncodeError):
        return _parsed(raw) or {}


def _ignore(block: Json, delta: Json) -> None:
    """Text and arguments are joined whole; unknown deltas have no place in a folded block."""


def _thinking(block: Json, delta: Json) -> None:
    block["thinking"] = as_text(block.get("thinking")) + as_text(delta.get("thinking"))


def _signature(block: Json, delta: Json) -> None:
    block["signature"] = delta.get("signature")


def _citation(block: Json, delta: Json) -> None:
    block["citations"] = [*as_list(block.get("citations")), delta.get("citation")]


def _compaction(block: Json, delta: Json) -> None:
    block.update({key: value for key, value in delta.items() if key != "type"})


_FOLD = {
    "thinking_delta": _thinking,
    "signature_delta": _signature,
    "citations_delta": _citation,
    "compaction_delta": _compaction,
}


@dataclass(slots=True)
class Segment:
    """What one attempt said: its blocks, and the message fields around them."""

    unary: bool = False
    message: Json = field(default_factory=dict[str, object])
    blocks: list[Block] = field(default_factory=list[Block])
    delta: Json = field(default_factory=dict[str, object])
    usage: Json = field(default_factory=dict[str, object])
    events: int = 0
    stopped: bool = False
    error: Json | None = None
    _index: dict[object, Block] = field(default_factory=dict[object, Block])

    def add(self, event: Json) -> None:
        """Take in the next event. Unknown ones change nothing."""
        self.events += 1
        handler = _ADD.get(as_text(event.get("type")))
        if handler is not None:
            handler(self, event)

    def on_start(self, event: Json) -> None:
        self.message = as_json(event.get("message"))
        self._count(self.message.get("usage"))

    def on_block_start(self, event: Json) -> None:
        if self.blocks:
            self.blocks[-1].proven = True  # the server had finished it when it began the next
        block = Block(as_json(event.get("content_block")), proven=not self.unary)
        self.blocks.append(block)
        self._index[event.get("index")] = block

    def on_block_delta(self, event: Json) -> None:
        if block := self._index.get(event.get("index")):
            block.deltas.append(as_json(event.get("delta")))

    def on_block_stop(self, event: Json) -> None:
        if block := self._index.get(event.get("index")):
            block.done = True

    def on_delta(self, event: Json) -> None:
        given = as_json(event.get("delta"))
        self.delta.update({key: value for key, value in given.items() if value is not None})
        self._count(event.get("usage"))

    def on_stop(self, event: Json) -> None:
        self.stopped = True

    def on_error(self, event: Json) -> None:
        self.error = as_json(event.get("error"))

    def _count(self, usage: object) -> None:
        # Counts on message_delta are cumulative; a missing or null one leaves the earlier value.
        known = {key: value for key, value in as_json(usage).items() if value is not None}
        self.usage.update(known)

    @property
    def reason(self) -> str | None:
        """The provider's stop reason, if it said one."""
        return as_text(self.delta.get("stop_reason")) or None

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join(block.text for block in self.blocks if block.kind == "text")

    @property
    def said(self) -> str:
        """All that was generated, as far as it was shown: text, thinking, arguments."""
        thought = (b.pieces("thinking_delta", "thinking") for b in self.blocks)
        return "".join([self.text, *thought, *(call.arguments for call in self.calls)])

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == CALL]

    @property
    def unknown(self) -> str | None:
        """The type of a block that we do not know, if there is one."""
        kinds = (block.kind for block in self.blocks)
        return next((k for k in kinds if k not in _KNOWN and not k.endswith("_tool_result")), None)

    def content(self, *, calls: bool) -> list[Json]:
        """Return the blocks as a later request may carry them, verbatim as far as it goes.

        Dropped: blank text, unsigned and trailing thinking, calls without their result
        (docs: "the final block in an assistant message cannot be `thinking`", "text content
        blocks must be non-empty", "tool use ... without a corresponding ... result block").
        """
        answered = {as_text(block.start.get("tool_use_id")) for block in self.blocks}
        kept = [block for block in self.blocks if _carried(block, answered, calls=calls)]
        while kept and kept[-1].kind in THINKING:
            kept.pop()
        return [block.wire() for block in kept]


_ADD = {
    "message_start": Segment.on_start,
    "content_block_start": Segment.on_block_start,
    "content_block_delta": Segment.on_block_delta,
    "content_block_stop": Segment.on_block_stop,
    "message_delta": Segment.on_delta,
    "message_stop": Segment.on_stop,
    "error": Segment.on_error,
}


def _carried(block: Block, answered: set[str], *, calls: bool) -> bool:
    if block.kind == "text":
        return bool(block.text.strip())
    if block.kind in THINKING:
        return block.signed
    if block.kind == CALL:
        return calls
    if block.kind in SERVER_CALLS:
        return as_text(block.start.get("id")) in answered
    return block.done


def explode(message: Json) -> Iterator[Json]:
    """Tell a whole message as the events it would have been streamed as."""
    content = as_list(message.get("content"))
    ends = ("stop_reason", "stop_sequence", "stop_details", "container")
    head = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": head}
    for index, block in enumerate(content):
        yield from _explode_block(index, as_json(block))
    delta = {key: message[key] for key in ends if key in message}
    yield {"type": "message_delta", "delta": delta, "usage": as_json(message.get("usage"))}
    yield {"type": "message_stop"}


def _explode_block(index: int, block: Json) -> Iterator[Json]:
    start, deltas = dict(block), list[Json]()
    if block.get("type") == "text":
        deltas.append({"type": "text_delta", "text": block.get("text")})
        start["text"] = ""
        for citation in as_list(start.pop("citations", None)):
            deltas.append({"type": "citations_delta", "citation": citation})
    elif block.get("type") == CALL:
        deltas.append({"type": "input_json_delta", "partial_json": dumps(block["input"]).decode()})
        start["input"] = {}
    elif block.get("type") == "thinking":
        deltas.append({"type": "thinking_delta", "thinking": block.get("thinking")})
        deltas.append({"type": "signature_delta", "signature": block.get("signature")})
        start.update(thinking="", signature="")
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_usage(usage: Json) -> Usage | None:
    """Return the provider's counts in the engine's words; `None` when it gave none."""
    if not usage:
        return None
    details = as_json(usage.get("output_tokens_details"))
    return Usage(
        input=_int(usage.get("input_tokens")),
        cached=_int(usage.get("cache_read_input_tokens")),
        cache_write=_int(usage.get("cache_creation_input_tokens")),
        output=_int(usage.get("output_tokens")),
        thinking=_int(details.get("thinking_tokens")),
    )


def write_usage(native: Json, usage: Usage | None) -> Json:
    """Return the provider's usage object with our counts; other fields stay as they came."""
    if usage is None:
        return native
    counts = {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }
    merged = {**native, **{key: count for key, count in counts.items() if count is not None}}
    if usage.thinking is not None:
        details = as_json(native.get("output_tokens_details"))
        merged["output_tokens_details"] = {**details, "thinking_tokens": usage.thinking}
    return merged
