"""One answer as block events: codecs translate every wire format into these.

The events are those of the Messages format, which has the most features. An answer is
`message_start`; then for each block `content_block_start`, any number of `content_block_delta`, and
`content_block_stop`; then `message_delta` with the stop reason and the usage, and `message_stop`.
`ping`, `error` and unknown events may occur too; unknown ones are passed on unchanged. A block or
delta may have other fields than its type, text and arguments. They belong to the format and are not
read here. An answer in one JSON body is translated to the events of the same answer as a stream, so
that all further logic exists once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from continuation.types import Json, ToolCallState
from continuation.wire.json_values import as_json, as_text, breaks_off, dumps, parsed

TEXT = "text"
TOOL_CALL = "tool_use"
REFUSAL = "refusal"
"""`TOOL_CALL`: a call that the caller runs. Calls that the provider runs have other types."""
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls that the provider runs itself. A request must not contain one without its result."""
THINKING = frozenset({"thinking", "redacted_thinking"})
NATIVE = frozenset(
    {
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "error"),
    }
)
"""The events that are read. Others, such as `ping` or an unknown one, are passed on."""


# --- making events ------------------------------------------------------------------------------


def opening(message: Json) -> Json:
    """Return the event that begins an answer. `message`: the format's fields for the answer."""
    return {"type": "message_start", "message": message}


def start(index: object, block: Json, **traits: bool) -> Json:
    """Return a block's first event.

    Traits: see `Block`. `mute`: earlier blocks may be unfinished. `parsed`: the server parsed the
    call's arguments, so it is unknown whether something is missing.
    """
    return {"type": "content_block_start", "index": index, "content_block": block, **traits}


def delta(index: object, kind: str, **values: object) -> Json:
    """Return the event with one more delta of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **values}}


def stop(index: object, **traits: bool) -> Json:
    """Return the event that ends a block. Traits: `cut` and `finished`, see `Block`."""
    return {"type": "content_block_stop", "index": index, **traits}


def closing(reason: str | None, usage: Json | None = None, **more: object) -> Json:
    """Return the event with the stop reason, the usage, and other fields of the answer's end."""
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage or {}}


ENDED: Json = {"type": "message_stop"}


# --- collecting events --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Block:
    """One content block: its start, its deltas, and whether its end has arrived."""

    start: Json
    deltas: list[Json] = field(default_factory=list[Json])
    done: bool = False
    args_verified: bool = True
    """A call's arguments arrived raw, or the call is finished; `False`: the server parsed them."""
    cut: bool = False
    """The block's end says that it broke off. Used for calls that the provider runs itself."""
    finished: bool = False
    """The server finished it: another block began after it, or such blocks are always complete."""
    loose: bool = False
    """Thinking that needs no signature."""
    free: bool = False
    """A call with any text as its input, not a JSON object."""
    sealed: bool = False
    """The block is signed. It is delivered unchanged, and text after it begins a new block."""
    begun: bool = False
    """The block's beginning was delivered to the caller."""
    shown: int = 0
    """How many of the block's deltas were delivered."""
    closed: bool = False
    """The block's end was delivered, or nothing more of it will be."""
    _joined: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """A cache: type of delta -> how many deltas were read, and their joined text."""

    @property
    def kind(self) -> str:
        return as_text(self.start.get("type"))

    def pieces(self, kind: str, key: str) -> str:
        """Return the values under `key` of all deltas of one type, joined."""
        count, joined = self._joined.get(kind, (0, ""))
        if count < len(self.deltas):
            new = [as_text(d.get(key)) for d in self.deltas[count:] if d.get("type") == kind]
            joined += "".join(new)
            self._joined[kind] = len(self.deltas), joined
        return joined

    def merge_text(self, text: str) -> None:
        """Replace the block's text with `text`, as one delta."""
        self.start["text"] = ""
        others = [delta for delta in self.deltas if delta.get("type") != "text_delta"]
        self.deltas = [{"type": "text_delta", "text": text}, *others]
        self._joined.clear()

    @property
    def shown_characters(self) -> int:
        """How many characters of the text were delivered."""
        texts = [as_text(delta.get("text")) for delta in self.deltas[: self.shown]]
        return len(as_text(self.start.get("text"))) * self.begun + sum(map(len, texts))

    def cut_text(self, length: int) -> str:
        """Remove the text after `length` characters, but no shown delta; return that text."""
        text, deltas, first = self.text, list[Json](), as_text(self.start.get("text"))
        if not self.begun and len(first) > length:
            self.start = {**self.start, "text": first[:length]}
        kept = len(first)
        for at, delta in enumerate(self.deltas):
            piece = as_text(delta.get("text")) if delta.get("type") == "text_delta" else ""
            if at >= self.shown and kept + len(piece) > length:
                if kept < length:
                    deltas.append({**delta, "text": piece[: length - kept]})
                break
            kept += len(piece)
            deltas.append(delta)
        self.deltas = deltas
        self._joined.clear()
        return text[len(self.text) :]

    def forget(self) -> None:
        """Clear the cached texts, because deltas were removed."""
        self._joined.clear()

    @property
    def phase(self) -> str:
        """The part of the answer to which a text belongs. Texts of two phases are not joined."""
        return as_text(self.start.get("phase"))

    @property
    def text(self) -> str:
        return as_text(self.start.get("text")) + self.pieces("text_delta", "text")

    @property
    def arguments(self) -> str:
        """A call's argument text so far."""
        raw = self.pieces("input_json_delta", "partial_json")
        if raw or not self.start.get("input"):
            return raw
        return dumps(self.start["input"]).decode()

    def goes_on(self, event: Json) -> bool:
        """Whether a block that begins in the answer's next hop continues this one."""
        plain = self.kind == TEXT or (self.kind in THINKING and self.loose)
        sealed = self.sealed or event.get("sealed") is True
        return plain and not sealed and not self.closed and self.start == event.get("content_block")

    def begins(self, call: Json) -> bool:
        """Whether `call` is this call again and has all of its arguments that had arrived."""
        if call.get("type") != TOOL_CALL or call.get("name") != self.start.get("name"):
            return False
        ours, theirs = as_json(parsed(self.arguments or "{}")), as_json(call.get("input"))
        return all(key in theirs and _starts(theirs[key], value) for key, value in ours.items())

    def rest_of(self, call: Block) -> str | None:
        """Return the rest of `call`'s arguments after this call's; `None`: they begin otherwise."""
        ours, theirs = self.arguments, call.arguments
        if self.start.get("name") != call.start.get("name"):
            return None
        same = as_json(parsed(ours)) == as_json(parsed(theirs)) if self.done else ours == theirs
        return "" if same else theirs[len(ours) :] if theirs.startswith(ours) else None

    @property
    def signed(self) -> bool:
        """Whether the next request may contain this thinking block."""
        if self.loose:
            return True
        if self.kind == "redacted_thinking":
            return bool(self.start.get("data"))
        signature = self.pieces("signature_delta", "signature")
        return bool(signature or self.start.get("signature"))

    @property
    def broken(self) -> bool:
        """Whether a call's arguments must be JSON, but break off."""
        return not self.free and breaks_off(self.arguments)

    @property
    def shows_cut(self) -> bool:
        """Whether truncation would be visible in the arguments, which is so only for raw JSON."""
        return not (self.free or self.may_be_parsed) and bool(self.arguments.strip())

    @property
    def may_be_parsed(self) -> bool:
        """Whether the server may have parsed the arguments, or repaired them to be JSON.

        Such arguments are JSON and arrive in one piece. What the model writes arrives in several.
        """
        if not self.args_verified:
            return True
        pieces = (delta for delta in self.deltas if delta.get("partial_json"))
        in_one = next(pieces, None) is None or next(pieces, None) is None
        raw = self.arguments.strip() if in_one else ""
        return raw == "null" or parsed(raw) is not None

    @property
    def fit(self) -> bool:
        """Whether the block may be delivered, or sent again, although the attempt broke off."""
        if self.kind == TEXT:
            return bool(self.text.strip())
        if self.kind in THINKING:
            return self.signed
        return self.done or self.kind == TOOL_CALL

    def whole(self, *, ended: bool) -> bool:
        """Whether a call's arguments are proven complete. `ended`: the message ended normally.

        Raw argument text is its own proof. If it does not break off, the model meant it so.
        """
        raw, settled = self.arguments.strip(), ended or self.finished
        if not raw or self.free:
            return self.done and settled
        if not settled and self.may_be_parsed:
            return False
        if isinstance(parsed(raw), dict):
            return True
        return self.args_verified and self.done and not breaks_off(raw)


def answered(block: Block, blocks: Sequence[Block]) -> bool:
    """Whether a call that the provider runs has its result; `True` for other blocks."""
    if awaited := block.start.get("awaits"):  # the type of its result identifies it, not an id
        behind = blocks[blocks.index(block) :]
        return any(other.done and other.kind == awaited for other in behind)
    if block.kind not in SERVER_CALLS:
        return True
    own = block.start.get("id")
    return any(other.done and other.start.get("tool_use_id") == own for other in blocks)


def calls_in(blocks: Sequence[Block]) -> list[Block]:
    """Return the calls that the caller runs."""
    return [block for block in blocks if block.kind == TOOL_CALL]


@dataclass(slots=True)
class Segment:
    """What one attempt generated: its blocks, and the message fields around them."""

    unary: bool = False
    message: Json = field(default_factory=dict[str, object])
    blocks: list[Block] = field(default_factory=list[Block])
    delta: Json = field(default_factory=dict[str, object])
    usage: Json = field(default_factory=dict[str, object])
    events: int = 0
    moves: bool = False
    """Something of the last block's content has arrived."""
    stopped: bool = False
    error: Json | None = None
    reason: str | None = None
    """The provider's stop reason; `None`: none has arrived."""
    at: dict[object, Block] = field(default_factory=dict[object, Block])
    """Index in events -> the block to which it refers now."""
    _ahead: Block | None = None
    """The last block before `reopen`, which the next block may continue."""
    _half: Block | None = None
    """The last call before `reopen`, if it was not proven complete."""
    removed: str = ""
    """Text that was generated and is no part of the answer: copies of a repetition."""
    _counted: tuple[int, ...] = (0, 0, 0)
    """Lengths of text, thinking and arguments at the time of `reopen`."""

    def add(self, event: Json) -> None:
        """Process the next event. Unknown events are only counted."""
        self.events += 1
        kind = event.get("type")
        if kind == "content_block_delta":
            self.delta.pop("token", None)
            self.note(event)
            if block := self.at.get(event.get("index")):
                block.deltas.append(as_json(event.get("delta")))
        elif kind == "content_block_start":
            self.delta.pop("token", None)
            self._begin(event)
        elif kind == "content_block_stop":
            if block := self.at.get(event.get("index")):
                block.done, block.cut = True, event.get("cut") is True
                block.finished = block.finished or event.get("finished") is True
        elif kind == "message_start":
            self.message = as_json(event.get("message"))
            _update(self.usage, self.message.get("usage"))
        elif kind == "message_delta":
            _update(self.delta, event.get("delta"))
            _update(self.usage, event.get("usage"))
            self.reason = as_text(self.delta.get("stop_reason")) or None
        elif kind == "message_stop":
            self.stopped = True
        elif kind == "error":
            self.error = as_json(event.get("error"))

    def _begin(self, event: Json) -> None:
        """Begin a block, or continue the last one after `reopen`."""
        half = self._half
        if half is not None and half.begins(as_json(event.get("content_block"))):
            self.blocks.remove(half)  # this event begins the same call again
            self._half = None
        if event.get("mute") is not True:
            for last in reversed(self.blocks):
                if last.finished:
                    break
                last.args_verified = last.finished = True  # a next block proves it
        before, self._ahead = self._ahead, None
        if before is not None and before.goes_on(event):
            before.done = False
            self.at[event.get("index")] = before
            return
        block = Block(
            as_json(event.get("content_block")),
            args_verified=event.get("args_verified", not self.unary) is not False,
            loose=event.get("loose") is True,
            free=event.get("free") is True,
            sealed=event.get("sealed") is True,
            finished=event.get("finished") is True,
        )
        self.blocks.append(block)
        self.at[event.get("index")] = block
        self.moves = False

    def note(self, event: Json) -> None:
        """Note whether a delta brings content: some servers begin a text with an empty one."""
        if not self.moves:
            self.moves = any(
                value for key, value in as_json(event.get("delta")).items() if key != "type"
            )

    @property
    def phases(self) -> list[str]:
        """What each block is: "text", "thinking" or "call"; "": unknown, or nothing of it came."""
        names = {TEXT: "text", TOOL_CALL: "call"} | dict.fromkeys(THINKING, "thinking")
        kinds = [names.get(block.kind, "") for block in [*self.blocks]]
        return kinds if self.moves else [*kinds[:-1], ""]

    def reopen(self, *, apart: bool) -> None:
        """Forget how the answer ended, because another attempt continues it.

        `apart`: all blocks of that attempt are new; `False`: its first may continue the last one.
        """
        self._ahead = self.blocks[-1] if self.blocks and not apart else None
        self._half = None
        for block in reversed(self.blocks):
            if block.finished:
                break
            if block.kind == TOOL_CALL and not (block.args_verified or block.begun):
                self._half = block
                break
        # If the next attempt breaks off at once, this token can be used again.
        self.delta = {"token": self.token} if self.token else {}
        self.usage, self.message = {}, {}
        self.events, self.stopped, self.error, self.reason = 0, False, None, None
        self._counted = tuple(map(len, self._parts))

    @property
    def token(self) -> str | None:
        """The provider's continuation token; `None`: there is none, or content followed it."""
        return as_text(self.delta.get("token")) or None

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join([block.text for block in self.blocks if block.kind == TEXT])

    @property
    def generated(self) -> str:
        """The text, thinking and arguments that arrived since `reopen`, or from the beginning."""
        parts = zip(self._parts, self._counted, strict=True)
        return "".join(part[counted:] for part, counted in parts) + self.removed

    @property
    def _parts(self) -> tuple[str, str, str]:
        thought = "".join(b.pieces("thinking_delta", "thinking") for b in self.blocks)
        return self.text, thought, "".join(call.arguments for call in self.calls)

    @property
    def calls(self) -> list[Block]:
        return calls_in(self.blocks)

    def call_state(self, *, ended: bool) -> ToolCallState:
        """Return the state of the attempt's calls: `CUT` if any of them is incomplete."""
        calls = self.calls
        if not calls:
            return ToolCallState.NONE
        whole = all(call.whole(ended=ended) for call in calls)
        return ToolCallState.WHOLE if whole else ToolCallState.CUT


def _update(kept: Json, given: object) -> None:
    """Update `kept`. Counts are cumulative. A missing or null value leaves the earlier one."""
    for key, value in as_json(given).items():
        if value is not None:
            kept[key] = value


def _starts(whole: object, value: object) -> bool:
    texts = isinstance(whole, str) and isinstance(value, str)
    return str(whole).startswith(str(value)) if texts else whole == value
