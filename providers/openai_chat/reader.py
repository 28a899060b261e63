"""Reads Chat Completions as block events.

A delta, or a message in a body, may have text, reasoning, calls and other fields of a vendor at
once. Each of these kinds becomes a block. The vendor's other fields belong to the open block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from continuation.providers.contract import PlainReader
from continuation.providers.openai_common.errors import lasting
from continuation.providers.openai_common.vendors import Profile
from continuation.types import Json
from continuation.wire import blocks as _blocks
from continuation.wire import sse as _sse
from continuation.wire.blocks import REFUSAL, TEXT, TOOL_CALL
from continuation.wire.json_values import as_json, as_key, as_list, as_text, dumps, parsed
from continuation.wire.text_template import PADDING, PlainEvents

_NONE: Json = {}
ENVELOPE: Final = ("choices", "usage", "obfuscation")
_ROLE = ("role", "refusal", "content", "tool_calls", "function_call")
_STEADY = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier"})
_CALL = frozenset({"index", "id", "type", "function", "custom"})
"""The fields of a call's piece that need no `call_delta`."""


class ChatReader(PlainReader):
    """Reads chunks as block events."""

    def __init__(self, profile: Profile, *, unasked: bool = False) -> None:
        """Make a reader. `unasked`: whether we did not request usage for ourselves."""
        self._unasked = unasked
        self._terminal = profile.terminal
        self._pieces = Pieces(profile)
        self._opened = self._counted = False
        self._ended: str | None = None
        self._choices = set[object]()
        self._plain = PlainEvents(_string, {"obfuscation": PADDING})

    def events(self, frame: _sse.Frame) -> Sequence[Json]:
        if (event := self._plain.match(frame)) is not None:
            self._pieces.observe(event["index"], as_json(event["delta"]))
            return (event,)
        events = list(self._events_of(frame))
        self._plain.learn(frame, events)
        return events

    def deltas(self, raw: bytes, index: object, *, text: bool) -> Iterator[tuple[Json, int]]:
        found = super().deltas(raw, index, text=text)
        return found if text else self._observed(index, found)

    def joined(
        self, raw: bytes, index: object, chunks: Sequence[bytes] = ()
    ) -> tuple[Json, int] | None:
        if (found := super().joined(raw, index, chunks)) is not None:
            self._pieces.observe(index, found[0])
        return found

    def _observed(
        self, index: object, found: Iterator[tuple[Json, int]]
    ) -> Iterator[tuple[Json, int]]:
        for delta, end in found:
            self._pieces.observe(index, delta)
            yield delta, end

    def _events_of(self, frame: _sse.Frame) -> Iterator[Json]:
        if frame.data.strip() == b"[DONE]":
            # [DONE] without a stop reason and usage does not show that the answer is complete.
            if self._ended or self._counted or self._terminal != "required":
                yield from (*self._pieces.close(), _blocks.ENDED)
            return
        chunk = _sse.decoded(frame)
        if (error := chunk.get("error")) and frame.name in {"", "error"}:
            given = as_json(error)  # some servers send an object, and others a string
            kind = str(given.get("type") or given.get("code") or "error")
            yield {"type": "error", "error": {**given, "type": kind, "lasting": lasting(given)}}
            return
        yield from self._chunk(chunk)

    def eof(self) -> Sequence[Json]:
        """Return the end if a stop reason arrived, or if this server may send none (`terminal`)."""
        if self._ended or (self._terminal == "optional" and self._opened):
            return [*self._pieces.close(), _blocks.ENDED]
        return ()

    def _chunk(self, chunk: Json) -> Iterator[Json]:
        choices = as_list(chunk.get("choices"))
        choice = as_json(choices[0]) if choices else {}
        if choices and not self._opened:
            self._opened = True
            head = {k: v for k, v in chunk.items() if k not in ENVELOPE}
            if "usage" in chunk and chunk["usage"] is None:
                head["usage"] = None
            delta = as_json(choice.get("delta"))
            first = {k: delta[k] for k in _ROLE[:3] if k in delta and (k == "role" or not delta[k])}
            yield _blocks.opening({**head, "logprobs": "logprobs" in choice, "said": first})
        reason = reason_of(choice)
        if reason == "stop":  # a gateway may add its own "stop" after the server's reason
            reason = self._ended or reason
        self._choices |= {as_key(as_json(one).get("index")) or 0 for one in choices}
        if reason and len(self._choices) > 1:
            reason = "stop"  # there are several answers, though one was requested: do not continue
        usage = as_json(chunk.get("usage"))
        if chunk and not (choices or usage or self._opened):
            yield {"type": "preface", "chunk": chunk}  # Azure's, about the prompt
        if usage:
            self._counted = True
            if reason is None:  # counts come first, so that the text is the chunk's last event
                counted = {"counted": True} if self._unasked and not choices else {}
                yield {"type": "message_delta", "delta": counted, "usage": usage}
        if choices:
            last = reason is not None  # other fields of a chunk with a reason belong to the reason
            first = as_json(choice.get("delta"))
            yield from self._pieces.take(first, *(() if last else (choice, chunk)))
        if reason is not None:
            self._ended = reason
            yield from self._pieces.close()
            self._pieces.note(choice, chunk)
            more = {name: fields for name, fields in self._pieces.due.items() if fields}
            inline = {"inline": True} if usage else {}
            yield _blocks.closing(reason, usage, **more, **inline)


def _string(chunk: Json) -> object:
    """Return a decoded chunk's text, or its piece of a call's arguments.

    `None` for a piece with a name: whether it begins a call depends on the arguments so far.
    """
    delta = as_json(as_list(chunk["choices"])[0]["delta"])
    if not delta.get("tool_calls"):
        return delta["content"]
    (call,) = as_list(delta["tool_calls"])
    own = call["function"]
    usual = "custom" not in call and "input" not in own and not own.get("name")
    return own["arguments"] if usual else None


def reason_of(choice: Json) -> str | None:
    """Return a choice's stop reason, or `None`. Some servers send "" or "null" for none."""
    reason = as_text(choice.get("finish_reason"))
    return reason if reason not in {"", "null"} else None


def around(choice: Json) -> Json:
    """Return the fields of a choice that the format does not define."""
    usual = {"index", "delta", "finish_reason"}
    return {k: v for k, v in choice.items() if k not in usual and v is not None}


def beside(chunk: Json) -> Json:
    """Return the fields of a chunk that the format does not define."""
    usual = {*ENVELOPE, *_STEADY}
    return {k: v for k, v in chunk.items() if k not in usual and v is not None}


# --- deltas --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """One call of the answer: its index, its block, and its parts that have arrived."""

    index: object
    block: int
    ident: str
    name: str
    arguments: list[str] = field(default_factory=list[str])

    def differs(self, ident: str, name: str) -> bool:
        """Whether a piece with this call's index begins another call."""
        if ident and self.ident:
            return ident != self.ident
        if self.names_on(name):
            return False
        return bool(name) and (name != self.name or self.whole)

    def names_on(self, name: str) -> bool:
        """Whether `name`, in a piece without an id, continues this call's name."""
        return bool(self.ident) and not self.arguments and name not in {"", self.name}

    @property
    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        ended = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return ended and isinstance(parsed("".join(self.arguments)), dict)


class Pieces:
    """Splits deltas, and the messages of bodies, into blocks."""

    def __init__(self, profile: Profile) -> None:
        self._reasoning = (*profile.reasoning, "reasoning_content", "reasoning")
        self._beside: dict[str, Json] = {"choice": {}, "chunk": {}}
        """The fields of choices and chunks that the format does not define, as last emitted."""
        self.due: dict[str, Json] = {"choice": {}, "chunk": {}}
        """Those of these fields that have changed and must still be emitted."""
        self._where = ""
        """The name of the open block; `""`: none is open."""
        self._open = self._number = 0
        """The number of the open block, and the highest number so far."""
        self._calls: dict[object, _Call] = {}
        """The calls by index, or by id if a call has no index."""
        self._last: _Call | None = None
        self._held: dict[object, list[Json]] = {}
        """Pieces of parallel calls, by index, that arrived before the open call was complete."""

    def take(self, delta: Json, choice: Json = _NONE, chunk: Json = _NONE) -> Iterator[Json]:
        """Yield the events of one delta, and then the changed fields around it as another delta.

        They are separate, because a text delta that is merged with others keeps only its text.
        """
        self.note(choice, chunk)
        yield from self._split(delta)
        due = {name: fields for name, fields in self.due.items() if fields}
        if due and self._where not in {"", "thinking"}:  # thoughts may not be delivered
            yield _blocks.delta(self._open, "extra_delta", **due)
            for name, fields in due.items():
                self._beside[name] |= fields
                self.due[name] = {}

    def note(self, choice: Json, chunk: Json) -> None:
        """Note which of the other fields of a choice and its chunk have changed."""
        for name, fields in (("choice", around(choice)), ("chunk", beside(chunk))):
            known = self._beside[name]
            self.due[name] |= {k: v for k, v in fields.items() if known.get(k) != v}

    def observe(self, block: object, delta: Json) -> None:
        """Note the arguments of a delta that was read by template, without `take`."""
        if self._calls and (piece := delta.get("partial_json")):
            call = next(c for c in self._calls.values() if c.block == block)
            call.arguments.append(as_text(piece))

    def close(self) -> Iterator[Json]:
        """Yield all buffered calls, and the end of the open block."""
        while self._held:
            yield from self._next_held()
        yield from self._stop()

    def _stop(self) -> Iterator[Json]:
        """End the open block."""
        if self._where:
            yield _blocks.stop(self._open)
        self._where = ""

    def _split(self, delta: Json) -> Iterator[Json]:
        thoughts = *self._reasoning, "reasoning_details"
        if thought := {k: delta[k] for k in thoughts if delta.get(k)}:
            yield from self._in("thinking", {"type": "thinking"}, loose=True)
            text = next((v for v in thought.values() if isinstance(v, str)), "")
            yield _blocks.delta(self._open, "thinking_delta", thinking=text, native=thought)
        yield from self._speak(delta.get("content"))
        if refusal := as_text(delta.get(REFUSAL)):
            yield from self._in(REFUSAL, {"type": REFUSAL})
            yield _blocks.delta(self._open, "refusal_delta", native={REFUSAL: refusal})
        for item in filter(None, map(as_json, as_list(delta.get("tool_calls")))):
            yield from self._in_turn(item)
        if legacy := as_json(delta.get("function_call")):
            yield from self._legacy(legacy)
        handled = {*_ROLE, *thoughts}
        if native := {k: v for k, v in delta.items() if v is not None and k not in handled}:
            if not self._where:
                yield from self._in(TEXT, {"type": TEXT, "text": ""})
            yield _blocks.delta(self._open, "extra_delta", native=native)

    def _speak(self, content: object) -> Iterator[Json]:
        if isinstance(content, str):
            if content:
                yield from self._in(TEXT, {"type": TEXT, "text": ""})
                yield _blocks.delta(self._open, "text_delta", text=content)
            return
        for item in map(as_json, as_list(content)):  # Mistral's reasoning models
            kind = as_text(item.get("type"))
            if kind == TEXT:
                yield from self._speak(as_text(item.get("text")))
            elif kind == "thinking":
                yield from self._in("thinking", {"type": "thinking"}, loose=True)
                yield _blocks.delta(self._open, "thinking_delta", native={"content": [item]})
            else:
                yield from self._in(kind, {"type": kind or "part"})
                yield _blocks.delta(self._open, "part_delta", native={"content": [item]})

    def _in_turn(self, item: Json) -> Iterator[Json]:
        """Yield one call after the other. Some servers mix the pieces of parallel calls.

        In most formats a block gets no more deltas after another block has begun.
        """
        index = as_key(item.get("index"))
        if index in self._held:
            self._held[index].append(item)
        elif index is not None and index not in self._calls and self._busy:
            self._held[index] = [item]
        else:
            yield from self._call(item)
            while self._held and not self._busy:
                yield from self._next_held()

    def _next_held(self) -> Iterator[Json]:
        for item in self._held.pop(next(iter(self._held))):
            yield from self._call(item)

    @property
    def _busy(self) -> bool:
        """Whether the open block is a call whose arguments are not yet a JSON object."""
        call = self._last
        return bool(call and self._where and call.block == self._open and not call.whole)

    def _call(self, item: Json) -> Iterator[Json]:
        """Yield a piece of a call, found by its index. Some servers send none, or one for all."""
        own = as_json(item.get("custom")) or as_json(item.get("function"))
        ident, name = as_text(item.get("id")), as_text(own.get("name"))
        index: object = as_key(item.get("index"))
        if index is None:
            index = ident or (self._last.index if self._last is not None else 0)
        call = self._calls.get(index)
        if call is None or call.differs(ident, name):
            start = {"type": TOOL_CALL, "id": ident, "name": name, "native": item}
            free = item.get("type") == "custom" or "custom" in item
            traits = {"free": free}
            if not free and isinstance(own.get("arguments"), str):
                traits["args_verified"] = True  # a string is the model's raw text in a body too
            yield from self._in(f"call {self._number}", start, **traits)
            call = self._last = self._calls[index] = _Call(index, self._open, ident, name)
        else:
            native = {k: v for k, v in item.items() if k not in _CALL and v is not None}
            if call.names_on(name):
                call.name += name
                native["custom" if "custom" in item else "function"] = {"name": name}
            if ident and not call.ident:
                native["id"] = call.ident = ident
            if native:
                yield _blocks.delta(call.block, "call_delta", native=native)
        yield from self._arguments(call, own.get("input", own.get("arguments")))

    def _legacy(self, function: Json) -> Iterator[Json]:
        call = self._calls.get("legacy")
        if call is None:
            name = as_text(function.get("name"))
            start = {"type": TOOL_CALL, "id": "", "name": name, "native": function, "legacy": True}
            yield from self._in("legacy call", start)
            call = self._last = self._calls["legacy"] = _Call("legacy", self._open, "", name)
        yield from self._arguments(call, function.get("arguments"))

    def _arguments(self, call: _Call, piece: object) -> Iterator[Json]:
        if isinstance(piece, dict):  # Ollama's own form, which some gateways pass on
            piece = dumps(cast("Json", piece)).decode()
        if isinstance(piece, str) and piece:
            call.arguments.append(piece)
            yield _blocks.delta(call.block, "input_json_delta", partial_json=piece)

    def _in(self, where: str, start: dict[str, Any], **traits: bool) -> Iterator[Json]:
        """End the open block and begin the block named `where`, unless that is open."""
        if self._where == where:
            return
        yield from self._stop() if start["type"] == TOOL_CALL else self.close()
        self._number += 1
        self._where, self._open = where, self._number
        yield _blocks.start(self._open, start, **traits)
